/* op/product: own kernels of each instruction set, and the way chosen on this machine, compared
 * with f64 sums; shapes around the block sizes, transposed and padded operands, bias, accumulation.
 * Covers: core/cpu/product.c core/cpu/isa/gemm.c core/cpu/isa.c core/cpu/facts.c */
#define _GNU_SOURCE // RTLD_NEXT
#include "productcase.h"

#include <dlfcn.h>
#include <stdatomic.h>

/* Replace the library's functions: they refuse on request, or want more memory than the library
 * does. */
static bool refuse, greedy;
int dnnl_primitive_create(void **out, const void *desc);
int dnnl_primitive_create(void **out, const void *desc)
{
    enum { UNIMPLEMENTED = 3 };
    union {
        void *at;
        int (*call)(void **, const void *);
    } real = {dlsym(RTLD_NEXT, "dnnl_primitive_create")};
    return refuse || !real.at ? UNIMPLEMENTED : real.call(out, desc);
}

size_t dnnl_memory_desc_get_size(const void *desc);
size_t dnnl_memory_desc_get_size(const void *desc)
{
    union {
        void *at;
        size_t (*call)(const void *);
    } real = {dlsym(RTLD_NEXT, "dnnl_memory_desc_get_size")};
    return real.at ? real.call(desc) + (greedy ? 1 << 24 : 0) : 0;
}

/* Fails instead of a run, or records where results are written. */
static bool broken;
typedef struct argument {
    int name;
    const void *memory;
} argument;
static atomic_int n_results;
static const char *results[64];
static void note_results(const argument *args, int n)
{
    enum { RESULT = 17 };
    union {
        void *at;
        int (*call)(const void *, void **);
    } handle = {dlsym(RTLD_NEXT, "dnnl_memory_get_data_handle")};
    for (int i = 0; handle.at && i < n; i++) {
        void *at = NULL;
        if (args[i].name == RESULT && handle.call(args[i].memory, &at) == 0)
            results[atomic_fetch_add(&n_results, 1) % (int)MR_COUNT(results)] = at;
    }
}

int dnnl_primitive_execute(const void *primitive, void *stream, int n, const void *args);
int dnnl_primitive_execute(const void *primitive, void *stream, int n, const void *args)
{
    enum { RUNTIME_ERROR = 5 };
    union {
        void *at;
        int (*call)(const void *, void *, int, const void *);
    } real = {dlsym(RTLD_NEXT, "dnnl_primitive_execute")};
    note_results(args, n);
    return broken || !real.at ? RUNTIME_ERROR : real.call(primitive, stream, n, args);
}

typedef struct shape {
    int64_t batch, m, n, k;
    bool ta, tb, bias, accumulate;
    mr_dtype in, out;
} shape;

static const shape shapes[] = {
    {1, 1, 1, 1, 0, 0, 0, 0, MR_F32, MR_F32},
    {1, 73, 33, 385, 0, 1, 1, 0, MR_F32, MR_F32},
    {1, 145, 65, 40, 1, 0, 0, 1, MR_F32, MR_F32},
    {3, 17, 31, 9, 0, 0, 0, 0, MR_F32, MR_F32},
    {1, 72, 64, 800, 0, 1, 1, 0, MR_BF16, MR_BF16},
    {1, 80, 100, 50, 1, 0, 0, 1, MR_BF16, MR_F32},
    {1, 513, 256, 700, 1, 0, 0, 1, MR_BF16, MR_F32},
    {1, 512, 257, 2000, 0, 0, 1, 0, MR_BF16, MR_BF16},
    {2, 30, 40, 50, 1, 1, 0, 0, MR_BF16, MR_BF16},
    {1, 5, 7, 0, 0, 0, 1, 0, MR_F32, MR_F32},
    {1, 512, 2304, 30, 1, 0, 0, 1, MR_BF16, MR_F32},
    {1, 75, 1190, 390, 0, 1, 1, 0, MR_BF16, MR_BF16},
    {1, 80, 1170, 800, 0, 1, 1, 0, MR_F32, MR_F32},
    {1, 1160, 70, 769, 1, 0, 0, 1, MR_F32, MR_F32},
};

