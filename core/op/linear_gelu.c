/* linear_gelu: y = gelu_tanh(h), h = x w^T + b, and linear_dx_gelu: dh = (dy w) gelu_tanh'(h)
 *
 * What a finished graph has instead of linear and gelu_tanh, and of linear_dx and gelu_tanh_grad
 * (mr_fusion): libraries of GPUs do both at once, and h passes through memory only where somebody
 * reads it. On a CPU the two kernels run one after the other, with the bits that they have alone:
 * sums that nobody keeps lie in the place of the output, or, as they lay then, dense in the
 * workspace. Licence: Apache-2.0 */
#include "op/row.h"

typedef struct attr {
    bool keep;
} attr;

static bool kept(const mr_call *call)
{
    return call->n_out > 1 && call->out[1].desc.rank >= 0;
}

/* Bytes of dense sums in the workspace. */
static size_t aside(const mr_call *call)
{
    const mr_desc *y = &call->out[0].desc;
    return kept(call) || mr_desc_is_dense(y)
               ? 0
               : ((size_t)mr_desc_count(y) * mr_dtype_bytes(y->dtype) + 63) & ~(size_t)63;
}

/* Where the first row's result lies. */
static mr_view sums_of(const mr_call *call)
{
    const mr_desc *y = &call->out[0].desc;
    if (aside(call))
        return (mr_view){call->workspace, mr_desc_dense(y->dtype, y->rank, y->dim)};
    return call->out[kept(call)];
}

/* The call of the first row: n_in inputs, its sums. */
static mr_call first_of(const mr_call *call, int n_in)
{
    mr_call c = *call;
    for (int i = n_in; i < MR_MAX_IN; i++)
        c.in[i] = (mr_view){.desc.rank = -1};
    c.out[0] = sums_of(call);
    c.out[1].desc.rank = -1;
    c.n_in = n_in, c.n_out = 1, c.attr = NULL;
    if (c.workspace)
        c.workspace = (char *)c.workspace + aside(call);
    return c;
}

/* The call of the second row. */
static mr_call second_of(const mr_call *call, const mr_view *in, int n_in)
{
    mr_call c = *call;
    for (int i = 0; i < n_in; i++)
        c.in[i] = in[i];
    c.n_in = n_in, c.n_out = 1, c.attr = NULL, c.workspace = c.state = NULL;
    return c;
}

/* ---- linear_gelu ---- */

static mr_call linear_of(const mr_call *call)
{
    return first_of(call, 3);
}
static mr_call gelu_of(const mr_call *call)
{
    mr_view sums = sums_of(call);
    return second_of(call, &sums, 1);
}

static mr_status infer(mr_infer *c)
{
    const attr *a = c->attr;
    MR_TRY(mr_op_find("linear")->infer(c));
    if (a->keep)
        c->out[1] = c->out[0];
    return MR_OK;
}

static mr_status prepare(const mr_call *call, const mr_facts *facts, void **state)
{
    mr_call c = linear_of(call);
    return mr_op_find("linear")->cpu.prepare(&c, facts, state);
}
static void release(void *state)
{
    mr_op_find("linear")->cpu.release(state);
}
static size_t workspace(const mr_call *call, const mr_facts *facts)
{
    mr_call c = linear_of(call);
    return aside(call) + mr_op_find("linear")->cpu.workspace(&c, facts);
}
static const char *way(const mr_call *call, const mr_facts *facts)
{
    mr_call c = linear_of(call);
    return mr_op_find("linear")->cpu.way(&c, facts);
}

mr_kernel_fn MR_CAT3(mr_k_linear, _, MR_ISA), MR_CAT3(mr_k_gelu_tanh, _, MR_ISA);
MR_KERNEL(linear_gelu)
{
    mr_call first = linear_of(call), second = gelu_of(call);
    MR_TRY(MR_CAT3(mr_k_linear, _, MR_ISA)(&first));
    return MR_CAT3(mr_k_gelu_tanh, _, MR_ISA)(&second);
}

static mr_status naive(const mr_call *call)
{
    mr_call first = linear_of(call), second = gelu_of(call);
    MR_TRY(mr_op_find("linear")->naive(&first));
    return mr_op_find("gelu_tanh")->naive(&second);
}

