/* bench: product peak and memory rate. Licence: Apache-2.0
 *
 * oneDNN gets packed weights: its peak is the rate of forward products alone, without the cost of
 * packing. Our own kernels pack in each run. They count where they are faster despite that. If f32
 * instructions multiply bf16 faster, the bf16 peak is the f32 peak. */
#include "moonreel/bench.h"
#include "cpu/cpu.h"
#include "cpu/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef MR_HAVE_ONEDNN
#include "cpu/onednn.h"
#endif

typedef struct shape {
    int64_t m, n, k;
} shape;
static const shape shapes[] = {{2560, 1152, 1152}, {2560, 4608, 1152}, {2560, 1152, 4608},
                               {1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 1024, 1024},
                               {512, 512, 512}};

/* One product that can be repeated: x [m, k], w [n, k], y [m, n]. */
typedef struct trial {
    void *x, *w, *y;
    mr_product *own;
    void *work; /* workspace of `own`; with oneDNN the packed w */
#ifdef MR_HAVE_ONEDNN
    dnnl_primitive_t product;
#endif
    int threads;
    char how[96];
} trial;

static void trial_fini(trial *t)
{
#ifdef MR_HAVE_ONEDNN
    if (t->product)
        dnnl_primitive_destroy(t->product);
#endif
    mr_product_free(t->own);
    mr_free(t->x), mr_free(t->w), mr_free(t->y), mr_free(t->work);
}

/* Writes small varied values. Zeros would draw less power than real data. */
static void fill(void *p, int64_t n, mr_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        float v = (float)((i * 7919) % 255 - 127) / 128.0f;
        if (dtype == MR_BF16)
            ((uint16_t *)p)[i] = mr_f32_to_bf16(v);
        else
            ((float *)p)[i] = v;
    }
}

#ifdef MR_HAVE_ONEDNN
/* Creates the primitive and packs the weights in its preferred layout. */
static dnnl_status_t onednn_init(trial *t, const shape *s, mr_dtype dtype)
{
    dnnl_data_type_t type = onednn_type(dtype);
    dnnl_engine_t engine = onednn_engine();
    onednn_own_md x = {0}, w = {0}, y = {0}, plain = {0};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t reorder = NULL;
    dnnl_status_t st;
#define STEP(call)                                                                                 \
    if ((st = (call)) != dnnl_success)                                                             \
    goto out
    STEP(onednn_md_init(&x, 2, (int64_t[]){s->m, s->k}, (int64_t[]){s->k, 1}, type));
    STEP(onednn_md_init(&w, 2, (int64_t[]){s->k, s->n}, NULL, type));
    STEP(onednn_md_init(&y, 2, (int64_t[]){s->m, s->n}, (int64_t[]){s->n, 1}, type));
    STEP(onednn_matmul(&pd, engine, ONEDNN_MD(&x), ONEDNN_MD(&w), NULL, ONEDNN_MD(&y), NULL));
    STEP(dnnl_primitive_create(&t->product, pd));
    onednn_md packed = onednn_query_md(pd, dnnl_query_weights_md);
    t->work = mr_alloc(dnnl_memory_desc_get_size(packed));
    STEP(t->work ? dnnl_success : dnnl_out_of_memory);
    STEP(onednn_md_init(&plain, 2, (int64_t[]){s->k, s->n}, (int64_t[]){1, s->k}, type));
    STEP(onednn_reorder(&reorder, ONEDNN_MD(&plain), packed, false));
    onednn_operand turn[] = {{DNNL_ARG_FROM, t->w}, {DNNL_ARG_TO, t->work}};
    STEP(onednn_run(reorder, turn, MR_COUNT(turn)));
    const char *info = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info);
    snprintf(t->how, sizeof t->how, "onednn %s", info);
out:
#undef STEP
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (reorder)
        dnnl_primitive_destroy(reorder);
    onednn_md_free(&x), onednn_md_free(&w), onednn_md_free(&y), onednn_md_free(&plain);
    return st;
}
#endif

static mr_status trial_init(trial *t, const shape *s, mr_dtype dtype, int threads, bool own)
{
    size_t width = mr_dtype_bytes(dtype);
    t->x = mr_alloc((size_t)(s->m * s->k) * width), t->w = mr_alloc((size_t)(s->n * s->k) * width),
    t->y = mr_alloc((size_t)(s->m * s->n) * width);
    t->threads = threads;
    if (!t->x || !t->w || !t->y)
        return mr_fail_memory((size_t)(s->m * s->k + s->n * s->k + s->m * s->n) * width);
    fill(t->x, s->m * s->k, dtype), fill(t->w, s->n * s->k, dtype);
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), threads);
    mr_product_spec spec = {.batch = 1,
                            .m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .a_row = s->k,
                            .a_col = 1,
                            .b_row = 1,
                            .b_col = s->k,
                            .c_row = s->n,
                            .in = dtype,
                            .out = dtype};
    // first, because it also sets the library's instruction set limit for this processor
    MR_TRY(mr_product_new(&spec, &facts, &t->own));
    snprintf(t->how, sizeof t->how, "%s", mr_product_how(t->own));
#ifdef MR_HAVE_ONEDNN
    int before = onednn_team(threads);
    dnnl_status_t st = mr_isa() > 0 && !own ? onednn_init(t, s, dtype) : dnnl_unimplemented;
    onednn_team(before);
    if (st == dnnl_success)
        return MR_OK;
    if (t->product)
        dnnl_primitive_destroy(t->product), t->product = NULL;
    mr_free(t->work);
#endif
    size_t bytes = mr_product_workspace(&spec, &facts);
    t->work = mr_alloc(bytes);
    return t->work ? MR_OK : mr_fail_memory(bytes);
}