/* The strides of a product of that shape; rows of C are padded by 3 elements. */
static mr_product_spec spec_of(const shape *x)
{
    return (mr_product_spec){.batch = x->batch,
                             .m = x->m,
                             .n = x->n,
                             .k = x->k,
                             .a_row = x->ta ? 1 : x->k,
                             .a_col = x->ta ? x->m : 1,
                             .b_row = x->tb ? 1 : x->n,
                             .b_col = x->tb ? x->k : 1,
                             .a_batch = x->m * x->k,
                             .b_batch = x->k * x->n,
                             .c_row = x->n + 3,
                             .c_batch = x->m * (x->n + 3),
                             .in = x->in,
                             .out = x->out,
                             .bias = x->bias,
                             .accumulate = x->accumulate};
}

typedef struct operands {
    void *a, *b, *bias;
    float *c0;
} operands;

static operands operands_of(const shape *x)
{
    return (operands){fill(x->batch * x->m * x->k, x->in, 1),
                      fill(x->batch * x->k * x->n, x->in, 2), fill(x->n, x->in, 3),
                      fill(x->batch * x->m * (x->n + 3), MR_F32, 4)};
}

static void release(operands o)
{
    free(o.a), free(o.b), free(o.bias), free(o.c0);
}

/* c0 + a b + bias in f64, with the strides of C. */
static double *sums(const mr_product_spec *s, const operands *o)
{
    double *out = calloc((size_t)(s->batch * s->c_batch + 1), sizeof *out);
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t r = 0; r < s->m; r++)
            for (int64_t j = 0; j < s->n; j++) {
                int64_t at = i * s->c_batch + r * s->c_row + j;
                double want = (s->bias ? get(o->bias, j, s->in) : 0) +
                              (s->accumulate ? (double)o->c0[at] : 0);
                for (int64_t p = 0; p < s->k; p++)
                    want += get(o->a, i * s->a_batch + r * s->a_row + p * s->a_col, s->in) *
                            get(o->b, i * s->b_batch + p * s->b_row + j * s->b_col, s->in);
                out[at] = want;
            }
    return out;
}

/* Relative L2 error of c. */
static double error(const mr_product_spec *s, const double *want, const void *c)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < s->batch; i++)
        for (int64_t r = 0; r < s->m; r++)
            for (int64_t j = 0; j < s->n; j++) {
                int64_t at = i * s->c_batch + r * s->c_row + j;
                double d = get(c, at, s->out) - want[at];
                diff += d * d, norm += want[at] * want[at];
            }
    return sqrt(diff / MR_MAX(norm, 1e-30));
}

static bool other_bf16; /* products of bf16 use a way that this processor does not choose */

