/* op/definitions: what a kernel and its naive op share (constants, defaults, masks, index sums),
 * which the contract therefore cannot test, compared with formulas written here. */
#include "check.h"
#include "cpu/cpu.h"
#include "moonreel/op.h"

#include <stdlib.h>

static int isa;

/* Runs an op whose inputs and outputs are set. */
static void run(const char *name, const mr_attr *attrs, int n_attr, mr_call *c)
{
    const mr_op *op = mr_op_find(name);
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    mr_facts facts = mr_cpu_facts("cpu", isa, 2);
    c->n_in = mr_op_n_in(op), c->n_out = mr_op_n_out(op), c->attr = attr, c->threads = 2;
    CHECK_OK(mr_op_attrs(op, attrs, n_attr, attr));
    if (op->cpu.prepare)
        CHECK_OK(op->cpu.prepare(c, &facts, &c->state));
    size_t bytes = op->cpu.workspace ? op->cpu.workspace(c, &facts) : 0;
    c->workspace = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    CHECK_OK(mr_kernel_run(&op->cpu, isa)(c));
    free(c->workspace);
}

static mr_view view(void *data, mr_dtype t, int rank, const int64_t *dim)
{
    return (mr_view){data, mr_desc_dense(t, rank, dim)};
}
#define VIEW(data, ...)                                                                            \
    view((void *)(data), MR_F32, (int)MR_COUNT(((int64_t[]){__VA_ARGS__})),                        \
         (int64_t[]){__VA_ARGS__})
static const mr_view none = {.desc.rank = -1};

/* n numbers of a sine, never 0, at most `size`. */
static void wave(float *x, int64_t n, float size, float phase)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = size * sinf(phase + 1.7f * (float)i);
}

static double apart(const float *got, const double *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++)
        diff += (got[i] - want[i]) * (got[i] - want[i]), norm += want[i] * want[i];
    return sqrt(diff / norm);
}

/* ---- norms: the default eps, with values of its own size ---- */

enum { R = 3, C = 34 };

/* y and dx of one row under 1 / sqrt(mean of squares + eps), centred or not, times w. */
static void norm_row(const float *x, const float *w, const float *dy, double eps, bool centred,
                     double *y, double *dx)
{
    double mean = 0, square = 0, g1 = 0, gn = 0;
    for (int k = 0; centred && k < C; k++)
        mean += (double)x[k] / C;
    for (int k = 0; k < C; k++)
        square += (x[k] - mean) * (x[k] - mean) / C;
    double r = 1 / sqrt(square + eps);
    for (int k = 0; k < C; k++) {
        double g = (double)dy[k] * w[k], n = (x[k] - mean) * r;
        y[k] = n * w[k];
        g1 += centred ? g / C : 0, gn += g * n / C;
    }
    for (int k = 0; k < C; k++)
        dx[k] = r * ((double)dy[k] * w[k] - g1 - (x[k] - mean) * r * gn);
}

static void norms(void)
{
    float x[R * C], w[C], dy[R * C], y[R * C], dx[R * C], acc[C] = {0}, zero[C] = {0}, scale[C],
                                                          dscale[C], dshift[C];
    double want_y[R * C], want_dx[R * C];
    wave(x, R * C, 1e-3f, 0.3f), wave(w, C, 1, 0.9f), wave(dy, R * C, 1, 0.1f);
    for (int k = 0; k < C; k++)
        scale[k] = w[k] - 1;
#define ORACLE(eps, centred)                                                                       \
    for (int i = 0; i < R; i++)                                                                    \
    norm_row(x + i * C, w, dy + i * C, eps, centred, want_y + i * C, want_dx + i * C)
#define AGREES                                                                                     \
    CHECK_NEAR(apart(y, want_y, R *C), 0, 3e-6), CHECK_NEAR(apart(dx, want_dx, R *C), 0, 1e-5)

    ORACLE(1e-6, false);
    run("rms_norm", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, R, C), VIEW(w, C)}, .out = {VIEW(y, R, C)}});
    run("rms_norm_grad", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, R, C), VIEW(w, C), VIEW(dy, R, C), VIEW(acc, C)},
                   .out = {VIEW(dx, R, C), VIEW(acc, C)}});
    AGREES;
    run("qk_norm", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, 1, 1, R, 1, C), VIEW(w, C), none, none},
                   .out = {VIEW(y, 1, 1, R, 1, C)}});
    run("qk_norm_grad", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, 1, 1, R, 1, C), VIEW(w, C), none, none, VIEW(dy, 1, 1, R, 1, C),
                          VIEW(acc, C)},
                   .out = {VIEW(dx, 1, 1, R, 1, C), VIEW(acc, C)}});
    AGREES;

    ORACLE(1e-6, true);
    run("layer_norm_modulate", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, 1, 1, R, C), VIEW(zero, 1, 1, C), VIEW(scale, 1, 1, C)},
                   .out = {VIEW(y, 1, 1, R, C)}});
    run("layer_norm_modulate_grad", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, 1, 1, R, C), VIEW(scale, 1, 1, C), VIEW(dy, 1, 1, R, C)},
                   .out = {VIEW(dx, 1, 1, R, C), VIEW(dshift, 1, 1, C), VIEW(dscale, 1, 1, C)}});
    AGREES;

    ORACLE(1e-5, true);
    run("layer_norm", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, R, C), VIEW(w, C), VIEW(zero, C)}, .out = {VIEW(y, R, C)}});
    run("layer_norm_grad", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, R, C), VIEW(w, C), VIEW(dy, R, C)}, .out = {VIEW(dx, R, C)}});
    AGREES;
    // an accumulator grows by dy times the normalised row, with the effect of the default eps
    float sum[C] = {0};
    double want_sum[C] = {0};
    run("layer_norm_dw", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(x, R, C), VIEW(dy, R, C), VIEW(sum, C)}, .out = {VIEW(sum, C)}});
    for (int i = 0; i < R * C; i++)
        want_sum[i % C] += dy[i] * want_y[i] / w[i % C];
    CHECK_NEAR(apart(sum, want_sum, C), 0, 1e-5);
}

