/* group_norm: what the files of group_norm share: attributes, the pieces of a call, and the
 * functions that they call. Licence: Apache-2.0 */
#ifndef MR_GROUP_NORM_H
#define MR_GROUP_NORM_H

#include "cpu/rows.h"
#include "op/norm.h"

typedef struct group_attr {
    int64_t groups;
    double eps;
    bool silu;
} group_attr;

/* ---- a call in pieces ---- */

// elements per piece of the statistics; most pieces of a sample in the sums of the gradient
enum { GROUP_ELEMENTS = 16384, GROUP_PIECES = 64 };

/* A sample is `places` rows of `channels`; a piece is `length` rows of one sample. */
typedef struct group_shape {
    int64_t batch, places, channels, groups, wide, length, pieces;
} group_shape;

MR_OP_FN group_shape group_shape_of(const mr_call *c, bool gradient)
{
    const group_attr *a = c->attr;
    const mr_desc *d = &c->in[0].desc;
    group_shape s = {.batch = d->dim[0], .channels = d->dim[d->rank - 1], .groups = a->groups};
    int64_t row = MR_MAX(s.channels, 1);
    s.places = s.batch ? mr_desc_count(d) / s.batch / row : 0;
    s.wide = s.channels / s.groups;
    s.length = MR_MAX(GROUP_ELEMENTS / row, 1);
    if (gradient)
        s.length = MR_MAX(s.length, (s.places + GROUP_PIECES - 1) / GROUP_PIECES);
    s.pieces = (s.places + s.length - 1) / s.length;
    return s;
}

/* The workspace, in floats. pieces: forward, mean and squares of the groups of each piece;
 * backward, two sums per piece and channel. own: forward, two rows of channels per worker. rows:
 * per sample and channel, the factors and shifts. */
typedef struct group_room {
    float *pieces, *own, *rows;
    size_t bytes;
} group_room;

enum { GROUP_ROWS = 4 };
MR_OP_FN group_room group_room_of(const group_shape *s, bool gradient, int threads, void *workspace)
{
    group_room r = {.pieces = workspace};
    int64_t pieces = s->batch * s->pieces * 2 * (gradient ? s->channels : s->groups),
            own = gradient ? 0 : threads * 2 * s->channels;
    r.own = r.pieces + pieces, r.rows = r.own + own;
    r.bytes = (size_t)(pieces + own + s->batch * GROUP_ROWS * s->channels) * sizeof(float);
    return r;
}

/* ---- the functions that the definitions name ---- */

mr_kernel_fn mr_group_norm_naive, mr_group_moments_naive, mr_group_norm_by_naive,
    mr_group_norm_grad_naive;
MR_KERNELS(group_norm);
MR_KERNELS(group_moments);
MR_KERNELS(group_norm_by);
MR_KERNELS(group_norm_grad);

#endif