static void run(const shape *x, const operands *o, const double *want, const char *isa, int threads)
{
    mr_facts facts = mr_cpu_facts("cpu", mr_isa_index(isa), threads);
    facts.bf16_by_f32 ^= facts.bf16 && other_bf16;
    mr_product_spec s = spec_of(x);
    void *c = fill(x->batch * s.c_batch, x->out, 4),
         *untouched = fill(x->batch * s.c_batch, x->out, 4);
    mr_product *p = NULL;
    CHECK_OK(mr_product_new(&s, &facts, &p));
    bool library = strncmp(mr_product_how(p), "onednn", 6) == 0;
    CHECK_INT(strstr(mr_product_how(p), "allocated memory") != NULL, library && greedy);
    size_t bytes = mr_product_workspace(&s, &facts);
    unsigned char *work = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    memset(work, 0xff, bytes + 64);
    // packing alone multiplies nothing
    CHECK_OK(mr_product_pack(p, o->b, work));
    CHECK(memcmp(c, untouched, (size_t)(x->batch * s.c_batch) * mr_dtype_bytes(x->out)) == 0);
    CHECK_OK(mr_product_run(p, o->a, o->b, o->bias, c, work));
    for (int i = 0; i < 64; i++)
        CHECK_INT(work[bytes + (size_t)i], 0xff);
    double e = error(&s, want, c), tol = x->out == MR_BF16 ? 5e-3 : 5e-6;
    if (!check_note(e <= tol))
        printf("%s, %d threads (%s): [%lld, %lld, %lld] off by %.3g, allowed %.3g\n", isa, threads,
               mr_product_how(p), (long long)x->m, (long long)x->n, (long long)x->k, e, tol);
    // the bytes between rows stay unchanged
    for (int64_t r = 0; r < x->m; r++)
        CHECK(get(c, r * s.c_row + x->n, x->out) == get(untouched, r * s.c_row + x->n, x->out));
    mr_product_free(p);
    free(c), free(work), free(untouched);
}

/* bf16 by instructions for f32 is the own product's, except for a few rows or columns. */
static void ways(void)
{
    mr_facts facts = {.isa = "avx512", .threads = 1, .bf16 = true};
    for (int by_f32 = 0; by_f32 < 2; by_f32++)
        for (int64_t n = 48; n < 130; n += 80) {
            mr_product_spec s = {.batch = 1,
                                 .m = 768,
                                 .n = n,
                                 .k = 128,
                                 .a_row = 128,
                                 .a_col = 1,
                                 .b_row = 1,
                                 .b_col = 128,
                                 .c_row = n,
                                 .in = MR_BF16,
                                 .out = MR_BF16};
            facts.bf16_by_f32 = by_f32;
            mr_product *p = NULL;
            CHECK_OK(mr_product_new(&s, &facts, &p));
            // without the library, or when it serves no bf16, all are the own product's
            bool own = strcmp(mr_product_how(p), "own avx512") == 0;
            CHECK(own || !(by_f32 && n >= 64));
            if (mr_cpu_bf16())
                CHECK(!own || (by_f32 && n >= 64));
            mr_product_free(p);
        }
}

/* Dense f32 [batch, m, n] of one A. */
static mr_product_spec dense(int64_t batch, int64_t m, int64_t n, int64_t k)
{
    return (mr_product_spec){.batch = batch,
                             .m = m,
                             .n = n,
                             .k = k,
                             .a_row = k,
                             .a_col = 1,
                             .b_row = n,
                             .b_col = 1,
                             .b_batch = k * n,
                             .c_row = n,
                             .c_batch = m * n,
                             .in = MR_F32,
                             .out = MR_F32};
}

/* More work than is done at once: shares, and none of them after an interruption. */
static void large(int threads)
{
    enum { B = 4, M = 990, N = 1001, K = 2100 };
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), threads);
    mr_product_spec s = dense(B, M, N, K);
    float *a = fill(M * K, MR_F32, 1), *b = fill(B * K * N, MR_F32, 2),
          *c = calloc(B * M * N, sizeof *c);
    mr_product *p = NULL;
    CHECK_OK(mr_product_new(&s, &facts, &p));
    void *work = aligned_alloc(64, (mr_product_workspace(&s, &facts) + 127) & ~(size_t)63);
    mr_interrupt_set(true);
    CHECK_OK(mr_product_run(p, a, b, NULL, c, work));
    CHECK(c[0] == 0 && c[B * M * N - 1] == 0);
    mr_interrupt_set(false);
    CHECK_OK(mr_product_run(p, a, b, NULL, c, work));
    for (int64_t at = 0; at < B * M * N; at += 99991) {
        int64_t i = at / (M * N), r = at / N % M, j = at % N;
        double want = 0;
        for (int64_t q = 0; q < K; q++)
            want += (double)a[r * K + q] * b[(i * K + q) * N + j];
        CHECK_NEAR(c[at], want, 1e-4);
    }
    if (strncmp(mr_product_how(p), "onednn", 6) == 0) {
        broken = true;
        CHECK_FAILS(mr_product_run(p, a, b, NULL, c, work), MR_E_INTERNAL, "status 5; try");
        broken = false;
    }
    mr_product_free(p);
    for (int64_t n = 1; n < 20; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_product_new(&s, &facts, &p);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            mr_product_free(p);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
    }
    free(a), free(b), free(c), free(work);
}