/* ---- patches ---- */

static void patches(void)
{
    // [2, 3, 3, 5, 6] in patches of 2 x 2 x 4: each axis ends inside a patch
    enum { B = 2, K = 3, T = 3, H = 5, W = 6, PT = 2, PH = 2, PW = 4, V = PT * PH * PW };
    enum { NT = 2, NH = 3, NW = 2, N = NT * NH * NW };
    static float x[B * K * T * H * W], tokens[B * N * K * V], back[B * K * T * H * W];
    const mr_ints dims = {.n = 4, .v = {K, T, H, W}};
    wave(x, B * K * T * H * W, 1, 0.2f);
    for (int last = 0; last < 2; last++) {
        run("patchify",
            MR_ATTRS({"pt", .i = PT}, {"ph", .i = PH}, {"pw", .i = PW},
                     {"channel_last", .i = last}),
            &(mr_call){.in = {VIEW(x, B, K, T, H, W)},
                       .out = {VIEW(tokens, B, NT, N / NT, K * V)}});
        int wrong = 0;
        for (int i = 0; i < B * N * K * V; i++) {
            int at = i % (K * V), n = i / (K * V) % N, b = i / (K * V) / N;
            int k = last ? at % K : at / V, v = last ? at / K : at % V;
            int t = n / (NH * NW) * PT + v / (PH * PW), h = n / NW % NH * PH + v / PW % PH,
                w = n % NW * PW + v % PW;
            bool inside = t < T && h < H && w < W;
            wrong += tokens[i] != (inside ? x[(((b * K + k) * T + t) * H + h) * W + w] : 0);
        }
        CHECK_INT(wrong, 0);
        memset(back, 0, sizeof back);
        run("unpatchify",
            MR_ATTRS({"pt", .i = PT}, {"ph", .i = PH}, {"pw", .i = PW}, {"channel_last", .i = last},
                     {"dims", .ints = &dims}),
            &(mr_call){.in = {VIEW(tokens, B, NT, N / NT, K * V)},
                       .out = {VIEW(back, B, K, T, H, W)}});
        CHECK(memcmp(back, x, sizeof x) == 0);
    }
}

/* ---- the loss ---- */

