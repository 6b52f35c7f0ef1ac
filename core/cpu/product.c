/* product: which way a product takes, and products in pieces. Licence: Apache-2.0
 *
 * bf16 goes to isa/amx_gemm.c where the processor has AMX and the shape fits; where it has none and
 * its bf16 instructions are slow, to isa/gemm.c, which computes in f32 (Emerald Rapids without AMX,
 * one core, 768 rows: 1.4 to 1.9 times oneDNN's speed at widths of 1,152 to 4,608, 1.1 to 1.4 times
 * at 128 to 512); the rest of bf16 to oneDNN (product_onednn.c).
 *
 * Weights are packed anew in each product, none is kept packed. `moonreel bench packing` tells what
 * that takes: 0.5 % of a forward pass of STDiT3-XL/2 and 1.5 % of the demo's (avx512, own kernels).
 * A step could save a third of it, where it runs the forward pass twice, since all weights are new
 * in the next one; a rendering would pay for it with two to four times the memory of the weights.
 * Only T5-XXL spends 17 % on it, for one caption before the rendering, and would need 19 GB more.
 *
 * f32 goes to oneDNN or to isa/gemm.c. What was measured there (oneDNN 2.6, one core):
 * - With AVX2 the own product reaches 0.95 to 1.07 of oneDNN's speed at demo sizes and is equal at
 *   2,560 rows, except where rows or columns are few. oneDNN's also takes fresh memory in every
 *   call: the heap grew by 5 MB per demo step.
 * - With AVX-512 the own product is 2 to 9 % slower at demo sizes, and as fast or up to twice as
 *   fast (transposed operands) from 1 GFLOP on. */
#include "cpu/product.h"
#include "cpu/cpu.h"

#include <stdatomic.h>
#include <stdio.h>

// oneDNN cannot be interrupted: a product of more than PIECE_FLOP is cut into several
enum { SERIAL_FLOP = 1000000, LARGE_FLOP = 1000000000 };
static const double PIECE_FLOP = 16e9;

/* OWN, TILES: own kernels, on AMX tiles. LIBRARY: oneDNN. PIECES: oneDNN in several products. */
typedef enum way { OWN, TILES, LIBRARY, PIECES } way;

struct mr_product {
    mr_product_spec spec;
    int isa, threads;
    way way;
    bool packs_only; /* B is packed, nothing is multiplied */
    char how[16];    /* an own kernel */
    void *memory;    /* instead of the workspace, where own kernels need more than was planned */
    mr_product_library *library;
    /* of a large one: a range of its matrices or rows, and what is left */
    mr_product *piece, *last;
    int64_t pieces, step[3]; /* elements of A, B and C between pieces */
};

/* ---- which way, and what it needs: pure functions of shapes and facts ---- */

static double flop_of(const mr_product_spec *s)
{
    return 2.0 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
}

static int team_of(const mr_product_spec *s, const mr_facts *facts)
{
    return flop_of(s) < SERIAL_FLOP ? 1 : facts->threads;
}

/* Matrices, or rows of one, that are done at once. */
static int64_t piece_of(const mr_product_spec *s)
{
    double share = PIECE_FLOP / MR_MAX(flop_of(s), 1.0);
    if (s->batch > 1)
        return MR_MAX((int64_t)(share * (double)s->batch), 1);
    return MR_MAX((int64_t)(share * (double)s->m) / 64 * 64, 64);
}

static way way_of(const mr_product_spec *s, const mr_facts *facts)
{
    int isa = mr_isa_index(facts->isa);
    if (isa == 2 && facts->amx && mr_gemm_amx_fits(s))
        return TILES;
    double flop = flop_of(s);
    bool faster = s->in == MR_F32 ? isa == 1 || flop >= LARGE_FLOP : facts->bf16_by_f32;
    bool own = s->batch == 1 && MR_MIN(s->m, s->n) >= 64 && faster;
    if (isa <= 0 || own || (s->in != MR_F32 && !facts->bf16) || !mr_product_library_fits(s))
        return OWN;
    bool cut = flop > PIECE_FLOP && piece_of(s) < (s->batch > 1 ? s->batch : s->m);
    return cut ? PIECES : LIBRARY;
}

/* ---- in pieces ---- */

/* A large product as several over fewer matrices, or over fewer rows of one. */
static int64_t pieces_of(const mr_product_spec *whole, mr_product_spec *piece,
                         mr_product_spec *last)
{
    int64_t each = piece_of(whole);
    *piece = *last = *whole;
    bool many = whole->batch > 1;
    *(many ? &piece->batch : &piece->m) = each;
    int64_t all = many ? whole->batch : whole->m;
    *(many ? &last->batch : &last->m) = all % each;
    return all / each;
}

