/* data: the growing list of samples that folders and tables fill. Licence: Apache-2.0 */
#include "data/data.h"

#include <string.h>

mr_status data_source_add(data_source *s, const char *path, const char *text, uint64_t line)
{
    if (s->n == s->cap) {
        uint64_t cap = MR_MAX(s->cap * 2, 1024);
        data_input *more = mr_realloc(s->rows, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->rows = more, s->cap = cap;
    }
    data_input in = {.path = mr_arena_strdup(&s->arena, path),
                     .text = text ? mr_arena_strdup(&s->arena, text) : NULL,
                     .line = line};
    if (!in.path || (text && !in.text))
        return mr_fail_memory(strlen(path));
    s->rows[s->n++] = in;
    return MR_OK;
}

void data_source_fini(data_source *s)
{
    mr_free(s->rows);
    mr_arena_fini(&s->arena);
}
