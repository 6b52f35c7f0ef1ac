/* base: heap with a fault switch for tests, and arenas. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t count, fail_at;

static bool refuse(void)
{
    int64_t n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
    int64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (!at || n != at)
        return false;
    atomic_store(&fail_at, 0);
    return true;
}

void mr_alloc_fail_at(int64_t n)
{
    atomic_store(&fail_at, n > 0 ? atomic_load(&count) + n : 0);
}
int64_t mr_alloc_count(void)
{
    return atomic_load(&count);
}

void *mr_alloc(size_t bytes)
{
    return refuse() ? NULL : malloc(bytes ? bytes : 1);
}
void *mr_calloc(size_t n, size_t bytes)
{
    return refuse() ? NULL : calloc(n ? n : 1, bytes ? bytes : 1);
}
void *mr_realloc(void *p, size_t bytes)
{
    return refuse() ? NULL : realloc(p, bytes ? bytes : 1);
}
void mr_free(void *p)
{
    free(p);
}

char *mr_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mr_alloc(n);
    return copy ? memcpy(copy, s, n) : NULL;
}

struct mr_arena_block {
    struct mr_arena_block *below;
    size_t cap;
    _Alignas(16) unsigned char bytes[];
};

void mr_arena_init(mr_arena *arena)
{
    *arena = (mr_arena){0};
}

void mr_arena_fini(mr_arena *arena)
{
    mr_arena_release(arena, (mr_arena_mark){0});
}

void *mr_arena_alloc(mr_arena *arena, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (!arena->block || arena->used + bytes > arena->block->cap) {
        size_t cap = MR_MAX(bytes, (size_t)65536);
        struct mr_arena_block *b = mr_alloc(sizeof *b + cap);
        if (!b)
            return NULL;
        b->below = arena->block, b->cap = cap;
        arena->block = b, arena->used = 0;
    }
    void *p = arena->block->bytes + arena->used;
    arena->used += bytes;
    return memset(p, 0, bytes);
}

char *mr_arena_strdup(mr_arena *arena, const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mr_arena_alloc(arena, n);
    return copy ? memcpy(copy, s, n) : NULL;
}

mr_arena_mark mr_arena_get_mark(const mr_arena *arena)
{
    return (mr_arena_mark){arena->block, arena->used};
}

void mr_arena_release(mr_arena *arena, mr_arena_mark mark)
{
    while (arena->block != mark.block) {
        struct mr_arena_block *below = arena->block->below;
        mr_free(arena->block);
        arena->block = below;
    }
    arena->used = mark.used;
}
