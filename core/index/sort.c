/* index: external sort of records by their bytes. Runs are sorted in memory, written to disk and
 * merged. Input that fits in one run stays in memory. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/bytes.h"
#include "index/sort.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

size_t index_run_bytes = (size_t)64 << 20;

// the position of a record in memory, and its first bytes as a number
typedef struct item {
    uint64_t first;
    uint32_t at, n;
} item;

// a run on disk, at its smallest remaining record
typedef struct merged {
    index_spill_reader reader;
    const uint8_t *record;
    size_t n;
} merged;

struct index_sorter {
    index_spill *spill;
    index_pack bytes; // records of the run in memory
    item *items;
    uint64_t n, cap, next;
    uint64_t *ends; // for each run on disk: the number of blocks up to its end
    uint64_t n_runs, runs_cap;
    merged *heap; // heap of runs, the smallest record on top
    uint64_t n_heap;
    bool lent; // the caller has the record on top
};

mr_status index_sorter_new(const char *near, index_sorter **out)
{
    index_sorter *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    mr_status st = index_spill_new(near, &s->spill);
    if (st == MR_OK)
        *out = s;
    else
        mr_free(s);
    return st;
}

void index_sorter_free(index_sorter *s)
{
    if (!s)
        return;
    for (uint64_t i = 0; s->heap && i < s->n_runs; i++)
        index_spill_reader_fini(&s->heap[i].reader);
    index_spill_free(s->spill);
    mr_free(s->bytes.bytes);
    mr_free(s->items);
    mr_free(s->ends);
    mr_free(s->heap);
    mr_free(s);
}

static int compare(const uint8_t *a, size_t n, const uint8_t *b, size_t m)
{
    int c = memcmp(a, b, MR_MIN(n, m));
    return c ? c : (n > m) - (n < m);
}

static int compare_items(const void *a, const void *b, void *bytes)
{
    const item *x = a, *y = b;
    const uint8_t *from = bytes;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return compare(from + x->at, x->n, from + y->at, y->n);
}

static void sort_run(index_sorter *s)
{
    if (s->n)
        qsort_r(s->items, s->n, sizeof *s->items, compare_items, s->bytes.bytes);
}

static mr_status put_run_aside(index_sorter *s)
{
    uint64_t place;
    if (s->n_runs == s->runs_cap) {
        uint64_t cap = MR_MAX(s->runs_cap * 2, 16), *more = mr_realloc(s->ends, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->ends = more, s->runs_cap = cap;
    }
    sort_run(s);
    for (uint64_t i = 0; i < s->n; i++)
        MR_TRY(index_spill_put(s->spill, s->bytes.bytes + s->items[i].at, s->items[i].n, &place));
    MR_TRY(index_spill_cut(s->spill, &s->ends[s->n_runs]));
    s->n_runs++;
    s->n = s->bytes.n = 0;
    return MR_OK;
}

mr_status index_sorter_add(index_sorter *s, const void *record, size_t n)
{
    if (s->n && s->bytes.n + n + (s->n + 1) * sizeof *s->items > index_run_bytes)
        MR_TRY(put_run_aside(s));
    if (s->n == s->cap) {
        uint64_t cap = MR_MAX(s->cap * 2, 1024);
        item *more = mr_realloc(s->items, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->items = more, s->cap = cap;
    }
    uint64_t first = 0;
    memcpy(&first, record, MR_MIN(n, sizeof first));
    s->items[s->n++] = (item){be64toh(first), (uint32_t)s->bytes.n, (uint32_t)n};
    index_put(&s->bytes, record, n);
    return s->bytes.failed ? mr_fail_memory(s->bytes.cap * 2) : MR_OK;
}

static bool is_before(const merged *a, const merged *b)
{
    return compare(a->record, a->n, b->record, b->n) < 0;
}

static void sift_down(index_sorter *s, uint64_t at)
{
    for (;;) {
        uint64_t least = at;
        for (uint64_t child = 2 * at + 1; child <= 2 * at + 2 && child < s->n_heap; child++)
            if (is_before(&s->heap[child], &s->heap[least]))
                least = child;
        if (least == at)
            return;
        merged m = s->heap[at];
        s->heap[at] = s->heap[least], s->heap[least] = m;
        at = least;
    }
}

mr_status index_sorter_sort(index_sorter *s)
{
    uint64_t place;
    if (!s->n_runs) {
        sort_run(s);
        return MR_OK;
    }
    // write the last run to disk too, and free its memory for the readers
    if (s->n)
        MR_TRY(put_run_aside(s));
    mr_free(s->bytes.bytes);
    mr_free(s->items);
    s->bytes = (index_pack){0}, s->items = NULL, s->cap = 0;
    if (!(s->heap = mr_calloc(s->n_runs, sizeof *s->heap)))
        return mr_fail_memory(s->n_runs * sizeof *s->heap);
    for (s->n_heap = 0; s->n_heap < s->n_runs; s->n_heap++) {
        merged *m = &s->heap[s->n_heap];
        m->reader =
            index_spill_read(s->spill, s->n_heap ? s->ends[s->n_heap - 1] : 0, s->ends[s->n_heap]);
        MR_TRY(index_spill_next(&m->reader, &m->record, &m->n, &place));
    }
    for (uint64_t i = s->n_heap / 2; i-- > 0;)
        sift_down(s, i);
    return MR_OK;
}

// moves past the record on top that the caller had
static mr_status advance(index_sorter *s)
{
    uint64_t place;
    merged *top = s->heap;
    MR_TRY(index_spill_next(&top->reader, &top->record, &top->n, &place));
    if (!top->record) {
        // finished runs stay after the heap until they are freed
        merged m = *top;
        *top = s->heap[--s->n_heap], s->heap[s->n_heap] = m;
    }
    sift_down(s, 0);
    return MR_OK;
}

mr_status index_sorter_next(index_sorter *s, const uint8_t **record, size_t *n)
{
    *record = NULL, *n = 0;
    if (!s->n_runs) {
        if (s->next < s->n) {
            const item *i = &s->items[s->next++];
            *record = s->bytes.bytes + i->at, *n = i->n;
        }
        return MR_OK;
    }
    if (s->lent && s->n_heap)
        MR_TRY(advance(s));
    s->lent = true;
    if (s->n_heap)
        *record = s->heap[0].record, *n = s->heap[0].n;
    return MR_OK;
}

/* ---- three numbers as a record ---- */

mr_status index_sorter_add_key(index_sorter *s, index_keymap_entry e)
{
    const uint64_t words[3] = {htobe64(e.hi), htobe64(e.lo), htobe64(e.id)};
    return index_sorter_add(s, words, sizeof words);
}

mr_status index_sorter_next_key(index_sorter *s, index_keymap_entry *e, bool *more)
{
    const uint8_t *record;
    uint64_t words[3];
    size_t n;
    MR_TRY(index_sorter_next(s, &record, &n));
    if ((*more = record != NULL)) {
        memcpy(words, record, sizeof words);
        *e = (index_keymap_entry){be64toh(words[0]), be64toh(words[1]), be64toh(words[2])};
    }
    return MR_OK;
}

int index_keymap_compare(const index_keymap_entry *x, const index_keymap_entry *y)
{
    if (x->hi != y->hi)
        return x->hi < y->hi ? -1 : 1;
    if (x->lo != y->lo)
        return x->lo < y->lo ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}
