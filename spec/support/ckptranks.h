/* Four ranks that write one checkpoint, in one process. */
#ifndef MR_CKPTRANKS_H
#define MR_CKPTRANKS_H

#include "ckpt/manifest.h"
#include "ckptcase.h"

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
static inline void short_sleep(int64_t ns)
{
    struct timespec t = {0, (long)MR_MIN(ns, (int64_t)100000)};
    nanosleep(&t, NULL);
}

/* ---- the state of four ranks ---- */

/* The whole state at a step; y is filled box by box below. */
static inline void fill(int64_t step, bool large)
{
    n_x = large ? X_MOST : CASE_A, n_y = large ? 1024 : 64;
    case_step = step;
    for (int64_t i = 0; i < n_x; i++)
        xs[i] = case_value(step, 0, i);
}

static bool last_is_idle; /* rank 3 owns nothing: rank 2 has its part, too */

/* Uneven divisions of n: 0, 1/16, 4/16, 9/16, all. */
static inline int64_t cut(int64_t n, int rank)
{
    if (last_is_idle && rank == 3)
        return n;
    return n * rank * rank / (RANKS * RANKS);
}

/* A rank's part of it: a range of x, some columns of y, and for rank 0 the small tensors. */
static inline int items_of(int rank, mr_ckpt_item items[ITEMS])
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
static inline mr_status open_rank(int rank, double deadline_s)
{
    mr_saver_options o = {.rank = rank, .ranks = RANKS, .run_dir = dir, .deadline_s = deadline_s};
    if (rank == 0) {
        MR_TRY(mr_run_lock_take(dir, &lock));
        o.lock = lock;
    }
    return mr_saver_open(&o, &saver[rank]);
}

static inline void open_ranks(void)
{
    for (int r = 0; r < RANKS; r++)
        CHECK_OK(open_rank(r, 20));
}

static inline void close_ranks(void)
{
    for (int r = RANKS - 1; r >= 0; r--) {
        mr_saver_close(saver[r]);
        saver[r] = NULL;
    }
    mr_run_lock_release(lock);
    lock = NULL;
}

static inline mr_status start(int rank, int64_t step)
{
    mr_ckpt_item items[ITEMS];
    bool taken;
    int n = items_of(rank, items);
    return mr_saver_save(saver[rank], step, items, n, rank ? NULL : CASE_META, false, &taken);
}

/* Saves with all ranks; *others is the status of the last rank that did not succeed. */
static inline mr_status save(int64_t step, mr_status *others)
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

static inline void fresh(void)
{
    mr_dir_remove(dir);
    mr_dir_make(dir);
}

/* Does the checkpoint hold exactly what fill(its step) makes? */
static inline bool exact(mr_ckpt *c)
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

static inline mr_ckpt *open_step(int64_t step)
{
    char path[700];
    mr_ckpt *c = NULL;
    CHECK_OK(mr_ckpt_open(mr_ckpt_dir(dir, step, path, sizeof path), &c));
    return c;
}

/* Short pauses, faults, and a folder for the run. */
static inline void begin_case(const char *name)
{
    clock_table = *mr_clock_table();
    clock_table.sleep_ns = short_sleep;
    mr_clock_replace(&clock_table);
    fault_install(); // syncs are counted, not done
    snprintf(dir, sizeof dir, "%s", case_dir(name));
}

#endif
