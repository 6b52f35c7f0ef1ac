/* layout: chooses offsets for ranges with lifetimes (offline storage allocation, best fit).
 *
 * One routine places ranges in a given order: each takes the smallest hole that it fits among the
 * placed ranges of the same time, else the top. No order is best for all graphs, so several are
 * tried. The best one is then repaired: a range at the top moves to an earlier position in the
 * order. The work is limited in comparisons, not in seconds, so that the result is the same on
 * every machine.
 * Ref: Pisarchyk & Lee 2020, arXiv:2001.03288 (orders by size and breadth). Licence: Apache-2.0 */
#include "layout/room.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 200 * 1000 * 1000 }; /* comparisons; less than half a second */
/* most comparisons for repair; graphs are compiled often */
enum { REPAIR = 40 * 1000 * 1000, TRIES = 2000 };

enum { BLOCK = 64 }; /* placed ranges whose lifetimes are compared at a time */
enum { WORD = 8 };   /* results, one byte each, that are read at a time */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first answer is the lowest byte");

typedef struct slot {
    size_t lo, hi;
} slot;

typedef struct rank {
    double a, b;
    int index;
} rank; /* ascending a, then b, then index */

typedef struct placer {
    mr_layout_entry *entry;
    int n, times, low, bound_at; /* `low`: smallest time */
    int fixed;                   /* the first ranges of every order, whose offsets are fixed */
    size_t bound, best, above;   /* above: end of the highest fixed range */
    size_t *best_offset, *offset;
    slot *slots;             /* in a sweep: the holes, by offset */
    int *who, *first, *last; /* placed ranges by offset: index, first and last time; padded to
                              * blocks */
    bool in_turn;            /* the best was found by place(), */
    int *best_who, *turn;    /* which had these by offset, each in its turn */
    int *order, *best_order, *by_end;
    struct rank *rank;
    size_t *live; /* bytes live at each time */
    int64_t work;
    uint64_t random;
} placer;

static int whole_blocks(int n)
{
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

static size_t end_of(const placer *p, int i)
{
    return p->offset[i] + p->entry[i].bytes;
}

/* ---- one order ---- */

static void keep(placer *p, size_t peak, bool in_turn)
{
    p->best = peak, p->in_turn = in_turn;
    memcpy(p->best_offset, p->offset, (size_t)p->n * sizeof *p->offset);
    memcpy(p->best_order, p->order, (size_t)p->n * sizeof *p->order);
    if (in_turn)
        memcpy(p->best_who, p->who, (size_t)p->n * sizeof *p->who);
    for (int i = 0; i < p->n; i++)
        p->turn[p->best_order[i]] = i;
}

/* Set placed range `at` to range i; range -1 has no time. */
static void set(placer *p, int at, int i)
{
    p->who[at] = i;
    p->first[at] = i < 0 ? INT_MAX : p->entry[i].first;
    p->last[at] = i < 0 ? INT_MIN : p->entry[i].last;
}

static void insert(placer *p, int placed, int i)
{
    int lo = 0, hi = placed;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (p->offset[p->who[mid]] < p->offset[i])
            lo = mid + 1;
        else
            hi = mid;
    }
    size_t above = (size_t)(placed - lo) * sizeof *p->who;
    memmove(p->who + lo + 1, p->who + lo, above);
    memmove(p->first + lo + 1, p->first + lo, above);
    memmove(p->last + lo + 1, p->last + lo, above);
    set(p, lo, i);
}

/* Compare a block of placed ranges with a lifetime: byte 1 for each that overlaps. */
static void ask(const int *restrict first, const int *restrict last, int from, int to,
                unsigned char *restrict same)
{
    for (int k = 0; k < BLOCK; k++)
        same[k] = (first[k] <= to) & (last[k] >= from);
}

