/* exec: the shadow device - CPU kernels with the asynchronous behaviour of an accelerator, for
 * tests.
 *
 * It has its own addresses, which fault on the host, and one thread per queue that runs as late as
 * the order allows. It poisons memory before each write, and reports reads of unwritten memory and
 * missing writes. One step runs at a time, of a queue that is not blocked. The choice differs from
 * run to run and is reproducible, so a missing wait, or memory that is reused too early, shows
 * within a few runs. Results equal those of the CPU device: same kernels, same team size.
 * Licence: Apache-2.0 */
#include "exec/shadow.h"

#include "cpu/cpu.h"

#include <pthread.h>
#include <string.h>

typedef struct shadow {
    mr_device dev;
    shadow_memory memory;
    shadow_lanes lanes;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* signalled on each change */
    pthread_t worker[MR_QUEUE_COUNT];
    int n_workers;
    shadow_task task; /* the chosen task, which runs or waits for its thread */
    bool chosen, running;
    uint64_t order; /* number of the order of the next run */
    bool demanded, quit;
    mr_event *awaited; /* work is due until this event is reached */
    mr_status failed;  /* the error of the first failed step that is not reported yet */
    mr_error *error;
} shadow;

typedef struct worker_arg {
    shadow *s;
    mr_queue queue;
} worker_arg;

void mr_shadow_order(mr_device *dev, uint64_t number)
{
    ((shadow *)dev)->order = number;
}

/* ---- threads ---- */

static void fail(shadow *s)
{
    if (s->failed == MR_OK)
        s->failed = mr_error_last()->code, s->error = mr_error_copy(mr_error_last());
    // work enqueued after a failure would read invalid data
    shadow_lanes_drop(&s->lanes);
}

/* Run the chosen task on its thread, without the lock. */
static void perform(shadow *s)
{
    shadow_item *item = s->task.item;
    s->running = true;
    pthread_mutex_unlock(&s->lock);
    mr_status st = item->kind == SHADOW_COPY ? shadow_copy(&s->memory, &item->copy, item->hash)
                                             : shadow_step(&s->memory, &item->steps[s->task.step]);
    pthread_mutex_lock(&s->lock);
    s->running = s->chosen = false;
    if (st != MR_OK)
        fail(s);
    else
        shadow_lanes_done(&s->lanes, &s->task);
    pthread_cond_broadcast(&s->turn);
}

/* Choose the next task, or wait for one. */
static void choose(shadow *s)
{
    struct timespec until = {0};
    bool demanded = s->demanded || (s->awaited && s->awaited->reached < s->awaited->marked);
    switch (shadow_lanes_next(&s->lanes, demanded, &s->task, &until)) {
    case SHADOW_NOW:
        s->chosen = true;
        pthread_cond_broadcast(&s->turn);
        break;
    case SHADOW_LATER: pthread_cond_timedwait(&s->turn, &s->lock, &until); break;
    case SHADOW_STUCK:
        mr_fail(MR_E_INTERNAL, "deadlock: the queues of a run wait for each other");
        fail(s);
        pthread_cond_broadcast(&s->turn);
        break;
    case SHADOW_IDLE: pthread_cond_wait(&s->turn, &s->lock); break;
    }
}

