/* ckpt/open: bytes are read exactly or not at all: bit flips, cuts, zeroed blocks, missing and
 * swapped files. */
#define _DEFAULT_SOURCE
#include "ckptcase.h"
#include "peak.h"

#include <sys/stat.h>

static char dir[600], shard[700], manifest[700];

static void make(void)
{
    mr_run_lock *lock;
    mr_saver *saver;
    mr_dir_remove(dir);
    mr_dir_make(dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock}, &saver));
    CHECK_OK(case_save(saver, 1));
    CHECK_OK(case_save(saver, 2));
    mr_saver_close(saver);
    mr_run_lock_release(lock);
    snprintf(shard, sizeof shard, "%s/ckpt/step-000000000002/r00000-of-00001.safetensors", dir);
    snprintf(manifest, sizeof manifest, "%s/ckpt/step-000000000002/MANIFEST.json", dir);
}

static void put_file(const char *path, const char *data, size_t n)
{
    // a new file each time: some file systems wait for the disk when one is overwritten
    remove(path);
    FILE *f = fopen(path, "wb");
    fwrite(data, 1, n, f);
    fclose(f);
}

static int told_lines;
static char told_text[1500];
static void report(void *user, const char *line)
{
    (void)user;
    told_lines++;
    snprintf(told_text, sizeof told_text, "%s", line);
}

/* The damaged step 2 is skipped for step 1, or is exact nevertheless; returns true for the
 * former. */
static bool older_taken(const char *what)
{
    mr_ckpt *c;
    told_lines = 0;
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, report, NULL, &c));
    bool exact = c && case_exact(c), older = c && mr_ckpt_step(c) == 1;
    if (!exact || told_lines != older)
        printf("%s: step %lld\n", what, c ? (long long)mr_ckpt_step(c) : -1);
    CHECK(exact);
    CHECK_INT(told_lines, older);
    mr_ckpt_close(c);
    return older;
}

static void damage_sweep(const char *path, unsigned seed, int rounds)
{
    char *good, *copy;
    size_t n;
    CHECK_OK(mr_file_read_all(path, &good, &n));
    copy = malloc(n);
    int found = 0;
    for (int round = 0; round < rounds; round++) {
        memcpy(copy, good, n);
        seed = seed * 1664525u + 1013904223u;
        size_t at = (size_t)(seed >> 3) % n, left = n;
        switch (round % 4) {
        case 0: copy[at] ^= (char)(1 << (seed >> 29)); break;
        case 1: left = at; break;
        case 2: memset(copy + at, 0, n - at < 512 ? n - at : 512); break;
        case 3: memmove(copy + at, copy + at + 1, n - at - 1); break;
        }
        bool same = left == n && memcmp(copy, good, n) == 0;
        put_file(path, copy, left);
        bool older = older_taken("damaged");
        CHECK_INT(older, !same);
        found += older;
    }
    CHECK(found > rounds / 2);
    put_file(path, good, n);
    CHECK(!older_taken("restored"));
    free(copy);
    mr_free(good);
}

