/* data/pool: memory of slabs is complete and resident, for any pages and NUMA nodes of the machine.
 * Covers: core/data/pool.c */
#define _GNU_SOURCE
#include "check.h"
#include "data/room.h"

#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, BYTES = 9 * MIB + 4096 };

// how many of its 4 KiB pages are in memory
static size_t resident(const slab_pool *p)
{
    static unsigned char pages[BYTES / 4096 + 1];
    size_t n = 0;
    CHECK_INT(mincore(p->at, p->bytes, pages), 0);
    for (size_t i = 0; i < p->bytes / 4096; i++)
        n += pages[i] & 1;
    return n;
}

static bool zero(const slab_pool *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->bytes; i++)
        n += p->at[i];
    return n == 0;
}

static void touched(void)
{
    // an unknown NUMA node is no reason to fail
    static const int32_t nodes[] = {-1, 0, 900, 5000};
    for (size_t i = 0; i < MR_COUNT(nodes); i++) {
        slab_pool p;
        if (!CHECK_OK(pool_open(&p, BYTES, nodes[i], true)))
            return;
        CHECK_INT((uintptr_t)p.at % (2 * MIB), 0);
        CHECK_INT(resident(&p), BYTES / 4096);
        CHECK(zero(&p));
        p.at[0] = p.at[BYTES - 1] = 1;
        pool_close(&p);
        CHECK(!p.at);
    }
}

static void untouched(void)
{
    slab_pool p;
    if (!CHECK_OK(pool_open(&p, BYTES, -1, false)))
        return;
    CHECK_INT(resident(&p), 0);
    CHECK(p.seconds == 0);
    pool_close(&p);
    CHECK_FAILS(pool_open(&p, SIZE_MAX / 4, -1, false), MR_E_MEMORY, "");
    pool_close(&p);
    CHECK_FAILS(pool_open(&p, SIZE_MAX, -1, false), MR_E_MEMORY, "");
    pool_close(&p);
}

static int64_t slow_clock(void)
{
    static atomic_int_fast64_t now;
    return now += 200000000;
}

// when large pages are slow to find, the rest is small, and all of it resident
static void late(void)
{
    slab_pool p;
    mr_clock clock = *mr_clock_table();
    clock.monotonic_ns = slow_clock;
    mr_clock_replace(&clock);
    mr_status st = pool_open(&p, BYTES, -1, true);
    mr_clock_replace(NULL);
    if (!CHECK_OK(st))
        return;
    // the deadline is over at the first check
    CHECK_INT(p.small, BYTES);
    CHECK(p.seconds > 0.1);
    CHECK_INT(resident(&p), BYTES / 4096);
    CHECK(zero(&p));
    pool_close(&p);
}

int main(void)
{
    touched();
    untouched();
    late();
    return check_done();
}
