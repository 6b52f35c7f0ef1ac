/* layout/place: compared with brute force on small random sets; bound and time on large ones. */
#include "check.h"
#include "moonreel/layout.h"
#include <stdlib.h>

static uint64_t state;
static int draw(int below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

/* All offsets so far in one number. */
static uint64_t offsets = 1;
static void note_offsets(const mr_layout_entry *e, int n)
{
    for (int i = 0; i < n; i++)
        offsets = MR_MIX(offsets, e[i].offset);
}

static bool live_together(const mr_layout_entry *a, const mr_layout_entry *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static int overlaps(const mr_layout_entry *e, int n)
{
    int bad = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            bad += live_together(&e[i], &e[j]) && e[i].offset < e[j].offset + e[j].bytes &&
                   e[j].offset < e[i].offset + e[i].bytes;
    return bad;
}

/* The least peak over all orders of placing each range at its lowest fitting offset: an optimal
 * placement pushed down is one of these. */
static size_t brute(mr_layout_entry *e, int n, int placed, unsigned used, size_t peak, size_t best)
{
    if (peak >= best)
        return best;
    if (placed == n)
        return peak;
    for (int i = 0; i < n; i++) {
        if (used >> i & 1)
            continue;
        // lowest fitting offset among candidates 0 and ends of contemporaries
        size_t at = SIZE_MAX;
        for (int c = -1; c < n; c++) {
            if (c >= 0 && (!(used >> c & 1) || !live_together(&e[i], &e[c])))
                continue;
            size_t lo = c < 0 ? 0 : e[c].offset + e[c].bytes;
            bool fits = true;
            for (int j = 0; j < n && fits; j++)
                fits = !(used >> j & 1) || !live_together(&e[i], &e[j]) ||
                       lo >= e[j].offset + e[j].bytes || lo + e[i].bytes <= e[j].offset;
            if (fits && lo < at)
                at = lo;
        }
        e[i].offset = at;
        best = brute(e, n, placed + 1, used | 1u << i, MR_MAX(peak, at + e[i].bytes), best);
    }
    return best;
}

static void small_sets(uint64_t seed)
{
    state = seed;
    int optimal = 0, total = 60;
    for (int round = 0; round < total; round++) {
        mr_layout_entry e[7], copy[7];
        int n = 2 + draw(6);
        for (int i = 0; i < n; i++) {
            int first = draw(10), last = first + draw(6), granules = 1 + draw(9);
            e[i] = (mr_layout_entry){.first = first, .last = last, .bytes = (size_t)granules * 64};
        }
        memcpy(copy, e, sizeof e);
        size_t peak, bound;
        int at;
        CHECK_OK(mr_layout_place(e, n, &peak, &bound, &at));
        CHECK_INT(overlaps(e, n), 0);
        note_offsets(e, n);
        size_t top = 0, sum = 0;
        for (int i = 0; i < n; i++) {
            top = MR_MAX(top, e[i].offset + e[i].bytes);
            if (e[i].first <= at && at <= e[i].last)
                sum += e[i].bytes;
            CHECK_INT(e[i].offset % 64, 0);
        }
        CHECK_INT(top, peak);
        CHECK_INT(sum, bound);
        CHECK(bound <= peak);
        size_t least = brute(copy, n, 0, 0, 0, SIZE_MAX);
        optimal += peak == least;
        if (peak > least + least / 20)
            printf("round %d of seed %llu: peak %zu, least %zu\n", round, (unsigned long long)seed,
                   peak, least);
        CHECK(peak <= least + least / 20);
    }
    printf("%d of %d small sets optimal\n", optimal, total);
    CHECK(optimal >= total - 2);
}

/* The outline of a training step: `layers` times `ops` forward nodes, some outputs kept until the
 * mirrored backward node, short temporaries around both. */
static int training(mr_layout_entry *e, int layers, int ops, int keep_one_in)
{
    int nodes = 2 * layers * ops, n = 0;
    for (int i = 0; i < nodes; i++) {
        size_t bytes = (size_t)(1 + draw(16)) * 65536;
        bytes += (size_t)draw(100) * 64;
        bool kept = i < nodes / 2 && draw(keep_one_in) == 0;
        int last = kept ? nodes - 1 - i : i + 1 + draw(5);
        e[n++] = (mr_layout_entry){.first = i, .last = MR_MIN(last, nodes - 1), .bytes = bytes};
        if (draw(3) == 0)
            e[n++] =
                (mr_layout_entry){.storage = -1, .first = i, .last = i, .bytes = bytes / 2 + 1};
    }
    return n;
}

static void large(int layers, int ops, int keep_one_in, double above)
{
    mr_layout_entry *e = mr_calloc((size_t)layers * ops * 4, sizeof *e), *again;
    int n = training(e, layers, ops, keep_one_in);
    again = mr_alloc((size_t)n * sizeof *e);
    memcpy(again, e, (size_t)n * sizeof *e);
    size_t peak, bound, peak2;
    double t = mr_now_s();
    CHECK_OK(mr_layout_place(e, n, &peak, &bound, NULL));
    t = mr_now_s() - t;
    printf("%d nodes, %d ranges: %.2f %% above the bound, %.3f s\n", 2 * layers * ops, n,
           100.0 * ((double)peak / (double)bound - 1), t);
    CHECK((double)peak <= above * (double)bound);
    note_offsets(e, n);
    // a thousand of them against all others
    int bad = 0;
    for (int k = 0; k < 1000; k++) {
        const mr_layout_entry *a = &e[draw(n)];
        for (const mr_layout_entry *b = e; b < e + n; b++)
            bad += a != b && live_together(a, b) && a->offset < b->offset + b->bytes &&
                   b->offset < a->offset + a->bytes;
    }
    CHECK_INT(bad, 0);
    if (n < 12000) {
        CHECK_INT(overlaps(e, n), 0);
        CHECK_OK(mr_layout_place(again, n, &peak2, NULL, NULL));
        CHECK(memcmp(e, again, (size_t)n * sizeof *e) == 0);
    }
    mr_free(e);
    mr_free(again);
}

/* Any lifetimes of n ranges: for some sets the best placement is far above the bound, and takes
 * long to improve. */
static void crowded(int n)
{
    static mr_layout_entry e[640];
    size_t peak;
    int times = 1 + draw(40);
    for (int i = 0; i < n; i++) {
        int first = draw(times), last = first + draw(1 + draw(times));
        int granules = 1 + draw(draw(2) ? 5 : 4000);
        e[i] = (mr_layout_entry){.first = first, .last = last, .bytes = (size_t)granules * 64};
    }
    CHECK_OK(mr_layout_place(e, n, &peak, NULL, NULL));
    CHECK_INT(overlaps(e, n), 0);
    note_offsets(e, n);
}

/* Fixed entries stay in place; others use the room above and around them, also when there are too
 * many for more than a sweep. */
static void fixed(int n, double above)
{
    enum { FIXED = 32 };
    mr_layout_entry *e = mr_calloc((size_t)n + FIXED, sizeof *e);
    state = 11;
    size_t each = (size_t)n * 8 / 64 * 64, region = FIXED * each, peak, bound;
    for (int i = 0; i < n; i++) {
        int first = i % 1000;
        e[i] = (mr_layout_entry){
            .first = first, .last = 1999 - first, .bytes = (size_t)(1 + draw(20)) * 64};
    }
    // like gradients: made while the values that they need are freed
    for (int i = 0; i < FIXED; i++)
        e[n + i] = (mr_layout_entry){.first = 1000 + i * 30,
                                     .last = 1999,
                                     .bytes = each,
                                     .offset = (size_t)(FIXED - 1 - i) * each,
                                     .fixed = true};
    CHECK_OK(mr_layout_place(e, n + FIXED, &peak, &bound, NULL));
    size_t top = 0;
    for (int i = 0; i < n + FIXED; i++) {
        top = MR_MAX(top, e[i].offset + e[i].bytes);
        CHECK(i < n || e[i].offset == (size_t)(n + FIXED - 1 - i) * each);
    }
    CHECK_INT(top, peak);
    CHECK_INT(overlaps(e, n + FIXED), 0);
    CHECK(bound >= region);
    printf("%d ranges around %d fixed ones: %.2f %% above the bound\n", n, FIXED,
           100.0 * ((double)peak / (double)bound - 1));
    CHECK((double)peak <= above * (double)bound);
    // alone they end where the last one ends
    CHECK_OK(mr_layout_place(e + n, FIXED, &peak, &bound, NULL));
    CHECK(peak == region && bound == region);
    mr_free(e);
}

int main(void)
{
    small_sets(1);
    small_sets(20240615);
    state = 7;
    // a little above what is reached; the first order alone is at 0.5, 2.1 and 2.1 %
    large(20, 10, 3, 1.002);
    large(56, 40, 4, 1.002);
    large(500, 50, 4, 1.025); // 50,000 nodes
    for (int i = 0; i < 300; i++)
        crowded(1 + draw(60));
    // enough of them that the search reaches its limit
    for (int i = 0; i < 4; i++)
        crowded(640);
    // ranges that are not moved again are already in place: this number comes from a routine that
    // compares each range with all others
    CHECK_INT(offsets, 5607138806911108910);
    // a set whose first order is the best of all, although the search runs
    state = 7044;
    crowded(1 + draw(30));
    size_t peak = 1;
    CHECK_OK(mr_layout_place(NULL, 0, &peak, NULL, NULL));
    CHECK_INT(peak, 0);
    fixed(2000, 1.05);
    fixed(40000, 2);
    mr_layout_entry one = {.bytes = 1};
    mr_alloc_fail_at(1);
    CHECK_FAILS(mr_layout_place(&one, 1, &peak, NULL, NULL), MR_E_MEMORY, "cannot allocate");
    return check_done();
}
