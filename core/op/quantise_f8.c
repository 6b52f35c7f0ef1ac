/* quantise_f8: converts a tensor to 8-bit floats with one scale, x ~ q scale. The largest magnitude
 * becomes the largest number of the format.
 *
 *   s = largest of the format / largest |x|   (mr_f8_scale: also for zeros, NaN and infinity)
 *   q = round(x s), saturated                 scale = 1 / s      (f32 all of it)
 *
 * GPU products need both operands with the summed dimension innermost. A gradient sums over another
 * dimension than the forward product, so it reads q_t: q as a matrix [rows, C], transposed, padded
 * with zeros to a multiple of 16 columns. Reads x twice. The bits do not depend on the order of
 * work.
 * Licence: Apache-2.0 */
#include "cpu/rows.h"
#include "op/define.h"

typedef struct quantise {
    int64_t dtype;
    bool transposed;
} quantise;

// the number of columns of q_t is a multiple of this, and so is the number of rows of a piece
enum { ALIGNED = 16 };

static int64_t length_of(const mr_desc *x)
{
    return x->dim[x->rank - 1];
}
static int64_t rows_of(const mr_desc *x)
{
    int64_t n = 1;
    for (int i = 0; i < x->rank - 1; i++)
        n *= x->dim[i];
    return n;
}
static int64_t piece_of(const mr_desc *x)
{
    return MR_MAX(65536 / MR_MAX(length_of(x), 1) / ALIGNED, 1) * ALIGNED;
}

static mr_status infer(mr_infer *c)
{
    const quantise *a = c->attr;
    const mr_desc *x = c->in[0];
    const mr_dtype f8 = (mr_dtype)a->dtype;
    if (f8 != MR_F8_E4M3 && f8 != MR_F8_E5M2)
        return mr_fail(MR_E_SHAPE, "dtype is %s, expected f8_e4m3 or f8_e5m2", mr_dtype_name(f8));
    if (x->rank < 1)
        return mr_fail(MR_E_SHAPE, "x is a scalar, expected [..., C]");
    mr_infer_out(c, 0, f8, x->rank, x->dim);
    mr_infer_out(c, 1, MR_F32, 1, (const int64_t[]){1});
    if (a->transposed) {
        int64_t columns = (rows_of(x) + ALIGNED - 1) / ALIGNED * ALIGNED;
        mr_infer_out(c, 2, f8, 2, (const int64_t[]){length_of(x), columns});
    }
    return MR_OK;
}

/* ---- the kernel ---- */

VF_INLINE float element(const mr_view *x, int64_t at, mr_dtype t)
{
    return t == MR_BF16 ? mr_bf16_to_f32(((const uint16_t *)x->data)[at])
                        : ((const float *)x->data)[at];
}

/* The largest magnitude of a piece, compared by bits; the bits of NaN are the largest. */
VF_INLINE void largest(const mr_call *call, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_view *x = &call->in[0];
    const mr_desc *descs[] = {&x->desc};
    mr_rows rows;
    mr_rows_pos pos;
    uint32_t most = 0;
    mr_rows_init(&rows, descs, 1);
    mr_rows_seek(&rows, begin, &pos);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &pos))
        for (int64_t k = 0; k < length_of(&x->desc); k++) {
            uint32_t size = mr_f8_value_bits(element(x, pos.at[0] + k, t)) & 0x7fffffffu;
            most = MR_MAX(most, size);
        }
    ((uint32_t *)call->workspace)[begin / piece_of(&x->desc)] = most;
}
MR_CHUNK(largest_part, largest, 0)

VF_INLINE void codes(const mr_call *call, int64_t begin, int64_t end, mr_dtype t)
{
    const mr_view *x = &call->in[0], *q = &call->out[0], *q_t = &call->out[2];
    const mr_desc *descs[] = {&q->desc, &x->desc};
    const int M = mr_f8_mantissa(q->desc.dtype);
    const int64_t C = length_of(&x->desc);
    const float s = *(const float *)call->workspace;
    mr_rows rows;
    mr_rows_pos pos;
    mr_rows_init(&rows, descs, 2);
    mr_rows_seek(&rows, begin, &pos);
    for (int64_t i = begin; i < end; i++, mr_rows_next(&rows, &pos)) {
        uint8_t *to = (uint8_t *)q->data + pos.at[0];
        for (int64_t k = 0; k < C; k++)
            to[k] = mr_f8_of(element(x, pos.at[1] + k, t) * s, M);
    }
    if (!mr_given(q_t))
        return;
    // write this piece of each row of q_t, with zeros beyond x
    int64_t columns = q_t->desc.dim[1], last = MR_MIN(begin + piece_of(&x->desc), columns);
    for (int64_t k = 0; k < C; k++)
        for (int64_t i = begin; i < last; i++)
            ((uint8_t *)q_t->data)[k * columns + i] =
                i < end ? ((const uint8_t *)q->data)[i * C + k] : 0;
}
MR_CHUNK(codes_part, codes, 0)

