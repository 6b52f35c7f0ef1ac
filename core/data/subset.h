/* data, inside: a bit for each row of an index, and the keys of samples that the index lacks.
 * Licence: Apache-2.0 */
#ifndef MR_DATA_SUBSET_H
#define MR_DATA_SUBSET_H

#include "moonreel/subset.h"

#include <stdatomic.h>

struct mr_subset {
    atomic_int refs;
    mr_hash128 fp_order; /* fingerprint of the index of these rows */
    uint64_t rows, count, hash;
    uint8_t *bits;    /* [(rows + 7) / 8] */
    mr_hash128 *gone; /* keys of trained samples that the index lacks, ascending */
    uint64_t n_gone, cap_gone;
};
/* Create an empty subset, add samples, and keys without a row; then close it, which computes count
 * and hash. */
mr_status subset_new(mr_hash128 fp_order, uint64_t rows, mr_subset **out);
void subset_add(mr_subset *s, uint64_t row);
mr_status subset_add_gone(mr_subset *s, mr_hash128 key);
void subset_close(mr_subset *s);
/* Whether two fingerprints belong to one index. */
static inline bool subset_is_of(mr_hash128 a, mr_hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

#endif
