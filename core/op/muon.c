/* muon: clips the gradient, applies momentum and an orthogonal update, updates the average of the
 * weights, writes the weights in the compute dtype and zeroes the gradient, for consecutive
 * matrices.
 *
 *   master, grad, m [n] f32    ema [n] f32 and w [n] bf16 may be absent; n = blocks of rows x cols
 *   sumsq [1] f64, of all gradients
 *   hyper [12] f64 as in adamw.c: beta1 is the momentum, beta2 is not used, eps is the least norm
 *
 *   g       = grad grad_scale, divided by q where q > 1        q as in adamw.c
 *   m       = beta1 m + (1 - beta1) g
 *   u       = beta1 m + (1 - beta1) g with nesterov, else m
 *   X       = u / max(|u|, eps), Frobenius norm of each block
 *   5 times   A = X X^T,  X = a X + (b A + c A A) X            (a, b, c) = (3.4445, -4.775, 2.0315)
 *   master  = master (1 - lr lr_factor weight_decay decay) - lr lr_factor scale X
 *   ema, w, grad as in adamw.c
 *
 * A block with more rows than columns is transposed: A = X^T X, X = a X + X (b A + c A A). One
 * thread computes a block from the gradient to the weight, so its bits depend neither on the number
 * of threads nor on other blocks. cpu/product.h computes the products, with bf16 operands if `bf16`
 * is set, else f32; sums are f32.
 *
 * The kernel uses Y = c^(1/4) X. Then a round is three products and two additions to diagonals:
 *   G = Y Y^T,  P = a I + (b / sqrt(c) I + G) G,  Y = P Y
 * G and P are symmetric: of each panel of rows, the columns from the diagonal on are multiplied and
 * the rest is mirrored. So one block takes 5 (3 s^2 l + s^3) operations, with s the shorter side
 * and l the longer. */
#include "cpu/product.h"
#include "cpu/rows.h"
#include "cpu/transpose.h"
#include "op/muon.h"
#include "op/update.h"

#include <stdatomic.h>

// with fewer rows, a panel costs more than symmetry saves
enum { PANELS = 4, PANEL_ROWS = 128 };
// who computes the rounds of a block: cpu/product.h, muon_amx.c or muon_dots.c
typedef enum form { PRODUCTS_FORM, AMX, DOTS } form;
enum { GRAM, SQUARE = GRAM + PANELS, NEXT = SQUARE + PANELS, PRODUCTS };
static const double A = MUON_A, B = MUON_B, C = MUON_C;

typedef struct attr {
    int64_t rows, cols;
    double scale, decay, lr_factor;
    bool nesterov, bf16, keep;
} attr;
enum { EMA = M + 1, W, BUFFERS };

static mr_status infer(mr_infer *c)
{
    const attr *a = c->attr;
    MR_TRY(update_infer(c, BUFFERS));
    if (c->in[MASTER]->dim[0] % (a->rows * a->cols))
        return mr_fail(MR_E_SHAPE, "expected master [n], with n a multiple of %lld x %lld",
                       (long long)a->rows, (long long)a->cols);
    return MR_OK;
}

/* ---- the work of a call ---- */

static int64_t blocks_of(const mr_call *c)
{
    const attr *a = c->attr;
    return c->in[MASTER].desc.dim[0] / (a->rows * a->cols);
}

// the operations without the use of symmetry
static void cost(const mr_call *c, mr_cost *cost)
{
    const attr *a = c->attr;
    double n = (double)mr_desc_count(&c->in[MASTER].desc), s = (double)MR_MIN(a->rows, a->cols),
           l = (double)MR_MAX(a->rows, a->cols);
    *cost = (mr_cost){(double)blocks_of(c) * MUON_ROUNDS * (4 * s * s * l + 2 * s * s * s),
                      n * update_bytes(c, BUFFERS, a->keep)};
}

// Compute the constants of a step. False if only the gradient changes.
typedef struct terms {
    double scale, momentum, eps, step, keep, d; /* master = keep master - step X */
} terms;
static bool prepare_terms(const mr_call *c, terms *t)
{
    const attr *a = c->attr;
    const double *h = c->in[BUFFERS].data, lr = h[LR] * a->lr_factor;
    t->momentum = (float)h[BETA1], t->eps = h[EPS], t->d = h[EMA_DECAY];
    t->step = lr * a->scale, t->keep = 1 - lr * h[WEIGHT_DECAY] * a->decay;
    return update_scale(c, BUFFERS, &t->scale);
}