static void files_gone(void)
{
    char aside[700], other[700], *bytes;
    size_t shard_bytes;
    CHECK_OK(mr_file_read_all(shard, &bytes, &shard_bytes));
    mr_free(bytes);
    snprintf(aside, sizeof aside, "%s/aside", dir);
    const char *const paths[] = {shard, manifest};
    case_clock();
    for (int i = 0; i < 2; i++) {
        CHECK(rename(paths[i], aside) == 0);
        CHECK(older_taken("missing file"));
        CHECK(strstr(told_text, i ? "MANIFEST.json: cannot open" : "safetensors: missing"));
        CHECK(mkdir(paths[i], 0700) == 0);
        CHECK(older_taken("directory in its place"));
        CHECK(rmdir(paths[i]) == 0);
        put_file(paths[i], "", 0);
        CHECK(older_taken("empty file"));
        CHECK(rename(aside, paths[i]) == 0);
    }
    mr_clock_replace(NULL);
    // a byte too many, after all that is hashed
    CHECK(truncate(shard, (off_t)shard_bytes + 1) == 0);
    CHECK(older_taken("longer file"));
    CHECK(strstr(told_text, "the manifest says"));
    CHECK(truncate(shard, (off_t)shard_bytes) == 0);
    CHECK(!older_taken("restored"));
    // swapped shards: both checkpoints are damaged then
    snprintf(other, sizeof other, "%s/ckpt/step-000000000001/r00000-of-00001.safetensors", dir);
    CHECK(rename(shard, aside) == 0 && rename(other, shard) == 0 && rename(aside, other) == 0);
    mr_ckpt *c;
    CHECK_FAILS(mr_ckpt_open_newest(dir, NULL, report, NULL, &c), MR_E_CKPT,
                "none of its 2 checkpoints is valid");
    CHECK(!c);
    CHECK(rename(shard, aside) == 0 && rename(other, shard) == 0 && rename(aside, other) == 0);
    // a whole directory under another step's name
    char one[700], nine[700];
    snprintf(one, sizeof one, "%s/ckpt/step-000000000001", dir);
    snprintf(nine, sizeof nine, "%s/ckpt/step-000000000009", dir);
    CHECK(rename(one, nine) == 0);
    told_lines = 0;
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, report, NULL, &c));
    CHECK_INT(mr_ckpt_step(c), 2);
    CHECK(strstr(told_text, "its manifest has step 1, not the step"));
    mr_ckpt_close(c);
    CHECK(rename(nine, one) == 0);
}

static void ranges(void)
{
    mr_ckpt *c;
    char path[700];
    float x[4];
    CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, 2, path, sizeof path), &c));
    CHECK_INT(mr_ckpt_count(c), CASE_ITEMS);
    CHECK_INT(mr_ckpt_find(c, "x.weight")->shape[0], 1000);
    CHECK_STR(mr_ckpt_path(c), path);
    CHECK(strstr(mr_ckpt_manifest(c), "\"schema\": 2"));
    // across a block's end and inside blocks
    int64_t at = (1 << 18) - 10;
    for (int64_t i = at; i < at + 20; i++) {
        CHECK_OK(mr_ckpt_read(c, "x.weight", x, i * 4, 8));
        CHECK(x[0] == case_value(2, 0, i) && x[1] == case_value(2, 0, i + 1));
    }
    CHECK_FAILS(mr_ckpt_read(c, "x.weight", x, CASE_A * 4 - 4, 8), MR_E_RANGE, "tensor 'x.weight'");
    CHECK_FAILS(mr_ckpt_read(c, "x.weight", x, -4, 4), MR_E_RANGE, "from byte -4");
    CHECK_FAILS(mr_ckpt_read(c, "nobody", x, 0, 4), MR_E_RANGE, "no tensor 'nobody'");
    mr_ckpt_close(c);
    CHECK_FAILS(mr_ckpt_open("/nowhere", &c), MR_E_USAGE, "No such file");
    CHECK_FAILS(mr_ckpt_open(dir, &c), MR_E_USAGE, "no file of weights");
}

/* The file changes after the open: bytes that were not yet checked are not trusted. */
static void changed_later(void)
{
    mr_ckpt *c;
    char path[700], *good;
    size_t n;
    float x;
    CHECK_OK(mr_file_read_all(shard, &good, &n));
    CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, 2, path, sizeof path), &c));
    CHECK_OK(mr_ckpt_verify(c));
    FILE *f = fopen(shard, "r+b");
    fseek(f, (long)n - 1, SEEK_SET);
    fputc(good[n - 1] ^ 1, f);
    fclose(f);
    CHECK_OK(mr_ckpt_read(c, "x.weight", &x, 0, 4));
    CHECK_FAILS(mr_ckpt_read(c, "step", &x, 0, 4), MR_E_FORMAT, "do not match their hash");
    CHECK_FAILS(mr_ckpt_verify(c), MR_E_FORMAT, "do not match their hash");
    mr_ckpt_close(c);
    put_file(shard, good, n);
    mr_free(good);
}

