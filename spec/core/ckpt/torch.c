/* ckpt/torch: files of torch.save return their tensors exactly, strided ones too. Damage is found
 * before a byte is returned, and a tensor that cannot be read does not affect the others.
 * Covers: core/ckpt/zip.c core/ckpt/entries.c core/ckpt/legacy.c */
#include "ckptcase.h"
#include "torchcase.h"

#include <sys/stat.h>

static char path[600];
static const float six[] = {1, 2, 3, 4, 5, 6};

#define FLOATS .type = "torch\nFloatStorage", .key = "0", .elements = 6

/* The pickle of a dictionary of tensors "a", "b", ... */
static blob pickle_of(const tensor_case *tensors, int n, bool legacy)
{
    blob b = {0};
    pickle_start(&b);
    puts_to(&b, "}(");
    for (int i = 0; i < n; i++) {
        char name[2] = {(char)('a' + i)};
        put_text(&b, name);
        put_tensor(&b, &tensors[i], legacy);
    }
    puts_to(&b, "u.");
    return b;
}

static void write_zip(zip_case *z)
{
    zip_end(z);
    write_blob(path, &z->body);
    blob_free(&z->body);
}

/* A zip of these tensors over the storage "0". */
static void zip_of(const tensor_case *tensors, int n)
{
    zip_case z = {0};
    blob b = pickle_of(tensors, n, false);
    zip_add(&z, "arc/data.pkl", b.data, b.n);
    zip_add(&z, "arc/byteorder", "little", 6);
    zip_add(&z, "arc/data/0", six, sizeof six);
    write_zip(&z);
    blob_free(&b);
}

static void refused(const char *why)
{
    mr_ckpt *c;
    CHECK_FAILS(mr_ckpt_open(path, &c), MR_E_FORMAT, why);
    CHECK(check_tries());
}

static void check_values(mr_ckpt *c, const char *name, int n, const float *want)
{
    float x[16] = {0};
    const mr_st_tensor *t = mr_ckpt_find(c, name);
    CHECK(t && t->bytes == n * 4);
    CHECK_OK(mr_ckpt_read(c, name, x, 0, n * 4));
    CHECK(memcmp(x, want, (size_t)n * 4) == 0);
    // any part of it, also one that begins and ends inside an element
    for (int at = 0; at < n * 4; at += 3) {
        char part[7] = "";
        int k = MR_MIN(n * 4 - at, 7);
        CHECK_OK(mr_ckpt_read(c, name, part, at, k));
        CHECK(memcmp(part, (const char *)want + at, (size_t)k) == 0);
    }
}

static void shapes(void)
{
    static const tensor_case tensors[] = {
        {FLOATS, .rank = 2, .shape = {2, 3}, .stride = {3, 1}},
        {FLOATS, .rank = 2, .shape = {3, 2}, .stride = {1, 3}}, // transposed
        {FLOATS, .first = 1, .rank = 2, .shape = {2, 2}, .stride = {3, 1}},
        {FLOATS, .first = 4, .rank = 1, .shape = {2}, .stride = {1}},
        {FLOATS, .rank = 2, .shape = {2, 3}, .stride = {1, 0}}, // expanded
        {FLOATS, .first = 5, .rank = 0},
        {FLOATS, .rank = 2, .shape = {0, 3}, .stride = {3, 1}},
        {FLOATS, .rank = 4, .shape = {1, 2, 1, 3}, .stride = {6, 1, 6, 2}} // channels last
    };
    mr_ckpt *c = NULL;
    zip_of(tensors, (int)MR_COUNT(tensors));
    CHECK_OK(mr_ckpt_open(path, &c));
    CHECK_INT(mr_ckpt_count(c), 8);
    check_values(c, "a", 6, six);
    check_values(c, "b", 6, (const float[]){1, 4, 2, 5, 3, 6});
    check_values(c, "c", 4, (const float[]){2, 3, 5, 6});
    check_values(c, "d", 2, (const float[]){5, 6});
    check_values(c, "e", 6, (const float[]){1, 1, 1, 2, 2, 2});
    check_values(c, "f", 1, (const float[]){6});
    check_values(c, "h", 6, (const float[]){1, 3, 5, 2, 4, 6});
    // two strided tensors read in turns, neither to its end
    float x[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(mr_ckpt_read(c, "b", x, 4, 8));
        CHECK(x[0] == 4 && x[1] == 2);
        CHECK_OK(mr_ckpt_read(c, "c", x, 4, 8));
        CHECK(x[0] == 3 && x[1] == 5);
    }
    CHECK_INT(mr_ckpt_find(c, "g")->bytes, 0);
    CHECK_OK(mr_ckpt_read(c, "g", NULL, 0, 0));
    CHECK_OK(mr_ckpt_verify(c));
    CHECK_FAILS(mr_ckpt_read(c, "b", NULL, 20, 8), MR_E_RANGE, "a range in its 24");
    mr_ckpt_close(c);
}

