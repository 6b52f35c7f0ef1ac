/* ckpt, hostile files: good safetensors headers, index files, pickles, zips and files before 1.6
 * are changed at random thousands of times. Each result is refused with an error that names the
 * file, or each of its tensors is read or has an error of its own; memory stays bounded. */
#include "ckptcase.h"
#include "ckpt/manifest.h"
#include "mutator.h"
#include "peak.h"
#include "torchcase.h"

static char path[700];
static const float six[] = {1, 2, 3, 4, 5, 6};

/* Pieces that have a meaning for one of the readers. */
static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    "\"",
                                    ",",
                                    ":",
                                    "\\",
                                    "\\u0000",
                                    "\xff",
                                    "-1",
                                    "0",
                                    "1e9",
                                    "F8_E4M3",
                                    "U8",
                                    "__metadata__",
                                    "data_offsets",
                                    "shape",
                                    "(",
                                    ")",
                                    "t",
                                    "u",
                                    "s",
                                    "R",
                                    "Q",
                                    "b",
                                    "\x81",
                                    "h\1",
                                    "q\1",
                                    "h\2",
                                    "]",
                                    "}",
                                    "N",
                                    "\x85",
                                    "\x86",
                                    "K\xff",
                                    "e",
                                    "a",
                                    "\x8f",
                                    "\x90",
                                    "\x93",
                                    "0",
                                    ".",
                                    "\x8a\x09",
                                    "\x8c\xff",
                                    "ctorch\nHalfStorage\n",
                                    "ctorch\nuint64\n",
                                    "cos\nsystem\n",
                                    "ccollections\nOrderedDict\n)R",
                                    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
                                    "PK\3\4",
                                    "PK\1\2",
                                    "PK\5\6"};

static void spoil(blob *b)
{
    change_some(b, words, MR_COUNT(words));
}

/* ---- good files to start from ---- */

static void pickle_seed(blob *b, bool legacy)
{
    static const tensor_case cases[] = {
        {.type = "torch\nFloatStorage",
         .key = "0",
         .elements = 6,
         .rank = 2,
         .shape = {3, 2},
         .stride = {1, 3}},
        {.type = "torch\nFloatStorage",
         .key = "0",
         .elements = 6,
         .first = 2,
         .rank = 1,
         .shape = {4},
         .stride = {1}},
        {.type = "torch.storage\nUntypedStorage",
         .key = "1",
         .elements = 24,
         .rank = 1,
         .shape = {12},
         .stride = {1},
         .more = "ctorch\nuint16\n"},
        {.type = "torch\nComplexFloatStorage",
         .key = "2",
         .elements = 3,
         .rank = 1,
         .shape = {3},
         .stride = {1}},
    };
    pickle_start(b);
    puts_to(b, "}q\1(");
    put_text(b, "state_dict");
    puts_to(b, "ccollections\nOrderedDict\n)R(");
    for (size_t i = 0; i < MR_COUNT(cases); i++) {
        char name[] = "layer.0";
        name[6] = (char)('0' + i);
        put_text(b, name);
        put_tensor(b, &cases[i], legacy);
        puts_to(b, i == 0 ? "q\2" : "");
    }
    put_text(b, "tied");
    puts_to(b, "h\2u}b");
    put_text(b, "net");
    puts_to(b, "cm\nNet\n)\x81}(");
    put_text(b, "_parameters");
    puts_to(b, "}");
    put_text(b, "w");
    puts_to(b, "h\2s");
    put_text(b, "_buffers");
    puts_to(b, "}");
    put_text(b, "_modules");
    puts_to(b, "}ub");
    put_text(b, "epoch");
    puts_to(b, "K\7u.");
}

static void make_safetensors(blob *b)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"k\":\"\\u00e4\"},\"ab\":{\"dtype\":\"F32\","
        "\"shape\":[2,2],"
        "\"data_offsets\":[0,16]},\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[16,19]},"
        "\"e\":{\"dtype\":\"I64\",\"shape\":[0,4],\"data_offsets\":[19,19]}}";
    blob text = {0};
    puts_to(&text, header);
    spoil(&text);
    // mostly with the right length, so that the text is reached
    put_int(b, draw(10) ? text.n : draw(2) ? draw(300) : UINT64_MAX >> draw(64), 8);
    put(b, text.data, text.n);
    put(b, six, 19);
    blob_free(&text);
}

