/* ckpt/ranks: four ranks write one checkpoint, and any number of ranks reads it: each reads only
 * the blocks that it needs. Whatever fails and whichever rank dies, the checkpoint is complete or
 * does not exist.
 * MOONREEL_EVERY=1 fails each operation of a save instead of every eighth.
 * Covers: core/ckpt/follow.c */
#define _DEFAULT_SOURCE
#include "ckpt/manifest.h"
#include "ckptcase.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { RANKS = 4, ROWS = 600, X_MOST = 6 << 20, Y = ROWS * 1024, ITEMS = 4 };

static char dir[600];
static mr_run_lock *lock;
static mr_saver *saver[RANKS];
static int64_t n_x, n_y; // elements of x, columns of y
static float xs[X_MOST], ys[Y];
static int64_t first_lost; // elements that rank 2 leaves out of x

/* Ranks look at the directory after pauses; here these are short. */
static mr_clock clock_table;
static void short_sleep(int64_t ns)
{
    struct timespec t = {0, (long)MR_MIN(ns, (int64_t)100000)};
    nanosleep(&t, NULL);
}

/* ---- the state of four ranks ---- */

/* The whole state at a step; y is filled box by box below. */
static void fill(int64_t step, bool large)
{
    n_x = large ? X_MOST : CASE_A, n_y = large ? 1024 : 64;
    case_step = step;
    for (int64_t i = 0; i < n_x; i++)
        xs[i] = case_value(step, 0, i);
}

static bool last_is_idle; /* rank 3 owns nothing: rank 2 has its part, too */

/* Uneven divisions of n: 0, 1/16, 4/16, 9/16, all. */
static int64_t cut(int64_t n, int rank)
{
    if (last_is_idle && rank == 3)
        return n;
    return n * rank * rank / (RANKS * RANKS);
}

/* A rank's part of it: a range of x, some columns of y, and for rank 0 the small tensors. */
static int items_of(int rank, mr_ckpt_item items[ITEMS])
{
    int64_t a = cut(n_x, rank), b = cut(n_x, rank + 1), c = cut(n_y, rank), d = cut(n_y, rank + 1);
    float *box = ys + ROWS * c, *at = box;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t column = c; column < d; column++)
            *at++ = case_value(case_step, 1, row * n_y + column);
    if (rank == 2)
        a += first_lost;
    items[0] = (mr_ckpt_item){.name = "x",
                              .dtype = MR_ST_F32,
                              .rank = 2,
                              .shape = {n_x / 4, 4},
                              .slice = {MR_CKPT_RANGE, {a}, {b}},
                              .copy = case_copy,
                              .user = xs + a};
    items[1] = (mr_ckpt_item){.name = "y",
                              .dtype = MR_ST_F32,
                              .rank = 2,
                              .shape = {ROWS, n_y},
                              .slice = {MR_CKPT_BOX, {0, c}, {ROWS, d}},
                              .data = box};
    items[2] = (mr_ckpt_item){.name = "empty", .dtype = MR_ST_BF16, .rank = 2, .shape = {0, 4}};
    items[3] = (mr_ckpt_item){.name = "step", .dtype = MR_ST_I64, .data = &case_step};
    return last_is_idle && rank == 3 ? 0 : rank ? 2 : ITEMS;
}

/* The saver of a rank, with its lock for rank 0. */
static mr_status open_rank(int rank, double deadline_s)
{
    mr_saver_options o = {.rank = rank, .ranks = RANKS, .run_dir = dir, .deadline_s = deadline_s};
    if (rank == 0) {
        MR_TRY(mr_run_lock_take(dir, &lock));
        o.lock = lock;
    }
    return mr_saver_open(&o, &saver[rank]);
}

static void open_ranks(void)
{
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(open_rank(r, 20));
}

static void close_ranks(void)
{
    for (int r = RANKS - 1; r >= 0; r--) {
        mr_saver_close(saver[r]);
        saver[r] = NULL;
    }
    mr_run_lock_release(lock);
    lock = NULL;
}

