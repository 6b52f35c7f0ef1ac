/* product: C = A B (+ C) (+ bias) for matrices with strides: oneDNN where it is built in, serves
 * the types and is not slower than the own kernels of isa/gemm.c and isa/amx_gemm.c, else those.
 * One object per node: made once from shapes, then run. Results depend on shapes, instruction set
 * and team size only. Licence: Apache-2.0 */
#ifndef MR_PRODUCT_H
#define MR_PRODUCT_H

#include "moonreel/op.h"

/* A [m, k], B [k, n], C [m, n] in each of `batch` matrices; strides in elements; C rows are dense.
 * Inputs share one dtype, f32 or bf16; sums are f32. */
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
/* Owns: caller frees (also a NULL). facts: instruction set of own kernels ("base" takes them
 * always), team of every run, whether bf16 may go to oneDNN and to AMX tiles. Errors: MR_E_MEMORY;
 * MR_E_UNSUPPORTED for other dtypes. */
mr_status mr_product_new(const mr_product_spec *spec, const mr_facts *facts, mr_product **out);
void mr_product_free(mr_product *p);
/* Bytes that a run takes at most, before the object is made: no library and no processor is asked.
 * Where oneDNN wants more than this, or refuses, the object takes memory of its own. */
size_t mr_product_workspace(const mr_product_spec *spec, const mr_facts *facts);
/* "tiles" of AMX, "library" (oneDNN, also in pieces), or NULL: own kernels; as pure. */
const char *mr_product_way(const mr_product_spec *spec, const mr_facts *facts);
const char *mr_product_how(
    const mr_product *p); /* "onednn brg:avx512_core_amx_bf16", "own avx2"; lent */
/* One run; one at a time per object. */
mr_status mr_product_run(mr_product *p, const void *a, const void *b, const void *bias, void *c,
                         void *workspace);
/* What a run does to B before it multiplies, alone, to be measured: it packs B into the workspace,
 * or does nothing if B is read unpacked. */
mr_status mr_product_pack(mr_product *p, const void *b, void *workspace);

/* The oneDNN way (product_onednn.c): several `workers` run it at once, with a team of OpenMP's each
 * where `team` is more than 1. It serves a shape that fits, unless it refuses: then *out is NULL.
 * workspace: what is planned for one worker (amx: as in facts); one that wants more takes memory of
 * its own. Nothing fits where the library is not built in. Run as above, by one of the workers in
 * its own workspace; packs_only: B is packed, nothing multiplied; returns oneDNN's status, 0 for
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
/* Log, once in a process, what the library does otherwise than was planned. */
void mr_product_unplanned(const mr_product_spec *spec, const char *what);

/* The own kernel, one per instruction set (isa/gemm.c): one matrix, any strides.
 * workspace: mr_gemm_workspace() bytes. */
typedef struct mr_gemm {
    int64_t m, n, k, a_row, a_col, b_row, b_col, c_row;
    const void *a, *b, *bias; /* bias [n] of dtype `in` or NULL */
    void *c, *workspace;
    mr_dtype in, out;
    bool accumulate;
    bool packs_only; /* pack B and leave */
    int threads;
} mr_gemm;
typedef void mr_gemm_fn(const mr_gemm *g);
mr_gemm_fn mr_gemm_base, mr_gemm_avx2, mr_gemm_avx512;
size_t mr_gemm_workspace(const mr_product_spec *s, int threads);
/* One matrix of `s`, without addresses. */
mr_gemm mr_gemm_of(const mr_product_spec *s, int threads);

/* The own product of bf16 on AMX tiles (isa/amx_gemm.c), faster than oneDNN 2.6 where the processor
 * has them (facts.amx) and it fits: one matrix, a dense dimension in each operand. workspace:
 * b_bytes + threads * own_bytes of what it needs. */
typedef struct mr_gemm_amx_sizes {
    int64_t rows;              /* of C per task */
    size_t b_bytes, own_bytes; /* packed B; scratch of one worker */
} mr_gemm_amx_sizes;
bool mr_gemm_amx_fits(const mr_product_spec *spec);
mr_gemm_amx_sizes mr_gemm_amx_needs(int64_t m, int64_t n, int64_t k, int threads);
mr_gemm_fn mr_gemm_amx;

#endif
