/* update: what the optimizer ops share: their buffers, the elements of hyper, and the scale of the
 * gradient. Licence: Apache-2.0
 *
 * Inputs 0 .. n - 1 are buffers that the op updates in place: master, grad, moments, then ema and
 * w, which can be absent. hyper is input n, sumsq is input n + 1. */
#ifndef MR_UPDATE_H
#define MR_UPDATE_H

#include "op/define.h"

enum {
    LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    MAX_NORM,
    EMA_DECAY,
    STEP,
    GRAD_SCALE,
    PER_MOST_NORM,
    HYPERS = 12
};
enum { MASTER, GRAD, M };

#define UPDATE_IN_FIRST                                                                            \
    {"master", "[n] f32", MR_CONTIG, MR_NO_GRAD}, {"grad", "[n] f32", MR_CONTIG, MR_NO_GRAD},      \
    {                                                                                              \
        "m", "[n] f32", MR_CONTIG, MR_NO_GRAD                                                      \
    }
#define UPDATE_IN_LAST                                                                             \
    {"ema", "[n] f32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},                                       \
        {"w", "[n] bf16", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},                                    \
        {"hyper", "[12] f64", MR_CONTIG, MR_NO_GRAD},                                              \
    {                                                                                              \
        "sumsq", "[1] f64", MR_CONTIG, MR_NO_GRAD                                                  \
    }
#define UPDATE_OUT_FIRST                                                                           \
    {"master", "[n] f32", 1, true, MR_CONTIG}, {"grad", "[n] f32", 2, true, MR_CONTIG},            \
    {                                                                                              \
        "m", "[n] f32", 3, true, MR_CONTIG                                                         \
    }
/* n: number of buffers */
#define UPDATE_OUT_LAST(n)                                                                         \
    {"ema", "[n] f32", (n)-1, true, MR_CONTIG},                                                    \
    {                                                                                              \
        "w", "[n] bf16", (n), true, MR_CONTIG                                                      \
    }
/* attributes of a struct `attr` with decay, lr_factor and keep */
#define UPDATE_ATTRS                                                                               \
    {"decay", MR_ATTR_F64, offsetof(attr, decay), .def = 1,                                        \
     .doc = "factor of weight_decay in hyper"},                                                    \
        {"lr_factor", MR_ATTR_F64, offsetof(attr, lr_factor), .def = 1,                            \
         .doc = "factor of lr in hyper"},                                                          \
    {                                                                                              \
        "keep", MR_ATTR_BOOL, offsetof(attr, keep), .doc = "do not zero the gradient"              \
    }

MR_OP_FN mr_status update_infer(mr_infer *c, int n)
{
    const mr_desc *p = c->in[MASTER], *hyper = c->in[n], *sumsq = c->in[n + 1];
    if (p->rank != 1)
        return mr_fail(MR_E_SHAPE, "expected master [n]");
    for (int i = GRAD; i < n; i++)
        if (c->in[i] && !mr_desc_same_shape(p, c->in[i]))
            return mr_fail(MR_E_SHAPE, "expected grad, moments, ema and w [n] with n of master");
    if (hyper->rank != 1 || hyper->dim[0] != HYPERS)
        return mr_fail(MR_E_SHAPE, "expected hyper [12]");
    if (sumsq->rank != 1 || sumsq->dim[0] != 1)
        return mr_fail(MR_E_SHAPE, "expected sumsq [1]");
    for (int i = MASTER; i < n; i++) {
        if (c->in[i])
            c->out[i] = *c->in[i];
        else
            c->out[i].rank = -1;
    }
    return MR_OK;
}

/* Bytes read and written per element. */
MR_OP_FN int update_bytes(const mr_call *c, int n, bool keep)
{
    return 8 * (n - 2) - (keep ? 4 : 0) + (mr_given(&c->in[n - 2]) ? 8 : 0) +
           (mr_given(&c->in[n - 1]) ? 2 : 0);
}

/* The factor of the gradient, including the clip. False if only the gradient changes: its norm is
 * not finite or above the limit, or grad_scale is 0. */
MR_OP_FN bool update_scale(const mr_call *c, int n, double *scale)
{
    const double *h = c->in[n].data;
    double norm = sqrt(*(const double *)c->in[n + 1].data) * h[GRAD_SCALE];
    if (!isfinite(norm) || norm * h[PER_MOST_NORM] > 1 || h[GRAD_SCALE] == 0)
        return false;
    double q = h[MAX_NORM] > 0 ? (norm + 1e-6) / h[MAX_NORM] : 1;
    *scale = q > 1 ? h[GRAD_SCALE] / q : h[GRAD_SCALE];
    return true;
}

#endif
