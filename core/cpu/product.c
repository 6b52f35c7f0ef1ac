/* product: which way a product takes, and the oneDNN way. Licence: Apache-2.0
 *
 * bf16 goes to isa/amx_gemm.c where the processor has AMX and the shape fits; where it has none and
 * its bf16 instructions are slow, to isa/gemm.c, which computes in f32 (Emerald Rapids without AMX,
 * one core, 768 rows: 1.4 to 1.9 times oneDNN's speed at widths of 1,152 to 4,608, 1.1 to 1.4 times
 * at 128 to 512); the rest of bf16 to oneDNN. What was measured there (oneDNN 2.6, AMX, 2,560 rows,
 * widths of 1,152 to 4,608):
 * - B [k, n] read in place reaches 0.56 to 0.85 of the speed of its packed form, a weight stored
 *   [n, k] 0.87 to 1.0. Packing it into the workspace takes 3 to 5 % of the product, and no second
 *   copy of the weights stays in memory. At demo sizes (768 rows, widths of 128 to 512) the packed
 *   form is 1.7 times as fast, but there a weight is used once between two updates, and packing it
 *   takes what that gives, also when it is done after the update.
 * - Weights are packed anew in each product, none is kept packed. `moonreel bench packing` tells
 *   what that takes: 0.5 % of a forward pass of STDiT3-XL/2 and 1.5 % of the demo's (avx512, own
 *   kernels). A step could save a third of it, where it runs the forward pass twice, since all
 *   weights are new in the next one; a rendering would pay for it with two to four times the memory
 *   of the weights. Only T5-XXL spends 17 % on it, for one caption before the rendering, and would
 *   need 19 GB more.
 * - A transposed A costs more than half of the speed on sums of 2,560 and little on 512: a weight's
 *   gradient is therefore added up in parts of 512 rows, a wide one in passes over columns.
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
#include <string.h>
#ifdef MR_HAVE_ONEDNN
#include "cpu/onednn.h"
#endif

// oneDNN cannot be interrupted: a product of more than PIECE_FLOP is cut into several
enum { SERIAL_FLOP = 1000000, LARGE_FLOP = 1000000000 };
static const double PIECE_FLOP = 16e9;

#ifdef MR_HAVE_ONEDNN
/* One primitive over a length of k; with `sum` it adds to C. */
typedef struct part {
    int64_t k;
    dnnl_primitive_t product, reorder; /* reorder: B into its packed form, or NULL */
    dnnl_memory_t a, b, bias, c, scratch, plain;
    size_t scratch_bytes, packed_bytes;
} part;
enum { FIRST, MIDDLE, LAST, PARTS };
#endif

/* OWN, TILES: own kernels, on AMX tiles. LIBRARY: oneDNN. PIECES: oneDNN in several products. */
typedef enum way { OWN, TILES, LIBRARY, PIECES } way;

