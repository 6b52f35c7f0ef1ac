/* cuda/rt: the device that moonreel opens: memory, copies, runs, error reports.
 *
 * All work goes to streams: one per queue, where every run starts and ends on the first, and one
 * per copy lane. Only the first run allocates memory. No call waits for the whole device.
 * Licence: Apache-2.0 */
#include "room.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, LEAST_MAJOR = 8 };

// ---- failures ----

static mr_status report(rt *rt)
{
    mr_status st = rt_report_failure(rt);
    mr_error_free(rt->error);
    rt->failed = MR_OK, rt->error = NULL;
    rt->dev.lost += st != MR_OK;
    return st;
}

static mr_status read_copies(rt *rt, bool read)
{
    mr_status st = MR_OK;
    while (rt->copies) {
        timed *t = rt->copies;
        rt->copies = t->next;
        // if the copy could not be enqueued, the second event may be missing
        if (read && st == MR_OK && t->event[1])
            st = read_clock(rt, t->event[0], t->event[1], t->clock);
        for (int k = 0; k < 2; k++)
            if (t->event[k])
                mr_cuda.event_free(t->event[k]);
        mr_free(t);
    }
    return st;
}

// ---- waiting ----

/* Wait until every lane is empty. A failure is kept for the next report. */
static void settle(rt *rt)
{
    mr_status st = MR_OK;
    for (int i = 0; i < MR_LANE_COUNT; i++)
        if (rt->lane[i] && st == MR_OK)
            st = rt_wait(rt, rt->lane[i]);
    // after this, no work uses memory that the caller may free
    rt_failed(rt, st == MR_OK ? MR_OK : rt_run_out(rt, st));
    while (rt->waiting) {
        prepared *p = rt->waiting;
        rt->waiting = p->next, p->waits = false;
        if (st == MR_OK)
            rt_failed(rt, prepared_check(rt, p));
    }
    rt_failed(rt, read_copies(rt, st == MR_OK));
}

static void settle_for_ranks(void *user)
{
    settle(user);
}

/* Wait for all enqueued work and report the first failure since the last report. */
static mr_status drain(rt *rt)
{
    settle(rt);
    return report(rt);
}

// after a failure, report it before anything else is enqueued
#define BEFORE(r)                                                                                  \
    do {                                                                                           \
        if ((r)->failed != MR_OK)                                                                  \
            return drain(r);                                                                       \
    } while (0)

// ---- memory ----

static mr_status alloc(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out)
{
    rt *r = (rt *)dev;
    block *b;
    MR_TRY(drain(r));
    if (!MR_NEW(b))
        return mr_fail_memory(sizeof *b);
    mr_status st = MR_OK;
    if (bytes > SIZE_MAX - PAGE)
        st = mr_fail_memory(bytes);
    else
        st = cuda_fail(mr_cuda.alloc(bytes + PAGE, space == MR_SPACE_PINNED, &b->base), "memory");
    if (st != MR_OK) {
        mr_free(b);
        return st;
    }
    b->at = ((mr_dptr)b->base + PAGE - 1) / PAGE * PAGE;
    b->pinned = space == MR_SPACE_PINNED, b->bytes = bytes;
    st = cuda_fail(mr_cuda.fill((void *)b->at, 0, bytes, r->stream[0]), "clearing memory");
    if (st == MR_OK)
        st = drain(r);
    // the caller does not have the address yet
    if (st != MR_OK) {
        mr_cuda.release(b->base, b->pinned);
        mr_free(b);
        return st;
    }
    b->next = r->blocks, r->blocks = b;
    *out = b->at;
    return MR_OK;
}

static void release_memory(mr_device *dev, mr_dptr p, size_t bytes, mr_space space)
{
    rt *r = (rt *)dev;
    (void)bytes, (void)space;
    settle(r);
    for (block **at = &r->blocks; *at; at = &(*at)->next)
        if ((*at)->at == p) {
            block *b = *at;
            *at = b->next;
            mr_cuda.release(b->base, b->pinned);
            mr_free(b);
            return;
        }
}

static mr_status memory(mr_device *dev, size_t *free_bytes, size_t *total_bytes)
{
    (void)dev;
    return cuda_fail(mr_cuda.memory(free_bytes, total_bytes), "free memory");
}

