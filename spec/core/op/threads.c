/* op/threads: every chunk once, whoever takes it: teams of all sizes, members asleep, more of them
 * than processors, loops in loops and beside each other, in a child, cut short.
 * Covers: core/cpu/threads.c */
#include "check.h"
#include "cpu/cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { N = 1000, MOST = 40 };

typedef struct seen {
    int64_t grain;
    int threads;
    atomic_int visits[N];
    atomic_int busy[MOST]; /* of each worker: chunks that it is in */
    atomic_int bad, chunks;
} seen;

static void chunk(void *user, int64_t begin, int64_t end, int worker)
{
    seen *s = user;
    if (worker < 0 || worker >= s->threads || atomic_fetch_add(&s->busy[worker], 1) ||
        begin % s->grain || end > N || end - begin > s->grain)
        s->bad++;
    for (int64_t i = begin; i < end; i++)
        s->visits[i]++;
    s->chunks++;
    atomic_fetch_sub(&s->busy[worker], 1);
}

/* Elements that were not visited `times` times, and whatever else was wrong. */
static int wrong(const seen *s, int64_t n, int times)
{
    int bad = s->bad;
    for (int64_t i = 0; i < N; i++)
        bad += s->visits[i] != (i < n ? times : 0);
    return bad;
}

static void teams(void)
{
    for (int threads = 1; threads <= MOST; threads += threads < 5 ? 1 : 7)
        for (int64_t grain = 1; grain < 2 * N; grain *= 3) {
            seen *s = calloc(1, sizeof *s);
            s->grain = grain, s->threads = threads;
            mr_cpu_for(0, grain, threads, chunk, s);
            mr_cpu_for(N - 1, grain, threads, chunk, s);
            mr_cpu_for(N - 1, grain, threads, chunk, s);
            CHECK_INT(wrong(s, N - 1, 2), 0);
            free(s);
        }
}

/* Between loops: nothing, less than what a member waits, and long enough for it to sleep. */
static void pauses(void)
{
    static const long ns[] = {0, 200000, 6000000};
    for (int p = 0; p < 3; p++) {
        seen *s = calloc(1, sizeof *s);
        const int loops = p == 0 ? 20000 : 40;
        s->grain = 1, s->threads = 4;
        for (int i = 0; i < loops; i++) {
            mr_cpu_for(2 + i % 9, 1, 4, chunk, s);
            if (ns[p])
                nanosleep(&(struct timespec){0, ns[p]}, NULL);
        }
        int all = 0;
        for (int i = 0; i < loops; i++)
            all += 2 + i % 9;
        CHECK_INT(s->chunks, all);
        CHECK_INT(s->bad, 0);
        free(s);
    }
}

/* Members that sleep are woken: all are in the loop at once. */
typedef struct meeting {
    atomic_int here, met;
} meeting;

static void meet(void *user, int64_t begin, int64_t end, int worker)
{
    meeting *m = user;
    (void)begin, (void)end, (void)worker;
    atomic_fetch_add(&m->here, 1);
    for (int i = 0; i < 1000000 && atomic_load(&m->here) < 3; i++)
        sched_yield();
    if (atomic_load(&m->here) == 3)
        atomic_fetch_add(&m->met, 1);
}

static void at_once(void)
{
    for (int i = 0; i < 3; i++) {
        meeting m = {0};
        mr_cpu_for(3, 1, 3, meet, &m);
        CHECK_INT(m.met, 3);
        nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
}

/* The caller is done first and waits for the member that is in the loop. */
typedef struct late {
    atomic_int here, done;
} late;

static void linger(void *user, int64_t begin, int64_t end, int worker)
{
    late *l = user;
    (void)begin, (void)end;
    atomic_fetch_add(&l->here, 1);
    for (int i = 0; i < 1000000 && atomic_load(&l->here) < 2; i++)
        sched_yield();
    if (worker)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    atomic_fetch_add(&l->done, 1);
}

static void waited_for(void)
{
    for (int i = 0; i < 5; i++) {
        late l = {0};
        mr_cpu_for(2, 1, 2, linger, &l);
        CHECK_INT(l.done, 2);
    }
}

typedef struct nest {
    seen inner[8];
    atomic_int others; /* chunks of an inner loop that another thread ran */
} nest;

typedef struct inside {
    nest *n;
    seen *s;
    pthread_t caller;
} inside;

static void inner(void *user, int64_t begin, int64_t end, int worker)
{
    inside *in = user;
    if (!pthread_equal(in->caller, pthread_self()) || worker != 0)
        in->n->others++;
    chunk(in->s, begin, end, worker);
}

static void outer(void *user, int64_t begin, int64_t end, int worker)
{
    nest *n = user;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        mr_cpu_for(N, 7, 3, inner, &(inside){n, &n->inner[i], pthread_self()});
}

static void nested(void)
{
    nest *n = calloc(1, sizeof *n);
    for (int i = 0; i < 8; i++)
        n->inner[i].grain = 7, n->inner[i].threads = 3;
    mr_cpu_for(8, 1, 3, outer, n);
    for (int i = 0; i < 8; i++)
        CHECK_INT(wrong(&n->inner[i], N, 1), 0);
    CHECK_INT(n->others, 0);
    free(n);
}

static void *beside(void *user)
{
    seen *s = user;
    for (int i = 0; i < 500; i++)
        mr_cpu_for(N, 50, 3, chunk, s);
    return NULL;
}

static void callers(void)
{
    seen *s[3];
    pthread_t id[3];
    for (int i = 0; i < 3; i++) {
        s[i] = calloc(1, sizeof *s[i]);
        s[i]->grain = 50, s[i]->threads = 3;
        CHECK_INT(pthread_create(&id[i], NULL, beside, s[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(id[i], NULL);
        CHECK_INT(wrong(s[i], N, 500), 0);
        free(s[i]);
    }
}

/* A child has no members, and asks for none: it does the work alone. */
static void child(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        seen *s = calloc(1, sizeof *s);
        s->grain = 3, s->threads = 3;
        mr_cpu_for(N, 3, 3, chunk, s);
        _exit(wrong(s, N, 1) ? 1 : 0);
    }
    CHECK(pid > 0);
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
}

static void stop(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    atomic_fetch_add((atomic_int *)user, (int)(end - begin));
    if (begin == 0)
        mr_interrupt_set(true);
    while (!mr_interrupt_get())
        sched_yield();
}

/* Each member ends what it is in and takes nothing more. */
static void stopped(void)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        atomic_int ran = 0;
        mr_cpu_for(N, 1, threads, stop, &ran);
        CHECK(mr_interrupt_get());
        mr_interrupt_set(false);
        CHECK(ran >= 1 && ran <= threads);
    }
}

int main(void)
{
    teams();
    pauses();
    at_once();
    waited_for();
    nested();
    callers();
    child();
    stopped();
    return check_done();
}