static void failing_reads(void)
{
    mr_ckpt *c;
    fault_install();
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c));
    CHECK(case_exact(c));
    mr_ckpt_close(c);
    long n = fault_operations();
    for (long i = 1; i <= n; i++) {
        fault_at(i, i % 2 ? FAULT_ERRNO : FAULT_SHORT, EIO);
        mr_status st = mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c);
        bool good = st == MR_OK && case_exact(c);
        fault_clear();
        // the older one, or the failure of one read, never other bytes
        if (st == MR_OK && !good)
            CHECK_INT(mr_error_last()->code, MR_E_IO);
        mr_ckpt_close(c);
    }
    mr_io_replace(NULL);
    int64_t i = 1;
    for (; i < 500; i++) {
        mr_alloc_fail_at(i);
        mr_status st = mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c);
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            CHECK_INT(mr_ckpt_step(c), 2);
        else
            CHECK_INT(st, MR_E_MEMORY);
        mr_ckpt_close(c);
        if (st == MR_OK)
            break;
    }
    CHECK(i > 10 && i < 500);
}

/* ---- index files ---- */

static char index_path[700];

static bool opens(void *user)
{
    mr_ckpt *c = NULL;
    (void)user;
    bool ok = mr_ckpt_open(index_path, &c) == MR_OK;
    mr_ckpt_close(c);
    return ok;
}

static void refused_index(const char *text, const char *why)
{
    mr_ckpt *c;
    put_file(index_path, text, strlen(text));
    CHECK_FAILS(mr_ckpt_open(index_path, &c), MR_E_FORMAT, why);
}

static void index_files(void)
{
    static const float x[] = {1, 2};
    char path[700];
    mr_ckpt *c;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/part-%d.safetensors", dir, i);
        mr_ckpt_item item = {.name = i ? "b" : "a", .dtype = MR_ST_F32, .rank = 1, .shape = {2}};
        item.data = x;
        CHECK_OK(mr_safetensors_write(path, &item, 1, NULL, 0));
    }
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", dir);
    static const char good[] =
        "{\"metadata\": {\"total_size\": 16}, \"weight_map\": {\"a\": \"part-0.safetensors\", "
        "\"b\": \"part-1.safetensors\"}}";
    put_file(index_path, good, sizeof good - 1);
    CHECK_OK(mr_ckpt_open(index_path, &c));
    CHECK_INT(mr_ckpt_count(c), 2);
    CHECK_INT(mr_ckpt_find(c, "b")->file, 1);
    mr_ckpt_close(c);
    // a tensor that the index has in one file may be in another one, too
    mr_ckpt_item both[] = {{.name = "a", .dtype = MR_ST_F32, .rank = 1, .shape = {2}},
                           {.name = "b", .dtype = MR_ST_F32, .rank = 1, .shape = {2}}};
    static const float others[] = {8, 9};
    both[0].data = both[1].data = others;
    snprintf(path, sizeof path, "%s/part-0.safetensors", dir);
    CHECK_OK(mr_safetensors_write(path, both, 2, NULL, 0));
    CHECK_OK(mr_ckpt_open(index_path, &c));
    CHECK_INT(mr_ckpt_count(c), 2);
    float got[2];
    CHECK_OK(mr_ckpt_read(c, "b", got, 0, sizeof got));
    CHECK(got[0] == 1 && got[1] == 2);
    CHECK_OK(mr_ckpt_read(c, "a", got, 0, sizeof got));
    CHECK(got[0] == 8 && got[1] == 9);
    mr_ckpt_close(c);
    CHECK_OK(mr_safetensors_write(path, both, 1, NULL, 0));
    refused_index("{}", "no weight_map");
    refused_index("{\"weight_map\": []}", "weight_map: expected one object");
    refused_index("{\"weight_map\": {}, \"weight_map\": {}}", "weight_map: expected one object");
    refused_index("{\"metadata\": 1x, \"weight_map\": {}}", "damaged JSON: byte 15");
    refused_index("{\"weight_map\": {\"a\": \"../part-0.safetensors\"}}", "not a plain name");
    refused_index("{\"weight_map\": {\"a\": \".\"}}", "not a plain name");
    refused_index("{\"weight_map\": {\"a\": 1}}", "not a plain name");
    refused_index("{\"weight_map\": {\"b\": \"part-0.safetensors\"}}",
                  "tensor 'b' is not in part-0.safetensors");
    refused_index("{\"weight_map\": {\"a\": \"part-0.safetensors\", \"b\": "
                  "\"part-1.safetensors\", \"b\": \"part-0.safetensors\"}}",
                  "tensor 'b' is not in part-0.safetensors");
}

