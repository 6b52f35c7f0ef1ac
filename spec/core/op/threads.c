/* op/threads: each chunk runs once, on any thread: teams of all sizes, members that sleep, come
 * late or were never created, more of them than processors, nested and concurrent loops, in a
 * child, interrupted.
 * Covers: core/cpu/threads.c */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { N = 1000, MOST = 40 };

static atomic_int granted = INT_MAX;          /* threads that the system still creates */
static atomic_bool slow;                      /* a thread that waits for others may come late */
static atomic_int woken, was_in[MOST], draws; /* members; of each: loops that it was in */

static int start(pthread_t *id, const pthread_attr_t *attr, void *(*body)(void *), void *user)
{
    return atomic_fetch_sub(&granted, 1) > 0 ? pthread_create(id, attr, body, user) : EAGAIN;
}

static int give_way(void)
{
    unsigned draw = (unsigned)atomic_fetch_add(&draws, 1) * 2654435761u >> 16;
    if (slow && draw % 4 == 0)
        return nanosleep(&(struct timespec){0, draw % 1000 * 100}, NULL);
    return sched_yield();
}

static int asked(long call, void *at, int what, unsigned value)
{
    int got = (int)syscall(call, at, what, value, NULL, NULL, 0);
    woken += what == FUTEX_WAIT_PRIVATE;
    return got;
}

static void leave(int me, atomic_uint *gate)
{
    was_in[me]++;
    atomic_fetch_sub(gate, 1);
}

/* The team's file, whose calls of the system and end of a loop the spec controls. */
#undef atomic_fetch_sub_explicit
#define pthread_create                            start
#define sched_yield                               give_way
#define syscall(call, at, what, value, ...)       asked(call, at, what, value)
#define atomic_fetch_sub_explicit(gate, one, ...) leave(me, gate)
#include "cpu/threads.c"
#undef pthread_create
#undef sched_yield
#undef syscall

#include "check.h"

#include <stdlib.h>
#include <sys/wait.h>

/* How often the spec checks for an event that comes at once if all is right. */
enum { PATIENCE = 3000 };
static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

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

/* Number of elements that were not visited `times` times, and other errors. */
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

/* As many chunks as members, one more, one less: each share has one, or some have none. */
static void few_chunks(void)
{
    static const int teams[] = {1, 2, 3, 7, 33};
    for (int t = 0; t < 5; t++)
        for (int chunks = MR_MAX(teams[t] - 1, 1); chunks <= teams[t] + 1; chunks++)
            for (int rest = 0; rest < 2; rest++) {
                seen *s = calloc(1, sizeof *s);
                const int64_t n = chunks * 5 - rest;
                s->grain = 5, s->threads = teams[t];
                for (int i = 0; i < 20; i++)
                    mr_cpu_for(n, 5, teams[t], chunk, s);
                CHECK_INT(wrong(s, n, 20), 0);
                free(s);
            }
}

/* Between loops: no time, less than a member waits, and long enough for it to sleep. */
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

static void count(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    atomic_fetch_add((atomic_int *)user, (int)(end - begin));
}

/* Members that sleep are woken: all are in the loop at the same time. */
typedef struct meeting {
    atomic_int here, met;
} meeting;

