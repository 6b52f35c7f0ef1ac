/* weight_sums: statistics of the weights after an update, in one pass over the buffers of adamw.
 *
 *   w [n] f32    ema, m, v [n] f32 may be absent, m and v together
 *   hyper [12] f64, as of adamw: those of the last update
 *   sums [5] f64 = sum of w^2, of u^2, of (ema - w)^2, number of rows that begin here, of dead ones
 *
 *   u = w minus the weight before that update; with l = lr lr_factor and d = weight_decay decay
 *     = -(l a + l d w) / (1 - l d), a = m / (1 - beta1^k) / (sqrt(v / c) + eps),
 *     c = 1 - beta2^(k - since)
 *
 * adamw computes w = w' - l (a + d w') from w'. Solved for w - w', this gives u without a copy of
 * w'. A row of `cols` elements has the weights of one unit; `before` of its elements precede the
 * first one here. A row is dead if no element has sqrt(v / c) > eps: then eps outweighs the
 * gradient, and the unit hardly changes. A row is counted where it begins, by the elements in that
 * buffer.
 *
 * Reads 16 bytes per element if all inputs are given. Elements are f32, sums double, first per
 * group of rows, then in order, so the bits do not depend on the number of threads. */
#include "cpu/rows.h"
#include "op/define.h"

enum { GROUP = 16384, ROWS_LEAST = 8, ROW = 2048, LINE = 16 };
enum { LR, BETA1, BETA2, EPS, WEIGHT_DECAY, STEP = 7, HYPERS = 12 };
enum { W, EMA, M, V, HYPER };
enum { SUMS = 5 };

typedef struct attr {
    double decay, lr_factor;
    int64_t since, cols, before;
} attr;

static mr_status infer(mr_infer *c)
{
    const attr *a = c->attr;
    const mr_desc *w = c->in[W], *hyper = c->in[HYPER];
    MR_TRY(mr_infer_rank(w, "w", 1));
    for (int i = EMA; i <= V; i++)
        if (c->in[i] && !mr_desc_same_shape(w, c->in[i]))
            return mr_fail(MR_E_SHAPE, "expected ema, m and v [n] with n of w");
    if (!c->in[M] != !c->in[V])
        return mr_fail(MR_E_SHAPE, "one of m and v is given; expected both or neither");
    if (hyper->rank != 1 || hyper->dim[0] != HYPERS)
        return mr_fail(MR_E_SHAPE, "expected hyper [12]");
    if (a->cols ? a->before >= a->cols : a->before > 0)
        return mr_fail(MR_E_SHAPE, "before is %lld; expected less than cols, %lld",
                       (long long)a->before, (long long)a->cols);
    c->out[0] = mr_desc_dense(MR_F64, 1, (const int64_t[]){SUMS});
    return MR_OK;
}

static void cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[W].desc);
    bool ema = mr_given(&c->in[EMA]), moments = mr_given(&c->in[V]);
    *cost = (mr_cost){n * (2 + (ema ? 3 : 0) + (moments ? 12 : 0)),
                      n * (4 + (ema ? 4 : 0) + (moments ? 8 : 0))};
}

// Constants of all elements. u = a * of_a + w * of_w; a row is dead if all sqrt(v * c2) <= eps.
typedef struct terms {
    double c1, c2, eps, of_a, of_w;
} terms;
static terms terms_of(const mr_call *c)
{
    const attr *a = c->attr;
    const double *h = c->in[HYPER].data;
    double lr = h[LR] * a->lr_factor, wd = lr * h[WEIGHT_DECAY] * a->decay;
    return (terms){.c1 = 1 / (1 - pow((float)h[BETA1], h[STEP])),
                   .c2 = 1 / (1 - pow((float)h[BETA2], h[STEP] - (double)a->since)),
                   .eps = h[EPS],
                   .of_a = -lr / (1 - wd),
                   .of_w = -wd / (1 - wd)};
}

