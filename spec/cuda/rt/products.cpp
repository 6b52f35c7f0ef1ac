/* cuda/rt: which products support a gelu epilogue, its slope or a bias gradient, and which ones
 * moonreel and the replacement of the library refuse.
 * Covers: cuda/gemm/product.cpp, cuda/rt/driver_emu.cpp */
#include "check.h"
#include "cuda/emu/emu.h"
#include "cuda/gemm/product.h"

enum { SIDE = 16 };

// C [SIDE, SIDE] = A B with dense matrices
static mr_product_spec square(mr_dtype in, mr_dtype out, int64_t batch)
{
    mr_product_spec s = {};
    s.m = s.n = s.k = s.a_row = s.b_row = s.c_row = SIDE;
    s.a_col = s.b_col = 1;
    s.a_batch = s.b_batch = s.c_batch = SIDE * SIDE;
    s.batch = batch;
    s.in = in;
    s.out = out;
    return s;
}

// n elements of device memory with the value `x`
template <typename T> static T *filled(size_t n, T x)
{
    T *p = (T *)emu::alloc(n * sizeof(T));
    std::fill(p, p + n, x);
    emu::host_wrote(p, n * sizeof(T));
    return p;
}

// a workspace aligned to 64 bytes and not more
static char *workspace_of(const mr_product_spec &s)
{
    return filled<char>(64 + mr_cuda_product_workspace(&s), 0) + 64;
}

// run a product of zeros with this epilogue; aux has rows of `row` elements and starts `off` bytes
// after a 16-byte boundary
static mr_status ended(mr_product_spec s, mr_cuda_ending kind, int64_t row, int off)
{
    char *at[4];
    for (char *&p : at)
        p = filled<char>(64 * SIDE * sizeof(float), 0);
    mr_product_ending ending = {kind, kind == MR_CUDA_GELU ? NULL : at[3] + off, row};
    mr_status st = mr_cuda_product_run(&s, &ending, at[0], at[1], s.bias ? at[3] : NULL, at[2],
                                       workspace_of(s), NULL);
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
    return st;
}

static void refuses(void)
{
    const mr_product_spec bf16 = square(MR_BF16, MR_BF16, 1), f32 = square(MR_F32, MR_F32, 1);
    const char *const other = "does not support this epilogue";
    for (mr_cuda_ending kind : {MR_CUDA_GELU_KEEP, MR_CUDA_GELU_SLOPE}) {
        CHECK_OK(ended(bf16, kind, 16, 0));
        CHECK_OK(ended(bf16, kind, 24, 16));
        CHECK_FAILS(ended(bf16, kind, 20, 0), MR_E_UNSUPPORTED,
                    "a product in bf16 does not support this epilogue, aux in rows of 20");
        CHECK_FAILS(ended(bf16, kind, 8, 0), MR_E_UNSUPPORTED, other);
        CHECK_FAILS(ended(bf16, kind, 16, 8), MR_E_UNSUPPORTED, other);
        CHECK_FAILS(ended(f32, kind, 16, 0), MR_E_UNSUPPORTED, other);
        CHECK_FAILS(ended(square(MR_BF16, MR_BF16, 2), kind, 16, 0), MR_E_UNSUPPORTED, other);
    }
    CHECK_OK(ended(bf16, MR_CUDA_GELU, 0, 0));
    CHECK_FAILS(ended(f32, MR_CUDA_GELU, 0, 0), MR_E_UNSUPPORTED, "a product in f32");
}

static void refuses_gradients(void)
{
    const mr_product_spec good = square(MR_BF16, MR_F32, 1);
    mr_product_spec biased = good, empty = good;
    biased.bias = true;
    empty.n = 0;
    const mr_product_spec bad[] = {square(MR_F32, MR_F32, 1), square(MR_BF16, MR_BF16, 1),
                                   square(MR_BF16, MR_F32, 2), biased, empty};
    CHECK_OK(ended(good, MR_CUDA_BIAS_GRADIENT, 0, 0));
    for (const mr_product_spec &s : bad)
        CHECK_FAILS(ended(s, MR_CUDA_BIAS_GRADIENT, 0, 0), MR_E_UNSUPPORTED,
                    "does not support this epilogue");
    CHECK_FAILS(ended(good, MR_CUDA_BIAS_GRADIENT, 0, 8), MR_E_UNSUPPORTED,
                "does not support this epilogue");
    CHECK_FAILS(ended(good, MR_CUDA_BIAS_GRADIENT, 16, 0), MR_E_UNSUPPORTED, "aux in rows of 16");
}

// A is 2 everywhere: the product adds to its result, the gradient overwrites its output
static void gradient_of_a_bias(void)
{
    mr_product_spec s = square(MR_BF16, MR_F32, 1);
    s.accumulate = true;
    uint16_t *a = filled(SIDE * SIDE, mr_f32_to_bf16(2)), *b = filled(SIDE * SIDE, a[0]);
    float *c = filled(SIDE * SIDE, 3.0f), *sums = filled(2 * SIDE, 7.0f);
    a[SIDE] = mr_f32_to_bf16(5); // the first element of the second row
    mr_product_ending ending = {MR_CUDA_BIAS_GRADIENT, sums, 0};
    CHECK_OK(mr_cuda_product_run(&s, &ending, a, b, NULL, c, workspace_of(s), NULL));
    for (int i = 0; i < SIDE; i++) {
        CHECK_NEAR(sums[i], 2 * SIDE + (i == 1 ? 3 : 0), 0);
        CHECK_NEAR(c[i * SIDE], 3 + 4 * SIDE + (i == 1 ? 6 : 0), 0);
        CHECK_NEAR(sums[SIDE + i], 7, 0);
    }
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
}

