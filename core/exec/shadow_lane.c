/* exec: schedules the work that is enqueued on the shadow device.
 *
 * Possible tasks are the next step of a run on each queue, and the copy at the front of each lane.
 * They are chosen in an order that differs from run to run and depends only on the number of the
 * order. Number 0 prefers copies, then the highest queue; 1 prefers the lowest queue, and copies
 * come last. Other odd numbers draw one order for the run, so that a lane or queue can be idle as
 * long as possible; even numbers draw at each step. So a missing wait is detected within a few
 * runs. All functions here are called with the lock of the device held. Licence: Apache-2.0 */
#include "exec/shadow.h"

#include <string.h>

enum { DELAY_MS = 20 }; /* delay of work for which no one waits */

static int draw(uint64_t *random, int below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (int)((*random >> 33) % (uint64_t)below);
}

static void shuffle(shadow_order *o, int *list, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int other = draw(&o->steps, i + 1), item = list[i];
        list[i] = list[other], list[other] = item;
    }
}

shadow_order shadow_order_of(uint64_t number)
{
    shadow_order o = {.drawn = number > 1 && number % 2 == 0, .steps = number, .lanes = number};
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        o.queue[q] = number == 1 ? q : MR_QUEUE_COUNT - 1 - q;
    for (int l = 0; l < MR_LANE_COUNT; l++)
        o.lane[l] = number == 1 ? l : MR_LANE_COUNT - 1 - l;
    if (number > 1) {
        shuffle(&o, o.queue, MR_QUEUE_COUNT);
        shuffle(&o, o.lane, MR_LANE_COUNT);
    }
    return o;
}

/* ---- items ---- */

void shadow_lanes_init(shadow_lanes *l)
{
    for (int i = 0; i < MR_LANE_COUNT; i++)
        l->tail[i] = &l->head[i];
}

bool shadow_lanes_empty(const shadow_lanes *l)
{
    for (int i = 0; i < MR_LANE_COUNT; i++)
        if (l->head[i])
            return false;
    return true;
}

static void pop(shadow_lanes *l, int lane)
{
    shadow_item *item = l->head[lane];
    if (item->kind == SHADOW_MARK)
        item->event->reached = item->number;
    // an aborted run has steps that never started: remove them as users
    for (int i = 0; i < item->n; i++)
        for (int k = 0; k < item->steps[i].n_spans; k++)
            item->steps[i].spans[k]->seen = 0;
    l->head[lane] = item->next;
    if (!l->head[lane])
        l->tail[lane] = &l->head[lane];
    mr_free(item);
}

void shadow_lanes_drop(shadow_lanes *l)
{
    for (int i = 0; i < MR_LANE_COUNT; i++)
        while (l->head[i])
            pop(l, i);
}

/* Process marks at the front of a lane, and waits for events that are reached. */
static void advance(shadow_lanes *l)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < MR_LANE_COUNT; i++) {
            const shadow_item *item = l->head[i];
            if (!item || item->kind == SHADOW_RUN || item->kind == SHADOW_COPY ||
                (item->kind == SHADOW_WAIT && item->event->reached < item->number))
                continue;
            pop(l, i);
            again = true;
        }
    }
}

void shadow_lanes_add(shadow_lanes *l, mr_lane lane, shadow_item *item)
{
    clock_gettime(CLOCK_MONOTONIC, &item->due);
    item->due.tv_nsec += DELAY_MS * 1000000;
    if (item->due.tv_nsec >= 1000000000)
        item->due.tv_sec++, item->due.tv_nsec -= 1000000000;
    *l->tail[lane] = item, l->tail[lane] = &item->next;
    advance(l);
}

/* ---- choice ---- */

static int next_of(shadow_item *r, int q)
{
    while (r->at[q] < r->n && (int)r->steps[r->at[q]].queue != q)
        r->at[q]++;
    return r->at[q] < r->n ? r->at[q] : -1;
}

static bool ready(const shadow_item *r, int i)
{
    for (int k = 0; k < r->steps[i].wait_n; k++)
        if (!r->done[r->steps[i].wait[k]])
            return false;
    return true;
}

/* The next step of a run; -1 if no step can start. */
static int step_of(shadow_item *r, shadow_order *o)
{
    int can[MR_QUEUE_COUNT], n = 0;
    for (int k = 0; k < MR_QUEUE_COUNT; k++) {
        int i = next_of(r, o->queue[k]);
        if (i >= 0 && ready(r, i))
            can[n++] = i;
    }
    return n ? can[o->drawn ? draw(&o->steps, n) : 0] : -1;
}

static bool past(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

static bool sooner(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* The current order is that of the first run. */
static shadow_order *order_now(shadow_lanes *l)
{
    shadow_item *item = l->head[MR_LANE_RUN];
    while (item && item->kind != SHADOW_RUN)
        item = item->next;
    return item ? &item->order : &l->order;
}

shadow_turn shadow_lanes_next(shadow_lanes *l, bool demanded, shadow_task *task,
                              struct timespec *until)
{
    int can[MR_LANE_COUNT], n = 0;
    bool later = false;
    shadow_order *o = order_now(l);
    for (int k = 0; k < MR_LANE_COUNT; k++) {
        shadow_item *item = l->head[o->lane[k]];
        if (!item || item->kind == SHADOW_WAIT)
            continue;
        if (demanded || item->started || past(&item->due)) {
            can[n++] = o->lane[k];
            continue;
        }
        if (!later || sooner(&item->due, until))
            *until = item->due;
        later = true;
    }
    if (!n)
        return later ? SHADOW_LATER : shadow_lanes_empty(l) ? SHADOW_IDLE : SHADOW_STUCK;
    task->lane = (mr_lane)can[o->drawn && n > 1 ? draw(&o->lanes, n) : 0];
    task->item = l->head[task->lane], task->item->started = true;
    static const mr_queue thread_of[] = {
        [MR_LANE_RUN] = MR_Q_COMPUTE, [MR_LANE_IN] = MR_Q_H2D, [MR_LANE_OUT] = MR_Q_D2H};
    task->queue = thread_of[task->lane];
    if (task->item->kind == SHADOW_COPY)
        return SHADOW_NOW;
    task->step = step_of(task->item, o);
    if (task->step < 0)
        return SHADOW_STUCK;
    task->queue = task->item->steps[task->step].queue;
    return SHADOW_NOW;
}

void shadow_lanes_done(shadow_lanes *l, const shadow_task *task)
{
    shadow_item *item = task->item;
    if (item->kind == SHADOW_RUN) {
        item->done[task->step] = 1;
        item->at[task->queue] = task->step + 1;
        if (++item->n_done < item->n)
            return;
        l->order = item->order;
    }
    pop(l, task->lane);
    advance(l);
}