MR_KERNEL(quantise_f8)
{
    const mr_desc *x = &call->in[0].desc;
    int64_t n = rows_of(x), piece = piece_of(x);
    uint32_t *sizes = call->workspace, most = 0;
    mr_cpu_for(n, piece, call->threads, largest_part, (void *)call);
    for (int64_t i = 0; i * piece < n; i++)
        most = MR_MAX(most, sizes[i]);
    float s = mr_f8_scale(most, mr_f8_mantissa(call->out[0].desc.dtype));
    *(float *)call->workspace = s;
    *(float *)call->out[1].data = 1.0f / s;
    mr_cpu_for(n, piece, call->threads, codes_part, (void *)call);
    return MR_OK;
}

static size_t workspace(const mr_call *call, const mr_facts *facts)
{
    (void)facts;
    const mr_desc *x = &call->in[0].desc;
    return (size_t)MR_MAX((rows_of(x) + piece_of(x) - 1) / piece_of(x), 1) * sizeof(uint32_t);
}

/* ---- reference ---- */

static mr_status naive(const mr_call *call)
{
    const quantise *a = call->attr;
    const mr_dtype f8 = (mr_dtype)a->dtype;
    const double *x = call->in[0].data;
    double *q = call->out[0].data, most = 0;
    bool finite = true;
    int64_t n = mr_desc_count(&call->in[0].desc);
    for (int64_t i = 0; i < n; i++) {
        finite = finite && isfinite((float)x[i]);
        most = fmax(most, fabs(x[i]));
    }
    float largest = f8 == MR_F8_E4M3 ? 448 : 57344,
          s = finite ? largest / fmaxf((float)most, 1e-12f) : NAN;
    for (int64_t i = 0; i < n; i++)
        q[i] = mr_f8_to_f32(f8, mr_f32_to_f8(f8, (float)x[i] * s));
    *(double *)call->out[1].data = 1 / s;
    const mr_view *q_t = &call->out[2];
    int64_t C = length_of(&call->in[0].desc), rows = rows_of(&call->in[0].desc);
    for (int64_t i = 0, end = mr_given(q_t) ? mr_desc_count(&q_t->desc) : 0; i < end; i++) {
        int64_t row = i % q_t->desc.dim[1], column = i / q_t->desc.dim[1];
        ((double *)q_t->data)[i] = row < rows ? q[row * C + column] : 0;
    }
    return MR_OK;
}

MR_OP(quantise_f8) = {
    .name = "quantise_f8",
    .doc = "A tensor as 8-bit floats and their scale: the largest magnitude becomes the largest "
           "number of the format.",
    .ref = "torchao v0.9, float8: dynamic tensorwise scaling; arXiv:2209.05433",
    .in = {{"x", "[..., C] f32|bf16", MR_ROWS, MR_NO_GRAD}},
    .out = {{"q", "[..., C] f8_e4m3|f8_e5m2", 0, false, MR_CONTIG},
            {"scale", "[1] f32", 0, false, MR_CONTIG},
            {"q_t", "[C, rows] f8_e4m3|f8_e5m2", 0, false, MR_CONTIG}},
    .attr = {{"dtype", MR_ATTR_I64, offsetof(quantise, dtype), .def = MR_F8_E4M3, .min = 0,
              .max = MR_DTYPE_COUNT - 1, .doc = "dtype code"},
             {"transposed", MR_ATTR_BOOL, offsetof(quantise, transposed),
              .doc = "output q_t as well: q of all rows, transposed, padded with zeros to a "
                     "multiple of 16"}},
    .infer = infer,
    .naive = naive,
    .cpu = {.run = MR_CPU(quantise_f8), .workspace = workspace},
    .cases = MR_CASES("x=[3,7,33]/rows f32 -5..3 transposed=1", "x=[40,64] f32 -1e-3..2e-3",
                      "x=[2,35,48] bf16 -30..3 dtype=f8_e5m2 transposed=1",
                      "x=[70,41]/rows bf16 dtype=f8_e5m2", "x=[1,5] f32 1e-30..1e-30 transposed=1",
                      "x=[4,16] bf16 0..0", "x=[0,8] f32 transposed=1", "x=[3,4] f32 nan..nan",
                      "x=[3,4] bf16 inf..inf dtype=f8_e5m2 transposed=1",
                      // several pieces, each with its part of q_t
                      "x=[600,130] bf16 -3..3 transposed=1", "x=[16,0] bf16 transposed=1"),
};
