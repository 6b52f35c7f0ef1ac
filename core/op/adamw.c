/* adamw: one pass over the parameter regions clips the gradient, applies AdamW, updates the average
 * of the weights, writes the weights in the compute dtype and zeroes the gradient.
 *
 *   master, grad, m, v [n] f32    ema [n] f32 and w [n] bf16 may be absent
 *   sumsq [1] f64, of all gradients
 *   hyper [12] f64 = lr, beta1, beta2, eps, weight_decay, max_norm (0: no clip), ema_decay,
 *                    step k (1-based), grad_scale, 1 / most norm (0: any), 0, 0
 *
 *   g       = grad grad_scale, divided by q where q > 1
 *   q       = (sqrt(sumsq) grad_scale + 1e-6) / max_norm
 *   m       = beta1 m + (1 - beta1) g
 *   v       = beta2 v + (1 - beta2) g^2
 *   master -= lr lr_factor (m / (1 - beta1^k) / (sqrt(v / (1 - beta2^(k - since))) + eps)
 *                           + weight_decay decay master)
 *   ema     = d ema + (1 - d) master
 *   w       = round(master)
 *   grad    = 0, but for `keep`
 *
 * If the norm is not finite or above the limit, or grad_scale is 0, only grad changes: it becomes
 * 0. With `keep`, grad does not change: something else zeroes it. `since` is the number of steps
 * before the second moments started at zero. Betas are rounded to f32, and their powers are
 * computed in double; all else is f32, as in the reference's kernel. With ema and w, an element
 * reads 20 bytes and writes 22, with `keep` 18. */
#include "cpu/rows.h"
#include "op/update.h"

enum { PIECE = 8192, BUFFERS = 6 };
typedef struct attr {
    double decay, lr_factor;
    int64_t since;
    bool keep;
} attr;

static mr_status infer(mr_infer *c)
{
    return update_infer(c, BUFFERS);
}

static void cost(const mr_call *c, mr_cost *cost)
{
    double n = (double)mr_desc_count(&c->in[MASTER].desc);
    *cost = (mr_cost){14 * n, n * update_bytes(c, BUFFERS, ((const attr *)c->attr)->keep)};
}

// Compute the constants of a step. False if only the gradient changes.
typedef struct terms {
    double scale, b1, b2, c1, c2, eps, lr, wd, d;
} terms;
static bool prepare(const mr_call *c, terms *t)
{
    const attr *a = c->attr;
    const double *h = c->in[BUFFERS].data;
    if (!update_scale(c, BUFFERS, &t->scale))
        return false;
    t->b1 = (float)h[BETA1], t->b2 = (float)h[BETA2];
    t->c1 = 1 - pow(t->b1, h[STEP]), t->c2 = 1 - pow(t->b2, h[STEP] - (double)a->since);
    t->eps = h[EPS], t->lr = h[LR] * a->lr_factor, t->wd = h[WEIGHT_DECAY] * a->decay,
    t->d = h[EMA_DECAY];
    return true;
}

static mr_status naive(const mr_call *c)
{
    terms t;
    bool go = prepare(c, &t), keep = ((const attr *)c->attr)->keep;
    for (int64_t i = 0; i < c->in[0].desc.dim[0]; i++) {
        double x[6] = {0};
        for (int k = 0; k < 6; k++)
            x[k] = mr_given(&c->in[k]) ? ((const double *)c->in[k].data)[i] : 0;
        double g = go ? x[1] * t.scale : 0;
        x[1] = keep ? x[1] : 0;
        if (go) {
            x[2] = t.b1 * x[2] + (1 - t.b1) * g;
            x[3] = t.b2 * x[3] + (1 - t.b2) * g * g;
            x[0] -= t.lr * ((x[2] / t.c1) / (sqrt(x[3] / t.c2) + t.eps) + t.wd * x[0]);
            x[4] = t.d * x[4] + (1 - t.d) * x[0];
            x[5] = x[0];
        }
        for (int k = 0; k < 6; k++)
            if (mr_given(&c->out[k]))
                ((double *)c->out[k].data)[i] = x[k];
    }
    return MR_OK;
}

typedef struct job {
    const mr_call *call;
    terms t;
    bool go;
} job;