static mr_status naive(const mr_call *c)
{
    const attr *a = c->attr;
    const double *w = c->in[W].data, *ema = c->in[EMA].data, *m = c->in[M].data, *v = c->in[V].data;
    terms t = terms_of(c);
    double *sums = c->out[0].data;
    bool moments = mr_given(&c->in[V]), dead = false;
    int64_t n = c->in[W].desc.dim[0];
    memset(sums, 0, SUMS * sizeof *sums);
    for (int64_t i = 0; i < n; i++) {
        sums[0] += w[i] * w[i];
        if (mr_given(&c->in[EMA]))
            sums[2] += (ema[i] - w[i]) * (ema[i] - w[i]);
        if (!moments)
            continue;
        double root = sqrt(v[i] * t.c2), a_i = m[i] * t.c1 / (root + t.eps);
        double u = t.of_a * a_i + t.of_w * w[i];
        sums[1] += u * u;
        if (!a->cols)
            continue;
        bool begins = (a->before + i) % a->cols == 0;
        bool ends = (a->before + i + 1) % a->cols == 0 || i + 1 == n;
        sums[3] += begins;
        // a row that begins elsewhere is not counted as dead here
        dead = (begins || dead) && root <= t.eps;
        sums[4] += ends && dead;
        dead = dead && !ends;
    }
    return MR_OK;
}

typedef struct job {
    const mr_call *call;
    terms t;
    // as in attr; a tensor without rows is split into parts of ROW elements
    int64_t cols, before;
    int64_t rows, group;
} job;

static job job_of(const mr_call *c)
{
    const attr *a = c->attr;
    job j = {.call = c, .cols = a->cols ? a->cols : ROW, .before = a->before};
    j.rows = (j.before + c->in[W].desc.dim[0] + j.cols - 1) / j.cols;
    j.group = MR_MAX((int64_t)ROWS_LEAST, GROUP / j.cols);
    return j;
}

static double folded(double *s)
{
    for (int half = LINE / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            s[k] += s[k + half];
    return s[0];
}

// Add n <= LINE elements from `at` on to the running sums.
VF_INLINE void add(const job *j, int64_t at, int n, bool has_ema, bool moments, double (*s)[LINE],
                   float *most)
{
    const mr_call *c = j->call;
    const float *w = c->in[W].data, *ema = c->in[EMA].data, *m = c->in[M].data, *v = c->in[V].data;
    float c1 = (float)j->t.c1, c2 = (float)j->t.c2, eps = (float)j->t.eps, of_a = (float)j->t.of_a,
          of_w = (float)j->t.of_w;
    for (int k = 0; k < n; k++) {
        int64_t i = at + k;
        s[0][k] += (double)w[i] * (double)w[i];
        if (has_ema) {
            float off = ema[i] - w[i];
            s[2][k] += (double)off * (double)off;
        }
        if (moments) {
            float root = sqrtf(v[i] * c2), u = of_a * (m[i] * c1 / (root + eps)) + of_w * w[i];
            s[1][k] += (double)u * (double)u;
            // NaN is not dead
            most[k] = root <= most[k] ? most[k] : root;
        }
    }
}

VF_INLINE bool add_row(const job *j, int64_t begin, int64_t end, bool ema, bool moments,
                       double (*s)[LINE])
{
    float most[LINE] = {0};
    int64_t i = begin;
    for (; i + LINE <= end; i += LINE)
        add(j, i, LINE, ema, moments, s, most);
    add(j, i, (int)(end - i), ema, moments, s, most);
    bool dead = true;
    for (int k = 0; k < LINE; k++)
        dead = dead && most[k] <= (float)j->t.eps;
    return dead;
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const mr_call *c = j->call;
    bool ema = mr_given(&c->in[EMA]), moments = mr_given(&c->in[V]);
    double s[3][LINE] = {0}, *out = (double *)c->workspace + begin / j->group * SUMS;
    int64_t rows = 0, dead = 0;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        int64_t from = r * j->cols - j->before, to = MR_MIN(from + j->cols, c->in[W].desc.dim[0]);
        int64_t first = MR_MAX(from, (int64_t)0);
        bool dies = ema && moments ? add_row(j, first, to, true, true, s)
                    : ema          ? add_row(j, first, to, true, false, s)
                    : moments      ? add_row(j, first, to, false, true, s)
                                   : add_row(j, first, to, false, false, s);
        rows += from >= 0, dead += from >= 0 && dies;
    }
    bool counts = moments && ((const attr *)c->attr)->cols;
    for (int k = 0; k < 3; k++)
        out[k] = folded(s[k]);
    out[3] = counts ? (double)rows : 0, out[4] = counts ? (double)dead : 0;
}