static void *work(void *user)
{
    worker_arg a = *(worker_arg *)user;
    shadow *s = a.s;
    mr_free(user);
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        if (s->running || (s->chosen && s->task.queue != a.queue))
            pthread_cond_wait(&s->turn, &s->lock);
        else if (s->chosen)
            perform(s);
        else
            choose(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the device ---- */

/* Wait until all work is done. */
static void settle(shadow *s)
{
    pthread_mutex_lock(&s->lock);
    s->demanded = true;
    pthread_cond_broadcast(&s->turn);
    while (!shadow_lanes_empty(&s->lanes) || s->running)
        pthread_cond_wait(&s->turn, &s->lock);
    s->demanded = false;
    pthread_mutex_unlock(&s->lock);
}

/* The same; then report a failure that is not reported yet. */
static mr_status drain(shadow *s)
{
    settle(s);
    mr_status st = s->failed;
    if (s->error)
        mr_error_adopt(s->error);
    else if (st != MR_OK)
        mr_fail(st, "a step failed, and there was no memory for its error report");
    mr_error_free(s->error);
    s->failed = MR_OK, s->error = NULL;
    s->dev.lost += st != MR_OK;
    return st;
}

static mr_status sync(mr_device *dev)
{
    return drain((shadow *)dev);
}

static mr_status alloc(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out)
{
    MR_TRY(drain((shadow *)dev));
    return shadow_alloc(&((shadow *)dev)->memory, bytes, space == MR_SPACE_PINNED, out);
}

static void release_memory(mr_device *dev, mr_dptr p, size_t bytes, mr_space space)
{
    (void)bytes, (void)space;
    settle((shadow *)dev);
    shadow_free(&((shadow *)dev)->memory, p);
}

static void *host(mr_device *dev, mr_dptr p)
{
    shadow_block *b = NULL;
    bool found = shadow_find(&((shadow *)dev)->memory, p, 0, "host", &b) == MR_OK && b->pinned;
    return found ? b->real + (p - b->at) : NULL;
}

static mr_status copy_in(mr_device *dev, mr_dptr dst, const void *src, size_t bytes)
{
    shadow *s = (shadow *)dev;
    shadow_block *b = NULL;
    MR_TRY(drain(s));
    MR_TRY(shadow_find(&s->memory, dst, bytes, "copy in", &b));
    memcpy(b->real + (dst - b->at), src, bytes);
    shadow_mark(b, dst, bytes);
    return MR_OK;
}

static mr_status copy_out(mr_device *dev, void *dst, mr_dptr src, size_t bytes)
{
    shadow *s = (shadow *)dev;
    shadow_block *b = NULL;
    MR_TRY(drain(s));
    MR_TRY(shadow_find(&s->memory, src, bytes, "copy out", &b));
    memcpy(dst, b->real + (src - b->at), bytes);
    return MR_OK;
}

static mr_status fill(mr_device *dev, mr_dptr dst, int byte, size_t bytes)
{
    shadow *s = (shadow *)dev;
    shadow_block *b = NULL;
    MR_TRY(drain(s));
    MR_TRY(shadow_find(&s->memory, dst, bytes, "fill", &b));
    shadow_poison(b, dst, bytes, byte);
    return MR_OK;
}

static mr_status prepare(mr_device *dev, mr_step *steps, int n, void **prepared)
{
    (void)prepared;
    return mr_steps_prepare(steps, n, &dev->facts);
}

static void forget(mr_device *dev, mr_step *steps, int n, void *prepared)
{
    (void)prepared;
    settle((shadow *)dev);
    mr_steps_forget(steps, n);
}

/* Allocate an item for a run of n steps, or for another kind of work. */
static mr_status new_item(shadow_kind kind, int n, shadow_item **out)
{
    shadow_item *item = mr_calloc(1, sizeof *item + (size_t)n);
    if (!item)
        return mr_fail_memory(sizeof *item + (size_t)n);
    item->kind = kind, item->n = n;
    *out = item;
    return MR_OK;
}

/* Enqueue the item; takes ownership. */
static mr_status enqueue(shadow *s, mr_lane lane, shadow_item *item)
{
    pthread_mutex_lock(&s->lock);
    bool failed = s->failed != MR_OK;
    if (!failed) {
        if (item->kind == SHADOW_MARK)
            item->number = ++item->event->marked;
        shadow_lanes_add(&s->lanes, lane, item);
        pthread_cond_broadcast(&s->turn);
    }
    pthread_mutex_unlock(&s->lock);
    if (!failed)
        return MR_OK;
    mr_free(item);
    return drain(s);
}

static mr_status run(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    (void)prepared;
    shadow *s = (shadow *)dev;
    shadow_item *item = NULL;
    if (!n)
        return MR_OK;
    MR_TRY(new_item(SHADOW_RUN, n, &item));
    item->steps = steps, item->order = shadow_order_of(s->order++);
    return enqueue(s, MR_LANE_RUN, item);
}

static mr_status copy(mr_device *dev, mr_lane lane, const mr_copy *c)
{
    shadow *s = (shadow *)dev;
    shadow_item *item = NULL;
    uint64_t hash = 0;
    if (!c->bytes)
        return MR_OK;
    MR_TRY(shadow_copy_begin(&s->memory, c, &hash));
    MR_TRY(new_item(SHADOW_COPY, 0, &item));
    item->copy = *c, item->hash = hash;
    return enqueue(s, lane, item);
}

static mr_status event(mr_device *dev, mr_event **out)
{
    (void)dev;
    *out = mr_calloc(1, sizeof **out);
    return *out ? MR_OK : mr_fail_memory(sizeof **out);
}

static void event_free(mr_device *dev, mr_event *event)
{
    (void)dev;
    mr_free(event);
}

static mr_status mark(mr_device *dev, mr_lane lane, mr_event *event)
{
    shadow_item *item = NULL;
    MR_TRY(new_item(SHADOW_MARK, 0, &item));
    item->event = event;
    return enqueue((shadow *)dev, lane, item);
}

static mr_status wait(mr_device *dev, mr_lane lane, mr_event *event)
{
    shadow_item *item = NULL;
    MR_TRY(new_item(SHADOW_WAIT, 0, &item));
    item->event = event, item->number = event->marked;
    return enqueue((shadow *)dev, lane, item);
}

static mr_status reached(mr_device *dev, mr_event *event, bool block, bool *out)
{
    shadow *s = (shadow *)dev;
    pthread_mutex_lock(&s->lock);
    s->awaited = block ? event : NULL;
    pthread_cond_broadcast(&s->turn);
    while (block && event->reached < event->marked)
        pthread_cond_wait(&s->turn, &s->lock);
    s->awaited = NULL;
    *out = event->reached == event->marked;
    bool failed = s->failed != MR_OK;
    pthread_mutex_unlock(&s->lock);
    return failed ? drain(s) : MR_OK;
}

static void guard(mr_device *dev, mr_dptr p, mr_guard guard)
{
    shadow *s = (shadow *)dev;
    shadow_block *b = NULL;
    settle(s);
    if (shadow_find(&s->memory, p, 0, "guard", &b) == MR_OK)
        b->guard = guard;
}

static void close_device(mr_device *dev)
{
    shadow *s = (shadow *)dev;
    settle(s);
    mr_error_free(s->error);
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->turn);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->n_workers; i++)
        pthread_join(s->worker[i], NULL);
    pthread_cond_destroy(&s->turn);
    pthread_mutex_destroy(&s->lock);
    shadow_fini(&s->memory);
    mr_free(s);
}