static void meet(void *user, int64_t begin, int64_t end, int worker)
{
    meeting *m = user;
    (void)begin, (void)end, (void)worker;
    atomic_fetch_add(&m->here, 1);
    for (int i = 0; i < PATIENCE && atomic_load(&m->here) < 3; i++)
        nap();
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

/* More loops than the gate can distinguish: waiting members see the next one nevertheless. */
static void many_loops(void)
{
    atomic_int ran = 0;
    const int loops = (int)(UINT_MAX / LOOP) + 10;
    for (int i = 0; i < loops; i++)
        mr_cpu_for(2, 1, 2, count, &ran);
    CHECK_INT(ran, 2 * loops);
    at_once();
}

/* Threads that cannot be created: all of them, then all but one; later they can be. */
static void short_of_threads(void)
{
    for (int given = 0; given < 2; given++) {
        seen *s = calloc(1, sizeof *s);
        s->grain = 3, s->threads = 4;
        granted = given;
        mr_cpu_for(N, 3, 4, chunk, s);
        mr_cpu_for(N, 3, 4, chunk, s);
        CHECK_INT(wrong(s, N, 2), 0);
        CHECK_INT(pool.size, 1 + given);
        free(s);
    }
    granted = INT_MAX;
    at_once();
    CHECK_INT(pool.size, 3);
}

/* Threads outside the team stay outside: one that is suspended there would keep the caller waiting.
 * Here all are woken by a loop of two, which is over when the others sleep again. */
static void until_asleep(int members)
{
    for (int i = 0; i < PATIENCE && atomic_load(&pool.asleep) < members; i++)
        nap();
}

static void hold(void *user, int64_t begin, int64_t end, int worker)
{
    const int *others = user;
    (void)begin, (void)end, (void)worker;
    for (int i = 0; i < PATIENCE && woken <= *others; i++)
        nap();
    until_asleep(*others);
}

static void outside(void)
{
    enum { TEAM = 2, ALL = 7 };
    int others = ALL - TEAM;
    atomic_int ran = 0;
    mr_cpu_for(ALL, 1, ALL, count, &ran);
    until_asleep(pool.size - 1);
    others = pool.size - TEAM;
    woken = 0;
    for (int i = 0; i < MOST; i++)
        was_in[i] = 0;
    mr_cpu_for(TEAM, 1, TEAM, hold, &others);
    CHECK(woken > others);
    for (int i = TEAM; i < MOST; i++)
        CHECK_INT(was_in[i], 0);
}

/* Signals are the caller's: members take none, and the caller as many as before. */
typedef struct signals {
    atomic_int members, open; /* chunks that members ran; signals that these took */
} signals;

static void look_at_signals(void *user, int64_t begin, int64_t end, int worker)
{
    signals *s = user;
    sigset_t now;
    (void)begin, (void)end;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    atomic_fetch_add(&s->members, worker > 0);
    for (int i = 1; worker && i < 32; i++)
        if (i != SIGKILL && i != SIGSTOP)
            atomic_fetch_add(&s->open, !sigismember(&now, i));
    for (int i = 0; i < PATIENCE && !atomic_load(&s->members); i++)
        nap();
}

static void signals_of_members(void)
{
    signals s = {0};
    sigset_t now;
    mr_cpu_for(2, 1, 2, look_at_signals, &s);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    CHECK(s.members > 0);
    CHECK_INT(s.open, 0);
    CHECK(!sigismember(&now, SIGINT) && !sigismember(&now, SIGTERM));
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
    for (int i = 0; i < PATIENCE && atomic_load(&l->here) < 2; i++)
        nap();
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

static void *second_loop(void *user)
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
        CHECK_INT(pthread_create(&id[i], NULL, second_loop, s[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(id[i], NULL);
        CHECK_INT(wrong(s[i], N, 500), 0);
        free(s[i]);
    }
}

/* A child has no members: it does the work alone, or with those that it makes for a larger team. */
static void child(int threads)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        seen *s = calloc(1, sizeof *s);
        s->grain = 3, s->threads = threads;
        mr_cpu_for(N, 3, threads, chunk, s);
        mr_cpu_for(N, 3, threads, chunk, s);
        _exit(wrong(s, N, 2) ? 1 : 0);
    }
    CHECK(pid > 0);
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
}

/* Created while the team is in a loop, by a concurrent thread and by one inside. */
typedef struct parents {
    atomic_int here, done;
} parents;

static void born(void *user, int64_t begin, int64_t end, int worker)
{
    parents *p = user;
    (void)end, (void)worker;
    atomic_store(&p->here, 1);
    if (begin == 0)
        child(3);
    while (!atomic_load(&p->done))
        sched_yield();
}

static void *beside_birth(void *user)
{
    mr_cpu_for(2, 1, 2, born, user);
    return NULL;
}

static void children(void)
{
    parents p = {0};
    pthread_t id;
    child(3);
    child(MOST - 1);
    CHECK_INT(pthread_create(&id, NULL, beside_birth, &p), 0);
    while (!atomic_load(&p.here))
        sched_yield();
    child(3);
    atomic_store(&p.done, 1);
    pthread_join(id, NULL);
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

/* Each member ends its current chunk and takes nothing more. */
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
    short_of_threads();
    outside();
    signals_of_members();
    // what follows would wait long for members that are missing
    if (check_failed)
        return check_done();
    for (int late = 0; late < 2; late++) {
        slow = late;
        teams();
        few_chunks();
        pauses();
        at_once();
        waited_for();
        nested();
        callers();
        stopped();
    }
    slow = false;
    children();
    many_loops();
    return check_done();
}