static mr_status move(rt *r, void *to, const void *from, size_t bytes, const char *doing)
{
    MR_TRY(drain(r));
    CUDA_TRY(mr_cuda.copy(to, from, bytes, r->stream[0]), doing);
    return drain(r);
}

static mr_status copy_in(mr_device *dev, mr_dptr dst, const void *src, size_t bytes)
{
    return move((rt *)dev, (void *)dst, src, bytes, "a copy to the GPU");
}

static mr_status copy_out(mr_device *dev, void *dst, mr_dptr src, size_t bytes)
{
    return move((rt *)dev, dst, (const void *)src, bytes, "a copy from the GPU");
}

static mr_status fill(mr_device *dev, mr_dptr dst, int byte, size_t bytes)
{
    rt *r = (rt *)dev;
    MR_TRY(drain(r));
    CUDA_TRY(mr_cuda.fill((void *)dst, byte, bytes, r->stream[0]), "filling memory");
    return drain(r);
}

// ---- steps ----

static mr_status prepare(mr_device *dev, mr_step *steps, int n, void **prepared)
{
    return prepared_new((rt *)dev, steps, n, (struct prepared **)prepared);
}

static void moved(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    (void)dev, (void)steps, (void)n;
    prepared_moved(prepared);
}

static void forget(mr_device *dev, mr_step *steps, int n, void *prepared)
{
    (void)n;
    settle((rt *)dev);
    if (prepared)
        prepared_free(prepared, steps);
}

static mr_status run(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    rt *r = (rt *)dev;
    if (!n)
        return MR_OK;
    BEFORE(r);
    mr_status st = prepared_run(r, prepared, steps);
    if (st == MR_OK)
        return MR_OK;
    // work that is already enqueued ends first, on every stream; other ranks stop waiting for this
    // one
    rt_failed(r, st);
    mr_cuda_ranks_give_up(st);
    for (int q = 1; q < MR_QUEUE_COUNT; q++)
        rt_failed(r, rt_wait(r, r->stream[q]));
    return drain(r);
}

static mr_status sync(mr_device *dev)
{
    return drain((rt *)dev);
}

// ---- lanes ----

static void *host(mr_device *dev, mr_dptr p)
{
    for (const block *b = ((rt *)dev)->blocks; b; b = b->next)
        if (b->pinned && p >= b->at && p - b->at < b->bytes)
            return (void *)p;
    return NULL;
}

static mr_status new_timed(rt *r, mr_step_clock *clock, timed **out)
{
    timed *t;
    if (!MR_NEW(t))
        return mr_fail_memory(sizeof *t);
    t->clock = clock, t->next = r->copies, r->copies = t;
    for (int k = 0; k < 2; k++)
        CUDA_TRY(mr_cuda.event_new(true, &t->event[k]), "a clock");
    *out = t;
    return MR_OK;
}

static mr_status enqueue_copy(rt *r, mr_lane lane, const mr_copy *c)
{
    timed *t = NULL;
    if (c->clock)
        MR_TRY(new_timed(r, c->clock, &t));
    if (t)
        CUDA_TRY(mr_cuda.event_record(t->event[0], r->lane[lane]), "a clock");
    CUDA_TRY(mr_cuda.copy((void *)c->to, (const void *)c->from, c->bytes, r->lane[lane]), c->name);
    if (t)
        CUDA_TRY(mr_cuda.event_record(t->event[1], r->lane[lane]), "a clock");
    return MR_OK;
}

// report a failed enqueue at once, after the lanes are empty
static mr_status enqueued(rt *r, mr_status st)
{
    rt_failed(r, st);
    return st == MR_OK ? MR_OK : drain(r);
}

static mr_status copy(mr_device *dev, mr_lane lane, const mr_copy *c)
{
    rt *r = (rt *)dev;
    BEFORE(r);
    return c->bytes ? enqueued(r, enqueue_copy(r, lane, c)) : MR_OK;
}

// an event of the interface is an event of the driver
static mr_status event(mr_device *dev, mr_event **out)
{
    (void)dev;
    return cuda_fail(mr_cuda.event_new(false, (void **)out), "an event");
}

