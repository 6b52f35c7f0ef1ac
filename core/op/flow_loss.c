/* flow_loss: the weighted mean square of the velocity error, per sample, over the noised frames.
 *
 *   pred [B, C2, T, H, W]         its first C channels are used
 *   x0, noise [B, C, T, H, W] f32
 *   weight [B] f32                a sample of weight 0 adds nothing, even with NaN
 *   mask [B, T] bool              the frames that count; absent: all
 *
 *   per_sample[b] = sum over frames that count of (pred - (x0 - noise))^2 / (frames C H W);
 *                   0 for a sample without such frames
 *   loss          = sum over b of weight[b] per_sample[b]
 *
 * A plane (b, c, t) is summed in f32 vectors. Planes are added in double and in order, so the bits
 * do not depend on the number of threads. */
#include "cpu/rows.h"
#include "op/define.h"

static mr_status check(const mr_desc *const *in)
{
    const mr_desc *p = in[0], *x = in[1], *w = in[3], *mask = in[4];
    if (x->rank != 5 || !mr_desc_same_shape(x, in[2]))
        return mr_fail(MR_E_SHAPE, "expected x0 and noise [B, C, T, H, W]");
    bool fits = p->rank == 5 && p->dim[1] >= x->dim[1];
    for (int k = 0; fits && k < 5; k++)
        fits = k == 1 || p->dim[k] == x->dim[k];
    if (!fits)
        return mr_fail(MR_E_SHAPE,
                       "expected pred [B, C2, T, H, W] with B, T, H and W of x0 and C2 >= C");
    if (w->rank != 1 || w->dim[0] != x->dim[0])
        return mr_fail(MR_E_SHAPE, "expected weight [B] with B of x0");
    if (mask && (mask->rank != 2 || mask->dim[0] != x->dim[0] || mask->dim[1] != x->dim[2]))
        return mr_fail(MR_E_SHAPE, "expected mask [B, T] with B and T of x0");
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(check(c->in));
    mr_infer_out(c, 0, c->in[1]->dtype, 0, NULL);
    mr_infer_out(c, 1, c->in[1]->dtype, 1, c->in[1]->dim);
    return MR_OK;
}

static mr_status grad(mr_grad *g)
{
    if (!g->need[0])
        return MR_OK;
    return mr_grad_op(
        g, "flow_loss_grad", MR_NO_ATTRS,
        (mr_ref[]){g->in[0], g->in[1], g->in[2], g->in[3], g->in[4], g->dout[0], g->dout[1]}, 7,
        &g->din[0]);
}

static void cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[1].desc),
           e = (double)mr_dtype_bytes(c->in[0].desc.dtype);
    *cost = (mr_cost){4 * n, n * (e + 8)};
}

static bool frame_in(const mr_view *mask, int64_t b, int64_t t)
{
    return !mr_given(mask) || ((const bool *)mask->data)[b * mask->desc.dim[1] + t];
}

// number of elements of sample b in the loss
static double elements_of(const mr_call *c, int64_t b)
{
    const int64_t *n = c->in[1].desc.dim;
    int64_t frames = 0;
    for (int64_t t = 0; t < n[2]; t++)
        frames += frame_in(&c->in[4], b, t);
    return (double)(frames * n[1] * n[3] * n[4]);
}

static mr_status naive(const mr_call *c)
{
    const int64_t *n = c->in[1].desc.dim;
    double loss = 0;
    for (int64_t b = 0; b < n[0]; b++) {
        double sum = 0, count = elements_of(c, b), weight = *mr_el(&c->in[3], b, 0, 0, 0, 0);
        for (int64_t k = 0; k < n[1]; k++)
            for (int64_t t = 0; t < n[2]; t++)
                for (int64_t y = 0; frame_in(&c->in[4], b, t) && y < n[3]; y++)
                    for (int64_t x = 0; x < n[4]; x++) {
                        double e =
                            *mr_el(&c->in[0], b, k, t, y, x) -
                            (*mr_el(&c->in[1], b, k, t, y, x) - *mr_el(&c->in[2], b, k, t, y, x));
                        sum += e * e;
                    }
        double mean = count > 0 ? sum / count : 0;
        *mr_el(&c->out[1], b, 0, 0, 0, 0) = mean;
        if (weight != 0)
            loss += weight * mean;
    }
    *(double *)c->out[0].data = loss;
    return MR_OK;
}

static mr_status grad_infer(mr_infer *c)
{
    MR_TRY(check(c->in));
    if (c->in[5] && c->in[5]->rank != 0)
        return mr_fail(MR_E_SHAPE, "expected dloss to be a scalar");
    if (c->in[6])
        MR_TRY(mr_infer_same_shape(c->in[3], "weight", c->in[6], "dper_sample"));
    c->out[0] = *c->in[0];
    return MR_OK;
}

