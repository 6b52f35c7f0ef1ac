/* exec: the shadow device - the CPU's kernels behind the manners of an accelerator, for tests.
 *
 * Addresses of its own that fault on the host, one thread per queue that runs as late as it may,
 * poison before each write, reports of unwritten reads and writes. At any moment one step runs, of
 * a queue that can go on; which one differs from run to run, so that a missing wait and a range
 * reused too early show within a few runs, at the same ones every time. Numbers are the CPU
 * device's: same kernels, same team size. Licence: Apache-2.0 */
#include "exec/shadow.h"

#include "cpu/cpu.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { DELAY_MS = 20 }; /* work nobody asks for starts this late */

/* The order of the queues in a run. Number 0: the highest that can go on, 1: the lowest; other odd
 * numbers draw an order for the run, so that a queue may lie idle as long as it can; even ones draw
 * a queue at each step. */
typedef struct order {
    int queue[MR_QUEUE_COUNT]; /* the first that can go on is taken */
    bool drawn;                /* or any that can */
    uint64_t random;
} order;

typedef struct batch {
    struct batch *next;
    const mr_step *steps;
    int n, n_done, at[MR_QUEUE_COUNT]; /* next step of each queue */
    bool started;
    order order;
    int picked; /* the step to run now, -1: to be chosen */
    struct timespec due;
    unsigned char done[];
} batch;

typedef struct shadow {
    mr_device dev;
    shadow_memory memory;
    pthread_mutex_t lock;
    pthread_cond_t turn; /* something changed: look again */
    pthread_t worker[MR_QUEUE_COUNT];
    int n_workers;
    batch *head, **tail;
    uint64_t order; /* number of the next run's */
    bool demanded, running, quit;
    mr_status failed; /* of the first step that failed and was not reported yet */
    mr_error *story;
} shadow;

typedef struct worker_arg {
    shadow *s;
    int queue;
} worker_arg;

/* ---- the order of queues ---- */

static int draw(order *o, int below)
{
    o->random = o->random * 6364136223846793005u + 1442695040888963407u;
    return (int)((o->random >> 33) % (uint64_t)below);
}

static order order_of(uint64_t number)
{
    order o = {.drawn = number > 1 && number % 2 == 0, .random = number};
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        o.queue[q] = number == 1 ? q : MR_QUEUE_COUNT - 1 - q;
    for (int q = MR_QUEUE_COUNT - 1; q > 0 && number > 1; q--) {
        int other = draw(&o, q + 1), queue = o.queue[q];
        o.queue[q] = o.queue[other], o.queue[other] = queue;
    }
    return o;
}

void mr_shadow_order(mr_device *dev, uint64_t number)
{
    ((shadow *)dev)->order = number;
}

/* ---- choosing the next step: all with the lock held ---- */

static int next_of(batch *b, int q)
{
    while (b->at[q] < b->n && (int)b->steps[b->at[q]].queue != q)
        b->at[q]++;
    return b->at[q] < b->n ? b->at[q] : -1;
}

static bool ready(const batch *b, int i)
{
    for (int k = 0; k < b->steps[i].wait_n; k++)
        if (!b->done[b->steps[i].wait[k]])
            return false;
    return true;
}

/* The step to run now, -1 when none can. */
static int pick(batch *b)
{
    int can[MR_QUEUE_COUNT], n = 0;
    for (int k = 0; k < MR_QUEUE_COUNT; k++) {
        int i = next_of(b, b->order.queue[k]);
        if (i >= 0 && ready(b, i))
            can[n++] = i;
    }
    return n ? can[b->order.drawn ? draw(&b->order, n) : 0] : -1;
}

static void finish(shadow *s)
{
    batch *b = s->head;
    s->head = b->next;
    if (!s->head)
        s->tail = &s->head, s->demanded = false;
    // a run that was cut short left users that never came
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->steps[i].n_spans; k++)
            b->steps[i].spans[k]->seen = 0;
    mr_free(b);
    pthread_cond_broadcast(&s->turn);
}

static void fail(shadow *s)
{
    if (s->failed == MR_OK)
        s->failed = mr_error_last()->code, s->story = mr_error_copy(mr_error_last());
    // what was enqueued behind a failed run would compute on its ruins
    while (s->head)
        finish(s);
}

