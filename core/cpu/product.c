/* product: chooses the kernel of a product, and splits products into parts. Licence: Apache-2.0
 *
 * bf16: isa/amx_gemm.c if the processor has AMX and the shape fits. isa/gemm.c, which computes in
 * f32, if the processor has no AMX and its bf16 instructions are slow (Emerald Rapids without AMX,
 * one core, 768 rows: 1.4 to 1.9 times oneDNN's speed at widths of 1,152 to 4,608, 1.1 to 1.4 times
 * at 128 to 512). Otherwise oneDNN (product_onednn.c).
 *
 * Every product packs its weights again; packed weights are not kept. `moonreel bench packing`
 * reports the cost: 0.5 % of a forward pass of STDiT3-XL/2 and 1.5 % of the demo's (avx512,
 * moonreel's kernels). Weights change with each step, so a step could save at most a third of the
 * cost, if it runs the forward pass twice. Sampling would need two to four times the memory of the
 * weights. Only T5-XXL spends 17 % on packing, for one caption per sampled clip, and would need 19
 * GB more.
 *
 * f32: oneDNN or isa/gemm.c. Measured with oneDNN 2.6 on one core:
 * - With AVX2 the own product reaches 0.95 to 1.07 of oneDNN's speed at demo sizes and is equal at
 *   2,560 rows, except where rows or columns are few. oneDNN's also takes fresh memory in every
 *   call: the heap grew by 5 MB per demo step.
 * - With AVX-512 the own product is 2 to 9 % slower at demo sizes, and as fast or up to twice as
 *   fast (transposed operands) from 1 GFLOP on. */
#include "cpu/product.h"
#include "cpu/cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

// oneDNN cannot be interrupted: a share of more than SHARE_FLOP is split into several
enum { SERIAL_FLOP = 1000000, LARGE_FLOP = 1000000000 };
static const double SHARE_FLOP = 16e9;

/* OWN: isa/gemm.c. TILES: isa/amx_gemm.c. LIBRARY: oneDNN. */
typedef enum way { OWN, TILES, LIBRARY } way;

/* A product, split into several over fewer matrices, rows or columns. */
typedef struct shares {
    mr_product_spec each, last; /* last: the remainder, or empty */
    int64_t n;                  /* number of `each` */
    int64_t a, b, bias, c;      /* elements from one share to the next */
    int workers, team;          /* concurrent shares; threads of each */
    bool amx;                   /* as in facts: oneDNN needs more workspace */
} shares;

struct mr_product {
    mr_product_spec spec;
    int isa, threads;
    way way;
    bool packs_only; /* pack B, do not multiply */
    char how[16];    /* the name of the kernel */
    void *memory;    /* used instead of the workspace if the kernel needs more than planned */
    /* oneDNN's, for a share of the matrices, rows or columns, and for the remainder */
    mr_product_library *library, *last;
    shares cut;
};

/* ---- kernel and workspace: pure functions of shapes and facts ---- */

static double flop_of(const mr_product_spec *s)
{
    return 2.0 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
}

static int team_of(const mr_product_spec *s, const mr_facts *facts)
{
    return flop_of(s) < SERIAL_FLOP ? 1 : facts->threads;
}

static way way_of(const mr_product_spec *s, const mr_facts *facts)
{
    int isa = mr_isa_index(facts->isa);
    if (isa == 2 && facts->amx && mr_gemm_amx_fits(s))
        return TILES;
    double flop = flop_of(s);
    bool faster = s->in == MR_F32 ? isa == 1 || flop >= LARGE_FLOP : facts->bf16_by_f32;
    bool own = s->batch == 1 && MR_MIN(s->m, s->n) >= 64 && faster;
    bool library = isa > 0 && !own && (s->in == MR_F32 || facts->bf16);
    return library && mr_product_library_fits(s) ? LIBRARY : OWN;
}

/* ---- shares ---- */

/* The size of one of `parts` of `all`, in whole units. */
static int64_t part_of(int64_t all, double parts, int64_t unit)
{
    int64_t units = (int64_t)ceil((double)all / parts / (double)unit);
    return MR_MIN(MR_MAX(units, 1) * unit, all);
}

static bool is_empty(const mr_product_spec *s)
{
    return s->batch == 0 || s->m == 0 || s->n == 0;
}

/* Columns of C per pass. With a transposed A, a wide C is faster in narrow passes. */
static int64_t pass_width(const mr_product_spec *s)
{
    int64_t passes = (s->n + 768) / 1536;
    bool wide = s->in == MR_BF16 && s->a_col != 1 && s->accumulate && s->m >= 512 && passes > 1;
    return wide && s->n % (passes * 32) == 0 ? s->n / passes : s->n;
}

