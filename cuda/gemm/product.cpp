/* cuda/gemm: maps row-major products to the column-major problems of cuBLASLt. With D = C^T the
 * library's first operand is B, its second A, and the bias of a column of C is that of a row of D.
 * Licence: Apache-2.0 */
#include "cuda/gemm/product.h"
#include <pthread.h>
#include <string.h>

/* PIECES: the maximum number of partial sums in split-K. cuBLASLt wants workspaces aligned to 256
 * bytes, those of calls are aligned to 64, so BETWEEN bytes are added. Ref: cuBLAS,
 * cublasLtMatmul(), "workspace". */
enum { PIECES = 16, WORKSPACE_MOST = 32 << 20, GRID = 256, BETWEEN = GRID - 64 };

/* Describe an operand [rows, cols] as column-major: the leading dimension of itself or of its
 * transpose. The step along a dimension of size 1 is ignored. */
static bool by_columns(int64_t rows, int64_t cols, int64_t row, int64_t col, bool *transposed,
                       int64_t *ld)
{
    if ((row == 1 || rows <= 1) && (cols <= 1 || col >= rows)) {
        *transposed = false;
        *ld = cols <= 1 ? rows : col;
    } else if ((col == 1 || cols <= 1) && (rows <= 1 || row >= cols)) {
        *transposed = true;
        *ld = rows <= 1 ? cols : row;
    } else {
        return false;
    }
    *ld = MR_MAX(*ld, (int64_t)1);
    return true;
}

static bool problem_of(const mr_product_spec *s, mr_cuda_product *p)
{
    memset(p, 0, sizeof *p); // plans are compared by bytes
    p->m = s->n;
    p->n = s->m;
    p->k = s->k;
    p->accumulate = s->accumulate;
    p->bias = s->bias;
    p->batch = s->batch;
    p->step_a = s->b_batch;
    p->step_b = s->a_batch;
    p->step_d = s->c_batch;
    p->in = p->in_b = s->in;
    p->out = s->out;
    p->ldd = s->m <= 1 ? MR_MAX(s->n, (int64_t)1) : s->c_row;
    return by_columns(s->n, s->k, s->b_col, s->b_row, &p->ta, &p->lda) &&
           by_columns(s->k, s->m, s->a_col, s->a_row, &p->tb, &p->ldb);
}

bool mr_cuda_product_fits(const mr_product_spec *spec)
{
    mr_cuda_product p;
    return problem_of(spec, &p);
}

size_t mr_cuda_product_workspace(const mr_product_spec *spec)
{
    size_t sums = (size_t)(spec->batch * spec->m * spec->n) * sizeof(float) * PIECES;
    return sums ? MR_MIN(sums, (size_t)WORKSPACE_MOST) + BETWEEN : 0;
}

// the largest power of two, at most 16, that divides all addresses and steps
static int64_t alignment(const mr_cuda_product *p, const void *a, const void *b, const void *bias,
                         const void *aux, const void *d)
{
    int64_t in = (int64_t)mr_dtype_bytes(p->in), out = (int64_t)mr_dtype_bytes(p->out);
    int64_t all = 16 | (int64_t)(uintptr_t)a | (int64_t)(uintptr_t)b | (int64_t)(uintptr_t)d |
                  (int64_t)(uintptr_t)bias | (int64_t)(uintptr_t)aux | p->lda * in | p->ldb * in |
                  p->ldd * out | p->ldaux * out | p->step_a * in | p->step_b * in | p->step_d * out;
    return all & -all;
}

/* Does cuBLASLt support this epilogue? Its tanh is accurate to five digits, too few for f32. It
 * wants rows of aux in multiples of 8 elements, and does not document unaligned aux, so aux must be
 * aligned to 16 bytes. A bias gradient has the dtype of the result, and the result gets nothing
 * else. */
static bool ends(const mr_cuda_product *p, const mr_product_ending *ending)
{
    bool gradient = ending->kind == MR_CUDA_BIAS_GRADIENT;
    bool single = p->batch == 1 && p->in == MR_BF16 && p->out == (gradient ? MR_F32 : MR_BF16);
    if (!single || (uintptr_t)ending->aux % 16)
        return false;
    if (gradient) // nothing runs for an empty result
        return !p->bias && p->ldaux == 0 && p->m > 0;
    return !ending->aux || (p->ldaux % 8 == 0 && p->ldaux >= p->m);
}

// ---- plans, by problem; kept until the process ends ----

struct Kept {
    Kept *next;
    mr_cuda_product problem;
    void *plan;
    size_t bytes;
};
static Kept *kept;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

// device pointers of a run
struct Operands {
    const void *a, *b, *bias;
    const float *const *scales;
    void *aux, *d;
};