static void event_free(mr_device *dev, mr_event *event)
{
    (void)dev;
    if (event)
        mr_cuda.event_free(event);
}

static mr_status mark(mr_device *dev, mr_lane lane, mr_event *event)
{
    rt *r = (rt *)dev;
    BEFORE(r);
    return enqueued(r, cuda_fail(mr_cuda.event_record(event, r->lane[lane]), "an event"));
}

static mr_status wait(mr_device *dev, mr_lane lane, mr_event *event)
{
    rt *r = (rt *)dev;
    BEFORE(r);
    return enqueued(r, cuda_fail(mr_cuda.event_wait(event, r->lane[lane]), "a wait between lanes"));
}

static mr_status reached(mr_device *dev, mr_event *event, bool block, bool *out)
{
    rt *r = (rt *)dev;
    mr_status st = block ? rt_wait_event(r, event) : MR_OK;
    if (st == MR_OK)
        st = cuda_fail(mr_cuda.event_reached(event, false, out), "the GPU");
    rt_failed(r, st);
    BEFORE(r);
    return MR_OK;
}

// ---- opening ----

static void close_streams(rt *r)
{
    void *events[] = {r->begun, r->end, r->zero, r->later};
    for (size_t i = 0; i < MR_COUNT(events); i++)
        if (events[i])
            mr_cuda.event_free(events[i]);
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        if (r->stream[q])
            mr_cuda.stream_free(r->stream[q]);
    for (int i = MR_LANE_RUN + 1; i < MR_LANE_COUNT; i++)
        if (r->lane[i])
            mr_cuda.stream_free(r->lane[i]);
}

/* The driver sends calls to the GPU that a process used last. So a process may use only one GPU,
 * but may open it several times. */
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
static int taken, times_taken;

static mr_status take(int ordinal)
{
    pthread_mutex_lock(&taking);
    if (times_taken == 0)
        taken = ordinal;
    int other = taken;
    times_taken += other == ordinal;
    pthread_mutex_unlock(&taking);
    if (other == ordinal)
        return MR_OK;
    return mr_fail(MR_E_UNSUPPORTED,
                   "device=%s:%d: %s:%d is open in this process; try: one process per GPU, as "
                   "for ranks, or close the other GPU first",
                   mr_cuda.device, ordinal, mr_cuda.device, other);
}

static void give_back(void)
{
    pthread_mutex_lock(&taking);
    times_taken--;
    pthread_mutex_unlock(&taking);
}

static void close_device(mr_device *dev)
{
    rt *r = (rt *)dev;
    settle(r);
    report(r);
    mr_cuda_ranks_close(&r->speaker);
    close_streams(r);
    while (r->blocks) {
        block *b = r->blocks;
        r->blocks = b->next;
        mr_cuda.release(b->base, b->pinned);
        mr_free(b);
    }
    mr_free(r);
    give_back();
}

static const mr_device_ops ops = {
    .alloc = alloc,
    .free = release_memory,
    .host = host,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .prepare = prepare,
    .moved = moved,
    .forget = forget,
    .run = run,
    .sync = sync,
    .copy = copy,
    .event = event,
    .event_free = event_free,
    .mark = mark,
    .wait = wait,
    .reached = reached,
    .memory = memory,
    .close = close_device,
};

static mr_status fits(int ordinal, mr_cuda_facts *f)
{
    char doing[64];
    snprintf(doing, sizeof doing, "device=%s:%d", mr_cuda.device, ordinal);
    int error = mr_cuda.facts(ordinal, f);
    if (error == MR_CUDA_NO_DEVICE && f->driver == 0)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%s: no NVIDIA driver is installed; try: one for CUDA %d.%d or newer, or "
                       "device=cpu",
                       doing, f->need / 1000, f->need % 1000 / 10);
    if (error == MR_CUDA_OLD_DRIVER)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%s: the driver supports CUDA %d.%d, expected %d.%d or newer; try: a newer "
                       "driver, or device=cpu",
                       doing, f->driver / 1000, f->driver % 1000 / 10, f->need / 1000,
                       f->need % 1000 / 10);
    CUDA_TRY(error, doing);
    if (f->major < LEAST_MAJOR)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%s: %s has compute capability %d.%d, expected 8.0 or newer; try: another "
                       "GPU, or device=cpu",
                       doing, f->name, f->major, f->minor);
    return MR_OK;
}

