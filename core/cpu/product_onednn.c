/* product_onednn: products as oneDNN primitives, split where the library is slow, and their
 * workspace. Measured with bf16 (oneDNN 2.6, AMX, 2,560 rows, widths of 1,152 to 4,608):
 * - B [k, n] read in place reaches 0.56 to 0.85 of the speed of its packed form, a weight stored
 *   [n, k] 0.87 to 1.0. Packing it into the workspace takes 3 to 5 % of the product, and no second
 *   copy of the weights stays in memory. At demo sizes (768 rows, widths of 128 to 512) the packed
 *   form is 1.7 times as fast, but there a weight is used once between two updates, and packing it
 *   takes what that gives, also when it is done after the update.
 * - A transposed A costs more than half of the speed on sums of 2,560 and little on 512: a weight's
 *   gradient is therefore added up in parts of 512 rows, a wide one in passes over columns.
 * Licence: Apache-2.0 */
#include "cpu/product.h"

#include <stdatomic.h>
#ifdef MR_HAVE_ONEDNN
#include "cpu/onednn.h"

#include <stdio.h>
#include <string.h>

/* One primitive over a part of k; with `sum` it adds to C. */
typedef struct part {
    int64_t k;
    dnnl_primitive_t product, reorder; /* reorder: packs B, or NULL */
    size_t scratch_bytes, packed_bytes;
} part;
enum { FIRST, MIDDLE, LAST, PARTS };

struct mr_product_library {
    mr_product_spec spec;
    int workers, team; /* concurrent workers; threads of each */
    bool amx;          /* as in facts */
    char how[96];
    char *memory;      /* used instead of the workspace if more is needed than planned; else NULL */
    part parts[PARTS]; /* only FIRST unless the sum is split */
    int64_t chunk;     /* k per part */
    size_t packed_at;  /* offset in a worker's workspace, after the scratchpad */
    size_t bytes;      /* size of a worker's workspace */
};

/* Matrices with one dense dimension and no repeated one. isa/gemm.c computes empty products. */
bool mr_product_library_fits(const mr_product_spec *s)
{
    return s->m > 0 && s->n > 0 && s->k > 0 && (s->a_col == 1 || s->a_row == 1) &&
           (s->b_col == 1 || s->b_row == 1) && s->a_col > 0 && s->a_row > 0 && s->b_col > 0 &&
           s->b_row > 0;
}

/* ---- one primitive ---- */

/* Describe a matrix of a batch to oneDNN; batch stride 0 repeats one matrix. Dimensions of length 1
 * get a stride that does not look like a transposition. */
static dnnl_status_t matrix(onednn_own_md *md, int64_t batch, int64_t rows, int64_t cols,
                            int64_t batch_step, int64_t row_step, int64_t col_step, mr_dtype t,
                            bool any)
{
    if (cols == 1)
        col_step = 1;
    if (rows == 1)
        row_step = col_step * cols;
    int64_t dim[] = {batch, rows, cols}, step[] = {batch_step, row_step, col_step};
    if (batch_step == 0)
        dim[0] = 1, step[0] = rows * MR_MAX(row_step, 1) * cols;
    if (batch == 1)
        return onednn_md_init(md, 2, dim + 1, any ? NULL : step + 1, onednn_type(t));
    return onednn_md_init(md, 3, dim, any ? NULL : step, onednn_type(t));
}

static dnnl_status_t part_init(mr_product_library *pr, part *p, int64_t k, bool sum, bool bias,
                               bool pack)
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
    STEP(matrix(&plain, s->batch, k, s->n, s->b_batch, s->b_row, s->b_col, s->in, false));
    if (pack)
        STEP(matrix(&b, s->batch, k, s->n, s->b_batch, s->b_row, s->b_col, s->in, true));
    STEP(matrix(&c, s->batch, s->m, s->n, s->c_batch, s->c_row, 1, s->out, false));
    int64_t bias_dim[] = {1, 1, s->n}, bias_step[] = {s->n, s->n, 1};
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
        p->packed_bytes = dnnl_memory_desc_get_size(weights);
    }
    p->scratch_bytes = dnnl_memory_desc_get_size(scratch);
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
}

/* ---- splitting, packing and workspace: pure functions of shapes ---- */

/* Length of one part of the sum; k if it is not split. Parts add to C, so the product must
 * accumulate. */