static void bounds(void)
{
    static const tensor_case past[] = {
        {FLOATS, .first = 1, .rank = 1, .shape = {6}, .stride = {1}},
        {FLOATS, .rank = 2, .shape = {2, 3}, .stride = {4, 1}},
        {FLOATS, .first = 7, .rank = 1, .shape = {0}, .stride = {1}},
        {FLOATS, .first = INT64_MAX, .rank = 1, .shape = {2}, .stride = {1}},
        {FLOATS, .rank = 1, .shape = {3}, .stride = {INT64_MAX}},
        {FLOATS, .rank = 2, .shape = {2, 2}, .stride = {INT64_MAX, INT64_MAX}},
    };
    for (size_t i = 0; i < MR_COUNT(past); i++) {
        zip_of(&past[i], 1);
        refused("tensor 'a' reaches past its storage");
    }
    zip_of(&(tensor_case){.type = "torch\nFloatStorage", .key = "1", .elements = 6}, 1);
    refused("its storage '1' is not in the file");
    zip_of(&(tensor_case){.type = "torch\nFloatStorage", .key = "0", .elements = 5}, 1);
    refused("its storage '0' has 24 bytes, expected 20");
    zip_of(&(tensor_case){.type = "torch\nDoubleStorage", .key = "0", .elements = 6}, 1);
    refused("its storage '0' has 24 bytes, expected 48");
}

/* A tensor that cannot be read has an error when it is requested; the others are returned. */
static void unreadable(void)
{
    static const tensor_case tensors[] = {
        {.type = "torch\nComplexFloatStorage", .key = "0", .elements = 3, .rank = 1, .shape = {3}},
        {FLOATS, .rank = 1, .shape = {6}, .stride = {1}},
        {FLOATS, .rank = 2, .shape = {1 << 20, 1 << 10}, .stride = {0, 0}},
        {.type = "torch.storage\nUntypedStorage",
         .key = "0",
         .elements = 24,
         .rank = 1,
         .first = 1,
         .shape = {11},
         .stride = {1},
         .more = "ctorch\nuint16\n"},
    };
    mr_ckpt *c = NULL;
    mr_ckpt_stats stats;
    zip_of(tensors, (int)MR_COUNT(tensors));
    CHECK_OK(mr_ckpt_open(path, &c));
    CHECK_INT(mr_ckpt_count(c), 2);
    check_values(c, "b", 6, six);
    CHECK_INT(mr_ckpt_find(c, "d")->dtype, MR_ST_U16);
    uint16_t u[11];
    CHECK_OK(mr_ckpt_read(c, "d", u, 0, sizeof u));
    CHECK(memcmp(u, (const char *)six + 2, sizeof u) == 0);
    CHECK_INT(mr_ckpt_refused_count(c), 2);
    CHECK_STR(mr_ckpt_refused_at(c, 1)->name, "c");
    CHECK_FAILS(mr_ckpt_read(c, "a", NULL, 0, 0), MR_E_UNSUPPORTED,
                "tensor 'a' cannot be read: its elements are complex64");
    CHECK_FAILS(mr_ckpt_stats_of(c, "c", &stats), MR_E_UNSUPPORTED,
                "its elements overlap and would take over 64 MiB");
    CHECK_FAILS(mr_ckpt_read(c, "z", NULL, 0, 0), MR_E_RANGE, "no tensor 'z' in it");
    mr_ckpt_close(c);
}

/* ---- damage ---- */