static mr_status cut(mr_product *p, const mr_facts *facts)
{
    const mr_product_spec *s = &p->spec;
    mr_product_spec piece, last;
    p->pieces = pieces_of(s, &piece, &last);
    bool many = s->batch > 1;
    p->step[0] = many ? piece.batch * s->a_batch : piece.m * s->a_row;
    p->step[1] = many ? piece.batch * s->b_batch : 0;
    p->step[2] = many ? piece.batch * s->c_batch : piece.m * s->c_row;
    MR_TRY(mr_product_new(&piece, facts, &p->piece));
    return last.batch && last.m ? mr_product_new(&last, facts, &p->last) : MR_OK;
}

static mr_status run_pieces(mr_product *p, const char *a, const char *b, const void *bias, char *c,
                            void *workspace)
{
    int64_t in = (int64_t)mr_dtype_bytes(p->spec.in), out = (int64_t)mr_dtype_bytes(p->spec.out);
    for (int64_t i = 0; i < p->pieces + (p->last != NULL) && !mr_interrupt_get(); i++) {
        mr_product *piece = i < p->pieces ? p->piece : p->last;
        piece->packs_only = p->packs_only;
        MR_TRY(mr_product_run(piece, a + i * p->step[0] * in, b + i * p->step[1] * in, bias,
                              c + i * p->step[2] * out, workspace));
    }
    return MR_OK;
}

/* ---- any way ---- */

size_t mr_product_workspace(const mr_product_spec *spec, const mr_facts *facts)
{
    int threads = team_of(spec, facts);
    switch (way_of(spec, facts)) {
    case OWN: return mr_gemm_workspace(spec, threads);
    case TILES: {
        mr_gemm_amx_sizes z = mr_gemm_amx_needs(spec->m, spec->n, spec->k, threads);
        return z.b_bytes + (size_t)threads * z.own_bytes;
    }
    case LIBRARY: return mr_product_library_workspace(spec, threads);
    case PIECES: {
        mr_product_spec piece, last;
        pieces_of(spec, &piece, &last);
        size_t most = mr_product_workspace(&piece, facts);
        if (last.batch && last.m)
            most = MR_MAX(most, mr_product_workspace(&last, facts));
        return most;
    }
    default: return 0;
    }
}

const char *mr_product_way(const mr_product_spec *spec, const mr_facts *facts)
{
    static const char *const ways[] = {
        [OWN] = NULL, [TILES] = "tiles", [LIBRARY] = "library", [PIECES] = "library"};
    return ways[way_of(spec, facts)];
}

void mr_product_unplanned(const mr_product_spec *s, const char *what)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        mr_log(MR_LOG_WARN,
               "oneDNN %s for [%lld, %lld] by [%lld, %lld], outside of what was planned", what,
               (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
}

/* oneDNN refuses: the own kernel, in the workspace where it fits, else in memory of its own. */
static mr_status serve_by_own(mr_product *p)
{
    p->way = OWN;
    size_t bytes = mr_gemm_workspace(&p->spec, p->threads);
    if (bytes <= mr_product_library_workspace(&p->spec, p->threads))
        return MR_OK;
    mr_product_unplanned(&p->spec, "does not serve: own kernels do");
    p->memory = mr_alloc(bytes);
    return p->memory ? MR_OK : mr_fail_memory(bytes);
}

static mr_status make(mr_product *p, const mr_facts *facts)
{
    if (p->way == PIECES)
        return cut(p, facts);
    if (p->way == LIBRARY) {
        MR_TRY(mr_product_library_new(&p->spec, p->threads, &p->library));
        if (!p->library)
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
        return mr_fail(MR_E_UNSUPPORTED, "products of %s into %s run on the naive row",
                       mr_dtype_name(spec->in), mr_dtype_name(spec->out));
    if (!MR_NEW(p))
        return mr_fail_memory(sizeof *p);
    p->spec = *spec, p->isa = MR_MAX(mr_isa_index(facts->isa), 0);
    p->threads = team_of(spec, facts), p->way = way_of(spec, facts);
    mr_status st = make(p, facts);
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
    mr_product_free(p->piece), mr_product_free(p->last);
    mr_product_library_free(p->library);
    mr_free(p->memory);
    mr_free(p);
}

const char *mr_product_how(const mr_product *p)
{
    if (p->piece)
        return mr_product_how(p->piece);
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
    if (p->way == PIECES)
        return run_pieces(p, a, b, bias, c, workspace);
    if (p->way == LIBRARY)
        return mr_product_library_run(p->library, a, b, bias, c, p->packs_only, workspace);
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
    // A and C are not touched
    mr_status st = mr_product_run(p, b, b, NULL, workspace, workspace);
    p->packs_only = false;
    return st;
}
