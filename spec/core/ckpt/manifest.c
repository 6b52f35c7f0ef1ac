/* ckpt/manifest: the parts of ranks are joined; parts that contradict each other are reported. */
#include "manifestcase.h"

enum { RANKS = 3 };
static mr_manifest parts[RANKS];

static mr_ckpt_item range(const char *name, int64_t n, int64_t from, int64_t to)
{
    return (mr_ckpt_item){.name = name,
                          .dtype = MR_ST_F32,
                          .rank = 1,
                          .shape = {n},
                          .slice = {MR_CKPT_RANGE, {from}, {to}}};
}

/* The parts: rank 0 has all of `one`, and each a third of `all`. */
static void make_parts(void)
{
    for (int r = 0; r < RANKS; r++) {
        char name[40];
        mr_hash128 block = {(uint64_t)r, 9};
        snprintf(name, sizeof name, "r%05d-of-00003.safetensors", r);
        mr_ckpt_item items[] = {range("all", 30, 10 * r, 10 * r + 10), range("one", 4, 0, 4)};
        CHECK_OK(mr_manifest_add(&parts[r], &(mr_ckpt_file){name, 1000, &block}, items,
                                 (int64_t[]){100 + r, 200}, r ? 1 : 2));
    }
}

static void fresh(void)
{
    for (int r = 0; r < RANKS; r++) {
        mr_manifest_fini(&parts[r]);
        mr_manifest_init(&parts[r]);
    }
}

static void merged(void)
{
    mr_manifest m;
    fresh();
    make_parts();
    mr_manifest_init(&m);
    CHECK_OK(mr_manifest_merge(&m, parts, RANKS));
    CHECK_OK(mr_manifest_check("whole", &m));
    CHECK_INT(m.n_files, RANKS);
    CHECK_STR(m.files[2].name, "r00002-of-00003.safetensors");
    CHECK_INT(m.files[2].blocks[0].lo, 2);
    CHECK_INT(m.n_tensors, 2);
    CHECK_STR(m.tensors[0].is.name, "all");
    CHECK_INT(m.tensors[0].n, 3);
    CHECK_INT(m.tensors[1].n, 1);
    for (int r = 0; r < RANKS; r++) {
        const mr_piece *p = &m.pieces[m.tensors[0].first + r];
        CHECK_INT(p->file, r);
        CHECK_INT(p->offset, 100 + r);
        CHECK_INT(p->bounds[0], 10 * r);
    }
    mr_manifest_fini(&m);
}

/* With another item in rank 1's part: the error. */
static void wrong_part(mr_ckpt_item item, const char *why)
{
    mr_manifest m;
    mr_hash128 block = {1, 9};
    fresh();
    make_parts();
    mr_manifest_fini(&parts[1]), mr_manifest_init(&parts[1]);
    CHECK_OK(mr_manifest_add(&parts[1],
                             &(mr_ckpt_file){"r00001-of-00003.safetensors", 1000, &block}, &item,
                             (int64_t[]){101}, 1));
    mr_manifest_init(&m);
    mr_status st = mr_manifest_merge(&m, parts, RANKS);
    if (st == MR_OK)
        st = mr_manifest_check("whole", &m);
    CHECK_FAILS(st, MR_E_CKPT, why);
    mr_manifest_fini(&m);
}

static void wrong_parts(void)
{
    wrong_part(range("other", 3, 0, 3), "whole: tensor 'all': elements 10 to 20 are in no file");
    wrong_part(range("all", 30, 12, 20), "elements 10 to 12 are in no file");
    wrong_part(range("all", 30, 10, 22),
               "elements 20 to 22 are in both r00001-of-00003.safetensors and r00002-of-00003");
    wrong_part(range("all", 31, 10, 20),
               "tensor 'all' has another dtype, shape or partition in r00001-of-00003.safetensors "
               "than in r00000-of-00003.safetensors");
    mr_ckpt_item item = range("all", 30, 10, 20);
    item.dtype = MR_ST_I32;
    wrong_part(item, "tensor 'all' has another dtype");
    item = range("all", 30, 10, 20);
    item.slice.cut = MR_CKPT_BOX;
    wrong_part(item, "tensor 'all' has another dtype, shape or partition");
}

/* Empty parts are accepted. */
static void empty_pieces(void)
{
    mr_manifest m;
    mr_hash128 block = {1, 9};
    fresh();
    make_parts();
    CHECK_OK(mr_manifest_add(&parts[1], &(mr_ckpt_file){"x", 1000, &block},
                             (mr_ckpt_item[]){range("all", 30, 5, 5)}, (int64_t[]){101}, 1));
    mr_manifest_init(&m);
    CHECK_OK(mr_manifest_merge(&m, parts, RANKS));
    CHECK_OK(mr_manifest_check("whole", &m));
    CHECK_INT(m.tensors[0].n, 4);
    mr_manifest_fini(&m);
}

int main(void)
{
    merged();
    wrong_parts();
    empty_pieces();
    fresh();
    return check_done();
}
