/* ckpt/manifest: everything a resume needs is in it, and no byte of it can change unnoticed. */
#include "ckpt/room.h"
#include "ckptcase.h"

static char dir[600], path[700];

static json_t *meta_of(const char *text)
{
    json_error_t err;
    return json_loads(text, 0, &err);
}

static void meta_rules(void)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"[]", "expected an object"},
        {"{}", "recipe_hash: expected text, got nothing"},
        {"{\"recipe_hash\": 1}", "recipe_hash: expected text, got another kind"},
        {"{\"recipe_hash\": \"r\", \"dataset_fingerprint\": \"d\"}", "sampler: expected text"},
        {"{\"recipe_hash\": \"r\", \"dataset_fingerprint\": \"d\", \"sampler\": \"\"}",
         "seed: expected an integer"},
        {"{\"recipe_hash\": \"r\", \"dataset_fingerprint\": \"d\", \"sampler\": \"\", \"seed\": "
         "1.5}",
         "seed: expected an integer"},
        {"{\"recipe_hash\": \"r\", \"dataset_fingerprint\": \"d\", \"sampler\": \"\", \"seed\": 1}",
         "machine: expected an object"},
        {"{\"recipe_hash\": \"r\", \"dataset_fingerprint\": \"d\", \"sampler\": \"\", \"seed\": 1, "
         "\"machine\": {}, \"step\": 1}",
         "step is written by the saver itself"},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        json_t *meta = meta_of(rows[i].text);
        CHECK_FAILS(mr_manifest_check_meta(meta), MR_E_USAGE, rows[i].part);
        json_decref(meta);
    }
    json_t *meta = meta_of(CASE_META);
    CHECK_OK(mr_manifest_check_meta(meta));
    json_decref(meta);
}

static mr_hash128 blocks[2] = {{1, 2}, {3, 4}};
static mr_ckpt_file file = {.name = "r00000-of-00001.safetensors",
                            .bytes = MR_CKPT_BLOCK + 5,
                            .whole = {5, 6},
                            .blocks = blocks};

static char *build(size_t *n)
{
    char *text;
    json_t *meta = meta_of(CASE_META);
    mr_ckpt_item items[CASE_ITEMS];
    case_items(items);
    items[0].shape[0] = 10, items[0].shape[1] = 20;
    CHECK_OK(mr_manifest_build("abc", 7, 1234, meta, &file, items, (int64_t[]){8, 808, 1116, 1116},
                               CASE_ITEMS, &text, n));
    json_decref(meta);
    CHECK_INT(strlen(text), *n);
    return text;
}

static void put_text(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    fwrite(text, 1, n, f);
    fclose(f);
}

static void round_trip(void)
{
    size_t n;
    char *text = build(&n);
    mr_manifest m;
    put_text(text, n);
    CHECK_OK(mr_manifest_read(dir, &m));
    CHECK_STR(m.run, "abc");
    CHECK_INT(m.fence, 7);
    CHECK_INT(m.step, 1234);
    CHECK_INT(m.n_files, 1);
    CHECK_INT(m.files[0].bytes, MR_CKPT_BLOCK + 5);
    CHECK(m.files[0].blocks[1].lo == 3 && m.files[0].blocks[1].hi == 4 && m.files[0].whole.hi == 6);
    CHECK_INT(m.n_tensors, CASE_ITEMS);
    CHECK_STR(m.tensors[1].name, "master.x.weight");
    CHECK_INT(m.tensors[1].offset, 808);
    CHECK_INT(m.tensors[3].rank, 0);
    mr_manifest_fini(&m);
    // the members that a resume needs, for other programs too
    json_t *root = meta_of(text);
    static const char *const members[] = {
        "schema",  "run",  "fence",   "step",  "world",   "recipe_hash", "dataset_fingerprint",
        "sampler", "seed", "machine", "files", "tensors", "written",     "self"};
    for (size_t i = 0; i < MR_COUNT(members); i++)
        CHECK(json_object_get(root, members[i]));
    CHECK_INT(json_array_size(
                  json_object_get(json_array_get(json_object_get(root, "tensors"), 0), "box")),
              2);
    json_decref(root);
    // the self hash is the last member
    CHECK(strncmp(strrchr(text, ','), ",\n \"self\": \"", 12) == 0);
    mr_free(text);
}