static mr_status start(int rank, int64_t step)
{
    mr_ckpt_item items[ITEMS];
    bool taken;
    int n = items_of(rank, items);
    return mr_saver_save(saver[rank], step, items, n, rank ? NULL : CASE_META, false, &taken);
}

/* Saves with all ranks; *others is the status of the last rank that did not succeed. */
static mr_status save(int64_t step, mr_status *others)
{
    *others = MR_OK;
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(start(r, step));
    for (int r = 1; r < RANKS; r++) {
        mr_status st = mr_saver_wait(saver[r], INFINITY);
        *others = st == MR_OK ? *others : st;
    }
    return mr_saver_wait(saver[0], INFINITY);
}

static void fresh(void)
{
    mr_dir_remove(dir);
    mr_dir_make(dir);
}

/* Does the checkpoint hold exactly what fill(its step) makes? */
static bool exact(mr_ckpt *c)
{
    static float x[X_MOST], y[Y];
    int64_t step = mr_ckpt_step(c), report = -1;
    if (mr_ckpt_read(c, "x", x, 0, n_x * 4) || mr_ckpt_read(c, "y", y, 0, ROWS * n_y * 4) ||
        mr_ckpt_read(c, "step", &report, 0, 8) || mr_ckpt_read(c, "empty", x, 0, 0))
        return false;
    bool same = report == step;
    for (int64_t i = 0; i < n_x; i++)
        same = same && x[i] == case_value(step, 0, i);
    for (int64_t i = 0; i < ROWS * n_y; i++)
        same = same && y[i] == case_value(step, 1, i);
    return same;
}

static mr_ckpt *open_step(int64_t step)
{
    char path[700];
    mr_ckpt *c = NULL;
    CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, step, path, sizeof path), &c));
    return c;
}

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

/* A rank is notified of an end now sooner, now later than rank 0 has counted it, so ranks that
 * count by themselves would end the run at different saves. */
