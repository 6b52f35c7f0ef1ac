/* sincos: the sinusoidal embedding of scalars: [cos(v f_k) | sin(v f_k)], f_k = max_period^(-k /
 * (dim/2)). Position tables put the sine first. Small and run once per shape or step.
 *
 * The kernel computes the exponent, f_k and the angle v f_k in f32, as the reference does, and the
 * sine and cosine of that angle in f64, rounded to f32. The naive kernel computes all in f64: at v
 * = 1000 the two differ by up to 3e-5. Licence: Apache-2.0 */
#include "op/define.h"

#include <math.h>

typedef struct attrs {
    int64_t dim;
    double max_period;
    bool sin_first;
} attrs;

static double frequency(const attrs *a, int64_t k)
{
    return exp(-log(a->max_period) * (double)k / (double)(a->dim / 2));
}

/* e^x to one unit in the last place: x = q ln 2 + r, then the minimax polynomial of the vector
 * library that the reference uses. A more precise one would shift phases at t = 1000 by 3e-5. Ref:
 * SLEEF expf, 1.0 ulp. */
static float exp_f32(float x)
{
    static const float c[] = {0.000198527617612853646f, 0.00139304355252534151f,
                              0.00833336077630519867f,  0.0416664853692054749f,
                              0.166666671633720398f,    0.5f};
    float q = rintf(x * 1.44269504088896341f);
    float r = fmaf(q, -1.42860676533018705e-6f, fmaf(q, -0.693145751953125f, x));
    float u = c[0];
    for (int i = 1; i < 6; i++)
        u = fmaf(u, r, c[i]);
    return ldexpf(1 + fmaf(r * r, u, r), (int)q);
}

typedef struct job {
    const mr_call *call;
} job;

static void rows(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *call = ((job *)user)->call;
    const attrs *a = call->attr;
    (void)worker;
    int64_t half = a->dim / 2;
    for (int64_t k = 0; k < half; k++) {
        // as in the reference, exponent, frequency and angle are f32
        float f = exp_f32((float)-log(a->max_period) * (float)k / (float)half);
        for (int64_t i = begin; i < end; i++) {
            float *y = (float *)call->out[0].data + i * a->dim,
                  p = ((const float *)call->in[0].data)[i] * f;
            y[k + (a->sin_first ? half : 0)] = (float)cos(p);
            y[k + (a->sin_first ? 0 : half)] = (float)sin(p);
        }
    }
}

MR_KERNEL(sincos)
{
    job j = {call};
    mr_cpu_for(call->in[0].desc.dim[0], 64, call->threads, rows, &j);
    return MR_OK;
}

static mr_status naive(const mr_call *call)
{
    const attrs *a = call->attr;
    int64_t half = a->dim / 2;
    for (int64_t i = 0; i < call->in[0].desc.dim[0]; i++)
        for (int64_t k = 0; k < half; k++) {
            double *y = (double *)call->out[0].data + i * a->dim,
                   p = ((const double *)call->in[0].data)[i] * frequency(a, k);
            y[k + (a->sin_first ? half : 0)] = cos(p);
            y[k + (a->sin_first ? 0 : half)] = sin(p);
        }
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const attrs *a = c->attr;
    MR_TRY(mr_infer_rank(c->in[0], "v", 1));
    if (a->dim % 2)
        return mr_fail(MR_E_SHAPE, "dim is %lld, expected an even number", (long long)a->dim);
    mr_infer_out(c, 0, c->in[0]->dtype, 2, (int64_t[]){c->in[0]->dim[0], a->dim});
    return MR_OK;
}

static void cost(const mr_call *call, mr_cost *cost)
{
    cost->flop = 20.0 * (double)mr_desc_count(&call->out[0].desc);
}

MR_OP(sincos) = {
    .name = "sincos",
    .doc = "Sinusoidal embedding of scalars: cosines then sines (or sines first) of v times "
           "falling frequencies.",
    .ref = "Vaswani et al. 2017, arXiv:1706.03762; Open-Sora 1.2 scalar and position embeddings",
    .in = {{"v", "[n] f32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"y", "[n, dim] f32", 0, false, MR_CONTIG}},
    .attr = {{"dim", MR_ATTR_I64, offsetof(attrs, dim), 0, 2, 65536, true,
              "length of one embedding, even"},
             {"max_period", MR_ATTR_F64, offsetof(attrs, max_period), 10000, 1, 1e12, false,
              "period of the slowest wave over 2 pi"},
             {"sin_first", MR_ATTR_BOOL, offsetof(attrs, sin_first), 0, 0, 0, false,
              "sines first"}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(sincos)},
    .cases = MR_CASES("v=[7] f32 0..1000 dim=256", "v=[33] f32 -20..300 dim=6 sin_first=1",
                      "v=[3] f32 0..1 dim=36 max_period=100"),
    .tol_f32 = 1e-4,
    .tol_reason = "the product v f_k is rounded to f32 before the functions, as in the reference: "
                  "1000 x 2^-24",
};