static void make_index(blob *b)
{
    puts_to(b, "{\"metadata\": {\"total_size\": 24}, \"weight_map\": {\"a\": "
               "\"part.safetensors\", \"b\": \"part.safetensors\"}}");
    spoil(b);
}

static void make_legacy(blob *b)
{
    static const char *const keys[] = {"0", "1", "2"};
    blob pickle = {0};
    legacy_start(b);
    pickle_seed(&pickle, true);
    put(b, pickle.data, pickle.n);
    legacy_keys(b, 3, keys);
    legacy_storage(b, 6, six, 24);
    legacy_storage(b, 24, six, 24);
    legacy_storage(b, 3, six, 24);
    spoil(b);
    blob_free(&pickle);
}

static void make_zip(blob *b, bool change_pickle)
{
    zip_case z = {0};
    blob pickle = {0};
    pickle_seed(&pickle, false);
    if (change_pickle)
        spoil(&pickle);
    zip_add(&z, "arc/data.pkl", pickle.data, pickle.n);
    zip_add(&z, "arc/byteorder", "little", 6);
    zip_add(&z, "arc/data/0", six, 24);
    zip_add(&z, "arc/data/1", six, 24);
    zip_add(&z, "arc/data/2", six, 24);
    zip_end(&z);
    *b = z.body;
    if (!change_pickle)
        spoil(b);
    blob_free(&pickle);
}

/* The checksums of the entries are right here, so that each change reaches the pickle. */
static void make_pickle(blob *b)
{
    make_zip(b, true);
}
static void make_container(blob *b)
{
    make_zip(b, false);
}

/* A manifest of ranges and boxes, signed again, so that each change reaches its reader. */
static char *manifest; // without its self hash
static void make_manifest(blob *b)
{
    char hex[33];
    puts_to(b, manifest);
    spoil(b);
    mr_hash128_hex(mr_hash128_of(b->data, b->n), hex);
    puts_to(b, MR_SELF_HEAD);
    puts_to(b, hex);
    puts_to(b, MR_SELF_TAIL);
}

static void write_shard(const char *dir)
{
    static const char name[] = "r00000-of-00001.safetensors";
    char shard[800];
    blob bytes = {0};
    mr_manifest part, whole;
    mr_ckpt_item items[4];
    for (int i = 0; i < 4; i++) {
        items[i] = (mr_ckpt_item){.name = i < 2 ? "a" : "b", .dtype = MR_ST_F32, .rank = 2};
        items[i].shape[0] = 2, items[i].shape[1] = 3;
    }
    items[0].slice = (mr_ckpt_slice){MR_CKPT_RANGE, {0}, {4}};
    items[1].slice = (mr_ckpt_slice){MR_CKPT_RANGE, {4}, {6}};
    items[2].slice = (mr_ckpt_slice){MR_CKPT_BOX, {0, 0}, {2, 1}};
    items[3].slice = (mr_ckpt_slice){MR_CKPT_BOX, {0, 1}, {2, 3}};
    for (int i = 0; i < 8; i++)
        put(&bytes, six, 24);
    mr_hash128 hash = mr_hash128_of(bytes.data, bytes.n);
    snprintf(shard, sizeof shard, "%s/%s", dir, name);
    CHECK_OK(mr_dir_make(dir));
    write_blob(shard, &bytes);
    mr_manifest_init(&part), mr_manifest_init(&whole);
    snprintf(whole.run, sizeof whole.run, "abc");
    whole.ranks = 1;
    CHECK_OK(mr_manifest_add(&part, &(mr_ckpt_file){name, (int64_t)bytes.n, &hash}, items,
                             (int64_t[]){8, 40, 72, 96}, 4));
    CHECK_OK(mr_manifest_merge(&whole, &part, 1));
    size_t n;
    json_t *meta = json_object();
    CHECK_OK(mr_manifest_build(&whole, meta, &manifest, &n));
    *strstr(manifest, MR_SELF_HEAD) = 0;
    json_decref(meta);
    mr_manifest_fini(&part), mr_manifest_fini(&whole);
    blob_free(&bytes);
}

/* ---- what is checked of each file ---- */

