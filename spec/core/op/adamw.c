/* op/adamw: steps that must change nothing but the gradient, and the clip. */
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

static void step(int isa, flat *f, double sumsq, double grad_scale, double max_norm)
{
    const mr_op *op = mr_op_find("adamw");
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    CHECK_OK(mr_op_attrs(op, MR_NO_ATTRS, attr));
    double hyper[12] = {0.1, 0.9, 0.99, 1e-8, 0.01, max_norm, 0.9, 3, grad_scale};
    mr_desc d = mr_desc_dense(MR_F32, 1, (int64_t[]){N}),
            w = mr_desc_dense(MR_BF16, 1, (int64_t[]){N});
    mr_call c = {.in = {{f->p, d},
                        {f->g, d},
                        {f->m, d},
                        {f->v, d},
                        {f->ema, d},
                        {f->w, w},
                        {hyper, mr_desc_dense(MR_F64, 1, (int64_t[]){12})},
                        {&sumsq, mr_desc_dense(MR_F64, 1, (int64_t[]){1})}},
                 .n_in = 8,
                 .n_out = 6,
                 .attr = attr,
                 .threads = 2};
    for (int k = 0; k < 6; k++)
        c.out[k] = c.in[k];
    CHECK_OK(mr_op_cpu(op, isa)(&c));
}

static void nothing_but_gradient(int isa, double sumsq, double grad_scale)
{
    flat f = start(), want = start();
    memset(want.g, 0, sizeof want.g);
    step(isa, &f, sumsq, grad_scale, 1);
    CHECK(memcmp(&f, &want, sizeof f) == 0);
}

int main(void)
{
    for (int isa = 0; isa <= mr_isa(); isa++) {
        nothing_but_gradient(isa, INFINITY, 1);
        nothing_but_gradient(isa, NAN, 1);
        nothing_but_gradient(isa, 4, 0);

        // a gradient scaled down by the clip is the gradient that was that small to begin with
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