static void sums(void)
{
    static const tensor_case tensors[] = {
        {FLOATS, .rank = 1, .shape = {6}, .stride = {1}},
        {FLOATS, .rank = 1, .shape = {3}, .stride = {2}},
        {FLOATS, .first = 1, .rank = 1, .shape = {2}, .stride = {1}},
        {.type = "torch\nFloatStorage",
         .key = "1",
         .elements = 6,
         .rank = 1,
         .shape = {6},
         .stride = {1}},
    };
    static const char *const names[] = {"a", "b", "c"};
    blob b = pickle_of(tensors, (int)MR_COUNT(tensors), false);
    float x[6];
    mr_ckpt *c;
    for (size_t i = 0; i < MR_COUNT(names) + 1; i++) {
        zip_case z = {0};
        zip_add(&z, "arc/data.pkl", b.data, b.n);
        zip_add_sum(&z, "arc/data/0", six, sizeof six, 0x12345678);
        zip_add(&z, "arc/data/1", six, sizeof six);
        write_zip(&z);
        CHECK_OK(mr_ckpt_open(path, &c));
        // whole, strided or a part: nothing is returned before the whole storage is compared
        if (i < MR_COUNT(names))
            CHECK_FAILS(mr_ckpt_read(c, names[i], x, 0, mr_ckpt_find(c, names[i])->bytes),
                        MR_E_FORMAT, "entry 'arc/data/0' is damaged: its CRC is");
        else
            CHECK_FAILS(mr_ckpt_verify(c), MR_E_FORMAT, "expected 12345678; try: copy or download");
        check_values(c, "d", 6, six);
        mr_ckpt_close(c);
    }
    // torch can be configured to write no checksums: zeros are stored then
    zip_case z = {0};
    zip_add_sum(&z, "arc/data.pkl", b.data, b.n, 0);
    zip_add_sum(&z, "arc/data/0", six, sizeof six, 0);
    zip_add_sum(&z, "arc/data/1", six, sizeof six, 0);
    write_zip(&z);
    CHECK_OK(mr_ckpt_open(path, &c));
    check_values(c, "a", 6, six);
    check_values(c, "b", 3, (const float[]){1, 3, 5});
    CHECK_FAILS(mr_ckpt_verify(c), MR_E_USAGE, "no checksums to verify");
    mr_ckpt_close(c);
    blob_free(&b);
}

static void zips(void)
{
    tensor_case one = {FLOATS, .rank = 1, .shape = {6}, .stride = {1}};
    blob b = pickle_of(&one, 1, false);
    static const struct {
        const char *name, *data, *why;
    } extra[] = {
        {"other/data.pkl", "\x80\2}.", "two pickles, 'arc/data.pkl' and 'other/data.pkl'"},
        {"arc/data/0", "x", "'arc/data/0' occurs twice"},
        {"arc/byteorder", "big", "byte order 'big'; expected little"},
        {"arc/byteorder", "little little little", "byte order ''; expected little"},
    };
    for (size_t i = 0; i < MR_COUNT(extra); i++) {
        zip_case z = {0};
        zip_add(&z, "arc/data.pkl", b.data, b.n);
        zip_add(&z, "arc/data/0", six, sizeof six);
        zip_add(&z, extra[i].name, extra[i].data, strlen(extra[i].data));
        write_zip(&z);
        refused(extra[i].why);
    }
    // the directory and an entry's own header differ
    zip_case z = {0};
    zip_add(&z, "arc/data.pkl", b.data, b.n);
    z.body.data[14] ^= 1;
    write_zip(&z);
    refused("its two headers differ");
    blob_free(&b);
    zip_of(&one, 1);
    CHECK_INT(truncate(path, 100), 0);
    refused("its list of entries is not found");
}

static void no_file(void)
{
    mr_ckpt *c;
    remove(path);
    CHECK_INT(mkfifo(path, 0600), 0);
    refused("not a regular file");
    remove(path);
    CHECK_INT(symlink("/dev/zero", path), 0);
    refused("not a regular file");
    remove(path);
    CHECK_INT(symlink(path, path), 0);
    CHECK_FAILS(mr_ckpt_open(path, &c), MR_E_IO, "cannot open");
    blob b = {0};
    puts_to(&b, "abc");
    write_blob(path, &b);
    refused("too short");
    puts_to(&b, "abc");
    write_blob(path, &b);
    refused("neither a zip nor a pickle");
    blob_free(&b);
}

/* ---- files before 1.6 ---- */