static int64_t chunk_length(const mr_product_spec *s)
{
    enum { LONGEST = 512 };
    // with such lengths, oneDNN 2.6 stores a whole f32 C per thread
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

/* Whether packing B costs less than reading it in place: with few rows already for B [k, n], only
 * with many rows for a weight stored [n, k]. */
static bool pack_pays(const mr_product_spec *s)
{
    if (s->in != MR_BF16 || s->batch != 1 || s->n < 256)
        return false;
    return s->m >= (s->b_row != 1 ? 512 : 2048);
}

/* The part of a worker's workspace that oneDNN uses. Its scratchpad has, per thread, pieces of A, B
 * and C in its own format. For shapes of 1 to 20,000 and 1 to 64 threads, version 2.6 needs no more
 * than this. For bf16 results it can store a whole f32 C per thread if A is transposed or a matrix
 * is not dense. Packed B is padded to tiles. */
typedef struct room {
    size_t scratch, packed;
} room;

static size_t round64(int64_t n)
{
    return ((size_t)n + 63) & ~(size_t)63;
}

/* True if there are no gaps between rows or matrices, and no matrix is repeated. */
static bool dense(const mr_product_spec *s)
{
    bool a = s->a_col == 1 ? s->a_row == s->k : s->a_col == s->m,
         b = s->b_col == 1 ? s->b_row == s->n : s->b_col == s->k;
    bool batch = s->batch == 1 || (s->a_batch == s->m * s->k && s->b_batch == s->k * s->n &&
                                   s->c_batch == s->m * s->n);
    return a && b && s->c_row == s->n && batch;
}

/* With AMX, oneDNN also transposes long strips of both operands. In 60,000 products of random
 * shapes, all too small for isa/amx_gemm.c, no thread of version 2.6 needed more than this. */
static size_t tiles_room(const mr_product_spec *s)
{
    enum { LEAST = 704 << 10, A_ROW = 512, MOST = 2560 << 10 };
    size_t m = round64(s->m), n = round64(s->n), k = round64(chunk_length(s)),
           whole = 2 * k * (m + n) + sizeof(float) * m * n;
    return MR_MIN(MR_MIN(LEAST + A_ROW * k, (size_t)MOST), 3 * whole);
}

static room room_of(const mr_product_spec *s, int team, bool amx)
{
    enum { FIXED = 12 << 10, LONGEST = 1024 };
    bool turned = s->a_col != 1;
    size_t m = MR_MIN(round64(s->m), turned ? 512 : 128), k = MR_MIN(round64(s->k), LONGEST),
           n = MR_MIN(round64(s->n), turned ? 256 : 64), width = mr_dtype_bytes(s->in), c = m * n;
    // a transposed sum a little longer than 512 is padded to more
    if (turned && k > 512)
        k = s->in == MR_BF16 ? 1152 : MR_MAX(k, 768);
    if (s->out != MR_F32 && (turned || !dense(s)))
        c = MR_MAX(c, (size_t)(s->m * s->n));
    size_t member = FIXED + width * k * (m + n) + sizeof(float) * c;
    if (amx && s->in == MR_BF16 && s->batch == 1)
        member = MR_MAX(member, tiles_room(s));
    room r = {.scratch = round64((int64_t)((size_t)team * member))};
    if (pack_pays(s))
        r.packed = width * round64(s->n) * round64(chunk_length(s));
    return r;
}

size_t mr_product_library_workspace(const mr_product_spec *s, int team, bool amx)
{
    room r = room_of(s, team, amx);
    return r.scratch + r.packed;
}

/* ---- parts ---- */

static bool make(mr_product_library *p)
{
    const mr_product_spec *s = &p->spec;
    p->chunk = chunk_length(s);
    bool cut = p->chunk < s->k, pack = pack_pays(s);
    int before = onednn_team(p->team);
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

/* Place the scratchpad and packed B: in the workspace, or in allocated memory if they need more
 * than planned. */
static mr_status find_room(mr_product_library *p)
{
    room r = room_of(&p->spec, p->team, p->amx), most = {0};
    for (int i = 0; i < PARTS; i++)
        most = (room){MR_MAX(most.scratch, round64((int64_t)p->parts[i].scratch_bytes)),
                      MR_MAX(most.packed, p->parts[i].packed_bytes)};
    p->packed_at = r.scratch, p->bytes = r.scratch + r.packed;
    if (most.scratch <= r.scratch && most.packed <= r.packed)
        return MR_OK;
    p->packed_at = most.scratch, p->bytes = most.scratch + (most.packed + 63) / 64 * 64;
    p->memory = mr_alloc((size_t)p->workers * p->bytes);
    if (!p->memory)
        return mr_fail_memory((size_t)p->workers * p->bytes);
    mr_product_unplanned(&p->spec, "needs more memory");
    size_t n = strlen(p->how);
    snprintf(p->how + n, sizeof p->how - n, " in allocated memory");
    return MR_OK;
}

mr_status mr_product_library_new(const mr_product_spec *s, int workers, int team, bool amx,
                                 mr_product_library **out)
{
    mr_product_library *p;
    *out = NULL;
    if (!MR_NEW(p))
        return mr_fail_memory(sizeof *p);
    p->spec = *s, p->workers = workers, p->team = team, p->amx = amx;
    bool made = make(p);
    mr_status st = made ? find_room(p) : MR_OK;
    if (made && st == MR_OK)
        *out = p;
    else
        mr_product_library_free(p);
    return st;
}

void mr_product_library_free(mr_product_library *p)
{
    if (!p)
        return;
    for (int i = 0; i < PARTS; i++)
        part_fini(&p->parts[i]);
    mr_free(p->memory);
    mr_free(p);
}

const char *mr_product_library_how(const mr_product_library *p)
{
    return p->how;
}

/* ---- run ---- */

static dnnl_status_t run_part(const mr_product_library *p, const part *q, int64_t k, const char *a,
                              const char *b, const void *bias, void *c, bool packs_only, char *work)
{
    const mr_product_spec *s = &p->spec;
    size_t w = mr_dtype_bytes(s->in);
    const char *at_b = b + (size_t)(k * s->b_row) * w;
    if (q->reorder) {
        char *packed = work + p->packed_at;
        onednn_operand turn[] = {{DNNL_ARG_FROM, at_b}, {DNNL_ARG_TO, packed}};
        dnnl_status_t st = onednn_run(q->reorder, turn, MR_COUNT(turn));
        if (st != dnnl_success)
            return st;
        at_b = packed;
    }
    onednn_operand operands[] = {{DNNL_ARG_SRC, a + (size_t)(k * s->a_col) * w},
                                 {DNNL_ARG_WEIGHTS, at_b},
                                 {DNNL_ARG_DST, c},
                                 {DNNL_ARG_BIAS, bias},
                                 {DNNL_ARG_SCRATCHPAD, q->scratch_bytes ? work : NULL}};
    return packs_only ? dnnl_success : onednn_run(q->product, operands, MR_COUNT(operands));
}

int mr_product_library_run(const mr_product_library *p, const void *a, const void *b,
                           const void *bias, void *c, bool packs_only, int worker, void *workspace)
{
    char *work = p->memory ? p->memory + (size_t)worker * p->bytes : workspace;
    int before = onednn_team(p->team);
    dnnl_status_t st = run_part(p, &p->parts[FIRST], 0, a, b, bias, c, packs_only, work);
    for (int64_t k = p->chunk; st == dnnl_success && k < p->spec.k; k += p->chunk)
        st = run_part(p, &p->parts[p->spec.k - k >= p->chunk ? MIDDLE : LAST], k, a, b, NULL, c,
                      packs_only, work);
    onednn_team(before);
    return (int)st;
}
#else
bool mr_product_library_fits(const mr_product_spec *s)
{
    (void)s;
    return false;
}
size_t mr_product_library_workspace(const mr_product_spec *s, int team, bool amx)
{
    (void)s, (void)team, (void)amx;
    return 0;
}
mr_status mr_product_library_new(const mr_product_spec *s, int workers, int team, bool amx,
                                 mr_product_library **out)
{
    (void)s, (void)workers, (void)team, (void)amx;
    return *out = NULL, MR_OK;
}
void mr_product_library_free(mr_product_library *p)
{
    (void)p;
}
const char *mr_product_library_how(const mr_product_library *p)
{
    (void)p;
    return "";
}
int mr_product_library_run(const mr_product_library *p, const void *a, const void *b,
                           const void *bias, void *c, bool packs_only, int worker, void *workspace)
{
    (void)p, (void)a, (void)b, (void)bias, (void)c, (void)packs_only, (void)worker, (void)workspace;
    return 1;
}
#endif

void mr_product_unplanned(const mr_product_spec *s, const char *what)
{
    static atomic_bool said;
    if (!atomic_exchange(&said, true))
        mr_log(MR_LOG_WARN, "oneDNN %s for [%lld, %lld] by [%lld, %lld], contrary to the plan",
               what, (long long)s->m, (long long)s->k, (long long)s->k, (long long)s->n);
}
