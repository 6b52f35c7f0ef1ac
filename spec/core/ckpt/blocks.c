/* ckpt/blocks: only blocks that match their hash are returned, each is read once, and a mismatch is
 * reported with file, block and tensor. */
#include "ckpt/blocks.h"
#include "ckptcase.h"

enum { SMALL = 70, BIG = 20 * MR_CKPT_BLOCK + 100 };

static const mr_ckpt_share whole = {0, 1};
static char dir[600];
static mr_manifest m;

static unsigned char byte_of(int file, int64_t at)
{
    return (unsigned char)(file * 31 + at % 251 + at / MR_CKPT_BLOCK);
}

static void add_file(int file, int64_t bytes)
{
    char name[40], path[700];
    unsigned char *data = malloc((size_t)bytes);
    snprintf(name, sizeof name, "r%05d.safetensors", file);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    mr_ckpt_file *f = mr_manifest_add_file(&m, name, bytes);
    for (int64_t i = 0; i < bytes; i++)
        data[i] = byte_of(file, i);
    for (int64_t b = 0; b < mr_ckpt_blocks(bytes); b++) {
        int64_t n = MR_MIN(bytes - b * MR_CKPT_BLOCK, (int64_t)MR_CKPT_BLOCK);
        f->blocks[b] = mr_hash128_of(data + b * MR_CKPT_BLOCK, (size_t)n);
    }
    FILE *out = fopen(path, "wb");
    fwrite(data, 1, (size_t)bytes, out);
    fclose(out);
    free(data);
}

/* A tensor of the bytes from `at` on. */
static void add_tensor(const char *name, int file, int64_t at, int64_t bytes)
{
    mr_st_tensor t = {.name = name, .dtype = MR_ST_U8, .rank = 1, .shape = {bytes}, .bytes = bytes};
    CHECK(mr_manifest_add_tensor(&m, &t, MR_CKPT_RANGE));
    mr_piece *p = mr_manifest_add_piece(&m, 2);
    ((int64_t *)p->bounds)[1] = bytes;
    p->file = file, p->offset = at;
}

static void make(void)
{
    char name[20];
    mr_manifest_init(&m);
    for (int i = 0; i < SMALL; i++) {
        add_file(i, 100 + i);
        snprintf(name, sizeof name, "small.%d", i);
        add_tensor(name, i, 50, 50);
    }
    add_file(SMALL, BIG);
    add_tensor("first", SMALL, MR_CKPT_BLOCK, 5 * MR_CKPT_BLOCK / 2);
    add_tensor("second", SMALL, 7 * MR_CKPT_BLOCK / 2, BIG - 7 * MR_CKPT_BLOCK / 2);
}

static bool reads(mr_blocks *b, int file, int64_t at, int64_t n)
{
    unsigned char *out = malloc((size_t)n);
    bool same = mr_blocks_read(b, file, at, out, n) == MR_OK;
    for (int64_t i = 0; i < n && same; i++)
        same = out[i] == byte_of(file, at + i);
    free(out);
    return same;
}

/* More files than are open at the same time, and the bytes read of each. */
static void counted(void)
{
    mr_blocks *b;
    int64_t before = 0;
    CHECK_OK(mr_blocks_open(dir, &m, &b));
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < SMALL; i++) {
            CHECK(reads(b, i, 3, 90));
            CHECK(reads(b, i, 50, 50));
            // the block is kept for the second read
            CHECK_INT(mr_blocks_bytes_read(b), before += 100 + i);
        }
    // a step of a few bytes across the end of a block, back and forth, reads two blocks
    before = mr_blocks_bytes_read(b);
    for (int i = 0; i < 5; i++) {
        CHECK(reads(b, SMALL, 2 * MR_CKPT_BLOCK - 10, 20));
        CHECK(reads(b, SMALL, 3 * MR_CKPT_BLOCK - 30, 20));
    }
    CHECK_INT(mr_blocks_bytes_read(b) - before, 2 * MR_CKPT_BLOCK);
    // from inside a block to inside another: the blocks between are read directly
    before = mr_blocks_bytes_read(b);
    CHECK(reads(b, SMALL, 10 * MR_CKPT_BLOCK + 7, 5 * MR_CKPT_BLOCK));
    CHECK_INT(mr_blocks_bytes_read(b) - before, 6 * MR_CKPT_BLOCK);
    before = mr_blocks_bytes_read(b);
    CHECK(reads(b, SMALL, BIG - 50, 50));
    CHECK_INT(mr_blocks_bytes_read(b) - before, 100);
    CHECK_OK(mr_blocks_check(b, whole, true));
    mr_blocks_close(b);
}

