/* index: the growing list of samples that folders and tables fill. Licence: Apache-2.0 */
#include "index/room.h"

#include <string.h>

mr_status index_source_add(index_source *s, const char *path, const char *text, uint64_t line)
{
    if (s->n == s->cap) {
        uint64_t cap = MR_MAX(s->cap * 2, 1024);
        index_input *more = mr_realloc(s->rows, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->rows = more, s->cap = cap;
    }
    index_input in = {.path = mr_arena_strdup(&s->arena, path),
                      .text = text ? mr_arena_strdup(&s->arena, text) : NULL,
                      .line = line};
    if (!in.path || (text && !in.text))
        return mr_fail_memory(strlen(path));
    s->rows[s->n++] = in;
    return MR_OK;
}

void index_source_fini(index_source *s)
{
    mr_free(s->rows);
    mr_arena_fini(&s->arena);
}
