/* unpatchify: puts tokens of one patch each back into [B, C, T, H, W], cropped to the given sizes.
 * It is the adjoint of patchify. Copies bytes once. Licence: Apache-2.0 */
#include "op/patch.h"

MR_KERNEL(unpatchify)
{
    return patch_run(call, &call->out[0], &call->in[0], false);
}
static mr_status naive(const mr_call *call)
{
    return patch_naive(call, &call->out[0], &call->in[0], false);
}

static mr_status infer(mr_infer *c)
{
    const patch_attrs *a = c->attr;
    char text[128];
    MR_TRY(mr_infer_rank(c->in[0], "x", 4));
    const int64_t *x = c->in[0]->dim, *d = a->dims.v;
    if (a->dims.n != 4)
        return mr_fail(MR_E_SHAPE, "dims has %lld numbers, expected C, T, H, W",
                       (long long)a->dims.n);
    if (x[1] != patch_ceil(d[1], a->pt) ||
        x[2] != patch_ceil(d[2], a->ph) * patch_ceil(d[3], a->pw) ||
        x[3] != d[0] * a->pt * a->ph * a->pw)
        return mr_fail(MR_E_SHAPE,
                       "x is %s; for C, T, H, W = %lld, %lld, %lld, %lld and patches of "
                       "%lldx%lldx%lld expected [B, %lld, %lld, %lld]",
                       mr_desc_text(c->in[0], text, sizeof text), (long long)d[0], (long long)d[1],
                       (long long)d[2], (long long)d[3], (long long)a->pt, (long long)a->ph,
                       (long long)a->pw, (long long)patch_ceil(d[1], a->pt),
                       (long long)(patch_ceil(d[2], a->ph) * patch_ceil(d[3], a->pw)),
                       (long long)(d[0] * a->pt * a->ph * a->pw));
    mr_infer_out(c, 0, c->in[0]->dtype, 5, (int64_t[]){x[0], d[0], d[1], d[2], d[3]});
    return MR_OK;
}

static mr_status grad(mr_grad *ctx)
{
    const patch_attrs *a = ctx->attr;
    return mr_grad_op(ctx, "patchify",
                      MR_ATTRS({"pt", .i = a->pt}, {"ph", .i = a->ph}, {"pw", .i = a->pw},
                               {"channel_last", .i = a->channel_last}),
                      &ctx->dout[0], 1, &ctx->din[0]);
}

MR_OP(unpatchify) = {
    .name = "unpatchify",
    .doc = "Put tokens [B, T', H'*W', pt*ph*pw*C] back into [B, C, T, H, W], cropped.",
    .ref = "Open-Sora 1.2, STDiT3 unpatchify (channel fastest)",
    .in = {{"x", "[B, T', H'*W', pt*ph*pw*C] any dtype", MR_CONTIG, 0}},
    .out = {{"y", "[B, C, T, H, W] like x", 0, false, MR_CONTIG}},
    .attr = {PATCH_ATTRS,
             {"channel_last", MR_ATTR_BOOL, offsetof(patch_attrs, channel_last), 1, 0, 0, false,
              "inner order (pt, ph, pw, c); else (c, pt, ph, pw)"},
             {"dims", MR_ATTR_INTS, offsetof(patch_attrs, dims), 0, 0, 0, true, "C, T, H, W"}},
    .infer = infer,
    .grad = grad,
    .cost = patch_cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(unpatchify)},
    .cases = MR_CASES("x=[2,3,12,16] f32 ph=2 pw=2 dims={4,3,5,7}",
                      "x=[1,3,2,384] bf16 pt=2 ph=8 pw=8 dims={3,5,8,16} channel_last=0 rtol=1e-9"),
};