struct mr_product {
    mr_product_spec spec;
    int isa, threads;
    way way;
    bool packs_only; /* B is packed, nothing is multiplied */
    char how[96];
    void *memory; /* instead of the workspace, where more is needed than was planned; else NULL */
#ifdef MR_HAVE_ONEDNN
    /* of a large one: a range of its matrices or rows, and what is left */
    mr_product *piece, *last;
    int64_t pieces, step[3]; /* elements of A, B and C between pieces */
    dnnl_stream_t stream;
    part parts[PARTS];      /* FIRST alone unless the sum is cut */
    int64_t chunk, columns; /* k per part; columns of C per pass */
    size_t packed_at;       /* in the workspace, after the scratchpad */
#endif
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

/* oneDNN takes matrices with one dense dimension and none repeated; empty products are left to the
 * own kernel. */
static bool library_fits(const mr_product_spec *s)
{
    return s->m > 0 && s->n > 0 && s->k > 0 && (s->a_col == 1 || s->a_row == 1) &&
           (s->b_col == 1 || s->b_row == 1) && s->a_col > 0 && s->a_row > 0 && s->b_col > 0 &&
           s->b_row > 0;
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
#ifdef MR_HAVE_ONEDNN
    double flop = flop_of(s);
    bool faster = s->in == MR_F32 ? isa == 1 || flop >= LARGE_FLOP : facts->bf16_by_f32;
    bool own = s->batch == 1 && MR_MIN(s->m, s->n) >= 64 && faster;
    if (isa <= 0 || own || (s->in != MR_F32 && !facts->bf16))
        return OWN;
    if (flop > PIECE_FLOP && piece_of(s) < (s->batch > 1 ? s->batch : s->m))
        return PIECES;
    return library_fits(s) ? LIBRARY : OWN;
#else
    return OWN;
#endif
}

/* ---- oneDNN ---- */

#ifdef MR_HAVE_ONEDNN
/* A matrix of `batch` as oneDNN sees it; batch stride 0 repeats one matrix. Lengths of 1 get a
 * stride that cannot be taken for a transposition. */
static dnnl_status_t matrix(onednn_own_md *md, int64_t batch, int64_t rows, int64_t cols,
                            int64_t batch_step, int64_t row_step, int64_t col_step, mr_dtype t,
                            bool any)
{
    if (cols == 1)
        col_step = row_step >= rows || rows == 1 ? 1 : row_step * rows;
    if (rows == 1)
        row_step = col_step * cols;
    int64_t dim[] = {batch, rows, cols}, step[] = {batch_step, row_step, col_step};
    if (batch_step == 0)
        dim[0] = 1, step[0] = rows * MR_MAX(row_step, 1) * cols;
    if (batch == 1)
        return onednn_md_init(md, 2, dim + 1, any ? NULL : step + 1, onednn_type(t));
    return onednn_md_init(md, 3, dim, any ? NULL : step, onednn_type(t));
}

static dnnl_status_t part_init(mr_product *pr, part *p, int64_t k, bool sum, bool bias, bool pack)
{
    const mr_product_spec *s = &pr->spec;
    onednn_own_md a = {0}, plain = {0}, b = {0}, bi = {0}, c = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_engine_t engine = onednn_engine();
    p->k = k;
#define STEP(call)                                                                                 \
    if ((st = (call)) != dnnl_success)                                                             \
    goto out
    dnnl_status_t st;
    STEP(matrix(&a, s->batch, s->m, k, s->a_batch, s->a_row, s->a_col, s->in, false));
    STEP(matrix(&plain, s->batch, k, pr->columns, s->b_batch, s->b_row, s->b_col, s->in, false));
    if (pack)
        STEP(matrix(&b, s->batch, k, pr->columns, s->b_batch, s->b_row, s->b_col, s->in, true));
    STEP(matrix(&c, s->batch, s->m, pr->columns, s->c_batch, s->c_row, 1, s->out, false));
    int64_t bias_dim[] = {1, 1, pr->columns}, bias_step[] = {pr->columns, pr->columns, 1};
    int lead = s->batch == 1 ? 1 : 0;
    if (bias)
        STEP(onednn_md_init(&bi, 3 - lead, bias_dim + lead, bias_step + lead, onednn_type(s->in)));
    STEP(dnnl_primitive_attr_create(&attr));
    STEP(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (sum) {
        STEP(dnnl_post_ops_create(&ops));
        STEP(onednn_add_sum(ops));
        STEP(dnnl_primitive_attr_set_post_ops(attr, ops));
    }
    STEP(onednn_matmul(&pd, engine, ONEDNN_MD(&a), ONEDNN_MD(pack ? &b : &plain),
                       bias ? ONEDNN_MD(&bi) : NULL, ONEDNN_MD(&c), attr));
    STEP(dnnl_primitive_create(&p->product, pd));
    onednn_md weights = onednn_query_md(pd, dnnl_query_weights_md),
              scratch = onednn_query_md(pd, dnnl_query_scratchpad_md);
    if (pack && !onednn_md_same(weights, ONEDNN_MD(&plain))) {
        STEP(onednn_reorder(&p->reorder, ONEDNN_MD(&plain), weights, false));
        STEP(dnnl_memory_create(&p->plain, ONEDNN_MD(&plain), engine, DNNL_MEMORY_NONE));
        p->packed_bytes = dnnl_memory_desc_get_size(weights);
    }
    p->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    STEP(dnnl_memory_create(&p->a, ONEDNN_MD(&a), engine, DNNL_MEMORY_NONE));
    STEP(dnnl_memory_create(&p->b, weights, engine, DNNL_MEMORY_NONE));
    STEP(dnnl_memory_create(&p->c, ONEDNN_MD(&c), engine, DNNL_MEMORY_NONE));
    if (bias)
        STEP(dnnl_memory_create(&p->bias, ONEDNN_MD(&bi), engine, DNNL_MEMORY_NONE));
    if (p->scratch_bytes)
        STEP(dnnl_memory_create(&p->scratch, scratch, engine, DNNL_MEMORY_NONE));
    if (pr->how[0] == 0) {
        const char *info = "";
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info);
        snprintf(pr->how, sizeof pr->how, "onednn %s%s", info, p->reorder ? " packed" : "");
    }
out:
#undef STEP
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    onednn_md_free(&a), onednn_md_free(&plain), onednn_md_free(&b), onednn_md_free(&bi),
        onednn_md_free(&c);
    return st;
}

static void part_fini(part *p)
{
    if (p->product)
        dnnl_primitive_destroy(p->product);
    if (p->reorder)
        dnnl_primitive_destroy(p->reorder);
    dnnl_memory_t memories[] = {p->a, p->b, p->bias, p->c, p->scratch, p->plain};
    onednn_drop(memories, MR_COUNT(memories));
    *p = (part){0};
}

/* Length of one part of the sum; k itself when it is not cut. Parts add to C, so it must
 * accumulate. */
static int64_t chunk_length(const mr_product_spec *s)
{
    enum { LONGEST = 512 };
    // such lengths make oneDNN 2.6 keep a whole C of f32 for every member of the team
    bool power = s->k >= 2048 && (s->k & (s->k - 1)) == 0;
    bool slow = s->in == MR_BF16 && s->batch == 1 && s->a_col != 1 && s->accumulate &&
                s->m >= 512 && s->n >= 256;
    if (!slow && power && s->in == MR_BF16 && s->a_col != 1 && s->accumulate)
        return s->k / 2 + 32;
    if (!slow || s->k <= LONGEST + LONGEST / 4)
        return s->k;
    int64_t pieces = (s->k + LONGEST - 1) / LONGEST;
    return (s->k + pieces * 32 - 1) / (pieces * 32) * 32;
}

/* Columns of C per pass: a transposed A with a wide C runs better in passes over narrow ones. */
static int64_t pass_width(const mr_product_spec *s)
{
    int64_t passes = (s->n + 768) / 1536;
    bool wide = s->in == MR_BF16 && s->batch == 1 && s->a_col != 1 && s->accumulate &&
                s->m >= 512 && passes > 1;
    return wide && s->n % (passes * 32) == 0 ? s->n / passes : s->n;
}

/* Whether packing B costs less than reading it in place does: from few rows on for B [k, n], only
 * for many rows for a weight stored [n, k]. */
static bool pack_pays(const mr_product_spec *s)
{
    if (s->in != MR_BF16 || s->batch != 1 || s->n < 256)
        return false;
    return s->m >= (s->b_row != 1 ? 512 : 2048);
}

/* What oneDNN takes of the workspace. Its scratchpad holds, per member of the team, pieces of A, B
 * and C in its own order; over shapes of 1 to 20,000 and teams of 1 to 64 those of 2.6 are as large
 * as here or smaller. For bf16 results it may hold
 * a whole C of f32 per member where A is turned round or a matrix is not dense. Packed B is padded
 * to tiles. */
typedef struct room {
    size_t scratch, packed;
} room;

static size_t round64(int64_t n)
{
    return ((size_t)n + 63) & ~(size_t)63;
}

/* No pads between rows or matrices, and no matrix repeated. */
static bool dense(const mr_product_spec *s)
{
    bool a = s->a_col == 1 ? s->a_row == s->k : s->a_col == s->m,
         b = s->b_col == 1 ? s->b_row == s->n : s->b_col == s->k;
    bool batch = s->batch == 1 || (s->a_batch == s->m * s->k && s->b_batch == s->k * s->n &&
                                   s->c_batch == s->m * s->n);
    return a && b && s->c_row == s->n && batch;
}

static room library_room(const mr_product_spec *s, int threads)
{
    enum { FIXED = 12 << 10, LONGEST = 1024 };
    bool turned = s->a_col != 1;
    size_t m = MR_MIN(round64(s->m), turned ? 512 : 128), k = MR_MIN(round64(s->k), LONGEST),
           n = MR_MIN(round64(s->n), turned ? 256 : 64), width = mr_dtype_bytes(s->in), c = m * n;
    // pieces of turned sums that are a little longer than 512 are padded to more
    if (turned && k > 512)
        k = s->in == MR_BF16 ? 1152 : MR_MAX(k, 768);
    if (s->out != MR_F32 && (turned || !dense(s)))
        c = MR_MAX(c, (size_t)(s->m * s->n));
    size_t worker = FIXED + width * k * (m + n) + sizeof(float) * c;
    room r = {.scratch = (size_t)threads * worker};
    if (pack_pays(s))
        r.packed = width * round64(pass_width(s)) * round64(chunk_length(s));
    return r;
}

static bool onednn_init(mr_product *p)
{
    const mr_product_spec *s = &p->spec;
    if (dnnl_stream_create(&p->stream, onednn_engine(), dnnl_stream_default_flags) != dnnl_success)
        return false;
    p->chunk = chunk_length(s), p->columns = pass_width(s);
    bool cut = p->chunk < s->k, pack = pack_pays(s);
    int before = onednn_team(p->threads);
    bool ok =
        part_init(p, &p->parts[FIRST], p->chunk, s->accumulate, s->bias, pack) == dnnl_success;
    int64_t last = s->k % p->chunk;
    if (ok && cut && s->k >= 2 * p->chunk)
        ok = part_init(p, &p->parts[MIDDLE], p->chunk, true, false, pack) == dnnl_success;
    if (ok && cut && last)
        ok = part_init(p, &p->parts[LAST], last, true, false, pack) == dnnl_success;
    onednn_team(before);
    return ok;
}

static void tell(const mr_product *p, const char *what)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        mr_log(MR_LOG_WARN,
               "oneDNN %s for [%lld, %lld] by [%lld, %lld], outside of what was planned", what,
               (long long)p->spec.m, (long long)p->spec.k, (long long)p->spec.k,
               (long long)p->spec.n);
}

