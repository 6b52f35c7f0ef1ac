/* ckpt/manifest_write: the manifest has all that a resume needs; fields that a caller must and must
 * not set. */
#include "manifestcase.h"

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

/* The fields that a resume needs, for other programs too. */
static void members(void)
{
    static const char *const names[] = {
        "schema",  "run",  "fence",   "step",  "world",   "recipe_hash", "dataset_fingerprint",
        "sampler", "seed", "machine", "files", "tensors", "written",     "self"};
    size_t n;
    char *text = manifest_text(&n), hex[33];
    json_t *root = meta_of(text);
    for (size_t i = 0; i < MR_COUNT(names); i++)
        CHECK(json_object_get(root, names[i]));
    // the file's hash is that of its blocks' hashes, as text
    const json_t *file = json_array_get(json_object_get(root, "files"), 0);
    const char *blocks = json_string_value(json_object_get(file, "blocks"));
    mr_hash128_hex(mr_hash128_of(blocks, strlen(blocks)), hex);
    CHECK_STR(json_string_value(json_object_get(file, "xxh3_128")), hex);
    CHECK_STR(blocks, "00000000000000020000000000000001"
                      "00000000000000040000000000000003");
    const json_t *tensors = json_object_get(root, "tensors");
    CHECK_INT(json_array_size(tensors), CASE_ITEMS + 1);
    CHECK_INT(json_array_size(json_object_get(json_array_get(tensors, 0), "ranges")), 1);
    const json_t *boxes = json_object_get(json_array_get(tensors, CASE_ITEMS), "boxes"),
                 *box = json_array_get(boxes, 1);
    static const int64_t second[] = {0, 3000, 0, 4, 2, 6};
    CHECK_INT(json_array_size(boxes), 2);
    for (size_t i = 0; i < MR_COUNT(second); i++)
        CHECK_INT(json_integer_value(json_array_get(box, i)), second[i]);
    json_decref(root);
    // the self hash is the last field
    CHECK(strncmp(text + n - 48, ",\n \"self\": \"", 12) == 0);
    mr_free(text);
}

static void no_memory(void)
{
    json_t *meta = meta_of(CASE_META);
    mr_manifest m;
    char *text;
    size_t n;
    manifest_case(&m);
    for (int i = 1;; i++) {
        CHECK(i < 1000);
        mr_alloc_fail_at(i);
        mr_status st = mr_manifest_build(&m, meta, &text, &n);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
    }
    mr_free(text);
    mr_manifest_fini(&m);
    json_decref(meta);
}

int main(void)
{
    json_set_alloc_funcs(mr_alloc, mr_free);
    meta_rules();
    members();
    no_memory();
    return check_done();
}