/* An index that is too large, a pipe, a device and a cycle of links are refused without a read or a
 * wait. */
static void index_bounds(void)
{
    mr_ckpt *c;
    bool ok;
    char *text = malloc(MR_ST_HEADER_MAX + 1);
    memset(text, ' ', MR_ST_HEADER_MAX + 1);
    put_file(index_path, text, MR_ST_HEADER_MAX + 1);
    CHECK_FAILS(mr_ckpt_open(index_path, &c), MR_E_FORMAT,
                "has 16777217 bytes, expected at most 16777216");
    // empty lists need forty times their text in jansson
    static const char start[] = "{\"weight_map\": [";
    memcpy(text, start, sizeof start - 1);
    for (size_t i = sizeof start - 1; i + 3 < MR_ST_HEADER_MAX; i += 3)
        memcpy(text + i, "[],", 3);
    put_file(index_path, text, MR_ST_HEADER_MAX);
    int64_t peak = peak_of(opens, NULL, &ok);
    printf("index of empty lists: memory %.2f times the file\n", (double)peak / MR_ST_HEADER_MAX);
    CHECK(!ok && (!PEAK_COUNTS || peak < 3 * (int64_t)MR_ST_HEADER_MAX));
    free(text);
    remove(index_path);
    CHECK_INT(mkfifo(index_path, 0600), 0);
    CHECK_FAILS(mr_ckpt_open(index_path, &c), MR_E_IO, "is not a regular file");
    remove(index_path);
    CHECK_INT(symlink("/dev/zero", index_path), 0);
    CHECK_FAILS(mr_ckpt_open(index_path, &c), MR_E_IO, "is not a regular file");
    remove(index_path);
    CHECK_INT(symlink(index_path, index_path), 0);
    CHECK_FAILS(mr_ckpt_open(index_path, &c), MR_E_IO, "cannot open");
    remove(index_path);
}

/* A pipe in the place of a manifest is refused, and so is one that is too large. */
static void manifest_bounds(void)
{
    char path[900], aside[900];
    mr_ckpt *c;
    mr_ckpt_dir(dir, 2, path, sizeof path);
    snprintf(aside, sizeof aside, "%s/aside", dir);
    CHECK(rename(manifest, aside) == 0);
    CHECK_INT(mkfifo(manifest, 0600), 0);
    CHECK_FAILS(mr_ckpt_open(path, &c), MR_E_IO, "is not a regular file");
    remove(manifest);
    put_file(manifest, "x", 1);
    CHECK_INT(truncate(manifest, (int64_t)1 << 40), 0);
    CHECK_FAILS(mr_ckpt_open(path, &c), MR_E_FORMAT, "expected at most 33554432");
    CHECK(rename(aside, manifest) == 0);
}

int main(void)
{
    snprintf(dir, sizeof dir, "%s", case_dir("open"));
    make();
    ranges();
    printf("damage sweep: seed 99\n");
    damage_sweep(shard, 99, 80);
    damage_sweep(manifest, 99, 200);
    files_gone();
    changed_later();
    manifest_bounds();
    failing_reads();
    index_files();
    index_bounds();
    mr_dir_remove(dir);
    return check_done();
}
