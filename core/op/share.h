/* share: the part of n positions that each of some ranks holds: all in their order, as many for
 * each, one more for the first n % ranks. It may be none. Licence: Apache-2.0 */
#ifndef MR_SHARE_H
#define MR_SHARE_H

#include "op/row.h"

MR_ROW_FN int64_t share_start(int64_t n, int64_t ranks, int64_t rank)
{
    return rank * (n / ranks) + MR_MIN(rank, n % ranks);
}

MR_ROW_FN int64_t share_of(int64_t n, int64_t ranks, int64_t rank)
{
    return n / ranks + (rank < n % ranks);
}

#endif
