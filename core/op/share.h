/* share: the part of n positions that each rank has, in the order of ranks. All shares are equal,
 * except that the first n % ranks have one position more. A share can be empty.
 * Licence: Apache-2.0 */
#ifndef MR_SHARE_H
#define MR_SHARE_H

#include "op/define.h"

MR_OP_FN int64_t share_start(int64_t n, int64_t ranks, int64_t rank)
{
    return rank * (n / ranks) + MR_MIN(rank, n % ranks);
}

MR_OP_FN int64_t share_of(int64_t n, int64_t ranks, int64_t rank)
{
    return n / ranks + (rank < n % ranks);
}

#endif
