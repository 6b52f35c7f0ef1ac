/* linear_gelu: y = gelu_tanh(h), h = x w^T + b, and linear_dx_gelu: dh = (dy w) gelu_tanh'(h)
 *
 * In a finished graph they replace linear + gelu_tanh and linear_dx + gelu_tanh_grad (mr_fusion).
 * GPU libraries compute both in one kernel, and h is stored only if another node reads it. A CPU
 * runs the two kernels one after the other, with the same bits as the two ops. If h is not kept, it
 * is stored in the output; if the output is not dense, in the workspace. Licence: Apache-2.0 */
#include "op/linear.h"

typedef struct attr {
    bool keep;
} attr;

static bool kept(const mr_call *call)
{
    return call->n_out > 1 && call->out[1].desc.rank >= 0;
}

/* Bytes of workspace for h; 0 if an output stores it. */
static size_t aside(const mr_call *call)
{
    const mr_desc *y = &call->out[0].desc;
    return kept(call) || mr_desc_is_dense(y) ? 0 : product_dense_bytes(mr_desc_count(y), y->dtype);
}

/* The view that stores the result of the product. */
static mr_view sums_of(const mr_call *call)
{
    const mr_desc *y = &call->out[0].desc;
    if (aside(call))
        return (mr_view){call->workspace, mr_desc_dense(y->dtype, y->rank, y->dim)};
    return call->out[kept(call)];
}

/* The call of one of the two ops, without attributes, state and workspace. */
static mr_call part_of(const mr_call *call, const mr_view *in, int n_in, const mr_view *out)
{
    mr_call c = *call;
    for (int i = 0; i < MR_MAX_IN; i++)
        c.in[i] = i < n_in ? in[i] : (mr_view){.desc.rank = -1};
    c.out[0] = *out;
    c.out[1].desc.rank = -1;
    c.n_in = n_in, c.n_out = 1, c.attr = NULL, c.workspace = c.state = NULL;
    return c;
}

/* ---- linear_gelu ---- */

static mr_status infer(mr_infer *c)
{
    const attr *a = c->attr;
    MR_TRY(mr_op_find("linear")->infer(c));
    if (a->keep)
        c->out[1] = c->out[0];
    return MR_OK;
}

static product_shape linear_gelu_shape(const mr_call *call)
{
    mr_view h = sums_of(call);
    return product_shape_of(call, &h.desc, true, call->in[2].desc.rank >= 0, aside(call));
}
PRODUCT_BEFORE(linear_gelu)

mr_kernel_fn MR_CAT3(mr_k_gelu_tanh, _, MR_ISA);
MR_KERNEL(linear_gelu)
{
    mr_view h = sums_of(call);
    mr_call gelu = part_of(call, &h, 1, &call->out[0]);
    MR_TRY(product_run(call, call->in[2].data, &h));
    return MR_CAT3(mr_k_gelu_tanh, _, MR_ISA)(&gelu);
}

static mr_status naive(const mr_call *call)
{
    mr_view h = sums_of(call);
    mr_call linear = part_of(call, call->in, 3, &h), gelu = part_of(call, &h, 1, &call->out[0]);
    MR_TRY(mr_op_find("linear")->naive(&linear));
    return mr_op_find("gelu_tanh")->naive(&gelu);
}

/* ---- linear_dx_gelu ---- */

static mr_status dx_infer(mr_infer *c)
{
    char th[128], tx[128];
    const mr_desc *h = c->in[2];
    MR_TRY(mr_op_find("linear_dx")->infer(c));
    if (mr_desc_same_shape(h, &c->out[0]) && h->dtype == c->out[0].dtype)
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "h is %s, expected %s, the shape of dy w",
                   mr_desc_text(h, th, sizeof th), mr_desc_text(&c->out[0], tx, sizeof tx));
}

