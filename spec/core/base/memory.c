/* base/memory and hash: the fault switch, arenas with marks, mixing and streaming hashes.
 * Covers: core/base/hash.c */
#include "check.h"

int main(void)
{
    // the second allocation from now on fails, once
    mr_alloc_fail_at(2);
    void *a = mr_alloc(10), *b = mr_alloc(10), *c = mr_alloc(10);
    CHECK(a && !b && c);
    mr_free(a), mr_free(c);
    CHECK_FAILS(mr_fail_memory(12), MR_E_MEMORY, "cannot allocate 12 bytes; try: a smaller batch");
    CHECK_FAILS(mr_fail_memory(0), MR_E_MEMORY, "cannot allocate memory; try: a smaller batch");
    int64_t before = mr_alloc_count();
    mr_free(mr_strdup("x"));
    CHECK_INT(mr_alloc_count() - before, 1);

    mr_arena arena;
    mr_arena_init(&arena);
    char *first = mr_arena_strdup(&arena, "kept");
    mr_arena_mark mark = mr_arena_get_mark(&arena);
    for (int i = 0; i < 100; i++) {
        char *p = mr_arena_alloc(&arena, 5000);
        CHECK(p && ((uintptr_t)p & 15) == 0 && p[4999] == 0);
        memset(p, 1, 5000);
    }
    mr_arena_release(&arena, mark);
    CHECK_STR(first, "kept");
    char *again = mr_arena_alloc(&arena, 64);
    CHECK(again && again[0] == 0);
    mr_arena_fini(&arena);

    // mix is XXH3-64 of little-endian words, however the words are divided into calls
    uint64_t words[] = {1, 2, 3};
    CHECK(mr_mix(words, 3) == MR_MIX(1, 2, 3));
    CHECK(mr_mix(words, 3) == mr_hash64(words, sizeof words));
    CHECK(MR_MIX(1, 2) != MR_MIX(2, 1));
    char hex[33], hex2[33];
    mr_hash128_hex(mr_hash128_of("", 0), hex);
    CHECK_STR(hex, "99aa06d3014798d86001c324468d497f"); // published XXH3-128 of no bytes
    mr_hasher *h = mr_hasher_new();
    mr_hasher_add(h, "moon", 4);
    mr_hasher_add(h, "reel", 4);
    mr_hash128_hex(mr_hasher_digest(h), hex);
    mr_hash128_hex(mr_hash128_of("moonreel", 8), hex2);
    CHECK_STR(hex, hex2);
    mr_hasher_free(h);
    CHECK_NEAR(mr_fraction(0), 0, 0);
    CHECK(mr_fraction(~0ull) < 1);
    return check_done();
}