/* Where the parts find their scratchpad and packed B: in the workspace, or where they want more
 * than was planned in memory of the product's own. */
static mr_status onednn_place(mr_product *p)
{
    room r = library_room(&p->spec, p->threads), most = {0};
    for (int i = 0; i < PARTS; i++)
        most = (room){MR_MAX(most.scratch, round64((int64_t)p->parts[i].scratch_bytes)),
                      MR_MAX(most.packed, p->parts[i].packed_bytes)};
    p->packed_at = r.scratch;
    if (most.scratch <= r.scratch && most.packed <= r.packed)
        return MR_OK;
    p->packed_at = most.scratch;
    p->memory = mr_alloc(most.scratch + most.packed);
    if (!p->memory)
        return mr_fail_memory(most.scratch + most.packed);
    tell(p, "takes more memory");
    size_t n = strlen(p->how);
    snprintf(p->how + n, sizeof p->how - n, " in memory of its own");
    return MR_OK;
}

static void onednn_fini(mr_product *p)
{
    for (int i = 0; i < PARTS; i++)
        part_fini(&p->parts[i]);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
}

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
    snprintf(p->how, sizeof p->how, "%s", p->piece->how);
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

static dnnl_status_t onednn_part(mr_product *p, part *q, int64_t k, const char *a, const char *b,
                                 const void *bias, void *c, char *work)
{
    const mr_product_spec *s = &p->spec;
    size_t w = mr_dtype_bytes(s->in);
    void *at_a = (char *)(uintptr_t)a + (size_t)(k * s->a_col) * w,
         *at_b = (char *)(uintptr_t)b + (size_t)(k * s->b_row) * w;
    dnnl_status_t st;
    if (q->reorder) {
        dnnl_memory_set_data_handle(q->plain, at_b);
        at_b = work + p->packed_at;
        dnnl_memory_set_data_handle(q->b, at_b);
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, q->plain}, {DNNL_ARG_TO, q->b}};
        if ((st = dnnl_primitive_execute(q->reorder, p->stream, 2, args)) != dnnl_success)
            return st;
    } else {
        dnnl_memory_set_data_handle(q->b, at_b);
    }
    if (p->packs_only)
        return dnnl_success;
    dnnl_memory_set_data_handle(q->a, at_a);
    dnnl_memory_set_data_handle(q->c, c);
    dnnl_exec_arg_t args[5] = {
        {DNNL_ARG_SRC, q->a}, {DNNL_ARG_WEIGHTS, q->b}, {DNNL_ARG_DST, q->c}};
    int n = 3;
    if (q->bias) {
        dnnl_memory_set_data_handle(q->bias, (void *)(uintptr_t)bias);
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, q->bias};
    }
    if (q->scratch) {
        dnnl_memory_set_data_handle(q->scratch, work);
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, q->scratch};
    }
    return dnnl_primitive_execute(q->product, p->stream, n, args);
}

