/* frame: rows [B, T, S, C] that are scaled and shifted by values [B, T, C] of their sample and
 * frame, and the gradients of those: sums over S in f32, in fixed pieces of MR_FRAME_SPAN rows, the
 * pieces in their order, so that they are independent of threads. Licence: Apache-2.0 */
#ifndef MR_FRAME_H
#define MR_FRAME_H

#include "cpu/rows.h"
#include "op/norm.h"

enum { MR_FRAME_SPAN = 128 };

/* Element of m [B, T, C] at which the values of sample and frame bt of [B * T] begin. */
MR_ROW_FN int64_t frame_at(const mr_desc *m, int64_t bt, int64_t T)
{
    return bt / T * m->stride[0] + bt % T * m->stride[1];
}

/* Pieces of a frame of x. */
MR_ROW_FN int64_t frame_pieces(const mr_desc *x)
{
    return (x->dim[2] + MR_FRAME_SPAN - 1) / MR_FRAME_SPAN;
}

/* Piece i of all frames: its sample and frame, and its rows first .. last of S. */
typedef struct mr_piece {
    int64_t bt, first, last;
} mr_piece;
MR_ROW_FN mr_piece frame_piece(const mr_desc *x, int64_t i)
{
    int64_t pieces = frame_pieces(x), first = i % pieces * MR_FRAME_SPAN;
    return (mr_piece){i / pieces, first, MR_MIN(first + MR_FRAME_SPAN, x->dim[2])};
}

/* Bytes in which each piece leaves `sums` rows of C. */
MR_ROW_FN size_t frame_workspace(const mr_desc *x, int sums)
{
    const int64_t *n = x->dim;
    return (size_t)(n[0] * n[1] * frame_pieces(x) * sums * n[3]) * sizeof(float);
}

/* `part` over the pieces of all frames of x, then what they left in the workspace as outputs 1 to
 * `sums`, [B, T, C] each. */
MR_ROW_FN void frame_sums(const mr_call *c, const mr_desc *x, int sums, mr_cpu_body *part)
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
