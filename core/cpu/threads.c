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

/* The gate: how many members are in the loop, whether it is open, and which loop it is. */
enum { INSIDE = 0xfff, OPEN = 0x1000, LOOP = 0x2000 };
_Static_assert(MR_MOST_THREADS - 1 <= INSIDE, "members apart from the caller");

/* Chunks next .. end. */
typedef struct share {
    _Alignas(MR_CACHE_LINE) _Atomic int64_t next;
    int64_t end;
} share;

static struct {
    _Alignas(MR_CACHE_LINE) atomic_uint gate;
    atomic_int asleep;
    _Alignas(MR_CACHE_LINE) atomic_flag taken; /* by the thread whose loop it is */
    int size;                                  /* members there are, the first is the caller */
    atomic_int team; /* those that may join; one outside looks at it, too */
    int64_t n, grain;
    mr_cpu_body *body;
    void *user;
    share shares[MR_MOST_THREADS];
} pool = {.taken = ATOMIC_FLAG_INIT, .size = 1};

/* The own share, then what is left of the others'. */
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

/* What the gate says once it stands before another loop than `seen`. */
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
        // one that is put aside inside keeps the caller waiting, so who has no share stays out
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

/* Members for a team, fewer where the system gives no more threads. Signals go to others. */
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

/* The team's loop, with the calling thread in it. */
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
    // a loop within a loop, or concurrent with one, runs on its own thread alone
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
