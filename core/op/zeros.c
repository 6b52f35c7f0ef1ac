/* zeros: a new tensor of zeros. Licence: Apache-2.0 */
#include "op/define.h"

typedef struct zeros {
    int64_t dtype;
    mr_ints dims;
} zeros;

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    memset((char *)user + begin, 0, (size_t)(end - begin));
}

MR_KERNEL(zeros)
{
    mr_cpu_for((int64_t)mr_desc_span_bytes(&call->out[0].desc), 1 << 18, call->threads, part,
               call->out[0].data);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const zeros *a = c->attr;
    for (int64_t i = 0; i < a->dims.n; i++)
        if (a->dims.v[i] < 0)
            return mr_fail(MR_E_SHAPE, "dims has %lld, expected 0 or more",
                           (long long)a->dims.v[i]);
    mr_infer_out(c, 0, (mr_dtype)a->dtype, (int)a->dims.n, a->dims.v);
    return MR_OK;
}
static mr_status naive(const mr_call *call)
{
    const size_t bytes = mr_desc_span_bytes(&call->out[0].desc);
    if (bytes) // an empty tensor has no data
        memset(call->out[0].data, 0, bytes);
    return MR_OK;
}
static void cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop = 0;
}

MR_OP(zeros) = {
    .name = "zeros",
    .doc = "A tensor of zeros with the given shape.",
    .out = {{"y", "[dims] of the asked dtype", 0, false, MR_CONTIG}},
    .attr = {{"dtype", MR_ATTR_I64, offsetof(zeros, dtype), .def = MR_F32, .min = 0,
              .max = MR_DTYPE_COUNT - 1, .doc = "dtype code"},
             {"dims", MR_ATTR_INTS, offsetof(zeros, dims), .doc = "the shape; empty for a scalar"}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(zeros)},
    .cases = MR_CASES("dtype=f32 dims={3,5}", "dtype=bf16 dims={700,1001}", "dtype=i32"),
};
