/* ckpt: values of a pickle, in the interpreter's arena. Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <string.h>

enum { VALUES_MAX = 48 << 20 };

void *mr_pickle_alloc(mr_pickle *p, size_t bytes)
{
    p->used += (bytes + 15) / 16 * 16;
    if (p->used > VALUES_MAX) {
        mr_fail(MR_E_FORMAT, "%s: pickle: its values take more than %d MiB", p->path,
                VALUES_MAX >> 20);
        return NULL;
    }
    void *memory = mr_arena_alloc(&p->arena, bytes);
    if (!memory)
        mr_fail_memory(bytes);
    return memory;
}

mr_pickled *mr_pickle_new(mr_pickle *p, mr_pickled_kind kind)
{
    mr_pickled *x = mr_pickle_alloc(p, sizeof *x);
    if (x)
        x->kind = (uint8_t)kind;
    return x;
}

bool mr_pickled_is(const mr_pickled *x, const char *text)
{
    return x->kind == MR_P_TEXT && strlen(text) == (size_t)x->n &&
           memcmp(x->text, text, (size_t)x->n) == 0;
}