static void grad_cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[1].desc), p = (double)mr_desc_count(&c->in[0].desc);
    *cost = (mr_cost){4 * n, 8 * n + (n + p) * (double)mr_dtype_bytes(c->in[0].desc.dtype)};
}

static mr_status grad_naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    double dloss = mr_given(&c->in[5]) ? *(const double *)c->in[5].data : 0;
    for (int64_t b = 0; b < n[0]; b++) {
        double count = elements_of(c, b), weight = dloss * *mr_el(&c->in[3], b, 0, 0, 0, 0);
        if (mr_given(&c->in[6]))
            weight += *mr_el(&c->in[6], b, 0, 0, 0, 0);
        for (int64_t k = 0; k < n[1]; k++)
            for (int64_t t = 0; t < n[2]; t++) {
                bool in = k < c->in[1].desc.dim[1] && weight != 0 && frame_in(&c->in[4], b, t);
                for (int64_t y = 0; y < n[3]; y++)
                    for (int64_t x = 0; x < n[4]; x++)
                        *mr_el(&c->out[0], b, k, t, y, x) =
                            !in ? 0
                                : 2 * weight / count *
                                      (*mr_el(&c->in[0], b, k, t, y, x) -
                                       (*mr_el(&c->in[1], b, k, t, y, x) -
                                        *mr_el(&c->in[2], b, k, t, y, x)));
            }
    }
    return MR_OK;
}

// The sum of squares of plane i of [B * C * T]; 0 where the mask is false.
VF_INLINE double plane_sum(const mr_call *c, int64_t i, mr_dtype t)
{
    const int64_t *n = c->in[1].desc.dim, *np = c->in[0].desc.dim, plane = n[3] * n[4];
    int64_t frame = i % n[2], k = i / n[2] % n[1], b = i / n[2] / n[1];
    if (!frame_in(&c->in[4], b, frame))
        return 0;
    int64_t pred = ((b * np[1] + k) * n[2] + frame) * plane, at = i * plane;
    double total = 0;
    // sum runs of 1,024 elements in f32 vectors, and add the runs in double
    for (int64_t from = 0; from < plane; from += 1024) {
        int64_t to = MR_MIN(from + 1024, plane);
        vf sum = vf_zero();
        for (int64_t p = from; p < to; p += VF_LANES) {
            int64_t m = MR_MIN(to - p, (int64_t)VF_LANES);
            vf e = vf_ldx(c->in[0].data, pred + p, 1, m, t) -
                   (vf_ldx(c->in[1].data, at + p, 1, m, MR_F32) -
                    vf_ldx(c->in[2].data, at + p, 1, m, MR_F32));
            sum = vf_fma(e, e, sum);
        }
        total += (double)vf_sum(sum);
    }
    return total;
}

static void loss_part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        ((double *)c->workspace)[i] =
            c->in[0].desc.dtype == MR_BF16 ? plane_sum(c, i, MR_BF16) : plane_sum(c, i, MR_F32);
}

MR_KERNEL(flow_loss)
{
    const int64_t *n = call->in[1].desc.dim, planes = n[1] * n[2];
    const double *sums = call->workspace;
    double loss = 0;
    mr_cpu_for(n[0] * planes, 4, call->threads, loss_part, (void *)call);
    for (int64_t b = 0; b < n[0]; b++) {
        double sum = 0, count = elements_of(call, b);
        for (int64_t i = 0; i < planes; i++)
            sum += sums[b * planes + i];
        float mean = count > 0 ? (float)(sum / count) : 0,
              weight = ((const float *)call->in[3].data)[b];
        ((float *)call->out[1].data)[b] = mean;
        if (weight != 0)
            loss += (double)weight * (double)mean;
    }
    *(float *)call->out[0].data = (float)loss;
    return MR_OK;
}

static size_t loss_workspace(const mr_call *c, const mr_facts *facts)
{
    const int64_t *n = c->in[1].desc.dim;
    (void)facts;
    return (size_t)(n[0] * n[1] * n[2]) * 8;
}

// compute plane i of [B * C2 * T] of dpred
VF_INLINE void plane_grad(const mr_call *c, int64_t i, mr_dtype t)
{
    const int64_t *n = c->in[1].desc.dim, *np = c->in[0].desc.dim, plane = n[3] * n[4];
    int64_t frame = i % n[2], k = i / n[2] % np[1], b = i / n[2] / np[1],
            at = ((b * n[1] + k) * n[2] + frame) * plane;
    double weight = c->in[5].data ? (double)*(const float *)c->in[5].data *
                                        (double)((const float *)c->in[3].data)[b]
                                  : 0;
    if (c->in[6].data)
        weight += (double)((const float *)c->in[6].data)[b];
    if (k >= n[1] || weight == 0 || !frame_in(&c->in[4], b, frame)) {
        memset((char *)c->out[0].data + i * plane * (t == MR_BF16 ? 2 : 4), 0,
               (size_t)plane * (t == MR_BF16 ? 2 : 4));
        return;
    }
    vf factor = vf_set((float)(2 * weight / elements_of(c, b)));
    for (int64_t p = 0; p < plane; p += VF_LANES) {
        int64_t m = MR_MIN(plane - p, (int64_t)VF_LANES);
        vf e = vf_ldx(c->in[0].data, i * plane + p, 1, m, t) -
               (vf_ldx(c->in[1].data, at + p, 1, m, MR_F32) -
                vf_ldx(c->in[2].data, at + p, 1, m, MR_F32));
        vf_stx(c->out[0].data, i * plane + p, 1, e * factor, m, t);
    }
}