// Update elements begin .. end. `ema` and `w` (whether they are given) and `keep` are compile-time
// constants.
VF_INLINE void update(const job *j, int64_t begin, int64_t end, bool ema, bool w, bool keep)
{
    const mr_call *c = j->call;
    const terms *t = &j->t;
    float *p = c->out[0].data, *g = c->out[1].data, *m = c->out[2].data, *v = c->out[3].data;
    const formula_adam all = {.scale = vf_set((float)t->scale),
                              .b1 = vf_set((float)t->b1),
                              .b2 = vf_set((float)t->b2),
                              .c1 = vf_set((float)(1 / t->c1)),
                              .c2 = vf_set((float)(1 / t->c2)),
                              .eps = vf_set((float)t->eps),
                              .lr = vf_set((float)t->lr),
                              .wd = vf_set((float)t->wd)};
    vf d = vf_set((float)t->d);
    for (int64_t i = begin; i < end; i += VF_LANES) {
        int64_t n = MR_MIN(end - i, (int64_t)VF_LANES);
        vf pi = vf_ldx(p, i, 1, n, MR_F32), mi = vf_ldx(m, i, 1, n, MR_F32),
           vi = vf_ldx(v, i, 1, n, MR_F32);
        formula_adamw(&all, vf_ldx(g, i, 1, n, MR_F32), &pi, &mi, &vi);
        vf_stx(m, i, 1, mi, n, MR_F32);
        vf_stx(v, i, 1, vi, n, MR_F32);
        vf_stx(p, i, 1, pi, n, MR_F32);
        if (!keep)
            vf_stx(g, i, 1, vf_zero(), n, MR_F32);
        if (ema)
            vf_stx(c->out[4].data, i, 1,
                   formula_average(d, vf_ldx(c->out[4].data, i, 1, n, MR_F32), pi), n, MR_F32);
        if (w)
            vf_stx(c->out[5].data, i, 1, pi, n, MR_BF16);
    }
}

VF_INLINE void update_kept(const job *j, int64_t begin, int64_t end, bool keep)
{
    bool ema = mr_given(&j->call->out[4]), w = mr_given(&j->call->out[5]);
    if (ema && w)
        update(j, begin, end, true, true, keep);
    else if (ema)
        update(j, begin, end, true, false, keep);
    else if (w)
        update(j, begin, end, false, true, keep);
    else
        update(j, begin, end, false, false, keep);
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    bool keep = ((const attr *)j->call->attr)->keep;
    (void)worker;
    if (!j->go && !keep)
        memset((float *)j->call->out[1].data + begin, 0, (size_t)(end - begin) * 4);
    if (j->go && keep)
        update_kept(j, begin, end, true);
    else if (j->go)
        update_kept(j, begin, end, false);
}

MR_KERNEL(adamw)
{
    job j = {.call = call};
    j.go = prepare(call, &j.t);
    mr_cpu_for(call->in[0].desc.dim[0], PIECE, call->threads, part, &j);
    return MR_OK;
}

MR_OP(adamw) = {
    .name = "adamw",
    .doc = "One optimizer step over a range: clip, AdamW, weight average, write-back, zeroed "
           "gradient.",
    .ref = "Loshchilov & Hutter 2017, arXiv:1711.05101; ColossalAI HybridAdam and clipping at "
           "4f9953be",
    .in = {UPDATE_IN_FIRST, {"v", "[n] f32", MR_CONTIG, MR_NO_GRAD}, UPDATE_IN_LAST},
    .out = {UPDATE_OUT_FIRST, {"v", "[n] f32", 4, true, MR_CONTIG}, UPDATE_OUT_LAST(BUFFERS)},
    .attr = {UPDATE_ATTRS,
             {"since", MR_ATTR_I64, offsetof(attr, since), .max = 1e15,
              .doc = "steps before the first one of the second moment"}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(adamw)},
    .hidden = true,
    .cases = MR_CASES("master=[77] f32 grad=[77] f32 m=[77] f32 v=[77] f32 0..1 hyper=[12] f64 "
                      "0.2..0.9 sumsq=[1] f64 0.5..1.2",
                      "master=[9001] f32 grad=[9001] f32 m=[9001] f32 v=[9001] f32 0..1 ema=[9001] "
                      "f32 w=[9001] bf16 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0..0.1",
                      "master=[64] f32 grad=[64] f32 m=[64] f32 v=[64] f32 0..1 ema=[64] f32 "
                      "hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0.9..1.2 decay=0.5 lr_factor=0.1",
                      // above the norm limit
                      "master=[65] f32 grad=[65] f32 m=[65] f32 v=[65] f32 0..1 "
                      "hyper=[12] f64 0.2..0.9 sumsq=[1] f64 800..900",
                      "master=[33] f32 grad=[33] f32 m=[33] f32 v=[33] f32 0..1 w=[33] bf16 "
                      "hyper=[12] f64 0..0 sumsq=[1] f64 1..1",
                      "master=[70] f32 grad=[70] f32 m=[70] f32 v=[70] f32 0..1 ema=[70] f32 "
                      "w=[70] bf16 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0..0.1 keep=1",
                      "master=[33] f32 grad=[33] f32 m=[33] f32 v=[33] f32 0..1 "
                      "hyper=[12] f64 0..0 sumsq=[1] f64 1..1 keep=1",
                      "master=[70] f32 grad=[70] f32 m=[70] f32 v=[70] f32 0..1 "
                      "hyper=[12] f64 2..2.5 sumsq=[1] f64 0..0.1 since=1"),
};
