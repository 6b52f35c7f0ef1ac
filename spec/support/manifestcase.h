/* A manifest of a few tensors, for the specs of its reader and writer. */
#ifndef MR_MANIFESTCASE_H
#define MR_MANIFESTCASE_H
#include "ckpt/manifest.h"
#include "ckptcase.h"

static inline json_t *meta_of(const char *text)
{
    json_error_t err;
    return json_loads(text, 0, &err);
}

/* One file of two blocks: the tensors of case_items, x.weight smaller, and y in two boxes. */
static inline void manifest_case(mr_manifest *m)
{
    mr_hash128 blocks[2] = {{1, 2}, {3, 4}};
    mr_ckpt_file file = {
        .name = "r00000-of-00001.safetensors", .bytes = MR_CKPT_BLOCK + 5, .blocks = blocks};
    mr_ckpt_item items[CASE_ITEMS + 2];
    mr_manifest part;
    case_items(items);
    items[0].shape[0] = 10, items[0].shape[1] = 20;
    for (int i = 0; i < 2; i++)
        items[CASE_ITEMS + i] = (mr_ckpt_item){
            .name = "y",
            .dtype = MR_ST_F32,
            .rank = 2,
            .shape = {4, 6},
            .slice = {MR_CKPT_BOX, {0, i ? 2 : 0}, {4, i ? 6 : 2}},
        };
    mr_manifest_init(&part), mr_manifest_init(m);
    snprintf(m->run, sizeof m->run, "abc");
    m->fence = 7, m->step = 1234, m->ranks = 1;
    CHECK_OK(mr_manifest_add(&part, &file, items, (int64_t[]){8, 808, 1116, 1116, 2000, 3000},
                             CASE_ITEMS + 2));
    CHECK_OK(mr_manifest_merge(m, &part, 1));
    mr_manifest_fini(&part);
}

static inline char *manifest_text(size_t *n)
{
    char *text = NULL;
    mr_manifest m;
    json_t *meta = meta_of(CASE_META);
    manifest_case(&m);
    CHECK_OK(mr_manifest_build(&m, meta, &text, n));
    json_decref(meta);
    mr_manifest_fini(&m);
    CHECK_INT(strlen(text), *n);
    return text;
}
#endif
