/* op/adamw: the formula, steps that must change only the gradient, and the clip. */
#include "check.h"
#include "moonreel/op.h"

enum { N = 70 };
typedef struct flat {
    float p[N], g[N], m[N], v[N], ema[N];
    uint16_t w[N];
} flat;

static flat start(void)
{
    flat f;
    for (int i = 0; i < N; i++) {
        f.p[i] = (float)i, f.g[i] = (float)(i % 7 - 3), f.m[i] = 0.5f, f.v[i] = 2, f.ema[i] = -1,
        f.w[i] = 0x1234;
    }
    return f;
}

enum {
    LR,
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    MAX_NORM,
    EMA_DECAY,
    STEP,
    GRAD_SCALE,
    MOST,
    HYPERS = 12
};

static void update(int isa, flat *f, double sumsq, double *hyper, double decay, double lr_factor)
{
    const mr_op *op = mr_op_find("adamw");
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    CHECK_OK(mr_op_attrs(op, MR_ATTRS({"decay", .f = decay}, {"lr_factor", .f = lr_factor}), attr));
    mr_desc d = mr_desc_dense(MR_F32, 1, (int64_t[]){N}),
            w = mr_desc_dense(MR_BF16, 1, (int64_t[]){N});
    mr_call c = {.in = {{f->p, d},
                        {f->g, d},
                        {f->m, d},
                        {f->v, d},
                        {f->ema, d},
                        {f->w, w},
                        {hyper, mr_desc_dense(MR_F64, 1, (int64_t[]){HYPERS})},
                        {&sumsq, mr_desc_dense(MR_F64, 1, (int64_t[]){1})}},
                 .n_in = 8,
                 .n_out = 6,
                 .attr = attr,
                 .threads = 2};
    for (int k = 0; k < 6; k++)
        c.out[k] = c.in[k];
    CHECK_OK(mr_kernel_run(&op->cpu, isa)(&c));
}

static void step_below(int isa, flat *f, double sumsq, double grad_scale, double max_norm,
                       double most)
{
    double hyper[HYPERS] = {0.1, 0.9, 0.99, 1e-8, 0.01, max_norm, 0.9, 3, grad_scale, 1 / most};
    update(isa, f, sumsq, hyper, 1, 1);
}

static void step(int isa, flat *f, double sumsq, double grad_scale, double max_norm)
{
    step_below(isa, f, sumsq, grad_scale, max_norm, INFINITY);
}

/* The formula, computed here: naive op and kernel form their terms in one function. Each
 * hyper-parameter matters here: eps next to roots of its own size, weights large enough for their
 * decay. */
static void formula(int isa, double max_norm)
{
    enum { K = 3 };
    const double sumsq = 30, decay = 0.7, lr_factor = 0.4;
    double h[HYPERS] = {0.05, 0.8, 0.95, 0.02, 0.3, max_norm, 0.6, K, 0.25};
    flat f = start(), old;
    for (int i = 0; i < N; i++)
        f.m[i] = (float)(i % 5 - 2) / 50, f.v[i] = (float)(i % 4) / 500, f.g[i] /= 4;
    old = f;
    update(isa, &f, sumsq, h, decay, lr_factor);
    double norm = sqrt(sumsq) * h[GRAD_SCALE], over = max_norm > 0 ? (norm + 1e-6) / max_norm : 0;
    double b1 = (float)h[BETA1], b2 = (float)h[BETA2];
    for (int i = 0; i < N; i++) {
        double g = old.g[i] * h[GRAD_SCALE] / (over > 1 ? over : 1);
        double m = b1 * old.m[i] + (1 - b1) * g, v = b2 * old.v[i] + (1 - b2) * g * g;
        double p =
            old.p[i] - h[LR] * lr_factor *
                           (m / (1 - b1 * b1 * b1) / (sqrt(v / (1 - b2 * b2 * b2)) + h[EPS]) +
                            h[WEIGHT_DECAY] * decay * old.p[i]);
        CHECK_NEAR(f.m[i], m, 1e-7);
        CHECK_NEAR(f.v[i], v, 1e-8);
        // weights up to 69: their last bits
        CHECK_NEAR(f.p[i], p, 1.5e-5);
        CHECK_NEAR(f.ema[i], h[EMA_DECAY] * old.ema[i] + (1 - h[EMA_DECAY]) * p, 1e-5);
        CHECK(f.g[i] == 0);
    }
}

static void nothing_but_gradient(int isa, double sumsq, double grad_scale, double most)
{
    flat f = start(), want = start();
    memset(want.g, 0, sizeof want.g);
    step_below(isa, &f, sumsq, grad_scale, 1, most);
    CHECK(memcmp(&f, &want, sizeof f) == 0);
}

int main(void)
{
    for (int isa = 0; isa <= mr_isa(); isa++) {
        formula(isa, 0), formula(isa, 0.7), formula(isa, 50);
        nothing_but_gradient(isa, INFINITY, 1, INFINITY);
        nothing_but_gradient(isa, NAN, 1, INFINITY);
        nothing_but_gradient(isa, NAN, 1, 3);
        nothing_but_gradient(isa, 4, 0, INFINITY);
        // a norm of 4 x 0.5
        nothing_but_gradient(isa, 16, 0.5, 1.99);
        flat most = start(), any = start();
        step_below(isa, &most, 16, 0.5, 1, 2.01), step(isa, &any, 16, 0.5, 1);
        CHECK(memcmp(&most, &any, sizeof most) == 0 && most.p[1] != 1);

        // a gradient scaled down by the clip equals a gradient that was that small at the beginning
        flat a = start(), b = start();
        for (int i = 0; i < N; i++)
            b.g[i] *= 0.25f;
        step(isa, &a, 16, 1, 1), step(isa, &b, 1, 1, 0);
        for (int i = 0; i < N; i++) {
            CHECK_NEAR(a.p[i], b.p[i], 1e-5);
            CHECK_NEAR(a.m[i], b.m[i], 1e-6);
            CHECK(a.g[i] == 0);
            CHECK(a.w[i] == mr_f32_to_bf16(a.p[i]));
            CHECK_NEAR(a.ema[i], 0.9 * -1 + 0.1 * a.p[i], 1e-5);
        }
    }
    return check_done();
}
