/* histogram: counts elements by sign and magnitude, in bins with fixed edges.
 *
 *   x [n] f32, scale [1] f64 -> y [500] f64: 497 bins, the count of NaNs, sum, sum of squares
 *
 * Bins 0 .. 247 count negative values, bin 248 values near zero, bins 249 .. 496 positive values.
 * Each interval between two powers of two has four bins of equal width. The sign, the exponent and
 * two mantissa bits of the f32 x scale determine its bin. Magnitudes below 2^-46 are in bin 248;
 * magnitudes of 2^16 and above are in the outermost bins. A value on an edge is in the bin farther
 * from zero. The sums are over finite elements. Reads 4 bytes per element. Counts are integers, and
 * sums are added piece by piece, so the bits do not depend on the number of threads. */
#include "op/define.h"

enum { PIECE = 1 << 16, SIDE = 248, BINS = 2 * SIDE + 1, ALL = BINS + 3 };
enum { FIRST = (127 - 46) * 4 }; // first 11 bits of 2^-46

static mr_status infer(mr_infer *c)
{
    MR_TRY(mr_infer_rank(c->in[0], "x", 1));
    if (c->in[1]->rank != 1 || c->in[1]->dim[0] != 1)
        return mr_fail(MR_E_SHAPE, "expected scale [1]");
    c->out[0] = mr_desc_dense(MR_F64, 1, (const int64_t[]){ALL});
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[0].desc);
    *cost = (mr_cost){4 * n, 4 * n + 8 * (ALL + 1)};
}

/* The bin of x, which is not NaN. */
static int bin_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int key = (int)(bits << 1 >> 22) - FIRST;
    if (key < 0)
        return SIDE;
    key = MR_MIN(key, SIDE - 1);
    return bits >> 31 ? SIDE - 1 - key : SIDE + 1 + key;
}

static void add(const float *x, int64_t begin, int64_t end, float scale, uint32_t *counts,
                double *sums)
{
    for (int64_t i = begin; i < end; i++) {
        float y = x[i] * scale;
        if (y != y) {
            counts[BINS]++;
            continue;
        }
        counts[bin_of(y)]++;
        double z = isfinite(y) ? y : 0;
        sums[0] += z, sums[1] += z * z;
    }
}

// find each bin by comparing with its edges, in double
static mr_status naive(const mr_call *c)
{
    const double *x = c->in[0].data, scale = *(const double *)c->in[1].data;
    double *y = c->out[0].data;
    memset(y, 0, ALL * sizeof *y);
    for (int64_t i = 0; i < c->in[0].desc.dim[0]; i++) {
        double z = (float)x[i] * (float)scale;
        z = (float)z;
        if (z != z) {
            y[BINS]++;
            continue;
        }
        int key = -1;
        while (key < SIDE - 1 && fabs(z) >= ldexp(1 + (key + 1) % 4 / 4.0, -46 + (key + 1) / 4))
            key++;
        y[key < 0 ? SIDE : z < 0 ? SIDE - 1 - key : SIDE + 1 + key]++;
        y[BINS + 1] += isfinite(z) ? z : 0, y[BINS + 2] += isfinite(z) ? z * z : 0;
    }
    return MR_OK;
}

/* The result of a piece, in the workspace. */
typedef struct piece {
    double sums[2];
    uint32_t counts[BINS + 1];
} piece;

static int64_t pieces_of(const mr_call *c)
{
    return (c->in[0].desc.dim[0] + PIECE - 1) / PIECE;
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    const mr_call *c = user;
    piece *p = (piece *)c->workspace + begin / PIECE;
    (void)worker;
    memset(p, 0, sizeof *p);
    add(c->in[0].data, begin, end, (float)*(const double *)c->in[1].data, p->counts, p->sums);
}

MR_KERNEL(histogram)
{
    const piece *p = call->workspace;
    double *y = call->out[0].data;
    mr_cpu_for(call->in[0].desc.dim[0], PIECE, call->threads, part, (void *)call);
    memset(y, 0, ALL * sizeof *y);
    for (int64_t i = 0; i < pieces_of(call); i++) {
        for (int k = 0; k <= BINS; k++)
            y[k] += p[i].counts[k];
        y[BINS + 1] += p[i].sums[0], y[BINS + 2] += p[i].sums[1];
    }
    return MR_OK;
}

static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    (void)facts;
    return (size_t)pieces_of(c) * sizeof(piece);
}

MR_OP(histogram) = {
    .name = "histogram",
    .doc = "Count elements by sign and magnitude, in four bins per power of two.",
    .ref = "HistogramProto of TensorBoard; each writer chooses its bins",
    .in = {{"x", "[n] f32", MR_CONTIG, MR_NO_GRAD}, {"scale", "[1] f64", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"y", "[500] f64", 0, false, MR_CONTIG}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(histogram), .workspace = workspace},
    .hidden = true,
    .cases = MR_CASES("x=[1] f32 scale=[1] f64 1..1", "x=[70001] f32 scale=[1] f64 1..1",
                      // values on the edges of bins
                      "x=[999] f32 -4..4 scale=[1] f64 0.25..0.25",
                      // values beyond the first and the last edge
                      "x=[500] f32 scale=[1] f64 1e-13..1e-13",
                      "x=[500] f32 scale=[1] f64 1e5..1e5",
                      "x=[500] f32 scale=[1] f64 1e300..1e300"),
    .tol_f32 = 1e-7,
    .tol_reason = "sums of f32 in double, whole counts",
};