static void flip(int file, int64_t at)
{
    char path[700];
    snprintf(path, sizeof path, "%s/r%05d.safetensors", dir, file);
    FILE *f = fopen(path, "r+b");
    fseek(f, (long)at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, (long)at, SEEK_SET);
    fputc(c ^ 16, f);
    fclose(f);
}

static void damaged(void)
{
    static char out[BIG];
    mr_blocks *b;
    static const struct {
        int file;
        int64_t at;
        const char *why;
    } rows[] = {
        {69, 120,
         "r00069.safetensors: damaged: block 0, bytes 0 to 169, do not match their hash "
         "(tensor small.69)"},
        {SMALL, 5, "block 0, bytes 0 to 1048576, do not match their hash (the head of the file)"},
        {SMALL, 2 * MR_CKPT_BLOCK,
         "block 2, bytes 2097152 to 3145728, do not match their hash "
         "(tensor first)"},
        {SMALL, BIG - 1,
         "block 20, bytes 20971520 to 20971620, do not match their hash (tensor "
         "second)"},
    };
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        flip(rows[i].file, rows[i].at);
        CHECK_OK(mr_blocks_open(dir, &m, &b));
        CHECK_FAILS(mr_blocks_read(b, rows[i].file, rows[i].at, out, 1), MR_E_FORMAT, rows[i].why);
        // also directly into the reader's buffer
        CHECK_FAILS(mr_blocks_read(b, rows[i].file, 0, out, m.files[rows[i].file].bytes),
                    MR_E_FORMAT, rows[i].why);
        CHECK_FAILS(mr_blocks_check(b, whole, true), MR_E_FORMAT, rows[i].why);
        // the others are unchanged
        CHECK(reads(b, 0, 0, 100));
        mr_blocks_close(b);
        flip(rows[i].file, rows[i].at);
    }
    // both halves of a hash count
    for (int half = 0; half < 2; half++) {
        mr_hash128 *h = &m.files[SMALL].blocks[2], right = *h;
        *(half ? &h->hi : &h->lo) ^= 1;
        CHECK_OK(mr_blocks_open(dir, &m, &b));
        CHECK_FAILS(mr_blocks_read(b, SMALL, 2 * MR_CKPT_BLOCK, out, 1), MR_E_FORMAT, "block 2,");
        mr_blocks_close(b);
        *h = right;
    }
    // of several the first is reported, whichever thread finds it: threads read neighbours in
    // parallel
    for (int64_t block = 19; block >= 5; block--)
        flip(SMALL, block * MR_CKPT_BLOCK + 9);
    for (int round = 0; round < 60; round++) {
        CHECK_OK(mr_blocks_open(dir, &m, &b));
        CHECK_FAILS(mr_blocks_check(b, whole, true), MR_E_FORMAT, "damaged: block 5,");
        mr_blocks_close(b);
    }
    for (int64_t block = 19; block >= 5; block--)
        flip(SMALL, block * MR_CKPT_BLOCK + 9);
}

