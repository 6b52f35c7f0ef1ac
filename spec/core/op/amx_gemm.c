/* cpu/isa/amx_gemm: products on AMX tiles compared with f64 sums: tails of each dimension, several
 * blocks of the sum and chunks of columns, both layouts of both operands, all kinds of results;
 * bits for any team. With the processor's tiles if it has them, and with tiles in plain C.
 * Covers: core/cpu/amx.c core/cpu/isa/amx_gemm.c */
#include "tiles.h"

#include "productcase.h"

#ifdef SPEC_TILES
#define MR_ISA_avx512 1
#define mr_gemm_amx   gemm_on_tiles_in_c
#include "cpu/isa/amx_gemm.c"
#undef mr_gemm_amx

typedef struct shape {
    int64_t m, n, k;
    bool ta, tb, bias, accumulate;
    mr_dtype out;
} shape;
static const shape shapes[] = {
    {32, 32, 32, 0, 0, 0, 0, MR_F32},     {33, 47, 65, 0, 1, 1, 0, MR_BF16},
    {97, 33, 1155, 0, 1, 1, 0, MR_BF16},  {70, 66, 1185, 1, 0, 0, 1, MR_F32},
    {270, 40, 40, 1, 0, 0, 1, MR_F32},    {40, 1187, 35, 0, 0, 0, 0, MR_BF16},
    {64, 1200, 1153, 1, 1, 1, 0, MR_F32}, {300, 64, 2305, 0, 0, 0, 0, MR_F32},
    {36, 34, 33, 1, 1, 1, 1, MR_F32},
};

static void run(const shape *x, void (*multiply)(const mr_gemm *))
{
    int64_t c_row = x->n + 3;
    void *a = fill(x->m * x->k, MR_BF16, 1), *b = fill(x->n * x->k, MR_BF16, 2),
         *bias = fill(x->n, MR_BF16, 3), *first = NULL;
    float *c0 = fill(x->m * c_row, x->out, 4);
    for (int threads = 1; threads <= 3; threads += 2) {
        void *c = fill(x->m * c_row, x->out, 4);
        mr_gemm_amx_sizes z = mr_gemm_amx_needs(x->m, x->n, x->k, threads);
        size_t bytes = z.b_bytes + (size_t)threads * z.own_bytes;
        unsigned char *work = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
        memset(work, 0xff, bytes + 64);
        mr_gemm g = {.m = x->m,
                     .n = x->n,
                     .k = x->k,
                     .a_row = x->ta ? 1 : x->k,
                     .a_col = x->ta ? x->m : 1,
                     .b_row = x->tb ? 1 : x->n,
                     .b_col = x->tb ? x->k : 1,
                     .c_row = c_row,
                     .a = a,
                     .b = b,
                     .bias = x->bias ? bias : NULL,
                     .c = c,
                     .workspace = work,
                     .in = MR_BF16,
                     .out = x->out,
                     .accumulate = x->accumulate,
                     .threads = threads};
        multiply(&g);
        for (int i = 0; i < 64; i++)
            CHECK_INT(work[bytes + (size_t)i], 0xff);
        double diff = 0, norm = 0;
        for (int64_t r = 0; r < x->m; r++) {
            for (int64_t j = 0; j < x->n; j++) {
                double want = (x->bias ? get(bias, j, MR_BF16) : 0) +
                              (x->accumulate ? (double)c0[r * c_row + j] : 0);
                for (int64_t p = 0; p < x->k; p++)
                    want += get(a, r * g.a_row + p * g.a_col, MR_BF16) *
                            get(b, p * g.b_row + j * g.b_col, MR_BF16);
                double d = get(c, r * c_row + j, x->out) - want;
                diff += d * d, norm += want * want;
            }
            for (int64_t j = x->n; j < c_row; j++)
                CHECK(get(c, r * c_row + j, x->out) == get(c0, r * c_row + j, x->out));
        }
        CHECK_NEAR(sqrt(diff / norm), 0, x->out == MR_BF16 ? 5e-3 : 5e-6);
        if (first)
            CHECK(memcmp(first, c, (size_t)(x->m * c_row) * mr_dtype_bytes(x->out)) == 0), free(c);
        else
            first = c;
        free(work);
    }
    free(a), free(b), free(bias), free(c0), free(first);
}

static __attribute__((noinline)) void all(void)
{
    mr_product_spec far = {.batch = 1,
                           .m = 4096,
                           .n = 4096,
                           .k = 4096,
                           .a_row = 4096,
                           .a_col = 2,
                           .b_row = 1,
                           .b_col = 4096,
                           .in = MR_BF16,
                           .out = MR_BF16};
    CHECK(!mr_gemm_amx_fits(&far));
    far.in = MR_F32, far.a_col = 1;
    CHECK(!mr_gemm_amx_fits(&far));
    far.in = MR_BF16;
    CHECK(mr_gemm_amx_fits(&far));
    for (size_t i = 0; i < MR_COUNT(shapes); i++) {
        if (mr_cpu_amx())
            run(&shapes[i], mr_gemm_amx);
        run(&shapes[i], gemm_on_tiles_in_c);
    }
    printf("AMX %s run here\n", mr_cpu_amx() ? "is" : "is not");
}

int main(void)
{
    if (tiles_usable())
        all();
    else
        printf("this processor has no AVX-512 BF16: nothing to run\n");
    return check_done();
}
#else
int main(void)
{
    printf("the kernels under test need AVX-512: nothing to run\n");
    return check_done();
}
#endif
