/* Random graphs whose nodes run on random queues, for specs of schedules, layouts and executors:
 * chains, in-place candidates, views that overlap, joins, sums in a region and in an input, outputs
 * from the middle. Equal seeds give equal graphs, whatever the queues. */
#ifndef MR_QUEUECASE_H
#define MR_QUEUECASE_H
#include "check.h"
#include "moonreel/layout.h"

enum { Q_ROWS = 6, Q_COLS = 40, Q_NODES = 48, Q_GRAD = 5 * Q_COLS };

static uint64_t queue_state;
static inline int queue_draw(int below)
{
    queue_state = queue_state * 6364136223846793005u + 1442695040888963407u;
    return (int)((queue_state >> 33) % (uint64_t)below);
}

/* side: percent of nodes that are not on compute. Inputs "x" and "z" [6, 40]; outputs "last",
 * "middle", "corner", "sum" [6, 40], [6, 40], [6, 6], [40] f32; adds into the first Q_GRAD elements
 * of region "grad" if `params` (may be NULL) has it. */
static inline mr_graph *queue_graph(mr_params *params, uint64_t seed, int side, bool no_inplace)
{
    queue_state = seed * 2 + 1;
    mr_graph *g = NULL;
    mr_ref pool[Q_NODES], parts[2], acc;
    int n = 3;
    CHECK_OK(mr_graph_new(params, &(mr_graph_options){.no_inplace = no_inplace}, &g));
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){Q_ROWS, Q_COLS}, &pool[0]));
    CHECK_OK(mr_graph_input(g, "z", MR_F32, 2, (int64_t[]){Q_ROWS, Q_COLS}, &pool[1]));
    CHECK_OK(mr_graph_input(g, "sum", MR_F32, 1, (int64_t[]){Q_COLS}, &acc));
    pool[2] = pool[0];
    while (n < Q_NODES) {
        mr_ref a = pool[queue_draw(3) ? n - 1 - queue_draw(3) : queue_draw(n)],
               b = pool[queue_draw(n)], y = a, row;
        int what = queue_draw(9), at = 1 + queue_draw(Q_ROWS - 1), percent = queue_draw(100),
            queue = 1 + queue_draw(MR_QUEUE_COUNT - 1);
        CHECK_OK(mr_graph_set_queue(g, percent < side ? (mr_queue)queue : MR_Q_COMPUTE, NULL));
        switch (what) {
        case 0: CHECK_OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){a, b}, 2, &y)); break;
        case 1: CHECK_OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &a, 1, &y)); break;
        case 2: CHECK_OK(mr_graph_add(g, "copy", MR_NO_ATTRS, &a, 1, &y)); break;
        case 3:
            CHECK_OK(mr_graph_add(g, "affine", MR_ATTRS({"scale", .f = 0.5}, {"shift", .f = 0.125}),
                                  &a, 1, &y));
            break;
        case 4: // rows of a over rows of b
            CHECK_OK(mr_graph_slice(g, a, 0, 0, at, &parts[0]));
            CHECK_OK(mr_graph_slice(g, b, 0, at, Q_ROWS, &parts[1]));
            CHECK_OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &parts[0], 1, &parts[0]));
            CHECK_OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
            CHECK_OK(mr_graph_concat(g, parts, 2, 0, &y));
            break;
        case 5: // columns, so that parts are strided
            CHECK_OK(mr_graph_slice(g, b, 1, 0, 8, &parts[0]));
            CHECK_OK(mr_graph_slice(g, a, 1, 8, Q_COLS, &parts[1]));
            CHECK_OK(
                mr_graph_add(g, "affine", MR_ATTRS({"scale", .f = -0.5}), &parts[1], 1, &parts[1]));
            CHECK_OK(mr_graph_concat(g, parts, 2, 1, &y));
            break;
        case 6: // one op adds to the sum that the host set
            CHECK_OK(mr_graph_slice(g, a, 0, at, at + 1, &row));
            CHECK_OK(mr_graph_reshape(g, row, 1, (int64_t[]){Q_COLS}, &row));
            CHECK_OK(
                mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){acc, row}, 2, &parts[0]));
            acc = parts[0];
            break;
        case 7: // one op adds to a part of a region that others overlap
            CHECK_OK(mr_graph_slice(g, a, 0, at, at + 1, &row));
            CHECK_OK(mr_graph_reshape(g, row, 1, (int64_t[]){Q_COLS}, &row));
            if (!params)
                break;
            CHECK_OK(mr_graph_region(g, "grad", MR_SPACE_DEVICE, MR_F32, queue_draw(9) * Q_COLS / 2,
                                     1, (int64_t[]){Q_COLS}, &parts[0]));
            CHECK_OK(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){parts[0], row}, 2,
                                  &parts[0]));
            break;
        default: CHECK_OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){a, a}, 2, &y));
        }
        pool[n++] = y;
    }
    CHECK_OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
    mr_ref corner;
    CHECK_OK(mr_graph_slice(g, pool[n - 2], 1, 3, 9, &corner));
    CHECK_OK(mr_graph_output(g, "last", pool[n - 1]));
    CHECK_OK(mr_graph_output(g, "middle", pool[n / 2]));
    CHECK_OK(mr_graph_output(g, "corner", corner));
    CHECK_OK(mr_graph_output(g, "sum", acc));
    CHECK_OK(mr_graph_finish(g));
    return g;
}

/* ---- an order, derived from the waits alone ---- */

/* before[a * n + b]: a is over when b begins. Left out: wait number `without_wait` of step
 * `without` (-1: none). Owns: free with mr_free. */
static inline bool *queue_order(const mr_schedule *s, int without, int without_wait)
{
    int n = mr_schedule_steps(s), last[MR_QUEUE_COUNT];
    bool *before = mr_calloc((size_t)n * (size_t)n + 1, 1);
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        last[q] = -1;
    for (int b = 0; b < n; b++) {
        const mr_schedule_step *t = mr_schedule_at(s, b);
        for (int k = -1; k < t->wait_n; k++) {
            int a = k < 0 ? last[t->queue] : t->wait[k];
            if (a < 0 || (b == without && k == without_wait))
                continue;
            before[a * n + b] = true;
            for (int c = 0; c < a; c++)
                before[c * n + b] |= before[c * n + a];
        }
        last[t->queue] = b;
    }
    return before;
}

#endif