static blob legacy_of(const tensor_case *tensors, int n)
{
    static const char *const keys[] = {"7", "0"};
    blob b = {0};
    legacy_start(&b);
    blob p = pickle_of(tensors, n, true);
    put(&b, p.data, p.n);
    blob_free(&p);
    legacy_keys(&b, 2, keys);
    legacy_storage(&b, 2, "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 16);
    legacy_storage(&b, 6, six, sizeof six);
    return b;
}

static void legacy(void)
{
    static const tensor_case tensors[] = {
        {FLOATS, .rank = 2, .shape = {3, 2}, .stride = {1, 3}},
        {.type = "torch\nLongStorage",
         .key = "7",
         .elements = 2,
         .rank = 1,
         .shape = {2},
         .stride = {1}},
        {FLOATS, .first = 3, .rank = 1, .shape = {3}, .stride = {1}}};
    mr_ckpt *c = NULL;
    blob b = legacy_of(tensors, 3);
    write_blob(path, &b);
    CHECK_OK(mr_ckpt_open(path, &c));
    check_values(c, "a", 6, (const float[]){1, 4, 2, 5, 3, 6});
    check_values(c, "c", 3, (const float[]){4, 5, 6});
    int64_t x[2];
    CHECK_OK(mr_ckpt_read(c, "b", x, 0, sizeof x));
    CHECK(x[0] == 1 && x[1] == 2);
    CHECK_FAILS(mr_ckpt_verify(c), MR_E_USAGE, "no checksums to verify");
    mr_ckpt_close(c);
    // any cut, and any bytes after the end
    size_t whole = b.n;
    for (b.n = 4; b.n < whole; b.n++) {
        write_blob(path, &b);
        refused(": ");
    }
    b.n = whole;
    puts_to(&b, "x");
    write_blob(path, &b);
    refused("1 bytes after the last storage");
    blob_free(&b);
    b = legacy_of(tensors, 1);
    write_blob(path, &b);
    refused("storage 0 belongs to no tensor");
    blob_free(&b);
    tensor_case longer[] = {tensors[0], tensors[1]};
    longer[1].elements = 3;
    b = legacy_of(longer, 2);
    write_blob(path, &b);
    refused("storage '7' has 2 elements, its tensors expect 3");
    blob_free(&b);
}

/* The data before the tensors: the magic number, the version, the byte order. */
static void legacy_preface(void)
{
    static const tensor_case one[] = {{FLOATS},
                                      {.type = "torch\nLongStorage", .key = "7", .elements = 2}};
    static const struct {
        size_t at;
        char value;
        const char *why;
    } damage[] = {{4, 'x', "that torch.save did not write"},
                  {18, 'x', "its version is not 1001"},
                  {42, '\x89', "its byte order is not little-endian"}};
    blob b = legacy_of(one, 2);
    for (size_t i = 0; i < MR_COUNT(damage); i++) {
        char good = b.data[damage[i].at];
        b.data[damage[i].at] = damage[i].value;
        write_blob(path, &b);
        refused(damage[i].why);
        b.data[damage[i].at] = good;
    }
    blob_free(&b);
}

/* A storage may be a part of another one in files of torch before 0.4. */
static void legacy_window(void)
{
    static const char *const keys[] = {"0"};
    for (int past = 0; past < 2; past++) {
        blob b = {0};
        legacy_start(&b);
        pickle_start(&b);
        puts_to(&b, "}");
        put_text(&b, "a");
        puts_to(&b, "ctorch._utils\n_rebuild_tensor_v2\n((");
        put_text(&b, "storage");
        puts_to(&b, "ctorch\nFloatStorage\n");
        put_text(&b, "0");
        put_text(&b, "cpu");
        puts_to(&b, "K\6(");
        put_text(&b, "0 window");
        puts_to(&b, past ? "K\2K\5ttQ" : "K\2K\3ttQ");
        puts_to(&b, "K\1K\2\x85K\1\x85\x89}tRs.");
        legacy_keys(&b, 1, keys);
        legacy_storage(&b, 6, six, sizeof six);
        write_blob(path, &b);
        blob_free(&b);
        if (past) {
            refused("a storage with an invalid view");
            continue;
        }
        mr_ckpt *c = NULL;
        CHECK_OK(mr_ckpt_open(path, &c));
        check_values(c, "a", 2, (const float[]){4, 5});
        mr_ckpt_close(c);
    }
}

/* ---- failures of the system ---- */

static mr_status open_and_read(float *x)
{
    mr_ckpt *c;
    MR_TRY(mr_ckpt_open(path, &c));
    mr_status st = mr_ckpt_read(c, "a", x, 0, 24);
    mr_ckpt_close(c);
    return st;
}

/* Each allocation and each read fails once: an error, never other values. */
static void failing(void)
{
    static const float want[] = {1, 4, 2, 5, 3, 6};
    static const tensor_case tensors[] = {
        {FLOATS, .rank = 2, .shape = {3, 2}, .stride = {1, 3}},
        {.type = "torch\nComplexFloatStorage", .key = "0", .elements = 3}};
    float x[6];
    zip_of(tensors, 2);
    int64_t i = 1;
    for (;; i++) {
        mr_alloc_fail_at(i);
        mr_status st = open_and_read(x);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
    }
    CHECK(i > 10 && memcmp(x, want, sizeof x) == 0);
    fault_install();
    CHECK_OK(open_and_read(x));
    long n = fault_operations();
    CHECK(n > 10);
    for (long k = 1; k <= 2 * n; k++) {
        fault_at((k + 1) / 2, k % 2 ? FAULT_ERRNO : FAULT_SHORT, EIO);
        memset(x, 0, sizeof x);
        if (open_and_read(x) == MR_OK)
            CHECK(memcmp(x, want, sizeof x) == 0);
    }
    mr_io_replace(NULL);
}

int main(void)
{
    snprintf(path, sizeof path, "%s/weights.pth", case_dir("torch"));
    shapes();
    bounds();
    unreadable();
    sums();
    zips();
    no_file();
    legacy();
    legacy_preface();
    legacy_window();
    failing();
    mr_dir_remove(case_dir("torch"));
    return check_done();
}