/* Readers that share the work: each block is read by one of them, and all read as many. */
static void shared(void)
{
    int64_t all = SMALL + 21, bytes = 0;
    for (int i = 0; i < m.n_files; i++)
        bytes += m.files[i].bytes;
    flip(SMALL, 9 * MR_CKPT_BLOCK);
    for (int parts = 1; parts <= 12; parts += parts < 4 ? 1 : 4) {
        int64_t sum = 0;
        int failed = 0;
        for (int part = 0; part < parts; part++) {
            mr_blocks *b;
            CHECK_OK(mr_blocks_open(dir, &m, &b));
            CHECK_OK(mr_blocks_check(b, (mr_ckpt_share){part, parts}, false));
            sum += mr_blocks_bytes_read(b);
            CHECK(mr_blocks_bytes_read(b) <= (all / parts + 1) * MR_CKPT_BLOCK);
            mr_status st = mr_blocks_check(b, (mr_ckpt_share){part, parts}, true);
            CHECK(st == MR_OK || st == MR_E_FORMAT);
            failed += st != MR_OK;
            mr_blocks_close(b);
        }
        CHECK_INT(sum, bytes);
        CHECK_INT(failed, 1);
    }
    flip(SMALL, 9 * MR_CKPT_BLOCK);
}

static void no_memory(void)
{
    mr_blocks *b;
    for (int i = 1, good = 0; !good; i++) {
        CHECK(i < 1000);
        mr_alloc_fail_at(i);
        b = NULL;
        mr_status st = mr_blocks_open(dir, &m, &b);
        if (st == MR_OK)
            st = mr_blocks_check(b, whole, true);
        char x;
        if (st == MR_OK)
            st = mr_blocks_read(b, SMALL, 10, &x, 1);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK || st == MR_E_MEMORY);
        good = st == MR_OK && i > SMALL + 10;
        mr_blocks_close(b);
    }
}

/* The handle of a file becomes stale while it is read: the file is opened once more. */
static void stale(void)
{
    mr_blocks *b;
    fault_install();
    CHECK_OK(mr_blocks_open(dir, &m, &b));
    fault_clear();
    CHECK_OK(mr_blocks_check(b, whole, true));
    const long n = fault_operations();
    for (long i = 1; i <= n; i += 7) {
        case_slept_ns = 0;
        fault_at(i, FAULT_ERRNO, ESTALE);
        CHECK_OK(mr_blocks_check(b, whole, true));
        // a closed file needs no second attempt
        CHECK(case_slept_ns <= 100000000);
        const int64_t before = mr_blocks_bytes_read(b);
        fault_at(1, FAULT_ERRNO, EIO);
        CHECK_FAILS(mr_blocks_read(b, SMALL, 0, &(char){0}, 1), MR_E_IO, "rror");
        fault_clear();
        CHECK_INT(mr_blocks_bytes_read(b), before);
    }
    mr_blocks_close(b);
    mr_io_replace(NULL);
}

static void not_there(void)
{
    char path[700];
    mr_blocks *b;
    snprintf(path, sizeof path, "%s/r00004.safetensors", dir);
    remove(path);
    CHECK_FAILS(mr_blocks_open(dir, &m, &b), MR_E_IO, "r00004.safetensors: missing");
    // another size counts only after the file was opened, because cached facts may be old
    FILE *f = fopen(path, "wb");
    fclose(f);
    fault_install();
    fault_at(1, FAULT_ERRNO, EACCES);
    CHECK_FAILS(mr_blocks_open(dir, &m, &b), MR_E_IO, "r00004.safetensors: cannot open");
    fault_clear();
    CHECK_FAILS(mr_blocks_open(dir, &m, &b), MR_E_FORMAT, "has 0 bytes, the manifest says 104");
    mr_io_replace(NULL);
    remove(path);
    CHECK_OK(mr_dir_make(path));
    CHECK_FAILS(mr_blocks_open(dir, &m, &b), MR_E_FORMAT, "the manifest says 104");
}

int main(void)
{
    snprintf(dir, sizeof dir, "%s", case_dir("blocks"));
    make();
    counted();
    damaged();
    shared();
    no_memory();
    case_clock();
    stale();
    not_there();
    mr_clock_replace(NULL);
    mr_manifest_fini(&m);
    mr_dir_remove(dir);
    return check_done();
}