static mr_status plan_of(const mr_cuda_product *p, size_t most, const Kept **out)
{
    for (const Kept *k = kept; k; k = k->next)
        if (memcmp(&k->problem, p, sizeof *p) == 0) {
            *out = k;
            return MR_OK;
        }
    Kept *k = (Kept *)mr_calloc(1, sizeof *k);
    if (!k)
        return mr_fail_memory(sizeof *k);
    memcpy(&k->problem, p, sizeof *p);
    k->bytes = most;
    int error = mr_cuda.product_new(p, &k->bytes, &k->plan);
    if (error) {
        mr_free(k);
        bool f8 = p->in == MR_F8_E4M3 || p->in == MR_F8_E5M2;
        return mr_fail(MR_E_UNSUPPORTED, "a product [%lld, %lld] by [%lld, %lld] in %s: %s%s",
                       (long long)p->n, (long long)p->k, (long long)p->k, (long long)p->m,
                       mr_dtype_name(p->in), mr_cuda.text(error),
                       f8 ? "; expected compute capability 8.9 or newer, and lengths and addresses "
                            "that are multiples of 16; try: operands of bf16"
                          : "");
    }
    k->next = kept;
    kept = k;
    *out = k;
    return MR_OK;
}

// `p` has no alignment yet; `most` is the result of mr_cuda_product_workspace
static mr_status run(mr_cuda_product *p, const Operands &x, size_t most, void *workspace,
                     void *stream)
{
    const Kept *k = NULL;
    if (p->m * p->n * p->batch == 0 || (p->k == 0 && p->accumulate))
        return MR_OK;
    if (p->k == 0 && (p->bias || p->ldd != p->m))
        return mr_fail(MR_E_UNSUPPORTED,
                       "a product with k = 0 and a bias, or with rows that are not dense");
    if (p->k == 0) {
        size_t bytes = (size_t)(p->batch * p->m * p->n) * mr_dtype_bytes(p->out);
        int error = mr_cuda.fill(x.d, 0, bytes, stream);
        return error ? mr_fail(MR_E_NODE, "filling with zeros: %s", mr_cuda.text(error)) : MR_OK;
    }
    p->align = alignment(p, x.a, x.b, x.bias, x.aux, x.d);
    char *grid = (char *)(((uintptr_t)workspace + GRID - 1) / GRID * GRID);
    pthread_mutex_lock(&keeping);
    mr_status st = plan_of(p, most - BETWEEN, &k);
    pthread_mutex_unlock(&keeping);
    if (st != MR_OK)
        return st;
    int error = mr_cuda.product_run(k->plan, x.a, x.b, x.scales, x.bias, x.aux, x.d, grid, k->bytes,
                                    stream);
    return error ? mr_fail(MR_E_NODE, "a product: %s", mr_cuda.text(error)) : MR_OK;
}

mr_status mr_cuda_product_run(const mr_product_spec *spec, const mr_product_ending *ending,
                              const void *a, const void *b, const void *bias, void *c,
                              void *workspace, void *stream)
{
    mr_cuda_product p;
    void *aux = ending ? ending->aux : NULL;
    if (!problem_of(spec, &p))
        return mr_fail(MR_E_UNSUPPORTED, "an operand of a product has no dense dimension");
    if (ending) {
        p.ending = ending->kind;
        p.ldaux = aux ? ending->aux_row : 0;
        if (p.k == 0 || !ends(&p, ending))
            return mr_fail(MR_E_UNSUPPORTED,
                           "a product in %s does not support this epilogue, aux in rows of %lld",
                           mr_dtype_name(p.out), (long long)p.ldaux);
    }
    return run(&p, {b, a, bias, NULL, aux, c}, mr_cuda_product_workspace(spec), workspace, stream);
}

size_t mr_cuda_product_f8_workspace(const mr_product_f8 *x)
{
    mr_product_spec s = {};
    s.batch = 1;
    s.m = x->m;
    s.n = x->n;
    return mr_cuda_product_workspace(&s);
}

mr_status mr_cuda_product_f8_run(const mr_product_f8 *x, const void *bias, void *c, void *workspace,
                                 void *stream)
{
    const float *const scales[2] = {x->b_scale, x->a_scale};
    mr_cuda_product p;
    memset(&p, 0, sizeof p); // plans are compared by bytes
    p.ta = true;
    p.m = p.ldd = x->n;
    p.n = x->m;
    p.k = p.lda = p.ldb = x->k;
    p.batch = 1;
    p.in = x->b_type;
    p.in_b = x->a_type;
    p.out = x->out;
    p.bias = bias != NULL;
    p.accumulate = x->accumulate;
    p.fast = p.in == MR_F8_E4M3 && p.in_b == MR_F8_E4M3;
    return run(&p, {x->b, x->a, bias, scales, NULL, c}, mr_cuda_product_f8_workspace(x), workspace,
               stream);
}
