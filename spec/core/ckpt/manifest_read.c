/* ckpt/manifest_read: each changed byte of a manifest is detected, and a complete but wrong
 * manifest is refused with what is wrong; both schemas. */
#include "manifestcase.h"
#include "peak.h"

#include <sys/stat.h>

static char dir[600], path[700];

static void put_text(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    fwrite(text, 1, n, f);
    fclose(f);
}

static void round_trip(void)
{
    size_t n;
    char *text = manifest_text(&n);
    mr_manifest m;
    put_text(text, n);
    CHECK_OK(mr_manifest_read(path, false, &m));
    CHECK_INT(m.schema, 2);
    CHECK_STR(m.run, "abc");
    CHECK_INT(m.fence, 7);
    CHECK_INT(m.step, 1234);
    CHECK_INT(m.ranks, 1);
    CHECK_INT(m.n_files, 1);
    CHECK_INT(m.files[0].bytes, MR_CKPT_BLOCK + 5);
    CHECK(m.files[0].blocks[1].lo == 3 && m.files[0].blocks[1].hi == 4);
    CHECK_INT(m.n_tensors, CASE_ITEMS + 1);
    CHECK_STR(m.tensors[1].is.name, "master.x.weight");
    CHECK_INT(m.tensors[1].is.offset, 808);
    CHECK_INT(m.tensors[3].is.rank, 0);
    const mr_manifest_tensor *y = &m.tensors[CASE_ITEMS];
    CHECK_INT(y->cut, MR_CKPT_BOX);
    CHECK_INT(y->n, 2);
    CHECK_INT(m.pieces[y->first + 1].offset, 3000);
    CHECK_INT(m.pieces[y->first + 1].bounds[2], 2);
    // text other than files and tensors is JSON, and complete
    json_t *facts = meta_of(m.facts);
    CHECK_INT(json_integer_value(json_object_get(facts, "seed")), 1);
    CHECK_STR(json_string_value(json_object_get(json_object_get(facts, "machine"), "isa")), "x");
    CHECK(!json_object_get(facts, "files") && !json_object_get(facts, "tensors"));
    json_decref(facts);
    mr_manifest_fini(&m);
    mr_free(text);
}

/* Any one byte changed, removed or repeated is detected. */
static void any_byte(void)
{
    size_t n;
    char *text = manifest_text(&n), *copy = malloc(n + 1);
    mr_manifest m;
    int refused = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(copy, text, n);
        copy[i] ^= 1;
        put_text(copy, n);
        refused += mr_manifest_read(path, false, &m) == MR_E_FORMAT;
        mr_manifest_fini(&m);
    }
    CHECK_INT(refused, n);
    for (size_t i = 0; i < n; i += 7) {
        put_text(text, i);
        CHECK_FAILS(mr_manifest_read(path, false, &m), MR_E_FORMAT, "MANIFEST.json");
        mr_manifest_fini(&m);
    }
    free(copy);
    mr_free(text);
}

/* Replaces `from` by `to` and signs again: a complete but wrong manifest. */
static void signed_lie(const char *from, const char *to, mr_status code, const char *part)
{
    size_t n;
    char *text = manifest_text(&n), hex[33], *at = strstr(text, from);
    char *lie = malloc(n + 200);
    CHECK(at != NULL);
    size_t body = (size_t)(strrchr(text, ',') - text), head = (size_t)(at - text);
    size_t used = (size_t)sprintf(lie, "%.*s%s%.*s", (int)head, text, to,
                                  (int)(body - head - strlen(from)), at + strlen(from));
    mr_hash128_hex(mr_hash128_of(lie, used), hex);
    used += (size_t)sprintf(lie + used, ",\n \"self\": \"%s\"\n}\n", hex);
    put_text(lie, used);
    mr_manifest m;
    CHECK_FAILS(mr_manifest_read(path, false, &m), code, part);
    mr_manifest_fini(&m);
    free(lie);
    mr_free(text);
}