// register the kernels of all ops, once per process
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
static mr_status join_rows(void)
{
    static bool done;
    mr_status st = MR_OK;
    pthread_mutex_lock(&joining);
    for (int i = 0; !done && st == MR_OK && i < mr_cuda_kernel_count(); i++)
        st = mr_op_add_kernel(mr_cuda.device, mr_cuda_kernel_at(i)->name,
                              &mr_cuda_kernel_at(i)->kernel);
    done |= st == MR_OK;
    pthread_mutex_unlock(&joining);
    return st;
}

static mr_status open_streams(rt *r)
{
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        CUDA_TRY(mr_cuda.stream_new(&r->stream[q]), "a stream");
    r->lane[MR_LANE_RUN] = r->stream[0];
    for (int i = MR_LANE_RUN + 1; i < MR_LANE_COUNT; i++)
        CUDA_TRY(mr_cuda.stream_new(&r->lane[i]), "a stream");
    CUDA_TRY(mr_cuda.event_new(false, &r->begun), "an event");
    CUDA_TRY(mr_cuda.event_new(false, &r->end), "an event");
    CUDA_TRY(mr_cuda.event_new(true, &r->zero), "a clock");
    CUDA_TRY(mr_cuda.event_new(true, &r->later), "a clock");
    CUDA_TRY(mr_cuda.event_record(r->zero, r->stream[0]), "a clock");
    CUDA_TRY(mr_cuda.stream_sync(r->stream[0]), "the GPU");
    r->zero_s = mr_now_s();
    return MR_OK;
}

// where the time of a step is known, every rate is
static void know_rates(mr_device *dev, double task_s)
{
    const double any = 1e18;
    for (size_t i = 0; i < MR_COUNT(dev->rates) && task_s > 0; i++) {
        dev->rates[i] = (mr_rates){.of = {{any, any}}, .step_s = task_s};
        dev->measured[i] = UINT32_MAX;
    }
}

static mr_status open_taken(int ordinal, mr_device **out)
{
    rt *r;
    mr_cuda_facts facts = {0};
    const char *each = getenv("MOONREEL_SYNC");
    MR_TRY(fits(ordinal, &facts));
    MR_TRY(join_rows());
    CUDA_TRY(mr_cuda.use(ordinal), "the GPU");
    if (!MR_NEW(r))
        return mr_fail_memory(sizeof *r);
    r->dev.ops = &ops, r->facts = facts;
    r->each = each && *each && strcmp(each, "0") != 0;
    r->dev.facts = (mr_facts){.threads = 1, .bf16 = true};
    snprintf(r->dev.facts.device, sizeof r->dev.facts.device, "%s", mr_cuda.device);
    snprintf(r->dev.bus, sizeof r->dev.bus, "%s", facts.bus);
    snprintf(r->dev.facts.isa, sizeof r->dev.facts.isa, "%d.%d", facts.major, facts.minor);
    know_rates(&r->dev, facts.task_s);
    mr_status st = open_streams(r);
    if (st == MR_OK) {
        r->speaker = (mr_cuda_speaker){.settle = settle_for_ranks, .user = r};
        mr_cuda_ranks_start(&r->speaker);
        *out = &r->dev;
        return MR_OK;
    }
    mr_error *first = mr_error_copy(mr_error_last());
    close_streams(r);
    mr_free(r);
    mr_error_adopt(first);
    mr_error_free(first);
    return st;
}

static mr_status open_device(int ordinal, int threads, mr_device **out)
{
    (void)threads;
    MR_TRY(take(ordinal));
    mr_status st = open_taken(ordinal, out);
    if (st != MR_OK)
        give_back();
    return st;
}

static const mr_device_plugin plugin = {MR_DEVICE_VERSION, open_device};

// base/plugin.c looks for this entry by the name of the shared object
MR_API const mr_device_plugin *mr_cuda_entry(void);
const mr_device_plugin *mr_cuda_entry(void)
{
    return &plugin;
}

MR_API const mr_device_plugin *mr_cudaemu_entry(void);
const mr_device_plugin *mr_cudaemu_entry(void)
{
    return &plugin;
}