/* One share per thread, as equal as the blocks of the library allow. Shares are rows if there are
 * enough, since with columns each share reads all of A (two cores, 768 rows: 0.95 of the peak, with
 * columns 0.7). A large product is one share for the library's own team, which packs B once (2,560
 * rows: 4 to 10 % faster than shares that each pack it). */
static shares shares_of(const mr_product_spec *s, int threads, bool amx)
{
    enum { ROWS = 16, COLUMNS = 32, ENOUGH = 64 /* rows of a share */ };
    const double flop = flop_of(s);
    const bool large = flop >= LARGE_FLOP;
    shares c = {
        .each = *s, .workers = large ? 1 : threads, .team = large ? threads : 1, .amx = amx};
    double parts = MR_MAX(large ? ceil(flop / SHARE_FLOP) : (double)threads, 1.0);
    int64_t all, *each, *last;
    if (s->batch > 1) {
        all = s->batch, each = &c.each.batch, last = &c.last.batch;
        *each = part_of(all, parts, 1);
        c.a = s->a_batch * *each, c.b = s->b_batch * *each, c.c = s->c_batch * *each;
    } else if (pass_width(s) == s->n && (large || s->m >= ENOUGH * threads || s->m >= s->n)) {
        all = s->m, each = &c.each.m, last = &c.last.m;
        *each = part_of(all, parts, ROWS);
        c.a = s->a_row * *each, c.c = s->c_row * *each;
    } else {
        all = s->n, each = &c.each.n, last = &c.last.n;
        *each = MR_MIN(part_of(all, parts, COLUMNS), pass_width(s));
        c.b = s->b_col * *each, c.bias = c.c = *each;
    }
    c.n = all / *each;
    c.last = c.each;
    *last = all % *each;
    return c;
}

/* Workspace of one worker. */
static size_t share_workspace(const shares *c)
{
    return MR_MAX(mr_product_library_workspace(&c->each, c->team, c->amx),
                  mr_product_library_workspace(&c->last, c->team, c->amx));
}

typedef struct share_run {
    mr_product *p;
    const char *a, *b, *bias;
    char *c;
    char *workspace;
    size_t each; /* bytes per worker */
    atomic_int status;
} share_run;

static void run_share(void *user, int64_t begin, int64_t end, int worker)
{
    share_run *r = user;
    const mr_product *p = r->p;
    size_t in = mr_dtype_bytes(p->spec.in), out = mr_dtype_bytes(p->spec.out);
    for (int64_t i = begin; i < end; i++) {
        int st = mr_product_library_run(i < p->cut.n ? p->library : p->last,
                                        r->a + (size_t)(i * p->cut.a) * in,
                                        r->b + (size_t)(i * p->cut.b) * in,
                                        r->bias ? r->bias + (size_t)(i * p->cut.bias) * in : NULL,
                                        r->c + (size_t)(i * p->cut.c) * out, p->packs_only, worker,
                                        r->workspace + (size_t)worker * r->each);
        if (st)
            atomic_store(&r->status, st);
    }
}