// the step along a length of 1 is not read, whichever way the operands lie
static void lengths_of_one(void)
{
    for (int bits = 0; bits < 32; bits++) {
        mr_product_spec s = square(MR_F32, MR_F32, 1);
        s.m = bits & 1 ? 1 : 3;
        s.n = bits & 2 ? 1 : 4;
        s.k = bits & 4 ? 1 : 5;
        s.a_row = s.m == 1 ? 0 : bits & 8 ? 1 : s.k + 1;
        s.a_col = s.k == 1 ? 0 : bits & 8 ? s.m + 1 : 1;
        s.b_row = s.k == 1 ? 0 : bits & 16 ? 1 : s.n + 1;
        s.b_col = s.n == 1 ? 0 : bits & 16 ? s.k + 1 : 1;
        s.c_row = s.m == 1 ? 0 : s.n;
        float *a = filled(25, 1.0f), *b = filled(25, 1.0f), *c = filled(12, 0.0f);
        for (int i = 0; i < 25; i++)
            a[i] = (float)i, b[i] = (float)(i * i);
        CHECK(mr_cuda_product_fits(&s));
        CHECK_OK(mr_cuda_product_run(&s, NULL, a, b, NULL, c, workspace_of(s), NULL));
        for (int64_t i = 0; i < s.m * s.n; i++) {
            float sum = 0;
            for (int64_t k = 0; k < s.k; k++)
                sum += a[i / s.n * s.a_row + k * s.a_col] * b[k * s.b_row + i % s.n * s.b_col];
            CHECK_NEAR(c[i], sum, 0);
        }
        CHECK_INT(emu::reports().size(), 0);
        emu::free_all();
    }
}

// rows that overlap, and operands without a dense dimension
static void overlaps(void)
{
    static const int64_t steps[][2] = {{0, 1}, {1, 1}, {2, 2}, {SIDE - 1, 1}, {1, SIDE - 1}};
    for (auto &step : steps) {
        mr_product_spec a = square(MR_F32, MR_F32, 1), b = a;
        a.a_row = b.b_row = step[0];
        a.a_col = b.b_col = step[1];
        CHECK(!mr_cuda_product_fits(&a) && !mr_cuda_product_fits(&b));
    }
    mr_product_spec c = square(MR_BF16, MR_BF16, 1);
    c.c_row = SIDE - 1;
    uint16_t *x = filled<uint16_t>(SIDE * SIDE, 0);
    CHECK_FAILS(mr_cuda_product_run(&c, NULL, x, x, NULL, x, workspace_of(c), NULL),
                MR_E_UNSUPPORTED, "a product [16, 16] by [16, 16] in bf16: ");
    CHECK(!strstr(mr_error_last()->text, "try: operands of bf16"));
    emu::free_all();
}

// products with k = 0: without accumulation they write zeros to each matrix of a batch, with it
// they change nothing; cases where zeros would be wrong are refused
static void of_nothing(void)
{
    float *a = filled(SIDE, 1.0f), *b = filled(SIDE, 1.0f), *c = filled(2 * SIDE * SIDE, 3.0f);
    mr_product_spec s = square(MR_F32, MR_F32, 2), biased, apart;
    s.k = 0;
    s.accumulate = true;
    CHECK_OK(mr_cuda_product_run(&s, NULL, a, b, NULL, c, NULL, NULL));
    CHECK(c[0] == 3 && c[2 * SIDE * SIDE - 1] == 3);
    s.accumulate = false;
    biased = apart = s;
    biased.bias = true;
    apart.c_row = SIDE + 4;
    CHECK_FAILS(mr_cuda_product_run(&biased, NULL, a, b, a, c, NULL, NULL), MR_E_UNSUPPORTED,
                "with k = 0 and a bias, or with rows that are not dense");
    CHECK_FAILS(mr_cuda_product_run(&apart, NULL, a, b, NULL, c, NULL, NULL), MR_E_UNSUPPORTED,
                "with k = 0");
    CHECK_OK(mr_cuda_product_run(&s, NULL, a, b, NULL, c, NULL, NULL));
    for (int i = 0; i < 2 * SIDE * SIDE; i++)
        CHECK_NEAR(c[i], 0, 0);
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
}

// the replacement refuses aux matrices that the library's manual excludes
static void stand_in(void)
{
    mr_cuda_product p = {};
    size_t bytes = 0;
    void *plan = NULL;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldd = 16;
    p.batch = 1;
    p.in = p.in_b = p.out = MR_BF16;
    p.align = 16;
    p.ending = MR_CUDA_GELU_KEEP;
    for (int64_t ld : {0, 8, 20}) {
        p.ldaux = ld;
        CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 1);
    }
    p.ldaux = 24;
    CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 0);
    mr_cuda.product_free(plan);
    p.batch = 2;
    CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 1);
    p.ending = MR_CUDA_BIAS_GRADIENT;
    p.ldaux = 0;
    CHECK_INT(mr_cuda.product_new(&p, &bytes, &plan), 1);
}

int main(void)
{
    refuses();
    refuses_gradients();
    gradient_of_a_bias();
    lengths_of_one();
    overlaps();
    of_nothing();
    stand_in();
    return check_done();
}
