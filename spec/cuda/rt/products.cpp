/* cuda/rt: which products end at once in a gelu or its slope, and which are refused, by us and by
 * the stand-in for the library. Covers: cuda/gemm/product.cpp, cuda/rt/driver_emu.cpp */
#include "check.h"
#include "cuda/emu/emu.h"
#include "cuda/gemm/product.h"

// C [SIDE, SIDE] = A B, with aux in rows of `row` elements, `off` elements from the grid
static mr_status ended(mr_dtype type, mr_cuda_ending kind, int64_t row, int off, int64_t batch)
{
    enum { SIDE = 16, BYTES = 64 * SIDE * sizeof(float) };
    mr_product_spec s = {};
    s.m = s.n = s.k = s.a_row = s.b_row = s.c_row = SIDE;
    s.a_col = s.b_col = 1;
    s.a_batch = s.b_batch = s.c_batch = SIDE * SIDE;
    s.batch = batch;
    s.in = s.out = type;
    char *at[4];
    for (char *&p : at) {
        p = (char *)emu::alloc(BYTES);
        memset(p, 0, BYTES);
        emu::host_wrote(p, BYTES);
    }
    mr_product_ending ending = {kind, kind == MR_CUDA_GELU ? NULL : at[3] + 2 * off, row};
    mr_status st = mr_cuda_product_run(&s, &ending, at[0], at[1], NULL, at[2], NULL, NULL);
    CHECK_INT(emu::reports().size(), 0);
    emu::free_all();
    return st;
}

static void refuses(void)
{
    for (mr_cuda_ending kind : {MR_CUDA_GELU_KEEP, MR_CUDA_GELU_SLOPE}) {
        CHECK_OK(ended(MR_BF16, kind, 16, 0, 1));
        CHECK_OK(ended(MR_BF16, kind, 24, 8, 1));
        CHECK_FAILS(ended(MR_BF16, kind, 20, 0, 1), MR_E_UNSUPPORTED,
                    "a product in bf16 does not end so, aux in rows of 20");
        CHECK_FAILS(ended(MR_BF16, kind, 8, 0, 1), MR_E_UNSUPPORTED, "does not end so");
        CHECK_FAILS(ended(MR_BF16, kind, 16, 4, 1), MR_E_UNSUPPORTED, "does not end so");
        CHECK_FAILS(ended(MR_F32, kind, 16, 0, 1), MR_E_UNSUPPORTED, "does not end so");
        CHECK_FAILS(ended(MR_BF16, kind, 16, 0, 2), MR_E_UNSUPPORTED, "does not end so");
    }
    CHECK_OK(ended(MR_BF16, MR_CUDA_GELU, 0, 0, 1));
    CHECK_FAILS(ended(MR_F32, MR_CUDA_GELU, 0, 0, 1), MR_E_UNSUPPORTED, "a product in f32");
}

// the stand-in takes no matrix beside a result that the library's manual rules out
static void stand_in(void)
{
    mr_cuda_product p = {};
    size_t bytes = 0;
    void *plan = NULL;
    p.m = p.n = p.k = p.lda = p.ldb = p.ldd = 16;
    p.batch = 1;
    p.in = p.out = MR_BF16;
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
}

int main(void)
{
    refuses();
    stand_in();
    return check_done();
}
