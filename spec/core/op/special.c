/* op/special: what vec.h promises for special values, through ops, in each instruction set. */
#include "check.h"
#include "moonreel/op.h"

static void run(const char *name, int isa, mr_dtype from, const void *x, mr_dtype to, void *y,
                int64_t n)
{
    const mr_op *op = mr_op_find(name);
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    if (strcmp(name, "cast") == 0)
        CHECK_OK(mr_op_attrs(op, MR_ATTRS({"dtype", .i = to}), attr));
    mr_call call = {.n_in = 1, .n_out = 1, .attr = attr, .threads = 1};
    call.in[0] = (mr_view){(void *)(uintptr_t)x, mr_desc_dense(from, 1, &n)};
    call.out[0] = (mr_view){y, mr_desc_dense(to, 1, &n)};
    CHECK_OK(mr_kernel_run(&op->cpu, isa)(&call));
}

enum { N = 33 };

static void exponentials(int isa)
{
    static const float in[] = {-INFINITY, -200,  -104, -103, -87.5f,   0,  1,
                               88,        88.7f, 89,   200,  INFINITY, NAN};
    float x[N] = {0}, y[N];
    memcpy(x, in, sizeof in);
    run("exp", isa, MR_F32, x, MR_F32, y, N);
    CHECK(y[0] == 0);
    CHECK(y[1] == 0);
    CHECK(y[5] == 1);
    CHECK_NEAR(y[6], 2.718281828, 3e-7);
    CHECK_NEAR(y[8] / exp(88.7f), 1, 3e-7);
    CHECK(isinf(y[10]));
    CHECK(isinf(y[11]));
    CHECK(isnan(y[12]));
    double worst = 0;
    for (int k = 0; k < 2000; k++) {
        for (int i = 0; i < N; i++)
            x[i] = -87.0f + (float)(k * N + i) * (175.0f / (2000 * N));
        run("exp", isa, MR_F32, x, MR_F32, y, N);
        for (int i = 0; i < N; i++)
            worst = fmax(worst, fabs(y[i] / exp((double)x[i]) - 1));
    }
    // two units in the last place
    CHECK_NEAR(worst, 0, 2.4e-7);
}

static void gates(int isa)
{
    static const float in[] = {-INFINITY, -1e30f, -100, -88, 88, 100, 1e30f, NAN};
    float x[N] = {0}, y[N];
    memcpy(x, in, sizeof in);
    run("silu", isa, MR_F32, x, MR_F32, y, N);
    CHECK(fabsf(y[2]) < 1e-30f);
    CHECK(y[4] == 88);
    CHECK(y[6] == 1e30f);
    CHECK(isnan(y[7]));
    run("gelu_tanh", isa, MR_F32, x, MR_F32, y, N);
    CHECK(fabsf(y[2]) < 1e-30f);
    CHECK(y[5] == 100);
    CHECK(isnan(y[7]));
}

static void rounding(int isa)
{
    float x[N], back[N];
    uint16_t y[N];
    uint32_t bits[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f800000, 0xff800000, 0x7f800001,
                       0xffc00000, 0x7f7fffff, 0x00000001, 0x80000000, 0x7fbfffff};
    for (int i = 0; i < N; i++)
        memcpy(&x[i], &bits[i % (int)MR_COUNT(bits)], 4);
    run("cast", isa, MR_F32, x, MR_BF16, y, N);
    for (int i = 0; i < N; i++) {
        if (isnan(x[i]))
            CHECK(isnan(mr_bf16_to_f32(y[i])));
        else
            CHECK_INT(y[i], mr_f32_to_bf16(x[i]));
    }
    run("cast", isa, MR_BF16, y, MR_F32, back, N);
    for (int i = 0; i < N; i++)
        CHECK(isnan(x[i]) ? isnan(back[i]) : back[i] == mr_bf16_to_f32(y[i]));
}

int main(void)
{
    for (int isa = 0; isa <= mr_isa(); isa++)
        exponentials(isa), gates(isa), rounding(isa);
    return check_done();
}