static void lies(void)
{
    signed_lie("\"schema\": 2", "\"schema\": 3", MR_E_UNSUPPORTED,
               "schema version 3; this moonreel reads versions 1 to 2");
    signed_lie("\"schema\": 2", "\"schema\": \"2\"", MR_E_CKPT, "'schema' has the wrong type");
    signed_lie("\"schema\": 2,", "", MR_E_CKPT, "no schema version");
    signed_lie("\"step\": 1234", "\"step\": -1", MR_E_CKPT, "'step' has the wrong type");
    signed_lie("\"step\": 1234,", "", MR_E_CKPT, "run, step, fence or world is missing");
    signed_lie("\"seed\"", "\"step\"", MR_E_CKPT, "step occurs twice");
    signed_lie("\"ranks\": 1", "\"ranks\": 2", MR_E_CKPT, "1 files for 2 ranks");
    signed_lie("\"seed\": 1", "\"rank\": 0", MR_E_CKPT, "expected no part of one rank");
    signed_lie("r00000-of-00001", "../r00000-of-00001", MR_E_CKPT, "files[0] is not a file entry");
    signed_lie("\"block_bytes\": 1048576", "\"block_bytes\": 0", MR_E_CKPT,
               "files[0] is not a file entry");
    signed_lie("\"bytes\": 1048581", "\"bytes\": 1048577000", MR_E_CKPT,
               "1048577000 bytes need more block hashes than are listed");
    signed_lie("\"bytes\": 1048581", "\"bytes\": 9223372036854775807", MR_E_CKPT,
               "need more block hashes than are listed");
    signed_lie("\"bytes\": 1048581", "\"bytes\": 1048576", MR_E_CKPT, "hash of block 1 is missing");
    signed_lie("0000000000000003", "000000000000000x", MR_E_CKPT, "hash of block 1 is missing");
    signed_lie("0000000000000003", "0000000000000005", MR_E_CKPT,
               "its hash does not match the hashes of its blocks");
    signed_lie("[[0, 808,", "[[0, 9223372036854775807,", MR_E_CKPT, "ends beyond its file");
    signed_lie("[[0, 808,", "[[1, 808,", MR_E_CKPT,
               "tensor 'master.x.weight' refers to file 1; expected less than 1");
    signed_lie("[[0, 808,", "[[-1, 808,", MR_E_CKPT, "a piece is not [file, offset, from, to");
    signed_lie("[[0, 808, 0, 77]]", "[[0, 808, 0, 77, 0]]", MR_E_CKPT, "a piece is not [file");
    signed_lie("\"dtype\": \"f32\"", "\"dtype\": \"f99\"", MR_E_CKPT,
               "tensors[0] is not a tensor entry");
    signed_lie("[10, 20]", "[10, 9223372036854775807]", MR_E_CKPT,
               "its shape has too many elements");
    signed_lie("\"kind\"", "{", MR_E_CKPT, "expected a name in quotes");
    // bytes that the pieces leave out or hold twice
    signed_lie("[[0, 808, 0, 77]]", "[[0, 808, 0, 70]]", MR_E_CKPT,
               "tensor 'master.x.weight': elements 70 to 77 are in no file");
    signed_lie("[[0, 808, 0, 77]]", "[[0, 808, 3, 77]]", MR_E_CKPT,
               "elements 0 to 3 are in no file");
    signed_lie("[[0, 808, 0, 77]]", "[[0, 808, 0, 78]]", MR_E_CKPT,
               "tensor 'master.x.weight': range 0 to 78: expected 0 <= from <= to <= 77");
    signed_lie("[[0, 808, 0, 77]]", "[[0, 808, 9, 4]]", MR_E_CKPT, "range 9 to 4");
    signed_lie("[[0, 808, 0, 77]]", "[[0, 808, 0, 40], [0, 808, 30, 77]]", MR_E_CKPT,
               "elements 30 to 40 are in both r00000-of-00001.safetensors and r00000");
    signed_lie("[[0, 808, 0, 77]]", "[]", MR_E_CKPT, "elements 0 to 77 are in no file");
    signed_lie("[0, 3000, 0, 4, 2, 6]", "[0, 3000, 1, 4, 1, 6]", MR_E_CKPT,
               "tensor 'y': rows 1 to 4 are in both ");
    signed_lie("[0, 3000, 0, 4, 2, 6]", "[0, 3000, 0, 3, 2, 6]", MR_E_CKPT,
               "tensor 'y': 4 of its 24 elements are in no file");
    signed_lie("[0, 3000, 0, 4, 2, 6]", "[0, 3000, 0, 4, 2, 7]", MR_E_CKPT, "box 2 to 7: expected");
    signed_lie("\"boxes\"", "\"ranges\"", MR_E_CKPT, "a piece is not [file, offset");
    signed_lie("\"boxes\"", "\"holes\"", MR_E_CKPT, "tensors[4] is not a tensor entry");
    signed_lie("\"boxes\"", "\"ranges\": [], \"boxes\"", MR_E_CKPT, "has two lists of pieces");
}

/* Boxes are compared in pairs, so their number is bounded; so is the memory of a large manifest,
 * which jansson alone would read into forty times its text. */