/* ---- naive ---- */

// y [m, n] = a b, with strides per row and column
static void product(double *y, const double *a, int64_t a_row, int64_t a_col, const double *b,
                    int64_t b_row, int64_t b_col, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += a[i * a_row + p * a_col] * b[p * b_row + j * b_col];
            y[i * n + j] = sum;
        }
}

// make x orthogonal; `work` has room for two squares of the shorter side and a block
static void naive_block(const attr *a, double *x, double eps, double *work)
{
    const int64_t r = a->rows, c = a->cols, n = r * c, s = MR_MIN(r, c);
    const bool high = r > c;
    double *gram = work, *square = gram + s * s, *next = square + s * s, sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
        x[i] /= MR_MAX(sqrt(sum), eps);
    for (int k = 0; k < MUON_ROUNDS; k++) {
        product(gram, x, high ? 1 : c, high ? c : 1, x, high ? c : 1, high ? 1 : c, s, s,
                MR_MAX(r, c));
        product(square, gram, s, 1, gram, s, 1, s, s, s);
        for (int64_t i = 0; i < s * s; i++)
            gram[i] = B * gram[i] + C * square[i];
        if (high)
            product(next, x, c, 1, gram, s, 1, r, c, s);
        else
            product(next, gram, s, 1, x, c, 1, r, c, s);
        for (int64_t i = 0; i < n; i++)
            x[i] = A * x[i] + next[i];
    }
}

static mr_status naive(const mr_call *call)
{
    const attr *a = call->attr;
    const int64_t n = a->rows * a->cols, s = MR_MIN(a->rows, a->cols);
    terms t = {0};
    bool go = prepare_terms(call, &t);
    double *x = mr_alloc((size_t)(2 * n + 2 * s * s) * sizeof *x), *v[W + 1];
    if (!x)
        return mr_fail_memory((size_t)(2 * n + 2 * s * s) * sizeof *x);
    for (int i = MASTER; i <= W; i++) {
        v[i] = mr_given(&call->out[i]) ? call->out[i].data : NULL;
        if (v[i] && v[i] != call->in[i].data)
            memcpy(v[i], call->in[i].data, (size_t)mr_desc_count(&call->in[i].desc) * sizeof *x);
    }
    for (int64_t k = 0; go && k < blocks_of(call) * n; k += n) {
        for (int64_t i = 0; i < n; i++) {
            double g = v[GRAD][k + i] * t.scale, *m = &v[M][k + i];
            *m = t.momentum * *m + (1 - t.momentum) * g;
            x[i] = a->nesterov ? t.momentum * *m + (1 - t.momentum) * g : *m;
        }
        naive_block(a, x, t.eps, x + n);
        for (int64_t i = k; i < k + n; i++) {
            v[MASTER][i] = t.keep * v[MASTER][i] - t.step * x[i - k];
            if (v[EMA])
                v[EMA][i] = t.d * v[EMA][i] + (1 - t.d) * v[MASTER][i];
            if (v[W])
                v[W][i] = v[MASTER][i];
        }
    }
    for (int64_t i = 0; !a->keep && i < blocks_of(call) * n; i++)
        v[GRAD][i] = 0;
    mr_free(x);
    return MR_OK;
}

/* ---- kernel ---- */

// the factor from X to Y
static double root_of_c(void)
{
    return sqrt(sqrt(C));
}

