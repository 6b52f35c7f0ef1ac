/* collective: what the rows of an op say to other ranks, without knowing how they are reached.
 *
 * Whoever has groups of ranks (core/comm) gives them numbers here; the attribute `group` of a row
 * is one of these. Group 0 is this rank alone, where nothing is said.
 *
 * Threads: groups come and go on one thread; calls of one group come one at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_COLLECTIVE_H
#define MOONREEL_COLLECTIVE_H

#include "moonreel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Over x, in equal chunks of which each rank owns one: its owner gets the sum of a chunk and the
 * others zeros; all get each chunk of its owner; all get the sum of everything. */
typedef enum mr_collective {
    MR_COLLECTIVE_REDUCE_SCATTER,
    MR_COLLECTIVE_ALL_GATHER,
    MR_COLLECTIVE_ALL_REDUCE
} mr_collective;
typedef mr_status mr_collective_fn(void *user, mr_collective what, mr_dtype dtype, void *x,
                                   int64_t count);

/* Parts of values that change hands, dense and of any size, those of all ranks one behind the
 * other. hops 0: in has sends[rank] elements for each rank, or, with sends NULL, receives[of this
 * rank] elements for all of them; out gets receives[rank] from each. Else sends[0] elements go to
 * the rank `hops` further on in the circle, and receives[0] come from the one that many before. */
typedef struct mr_exchange {
    mr_dtype dtype;
    int hops;
    const void *in;
    const int64_t *sends;
    void *out;
    const int64_t *receives;
} mr_exchange;
typedef mr_status mr_exchange_fn(void *user, const mr_exchange *what);

/* Give a group a number, from 1. Errors: MR_E_MEMORY */
MR_API mr_status mr_collective_add(mr_collective_fn *run, mr_exchange_fn *exchange, void *user,
                                   int64_t *group);
/* The number is nobody's any more; 0 is fine. */
MR_API void mr_collective_remove(int64_t group);
/* In place, x [count]. Errors: MR_E_USAGE no such group; those of its function */
MR_API mr_status mr_collective_run(int64_t group, mr_collective what, mr_dtype dtype, void *x,
                                   int64_t count);

/* Errors: MR_E_USAGE no such group, or 0, which has nobody to exchange with; those of its
 * function */
MR_API mr_status mr_collective_exchange(int64_t group, const mr_exchange *what);

#ifdef __cplusplus
}
#endif
#endif