static void step_done(shadow *s, int i, mr_status st)
{
    batch *b = s->head;
    b->done[i] = 1, b->picked = -1;
    b->at[b->steps[i].queue] = i + 1;
    s->running = false;
    if (st != MR_OK)
        fail(s);
    else if (++b->n_done == b->n)
        finish(s);
    pthread_cond_broadcast(&s->turn);
}

static bool past(const struct timespec *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > t->tv_sec || (now.tv_sec == t->tv_sec && now.tv_nsec >= t->tv_nsec);
}

static void *work(void *user)
{
    worker_arg a = *(worker_arg *)user;
    shadow *s = a.s;
    mr_free(user);
    mr_team(s->dev.facts.threads);
    pthread_mutex_lock(&s->lock);
    while (!s->quit) {
        batch *b = s->head;
        if (!b || s->running) {
            pthread_cond_wait(&s->turn, &s->lock);
            continue;
        }
        if (!b->started && !s->demanded && !past(&b->due)) {
            pthread_cond_timedwait(&s->turn, &s->lock, &b->due);
            continue;
        }
        b->started = true;
        if (b->picked < 0)
            b->picked = pick(b);
        int i = b->picked;
        if (i < 0) {
            mr_fail(MR_E_INTERNAL, "the queues of a run wait for each other");
            fail(s);
        } else if ((int)b->steps[i].queue != a.queue) {
            pthread_cond_broadcast(&s->turn);
            pthread_cond_wait(&s->turn, &s->lock);
        } else {
            s->running = true;
            pthread_mutex_unlock(&s->lock);
            mr_status st = shadow_step(&s->memory, &b->steps[i]);
            pthread_mutex_lock(&s->lock);
            step_done(s, i, st);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the device ---- */

/* Wait until nothing is left. */
static void settle(shadow *s)
{
    pthread_mutex_lock(&s->lock);
    s->demanded = s->head != NULL;
    pthread_cond_broadcast(&s->turn);
    while (s->head || s->running)
        pthread_cond_wait(&s->turn, &s->lock);
    s->demanded = false;
    pthread_mutex_unlock(&s->lock);
}

/* The same, and report a failure that nobody heard of. */
static mr_status drain(shadow *s)
{
    settle(s);
    mr_status st = s->failed;
    if (s->story)
        mr_error_adopt(s->story);
    else if (st != MR_OK)
        mr_fail(st, "a step failed, and memory for its story was short");
    mr_error_free(s->story);
    s->failed = MR_OK, s->story = NULL;
    return st;
}

static mr_status sync(mr_device *dev)
{
    return drain((shadow *)dev);
}

static mr_status alloc(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out)
{
    (void)space;
    MR_TRY(drain((shadow *)dev));
    return shadow_alloc(&((shadow *)dev)->memory, bytes, out);
}

static void release_memory(mr_device *dev, mr_dptr p, size_t bytes, mr_space space)
{
    (void)bytes, (void)space;
    settle((shadow *)dev);
    shadow_free(&((shadow *)dev)->memory, p);
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

static mr_status run(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    (void)prepared;
    shadow *s = (shadow *)dev;
    if (!n)
        return MR_OK;
    batch *b = mr_calloc(1, sizeof *b + (size_t)n);
    if (!b)
        return mr_fail_memory(sizeof *b + (size_t)n);
    b->steps = steps, b->n = n, b->picked = -1, b->order = order_of(s->order++);
    clock_gettime(CLOCK_MONOTONIC, &b->due);
    b->due.tv_nsec += DELAY_MS * 1000000;
    if (b->due.tv_nsec >= 1000000000)
        b->due.tv_sec++, b->due.tv_nsec -= 1000000000;
    pthread_mutex_lock(&s->lock);
    bool failed = s->failed != MR_OK;
    if (!failed) {
        *s->tail = b, s->tail = &b->next;
        pthread_cond_broadcast(&s->turn);
    }
    pthread_mutex_unlock(&s->lock);
    if (!failed)
        return MR_OK;
    mr_free(b);
    return drain(s);
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
    mr_error_free(s->story);
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
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .prepare = prepare,
    .forget = forget,
    .run = run,
    .sync = sync,
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
    s->tail = &s->head;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->turn, &attr);
    pthread_condattr_destroy(&attr);
    for (int q = 0; q < MR_QUEUE_COUNT; q++) {
        worker_arg *a = mr_alloc(sizeof *a);
        if (a)
            *a = (worker_arg){s, q};
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
