/* data: a set of samples of an index, one bit for each row.
 *
 * For instance the samples that an epoch trained before its data or rule changed, or the samples of
 * a source. A subset is immutable and shared: mr_subset_ref, mr_subset_unref, NULL is fine.
 *
 * Threads: any.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_SUBSET_H
#define MOONREEL_SUBSET_H

#include "moonreel/index.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_subset mr_subset;

/* The samples between two quantiles of a column, 0 <= from < to <= 1. Samples without a value are
 * left out, then the share `trim_top` with the largest values. Adjacent quantile ranges have no
 * sample in common; samples of equal value are ordered by row id. bounds: the smallest and the
 * largest value of the subset. Errors: MR_E_DATA no such column, no sample has a value, no sample
 * is left; MR_E_MEMORY */
typedef struct mr_quantiles {
    const char *column;
    double from, to, trim_top;
} mr_quantiles;
MR_API mr_status mr_subset_quantiles(mr_index *index, const mr_quantiles *which, mr_subset **out,
                                     mr_number bounds[2]);
/* held: true: the samples held back from training; false: all others. hold_back > 0. Below 1 it is
 * a share of the samples, and only the hash of a sample's key decides; from 1 on it is a count, and
 * the samples with the smallest hashes are held back. The order of the rows, epochs and ranks do
 * not matter. of: only samples of this subset; NULL: of the whole index. Borrows both.
 * Errors: MR_E_DATA the subset is empty; MR_E_MEMORY */
MR_API mr_status mr_subset_hold(mr_index *index, const mr_subset *of, double hold_back, bool held,
                                mr_subset **out);
MR_API bool mr_subset_has(const mr_subset *set, uint64_t row);
MR_API mr_subset *mr_subset_ref(mr_subset *seen);
MR_API void mr_subset_unref(mr_subset *seen);
MR_API uint64_t mr_subset_count(const mr_subset *seen); /* samples */
MR_API uint64_t mr_subset_rows(const mr_subset *set);   /* of its index */
MR_API uint64_t
mr_subset_hash(const mr_subset *seen); /* of its samples; states refer to it by this hash */
/* Write to a file, completely or not at all. Errors: MR_E_IO */
MR_API mr_status mr_subset_write(const mr_subset *seen, const char *path);
/* Errors: MR_E_IO, MR_E_DATA damaged (with the byte), MR_E_MEMORY */
MR_API mr_status mr_subset_read(const char *path, mr_subset **out);

#ifdef __cplusplus
}
#endif
#endif