/* The smallest hole that fits e among the placed ranges of its time, or the offset above them. */
static size_t find(const placer *p, int placed, const mr_layout_entry *e)
{
    size_t cur = 0, at = SIZE_MAX, least = SIZE_MAX;
    for (int j = 0; j < placed; j += BLOCK) {
        uint64_t same[BLOCK / WORD];
        ask(p->first + j, p->last + j, e->first, e->last, (unsigned char *)same);
        for (int w = 0; w < BLOCK / WORD; w++) {
            for (uint64_t left = same[w]; left; left &= left - 1) {
                int i = p->who[j + w * WORD + __builtin_ctzll(left) / 8];
                size_t lo = p->offset[i];
                if (lo > cur && lo - cur >= e->bytes && lo - cur < least)
                    least = lo - cur, at = cur;
                if (least == e->bytes)
                    return at; // no hole is smaller
                cur = MR_MAX(cur, end_of(p, i));
            }
        }
    }
    return at == SIZE_MAX ? cur : at;
}

/* Take over the offsets of the first `count` ranges of p->order from the best order, where they are
 * the same. Counts the work as if they were placed again; returns their highest end. */
static size_t take_over(placer *p, int count)
{
    int placed = 0;
    size_t peak = 0;
    for (int j = 0; placed < count; j++) {
        int i = p->best_who[j];
        if (p->turn[i] >= count)
            continue;
        p->offset[i] = p->best_offset[i];
        peak = MR_MAX(peak, end_of(p, i));
        set(p, placed++, i);
    }
    for (int j = placed; j < whole_blocks(p->n); j++)
        set(p, j, -1);
    p->work += (int64_t)count * (count - 1) / 2 + 16 * (int64_t)count;
    return peak;
}

/* Place ranges in p->order, whose first `same` ranges are those of the best order. Stops if it is
 * worse than the best one, or the budget is used up. */
static void place(placer *p, int same)
{
    size_t peak = take_over(p, same);
    for (int placed = same; placed < p->n; placed++) {
        int i = p->order[placed];
        p->offset[i] = p->entry[i].fixed ? p->entry[i].offset : find(p, placed, &p->entry[i]);
        p->work += placed + 16;
        if (end_of(p, i) > p->best || p->work > BUDGET)
            return;
        peak = MR_MAX(peak, end_of(p, i));
        insert(p, placed, i);
    }
    keep(p, peak, true);
}

/* ---- sweep in the order of time ---- */

/* Give [lo, hi) back to the holes (in p->slots, by offset); a hole at the top lowers the top. */
static int give_back(placer *p, int holes, size_t lo, size_t hi, size_t *top)
{
    int a = 0, b = holes;
    while (a < b) {
        int mid = (a + b) / 2;
        if (p->slots[mid].lo < lo)
            a = mid + 1;
        else
            b = mid;
    }
    bool below = a > 0 && p->slots[a - 1].hi == lo, above = a < holes && p->slots[a].lo == hi;
    if (below)
        p->slots[a - 1].hi = above ? p->slots[a].hi : hi;
    else if (above)
        p->slots[a].lo = lo;
    if (below && above)
        memmove(p->slots + a, p->slots + a + 1, (size_t)(--holes - a) * sizeof *p->slots);
    if (!below && !above) {
        memmove(p->slots + a + 1, p->slots + a, (size_t)(holes++ - a) * sizeof *p->slots);
        p->slots[a] = (slot){.lo = lo, .hi = hi};
    }
    if (holes && p->slots[holes - 1].hi == *top)
        *top = p->slots[--holes].lo;
    return holes;
}

/* Place ranges as an allocator would, in p->order (by first node, or by last node backwards): each
 * takes the smallest hole that fits, and dead ranges are freed. All are above the fixed ones. Fast
 * for any size. */
static void sweep(placer *p, bool backward)
{
    int holes = 0, dead = p->fixed;
    size_t top = p->above, peak = p->above;
    for (int i = 0; i < p->fixed; i++)
        p->offset[p->order[i]] = p->entry[p->order[i]].offset;
    for (int i = p->fixed; i < p->n; i++) {
        const mr_layout_entry *e = &p->entry[p->order[i]];
        for (; dead < p->n; dead++) {
            int k = p->by_end[dead];
            if (backward ? p->entry[k].first <= e->last : p->entry[k].last >= e->first)
                break;
            holes = give_back(p, holes, p->offset[k], p->offset[k] + p->entry[k].bytes, &top);
        }
        int best = -1;
        for (int j = 0; j < holes; j++) {
            size_t room = p->slots[j].hi - p->slots[j].lo;
            if (room >= e->bytes && (best < 0 || room < p->slots[best].hi - p->slots[best].lo))
                best = j;
        }
        size_t at = best < 0 ? top : p->slots[best].lo;
        if (best < 0)
            top += e->bytes;
        else if ((p->slots[best].lo += e->bytes) == p->slots[best].hi)
            memmove(p->slots + best, p->slots + best + 1,
                    (size_t)(--holes - best) * sizeof *p->slots);
        p->offset[p->order[i]] = at;
        peak = MR_MAX(peak, at + e->bytes);
        p->work += holes + 16;
    }
    if (peak <= p->best)
        keep(p, peak, false);
}

