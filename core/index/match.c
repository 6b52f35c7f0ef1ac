/* index: finds the samples that two indexes share: it walks both key maps. Ref: dataplane 2.2, 4.8.
 * Licence: Apache-2.0 */
#include "index/sort.h"
#include "index/store.h"

#include <string.h>

/* A walk over the keys of an index in ascending order. */
typedef struct walk {
    mr_index_reader *reader;
    const char *entries; // of a chunk
    size_t n, at;
    uint32_t chunk; // the next one
    index_keymap_entry e;
    bool more;
} walk;

static mr_status step(walk *w)
{
    if (w->at == w->n) {
        MR_TRY(index_keys(w->reader, w->chunk++, &w->entries, &w->n));
        w->at = 0;
    }
    w->more = w->n > 0;
    if (w->more)
        memcpy(&w->e, w->entries + w->at++ * sizeof w->e, sizeof w->e);
    return MR_OK;
}

static int compare(const walk *a, const walk *b)
{
    index_keymap_entry x = a->e, y = b->e;
    x.id = y.id = 0;
    return index_keymap_compare(&x, &y);
}

mr_status mr_index_match(mr_index *a, mr_index *b, mr_index_match_fn *fn, void *user,
                         mr_index_common *common)
{
    mr_index_reader *ra = NULL, *rb = NULL;
    mr_index_common n = {0};
    mr_status st = mr_index_reader_new(a, &ra);
    if (st == MR_OK)
        st = mr_index_reader_new(b, &rb);
    walk x = {.reader = ra}, y = {.reader = rb};
    if (st == MR_OK)
        st = step(&x);
    if (st == MR_OK)
        st = step(&y);
    while (st == MR_OK && (x.more || y.more)) {
        int c = !x.more ? 1 : !y.more ? -1 : compare(&x, &y);
        mr_hash128 key = {x.e.lo, x.e.hi};
        if (c <= 0 && fn)
            st = fn(user, key, x.e.id, c ? MR_INDEX_NONE : y.e.id);
        n.both += c == 0, n.only_a += c<0, n.only_b += c> 0;
        if (st == MR_OK && c <= 0)
            st = step(&x);
        if (st == MR_OK && c >= 0)
            st = step(&y);
    }
    mr_index_reader_free(ra);
    mr_index_reader_free(rb);
    if (st == MR_OK && common)
        *common = n;
    return st;
}
