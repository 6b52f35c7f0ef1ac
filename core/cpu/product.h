/* product: C = A B (+ C) (+ bias) for matrices with strides. oneDNN computes it if it is built in,
 * supports the types and is not slower than isa/gemm.c and isa/amx_gemm.c; else these do. One
 * object per node is created from shapes, then run. Results depend on shapes, instruction set and
 * team size only. Licence: Apache-2.0 */
#ifndef MR_PRODUCT_H
#define MR_PRODUCT_H

#include "moonreel/op.h"

/* A [m, k], B [k, n], C [m, n], `batch` times; strides in elements; rows of C are dense. A and B
 * have one dtype, f32 or bf16; sums are f32. */
typedef struct mr_product_spec {
    int64_t batch, m, n, k;
    int64_t a_batch, a_row, a_col;
    int64_t b_batch, b_row, b_col;
    int64_t c_batch, c_row;
    mr_dtype in, out; /* out: like in, or f32 */
    bool bias;        /* [n], dtype of in; not with accumulate */
    bool accumulate;  /* C += A B; out is f32 */
} mr_product_spec;

typedef struct mr_product mr_product;
/* Owns: caller frees; NULL is fine. facts: instruction set ("base" never uses oneDNN), team of
 * every run, whether bf16 can use oneDNN and AMX tiles. Errors: MR_E_MEMORY; MR_E_UNSUPPORTED other
 * dtypes. */
mr_status mr_product_new(const mr_product_spec *spec, const mr_facts *facts, mr_product **out);
void mr_product_free(mr_product *p);
/* Most bytes of workspace that a run needs. It depends on spec and facts only and queries neither
 * library nor processor. If oneDNN needs more, or rejects the product, the object allocates its own
 * memory. */
size_t mr_product_workspace(const mr_product_spec *spec, const mr_facts *facts);
/* The kernel for measurements: "tiles" (AMX), "library" (oneDNN) or NULL (isa/gemm.c); depends on
 * spec and facts only. */
const char *mr_product_way(const mr_product_spec *spec, const mr_facts *facts);
const char *mr_product_how(
    const mr_product *p); /* "onednn brg:avx512_core_amx_bf16", "own avx2"; lent */
/* Run once; one run at a time per object. */
mr_status mr_product_run(mr_product *p, const void *a, const void *b, const void *bias, void *c,
                         void *workspace);
/* Only the packing of B into the workspace that a run does before it multiplies, for measurements.
 * Does nothing if B is read unpacked. */
mr_status mr_product_pack(mr_product *p, const void *b, void *workspace);

/* By oneDNN (product_onednn.c). Several `workers` run one object concurrently, each with an OpenMP
 * team if `team` > 1. fits: whether the shape is supported; false if the library is not built in.
 * new: *out is NULL if oneDNN rejects the product. workspace: planned bytes per worker (amx: as in
 * facts); an object that needs more allocates its own memory. run is as above, by one of the
 * workers in its workspace; packs_only: pack B, do not multiply. It returns oneDNN's status, 0 for
 * success. Errors: MR_E_MEMORY. */
typedef struct mr_product_library mr_product_library;
bool mr_product_library_fits(const mr_product_spec *spec);
size_t mr_product_library_workspace(const mr_product_spec *spec, int team, bool amx);
mr_status mr_product_library_new(const mr_product_spec *spec, int workers, int team, bool amx,
                                 mr_product_library **out);
void mr_product_library_free(mr_product_library *p);
const char *mr_product_library_how(const mr_product_library *p); /* lent */
int mr_product_library_run(const mr_product_library *p, const void *a, const void *b,
                           const void *bias, void *c, bool packs_only, int worker, void *workspace);
/* Log once per process that the library deviates from the plan. */
void mr_product_unplanned(const mr_product_spec *spec, const char *what);

/* The kernel of isa/gemm.c, one per instruction set: one matrix, any strides. workspace:
 * mr_gemm_workspace() bytes. */
typedef struct mr_gemm {
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row;
    const void *a, *b, *bias; /* bias [n] of dtype `in` or NULL */
    void *c, *workspace;
    mr_dtype in, out;
    bool accumulate;
    bool packs_only; /* pack B, then return */
    int threads;
} mr_gemm;
typedef void mr_gemm_fn(const mr_gemm *g);
mr_gemm_fn mr_gemm_base, mr_gemm_avx2, mr_gemm_avx512;
size_t mr_gemm_workspace(const mr_product_spec *s, int threads);
/* The arguments for one matrix of `s`, without addresses. */
mr_gemm mr_gemm_of(const mr_product_spec *s, int threads);

/* The kernel of isa/amx_gemm.c for bf16 on AMX tiles (facts.amx), faster than oneDNN 2.6. It fits
 * one matrix with a dense dimension in each operand. workspace: b_bytes + threads * own_bytes. */
typedef struct mr_gemm_amx_sizes {
    int64_t rows;              /* rows of C per task */
    size_t b_bytes, own_bytes; /* packed B; scratch memory per worker */
} mr_gemm_amx_sizes;
bool mr_gemm_amx_fits(const mr_product_spec *spec);
mr_gemm_amx_sizes mr_gemm_amx_needs(int64_t m, int64_t n, int64_t k, int threads);
mr_gemm_fn mr_gemm_amx;

#endif