/* ---- the orders ---- */

static int by_rank(const void *x, const void *y)
{
    const rank *a = x, *b = y;
    if (a->a != b->a)
        return a->a < b->a ? -1 : 1;
    if (a->b != b->b)
        return a->b < b->b ? -1 : 1;
    return a->index - b->index;
}

typedef enum order {
    FORWARD,
    BACKWARD,
    BY_SIZE,
    BY_AREA,
    BY_LENGTH,
    PEAK_SIZE,
    PEAK_LENGTH,
    PEAK_START,
    BREADTH,
    ORDERS,
    BY_FIRST,
    BY_LAST
} order;

static rank rank_of(const placer *p, int i, order how)
{
    const mr_layout_entry *e = &p->entry[i];
    double size = (double)e->bytes, length = (double)(e->last - e->first + 1);
    bool at_peak = e->first <= p->bound_at && p->bound_at <= e->last;
    size_t most = 0;
    if (e->fixed)
        return (rank){-INFINITY, 0, i};
    switch (how) {
    case FORWARD: return (rank){e->first, -size, i};
    case BACKWARD: return (rank){-(double)e->last, -size, i};
    // backwards: by last node
    case BY_FIRST: return (rank){-(double)e->first, 0, i};
    case BY_LAST: return (rank){e->last, 0, i};
    case BY_SIZE: return (rank){-size, -length, i};
    case BY_AREA: return (rank){-size * length, -size, i};
    case BY_LENGTH: return (rank){-length, -size, i};
    // ranges alive at the peak first, the longest at the bottom: their stack has no hole at the
    // peak
    case PEAK_SIZE: return at_peak ? (rank){-1e300, -length, i} : (rank){-size, -length, i};
    case PEAK_LENGTH: return at_peak ? (rank){-1e300, -length, i} : (rank){-length, -size, i};
    case PEAK_START:
        return at_peak ? (rank){-1e300, e->first, i} : (rank){-size * length, -size, i};
    default:
        // by the fullest moment; the scan is bounded, since long ranges surely have a full moment
        for (int t = e->first, n = 0; t <= e->last && n < 64; t++, n++)
            if (p->live[t - p->low] > most)
                most = p->live[t - p->low];
        return (rank){-(double)most, -size, i};
    }
}

static void sort_by(placer *p, order how, int *to)
{
    for (int i = 0; i < p->n; i++)
        p->rank[i] = rank_of(p, i, how);
    qsort(p->rank, (size_t)p->n, sizeof *p->rank, by_rank);
    for (int i = 0; i < p->n; i++)
        to[i] = p->rank[i].index;
}

static void try_order(placer *p, order how)
{
    sort_by(p, how, p->order);
    if (how == FORWARD || how == BACKWARD) {
        sort_by(p, how == FORWARD ? BY_LAST : BY_FIRST, p->by_end);
        sweep(p, how == BACKWARD);
    } else if (p->work + (int64_t)p->n * p->n / 4 < BUDGET) {
        place(p, 0);
    }
}

/* ---- repair ---- */

static uint32_t draw(placer *p, uint32_t below)
{
    p->random = p->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((p->random >> 33) % below);
}

/* Whether the plan is within 0.25 % of the bound, which ends the search. */
static bool good(const placer *p)
{
    return p->best <= p->bound + p->bound / 400;
}

/* Move the highest range, or one of the same time, to an earlier position in the order. An equal
 * peak is accepted, too: often it leads to a better one. */
