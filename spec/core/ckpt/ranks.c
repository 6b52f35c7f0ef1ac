/* ckpt/ranks: four ranks write one checkpoint, and any number of ranks reads it: each reads only
 * the blocks that it needs. Parts that do not fit together are no checkpoint. */
#define _DEFAULT_SOURCE
#include "ckptranks.h"

/* ---- reading ---- */

/* Bytes of the blocks that hold some of the wanted tensors, each counted once. */
static char marked[RANKS][64];
static int mark_file;
static int64_t mark_offset;
static mr_status mark(void *user, int64_t at_a, int64_t at_b, int64_t n)
{
    (void)user, (void)at_a;
    int64_t from = mark_offset + at_b;
    for (int64_t b = from / MR_CKPT_BLOCK; b <= (from + n - 1) / MR_CKPT_BLOCK; b++)
        marked[mark_file][b] = 1;
    return MR_OK;
}

static int64_t needed(const mr_manifest *m, const mr_ckpt_want *wants, int n)
{
    int64_t bytes = 0;
    memset(marked, 0, sizeof marked);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < m->n_tensors; k++) {
            const mr_manifest_tensor *t = &m->tensors[k];
            mr_span want;
            if (strcmp(t->is.name, wants[i].name))
                continue;
            CHECK_OK(mr_span_of(&t->is, &wants[i].slice, &want));
            for (int p = t->first; p < t->first + t->n; p++) {
                mr_span piece = mr_piece_span(t, &m->pieces[p]);
                mark_file = m->pieces[p].file, mark_offset = m->pieces[p].offset;
                CHECK_OK(mr_span_intersect(&want, &piece, mark, NULL));
            }
        }
    for (int f = 0; f < m->n_files; f++)
        for (int64_t b = 0; b < mr_ckpt_blocks(m->files[f].bytes); b++)
            if (marked[f][b])
                bytes += MR_MIN(m->files[f].bytes - b * MR_CKPT_BLOCK, (int64_t)MR_CKPT_BLOCK);
    return bytes;
}

/* One of `world` readers: its range of x, its rows of y, its columns of y. */
static int64_t read_rank(const mr_manifest *m, int rank, int world)
{
    static float x[X_MOST], rows[Y], columns[Y];
    int64_t a = n_x * rank / world, b = n_x * (rank + 1) / world;
    int64_t r = ROWS * rank / world, s = ROWS * (rank + 1) / world;
    int64_t c = n_y * rank / world, d = n_y * (rank + 1) / world;
    mr_ckpt_want wants[] = {
        {"x", {MR_CKPT_RANGE, {a}, {b}}, x, (b - a) * 4},
        {"y", {MR_CKPT_BOX, {r, 0}, {s, n_y}}, rows, (s - r) * n_y * 4},
        {"y", {MR_CKPT_BOX, {0, c}, {ROWS, d}}, columns, ROWS * (d - c) * 4},
    };
    mr_ckpt *ckpt = open_step(1);
    CHECK_OK(mr_ckpt_read_slices(ckpt, wants, MR_COUNT(wants)));
    int64_t read = mr_ckpt_bytes_read(ckpt), want = needed(m, wants, MR_COUNT(wants));
    CHECK_INT(read, want);
    bool same = true;
    for (int64_t i = a; i < b; i++)
        same = same && x[i - a] == case_value(1, 0, i);
    for (int64_t i = r * n_y; i < s * n_y; i++)
        same = same && rows[i - r * n_y] == case_value(1, 1, i);
    for (int64_t i = 0; i < ROWS * (d - c); i++)
        same = same && columns[i] == case_value(1, 1, i / (d - c) * n_y + c + i % (d - c));
    CHECK(same);
    mr_ckpt_close(ckpt);
    return read;
}

static void read_by_others(void)
{
    char path[800], step[700];
    mr_status others;
    mr_manifest m;
    fresh();
    fill(1, true);
    open_ranks();
    CHECK_OK(save(1, &others));
    CHECK_OK(others);
    close_ranks();
    snprintf(path, sizeof path, "%s/MANIFEST.json", mr_ckpt_dir(dir, 1, step, sizeof step));
    CHECK_OK(mr_manifest_read(path, false, &m));
    CHECK_INT(m.ranks, RANKS);
    mr_ckpt *c = open_step(1);
    CHECK(exact(c));
    CHECK_OK(mr_ckpt_verify(c));
    int64_t all = mr_ckpt_bytes(c);
    mr_ckpt_close(c);
    static const int worlds[] = {1, 2, 3, 8};
    for (size_t i = 0; i < MR_COUNT(worlds); i++) {
        int64_t most = 0;
        for (int r = 0; r < worlds[i]; r++)
            most = MR_MAX(most, read_rank(&m, r, worlds[i]));
        printf("%d readers of %.1f MB: at most %.1f MB each\n", worlds[i], (double)all * 1e-6,
               (double)most * 1e-6);
    }
    // wanted ranges all over the files, far more than are kept: still each block once
    enum { WISHES = 96 };
    mr_ckpt_want wants[WISHES];
    float x[WISHES];
    for (int i = 0; i < WISHES; i++) {
        int64_t at = (int64_t)(i * 37 % WISHES) * (X_MOST / WISHES);
        wants[i] = (mr_ckpt_want){"x", {MR_CKPT_RANGE, {at}, {at + 1}}, &x[i], 4};
    }
    c = open_step(1);
    CHECK_OK(mr_ckpt_read_slices(c, wants, WISHES));
    CHECK_INT(mr_ckpt_bytes_read(c), needed(&m, wants, WISHES));
    for (int i = 0; i < WISHES; i++)
        CHECK(x[i] == case_value(1, 0, wants[i].slice.from[0]));
    mr_ckpt_close(c);
    mr_manifest_fini(&m);
    // a rank's file is complete by itself, and readable alone
    snprintf(path, sizeof path, "%s/r00001-of-00004.safetensors", step);
    CHECK_OK(mr_ckpt_open(path, &c));
    snprintf(path, sizeof path, "x[%lld:%lld]", (long long)cut(n_x, 1), (long long)cut(n_x, 2));
    CHECK(mr_ckpt_find(c, path));
    CHECK(mr_ckpt_find(c, "y[0:600,64:256]"));
    CHECK_INT(mr_ckpt_count(c), 2);
    mr_ckpt_close(c);
    CHECK_INT(case_count(dir, ".tmp-"), 0);
    CHECK_INT(case_count(dir, ".ended-"), 1);
}

