/* The rows of a source, read one after another. */
#ifndef MR_SPEC_INPUTS_H
#define MR_SPEC_INPUTS_H
#include "check.h"
#include "index/list.h"

enum { INPUTS_MAX = 400 };
static index_input inputs[INPUTS_MAX];
static index_pack input_texts[INPUTS_MAX];

/* All rows of a source that has ended; they stay valid until the next call. */
static inline void inputs_take(index_source *s)
{
    for (uint64_t i = 0; i < s->n && i < INPUTS_MAX; i++)
        if (!CHECK_OK(index_source_take(s, &input_texts[i], &inputs[i])))
            return;
}

/* The row with this path among the rows of the last inputs_take. */
static inline const index_input *inputs_at(const index_source *s, const char *path)
{
    static const index_input none = {.path = "?", .text = "?", .fault = "?", .class = "?"};
    for (uint64_t i = 0; i < s->n; i++)
        if (strcmp(inputs[i].path, path) == 0)
            return &inputs[i];
    return &none;
}

static inline void inputs_free(void)
{
    for (int i = 0; i < INPUTS_MAX; i++)
        mr_free(input_texts[i].bytes);
}
#endif