static product_shape linear_dx_gelu_shape(const mr_call *call)
{
    mr_view sums = sums_of(call);
    return product_shape_of(call, &sums.desc, false, false, aside(call));
}
PRODUCT_BEFORE(linear_dx_gelu)

/* The call of gelu_tanh_grad at h with the result of the product as dy. */
static mr_call slope_of(const mr_call *call, const mr_view *sums)
{
    return part_of(call, (const mr_view[]){call->in[2], *sums}, 2, &call->out[0]);
}

mr_kernel_fn MR_CAT3(mr_k_gelu_tanh_grad, _, MR_ISA);
MR_KERNEL(linear_dx_gelu)
{
    mr_view sums = sums_of(call);
    mr_call slope = slope_of(call, &sums);
    MR_TRY(product_run(call, NULL, &sums));
    return MR_CAT3(mr_k_gelu_tanh_grad, _, MR_ISA)(&slope);
}

static mr_status dx_naive(const mr_call *call)
{
    mr_view sums = sums_of(call);
    mr_call dx = part_of(call, call->in, 2, &sums), slope = slope_of(call, &sums);
    MR_TRY(mr_op_find("linear_dx")->naive(&dx));
    return mr_op_find("gelu_tanh_grad")->naive(&slope);
}

/* ---- definitions ---- */

MR_OP(linear_gelu) = {
    .name = "linear_gelu",
    .doc = "gelu_tanh of linear; with keep, h = linear as well.",
    .in = {{"x", "[..., K] f32|bf16", MR_ROWS, 0},
           {"w", "[N, K] like x", MR_CONTIG, 0},
           {"b", "[N] like x", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"y", "[..., N] like x", 0, false, MR_ROWS},
            {"h", "[..., N] like x", 0, false, MR_ROWS}},
    .attr = {{"keep", MR_ATTR_BOOL, offsetof(attr, keep), .doc = "output h as well"}},
    .infer = infer,
    .cost = linear_gelu_cost,
    .naive = naive,
    .cpu = PRODUCT_CPU(linear_gelu),
    .hidden = true,
    PRODUCT_TOL,
    .cases = MR_CASES("x=[3,7,33]/rows f32 w=[20,33] f32 b=[20] f32 keep=1",
                      "x=[150,64] f32 w=[48,64] f32", "x=[1,5] f32 w=[3,5] f32 keep=1",
                      "x=[0,8] f32 w=[4,8] f32", "x=[130,96] bf16 w=[72,96] bf16 b=[72] bf16",
                      "x=[3,9,40]/rows bf16 w=[24,40] bf16 keep=1",
                      "x=[70,96] bf16 w=[260,96] bf16 b=[260] bf16 keep=1"),
};
MR_OP(linear_dx_gelu) = {
    .name = "linear_dx_gelu",
    .doc = "Gradient with respect to h through gelu_tanh and the linear after it: dy times w, "
           "times gelu_tanh'(h).",
    .in = {{"dy", "[..., N] f32|bf16", MR_ROWS, 0},
           {"w", "[N, K] like dy", MR_CONTIG, 0},
           {"h", "[..., K] like dy", MR_ANY, 0}},
    .out = {{"dh", "[..., K] like dy", 0, false, MR_ROWS}},
    .infer = dx_infer,
    .cost = linear_dx_gelu_cost,
    .naive = dx_naive,
    .cpu = PRODUCT_CPU(linear_dx_gelu),
    .hidden = true,
    PRODUCT_TOL,
    .cases = MR_CASES("dy=[3,7,20]/rows f32 w=[20,33] f32 h=[3,7,33] f32 -3..3",
                      "dy=[150,48] f32 w=[48,64] f32 h=[150,64]/any f32 -3..3",
                      "dy=[130,72]/rows bf16 w=[72,96] bf16 h=[130,96]/rows bf16 -3..3",
                      "dy=[70,40] bf16 w=[40,260] bf16 h=[70,260] bf16 -3..3"),
};