static void grad_part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        if (c->in[0].desc.dtype == MR_BF16)
            plane_grad(c, i, MR_BF16);
        else
            plane_grad(c, i, MR_F32);
    }
}

MR_KERNEL(flow_loss_grad)
{
    const int64_t *n = call->in[0].desc.dim;
    mr_cpu_for(n[0] * n[1] * n[2], 4, call->threads, grad_part, (void *)call);
    return MR_OK;
}

MR_OP(flow_loss) = {
    .name = "flow_loss",
    .doc = "Rectified flow loss: weighted sum over samples of the mean square velocity error of "
           "the noised frames.",
    .ref = "Liu et al. 2022, arXiv:2209.03003; Open-Sora 1.2 rectified flow",
    .in = {{"pred", "[B, C2, T, H, W] f32|bf16", MR_CONTIG, 0},
           {"x0", "[B, C, T, H, W] f32", MR_CONTIG, MR_NO_GRAD},
           {"noise", "like x0", MR_CONTIG, MR_NO_GRAD},
           {"weight", "[B] f32", MR_CONTIG, MR_NO_GRAD},
           {"mask", "[B, T] bool", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD}},
    .out = {{"loss", "[] f32", 0, false, MR_CONTIG},
            {"per_sample", "[B] f32", 0, false, MR_CONTIG}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(flow_loss), .workspace = loss_workspace},
    .cases = MR_CASES(
        "pred=[2,8,3,5,7] f32 x0=[2,4,3,5,7] f32 noise=[2,4,3,5,7] f32 weight=[2] f32",
        "pred=[3,2,4,2,3] f32 x0=[3,2,4,2,3] f32 noise=[3,2,4,2,3] f32 weight=[3] f32 mask=[3,4] "
        "bool",
        "pred=[1,2,1,40,60] f32 x0=[1,1,1,40,60] f32 noise=[1,1,1,40,60] f32 weight=[1] f32 0..0",
        "pred=[2,8,3,5,7] bf16 x0=[2,4,3,5,7] f32 noise=[2,4,3,5,7] f32 weight=[2] f32 0..1 "
        "mask=[2,3] bool",
        // several runs of 1,024 per plane; pred with the shape of x0, weights of one sign
        "pred=[2,1,2,40,60] f32 x0=[2,1,2,40,60] f32 noise=[2,1,2,40,60] f32 weight=[2] f32 0.5..2",
        "pred=[2,2,2,40,60] bf16 x0=[2,1,2,40,60] f32 noise=[2,1,2,40,60] f32 weight=[2] f32 "
        "0.5..2"),
};
MR_OP(flow_loss_grad) = {
    .name = "flow_loss_grad",
    .doc = "Gradient of flow_loss with respect to the prediction: 2 (pred - target) / count, times "
           "weight dloss + dper_sample.",
    .in = {{"pred", "[B, C2, T, H, W] f32|bf16", MR_CONTIG, 0},
           {"x0", "[B, C, T, H, W] f32", MR_CONTIG, 0},
           {"noise", "like x0", MR_CONTIG, 0},
           {"weight", "[B] f32", MR_CONTIG, 0},
           {"mask", "[B, T] bool", MR_CONTIG, MR_OPTIONAL},
           {"dloss", "[] f32", MR_CONTIG, MR_OPTIONAL},
           {"dper_sample", "[B] f32", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"dpred", "like pred", 1, false, MR_CONTIG}},
    .infer = grad_infer,
    .cost = grad_cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(flow_loss_grad)},
    .hidden = true,
    .cases = MR_CASES(
        "pred=[2,8,3,5,7] f32 x0=[2,4,3,5,7] f32 noise=[2,4,3,5,7] f32 weight=[2] f32 dloss=[] f32",
        "pred=[3,2,4,2,3] f32 x0=[3,2,4,2,3] f32 noise=[3,2,4,2,3] f32 weight=[3] f32 mask=[3,4] "
        "bool dloss=[] f32 dper_sample=[3] f32",
        "pred=[2,8,3,5,7] bf16 x0=[2,4,3,5,7] f32 noise=[2,4,3,5,7] f32 weight=[2] f32 0..1 "
        "mask=[2,3] bool dloss=[] f32 1..1"),
};
