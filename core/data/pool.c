/* data: the memory that batches are decoded into: one block for the whole run. It asks for pages of
 * 2 MiB: a first touch takes a third of the time, and device reads need fewer TLB look-ups. Several
 * threads touch the pages, on the NUMA node of the device. When the kernel has to compact memory to
 * find large pages, they are slower than small ones, so the rest of the block uses small pages.
 * Ref: dataplane 6. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "data/room.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { HUGE_PAGE = 2 << 20, SMALL_PAGE = 4096, TOUCHERS = 8, PREFERRED = 1 };

// twice the time of one thread with small pages; and a time within which a slow page does not count
static const double grace_s = 0.1, most_s_per_byte = 2 * 0.34 / (1 << 30);

typedef struct toucher {
    slab_pool *pool;
    atomic_size_t next; // the first piece that is not begun
    atomic_bool late;
    int64_t began_ns;
} toucher;

// The memory so far took too long: use small pages for all pieces that are not begun. Logged once.
static void give_up_huge(toucher *t, size_t from)
{
    bool before = false;
    double took_s = (double)(mr_clock_table()->monotonic_ns() - t->began_ns) * 1e-9;
    if (took_s < grace_s + most_s_per_byte * (double)from ||
        !atomic_compare_exchange_strong(&t->late, &before, true))
        return;
    slab_pool *p = t->pool;
    p->small = p->bytes - from;
    madvise(p->at + from, p->small, MADV_NOHUGEPAGE);
}

static void *touch(void *user)
{
    toucher *t = user;
    slab_pool *p = t->pool;
    for (;;) {
        size_t at = atomic_fetch_add(&t->next, 1) * HUGE_PAGE;
        if (at >= p->bytes)
            return NULL;
        give_up_huge(t, at);
        size_t n = MR_MIN(HUGE_PAGE, p->bytes - at);
        // kernels before 5.14 lack this call: touch the memory page by page
        if (madvise(p->at + at, n, MADV_POPULATE_WRITE))
            for (size_t i = at; i < at + n; i += SMALL_PAGE)
                ((volatile uint8_t *)p->at)[i] = 0;
    }
}

static void touch_all(slab_pool *p)
{
    toucher t = {.pool = p, .began_ns = mr_clock_table()->monotonic_ns()};
    pthread_t threads[TOUCHERS];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0;
    while (n < MR_MIN(processors, TOUCHERS) - 1 && !pthread_create(&threads[n], NULL, touch, &t))
        n++;
    touch(&t);
    while (n)
        pthread_join(threads[--n], NULL);
    p->seconds = (double)(mr_clock_table()->monotonic_ns() - t.began_ns) * 1e-9;
}

// Prefer pages of a NUMA node as long as it has free ones. This calls the kernel directly, without
// libnuma. If the call is not permitted, pages can come from any node.
static void prefer(const slab_pool *p, int32_t node)
{
#ifdef SYS_mbind
    unsigned long nodes[16] = {0};
    enum { WORD = 8 * sizeof nodes[0] };
    if (node < 0 || (size_t)node >= MR_COUNT(nodes) * WORD)
        return;
    nodes[(size_t)node / WORD] = 1ul << (size_t)node % WORD;
    syscall(SYS_mbind, p->at, p->bytes, PREFERRED, nodes, sizeof nodes * 8, 0u);
#else
    (void)p, (void)node;
#endif
}

mr_status pool_open(slab_pool *p, size_t bytes, int32_t node, bool touched)
{
    *p = (slab_pool){.bytes = bytes};
    if (bytes > SIZE_MAX - HUGE_PAGE)
        return mr_fail_memory(bytes);
    // aligned to a large page
    p->mapped = bytes + HUGE_PAGE;
    p->base = mmap(NULL, p->mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p->base == MAP_FAILED) {
        p->base = NULL;
        return mr_fail_memory(bytes);
    }
    p->at = (uint8_t *)p->base + (HUGE_PAGE - (uintptr_t)p->base % HUGE_PAGE) % HUGE_PAGE;
    prefer(p, node);
    madvise(p->at, bytes, MADV_HUGEPAGE);
    if (touched)
        touch_all(p);
    return MR_OK;
}

void pool_close(slab_pool *p)
{
    if (p->base)
        munmap(p->base, p->mapped);
    *p = (slab_pool){0};
}