static mr_status trial_run(trial *t)
{
#ifdef MR_HAVE_ONEDNN
    if (t->product) {
        onednn_operand operands[] = {
            {DNNL_ARG_SRC, t->x}, {DNNL_ARG_WEIGHTS, t->work}, {DNNL_ARG_DST, t->y}};
        int before = onednn_team(t->threads);
        dnnl_status_t st = onednn_run(t->product, operands, MR_COUNT(operands));
        onednn_team(before);
        return st == dnnl_success
                   ? MR_OK
                   : mr_fail(MR_E_INTERNAL, "the product of the peak measurement failed");
    }
#endif
    return mr_product_run(t->own, t->x, t->w, NULL, t->y, t->work);
}

/* Chooses the dtype in which products are fastest: f32 replaces bf16 if bf16 is slower here. */
static mr_status choose_dtype(mr_dtype *dtype)
{
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), 1);
    if (*dtype == MR_BF16 && !facts.bf16)
        return mr_fail(MR_E_UNSUPPORTED, "this processor cannot multiply bf16; try: f32");
    if (*dtype == MR_BF16 && facts.bf16_by_f32)
        *dtype = MR_F32;
    return MR_OK;
}

/* Runs one shape for `seconds`, at least once, after a warm-up run. Returns the rates of the best
 * run and of all runs. */
static mr_status measure(const shape *s, mr_dtype dtype, int threads, bool own, double seconds,
                         trial *t, double *best, double *mean)
{
    double flop = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    *best = *mean = 0;
    MR_TRY(trial_init(t, s, dtype, threads, own));
    MR_TRY(trial_run(t));
    double start = mr_now_s(), now = start;
    for (int runs = 1; runs == 1 || now - start < seconds; runs++) {
        double from = now;
        MR_TRY(trial_run(t));
        now = mr_now_s();
        *best = MR_MAX(*best, flop / (now - from) * 1e-12);
        *mean = flop * runs / (now - start) * 1e-12;
    }
    return MR_OK;
}

mr_status mr_bench_product_peak(mr_dtype dtype, int threads, double seconds, mr_bench_peak *out)
{
    *out = (mr_bench_peak){0};
    MR_TRY(choose_dtype(&dtype));
    mr_status st = MR_OK;
    for (size_t i = 0; i < 2 * MR_COUNT(shapes) && st == MR_OK; i++) {
        const shape *s = &shapes[i / 2];
        trial t = {0};
        double best, mean;
        st = measure(s, dtype, threads, i % 2, seconds, &t, &best, &mean);
        if (st == MR_OK && best > out->tflops) {
            out->tflops = best, out->m = s->m, out->n = s->n, out->k = s->k, out->own = i % 2;
            snprintf(out->how, sizeof out->how, "%s", t.how);
        }
        trial_fini(&t);
    }
    return st;
}

mr_status mr_bench_product_rate(mr_dtype dtype, int threads, int64_t m, int64_t n, int64_t k,
                                bool own, double seconds, double *tflops)
{
    trial t = {0};
    double best;
    *tflops = 0;
    MR_TRY(choose_dtype(&dtype));
    if (m < 1 || n < 1 || k < 1)
        return mr_fail(MR_E_SHAPE,
                       "product of %lld x %lld x %lld: expected each number to be 1 or more",
                       (long long)m, (long long)n, (long long)k);
    mr_status st = measure(&(shape){m, n, k}, dtype, threads, own, seconds, &t, &best, tflops);
    trial_fini(&t);
    return st;
}

typedef struct pass {
    float *x, *y;
} pass;
static void pass_part(void *user, int64_t begin, int64_t end, int worker)
{
    const pass *p = user;
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        p->y[i] = p->x[i] + 1.0f;
}

mr_status mr_bench_memory_rate(int64_t bytes, int threads, double seconds, double *bytes_per_s)
{
    const int64_t n = MR_MAX(bytes / 2 / (int64_t)sizeof(float), 1);
    pass p = {mr_calloc((size_t)n, sizeof(float)), mr_calloc((size_t)n, sizeof(float))};
    mr_status st = p.x && p.y ? MR_OK : mr_fail_memory((size_t)n * 2 * sizeof(float));
    *bytes_per_s = 0;
    if (st == MR_OK) {
        mr_cpu_for(n, 65536, threads, pass_part, &p);
        double start = mr_now_s(), spent = 0;
        for (int64_t runs = 1; runs == 1 || spent < seconds; runs++) {
            mr_cpu_for(n, 65536, threads, pass_part, &p);
            spent = mr_now_s() - start;
            *bytes_per_s = (double)(2 * n * runs * (int64_t)sizeof(float)) / spent;
        }
    }
    mr_free(p.x), mr_free(p.y);
    return st;
}

size_t mr_bench_resident(void)
{
    char *text, *resident;
    size_t n, pages = 0;
    if (mr_file_read_all("/proc/self/statm", &text, &n) != MR_OK)
        return mr_error_clear(), 0;
    // the first two numbers: pages of address space, pages of memory
    strtoull(text, &resident, 10);
    pages = (size_t)strtoull(resident, NULL, 10);
    mr_free(text);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t mr_bench_max_resident(void)
{
    // not getrusage(): its maximum includes the size of the parent before exec
    static const char key[] = "VmHWM:";
    char *text;
    size_t n, kib = 0;
    if (mr_file_read_all("/proc/self/status", &text, &n) != MR_OK)
        return mr_error_clear(), 0;
    const char *line = strstr(text, key);
    if (line)
        kib = (size_t)strtoull(line + sizeof key - 1, NULL, 10);
    mr_free(text);
    return kib * 1024;
}