static int64_t up_to(int64_t x, int64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

// rows per panel of a symmetric matrix of side s
static int64_t panel_of(int64_t s)
{
    return up_to((s + PANELS - 1) / PANELS, PANEL_ROWS);
}

// The products of each block; those beyond the last panel have no rows. A block with more rows than
// columns is transposed in the first product.
static void specs_of(const attr *a, mr_product_spec spec[PRODUCTS])
{
    const int64_t r = a->rows, c = a->cols, s = MR_MIN(r, c), panel = panel_of(s);
    const mr_dtype t = a->bf16 ? MR_BF16 : MR_F32;
    const bool high = r > c;
    for (int i = 0; i < PANELS; i++) {
        const int64_t first = MR_MIN(i * panel, s);
        mr_product_spec one = {.batch = 1,
                               .m = MR_MIN(panel, s - first),
                               .n = s - first,
                               .k = MR_MAX(r, c),
                               .a_row = high ? 1 : c,
                               .a_col = high ? c : 1,
                               .b_row = high ? c : 1,
                               .b_col = high ? 1 : c,
                               .c_row = s,
                               .in = t,
                               .out = t};
        spec[GRAM + i] = one;
        one.k = one.a_row = one.b_row = s, one.a_col = one.b_col = 1;
        spec[SQUARE + i] = one;
    }
    spec[NEXT] = (mr_product_spec){.batch = 1,
                                   .m = r,
                                   .n = c,
                                   .k = s,
                                   .a_row = high ? c : s,
                                   .a_col = 1,
                                   .b_row = high ? s : c,
                                   .b_col = 1,
                                   .c_row = c,
                                   .in = t,
                                   .out = t};
}

/* The workspace of a worker, as offsets in bytes: Y (at 0), the next Y (first the f32 update), G, G
 * with the shifted diagonal, P, then the workspace of the products. */
typedef struct room {
    size_t next, gram, shifted, mixed, own, bytes;
} room;

static size_t line(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static mr_facts alone(const mr_facts *facts)
{
    mr_facts one = *facts;
    one.threads = 1;
    return one;
}

static form form_of(const attr *a, const mr_facts *facts)
{
    bool fits = a->bf16 && a->rows % 32 == 0 && a->cols % 32 == 0 && a->rows <= a->cols;
    if (fits && facts->amx)
        return AMX;
    return fits && facts->bf16 && !facts->bf16_by_f32 ? DOTS : PRODUCTS_FORM;
}

static room room_of(const attr *a, const mr_facts *facts)
{
    const size_t n = (size_t)(a->rows * a->cols), s = (size_t)MR_MIN(a->rows, a->cols),
                 width = a->bf16 ? 2 : 4;
    const mr_facts one = alone(facts);
    mr_product_spec spec[PRODUCTS];
    room r = {.next = line(n * width)};
    r.gram = r.next + line(n * sizeof(float));
    r.shifted = r.gram + line(s * s * width);
    r.mixed = r.shifted + line(s * s * width);
    r.own = r.mixed + line(s * s * width);
    size_t own = n * width;
    if (form_of(a, facts) == PRODUCTS_FORM) {
        own = 0;
        specs_of(a, spec);
        for (int i = 0; i < PRODUCTS; i++)
            if (spec[i].m)
                own = MR_MAX(own, mr_product_workspace(&spec[i], &one));
    }
    r.bytes = r.own + line(own);
    return r;
}

static size_t workspace(const mr_call *call, const mr_facts *facts)
{
    return room_of(call->attr, facts).bytes * (size_t)MR_MAX(facts->threads, 1);
}

typedef struct state {
    room room;
    form form;
    int threads;
    mr_product *product[]; /* PRODUCTS of each worker, for PRODUCTS_FORM */
} state;

static void release(void *state_of)
{
    state *s = state_of;
    for (int i = 0; s && i < s->threads * PRODUCTS; i++)
        mr_product_free(s->product[i]);
    mr_free(s);
}

static mr_status prepare(const mr_call *call, const mr_facts *facts, void **out)
{
    const int n = MR_MAX(facts->threads, 1) * PRODUCTS;
    const mr_facts one = alone(facts);
    mr_product_spec spec[PRODUCTS];
    state *s = mr_calloc(1, sizeof *s + (size_t)n * sizeof *s->product);
    if (!s)
        return mr_fail_memory(sizeof *s);
    s->room = room_of(call->attr, facts), s->threads = n / PRODUCTS;
    s->form = form_of(call->attr, facts);
    specs_of(call->attr, spec);
    for (int i = 0; i < n && s->form == PRODUCTS_FORM; i++) {
        const mr_product_spec *each = &spec[i % PRODUCTS];
        mr_status st = each->m ? mr_product_new(each, &one, &s->product[i]) : MR_OK;
        if (st != MR_OK) {
            release(s);
            return st;
        }
    }
    *out = s;
    return MR_OK;
}

static const char *way(const mr_call *call, const mr_facts *facts)
{
    const mr_facts one = alone(facts);
    mr_product_spec spec[PRODUCTS];
    const form form = form_of(call->attr, facts);
    specs_of(call->attr, spec);
    return form == PRODUCTS_FORM ? mr_product_way(&spec[NEXT], &one) : form == AMX ? "tiles" : NULL;
}

typedef struct job {
    const mr_call *call;
    terms t;
    atomic_int status;
} job;

/* Update the momentum of the block at element `at`, and write the update to u [n] f32. Returns its
 * norm. */
VF_INLINE double begin_block(const job *j, int64_t at, float *u)
{
    const attr *a = j->call->attr;
    float *g = (float *)j->call->out[GRAD].data + at, *m = (float *)j->call->out[M].data + at;
    const vf b = vf_set((float)j->t.momentum), c = vf_set(1.0f) - b, by = vf_set((float)j->t.scale);
    double sum = 0;
    for (int64_t row = 0; row < a->rows; row++) {
        vf squares = vf_zero();
        for (int64_t i = row * a->cols, end = i + a->cols; i < end; i += VF_LANES) {
            int64_t n = MR_MIN(end - i, (int64_t)VF_LANES);
            vf gi = vf_ldx(g, i, 1, n, MR_F32) * by * c,
               mi = vf_fma(b, vf_ldx(m, i, 1, n, MR_F32), gi),
               x = a->nesterov ? vf_fma(b, mi, gi) : mi;
            vf_stx(m, i, 1, mi, n, MR_F32);
            vf_stx(u, i, 1, x, n, MR_F32);
            squares = vf_fma(x, x, squares);
            if (!a->keep)
                vf_stx(g, i, 1, vf_zero(), n, MR_F32);
        }
        sum += vf_sum(squares);
    }
    return sqrt(sum);
}

/* y = by x for `count` elements; y has dtype t */
VF_INLINE void scaled(void *y, const float *x, float by, int64_t count, mr_dtype t)
{
    for (int64_t i = 0; i < count; i += VF_LANES) {
        int64_t n = MR_MIN(count - i, (int64_t)VF_LANES);
        vf_stx(y, i, 1, vf_set(by) * vf_ldx(x, i, 1, n, MR_F32), n, t);
    }
}

// add `add` to each element of the diagonal of x [s, s]
VF_INLINE void add_to_diagonal(void *x, int64_t s, float add, mr_dtype t)
{
    for (int64_t i = 0; i < s; i++)
        vf_stx(x, i * (s + 1), 1, vf_ldx(x, i * (s + 1), 1, 1, t) + vf_set(add), 1, t);
}

// copy the block [rows, cols] of x at element `from`, transposed, to element `to`
VF_INLINE void mirror(void *x, int64_t ld, int64_t from, int64_t to, int64_t rows, int64_t cols,
                      mr_dtype t)
{
    for (int64_t i = 0; i < rows; i += VF_LANES)
        for (int64_t j = 0; j < cols; j += VF_LANES) {
            const int64_t high = MR_MIN(rows - i, (int64_t)VF_LANES),
                          wide = MR_MIN(cols - j, (int64_t)VF_LANES);
            vf r[VF_LANES];
            for (int l = 0; l < VF_LANES; l++)
                r[l] = l < high ? vf_ldx(x, from + (i + l) * ld + j, 1, wide, t) : vf_zero();
            vf_transpose(r);
            for (int l = 0; l < wide; l++)
                vf_stx(x, to + (j + l) * ld + i, 1, r[l], high, t);
        }
}

/* y [s, s] = a b, which is symmetric, panel by panel. a_step and b_step are elements per row of a
 * panel. */
VF_INLINE mr_status symmetric(mr_product *const *product, const char *a, int64_t a_step,
                              const char *b, int64_t b_step, char *y, int64_t s, char *own,
                              mr_dtype t)
{
    const int64_t panel = panel_of(s), width = (int64_t)mr_dtype_bytes(t);
    for (int64_t first = 0; first < s; first += panel) {
        const int64_t at = first * (s + 1), rest = s - first - panel;
        MR_TRY(mr_product_run(*product++, a + first * a_step * width, b + first * b_step * width,
                              NULL, y + at * width, own));
        if (rest > 0)
            mirror(y, s, at + panel, at + panel * s, panel, rest, t);
    }
    return MR_OK;
}

// run all rounds by products
VF_INLINE mr_status rounds(const attr *a, mr_product *const *product, muon_places *at, mr_dtype t)
{
    const int64_t s = MR_MIN(a->rows, a->cols);
    const bool high = a->rows > a->cols;
    for (int k = 0; k < MUON_ROUNDS; k++) {
        const int64_t step = high ? 1 : a->cols;
        MR_TRY(symmetric(product + GRAM, at->y, step, at->y, step, at->gram, s, at->own, t));
        memcpy(at->shifted, at->gram, (size_t)(s * s) * mr_dtype_bytes(t));
        add_to_diagonal(at->shifted, s, muon_gram_shift(), t);
        MR_TRY(symmetric(product + SQUARE, at->shifted, s, at->gram, 1, at->mixed, s, at->own, t));
        add_to_diagonal(at->mixed, s, (float)A, t);
        MR_TRY(mr_product_run(product[NEXT], high ? at->y : at->mixed, high ? at->mixed : at->y,
                              NULL, at->next, at->own));
        char *was = at->y;
        at->y = at->next, at->next = was;
    }
    return MR_OK;
}

// make Y orthogonal, except for its scale
VF_INLINE mr_status orthogonal(const job *j, int worker, muon_places *at, mr_dtype t)
{
    const attr *a = j->call->attr;
    const state *s = j->call->state;
#ifdef MUON_AMX
    if (s->form != PRODUCTS_FORM) {
        (s->form == AMX ? mr_muon_amx_rounds : mr_muon_dots_rounds)(at, a->rows, a->cols);
        return MR_OK;
    }
#endif
    return rounds(a, s->product + worker * PRODUCTS, at, t);
}

// update the weights of each block from y [n] of dtype t
VF_INLINE void end_block(const job *j, int64_t at, const void *y, mr_dtype t)
{
    const attr *a = j->call->attr;
    const mr_view *out = j->call->out;
    float *p = (float *)out[MASTER].data + at,
          *ema = mr_given(&out[EMA]) ? (float *)out[EMA].data + at : NULL;
    uint16_t *w = mr_given(&out[W]) ? (uint16_t *)out[W].data + at : NULL;
    const vf keep = vf_set((float)j->t.keep), step = vf_set((float)(-j->t.step / root_of_c())),
             d = vf_set((float)j->t.d);
    for (int64_t i = 0, end = a->rows * a->cols; i < end; i += VF_LANES) {
        int64_t n = MR_MIN(end - i, (int64_t)VF_LANES);
        vf pi = vf_fma(step, vf_ldx(y, i, 1, n, t), keep * vf_ldx(p, i, 1, n, MR_F32));
        vf_stx(p, i, 1, pi, n, MR_F32);
        if (ema)
            vf_stx(ema, i, 1, formula_average(d, vf_ldx(ema, i, 1, n, MR_F32), pi), n, MR_F32);
        if (w)
            vf_stx(w, i, 1, pi, n, MR_BF16);
    }
}

VF_INLINE mr_status update_block(const job *j, int64_t at, int worker, mr_dtype t)
{
    const attr *a = j->call->attr;
    const state *s = j->call->state;
    const room *r = &s->room;
    char *work = (char *)j->call->workspace + r->bytes * (size_t)worker;
    muon_places places = {
        work, work + r->next, work + r->gram, work + r->shifted, work + r->mixed, work + r->own};
    float *u = (float *)(void *)places.next;
    double norm = begin_block(j, at, u);
    scaled(work, u, (float)(root_of_c() / MR_MAX(norm, j->t.eps)), a->rows * a->cols, t);
    MR_TRY(orthogonal(j, worker, &places, t));
    end_block(j, at, places.y, t);
    return MR_OK;
}

static void part(void *user, int64_t begin, int64_t end, int worker)
{
    job *j = user;
    const attr *a = j->call->attr;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * a->rows * a->cols;
        mr_status st =
            a->bf16 ? update_block(j, at, worker, MR_BF16) : update_block(j, at, worker, MR_F32);
        if (st != MR_OK)
            atomic_store(&j->status, st);
    }
}

MR_KERNEL(muon)
{
    job j = {.call = call};
    const attr *a = call->attr;
    bool go = prepare_terms(call, &j.t);
    if (!go && !a->keep)
        memset(call->out[GRAD].data, 0, (size_t)call->in[GRAD].desc.dim[0] * sizeof(float));
    if (!go)
        return MR_OK;
    mr_cpu_for(blocks_of(call), 1, MR_MIN(call->threads, ((state *)call->state)->threads), part,
               &j);
    return (mr_status)atomic_load(&j.status);
}

MR_OP(muon) = {
    .name = "muon",
    .doc = "One optimizer step over matrices: clip, momentum, Newton-Schulz, weight average, "
           "write-back, zeroed gradient.",
    .ref = "Jordan et al. 2024, kellerjordan.github.io/posts/muon; scales: Liu et al. 2025, "
           "arXiv:2502.16982; torch.optim.Muon of 2.15",
    .in = {UPDATE_IN_FIRST, UPDATE_IN_LAST},
    .out = {UPDATE_OUT_FIRST, UPDATE_OUT_LAST(BUFFERS)},
    .attr = {{"rows", MR_ATTR_I64, offsetof(attr, rows), .min = 1, .max = 1 << 24, .required = true,
              .doc = "of each block"},
             {"cols", MR_ATTR_I64, offsetof(attr, cols), .min = 1, .max = 1 << 24, .required = true,
              .doc = "of each block"},
             {"scale", MR_ATTR_F64, offsetof(attr, scale), .def = 1,
              .doc = "factor of the orthogonal update"},
             {"nesterov", MR_ATTR_BOOL, offsetof(attr, nesterov), .doc = "Nesterov momentum"},
             {"bf16", MR_ATTR_BOOL, offsetof(attr, bf16), .doc = "operands of products are bf16"},
             UPDATE_ATTRS},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(muon),
            .prepare = prepare,
            .release = release,
            .workspace = workspace,
            .way = way},
    .hidden = true,
    .tol_f32 = 1e-4,
    .tol_reason =
        "five rounds amplify the rounding error of small singular values; bf16: of operands, too",
    .cases = MR_CASES(
        // more rows than columns, square, more columns than rows
        "master=[192] f32 grad=[192] f32 m=[192] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 "
        "0.5..1.2 rows=24 cols=8",
        "master=[288] f32 grad=[288] f32 m=[288] f32 ema=[288] f32 hyper=[12] f64 0.2..0.9 "
        "sumsq=[1] f64 0..0.1 rows=12 cols=12 nesterov=1 scale=0.7 lr_factor=0.5 decay=0.5",
        "master=[540] f32 grad=[540] f32 m=[540] f32 w=[540] bf16 hyper=[12] f64 0.2..0.9 "
        "sumsq=[1] f64 0.9..1.2 rows=6 cols=30 scale=1.1",
        // one row, and one element
        "master=[27] f32 grad=[27] f32 m=[27] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0..0.1 "
        "rows=1 cols=9",
        "master=[3] f32 grad=[3] f32 m=[3] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 0..0.1 "
        "rows=1 cols=1",
        // several panels, which are mirrored
        "master=[20736] f32 grad=[20736] f32 m=[20736] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 "
        "0..0.1 rows=144 cols=144",
        // bf16 products: more rows than columns, panels, sides that are not multiples of 32
        "master=[8192] f32 grad=[8192] f32 m=[8192] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 "
        "0..0.1 rows=128 cols=64 bf16=1 scale=0.1 rtol=0.02",
        "master=[8192] f32 grad=[8192] f32 m=[8192] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 "
        "0..0.1 rows=64 cols=128 bf16=1 scale=0.1 rtol=0.02",
        "master=[1200] f32 grad=[1200] f32 m=[1200] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 "
        "0..0.1 rows=24 cols=50 bf16=1 scale=0.1 rtol=0.02",
        "master=[8192] f32 grad=[8192] f32 m=[8192] f32 ema=[8192] f32 w=[8192] bf16 hyper=[12] "
        "f64 0.2..0.9 sumsq=[1] f64 0..0.1 rows=32 cols=128 bf16=1 nesterov=1 keep=1 scale=0.1 "
        "rtol=0.02",
        // above the norm limit; no weights
        "master=[64] f32 grad=[64] f32 m=[64] f32 hyper=[12] f64 0.2..0.9 sumsq=[1] f64 800..900 "
        "rows=8 cols=8",
        "master=[64] f32 grad=[64] f32 m=[64] f32 w=[64] bf16 hyper=[12] f64 0..0 sumsq=[1] f64 "
        "1..1 rows=8 cols=8",
        "master=[64] f32 grad=[64] f32 m=[64] f32 hyper=[12] f64 0..0 sumsq=[1] f64 1..1 rows=8 "
        "cols=8 keep=1"),
};