static mr_status run_shares(mr_product *p, const void *a, const void *b, const void *bias, void *c,
                            void *workspace)
{
    const mr_product_spec *s = &p->spec;
    share_run r = {.p = p,
                   .a = a,
                   .b = b,
                   .bias = s->bias ? bias : NULL,
                   .c = c,
                   .workspace = workspace,
                   .each = share_workspace(&p->cut)};
    mr_cpu_for(p->cut.n + (p->last != NULL), 1, p->cut.workers, run_share, &r);
    int st = atomic_load(&r.status);
    return st ? mr_fail(MR_E_INTERNAL,
                        "oneDNN cannot multiply [%lld, %lld] by [%lld, %lld]: status %d; try: "
                        "MOONREEL_ISA=base, which does not use oneDNN",
                        (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n, st)
              : MR_OK;
}

/* ---- run ---- */

size_t mr_product_workspace(const mr_product_spec *spec, const mr_facts *facts)
{
    int threads = team_of(spec, facts);
    switch (way_of(spec, facts)) {
    case OWN: return mr_gemm_workspace(spec, threads);
    case TILES: {
        mr_gemm_amx_sizes z = mr_gemm_amx_needs(spec->m, spec->n, spec->k, threads);
        return z.b_bytes + (size_t)threads * z.own_bytes;
    }
    case LIBRARY: {
        shares c = shares_of(spec, threads, facts->amx);
        return (size_t)c.workers * share_workspace(&c);
    }
    default: return 0;
    }
}

const char *mr_product_way(const mr_product_spec *spec, const mr_facts *facts)
{
    static const char *const ways[] = {[OWN] = NULL, [TILES] = "tiles", [LIBRARY] = "library"};
    return ways[way_of(spec, facts)];
}

/* oneDNN rejects the product: use our kernel, in the workspace if it fits, else in allocated
 * memory. */
static mr_status serve_by_own(mr_product *p)
{
    p->way = OWN;
    mr_product_library_free(p->library);
    p->library = NULL;
    size_t bytes = mr_gemm_workspace(&p->spec, p->threads);
    if (bytes <= (size_t)p->cut.workers * share_workspace(&p->cut))
        return MR_OK;
    mr_product_unplanned(&p->spec, "rejects the product; moonreel's kernel computes it");
    p->memory = mr_alloc(bytes);
    return p->memory ? MR_OK : mr_fail_memory(bytes);
}

static mr_status make(mr_product *p, bool amx)
{
    if (p->way == LIBRARY) {
        p->cut = shares_of(&p->spec, p->threads, amx);
        bool more = !is_empty(&p->cut.last);
        MR_TRY(mr_product_library_new(&p->cut.each, p->cut.workers, p->cut.team, amx, &p->library));
        if (p->library && more)
            MR_TRY(
                mr_product_library_new(&p->cut.last, p->cut.workers, p->cut.team, amx, &p->last));
        if (!p->library || (more && !p->last))
            MR_TRY(serve_by_own(p));
    }
    snprintf(p->how, sizeof p->how, "own %s", p->way == TILES ? "amx" : mr_isa_name(p->isa));
    return MR_OK;
}

mr_status mr_product_new(const mr_product_spec *spec, const mr_facts *facts, mr_product **out)
{
    mr_product *p;
    if ((spec->in != MR_F32 && spec->in != MR_BF16) ||
        (spec->out != spec->in && spec->out != MR_F32))
        return mr_fail(MR_E_UNSUPPORTED,
                       "a product of %s into %s has no kernel; expected f32 or bf16",
                       mr_dtype_name(spec->in), mr_dtype_name(spec->out));
    if (!MR_NEW(p))
        return mr_fail_memory(sizeof *p);
    p->spec = *spec, p->isa = MR_MAX(mr_isa_index(facts->isa), 0);
    p->threads = team_of(spec, facts), p->way = way_of(spec, facts);
    mr_status st = make(p, facts->amx);
    if (st == MR_OK)
        *out = p;
    else
        mr_product_free(p);
    return st;
}

void mr_product_free(mr_product *p)
{
    if (!p)
        return;
    mr_product_library_free(p->library), mr_product_library_free(p->last);
    mr_free(p->memory);
    mr_free(p);
}

const char *mr_product_how(const mr_product *p)
{
    return p->library ? mr_product_library_how(p->library) : p->how;
}

mr_gemm mr_gemm_of(const mr_product_spec *s, int threads)
{
    return (mr_gemm){.m = s->m,
                     .n = s->n,
                     .k = s->k,
                     .a_row = s->a_row,
                     .a_col = s->a_col,
                     .b_row = s->b_row,
                     .b_col = s->b_col,
                     .c_row = s->c_row,
                     .in = s->in,
                     .out = s->out,
                     .accumulate = s->accumulate,
                     .threads = threads};
}

mr_status mr_product_run(mr_product *p, const void *a, const void *b, const void *bias, void *c,
                         void *workspace)
{
    const mr_product_spec *s = &p->spec;
    if (p->way == LIBRARY)
        return run_shares(p, a, b, bias, c, workspace);
    static mr_gemm_fn *const own[] = {mr_gemm_base, mr_gemm_avx2, mr_gemm_avx512};
    size_t in = mr_dtype_bytes(s->in), to = mr_dtype_bytes(s->out);
    for (int64_t i = 0; i < s->batch; i++) {
        mr_gemm g = mr_gemm_of(s, p->threads);
        g.a = (const char *)a + (size_t)(i * s->a_batch) * in;
        g.b = (const char *)b + (size_t)(i * s->b_batch) * in;
        g.c = (char *)c + (size_t)(i * s->c_batch) * to;
        g.bias = s->bias ? bias : NULL;
        g.packs_only = p->packs_only;
        g.workspace = p->memory ? p->memory : workspace;
        if (p->way == TILES)
            mr_gemm_amx(&g);
        else
            own[p->isa](&g);
    }
    return MR_OK;
}

mr_status mr_product_pack(mr_product *p, const void *b, void *workspace)
{
    p->packs_only = true;
    // A and C are not accessed
    mr_status st = mr_product_run(p, b, b, NULL, workspace, workspace);
    p->packs_only = false;
    return st;
}
