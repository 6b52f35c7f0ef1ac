/* frame: helpers of ops that scale and shift rows [B, T, S, C] by values [B, T, C] per sample and
 * frame. The gradients of these values are f32 sums over S. They are formed in fixed pieces of
 * MR_FRAME_SPAN rows, added in order, so that they do not depend on the number of threads.
 * Licence: Apache-2.0 */
#ifndef MR_FRAME_H
#define MR_FRAME_H

#include "cpu/rows.h"
#include "op/norm.h"

enum { MR_FRAME_SPAN = 128 };

/* The offset in m [B, T, C] of the values of sample and frame bt of [B * T]. */
MR_OP_FN int64_t frame_at(const mr_desc *m, int64_t bt, int64_t T)
{
    return bt / T * m->stride[0] + bt % T * m->stride[1];
}

/* The number of pieces per frame of x. */
MR_OP_FN int64_t frame_pieces(const mr_desc *x)
{
    return (x->dim[2] + MR_FRAME_SPAN - 1) / MR_FRAME_SPAN;
}

/* Piece i of all frames: its sample and frame, and its rows first .. last of S. */
typedef struct mr_piece {
    int64_t bt, first, last;
} mr_piece;
MR_OP_FN mr_piece frame_piece(const mr_desc *x, int64_t i)
{
    int64_t pieces = frame_pieces(x), first = i % pieces * MR_FRAME_SPAN;
    return (mr_piece){i / pieces, first, MR_MIN(first + MR_FRAME_SPAN, x->dim[2])};
}

/* Bytes of workspace in which each piece stores `sums` rows of C. */
MR_OP_FN size_t frame_workspace(const mr_desc *x, int sums)
{
    const int64_t *n = x->dim;
    return (size_t)(n[0] * n[1] * frame_pieces(x) * sums * n[3]) * sizeof(float);
}

/* Run `part` over the pieces of all frames of x, then add the sums that they stored in the
 * workspace to outputs 1 to `sums`, [B, T, C] each. */
MR_OP_FN void frame_sums(const mr_call *c, const mr_desc *x, int sums, mr_cpu_body *part)
{
    const int64_t *n = x->dim, C = n[3], pieces = frame_pieces(x);
    mr_cpu_for(n[0] * n[1] * pieces, 1, c->threads, part, (void *)c);
    const float *left = c->workspace;
    for (int64_t bt = 0; bt < n[0] * n[1]; bt++)
        for (int o = 0; o < sums; o++)
            mr_add_pieces(left + (bt * pieces * sums + o) * C, pieces, sums * C, C, NULL,
                          c->out[1 + o].data, bt * C, c->out[1 + o].desc.dtype);
}

#endif
