/* exec, inside: the memory of the shadow device, its queued work, and the checks of each step.
 * Licence: Apache-2.0 */
#ifndef MR_EXEC_SHADOW_H
#define MR_EXEC_SHADOW_H

#include "exec/room.h"

#include <time.h>

/* ---- memory ---- */

/* One allocation: real memory between guard pages, and as many bytes of addresses that fault. */
typedef struct shadow_block {
    mr_dptr at; /* device address */
    unsigned char *real;
    size_t bytes, room, mapped; /* room: whole pages; mapped: everything reserved */
    void *base;
    uint64_t *written; /* one bit per byte */
    mr_guard guard;
    bool pinned;
} shadow_block;

typedef struct shadow_memory {
    shadow_block **block; /* by address */
    int n, cap;
} shadow_memory;

mr_status shadow_alloc(shadow_memory *m, size_t bytes, bool pinned, mr_dptr *out);
void shadow_free(shadow_memory *m, mr_dptr at);
void shadow_fini(shadow_memory *m);
/* The block that holds [at, at + bytes), or MR_E_INTERNAL saying who asked for what. */
mr_status shadow_find(const shadow_memory *m, mr_dptr at, size_t bytes, const char *who,
                      shadow_block **out);
/* Bytes become written, or poisoned and unwritten. */
void shadow_mark(shadow_block *b, mr_dptr at, size_t bytes);
void shadow_poison(shadow_block *b, mr_dptr at, size_t bytes, int byte);
/* Bytes before the first unwritten one of the range; `bytes` when all are written. */
size_t shadow_unwritten(const shadow_block *b, mr_dptr at, size_t bytes);
/* Nothing was written between the block's end and its last page's end. */
bool shadow_intact(const shadow_block *b);

/* ---- checks ---- */

/* Run one step on real addresses with all checks. A failure carries op, node and origin. */
mr_status shadow_step(const shadow_memory *m, const mr_step *step);
/* When a copy is enqueued: what it will write in pinned memory is poisoned, for a host that reads
 * it too early; of what it will read there the hash is taken. */
mr_status shadow_copy_begin(const shadow_memory *m, const mr_copy *copy, uint64_t *hash);
/* Do it: unwritten bytes, and bytes that the host changed meanwhile, are reported. */
mr_status shadow_copy(const shadow_memory *m, const mr_copy *copy, uint64_t hash);

/* ---- what is enqueued (shadow_lane.c) ---- */

struct mr_event {
    uint64_t marked, reached; /* numbers of marks */
};

/* Which of those that can go on is taken: the first in the list, or `drawn` any. Steps of a run and
 * lanes are drawn apart: which lanes can go on is a matter of time, and the steps of a run come in
 * the same order on every rank all the same. */
typedef struct shadow_order {
    int queue[MR_QUEUE_COUNT], lane[MR_LANE_COUNT];
    bool drawn;
    uint64_t steps, lanes;
} shadow_order;
shadow_order shadow_order_of(uint64_t number);

typedef enum shadow_kind { SHADOW_RUN, SHADOW_COPY, SHADOW_MARK, SHADOW_WAIT } shadow_kind;
typedef struct shadow_item {
    struct shadow_item *next;
    shadow_kind kind;
    struct timespec due;
    bool started;
    mr_copy copy;
    uint64_t hash;
    mr_event *event; /* MARK, WAIT: and the number of the mark */
    uint64_t number;
    const mr_step *steps;
    int n, n_done, at[MR_QUEUE_COUNT]; /* next step of each queue */
    shadow_order order;
    unsigned char done[];
} shadow_item;

typedef struct shadow_lanes {
    shadow_item *head[MR_LANE_COUNT], **tail[MR_LANE_COUNT];
    shadow_order order; /* of the run that ended last */
} shadow_lanes;

/* A copy, or a step of a run; the thread of `queue` does it. */
typedef struct shadow_task {
    mr_lane lane;
    shadow_item *item;
    int step;
    mr_queue queue;
} shadow_task;
typedef enum shadow_turn {
    SHADOW_IDLE,  /* nothing is enqueued */
    SHADOW_LATER, /* nothing starts before *until */
    SHADOW_NOW,
    SHADOW_STUCK /* each waits for another */
} shadow_turn;

void shadow_lanes_init(shadow_lanes *l);
bool shadow_lanes_empty(const shadow_lanes *l);
/* Takes the item. */
void shadow_lanes_add(shadow_lanes *l, mr_lane lane, shadow_item *item);
/* What to do next. demanded: also what need not start yet. */
shadow_turn shadow_lanes_next(shadow_lanes *l, bool demanded, shadow_task *task,
                              struct timespec *until);
void shadow_lanes_done(shadow_lanes *l, const shadow_task *task);
/* Forget everything; events that were to be marked count as reached. */
void shadow_lanes_drop(shadow_lanes *l);

#endif
