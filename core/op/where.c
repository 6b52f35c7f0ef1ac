/* where: y = mask ? a : b. Licence: Apache-2.0 */
#include "op/define.h"

/* Values are selected, not computed, so they are copied as integers of their width. Both sides are
 * always read, so that the loop has no branch and is vectorised. */
#define PICK(word)                                                                                 \
    VF_INLINE void pick_##word(const mr_call *call, const int64_t *at, int64_t n,                  \
                               const int64_t *step)                                                \
    {                                                                                              \
        word *y = (word *)call->out[0].data + at[0];                                               \
        const uint8_t *mask = (const uint8_t *)call->in[0].data + at[1];                           \
        const word *a = (const word *)call->in[1].data + at[2];                                    \
        const word *b = (const word *)call->in[2].data + at[3];                                    \
        for (int64_t i = 0; i < n; i++) {                                                          \
            word yes = a[i * step[2]], no = b[i * step[3]];                                        \
            y[i * step[0]] = mask[i * step[1]] ? yes : no;                                         \
        }                                                                                          \
    }
PICK(uint16_t)
PICK(uint32_t)

static void part(void *user, const int64_t *at, int64_t n, const int64_t *step)
{
    static const int64_t ones[] = {1, 1, 1, 1};
    const mr_call *call = user;
    bool plain = memcmp(step, ones, sizeof ones) == 0;
    if (call->out[0].desc.dtype == MR_BF16 && plain)
        pick_uint16_t(call, at, n, ones);
    else if (call->out[0].desc.dtype == MR_BF16)
        pick_uint16_t(call, at, n, step);
    else if (plain)
        pick_uint32_t(call, at, n, ones);
    else
        pick_uint32_t(call, at, n, step);
}

MR_KERNEL(where)
{
    mr_loop_call(call, 0, 3, part);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    MR_TRY(mr_infer_same(c->in[1], "a", c->in[2], "b"));
    MR_TRY(mr_infer_same_shape(c->in[1], "a", c->in[0], "mask"));
    mr_infer_out_like(c, 0, c->in[1]);
    return MR_OK;
}

static mr_status grad(mr_grad *ctx)
{
    mr_ref none;
    MR_TRY(mr_grad_op(ctx, "affine", MR_ATTRS({"scale", .f = 0}), &ctx->dout[0], 1, &none));
    if (ctx->need[1])
        MR_TRY(mr_grad_node(ctx, 1, "where", ctx->in[0], ctx->dout[0], none));
    if (ctx->need[2])
        MR_TRY(mr_grad_node(ctx, 2, "where", ctx->in[0], none, ctx->dout[0]));
    return MR_OK;
}

static mr_status naive(const mr_call *call)
{
    const uint8_t *mask = call->in[0].data;
    const double *a = call->in[1].data, *b = call->in[2].data;
    double *y = call->out[0].data;
    for (int64_t i = 0, n = mr_desc_count(&call->out[0].desc); i < n; i++)
        y[i] = mask[i] ? a[i] : b[i];
    return MR_OK;
}

MR_OP(where) = {
    .name = "where",
    .doc = "a where the mask is true, else b; equal shapes.",
    .in = {{"mask", "[...] bool", MR_ANY, 0},
           {"a", "[...] f32|bf16", MR_ANY, 0},
           {"b", "like a", MR_ANY, 0}},
    .out = {{"y", "like a", 0, false, MR_ANY}},
    .infer = infer,
    .grad = grad,
    .naive = naive,
    .cpu = {.run = MR_CPU(where)},
    .cases = MR_CASES("mask=[3,5,17]/any bool a=[3,5,17] f32 b=[3,5,17]/any f32",
                      "mask=[4,65] bool a=[4,65] bf16 b=[4,65] bf16"),
};