static int64_t cells = 2000;
static char *many_boxes(size_t *n)
{
    char *text = NULL, name[] = "r00000-of-00001.safetensors";
    mr_hash128 block = {1, 1};
    mr_manifest m;
    mr_manifest_init(&m);
    snprintf(m.run, sizeof m.run, "abc");
    m.ranks = 1;
    CHECK(mr_manifest_add_file(&m, name, 4000));
    m.files[0].blocks[0] = block;
    mr_st_tensor t = {
        .name = "t", .dtype = MR_ST_U8, .rank = 2, .shape = {cells, 1}, .bytes = cells};
    bool boxes = cells == 2000;
    CHECK(mr_manifest_add_tensor(&m, &t, boxes ? MR_CKPT_BOX : MR_CKPT_RANGE));
    for (int64_t i = 0; i < cells; i++) {
        mr_piece *p = mr_manifest_add_piece(&m, boxes ? 4 : 2);
        int64_t *bounds = (int64_t *)p->bounds;
        bounds[0] = i, bounds[1] = i + 1;
        if (boxes)
            bounds[2] = 0, bounds[3] = 1;
    }
    json_t *meta = meta_of(CASE_META);
    CHECK_OK(mr_manifest_build(&m, meta, &text, n));
    json_decref(meta);
    mr_manifest_fini(&m);
    return text;
}

static bool reads(void *user)
{
    mr_manifest m;
    (void)user;
    bool ok = mr_manifest_read(path, false, &m) == MR_OK;
    mr_manifest_fini(&m);
    return ok;
}

static void bounds(void)
{
    size_t n;
    bool ok;
    mr_manifest m;
    char *text = many_boxes(&n);
    put_text(text, n);
    mr_free(text);
    CHECK_FAILS(mr_manifest_read(path, false, &m), MR_E_CKPT,
                "tensor 't' is cut into 2000 boxes; expected at most 1024");
    mr_manifest_fini(&m);
    // another process writes the large one, so that no free memory of this one is reused
    cells = 300000;
    pid_t child = fork();
    if (child == 0) {
        text = many_boxes(&n);
        put_text(text, n);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    struct stat s;
    CHECK(stat(path, &s) == 0);
    n = (size_t)s.st_size;
    int64_t peak = peak_of(reads, NULL, &ok);
    printf("300,000 pieces: memory %.2f times the %.1f MB of text\n", (double)peak / (double)n,
           (double)n * 1e-6);
    CHECK(ok && (!PEAK_COUNTS || peak < 6 * (int64_t)n));
}

/* A real checkpoint of schema 1. */
static void schema_1(void)
{
    mr_manifest m;
    CHECK_OK(mr_manifest_read("spec/core/ckpt/schema1/MANIFEST.json", false, &m));
    CHECK_INT(m.schema, 1);
    CHECK_INT(m.step, 41);
    CHECK_INT(m.ranks, 1);
    CHECK_INT(m.files[0].bytes, 1194);
    CHECK_INT(m.files[0].blocks[0].hi, 0x1e4175382790885d);
    CHECK_INT(m.n_tensors, 5);
    CHECK_STR(m.tensors[0].is.name, "blocks.0.weight");
    CHECK_INT(m.tensors[0].is.offset, 408);
    CHECK_INT(m.pieces[0].bounds[1], 96);
    mr_manifest_fini(&m);
    // the same with a box that is not all of the tensor
    char *text, *lie, hex[33];
    size_t n;
    CHECK_OK(mr_file_read_all("spec/core/ckpt/schema1/MANIFEST.json", &text, &n));
    lie = strstr(strstr(text, "\"box\""), "12");
    memcpy(lie, "11", 2);
    mr_hash128_hex(mr_hash128_of(text, n - 48), hex);
    memcpy(text + n - 36, hex, 32);
    put_text(text, n);
    mr_free(text);
    CHECK_FAILS(mr_manifest_read(path, false, &m), MR_E_CKPT,
                "tensor 'blocks.0.weight': its box does not cover the whole tensor");
    mr_manifest_fini(&m);
}

/* An undamaged manifest is never called damaged for lack of memory (jansson may read a text whose
 * allocation failed as a wrong token, or continue without it). */
static void no_memory(void)
{
    size_t n;
    char *text = manifest_text(&n);
    put_text(text, n);
    mr_free(text);
    mr_manifest m;
    int64_t before = mr_alloc_count();
    CHECK_OK(mr_manifest_read(path, false, &m));
    int total = (int)(mr_alloc_count() - before);
    mr_manifest_fini(&m);
    CHECK(total > 50);
    for (int i = 1; i <= total; i++) {
        mr_alloc_fail_at(i);
        mr_status st = mr_manifest_read(path, false, &m);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK || st == MR_E_MEMORY || st == MR_E_CKPT);
        if (st == MR_OK)
            CHECK(m.n_tensors == CASE_ITEMS + 1 && m.step == 1234 && m.files[0].blocks[1].hi == 4);
        mr_manifest_fini(&m);
    }
}

int main(void)
{
    json_set_alloc_funcs(mr_alloc, mr_free);
    snprintf(dir, sizeof dir, "%s", case_dir("manifest_read"));
    snprintf(path, sizeof path, "%s/MANIFEST.json", dir);
    bounds();
    round_trip();
    any_byte();
    lies();
    schema_1();
    no_memory();
    mr_dir_remove(dir);
    return check_done();
}
