/* index: rows that are refused before their file is looked at: captions that nothing should be
 * trained on, and rows that are one sample. Licence: Apache-2.0 */
#include "index/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// the first reason to refuse a row stays
static mr_status refuse(index_source *s, index_input *in, const char *class, const char *why)
{
    if (in->fault)
        return MR_OK;
    in->class = class;
    return (in->fault = mr_arena_strdup(&s->arena, why)) ? MR_OK : mr_fail_memory(strlen(why));
}

static mr_status vet_caption(index_source *s, index_input *in)
{
    char why[INDEX_WHY];
    if (!in->text || !index_caption_bad(in->text, why))
        return MR_OK;
    in->text = NULL;
    return refuse(s, in, "caption", why);
}

// In the sorted keys of all rows those of one sample lie together, the first of the list in front.
static mr_status vet_keys(index_source *s, const char *source, index_keymap_entry *keys)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        char full[4096];
        const char *relative;
        if (index_source_path(s, s->rows[i].path, full, &relative) != MR_OK) {
            MR_TRY(refuse(s, &s->rows[i], "open", mr_error_last()->text));
            continue;
        }
        mr_hash128 key = mr_sample_key(source, relative, 0, -1);
        keys[n++] = (index_keymap_entry){key.hi, key.lo, i};
    }
    qsort(keys, n, sizeof *keys, index_keymap_compare);
    for (uint64_t k = 1, first = 0; k < n; k++) {
        char why[4400];
        const index_input *same = &s->rows[keys[first].id];
        if (keys[k].hi != keys[first].hi || keys[k].lo != keys[first].lo) {
            first = k;
            continue;
        }
        snprintf(why, sizeof why, "%.4000s: the same sample as row %llu (%.200s)",
                 s->rows[keys[k].id].path, (unsigned long long)same->line, same->path);
        MR_TRY(refuse(s, &s->rows[keys[k].id], "duplicate", why));
    }
    return MR_OK;
}

mr_status index_source_vet(index_source *s, const char *source)
{
    for (uint64_t i = 0; i < s->n; i++)
        MR_TRY(vet_caption(s, &s->rows[i]));
    index_keymap_entry *keys = mr_alloc(sizeof *keys * s->n);
    if (!keys)
        return mr_fail_memory(sizeof *keys * s->n);
    mr_status st = vet_keys(s, source, keys);
    mr_free(keys);
    return st;
}
