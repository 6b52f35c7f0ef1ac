/* ckpt/snapshot: the snapshot is the file, byte for byte, and its block hashes are right, with
 * helpers or without. */
#include "ckpt/manifest.h"
#include "ckpt/snapshot.h"
#include "ckptcase.h"

enum { BIG = 20 * (1 << 18) + 11 }; /* f32 elements: 20 blocks and a bit, so helpers run */
static float big[BIG];

static mr_status fail_late(void *user, void *dst, int64_t offset, int64_t n)
{
    if (offset > 15 << 20)
        return mr_fail(MR_E_NODE, "the device is gone");
    memcpy(dst, (const char *)user + offset, (size_t)n);
    return MR_OK;
}

static void check_image(const mr_ckpt_item *items, int n)
{
    mr_snapshot_layout l;
    mr_snapshot_init(&l);
    CHECK(!mr_snapshot_fits(&l, items, n));
    CHECK_OK(mr_snapshot_make(&l, items, n));
    CHECK(mr_snapshot_fits(&l, items, n));
    char *image = mr_alloc((size_t)l.total), path[600], *file;
    mr_hash128 *blocks = mr_calloc((size_t)mr_ckpt_blocks(l.total), sizeof *blocks);
    CHECK_OK(mr_snapshot_copy(&l, items, 0, l.total, image, blocks));
    for (int64_t b = 0; b < mr_ckpt_blocks(l.total); b++) {
        mr_hash128 h =
            mr_hash128_of(image + b * MR_CKPT_BLOCK,
                          (size_t)MR_MIN(l.total - b * MR_CKPT_BLOCK, (int64_t)MR_CKPT_BLOCK));
        CHECK(h.lo == blocks[b].lo && h.hi == blocks[b].hi);
    }
    // the same bytes as the writer of whole files makes
    size_t bytes;
    mr_st_pair format = {"format", "moonreel"};
    snprintf(path, sizeof path, "%s/x.safetensors", case_dir("snapshot"));
    CHECK_OK(mr_safetensors_write(path, items, n, &format, 1));
    CHECK_OK(mr_file_read_all(path, &file, &bytes));
    CHECK_INT(bytes, l.total);
    CHECK(memcmp(file, image, bytes) == 0);
    mr_free(file);
    mr_free(image);
    mr_free(blocks);
    mr_snapshot_drop(&l);
}

int main(void)
{
    mr_ckpt_item items[CASE_ITEMS];
    case_fill(3);
    case_items(items);
    check_image(items, CASE_ITEMS);
    check_image(items + 2, 1); // one empty tensor: a header only
    for (int i = 0; i < BIG; i++)
        big[i] = (float)(i % 7919);
    mr_ckpt_item many[] = {
        items[0],
        items[2],
        {.name = "big", .dtype = MR_ST_F32, .rank = 1, .shape = {BIG}, .data = big},
        items[1],
        items[3]};
    check_image(many, 5); // helpers hash what a copy function has written there
    case_fill(3);
    many[0].copy = NULL, many[0].data = case_a;
    check_image(many, 5); // helpers copy too

    // a copy function that fails in the middle ends the helpers too
    mr_snapshot_layout l;
    mr_snapshot_init(&l);
    many[2].copy = fail_late, many[2].user = big;
    CHECK_OK(mr_snapshot_make(&l, many, 5));
    char *image = mr_alloc((size_t)l.total);
    mr_hash128 *blocks = mr_calloc((size_t)mr_ckpt_blocks(l.total), sizeof *blocks);
    CHECK_FAILS(mr_snapshot_copy(&l, many, 0, l.total, image, blocks), MR_E_NODE,
                "the device is gone");
    mr_free(image);
    mr_free(blocks);

    // another name, shape, dtype or number of items is another layout
    CHECK(mr_snapshot_fits(&l, many, 5));
    CHECK(!mr_snapshot_fits(&l, many, 4));
    many[4].name = "stop";
    CHECK(!mr_snapshot_fits(&l, many, 5));
    many[4].name = "step", many[2].shape[0]--;
    CHECK(!mr_snapshot_fits(&l, many, 5));
    many[2].shape[0]++, many[1].dtype = MR_ST_F16;
    CHECK(!mr_snapshot_fits(&l, many, 5));
    mr_snapshot_drop(&l);
    mr_dir_remove(case_dir("snapshot"));
    return check_done();
}