/* Any one byte changed, dropped or doubled is found. */
static void any_byte(void)
{
    size_t n;
    char *text = build(&n), *copy = malloc(n + 1);
    mr_manifest m;
    int refused = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(copy, text, n);
        copy[i] ^= 1;
        put_text(copy, n);
        refused += mr_manifest_read(dir, &m) == MR_E_FORMAT;
        mr_manifest_fini(&m);
    }
    CHECK_INT(refused, n);
    for (size_t i = 0; i < n; i += 7) {
        put_text(text, i);
        CHECK_FAILS(mr_manifest_read(dir, &m), MR_E_FORMAT, "MANIFEST.json");
        mr_manifest_fini(&m);
    }
    free(copy);
    mr_free(text);
}

/* Replace `from` by `to` and sign again: a manifest that is whole but wrong. */
static void signed_lie(const char *from, const char *to, mr_status code, const char *part)
{
    size_t n;
    char *text = build(&n), hex[33], *at = strstr(text, from);
    char *lie = malloc(n + 200);
    CHECK(at != NULL);
    size_t body = (size_t)(strrchr(text, ',') - text), head = (size_t)(at - text);
    size_t used = (size_t)sprintf(lie, "%.*s%s%.*s", (int)head, text, to,
                                  (int)(body - head - strlen(from)), at + strlen(from));
    mr_hash128_hex(mr_hash128_of(lie, used), hex);
    used += (size_t)sprintf(lie + used, ",\n \"self\": \"%s\"\n}\n", hex);
    put_text(lie, used);
    mr_manifest m;
    CHECK_FAILS(mr_manifest_read(dir, &m), code, part);
    mr_manifest_fini(&m);
    free(lie);
    mr_free(text);
}

static void lies(void)
{
    signed_lie("\"schema\": 1", "\"schema\": 2", MR_E_UNSUPPORTED,
               "schema version 2; this moonreel reads version 1");
    signed_lie("\"schema\": 1", "\"schema\": \"1\"", MR_E_CKPT, "no schema version");
    signed_lie("\"step\": 1234", "\"step\": -1", MR_E_CKPT, "run, step or fence");
    signed_lie("r00000-of-00001", "../r00000-of-00001", MR_E_CKPT, "files[0] is not a file entry");
    signed_lie("\"block_bytes\": 1048576", "\"block_bytes\": 0", MR_E_CKPT,
               "files[0] is not a file entry");
    signed_lie("\"bytes\": 1048581", "\"bytes\": 1048577000", MR_E_CKPT,
               "files[0] is not a file entry");
    signed_lie("\"offset\": 808", "\"offset\": 9223372036854775807", MR_E_CKPT,
               "does not lie inside its file");
    signed_lie("\"dtype\": \"f32\"", "\"dtype\": \"f99\"", MR_E_CKPT,
               "tensors[0] is not a slice entry");
    signed_lie("\"file\": 0", "\"file\": 1", MR_E_CKPT, "tensors[0] is not a slice entry");
    signed_lie("10,\n    20\n", "10,\n    9223372036854775807\n", MR_E_UNSUPPORTED,
               "cut over several ranks' files");
    signed_lie("\"kind\"", "{", MR_E_CKPT, "line ");
}

/* An undamaged manifest is never called damaged for lack of memory (jansson may read a text whose
 * allocation failed as a wrong token, or do without the memory). */
static void no_memory(void)
{
    size_t n;
    char *text = build(&n);
    put_text(text, n);
    mr_free(text);
    mr_manifest m;
    int64_t before = mr_alloc_count();
    CHECK_OK(mr_manifest_read(dir, &m));
    int total = (int)(mr_alloc_count() - before);
    mr_manifest_fini(&m);
    CHECK(total > 50);
    for (int i = 1; i <= total; i++) {
        mr_alloc_fail_at(i);
        mr_status st = mr_manifest_read(dir, &m);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK || st == MR_E_MEMORY || st == MR_E_CKPT);
        if (st == MR_OK)
            CHECK(m.n_tensors == CASE_ITEMS && m.step == 1234 && m.files[0].blocks[1].hi == 4);
        mr_manifest_fini(&m);
    }
    json_t *meta = meta_of(CASE_META);
    mr_ckpt_item items[CASE_ITEMS];
    case_items(items);
    for (int i = 1;; i++) {
        CHECK(i < 1000);
        mr_alloc_fail_at(i);
        mr_status st = mr_manifest_build("abc", 7, 1234, meta, &file, items,
                                         (int64_t[]){8, 808, 1116, 1116}, CASE_ITEMS, &text, &n);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
    }
    mr_free(text);
    json_decref(meta);
}

int main(void)
{
    json_set_alloc_funcs(mr_alloc, mr_free);
    snprintf(dir, sizeof dir, "%s", case_dir("manifest"));
    snprintf(path, sizeof path, "%s/MANIFEST.json", dir);
    meta_rules();
    round_trip();
    any_byte();
    lies();
    no_memory();
    mr_dir_remove(dir);
    return check_done();
}
