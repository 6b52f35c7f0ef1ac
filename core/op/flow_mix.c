/* flow_mix: x_t = (1 - t/1000) x0 + (t/1000) noise; frames where the mask is false keep x0.
 *
 *   x0, noise, x_t [B, C, T, H, W] f32   t [B] f32, 0 clean .. 1000 pure noise   mask [B, T] bool
 * Reads and writes 3 elements per element. */
#include "cpu/rows.h"
#include "op/define.h"

static mr_status infer(mr_infer *c)
{
    const mr_desc *x = c->in[0], *t = c->in[2], *mask = c->in[3];
    if (x->rank != 5 || !mr_desc_same_shape(x, c->in[1]))
        return mr_fail(MR_E_SHAPE, "expected x0 and noise [B, C, T, H, W]");
    if (t->rank != 1 || t->dim[0] != x->dim[0])
        return mr_fail(MR_E_SHAPE, "expected t [B] with B of x0");
    if (mask && (mask->rank != 2 || mask->dim[0] != x->dim[0] || mask->dim[1] != x->dim[2]))
        return mr_fail(MR_E_SHAPE, "expected mask [B, T] with B and T of x0");
    c->out[0] = *x;
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[0].desc);
    *cost = (mr_cost){3 * n, 12 * n};
}

static mr_status naive(const mr_call *c)
{
    const int64_t *n = c->in[0].desc.dim;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t t = 0; t < n[2]; t++) {
            bool noised = !mr_given(&c->in[3]) || ((const bool *)c->in[3].data)[b * n[2] + t];
            double u = noised ? *mr_el(&c->in[2], b, 0, 0, 0, 0) / 1000 : 0;
            for (int64_t k = 0; k < n[1]; k++)
                for (int64_t y = 0; y < n[3]; y++)
                    for (int64_t x = 0; x < n[4]; x++)
                        *mr_el(&c->out[0], b, k, t, y, x) =
                            (1 - u) * *mr_el(&c->in[0], b, k, t, y, x) +
                            u * *mr_el(&c->in[1], b, k, t, y, x);
        }
    return MR_OK;
}

static void planes(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    const int64_t *n = c->in[0].desc.dim, plane = n[3] * n[4];
    const bool *mask = c->in[3].data;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / (n[1] * n[2]), t = i % n[2];
        const float *x0 = (const float *)c->in[0].data + i * plane,
                    *noise = (const float *)c->in[1].data + i * plane;
        float *xt = (float *)c->out[0].data + i * plane,
              u = ((const float *)c->in[2].data)[b] / 1000.0f;
        if (mask && !mask[b * n[2] + t]) {
            memmove(xt, x0, (size_t)plane * 4);
            continue;
        }
        for (int64_t k = 0; k < plane; k++)
            xt[k] = (1.0f - u) * x0[k] + u * noise[k];
    }
}

MR_KERNEL(flow_mix)
{
    const int64_t *n = call->in[0].desc.dim;
    mr_cpu_for(n[0] * n[1] * n[2], 4, call->threads, planes, (void *)call);
    return MR_OK;
}

MR_OP(flow_mix) = {
    .name = "flow_mix",
    .doc = "Mix clean latents with noise at time t on the straight line between them; masked-out "
           "frames stay clean.",
    .ref = "Liu et al. 2022, arXiv:2209.03003; Open-Sora 1.2 rectified flow",
    .in = {{"x0", "[B, C, T, H, W] f32", MR_CONTIG, 0},
           {"noise", "[B, C, T, H, W] f32", MR_CONTIG, 0},
           {"t", "[B] f32", MR_CONTIG, MR_NO_GRAD},
           {"mask", "[B, T] bool", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD}},
    .out = {{"x_t", "like x0", 1, false, MR_CONTIG}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(flow_mix)},
    .cases =
        MR_CASES("x0=[2,4,3,5,7] f32 noise=[2,4,3,5,7] f32 t=[2] f32 0..1000",
                 "x0=[2,1,3,2,3] f32 noise=[2,1,3,2,3] f32 t=[2] f32 0..1000 mask=[2,3] bool",
                 "x0=[1,4,1,9,16] f32 noise=[1,4,1,9,16] f32 t=[1] f32 0..1000 mask=[1,1] bool"),
};
