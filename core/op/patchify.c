/* patchify: splits latents into tokens of one patch each, with zeros beyond the end of T, H and W.
 * With the weight [D, C, pt, ph, pw] viewed as [D, C*pt*ph*pw], linear(patchify(x)) is a
 * convolution whose kernel equals its stride. Copies bytes once. Licence: Apache-2.0 */
#include "op/patch.h"

MR_KERNEL(patchify)
{
    return patch_run(call, &call->in[0], &call->out[0], true);
}
static mr_status naive(const mr_call *call)
{
    return patch_naive(call, &call->in[0], &call->out[0], true);
}

static mr_status infer(mr_infer *c)
{
    const patch_attrs *a = c->attr;
    MR_TRY(mr_infer_rank(c->in[0], "x", 5));
    const int64_t *d = c->in[0]->dim;
    mr_infer_out(c, 0, c->in[0]->dtype, 4,
                 (int64_t[]){d[0], patch_ceil(d[2], a->pt),
                             patch_ceil(d[3], a->ph) * patch_ceil(d[4], a->pw),
                             d[1] * a->pt * a->ph * a->pw});
    return MR_OK;
}

static mr_status grad(mr_grad *ctx)
{
    const patch_attrs *a = ctx->attr;
    const mr_desc *x = mr_grad_desc(ctx, ctx->in[0]);
    mr_ints dims = {4, {x->dim[1], x->dim[2], x->dim[3], x->dim[4]}};
    return mr_grad_op(ctx, "unpatchify",
                      MR_ATTRS({"pt", .i = a->pt}, {"ph", .i = a->ph}, {"pw", .i = a->pw},
                               {"channel_last", .i = a->channel_last}, {"dims", .ints = &dims}),
                      &ctx->dout[0], 1, &ctx->din[0]);
}

MR_OP(patchify) = {
    .name = "patchify",
    .doc =
        "Split [B, C, T, H, W] into tokens [B, T', H'*W', C*pt*ph*pw], with zeros beyond the end.",
    .ref = "Open-Sora 1.2, STDiT3 patch embedding",
    .in = {{"x", "[B, C, T, H, W] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "[B, T', H'*W', C*pt*ph*pw] like x", 0, false, MR_CONTIG}},
    .attr = {PATCH_ATTRS,
             {"channel_last", MR_ATTR_BOOL, offsetof(patch_attrs, channel_last), 0, 0, 0, false,
              "inner order (pt, ph, pw, c) instead of (c, pt, ph, pw)"}},
    .infer = infer,
    .grad = grad,
    .cost = patch_cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(patchify)},
    .cases = MR_CASES("x=[2,4,3,5,7] f32 pt=1 ph=2 pw=2",
                      "x=[1,3,5,8,16] bf16 pt=2 ph=8 pw=8 rtol=1e-9",
                      "x=[2,4,1,6,4] f32 pt=1 ph=2 pw=2 channel_last=1"),
};
