/* index/sort: records of any length in the order of their bytes, in one run or many. */
#include "check.h"
#include "clips.h"
#include "fault.h"
#include "index/sort.h"

#include <stdlib.h>

enum { RECORDS = 4000, LONGEST = 40 };

typedef struct sample {
    uint8_t bytes[LONGEST];
    size_t n;
} sample;
static sample samples[RECORDS];

// few different bytes: many records have a common prefix, some are equal, some a part of others
static void make_samples(void)
{
    for (uint64_t i = 0; i < RECORDS; i++) {
        samples[i].n = MR_MIX(i) % (LONGEST + 1);
        for (uint64_t k = 0; k < LONGEST; k++)
            samples[i].bytes[k] = (uint8_t)(MR_MIX(i, k, (uint64_t)9) % 7 ? 'a' : MR_MIX(i, k));
    }
}

static int by_bytes(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    int c = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static mr_status add_all(index_sorter *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        MR_TRY(index_sorter_add(s, samples[i].bytes, samples[i].n));
    return index_sorter_sort(s);
}

static void in_order(void)
{
    static sample want[RECORDS];
    static const uint64_t counts[] = {0, 1, 2, 700, RECORDS};
    // everything in one run; two runs; one record a run
    static const size_t runs[] = {64 << 20, 100 << 10, 5000, 1};
    for (size_t c = 0; c < MR_COUNT(counts); c++)
        for (size_t r = 0; r < MR_COUNT(runs); r++) {
            index_sorter *s;
            uint64_t n = counts[c];
            if (n > 700 && runs[r] == 1)
                continue;
            index_run_bytes = runs[r];
            memcpy(want, samples, sizeof want);
            qsort(want, n, sizeof *want, by_bytes);
            CHECK_OK(index_sorter_new(clips_path("x.mrx"), &s));
            if (!CHECK_OK(add_all(s, n)))
                return;
            const uint8_t *got;
            size_t bytes;
            for (uint64_t i = 0; i < n; i++) {
                CHECK_OK(index_sorter_next(s, &got, &bytes));
                if (!CHECK(got && bytes == want[i].n && memcmp(got, want[i].bytes, bytes) == 0))
                    return;
            }
            for (int again = 0; again < 2; again++) {
                CHECK_OK(index_sorter_next(s, &got, &bytes));
                CHECK(!got);
            }
            index_sorter_free(s);
        }
    index_run_bytes = (size_t)64 << 20;
}

static void keys(void)
{
    for (int small = 0; small < 2; small++) {
        index_sorter *s;
        index_keymap_entry e, last = {0};
        bool more;
        int n = 0;
        index_run_bytes = small ? 2000 : 64 << 20;
        CHECK_OK(index_sorter_new(clips_path("x.mrx"), &s));
        for (uint64_t i = 0; i < 1000; i++)
            CHECK_OK(index_sorter_add_key(
                s, (index_keymap_entry){MR_MIX(i / 100), i % 3 ? i << 40 : 0, 1000 - i}));
        CHECK_OK(index_sorter_sort(s));
        while (CHECK_OK(index_sorter_next_key(s, &e, &more)) && more) {
            CHECK(!n || index_keymap_compare(&last, &e) < 0);
            CHECK(e.hi == MR_MIX((1000 - e.id) / 100));
            last = e, n++;
        }
        CHECK_INT(n, 1000);
        index_sorter_free(s);
    }
    index_run_bytes = (size_t)64 << 20;
}

// all of it, with runs of 5,000 bytes; freed at any point
static mr_status sort_all(void)
{
    index_sorter *s = NULL;
    const uint8_t *got;
    size_t bytes;
    mr_status st = index_sorter_new(clips_path("x.mrx"), &s);
    if (st == MR_OK)
        st = add_all(s, 1000);
    do
        if (st == MR_OK)
            st = index_sorter_next(s, &got, &bytes);
    while (st == MR_OK && got);
    index_sorter_free(s);
    return st;
}

static void failures(void)
{
    index_run_bytes = 5000;
    int failures = 0;
    for (int n = 1; n < 1000; n++) {
        mr_alloc_fail_at(n);
        mr_status st = sort_all();
        mr_alloc_fail_at(0);
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 10 && failures < 900);
    fault_install();
    long at = 1;
    for (mr_status st = MR_E_IO; st != MR_OK; at++) {
        fault_at(at, FAULT_FULL, 0);
        if ((st = sort_all()) != MR_OK)
            CHECK_INT(st, MR_E_IO);
    }
    CHECK(at > 5);
    fault_clear();
    mr_io_replace(NULL);
    CHECK_INT(clips_count("x.mrx"), 0);
    index_run_bytes = (size_t)64 << 20;
}

int main(void)
{
    make_samples();
    in_order();
    keys();
    failures();
    return check_done();
}
