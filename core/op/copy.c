/* copy: the same values in dense memory. The graph inserts it before an op that needs denser
 * strides. Any dtype; copies bytes. Licence: Apache-2.0 */
#include "op/define.h"

/* Copy n elements of w bytes. w is a compile-time constant, so each copy is one instruction. */
VF_INLINE void move(char *y, int64_t ys, const char *x, int64_t xs, int64_t n, size_t w)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * ys * (int64_t)w, x + i * xs * (int64_t)w, w);
}

static void part(void *user, const int64_t *at, int64_t n, const int64_t *step)
{
    const mr_call *call = user;
    size_t w = mr_dtype_bytes(call->out[0].desc.dtype);
    char *y = (char *)call->out[0].data + at[0] * (int64_t)w;
    const char *x = (const char *)call->in[0].data + at[1] * (int64_t)w;
    if (step[0] == 1 && step[1] == 1)
        memcpy(y, x, (size_t)n * w);
    else if (w == 2)
        move(y, step[0], x, step[1], n, 2);
    else if (w == 4)
        move(y, step[0], x, step[1], n, 4);
    else if (w == 8)
        move(y, step[0], x, step[1], n, 8);
    else
        move(y, step[0], x, step[1], n, 1);
}

MR_KERNEL(copy)
{
    mr_loop_call(call, 0, 1, part);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    mr_infer_out_like(c, 0, c->in[0]);
    return MR_OK;
}
static mr_status grad(mr_grad *ctx)
{
    ctx->din[0] = ctx->dout[0];
    return MR_OK;
}
static mr_status naive(const mr_call *call)
{
    return mr_view_copy(&call->out[0], &call->in[0]);
}
static void cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop = 0;
}

MR_OP(copy) = {
    .name = "copy",
    .doc = "The same values in dense memory.",
    .in = {{"x", "[...] any dtype", MR_ANY, 0}},
    .out = {{"y", "like x", 0, false, MR_ANY}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(copy)},
    .cases = MR_CASES("x=[3,5,17]/any f32", "x=[2,3,4,5]/any bf16 rtol=1e-9", "x=[7,9]/rows i64",
                      "x=[3,40000] f32", "x=[4,6]/any bool", "x=[3,0,2] f32", "x=[5] i32"),
};
