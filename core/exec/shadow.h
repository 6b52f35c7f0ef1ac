/* exec, inside: the memory of the shadow device, its queued work, and the checks of each step.
 * Licence: Apache-2.0 */
#ifndef MR_EXEC_SHADOW_H
#define MR_EXEC_SHADOW_H

#include "exec/room.h"

#include <time.h>

/* ---- memory ---- */

/* One allocation: real memory between guard pages, and an equal range of device addresses that
 * fault. */
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
    shadow_block **block; /* sorted by address */
    int n, cap;
} shadow_memory;

mr_status shadow_alloc(shadow_memory *m, size_t bytes, bool pinned, mr_dptr *out);
void shadow_free(shadow_memory *m, mr_dptr at);
void shadow_fini(shadow_memory *m);
/* The block that contains [at, at + bytes). Errors: MR_E_INTERNAL with `who` and the range. */
mr_status shadow_find(const shadow_memory *m, mr_dptr at, size_t bytes, const char *who,
                      shadow_block **out);
/* Mark bytes as written; or poison them and mark them as unwritten. */
void shadow_mark(shadow_block *b, mr_dptr at, size_t bytes);
void shadow_poison(shadow_block *b, mr_dptr at, size_t bytes, int byte);
/* The number of bytes before the first unwritten one of the range; `bytes` if all are written. */
size_t shadow_unwritten(const shadow_block *b, mr_dptr at, size_t bytes);
/* Whether nothing was written between the end of the block and the end of its last page. */
bool shadow_intact(const shadow_block *b);

/* ---- checks ---- */

/* Run one step on real addresses with all checks. A failure carries op, node and origin. */
mr_status shadow_step(const shadow_memory *m, const mr_step *step);
/* When a copy is enqueued: poison its target in pinned memory, to detect a host that reads it too
 * early; hash its source there. */
mr_status shadow_copy_begin(const shadow_memory *m, const mr_copy *copy, uint64_t *hash);
/* Copy, and report unwritten bytes and bytes that the host changed meanwhile. */
mr_status shadow_copy(const shadow_memory *m, const mr_copy *copy, uint64_t hash);

/* ---- enqueued work (shadow_lane.c) ---- */

struct mr_event {
    uint64_t marked, reached; /* numbers of marks */
};

/* Which of the possible tasks is chosen: the first in the list or, with `drawn`, a random one.
 * Steps of a run and lanes have separate random streams: which lanes can continue depends on
 * timing, but the steps of a run must have the same order on every rank. */
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
    mr_event *event; /* for MARK and WAIT, with the number of the mark */
    uint64_t number;
    const mr_step *steps;
    int n, n_done, at[MR_QUEUE_COUNT]; /* next step of each queue */
    shadow_order order;
    unsigned char done[];
} shadow_item;

typedef struct shadow_lanes {
    shadow_item *head[MR_LANE_COUNT], **tail[MR_LANE_COUNT];
    shadow_order order; /* of the last completed run */
} shadow_lanes;

/* A copy, or a step of a run; the thread of `queue` runs it. */
typedef struct shadow_task {
    mr_lane lane;
    shadow_item *item;
    int step;
    mr_queue queue;
} shadow_task;
typedef enum shadow_turn {
    SHADOW_IDLE,  /* no work is enqueued */
    SHADOW_LATER, /* no work starts before *until */
    SHADOW_NOW,
    SHADOW_STUCK /* all queues wait for each other */
} shadow_turn;

void shadow_lanes_init(shadow_lanes *l);
bool shadow_lanes_empty(const shadow_lanes *l);
/* Add the item; takes ownership. */
void shadow_lanes_add(shadow_lanes *l, mr_lane lane, shadow_item *item);
/* The next task. demanded: even if its start is not due yet. */
shadow_turn shadow_lanes_next(shadow_lanes *l, bool demanded, shadow_task *task,
                              struct timespec *until);
void shadow_lanes_done(shadow_lanes *l, const shadow_task *task);
/* Drop all items; their events count as reached. */
void shadow_lanes_drop(shadow_lanes *l);

#endif
