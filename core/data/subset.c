/* data: a subset of an index, one bit per row - chosen by quantiles of a column, by hold_back, or
 * read from a file. Licence: Apache-2.0 */
#include "base/text.h"
#include "data/subset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

static size_t bytes_of(uint64_t rows)
{
    return (size_t)(rows + 7) / 8;
}

mr_status subset_new(mr_hash128 fp_order, uint64_t rows, mr_subset **out)
{
    mr_subset *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    atomic_init(&s->refs, 1);
    s->fp_order = fp_order, s->rows = rows;
    if (!(s->bits = mr_calloc(bytes_of(rows) + 1, 1))) {
        mr_subset_unref(s);
        return mr_fail_memory(bytes_of(rows));
    }
    *out = s;
    return MR_OK;
}

mr_subset *mr_subset_ref(mr_subset *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

void mr_subset_unref(mr_subset *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    mr_free(s->bits);
    mr_free(s->gone);
    mr_free(s);
}

uint64_t mr_subset_count(const mr_subset *s)
{
    return s->count;
}

uint64_t mr_subset_rows(const mr_subset *s)
{
    return s->rows;
}

uint64_t mr_subset_hash(const mr_subset *s)
{
    return s->hash;
}

bool mr_subset_has(const mr_subset *s, uint64_t row)
{
    return s->bits[row / 8] >> row % 8 & 1;
}

void subset_add(mr_subset *s, uint64_t row)
{
    s->bits[row / 8] |= (uint8_t)(1 << row % 8);
}

static int compare_keys(const void *a, const void *b)
{
    const mr_hash128 *x = a, *y = b;
    if (x->hi != y->hi)
        return x->hi < y->hi ? -1 : 1;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

void subset_close(mr_subset *s)
{
    s->count = s->n_gone;
    for (size_t i = 0; i < bytes_of(s->rows); i++)
        s->count += (uint64_t)__builtin_popcount(s->bits[i]);
    if (s->n_gone)
        qsort(s->gone, s->n_gone, sizeof *s->gone, compare_keys);
    s->hash = s->count ? MR_MIX(mr_hash64(s->bits, bytes_of(s->rows)),
                                mr_hash64(s->gone, sizeof *s->gone * s->n_gone))
                       : 0;
}

mr_status subset_add_gone(mr_subset *s, mr_hash128 key)
{
    if (s->n_gone == s->cap_gone) {
        uint64_t cap = MR_MAX(2 * s->cap_gone, 64);
        mr_hash128 *more = mr_realloc(s->gone, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->gone = more, s->cap_gone = cap;
    }
    s->gone[s->n_gone++] = key;
    return MR_OK;
}

/* ---- by quantiles ---- */

// A value, mapped to an integer of the same order, and its row. All values of a column have one
// kind.
typedef struct ranked {
    uint64_t key, row;
} ranked;

static uint64_t sortable(mr_number value)
{
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits;
    memcpy(&bits, &value.i, sizeof bits);
    return value.whole || !(bits & sign) ? bits ^ sign : ~bits;
}

static mr_number value_of(uint64_t key, bool whole)
{
    const uint64_t sign = UINT64_C(1) << 63;
    mr_number value = {.whole = whole};
    uint64_t bits = whole || key & sign ? key ^ sign : ~key;
    memcpy(&value.i, &bits, sizeof bits);
    return value;
}

static int compare_ranked(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

// sort all n values of a column
static mr_status sort_column(mr_index *index, int32_t column, uint64_t rows, ranked *list,
                             uint64_t *n)
{
    mr_index_reader *reader;
    MR_TRY(mr_index_reader_new(index, &reader));
    mr_status st = MR_OK;
    *n = 0;
    for (uint64_t at = 0; at < rows && st == MR_OK;) {
        mr_column_chunk chunk = {0};
        st = mr_index_column(reader, column, at / MR_HOT_ROWS, &chunk);
        for (int32_t i = 0; i < chunk.n && st == MR_OK; i++, at++) {
            mr_number value = mr_column_number(&chunk, i);
            if (!mr_number_is_none(value))
                list[(*n)++] = (ranked){sortable(value), at};
        }
    }
    mr_index_reader_free(reader);
    if (*n)
        qsort(list, *n, sizeof *list, compare_ranked);
    return st;
}

// the rank of a quantile
static uint64_t rank_of(double quantile, uint64_t n)
{
    return MR_MIN((uint64_t)ceil(quantile * (double)n - 1e-6), n);
}

static mr_status pick(mr_index *index, const mr_quantiles *q, int32_t column, ranked *list,
                      mr_subset *s, mr_number bounds[2])
{
    uint64_t n;
    MR_TRY(sort_column(index, column, s->rows, list, &n));
    uint64_t kept = n - (uint64_t)llround((double)n * q->trim_top);
    uint64_t from = rank_of(q->from, kept), to = rank_of(q->to, kept);
    if (from >= to)
        return mr_fail(
            MR_E_DATA,
            "%s: no row is between the quantiles %g and %g of %s: %llu of %llu rows have "
            "a value, %llu of them are trimmed; try: a wider range, a smaller trim_top",
            mr_index_path(index), q->from, q->to, q->column, (unsigned long long)n,
            (unsigned long long)s->rows, (unsigned long long)(n - kept));
    for (uint64_t i = from; i < to; i++)
        subset_add(s, (uint32_t)list[i].row);
    subset_close(s);
    bool whole = mr_index_column_kind(index, column) == MR_COLUMN_WHOLE;
    bounds[0] = value_of(list[from].key, whole), bounds[1] = value_of(list[to - 1].key, whole);
    return MR_OK;
}

static mr_status fail_column(mr_index *index, const char *column)
{
    char names[600] = "none";
    size_t n = 0;
    for (int32_t i = 0; i < mr_index_columns(index) && n + 70 < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              mr_index_column_name(index, i));
    return mr_fail(MR_E_DATA, "%s: no column '%s'; it has: %s; try: moonreel data join",
                   mr_index_path(index), column, names);
}

mr_status mr_subset_quantiles(mr_index *index, const mr_quantiles *q, mr_subset **out,
                              mr_number bounds[2])
{
    mr_index_facts facts = mr_index_get_facts(index);
    int32_t column = 0;
    while (column < mr_index_columns(index) &&
           strcmp(mr_index_column_name(index, column), q->column) != 0)
        column++;
    if (column == mr_index_columns(index))
        return fail_column(index, q->column);
    if (!(q->from >= 0 && q->from < q->to && q->to <= 1 && q->trim_top >= 0 && q->trim_top < 1))
        return mr_fail(MR_E_RECIPE,
                       "quantiles %g to %g, trim_top %g: expected 0 or more, the second above the "
                       "first and at most 1, and trim_top below 1",
                       q->from, q->to, q->trim_top);
    if (facts.rows > UINT32_MAX)
        return mr_fail(MR_E_DATA, "%s: %llu rows; quantiles take 2^32 at most",
                       mr_index_path(index), (unsigned long long)facts.rows);
    mr_subset *s;
    MR_TRY(subset_new(facts.fp_order, facts.rows, &s));
    ranked *list = mr_alloc(sizeof *list * facts.rows);
    mr_status st =
        list ? pick(index, q, column, list, s, bounds) : mr_fail_memory(sizeof *list * facts.rows);
    mr_free(list);
    if (st == MR_OK)
        *out = s;
    else
        mr_subset_unref(s);
    return st;
}

/* ---- held back ---- */

// compute the hash of each row's key
static mr_status hash_keys(mr_index *index, uint64_t rows, ranked *list)
{
    mr_index_reader *reader;
    MR_TRY(mr_index_reader_new(index, &reader));
    mr_status st = MR_OK;
    for (uint64_t at = 0; at < rows && st == MR_OK;) {
        const mr_hot *hot;
        int32_t n = 0;
        st = mr_index_hot(reader, at / MR_HOT_ROWS, &hot, &n);
        for (int32_t i = 0; i < n && st == MR_OK; i++, at++)
            list[at] = (ranked){MR_MIX(mr_name_word("hold_back"), hot[i].key_lo), at};
    }
    mr_index_reader_free(reader);
    return st;
}

static mr_status hold(mr_index *index, const mr_subset *of, double hold_back, bool held,
                      ranked *list, mr_subset *s)
{
    MR_TRY(hash_keys(index, s->rows, list));
    uint64_t least = 0, left = (uint64_t)hold_back;
    // a share decides each sample on its own; a count needs the order of all samples
    bool count = hold_back >= 1;
    if (count)
        qsort(list, s->rows, sizeof *list, compare_ranked);
    else
        least = (uint64_t)(hold_back * 0x1p64);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < s->rows; i++) {
        if (of && !mr_subset_has(of, list[i].row))
            continue;
        bool is_held = count ? left > 0 : list[i].key < least;
        left -= count && is_held;
        if (is_held == held)
            subset_add(s, list[i].row), kept++;
    }
    subset_close(s);
    if (!kept)
        return mr_fail(MR_E_DATA, "%s: of %llu samples hold_back = %g %s; try: %s",
                       mr_index_path(index),
                       (unsigned long long)(of ? mr_subset_count(of) : s->rows), hold_back,
                       held ? "holds back none" : "leaves none to train",
                       held ? "a larger share, or a count as 8" : "a smaller one");
    return MR_OK;
}

mr_status mr_subset_hold(mr_index *index, const mr_subset *of, double hold_back, bool held,
                         mr_subset **out)
{
    mr_index_facts facts = mr_index_get_facts(index);
    mr_subset *s;
    MR_TRY(subset_new(facts.fp_order, facts.rows, &s));
    ranked *list = mr_alloc(sizeof *list * (facts.rows + 1));
    mr_status st = list ? hold(index, of, hold_back, held, list, s)
                        : mr_fail_memory(sizeof *list * (facts.rows + 1));
    mr_free(list);
    if (st == MR_OK)
        *out = s;
    else
        mr_subset_unref(s);
    return st;
}

/* ---- file format: a header, the bits, the keys ---- */

typedef struct seen_head {
    char magic[8];
    mr_hash128 fp_order;
    uint64_t rows, n_gone, count, hash;
} seen_head;
static const char magic[8] = "mrseen1";

mr_status mr_subset_write(const mr_subset *s, const char *path)
{
    size_t bits = bytes_of(s->rows), keys = sizeof *s->gone * s->n_gone;
    seen_head head = {.fp_order = s->fp_order,
                      .rows = s->rows,
                      .n_gone = s->n_gone,
                      .count = s->count,
                      .hash = s->hash};
    memcpy(head.magic, magic, sizeof magic);
    mr_text all = {0};
    mr_text_put(&all, &head, sizeof head);
    mr_text_put(&all, s->bits, bits);
    if (keys)
        mr_text_put(&all, s->gone, keys);
    mr_status st = all.failed ? mr_fail_memory(sizeof head + bits + keys)
                              : mr_file_replace(path, all.data, all.used);
    mr_free(all.data);
    return st;
}

// read a list from `all`, n bytes including the header
static mr_status read_list(const char *path, const char *all, size_t n, mr_subset **out)
{
    seen_head head;
    if (n < sizeof head || memcmp(all, magic, sizeof magic) != 0)
        return mr_fail(MR_E_DATA, "%s: byte 0: is no list of trained samples", path);
    memcpy(&head, all, sizeof head);
    size_t room = n - sizeof head, bits = bytes_of(head.rows);
    if (head.rows / 8 > room || head.n_gone > room || room != bits + 16 * head.n_gone)
        return mr_fail(
            MR_E_DATA,
            "%s: has %zu bytes after its header, which do not fit %llu rows and %llu keys", path,
            room, (unsigned long long)head.rows, (unsigned long long)head.n_gone);
    mr_subset *s;
    MR_TRY(subset_new(head.fp_order, head.rows, &s));
    *out = s;
    memcpy(s->bits, all + sizeof head, bits);
    for (uint64_t i = 0; i < head.n_gone; i++) {
        mr_hash128 key;
        memcpy(&key, all + sizeof head + bits + 16 * i, sizeof key);
        MR_TRY(subset_add_gone(s, key));
    }
    subset_close(s);
    return s->count == head.count && s->hash == head.hash
               ? MR_OK
               : mr_fail(MR_E_DATA, "%s: damaged from byte %zu on", path, sizeof head);
}

mr_status mr_subset_read(const char *path, mr_subset **out)
{
    enum { LARGEST = 1 << 30 };
    char *all;
    size_t n;
    mr_subset *s = NULL;
    MR_TRY(mr_file_read_small(path, LARGEST, &all, &n));
    mr_status st = mr_fail_try(read_list(path, all, n, &s),
                               "the seen-*.bits of that run, or --start-from-scratch");
    mr_free(all);
    if (st == MR_OK)
        *out = s;
    else
        mr_subset_unref(s);
    return st;
}