static void read_all(mr_ckpt *c)
{
    static char out[1 << 16];
    mr_ckpt_stats stats;
    for (int i = 0; i < mr_ckpt_count(c); i++) {
        const mr_st_tensor *t = mr_ckpt_at(c, i);
        int64_t want = 0, n = MR_MIN(t->bytes, (int64_t)sizeof out);
        CHECK_OK(mr_st_shape_bytes(t->dtype, t->rank, t->shape, &want));
        CHECK_INT(t->bytes, want);
        mr_status st = mr_ckpt_read(c, t->name, out, t->bytes - n, n);
        CHECK(st == MR_OK || st == MR_E_FORMAT);
        if (t->bytes > 3 && mr_ckpt_read(c, t->name, out, 1, 2) == MR_OK && t->bytes < 1 << 16)
            CHECK_OK(mr_ckpt_stats_of(c, t->name, &stats));
    }
    for (int i = 0; i < mr_ckpt_refused_count(c); i++)
        CHECK(*mr_ckpt_refused_at(c, i)->why);
    mr_status st = mr_ckpt_verify(c);
    CHECK(st == MR_OK || st == MR_E_FORMAT || st == MR_E_USAGE);
}

/* One changed file; true when it opened. */
static bool round_of(void (*make)(blob *b))
{
    char text[4096];
    blob b = {0};
    mr_ckpt *c = NULL;
    make(&b);
    write_blob(path, &b);
    blob_free(&b);
    // a manifest is opened by its directory
    char opened[700];
    snprintf(opened, sizeof opened, "%s", path);
    if (make == make_manifest)
        *strrchr(opened, '/') = 0;
    mr_status st = mr_ckpt_open(opened, &c);
    if (st == MR_OK) {
        read_all(c);
        mr_ckpt_close(c);
        return true;
    }
    // an index may name any file
    CHECK(st == MR_E_FORMAT || st == MR_E_UNSUPPORTED || (make == make_index && st == MR_E_IO) ||
          (make == make_manifest && (st == MR_E_CKPT || st == MR_E_IO)));
    mr_error_format(mr_error_last(), text, sizeof text);
    CHECK(strstr(text, "moonreel-fuzz-") && !c);
    return false;
}

int main(void)
{
    static const struct {
        const char *file;
        void (*make)(blob *b);
        uint64_t opened; // of a hundred at least: the changes are not only noise
    } kinds[] = {{"header.safetensors", make_safetensors, 2},
                 {"model.safetensors.index.json", make_index, 1},
                 {"pickle.pth", make_pickle, 5},
                 {"zip.pth", make_container, 5},
                 {"legacy.pth", make_legacy, 5},
                 {"step/MANIFEST.json", make_manifest, 5}};
    case_clock(); // files that a changed manifest names are absent, and stay absent
    const char *dir = case_dir("fuzz");
    mr_ckpt_item items[] = {
        {.name = "a", .dtype = MR_ST_F32, .rank = 1, .shape = {3}, .data = six},
        {.name = "b", .dtype = MR_ST_F32, .rank = 1, .shape = {3}, .data = six}};
    snprintf(path, sizeof path, "%s/part.safetensors", dir);
    CHECK_OK(mr_safetensors_write(path, items, 2, NULL, 0));
    snprintf(path, sizeof path, "%s/step", dir);
    write_shard(path);
    long before = peak_status("VmRSS:");
    for (size_t k = 0; k < MR_COUNT(kinds); k++) {
        uint64_t opened = 0;
        fuzz_rounds r = fuzz_start(1500);
        snprintf(path, sizeof path, "%s/%s", dir, kinds[k].file);
        while (fuzz_next(&r, k))
            opened += round_of(kinds[k].make);
        printf("%s: seed %llu, %llu rounds, %llu opened\n", kinds[k].file,
               (unsigned long long)r.seed, (unsigned long long)r.n, (unsigned long long)opened);
        CHECK(opened * 100 >= r.n * kinds[k].opened && opened < r.n * 9 / 10);
    }
    long grown = peak_status("VmHWM:") - before;
    printf("memory: %ld KiB above the start\n", grown);
    CHECK(!PEAK_COUNTS || grown < 80 << 10);
    mr_free(manifest);
    mr_dir_remove(dir);
    return check_done();
}
