/* op/formula: the text of the kernels' formulas, compiled for single elements as a CUDA compiler
 * does it: compared with f64, and with the vectors of each instruction set, AVX2's bit for bit.
 * cuda/kernels/formula.cuh compiles it as C++.
 * Covers: core/op/formula.h core/op/formula_float.h */
#include "check.h"
#include "moonreel/op.h"
#include "op/formula_float.h"

#include <stdlib.h>

enum { N = 4001 };
static float x[N], y[N], z[N], got[N];

static mr_view view(void *data)
{
    return (mr_view){data, mr_desc_dense(MR_F32, 1, (int64_t[]){N})};
}

/* The vectors of one instruction set. */
static void kernel(const char *name, int isa, bool two)
{
    mr_call c = {.in = {view(x), view(y)}, .out = {view(got)}, .n_in = 1 + two, .n_out = 1};
    c.threads = 1;
    CHECK_OK(mr_kernel_run(&mr_op_find(name)->cpu, isa)(&c));
}

typedef struct row {
    const char *name;
    float (*one)(float x, float dy);
    double (*exact)(double x, double dy);
    bool two;
    double allowed; /* of the exact value */
} row;

static float exp_one(float v, float dy)
{
    (void)dy;
    return formula_exp(v);
}
static double exp_exact(double v, double dy)
{
    (void)dy;
    return exp(v);
}
static float silu_one(float v, float dy)
{
    (void)dy;
    return formula_silu(v);
}
static double silu_exact(double v, double dy)
{
    (void)dy;
    return v / (1 + exp(-v));
}
static float silu_grad_one(float v, float dy)
{
    return formula_silu_slope(v) * dy;
}
static double silu_grad_exact(double v, double dy)
{
    double s = 1 / (1 + exp(-v));
    return dy * s * (1 + v * (1 - s));
}
static float gelu_one(float v, float dy)
{
    (void)dy;
    return formula_gelu(v);
}
static double gelu_exact(double v, double dy)
{
    (void)dy;
    return v / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
}
static float gelu_grad_one(float v, float dy)
{
    return formula_gelu_slope(v) * dy;
}
static double gelu_grad_exact(double v, double dy)
{
    double root = sqrt(2 / 3.14159265358979323846),
           s = 1 / (1 + exp(-2 * root * (v + 0.044715 * v * v * v)));
    return dy * (s + v * s * (1 - s) * 2 * root * (1 + 3 * 0.044715 * v * v));
}

static const row rows[] = {
    {"exp", exp_one, exp_exact, false, 2.5e-7},
    {"silu", silu_one, silu_exact, false, 4e-6},
    {"silu_grad", silu_grad_one, silu_grad_exact, true, 4e-6},
    {"gelu_tanh", gelu_one, gelu_exact, false, 8e-6},
    {"gelu_tanh_grad", gelu_grad_one, gelu_grad_exact, true, 8e-6},
};

/* Errors relative to the exact value, or to its argument where the value is much smaller: near a
 * zero of a slope the terms cancel. */
static double worst(const row *r, const float *values, float size)
{
    double most = 0;
    for (int i = 0; i < N; i++) {
        double want = r->exact(x[i], y[i]),
               unit = r->two && fabs(x[i]) < 4 ? MR_MAX(fabs(want), 0.1) : fabs(want);
        if (unit > 1e-30 * size)
            most = fmax(most, fabs(values[i] - want) / unit);
    }
    return most;
}

static void activations(float size)
{
    for (int i = 0; i < N; i++)
        x[i] = size * (float)(i - N / 2) / (float)(N / 2), y[i] = 1 + (float)(i % 7) / 8;
    for (size_t k = 0; k < MR_COUNT(rows); k++) {
        const row *r = &rows[k];
        for (int i = 0; i < N; i++)
            z[i] = r->one(x[i], y[i]);
        double e = worst(r, z, size);
        if (!check_note(e <= r->allowed))
            printf("%s of up to %g: off by %.3g, allowed %.3g\n", r->name, (double)size, e,
                   r->allowed);
        for (int isa = 0; isa <= mr_isa(); isa++) {
            kernel(r->name, isa, r->two);
            double v = worst(r, got, size);
            if (!check_note(v <= r->allowed))
                printf("%s of up to %g, %s: off by %.3g, allowed %.3g\n", r->name, (double)size,
                       mr_isa_name(isa), v, r->allowed);
            if (isa == 1 && !check_note(memcmp(got, z, sizeof z) == 0))
                printf("%s of up to %g: other bits than with vectors of 8\n", r->name,
                       (double)size);
        }
    }
}

/* Values beyond each range. */
static void edges(void)
{
    CHECK(formula_exp(-INFINITY) == 0 && formula_exp(INFINITY) == INFINITY);
    CHECK(formula_exp(-1000) == 0 && formula_exp(1000) == INFINITY);
    CHECK(isnan(formula_exp(NAN)) && isnan(formula_silu(NAN)) && isnan(formula_gelu(NAN)));
    CHECK(formula_silu(1e30f) == 1e30f && formula_gelu(1e30f) == 1e30f);
    CHECK_NEAR(formula_silu(-1e3f), 0, 1e-30);
    CHECK_NEAR(formula_gelu(-1e3f), 0, 1e-30);
    CHECK(vf_scale2(1.5f, 127) == 0x1.8p127f && vf_scale2(1, -140) == 0x1p-140f);
    CHECK(vf_scale2(1, 130) == INFINITY && vf_power2(3, -126) == 0x3p-126f);
}

static void pairs(void)
{
    CHECK(formula_pixel(0) == -1);
    CHECK_NEAR(formula_pixel(255), 1, 2e-7);
    CHECK_NEAR(formula_pixel(51), -0.6, 1e-7);
    CHECK_NEAR(formula_turn_first(1, 2, 0.6f, 0.8f), -1, 1e-6);
    CHECK_NEAR(formula_turn_second(1, 2, 0.6f, 0.8f), 2, 1e-6);
    CHECK_NEAR(formula_weight(3, 2), exp(1), 1e-6);
    CHECK_NEAR(formula_score_grad(0.5f, 3, 1), 1, 0);
}

/* One step compared with the definition in f64. */
static void steps(void)
{
    const formula_adam t = {.scale = 0.5f,
                            .b1 = 0.75f,
                            .b2 = 0.5f,
                            .c1 = 4,
                            .c2 = 2,
                            .eps = 0.125f,
                            .lr = 0.25f,
                            .wd = 0.5f};
    float p = 2, m = 1, v = 3;
    formula_adamw(&t, 4, &p, &m, &v);
    CHECK_NEAR(m, 1.25, 0);
    CHECK_NEAR(v, 3.5, 0);
    CHECK_NEAR(p, 2 - 0.25 * (5 / (sqrt(7) + 0.125) + 1), 1e-6);
    CHECK_NEAR(formula_average(0.75f, 2, 4), 2.5, 0);
}

int main(void)
{
    activations(1);
    activations(12);
    activations(80);
    edges();
    pairs();
    steps();
    return check_done();
}
