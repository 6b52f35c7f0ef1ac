/* exec: the memory of the shadow device, with its own addresses, guard pages, and a written bit per
 * byte.
 *
 * Each allocation reserves  guard | real bytes | guard | device addresses.  Only the real bytes can
 * be touched; the program sees device addresses, which fault. Licence: Apache-2.0 */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#endif
#include "exec/shadow.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, CANARY = 0xa5 };

static void drop(shadow_block *b)
{
    if (!b)
        return;
    if (b->base)
        munmap(b->base, b->mapped);
    mr_free(b->written);
    mr_free(b);
}

static mr_status make(size_t bytes, shadow_block **out)
{
    shadow_block *b;
    if (!MR_NEW(b))
        return mr_fail_memory(sizeof *b);
    b->bytes = bytes, b->room = (bytes + PAGE - 1) / PAGE * PAGE,
    b->mapped = 2 * b->room + 3 * PAGE;
    b->written = mr_alloc(b->room / 8);
    void *base = b->written ? mmap(NULL, b->mapped, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                            : MAP_FAILED;
    if (base != MAP_FAILED)
        b->base = base, b->real = (unsigned char *)base + PAGE;
    if (base == MAP_FAILED || mprotect(b->real, b->room, PROT_READ | PROT_WRITE) != 0) {
        drop(b);
        return mr_fail_memory(bytes);
    }
    b->at = (mr_dptr)(b->real + b->room + PAGE);
    memset(b->written, 0xff, b->room / 8); // zeroed memory counts as written
    memset(b->real + bytes, CANARY, b->room - bytes);
    *out = b;
    return MR_OK;
}

mr_status shadow_alloc(shadow_memory *m, size_t bytes, bool pinned, mr_dptr *out)
{
    if (m->n == m->cap) {
        int cap = m->cap ? m->cap * 2 : 32;
        shadow_block **more = mr_realloc(m->block, (size_t)cap * sizeof *more);
        if (!more)
            return mr_fail_memory((size_t)cap * sizeof *more);
        m->block = more, m->cap = cap;
    }
    shadow_block *b = NULL;
    MR_TRY(make(bytes, &b));
    b->pinned = pinned;
    int i = m->n++;
    for (; i > 0 && m->block[i - 1]->at > b->at; i--)
        m->block[i] = m->block[i - 1];
    m->block[i] = b;
    *out = b->at;
    return MR_OK;
}

void shadow_free(shadow_memory *m, mr_dptr at)
{
    for (int i = 0; i < m->n; i++) {
        if (m->block[i]->at != at)
            continue;
        drop(m->block[i]);
        memmove(m->block + i, m->block + i + 1, (size_t)(--m->n - i) * sizeof *m->block);
        return;
    }
}

void shadow_fini(shadow_memory *m)
{
    for (int i = 0; i < m->n; i++)
        drop(m->block[i]);
    mr_free(m->block);
}

mr_status shadow_find(const shadow_memory *m, mr_dptr at, size_t bytes, const char *who,
                      shadow_block **out)
{
    int lo = 0, hi = m->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (m->block[mid]->at <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    shadow_block *b = lo ? m->block[lo - 1] : NULL;
    if (!b || at - b->at > b->bytes || bytes > b->bytes - (at - b->at))
        return mr_fail(MR_E_INTERNAL, "%s: %zu bytes at %#zx lie in no allocation of the device",
                       who, bytes, (size_t)at);
    *out = b;
    return MR_OK;
}

static void set_bits(uint64_t *bits, size_t at, size_t n, bool on)
{
    for (; n && (at % 64 || n < 64); at++, n--) {
        if (on)
            bits[at / 64] |= (uint64_t)1 << at % 64;
        else
            bits[at / 64] &= ~((uint64_t)1 << at % 64);
    }
    memset(bits + at / 64, on ? 0xff : 0, n / 64 * 8);
    for (at += n / 64 * 64, n %= 64; n; at++, n--) {
        if (on)
            bits[at / 64] |= (uint64_t)1 << at % 64;
        else
            bits[at / 64] &= ~((uint64_t)1 << at % 64);
    }
}

void shadow_mark(shadow_block *b, mr_dptr at, size_t bytes)
{
    set_bits(b->written, at - b->at, bytes, true);
}

void shadow_poison(shadow_block *b, mr_dptr at, size_t bytes, int byte)
{
    memset(b->real + (at - b->at), byte, bytes);
    set_bits(b->written, at - b->at, bytes, false);
}

size_t shadow_unwritten(const shadow_block *b, mr_dptr from, size_t bytes)
{
    for (size_t at = from - b->at, end = at + bytes; at < end;) {
        if (at % 64 == 0 && end - at >= 64 && b->written[at / 64] == UINT64_MAX)
            at += 64;
        else if (!(b->written[at / 64] >> at % 64 & 1))
            return at - (from - b->at);
        else
            at++;
    }
    return bytes;
}

bool shadow_intact(const shadow_block *b)
{
    for (size_t i = b->bytes; i < b->room; i++)
        if (b->real[i] != CANARY)
            return false;
    return true;
}