static void repair(placer *p)
{
    int64_t until = MR_MIN(p->work + REPAIR, (int64_t)BUDGET);
    if ((int64_t)p->n * p->n / 4 > REPAIR)
        return;
    for (int t = 0; t < TRIES && p->work < until && !good(p); t++) {
        int top = 0;
        for (int i = 0; i < p->n; i++)
            if (p->best_offset[i] + p->entry[i].bytes == p->best)
                top = i;
        int pick = top;
        for (int k = 0; t % 2 && k < 32; k++) {
            int i = p->best_order[p->fixed + (int)draw(p, (uint32_t)(p->n - p->fixed))];
            if (p->entry[i].first > p->entry[top].last || p->entry[i].last < p->entry[top].first)
                continue;
            pick = i;
            break;
        }
        int from = p->turn[pick], movable = from - p->fixed,
            to = movable > 0 ? p->fixed + (int)draw(p, (uint32_t)movable) : from;
        memcpy(p->order, p->best_order, (size_t)p->n * sizeof *p->order);
        memmove(p->order + to + 1, p->order + to, (size_t)(from - to) * sizeof *p->order);
        p->order[to] = pick;
        p->work += 2 * p->n;
        place(p, p->in_turn ? to : 0);
    }
}

/* ---- all together ---- */

static void find_bound(placer *p)
{
    for (int i = 0; i < p->n; i++) {
        p->live[p->entry[i].first - p->low] += p->entry[i].bytes;
        p->live[p->entry[i].last - p->low + 1] -= p->entry[i].bytes;
    }
    size_t sum = 0;
    for (int t = 0; t < p->times; t++) {
        sum += p->live[t]; // differences can wrap around, but their sum is correct
        p->live[t] = sum;
        if (sum > p->bound)
            p->bound = sum, p->bound_at = t + p->low;
    }
    p->bound = MR_MAX(p->bound, p->above);
}

mr_status mr_layout_place(mr_layout_entry *entry, int n, size_t *peak, size_t *bound, int *bound_at)
{
    placer p = {.entry = entry, .n = n, .best = SIZE_MAX, .random = 1};
    int high = 0;
    for (int i = 0; i < n; i++) {
        entry[i].bytes = mr_granules(entry[i].bytes);
        if (entry[i].fixed)
            p.fixed++, p.above = MR_MAX(p.above, entry[i].offset + entry[i].bytes);
        if (i == 0 || entry[i].first < p.low)
            p.low = entry[i].first;
        if (i == 0 || entry[i].last > high)
            high = entry[i].last;
    }
    p.times = n ? high - p.low + 1 : 0, p.bound_at = p.low;
    size_t blocks = (size_t)whole_blocks(n);
    size_t need = (size_t)n * (2 * sizeof *p.offset + sizeof *p.slots + 5 * sizeof *p.order +
                               sizeof *p.rank) +
                  blocks * 3 * sizeof *p.who + (size_t)(p.times + 1) * sizeof *p.live;
    char *memory = mr_calloc(1, need);
    if (!memory)
        return mr_fail_memory(need);
    p.slots = (slot *)memory;
    p.rank = (rank *)(p.slots + n);
    p.offset = (size_t *)(p.rank + n);
    p.best_offset = p.offset + n;
    p.live = p.best_offset + n;
    p.order = (int *)(p.live + p.times + 1);
    p.best_order = p.order + n;
    p.by_end = p.best_order + n;
    p.best_who = p.by_end + n;
    p.turn = p.best_who + n;
    p.who = p.turn + n;
    p.first = p.who + blocks;
    p.last = p.first + blocks;

    find_bound(&p);
    // stacking all ranges always works; an order must be better
    p.best = p.above;
    for (int i = 0, fixed = 0, free = p.fixed; i < n; i++) {
        p.turn[i] = entry[i].fixed ? fixed++ : free++;
        p.best_order[p.turn[i]] = i;
        p.best_offset[i] = entry[i].fixed ? entry[i].offset : p.best;
        p.best += entry[i].fixed ? 0 : entry[i].bytes;
    }
    for (order how = FORWARD; how < ORDERS && !good(&p); how++)
        try_order(&p, how);
    if (n > p.fixed)
        repair(&p);

    for (int i = 0; i < n; i++)
        entry[i].offset = p.best_offset[i];
    *peak = p.best;
    if (bound)
        *bound = p.bound;
    if (bound_at)
        *bound_at = p.bound_at;
    mr_free(memory);
    return MR_OK;
}