// the operations of the product, which are what takes time
static void cost(const mr_call *call, mr_cost *cost)
{
    mr_call first = linear_of(call);
    cost->flop = mr_op_cost(mr_op_find("linear"), &first).flop;
}

/* ---- linear_dx_gelu ---- */

static mr_call dx_of(const mr_call *call)
{
    return first_of(call, 2);
}
static mr_call slope_of(const mr_call *call)
{
    return second_of(call, (const mr_view[]){call->in[2], sums_of(call)}, 2);
}

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

static mr_status dx_prepare(const mr_call *call, const mr_facts *facts, void **state)
{
    mr_call c = dx_of(call);
    return mr_op_find("linear_dx")->cpu.prepare(&c, facts, state);
}
static size_t dx_workspace(const mr_call *call, const mr_facts *facts)
{
    mr_call c = dx_of(call);
    return aside(call) + mr_op_find("linear_dx")->cpu.workspace(&c, facts);
}
static const char *dx_way(const mr_call *call, const mr_facts *facts)
{
    mr_call c = dx_of(call);
    return mr_op_find("linear_dx")->cpu.way(&c, facts);
}

mr_kernel_fn MR_CAT3(mr_k_linear_dx, _, MR_ISA), MR_CAT3(mr_k_gelu_tanh_grad, _, MR_ISA);
MR_KERNEL(linear_dx_gelu)
{
    mr_call first = dx_of(call), second = slope_of(call);
    MR_TRY(MR_CAT3(mr_k_linear_dx, _, MR_ISA)(&first));
    return MR_CAT3(mr_k_gelu_tanh_grad, _, MR_ISA)(&second);
}

static mr_status dx_naive(const mr_call *call)
{
    mr_call first = dx_of(call), second = slope_of(call);
    MR_TRY(mr_op_find("linear_dx")->naive(&first));
    return mr_op_find("gelu_tanh_grad")->naive(&second);
}

static void dx_cost(const mr_call *call, mr_cost *cost)
{
    mr_call first = dx_of(call);
    cost->flop = mr_op_cost(mr_op_find("linear_dx"), &first).flop;
}

/* ---- rows of the table ---- */

#define PRODUCT_TOL .tol_f32 = 5e-6, .tol_reason = "f32 sums over k in the library's order"

MR_OP(linear_gelu) = {
    .name = "linear_gelu",
    .doc = "gelu_tanh of linear, and, with keep, what it was taken of.",
    .in = {{"x", "[..., K] f32|bf16", MR_ROWS, 0},
           {"w", "[N, K] like x", MR_CONTIG, 0},
           {"b", "[N] like x", MR_CONTIG, MR_OPTIONAL}},
    .out = {{"y", "[..., N] like x", 0, false, MR_ROWS},
            {"h", "[..., N] like x", 0, false, MR_ROWS}},
    .attr = {{"keep", MR_ATTR_BOOL, offsetof(attr, keep), .doc = "h is wanted"}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(linear_gelu),
            .prepare = prepare,
            .release = release,
            .workspace = workspace,
            .way = way},
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
    .doc =
        "Gradient of h through gelu_tanh and a linear behind it: dy times w, times gelu_tanh'(h).",
    .in = {{"dy", "[..., N] f32|bf16", MR_ROWS, 0},
           {"w", "[N, K] like dy", MR_CONTIG, 0},
           {"h", "[..., K] like dy", MR_ANY, 0}},
    .out = {{"dh", "[..., K] like dy", 0, false, MR_ROWS}},
    .infer = dx_infer,
    .cost = dx_cost,
    .naive = dx_naive,
    .cpu = {.run = MR_CPU(linear_dx_gelu),
            .prepare = dx_prepare,
            .release = release,
            .workspace = dx_workspace,
            .way = dx_way},
    .hidden = true,
    PRODUCT_TOL,
    .cases = MR_CASES("dy=[3,7,20]/rows f32 w=[20,33] f32 h=[3,7,33] f32 -3..3",
                      "dy=[150,48] f32 w=[48,64] f32 h=[150,64]/any f32 -3..3",
                      "dy=[130,72]/rows bf16 w=[72,96] bf16 h=[130,96]/rows bf16 -3..3",
                      "dy=[70,40] bf16 w=[40,260] bf16 h=[70,260] bf16 -3..3"),
};
