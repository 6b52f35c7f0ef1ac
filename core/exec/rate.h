/* exec: computes the rates of a kernel kind from the times of its probes. Licence: Apache-2.0 */
#ifndef MR_EXEC_RATE_H
#define MR_EXEC_RATE_H

#include "moonreel/exec.h"

/* Two rates from two steps. At least half of the time of the first is operations, or all of it;
 * bytes can take nearly no time. */
static inline mr_rate rate_solve(const mr_step_time *a, const mr_step_time *b, bool cached)
{
    const mr_cost *m = &a->cost, *n = &b->cost;
    double most = a->seconds / m->flop, flop = (a->seconds * n->bytes - b->seconds * m->bytes) /
                                               (m->flop * n->bytes - n->flop * m->bytes);
    flop = cached ? most : MR_MIN(MR_MAX(flop, most / 2), most);
    double byte = (b->seconds - flop * n->flop) / n->bytes;
    return (mr_rate){1 / flop, 1 / MR_MAX(byte, b->seconds / n->bytes / 20)};
}

/* One step: operations and bytes each take half of the time; without operations, bytes take all of
 * it. */
static inline mr_rate rate_halve(const mr_step_time *a)
{
    const mr_cost *m = &a->cost;
    if (!(m->flop > 0))
        return (mr_rate){m->bytes / a->seconds, m->bytes / a->seconds};
    return (mr_rate){2 * m->flop / a->seconds, 2 * m->bytes / a->seconds};
}

#endif