/* Shares differ by a few rows or columns for any shape: a team waits for the largest. */
static void shares(int64_t m, int64_t n)
{
    enum { K = 256, THREADS = 2 };
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), THREADS);
    mr_product_spec s = dense(1, m, n, K);
    if (!mr_product_way(&s, &facts) || strcmp(mr_product_way(&s, &facts), "library") != 0)
        return;
    float *a = fill(m * K, MR_F32, 1), *b = fill(K * n, MR_F32, 2),
          *c = calloc((size_t)(m * n), sizeof *c);
    mr_product *p = NULL;
    CHECK_OK(mr_product_new(&s, &facts, &p));
    void *work = aligned_alloc(64, (mr_product_workspace(&s, &facts) + 127) & ~(size_t)63);
    atomic_store(&n_results, 0);
    CHECK_OK(mr_product_run(p, a, b, NULL, c, work));
    // elements of C before the second share: rows of it, or columns of the first row
    int64_t before = 0;
    for (int i = 0; i < MR_MIN(atomic_load(&n_results), (int)MR_COUNT(results)); i++) {
        int64_t at = ((const char *)results[i] - (const char *)c) / (int64_t)sizeof *c;
        if (at > 0 && at < m * n)
            before = before ? MR_MIN(before, at) : at;
    }
    double part = before >= n ? (double)before / (double)(m * n) : (double)before / (double)n;
    CHECK_NEAR(part, 0.5, 0.06);
    mr_product_free(p);
    free(a), free(b), free(c), free(work);
}

/* By each way of each processor that this one can emulate. */
static void check_shape(const shape *x)
{
    const mr_product_spec s = spec_of(x);
    const operands o = operands_of(x);
    double *want = sums(&s, &o);
    const char *best = mr_isa_name(mr_isa());
    run(x, &o, want, "base", 3);
    run(x, &o, want, best, 1);
    run(x, &o, want, best, 2);
    // a library that refuses: the own kernel, within the same workspace
    refuse = true;
    run(x, &o, want, best, 2);
    refuse = false;
    // one that wants more than planned: memory of the product's own
    greedy = true;
    run(x, &o, want, best, 2);
    greedy = false;
    other_bf16 = x->in == MR_BF16;
    if (other_bf16)
        run(x, &o, want, best, 2);
    other_bf16 = false;
    release(o), free(want);
}

int main(void)
{
    if (mr_isa() > 0)
        large(2);
    // few rows over wide weights, rows and columns near multiples of 64
    shares(144, 1024), shares(192, 1024), shares(176, 768), shares(96, 1184), shares(768, 288);
    for (size_t i = 0; i < MR_COUNT(shapes); i++)
        check_shape(&shapes[i]);
    ways();
    mr_product *p = NULL;
    mr_product_spec wide = {.batch = 1, .m = 2, .n = 2, .k = 2, .in = MR_F64, .out = MR_F64};
    CHECK_FAILS(mr_product_new(&wide, &(mr_facts){.isa = "base", .threads = 1}, &p),
                MR_E_UNSUPPORTED, "has no kernel; expected f32 or bf16");
    mr_product_free(NULL);
    wide.in = wide.out = MR_F32;
    mr_alloc_fail_at(1);
    CHECK_FAILS(mr_product_new(&wide, &(mr_facts){.isa = "base", .threads = 1}, &p), MR_E_MEMORY,
                "cannot allocate");
    return check_done();
}