/* All parts of the sum for one pass over columns. */
static dnnl_status_t onednn_pass(mr_product *p, const char *a, const char *b, const void *bias,
                                 void *c, char *work)
{
    dnnl_status_t st = onednn_part(p, &p->parts[FIRST], 0, a, b, bias, c, work);
    for (int64_t k = p->chunk; st == dnnl_success && k < p->spec.k; k += p->chunk)
        st = onednn_part(p, &p->parts[p->spec.k - k >= p->chunk ? MIDDLE : LAST], k, a, b, NULL, c,
                         work);
    return st;
}

static dnnl_status_t onednn_run(mr_product *p, const void *a, const char *b, const void *bias,
                                void *c, char *work)
{
    const mr_product_spec *s = &p->spec;
    dnnl_status_t st = dnnl_success;
    // more than one pass: accumulating, so C is f32 and there is no bias
    for (int64_t n = 0; st == dnnl_success && n < s->n; n += p->columns)
        st = onednn_pass(p, a, b + (size_t)(n * s->b_col) * mr_dtype_bytes(s->in), bias,
                         (char *)c + (size_t)n * sizeof(float), work);
    return st == dnnl_success ? dnnl_stream_wait(p->stream) : st;
}
#endif

/* ---- either way ---- */

size_t mr_product_workspace(const mr_product_spec *spec, const mr_facts *facts)
{
    int threads = team_of(spec, facts);
    switch (way_of(spec, facts)) {
    case OWN: return mr_gemm_workspace(spec, threads);
    case TILES: {
        mr_gemm_amx_sizes z = mr_gemm_amx_needs(spec->m, spec->n, spec->k, threads);
        return z.b_bytes + (size_t)threads * z.own_bytes;
    }
#ifdef MR_HAVE_ONEDNN
    case LIBRARY: {
        room r = library_room(spec, threads);
        return r.scratch + r.packed;
    }
    case PIECES: {
        mr_product_spec piece, last;
        pieces_of(spec, &piece, &last);
        size_t most = mr_product_workspace(&piece, facts);
        if (last.batch && last.m)
            most = MR_MAX(most, mr_product_workspace(&last, facts));
        return most;
    }
#endif
    default: return 0;
    }
}

