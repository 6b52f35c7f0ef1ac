/* bench: times the products of a linear layer as a training step runs them, and the share that
 * packing weights takes. Licence: Apache-2.0 */
#include "moonreel/bench.h"
#include "cpu/cpu.h"
#include "cpu/product.h"

#include <stdio.h>

/* Returns the product for x [m, k], w [n, k], y [m, n]. */
static mr_product_spec spec_of(mr_bench_form form, mr_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    mr_product_spec s = {.batch = 1, .in = dtype, .out = dtype, .m = m, .n = n, .k = k};
    if (form == MR_BENCH_FORWARD)
        s.a_row = k, s.a_col = 1, s.b_row = 1, s.b_col = k;
    if (form == MR_BENCH_DX)
        s.n = k, s.k = n, s.a_row = n, s.a_col = 1, s.b_row = k, s.b_col = 1;
    if (form == MR_BENCH_DW) {
        s.m = n, s.n = k, s.k = m, s.a_row = 1, s.a_col = n, s.b_row = k, s.b_col = 1;
        s.out = MR_F32, s.accumulate = true;
    }
    s.c_row = s.n;
    return s;
}

typedef struct operands {
    void *a, *b, *c, *workspace;
    mr_product *product;
} operands;

/* Times product and packing alternately, so that both see the same load of the machine. */
static mr_status measure(operands *o, bool weights, double seconds, mr_bench_linear *out)
{
    enum { LEAST = 3 };
    double start = mr_now_s(), now = start;
    for (int round = 0; round <= LEAST || now - start < seconds; round++) {
        double from = mr_now_s(), ran;
        MR_TRY(mr_product_run(o->product, o->a, o->b, NULL, o->c, o->workspace));
        ran = now = mr_now_s();
        if (weights) {
            MR_TRY(mr_product_pack(o->product, o->b, o->workspace));
            now = mr_now_s();
        }
        // the first round is a warm-up
        if (round == 1 || ran - from < out->seconds)
            out->seconds = ran - from;
        if (round == 1 || now - ran < out->packing_s)
            out->packing_s = now - ran;
    }
    snprintf(out->how, sizeof out->how, "%s", mr_product_how(o->product));
    return MR_OK;
}

mr_status mr_bench_linear_of(mr_bench_form form, mr_dtype dtype, int threads, int64_t m, int64_t n,
                             int64_t k, double seconds, mr_bench_linear *out)
{
    *out = (mr_bench_linear){0};
    if (m < 1 || n < 1 || k < 1)
        return mr_fail(MR_E_SHAPE,
                       "layer of %lld rows, %lld x %lld: expected each number to be 1 or more",
                       (long long)m, (long long)n, (long long)k);
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), threads);
    mr_product_spec s = spec_of(form, dtype, m, n, k);
    operands o = {0};
    MR_TRY(mr_product_new(&s, &facts, &o.product));
    size_t in = mr_dtype_bytes(s.in), to = mr_dtype_bytes(s.out),
           workspace = mr_product_workspace(&s, &facts);
    o.a = mr_calloc((size_t)(s.m * s.k), in), o.b = mr_calloc((size_t)(s.k * s.n), in);
    o.c = mr_calloc((size_t)(s.m * s.n), to), o.workspace = mr_alloc(workspace);
    mr_status st = o.a && o.b && o.c && o.workspace
                       ? measure(&o, form != MR_BENCH_DW, seconds, out)
                       : mr_fail_memory((size_t)(s.m * s.k + s.k * s.n) * in +
                                        (size_t)(s.m * s.n) * to + workspace);
    mr_product_free(o.product);
    mr_free(o.a), mr_free(o.b), mr_free(o.c), mr_free(o.workspace);
    return st;
}