static const mr_device_ops ops = {
    .alloc = alloc,
    .free = release_memory,
    .host = host,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .prepare = prepare,
    .forget = forget,
    .run = run,
    .sync = sync,
    .copy = copy,
    .event = event,
    .event_free = event_free,
    .mark = mark,
    .wait = wait,
    .reached = reached,
    .memory = mr_host_memory,
    .guard = guard,
    .close = close_device,
};

mr_status mr_shadow_open(int threads, mr_device **out)
{
    shadow *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->dev = (mr_device){
        .ops = &ops, .facts = mr_cpu_facts("shadow", mr_isa(), threads), .checks = true};
    shadow_lanes_init(&s->lanes);
    s->lanes.order = shadow_order_of(0);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->turn, &attr);
    pthread_condattr_destroy(&attr);
    for (int q = 0; q < MR_QUEUE_COUNT; q++) {
        worker_arg *a = mr_alloc(sizeof *a);
        if (a)
            *a = (worker_arg){s, (mr_queue)q};
        if (!a || pthread_create(&s->worker[q], NULL, work, a) != 0) {
            mr_free(a);
            close_device(&s->dev);
            return mr_fail(MR_E_MEMORY, "cannot start a thread for the shadow device");
        }
        s->n_workers++;
    }
    *out = &s->dev;
    return MR_OK;
}
