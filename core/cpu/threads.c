/* threads: runs the chunks of a loop on a team of threads that waits between two loops.
 *
 * The caller starts with its own share of the chunks. Members join when they see the loop, and
 * steal chunks of other shares when their own share is done. The caller closes the loop when no
 * chunk remains, and waits only for members that are in it. A member that sleeps, or whose
 * processor does other work, delays no other. Loops of equal chunk counts have equal shares, so a
 * member finds in its cache what it wrote in the loop before.
 *
 * A member that waits for work spins, then yields its processor, then sleeps, because waking takes
 * longer than most loops. Licence: Apache-2.0 */
#define _GNU_SOURCE // syscall
#include "cpu/cpu.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 1000, PATIENCE_NS = 2000000 };

/* The gate has the number of members in the loop, whether the loop is open, and the number of the
 * loop. */
enum { INSIDE = 0xfff, OPEN = 0x1000, LOOP = 0x2000 };
_Static_assert(MR_MOST_THREADS - 1 <= INSIDE, "the gate counts members other than the caller");

/* Chunks next .. end. */
typedef struct share {
    _Alignas(MR_CACHE_LINE) _Atomic int64_t next;
    int64_t end;
} share;

static struct {
    _Alignas(MR_CACHE_LINE) atomic_uint gate;
    atomic_int asleep;
    _Alignas(MR_CACHE_LINE) atomic_flag taken; /* set by the thread that runs a loop */
    int size;                                  /* existing members; the first is the caller */
    atomic_int team; /* members that can join; members outside read it, too */
    int64_t n, grain;
    mr_cpu_body *body;
    void *user;
    share shares[MR_MOST_THREADS];
} pool = {.taken = ATOMIC_FLAG_INIT, .size = 1};

/* Run the chunks of the own share, then the remaining chunks of other shares. */
static void work(int me)
{
    const int team = pool.team;
    for (int i = 0; i < team; i++) {
        share *s = &pool.shares[(me + i) % team];
        while (atomic_load_explicit(&s->next, memory_order_relaxed) < s->end) {
            int64_t at = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (at >= s->end || mr_interrupt_get())
                break;
            pool.body(pool.user, at * pool.grain, MR_MIN(pool.n, (at + 1) * pool.grain), me);
        }
    }
}

static unsigned gate_now(void)
{
    return atomic_load_explicit(&pool.gate, memory_order_acquire);
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void relax(int round)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
    if (round >= SPINS)
        sched_yield();
}

/* Wait until the gate has another loop than `seen`; returns its value. */
static unsigned next_loop(unsigned seen)
{
    unsigned gate;
    int64_t end = 0;
    for (int i = 0; !end || now_ns() < end; i++) {
        if ((gate = gate_now()) / LOOP != seen / LOOP)
            return gate;
        if (i == SPINS)
            end = now_ns() + PATIENCE_NS;
        relax(i);
    }
    atomic_fetch_add(&pool.asleep, 1);
    while ((gate = atomic_load(&pool.gate)) / LOOP == seen / LOOP)
        syscall(SYS_futex, &pool.gate, FUTEX_WAIT_PRIVATE, gate, NULL, NULL, 0);
    atomic_fetch_sub(&pool.asleep, 1);
    return gate;
}

static void *stand_by(void *number)
{
    int me = (int)(intptr_t)number;
    for (unsigned gate = 0;;) {
        gate = next_loop(gate);
        // a member without a share stays out: if it is preempted inside, the caller waits for it
        if (me >= atomic_load_explicit(&pool.team, memory_order_relaxed))
            continue;
        while (gate & OPEN && !atomic_compare_exchange_weak(&pool.gate, &gate, gate + 1))
            ;
        if (!(gate & OPEN))
            continue;
        if (me < pool.team)
            work(me);
        atomic_fetch_sub_explicit(&pool.gate, 1, memory_order_release);
    }
    return NULL;
}

/* Start members for a team, fewer if the system has no more threads. They block all signals. */
static void grow(int team)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t id;
    if (pool.size >= team || pthread_attr_init(&attr))
        return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.size < team && !pthread_create(&id, &attr, stand_by, (void *)(intptr_t)pool.size))
        pool.size++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* Run a loop by the team, including the calling thread. */
static void together(int64_t chunks)
{
    const int team = pool.team;
    for (int i = 0; i < team; i++) {
        atomic_store_explicit(&pool.shares[i].next, chunks * i / team, memory_order_relaxed);
        pool.shares[i].end = chunks * (i + 1) / team;
    }
    atomic_store(&pool.gate, (gate_now() / LOOP + 1) * LOOP | OPEN);
    if (atomic_load(&pool.asleep))
        syscall(SYS_futex, &pool.gate, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    work(0);
    atomic_fetch_and(&pool.gate, ~OPEN);
    for (int i = 0; gate_now() & INSIDE; i += i < SPINS)
        relax(i);
}

void mr_cpu_for(int64_t n, int64_t grain, int threads, mr_cpu_body *body, void *user)
{
    int64_t chunks = (n + grain - 1) / grain;
    // a nested or concurrent loop runs on its calling thread alone
    if (chunks > 1 && threads > 1 && !atomic_flag_test_and_set(&pool.taken)) {
        pool.n = n, pool.grain = grain, pool.body = body, pool.user = user;
        pool.team = (int)MR_MIN((int64_t)threads, chunks);
        grow(pool.team);
        together(chunks);
        atomic_flag_clear(&pool.taken);
        return;
    }
    for (int64_t i = 0; i < chunks && !mr_interrupt_get(); i++)
        body(user, i * grain, MR_MIN(n, (i + 1) * grain), 0);
}