/* A rank that owns none of the small tensors writes a file without tensors. */
static void one_has_nothing(void)
{
    mr_status others;
    fresh();
    last_is_idle = true;
    fill(1, true);
    open_ranks();
    CHECK_OK(save(1, &others));
    CHECK_OK(others);
    close_ranks();
    last_is_idle = false;
    mr_ckpt *c = open_step(1);
    CHECK(exact(c));
    CHECK_OK(mr_ckpt_verify(c));
    mr_ckpt_close(c);
    // one rank alone has all, or there is nothing to save
    mr_saver *alone;
    bool taken;
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.ranks = 1, .run_dir = dir, .lock = lock}, &alone));
    CHECK_FAILS(mr_saver_save(alone, 2, NULL, 0, CASE_META, false, &taken), MR_E_USAGE,
                "a checkpoint of 0 tensors");
    mr_saver_close(alone);
    mr_run_lock_release(lock);
    lock = NULL;
}

/* A file that is missing or damaged is reported with its name, and the others' tensors are still
 * read. */
static void damaged_files(void)
{
    char path[800], step[700], aside[900];
    mr_ckpt *c;
    float x;
    mr_ckpt_dir(dir, 1, step, sizeof step);
    snprintf(path, sizeof path, "%s/r00002-of-00004.safetensors", step);
    snprintf(aside, sizeof aside, "%s/aside", dir);
    CHECK(rename(path, aside) == 0);
    case_clock();
    CHECK_FAILS(mr_ckpt_open(step, &c), MR_E_IO, "r00002-of-00004.safetensors: missing");
    mr_clock_replace(NULL);
    CHECK(rename(aside, path) == 0);
    FILE *f = fopen(path, "r+b");
    fseek(f, 3 * MR_CKPT_BLOCK + 77, SEEK_SET);
    fputc('!', f), fputc('?', f);
    fclose(f);
    c = open_step(1);
    CHECK_OK(mr_ckpt_read(c, "x", &x, 0, 4));
    CHECK_FAILS(mr_ckpt_read(c, "x", &x, cut(n_x, 2) * 4 + 3 * MR_CKPT_BLOCK, 4), MR_E_FORMAT,
                "r00002-of-00004.safetensors: damaged: block 3, bytes 3145728 to 4194304, do not "
                "match their hash (tensor x)");
    CHECK_FAILS(mr_ckpt_verify(c), MR_E_FORMAT, "r00002-of-00004.safetensors: damaged: block 3");
    mr_ckpt_close(c);
}

/* ---- what goes wrong ---- */

static void wrong_parts(void)
{
    mr_status others;
    mr_saver_event e;
    fresh();
    fill(1, false);
    open_ranks();
    first_lost = 5;
    CHECK_FAILS(save(1, &others), MR_E_CKPT, "tensor 'x': elements 75000 to 75005 are in no file");
    CHECK_INT(others, MR_E_CKPT);
    CHECK_FAILS(mr_saver_wait(saver[3], 0), MR_E_CKPT, "rank 0 ended the save: ");
    first_lost = -5;
    CHECK_FAILS(save(1, &others), MR_E_CKPT,
                "elements 74995 to 75000 are in both r00001-of-00004.safetensors and r00002");
    first_lost = 0;
    // parts that contradict each other are not tried again
    while (mr_saver_poll(saver[0], &e))
        CHECK_INT(e.kind, MR_SAVER_FAIL);
    CHECK_INT(case_count(dir, "step-"), 0);
    // and the ranks still agree which save is which
    CHECK_OK(save(1, &others));
    CHECK_OK(others);
    mr_ckpt *c = open_step(1);
    CHECK(exact(c));
    mr_ckpt_close(c);
    close_ranks();
}

static void wrong_use(void)
{
    mr_saver *s;
    fresh();
    mr_saver_options o = {.rank = 1, .ranks = 4};
    CHECK_FAILS(mr_saver_open(&o, &s), MR_E_USAGE, "rank 1 of 4: expected rank 0 with the lock");
    o.run_dir = dir, o.rank = 4;
    CHECK_FAILS(mr_saver_open(&o, &s), MR_E_USAGE, "rank 4 of 4");
    o.rank = 0;
    CHECK_FAILS(mr_saver_open(&o, &s), MR_E_USAGE, "rank 0 of 4");
    o.rank = 1;
    CHECK_FAILS(mr_saver_open(&o, &s), MR_E_LOCK, "rank 1: the run is not locked");
    CHECK_OK(mr_run_lock_take(dir, &lock));
    o.fence = 7;
    CHECK_FAILS(mr_saver_open(&o, &s), MR_E_LOCK, "launch 1 has taken the run over");
    mr_run_lock_release(lock);
}

int main(void)
{
    begin_case("ranks");
    read_by_others();
    one_has_nothing();
    damaged_files();
    wrong_parts();
    wrong_use();
    mr_dir_remove(dir);
    return check_done();
}