static void first_rank_decides(void)
{
    mr_status others;
    fresh();
    fill(1, false);
    open_ranks();
    first_lost = 5;
    for (int64_t step = 1; step <= 3; step++) {
        CHECK_OK(mr_saver_check(saver[0]));
        CHECK_FAILS(save(step, &others), MR_E_CKPT, "are in no file");
        CHECK_INT(others, MR_E_CKPT);
    }
    first_lost = 0;
    CHECK_FAILS(mr_saver_check(saver[0]), MR_E_CKPT,
                "no checkpoint was committed in 3 saves in a row; the last one: /");
    for (int r = 1; r < RANKS; r++)
        CHECK_OK(mr_saver_check(saver[r]));
    // until it has sent them, all still take the same saves
    CHECK_OK(save(1, &others));
    CHECK_OK(others);
    CHECK_OK(mr_saver_check(saver[0]));
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

/* No rank waits beyond the deadline for a rank that does not answer, and nothing is committed. */
static void silent_ranks(void)
{
    fresh();
    fill(1, false);
    CHECK_OK(open_rank(0, 0.1));
    CHECK_OK(open_rank(1, 0));
    CHECK_OK(start(0, 1));
    CHECK_OK(start(1, 1));
    CHECK_FAILS(mr_saver_wait(saver[1], INFINITY), MR_E_CKPT, "has not written its part of step 1");
    while (mr_saver_wait(saver[0], INFINITY) != MR_E_CKPT ||
           !strstr(mr_error_last()->text, "newest"))
        ; // the deadline of the save may be over a moment before that of its thread
    CHECK_INT(case_count(dir, "step-"), 0);
    close_ranks();
    CHECK_OK(open_rank(0, 0));
    CHECK_OK(open_rank(2, 0.1));
    CHECK_OK(start(2, 1));
    while (mr_saver_wait(saver[2], INFINITY) != MR_E_CKPT ||
           !strstr(mr_error_last()->text, "newest"))
        ;
    CHECK(strstr(mr_error_last()->text, "rank 0 did not report the save of step 1 within 0.05 s"));
    // a rank that comes late is notified that the others have continued
    CHECK_OK(start(2, 2));
    close_ranks();
}

/* Ranks that know that others are lost wait no longer than the given time, however long the
 * deadline is; a part that arrives in that time is taken. */
static void lost_ranks(void)
{
    fresh();
    fill(1, false);
    open_ranks();
    for (int r = 0; r < RANKS - 1; r++)
        CHECK_OK(start(r, 1));
    for (int r = 0; r < RANKS - 1; r++)
        mr_saver_part(saver[r], 1);
    CHECK_FAILS(mr_saver_wait(saver[0], INFINITY), MR_E_CKPT, " has not written its part");
    // half of the deadline
    CHECK(!strstr(mr_error_last()->text, "within 10 s"));
    for (int r = 1; r < RANKS - 1; r++)
        CHECK_INT(mr_saver_wait(saver[r], INFINITY), MR_E_CKPT);
    CHECK_INT(case_count(dir, "step-"), 0);
    close_ranks();
    fresh();
    open_ranks();
    for (int r = 0; r < RANKS - 1; r++) {
        CHECK_OK(start(r, 1));
        mr_saver_part(saver[r], 50);
    }
    CHECK_OK(start(RANKS - 1, 1));
    CHECK_OK(mr_saver_wait(saver[0], INFINITY));
    CHECK_INT(case_count(dir, "step-"), 1);
    close_ranks();
}

/* A rank whose look fails once while it waits for rank 0 looks again. */
static void look_again(void)
{
    mr_status others = MR_OK;
    fresh();
    fill(1, false);
    open_ranks();
    CHECK_OK(start(1, 1));
    fault_at(1, FAULT_ERRNO, EIO);
    mr_saver_status now = {.pending = 1};
    while (now.pending && fault_operations() < 2)
        mr_saver_get_status(saver[1], &now);
    fault_clear();
    if (!CHECK_INT(now.pending, 1)) {
        close_ranks();
        return;
    }
    for (int r = 0; r < RANKS; r++)
        if (r != 1)
            CHECK_OK(start(r, 1));
    for (int r = 1; r < RANKS; r++)
        others = MR_MAX(others, mr_saver_wait(saver[r], INFINITY));
    CHECK_OK(others);
    CHECK_OK(mr_saver_wait(saver[0], INFINITY));
    close_ranks();
}

/* ---- each operation may fail or be the last ---- */

/* After a restart: the newest checkpoint is exact and not older than `least`. */
static void judge(int64_t least, const char *what, long i)
{
    mr_ckpt *c = NULL;
    mr_status others;
    CHECK_OK(mr_ckpt_open_newest(dir, NULL, NULL, NULL, &c));
    bool good = c && mr_ckpt_step(c) >= least && exact(c);
    if (!good)
        printf("%s at operation %ld: newest is %lld, expected at least %lld and exact\n", what, i,
               c ? (long long)mr_ckpt_step(c) : -1, (long long)least);
    CHECK(good);
    mr_ckpt_close(c);
    open_ranks();
    CHECK_INT(case_count(dir, ".tmp-"), 0);
    CHECK_INT(case_count(dir, ".bad-"), 0);
    CHECK_INT(case_count(dir, ".ended-"), 0);
    fill(3, false);
    CHECK_OK(save(3, &others));
    CHECK_OK(others);
    close_ranks();
}

/* A run with step 1, all ranks open. */
static void begin(void)
{
    mr_status others;
    fresh();
    fill(1, false);
    open_ranks();
    CHECK_OK(save(1, &others));
    fill(2, false);
}

static long count_operations(void)
{
    mr_status others;
    begin();
    fault_clear();
    CHECK_OK(save(2, &others));
    close_ranks();
    return fault_operations();
}

static long every = 8;

static void fail_sweep(long n)
{
    int acknowledged = 0, rounds = 0;
    for (long i = 1; i <= n; i += every, rounds++) {
        mr_status others;
        char path[700];
        begin();
        fault_at(i, FAULT_ERRNO, EIO);
        mr_status st = save(2, &others);
        fault_clear();
        // a rank may not notice a commit, but none takes a failure for one
        CHECK(st == MR_OK || others != MR_OK);
        CHECK_INT(mr_path_exists(mr_ckpt_dir(dir, 2, path, sizeof path)), st == MR_OK);
        acknowledged += st == MR_OK;
        close_ranks();
        judge(st == MR_OK ? 2 : 1, "EIO", i);
    }
    printf("EIO: %d of %d saves committed in spite of it\n", acknowledged, rounds);
    CHECK(acknowledged >= rounds - 3);
}

/* All ranks die at the same time, after each operation of any. */
static void die_together(long n)
{
    for (long i = 2; i <= n; i += every) {
        fresh();
        pid_t child = fork();
        if (child == 0) {
            mr_status others;
            begin();
            fault_at(i, FAULT_DIE_AFTER, 0);
            _exit(save(2, &others) != MR_OK);
        }
        int status;
        waitpid(child, &status, 0);
        fault_clear();
        CHECK(WIFEXITED(status));
        judge(WEXITSTATUS(status) == 0 ? 2 : 1, "death of all", i);
    }
}

/* One rank in a process of its own; it dies after its operation `at`. The saver is open when it
 * writes to `ready`. */
static pid_t start_rank(int rank, long at, int ready)
{
    pid_t child = fork();
    if (child)
        return child;
    bool taken;
    mr_ckpt_item items[ITEMS];
    int n = items_of(rank, items);
    if (open_rank(rank, 0) != MR_OK || write(ready, "", 1) != 1)
        _exit(2);
    fault_at(at, at ? FAULT_DIE_AFTER : FAULT_NONE, 0);
    if (mr_saver_save(saver[rank], 2, items, n, rank ? NULL : CASE_META, true, &taken) != MR_OK)
        _exit(3);
    _exit(mr_saver_wait(saver[rank], INFINITY) != MR_OK);
}

/* A rank dies after each of its operations; the others are ended as by a launcher. Returns whether
 * it died. */
static bool die_alone(int rank, long at)
{
    pid_t ranks[RANKS];
    int ends[2], status, rest;
    char byte;
    mr_status others;
    fresh();
    fill(1, false);
    open_ranks();
    CHECK_OK(save(1, &others));
    close_ranks();
    fill(2, false);
    CHECK(pipe(ends) == 0);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = start_rank(r, r == rank ? at : 0, ends[1]);
        CHECK(read(ends[0], &byte, 1) == 1);
    }
    close(ends[0]), close(ends[1]);
    waitpid(ranks[rank], &status, 0);
    CHECK(WIFEXITED(status));
    bool died = WEXITSTATUS(status) == FAULT_EXIT;
    CHECK(died || WEXITSTATUS(status) == 0);
    for (int r = 0; r < RANKS; r++)
        if (r != rank) {
            if (died)
                kill(ranks[r], SIGKILL);
            waitpid(ranks[r], &rest, 0);
            CHECK(died || rest == 0);
        }
    // rank 0 commits only when all parts exist, and each rank is notified
    judge(died ? 1 : 2, "death of one", at);
    return died;
}

int main(void)
{
    const char *report = getenv("MOONREEL_EVERY");
    if (report)
        every = MR_MAX(strtol(report, NULL, 10), 1L);
    clock_table = *mr_clock_table();
    clock_table.sleep_ns = short_sleep;
    mr_clock_replace(&clock_table);
    fault_install(); // syncs are counted, not done
    snprintf(dir, sizeof dir, "%s", case_dir("ranks"));
    read_by_others();
    one_has_nothing();
    damaged_files();
    wrong_parts();
    first_rank_decides();
    wrong_use();
    silent_ranks();
    lost_ranks();
    look_again();
    long n = count_operations();
    printf("%ld operations of %d ranks\n", n, RANKS);
    CHECK(n > 60);
    fail_sweep(n);
    die_together(n);
    static const int dying[] = {0, 2};
    for (size_t i = 0; i < MR_COUNT(dying); i++) {
        long at = 1;
        while (die_alone(dying[i], at))
            at += every;
        printf("rank %d died after operations up to its %ld.\n", dying[i], at);
        // the number of others depends on how often it looks for the files of slower ranks
        CHECK(at > 12);
    }
    mr_dir_remove(dir);
    return check_done();
}