const char *mr_product_way(const mr_product_spec *spec, const mr_facts *facts)
{
    static const char *const ways[] = {
        [OWN] = NULL, [TILES] = "tiles", [LIBRARY] = "library", [PIECES] = "library"};
    return ways[way_of(spec, facts)];
}

#ifdef MR_HAVE_ONEDNN
/* oneDNN refuses: the own kernel, in the workspace where it fits, else in memory of its own. */
static mr_status serve_by_own(mr_product *p, size_t planned)
{
    onednn_fini(p);
    *p = (mr_product){.spec = p->spec, .isa = p->isa, .threads = p->threads};
    size_t bytes = mr_gemm_workspace(&p->spec, p->threads);
    if (bytes <= planned)
        return MR_OK;
    tell(p, "does not serve: own kernels do");
    p->memory = mr_alloc(bytes);
    return p->memory ? MR_OK : mr_fail_memory(bytes);
}
#endif

static mr_status make(mr_product *p, const mr_facts *facts)
{
#ifdef MR_HAVE_ONEDNN
    if (p->way == PIECES)
        return cut(p, facts);
    if (p->way == LIBRARY) {
        if (onednn_init(p))
            return onednn_place(p);
        MR_TRY(serve_by_own(p, mr_product_workspace(&p->spec, facts)));
    }
#endif
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
#ifdef MR_HAVE_ONEDNN
    mr_product_free(p->piece), mr_product_free(p->last);
    onednn_fini(p);
#endif
    mr_free(p->memory);
    mr_free(p);
}

const char *mr_product_how(const mr_product *p)
{
    return p->how;
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
#ifdef MR_HAVE_ONEDNN
    if (p->way == PIECES)
        return run_pieces(p, a, b, bias, c, workspace);
    if (p->way == LIBRARY) {
        int before = onednn_team(p->threads);
        dnnl_status_t st = onednn_run(p, a, b, bias, c, p->memory ? p->memory : workspace);
        onednn_team(before);
        return st == dnnl_success
                   ? MR_OK
                   : mr_fail(MR_E_INTERNAL,
                             "oneDNN product of [%lld, %lld] by [%lld, %lld] failed: status %d",
                             (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n,
                             (int)st);
    }
#endif
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