static void losses(void)
{
    // frames 0 and 2 of sample 0 count, frame 1 of sample 1: errors e, and 100 where none counts
    enum { B = 2, K = 2, T = 3, P = 4, ALL = B * K * T * P };
    bool mask[B * T] = {true, false, true, false, true, false};
    float pred[ALL], x0[ALL], noise[ALL], weight[B] = {0.5f, -2}, loss, per[B], d[ALL], up = 3,
                                          up_per[B] = {0, 0.25f};
    wave(x0, ALL, 1, 0.4f), wave(noise, ALL, 1, 1.4f);
    for (int i = 0; i < ALL; i++) {
        bool counts = mask[i / (K * T * P) * T + i / P % T];
        pred[i] = x0[i] - noise[i] + (counts ? (i < ALL / 2 ? 0.5f : -1.5f) : 100);
    }
    mr_view m = view(mask, MR_BOOL, 2, (int64_t[]){B, T});
    run("flow_loss", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(pred, B, K, T, 2, 2), VIEW(x0, B, K, T, 2, 2),
                          VIEW(noise, B, K, T, 2, 2), VIEW(weight, B), m},
                   .out = {view(&loss, MR_F32, 0, NULL), VIEW(per, B)}});
    CHECK_NEAR(per[0], 0.25, 1e-6);
    CHECK_NEAR(per[1], 2.25, 1e-6);
    CHECK_NEAR(loss, 0.5 * 0.25 - 2 * 2.25, 1e-5);
    run("flow_loss_grad", MR_NO_ATTRS,
        &(mr_call){.in = {VIEW(pred, B, K, T, 2, 2), VIEW(x0, B, K, T, 2, 2),
                          VIEW(noise, B, K, T, 2, 2), VIEW(weight, B), m,
                          view(&up, MR_F32, 0, NULL), VIEW(up_per, B)},
                   .out = {VIEW(d, B, K, T, 2, 2)}});
    // 16 elements count in sample 0, 8 in sample 1
    for (int i = 0; i < ALL; i++) {
        bool counts = mask[i / (K * T * P) * T + i / P % T];
        double want = i < ALL / 2 ? 3 * 0.5 * 2 * 0.5 / 16 : (3 * -2 + 0.25) * 2 * -1.5 / 8;
        CHECK_NEAR(d[i], counts ? want : 0, 2e-6);
    }
}

/* ---- constants ---- */

static void one(const char *name, float x, float dy, double want)
{
    float y;
    run(name, MR_NO_ATTRS, &(mr_call){.in = {VIEW(&x, 1), VIEW(&dy, 1)}, .out = {VIEW(&y, 1)}});
    CHECK_NEAR(y, want, 1e-6);
}

static void constants(void)
{
    // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) and its slope, worked out in f64
    one("gelu_tanh", 1, 0, 0.8411919906);
    one("gelu_tanh", -0.5f, 0, -0.1542859902);
    one("gelu_tanh_grad", 1, 1, 1.0829640838);
    one("gelu_tanh_grad", -0.5f, 2, 2 * 0.1326300965);
    // waves of period 2 pi and 2 pi 10000^(1/2), or of 2 pi and 2 pi 100^(1/2)
    float v = 2, y[4];
    mr_call c = {.in = {VIEW(&v, 1)}, .out = {VIEW(y, 1, 4)}};
    run("sincos", MR_ATTRS({"dim", .i = 4}), &c);
    CHECK_NEAR(y[0], cos(2), 1e-6), CHECK_NEAR(y[1], cos(0.02), 1e-6);
    CHECK_NEAR(y[2], sin(2), 1e-6), CHECK_NEAR(y[3], sin(0.02), 1e-6);
    run("sincos", MR_ATTRS({"dim", .i = 4}, {"max_period", .f = 100}, {"sin_first", .i = 1}), &c);
    CHECK_NEAR(y[0], sin(2), 1e-6), CHECK_NEAR(y[1], sin(0.2), 1e-6);
    CHECK_NEAR(y[2], cos(2), 1e-6), CHECK_NEAR(y[3], cos(0.2), 1e-6);
}

/* ---- turns ---- */

/* A quarter turn of the first pair and half a turn of the second; both orders, and back. */
static void turns(void)
{
    float x[4] = {1, 2, 3, 4}, co[2] = {0, -1}, si[2] = {1, 0}, y[4], back[4];
    static const float want[2][4] = {{-2, 1, -3, -4}, {-3, -2, 1, -4}};
    for (int halves = 0; halves < 2; halves++) {
        run("rotary", MR_ATTRS({"halves", .i = halves}),
            &(mr_call){.in = {VIEW(x, 1, 1, 1, 1, 4), VIEW(co, 1, 2), VIEW(si, 1, 2)},
                       .out = {VIEW(y, 1, 1, 1, 1, 4)}});
        run("rotary", MR_ATTRS({"halves", .i = halves}, {"inverse", .i = 1}),
            &(mr_call){.in = {VIEW(y, 1, 1, 1, 1, 4), VIEW(co, 1, 2), VIEW(si, 1, 2)},
                       .out = {VIEW(back, 1, 1, 1, 1, 4)}});
        for (int k = 0; k < 4; k++)
            CHECK_NEAR(y[k], want[halves][k], 0), CHECK_NEAR(back[k], x[k], 0);
    }
}

int main(void)
{
    for (isa = 0; isa <= mr_isa(); isa++) {
        norms();
        patches();
        turns();
        losses();
        constants();
    }
    return check_done();
}