MR_KERNEL(weight_sums)
{
    job j = job_of(call);
    j.t = terms_of(call);
    double *sums = call->out[0].data;
    const double *parts = call->workspace;
    mr_cpu_for(j.rows, j.group, call->threads, part, &j);
    memset(sums, 0, SUMS * sizeof *sums);
    for (int64_t g = 0; g < (j.rows + j.group - 1) / j.group; g++)
        for (int k = 0; k < SUMS; k++)
            sums[k] += parts[g * SUMS + k];
    return MR_OK;
}

static size_t workspace(const mr_call *c, const mr_facts *facts)
{
    job j = job_of(c);
    (void)facts;
    return (size_t)((j.rows + j.group - 1) / j.group) * SUMS * sizeof(double);
}

MR_OP(weight_sums) = {
    .name = "weight_sums",
    .doc = "Sums of squares of weights, of their last update and of the distance of their average, "
           "and the number of dead rows.",
    .ref = "the update of core/op/adamw.c, solved for the previous weights; dead units as in Sokar "
           "et al. 2023, arXiv:2302.12902, but by second moments instead of activations",
    .in = {{"w", "[n] f32", MR_CONTIG, MR_NO_GRAD},
           {"ema", "[n] f32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"m", "[n] f32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"v", "[n] f32", MR_CONTIG, MR_OPTIONAL | MR_NO_GRAD},
           {"hyper", "[12] f64", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"sums", "[5] f64", 0, false, MR_CONTIG}},
    .attr = {{"decay", MR_ATTR_F64, offsetof(attr, decay), .def = 1,
              .doc = "factor of weight_decay in hyper"},
             {"lr_factor", MR_ATTR_F64, offsetof(attr, lr_factor), .def = 1,
              .doc = "factor of lr in hyper"},
             {"since", MR_ATTR_I64, offsetof(attr, since), .max = 1e15,
              .doc = "steps before the first one of the second moment"},
             {"cols", MR_ATTR_I64, offsetof(attr, cols), 0, 0, INT32_MAX, false,
              "elements of a row; 0: no rows"},
             {"before", MR_ATTR_I64, offsetof(attr, before), 0, 0, INT32_MAX, false,
              "elements of the first row before this buffer"}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(weight_sums), .workspace = workspace},
    .hidden = true,
    .cases = MR_CASES(
        "w=[5000] f32 ema=[5000] f32 m=[5000] f32 v=[5000] f32 0..1 hyper=[12] f64 0.2..0.9",
        "w=[77] f32 hyper=[12] f64 0.2..0.9",
        "w=[53] f32 m=[53] f32 v=[53] f32 0..0.5 hyper=[12] f64 0.6..0.9 cols=2 before=1",
        "w=[9000] f32 ema=[9000] f32 m=[9000] f32 v=[9000] f32 0..0.3 hyper=[12] f64 0.6..0.9 "
        "cols=3 lr_factor=0.5 decay=0.25",
        "w=[40000] f32 m=[40000] f32 v=[40000] f32 0..0.01 hyper=[12] f64 0.6..0.9 cols=3001 "
        "before=3000",
        "w=[70] f32 m=[70] f32 v=[70] f32 0..1 hyper=[12] f64 2..2.5 since=1",
        // rows that begin in no piece
        "w=[64] f32 m=[64] f32 v=[64] f32 0..0 hyper=[12] f64 0.6..0.9 cols=100 before=7"),
    .tol_f32 = 1e-5,
    .tol_reason = "double sums of squares of f32 differences",
};
