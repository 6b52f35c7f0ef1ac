// See contract.h. A kernel runs dense, in awkward strides and in place, eager and late.
#include "contract.h"
#include "argument.h"
#include "cuda/kernels/table.h"
#include "op/attention_job.h"
#include "opcontract.h"
#include "plain.h"
#include "reference.h"

// ---- runs ----

static const variant variants[] = {
    {.name = "in order", .seed = 0, .late = true},
    {.name = "shuffled", .seed = 1, .counted = true},
    {.name = "in place", .seed = 2, .late = true, .alias = true, .counted = true},
    {.name = "strided", .seed = 3, .late = true, .strided = true},
    {.name = "rows apart", .seed = 4, .late = true, .strided = true, .apart = true}};
// for contract_singles: each with exactly one reason against 16-byte pieces
static const variant singles[] = {
    {.name = "columns apart",
     .seed = 5,
     .late = true,
     .strided = true,
     .apart = true,
     .wide = true},
    {.name = "odd rows", .seed = 6, .late = true, .strided = true, .apart = true, .odd = 1},
    {.name = "off the grid", .seed = 7, .late = true, .strided = true, .apart = true, .off = 1}};

// the forms of kernels: run[i] on a device with this capability
static const mr_facts forms[] = {{.device = "cudaemu", .isa = "8.0", .threads = 1, .bf16 = true},
                                 {.device = "cudaemu", .isa = "9.0", .threads = 1, .bf16 = true}};

static lay layout_of(mr_access access, lay own, bool strided)
{
    if (!strided)
        return own;
    return access == MR_ANY ? LAY_ANY : access == MR_ROWS ? LAY_ROWS : LAY_DENSE;
}

static bool is_target(const mr_op *op, int i, bool must)
{
    for (int k = 0; k < mr_op_n_out(op); k++)
        if (op->out[k].inplace == i + 1 && (op->out[k].must || !must))
            return true;
    return false;
}

static bool has_keys(const mr_op *op)
{
    return strcmp(op->name, "attention") == 0 || strcmp(op->name, "attention_grad") == 0;
}

/* Values of an attention input in which keys that do not exist are NaN: they must not affect the
 * result. The caller frees the values. */
static double *without_keys(const reference *t, int in)
{
    const mr_desc *d = &t->c->in[in].desc;
    const attention_attr *a = (const attention_attr *)t->attr;
    int64_t M = d->dim[2], row = d->dim[3] * d->dim[4], counted = a->text ? a->text - a->before : M;
    double *values = doubles(d);
    for (int64_t i = 0, n = mr_desc_count(d); i < n; i++) {
        int64_t key = i / row % M;
        bool gone = key < counted && t->c->in[3].given &&
                    key >= (int64_t)t->in[3][i / row / M / d->dim[1]] - a->before;
        values[i] = gone ? NAN : t->in[in][i];
    }
    return values;
}

// the requirements of a case
typedef struct ask {
    bool orders;                  // all orders, even for a large case
    bool singles;                 // from contract_singles
    double *again, held, sectors; // from contract_passes
    double most;                  // from contract_lean, or 0
    bool newest;                  // only the sm_90a form
    mr_status fails;              // from contract_fails
} ask;

static void check_counts(const reference *t, const mr_call *call, double moved, const variant *v,
                         const ask *a)
{
    // the declared bytes must match the bytes of the arguments, except for small arguments
    const double declared = mr_op_cost(t->c->op, call).bytes;
    moved *= a->held;
    EXPECT(!a->again || fabs(declared - moved) <= 0.1 * moved,
           "cost declares %.0f bytes, the arguments have %.0f", declared, moved);
    if (v->counted || !device_counts_work())
        return;
    device_counts n = device_counted();
    /* lanes that idle in a loop can make the count join accesses of different iterations; a partial
     * tile is stored by few lanes of each row */
    EXPECT((double)n.wavefronts <= 1.03 * (double)n.ideal_wavefronts + 48,
           "shared memory needs %llu passes, %llu without bank conflicts",
           (unsigned long long)n.wavefronts, (unsigned long long)n.ideal_wavefronts);
    double flop = mr_op_cost(t->c->op, call).flop;
    EXPECT(!a->most || ((double)n.product_flop <= a->most * flop && n.product_flop > 0),
           "products of %.4g operations, %.4g declared: %.3f times", (double)n.product_flop, flop,
           (double)n.product_flop / flop);
    if (!a->again)
        return;
    double asked = (double)(n.read + n.written);
    // partial sums and row ends may cross sector borders
    EXPECT((double)n.sectors <= a->sectors * (double)n.ideal_sectors,
           "requests touch %llu sectors, the minimum is %llu", (unsigned long long)n.sectors,
           (unsigned long long)n.ideal_sectors);
    EXPECT(asked <= (1 + *a->again) * declared,
           "threads access %.0f bytes, %.0f declared: %.3f times", asked, declared,
           asked / declared);
}

// Run one variant of a form; false: the kernel refused it. Writes the results as dense doubles to
// got[].
static bool run(const reference *t, int form, const variant *v, const ask *asked, double **got)
{
    const mr_op *op = t->c->op;
    const mr_cuda_kernel *cuda = mr_cuda_kernel_find(op->name);
    const mr_facts facts = forms[form];
    mr_call call = {
        .n_in = mr_op_n_in(op), .n_out = mr_op_n_out(op), .attr = t->attr, .threads = 1};
    argument in[MR_MAX_IN] = {0}, out[MR_MAX_OUT] = {0};
    const mr_desc *descs[MR_MAX_IN] = {0};
    unsigned char *before[MR_MAX_IN] = {0};
    bool over[MR_MAX_IN] = {0}, shared[MR_MAX_OUT] = {0};
    double moved = 0;
    for (int i = 0; i < call.n_in; i++) {
        call.in[i].desc.rank = -1;
        if (!t->c->in[i].given)
            continue;
        bool fixed = is_target(op, i, true) || (v->alias && is_target(op, i, false));
        lay kind = fixed ? LAY_DENSE : layout_of(op->in[i].access, t->c->in[i].kind, v->strided);
        in[i] = argument_new(&t->c->in[i].desc, kind, v, i);
        bool keys = (i == 1 || i == 2) && has_keys(op);
        double *values = keys ? without_keys(t, i) : t->in[i];
        argument_set(&in[i], values);
        if (keys)
            free(values);
        before[i] = malloc(in[i].bytes + 1);
        memcpy(before[i], in[i].mem, in[i].bytes);
        call.in[i] = on_device(&in[i]);
        descs[i] = &in[i].view.desc;
        moved += (double)element_bytes(&in[i]);
    }
    mr_infer ctx;
    EXPECT(infer(op, descs, t->attr, &ctx) == MR_OK, "infer: %s", last_error());
    for (int k = 0; k < call.n_out; k++) {
        call.out[k].desc.rank = -1;
        if (ctx.out[k].rank < 0)
            continue;
        int place = op->out[k].inplace - 1;
        if (place >= 0 && t->c->in[place].given && (op->out[k].must || v->alias) &&
            mr_desc_same_shape(&ctx.out[k], &in[place].view.desc) &&
            ctx.out[k].dtype == in[place].view.desc.dtype) {
            shared[k] = over[place] = true;
            call.out[k] = on_device(&in[place]);
            moved += (double)element_bytes(&in[place]);
            continue;
        }
        // an op that keeps a permuted order sets the strides itself
        mr_desc d = ctx.out[k];
        bool own = false;
        for (int i = 0; i < d.rank; i++)
            own |= d.stride[i] != 0;
        if (!own)
            d = mr_desc_dense(d.dtype, d.rank, d.dim);
        lay kind = layout_of(op->out[k].access, LAY_DENSE, v->strided);
        out[k] = argument_new(&d, kind, v, call.n_in + k);
        call.out[k] = on_device(&out[k]);
        moved += (double)element_bytes(&out[k]);
    }
    size_t bytes = cuda->kernel.workspace ? cuda->kernel.workspace(&call, &facts) : 0;
    bool planned = bytes != MR_NO_KERNEL;
    // aligned to 64 bytes and not more
    call.workspace = planned && bytes ? (char *)device_alloc(64 + bytes) + 64 : NULL;

    if (cuda->kernel.prepare)
        EXPECT(cuda->kernel.prepare(&call, &facts, &call.state) == MR_OK, "prepare: %s",
               last_error());
    device_begin(v->seed, v->late, !v->counted);
    mr_status st = cuda->kernel.run[form](&call);
    // this waits for the launches
    const char *reports = device_reports();
    bool served = st == MR_OK;
    if (served && cuda->check)
        st = cuda->check(call.state);
    EXPECT(st == asked->fails || st == MR_E_UNSUPPORTED, "%s", last_error());
    EXPECT(!served || planned, "the workspace says MR_NO_KERNEL, but the kernel runs the case");
    for (int i = 0; i < call.n_in; i++)
        argument_get(&in[i]);
    for (int k = 0; k < call.n_out; k++)
        argument_get(&out[k]);
    if (served) {
        check_str(reports, "", "the reports", where, 0);
        check_counts(t, &call, moved, v, asked);
    }
    for (int k = 0; served && k < call.n_out; k++) {
        if (ctx.out[k].rank < 0)
            continue;
        const argument *a = shared[k] ? &in[op->out[k].inplace - 1] : &out[k];
        EXPECT(elements_written(a), "output %s is not written everywhere", op->out[k].name);
        EXPECT(gaps_intact(a), "wrote between the elements of output %s", op->out[k].name);
        mr_view to = dense_f64(&ctx.out[k], got[k]);
        mr_view_copy(&to, &a->view);
    }
    for (int i = 0; i < call.n_in; i++)
        if (t->c->in[i].given) {
            EXPECT(over[i] || memcmp(before[i], in[i].mem, in[i].bytes) == 0, "wrote into input %s",
                   op->in[i].name);
            free(before[i]);
            argument_free(&in[i]);
        }
    for (int k = 0; k < call.n_out; k++)
        argument_free(&out[k]);
    if (cuda->kernel.release)
        cuda->kernel.release(call.state);
    device_free_all();
    return served;
}

// a case with more input elements is large
enum { LARGE = 30000 };

static bool can_alias(const op_case *c)
{
    for (int i = 0; i < mr_op_n_in(c->op); i++)
        if (c->in[i].given && is_target(c->op, i, false) && !is_target(c->op, i, true))
            return true;
    return false;
}

static bool can_stride(const op_case *c)
{
    for (int i = 0; i < mr_op_n_in(c->op); i++)
        if (c->in[i].given && c->op->in[i].access != MR_CONTIG)
            return true;
    return false;
}

/* 8-bit products keep 14 bits of a sum (driver_emu.cpp) for any dtype of the result, so they have
 * at least the tolerance of bf16. */
static double allowed(const op_case *c, const mr_desc *out)
{
    bool f8 = false;
    for (int i = 0; i < mr_op_n_in(c->op); i++)
        f8 |= c->in[i].given &&
              (c->in[i].desc.dtype == MR_F8_E4M3 || c->in[i].desc.dtype == MR_F8_E5M2);
    const double most = tolerance(c, out);
    return f8 && strncmp(c->op->name, "linear", 6) == 0 ? MR_MAX(most, 1.0 / 256) : most;
}

/* Run one variant. Its results, in got[], must be right, and have the same bits as `first`, if
 * given and if the strides are equal. False: the kernel refused it. */
static bool check_variant(const reference *t, int form, const char *line, const variant *v,
                          const ask *a, double **got, double **first)
{
    const mr_op *op = t->c->op;
    char base[1100];
    snprintf(base, sizeof base, "%s [%s, %s %d]", line, forms[form].isa, v->name, v->only);
    where = base;
    bool served = run(t, form, v, a, got);
    for (int k = 0; served && k < MR_MAX_OUT; k++) {
        if (!t->out[k] || a->fails != MR_OK)
            continue;
        int64_t n = mr_desc_count(&t->out_desc[k]);
        double e = rel_error(got[k], t->out[k], n), most = allowed(t->c, &t->out_desc[k]);
        EXPECT(e <= most, "output %s is off by %.3g, allowed %.3g", op->out[k].name, e, most);
        // other strides may use another kernel
        EXPECT(v->strided || !first || memcmp(got[k], first[k], 8 * (size_t)n) == 0,
               "output %s has other bits than in order", op->out[k].name);
    }
    where = line;
    return served;
}

// Run all variants of one form; false: the kernel refuses the case.
static bool check_form(const reference *t, int form, const char *line, ask a)
{
    const mr_op *op = t->c->op;
    double *got[MR_MAX_OUT] = {0}, *first[MR_MAX_OUT] = {0}, work = 0;
    bool served = true;
    for (int i = 0; i < mr_op_n_in(op); i++)
        work += t->c->in[i].given ? (double)mr_desc_count(&t->c->in[i].desc) : 0;
    for (int k = 0; k < MR_MAX_OUT; k++)
        if (t->out[k])
            got[k] = doubles(&t->out_desc[k]), first[k] = doubles(&t->out_desc[k]);
    for (size_t i = 0; served && i < MR_COUNT(variants); i++) {
        const variant *v = &variants[i];
        // large cases run once, never with awkward strides; in-place blocks also run in another
        // order
        if (i && !a.again && !a.orders && work > LARGE)
            break;
        if ((v->alias ? !can_alias(t->c) : !v->strided && i && can_alias(t->c)) ||
            (v->strided && (a.again || !can_stride(t->c) || (!v->apart && work > LARGE))))
            continue;
        // a kernel may refuse awkward strides
        served =
            check_variant(t, form, line, v, &a, i ? got : first, i ? first : NULL) || v->strided;
    }
    for (size_t i = 0; a.singles && i < MR_COUNT(singles); i++)
        for (int only = 1; only <= mr_op_n_in(op) + mr_op_n_out(op); only++) {
            variant v = singles[i];
            v.only = only;
            check_variant(t, form, line, &v, &a, got, first);
        }
    for (int k = 0; k < MR_MAX_OUT; k++)
        free(got[k]), free(first[k]);
    return served;
}

// false: some form refuses the case
static bool check_case(const mr_op *op, const char *text, ask a)
{
    static char line[1024];
    snprintf(line, sizeof line, "%s \"%s\"", op->name, text);
    where = line;
    // other inputs in each run if MOONREEL_SEED is set
    const char *fresh = getenv("MOONREEL_SEED");
    case_seed = mr_name_word(line) + (fresh ? strtoull(fresh, NULL, 10) : 0);
    op_case c;
    reference t;
    bool read = case_parse(op, text, &c);
    EXPECT(read, "cannot read this case");
    if (!read)
        return true;
    bool served = reference_new(&c, &t) == a.fails;
    EXPECT(served, "%s", last_error());
    for (int form = 0; served && form < device_forms(); form++)
        if (mr_cuda_kernel_find(op->name)->kernel.run[form] && (form || !a.newest))
            served = check_form(&t, form, line, a);
    reference_free(&t);
    return served;
}

// number of arguments of a case that can be spread along an axis
static int spreadable(const reference *t, int axis)
{
    const mr_op *op = t->c->op;
    int n = 0;
    for (int i = 0; i < mr_op_n_in(op); i++)
        n += t->c->in[i].given && !is_target(op, i, true) &&
             can_spread(&t->c->in[i].desc, layout_of(op->in[i].access, LAY_DENSE, true), axis);
    for (int k = 0; k < mr_op_n_out(op); k++)
        n += t->out[k] &&
             can_spread(&t->out_desc[k], layout_of(op->out[k].access, LAY_DENSE, true), axis);
    return n;
}

// one case along each axis, in each form; returns how often a CUDA kernel ran
static int check_far(const mr_op *op, const char *text)
{
    char line[1024];
    int served = 0;
    op_case c;
    reference t;
    snprintf(line, sizeof line, "%s \"%s\"", op->name, text);
    case_seed = mr_name_word(line);
    if (!case_parse(op, text, &c))
        return 0;
    int64_t elements = 0;
    for (int i = 0; i < mr_op_n_in(op); i++)
        elements += c.in[i].given ? mr_desc_count(&c.in[i].desc) : 0;
    // skip large cases, because small ones run the same code
    if (elements > LARGE / 4 || reference_new(&c, &t) != MR_OK)
        return 0;
    double *got[MR_MAX_OUT] = {0};
    for (int k = 0; k < MR_MAX_OUT; k++)
        got[k] = t.out[k] ? doubles(&t.out_desc[k]) : NULL;
    for (int axis = 0; axis < MR_MAX_RANK; axis++)
        for (int form = 0; spreadable(&t, axis) && form < device_forms(); form++) {
            const variant v = {
                .name = "far", .seed = 3, .late = true, .strided = true, .far = axis + 1};
            if (mr_cuda_kernel_find(op->name)->kernel.run[form])
                served += check_variant(&t, form, line, &v, &(ask){0}, got, NULL);
        }
    for (int k = 0; k < MR_MAX_OUT; k++)
        free(got[k]);
    reference_free(&t);
    where = "";
    return served;
}

static const mr_op *op_of(const char *name)
{
    const mr_op *op = mr_op_find(name);
    where = name;
    EXPECT(op, "is not an op");
    EXPECT(mr_cuda_kernel_find(name), "has no CUDA kernel");
    return mr_cuda_kernel_find(name) ? op : NULL;
}

void contract_row(const char *name)
{
    const mr_op *op = op_of(name);
    for (int i = 0; op && op->cases[i]; i++)
        EXPECT(check_case(op, op->cases[i], (ask){0}), "refuses %s", op->cases[i]);
}

int contract_far(const char *name)
{
    const mr_op *op = op_of(name);
    int served = 0;
    for (int i = 0; op && op->cases[i]; i++)
        served += check_far(op, op->cases[i]);
    return served;
}

void contract_case(const char *name, const char *text)
{
    const mr_op *op = op_of(name);
    EXPECT(op && check_case(op, text, (ask){0}), "refuses %s", text);
}

void contract_orders(const char *name, const char *text)
{
    const mr_op *op = op_of(name);
    EXPECT(op && check_case(op, text, (ask){.orders = true}), "refuses %s", text);
}

void contract_singles(const char *name, const char *text)
{
    const mr_op *op = op_of(name);
    EXPECT(op && check_case(op, text, (ask){.singles = true}), "refuses %s", text);
}

void contract_fast(const char *name, const char *text, double again)
{
    contract_passes(name, text, 1, again, 1.01);
}

void contract_passes(const char *name, const char *text, double held, double again, double sectors)
{
    const mr_op *op = op_of(name);
    ask a = {.again = &again, .held = held, .sectors = sectors};
    EXPECT(op && check_case(op, text, a), "refuses %s", text);
}

void contract_lean(const char *name, const char *text, double most)
{
    const mr_op *op = op_of(name);
    EXPECT(op && check_case(op, text, (ask){.most = most}), "refuses %s", text);
}

void contract_sm90a(const char *name, const char *text, double most)
{
    const mr_op *op = op_of(name);
    ask a = {.orders = true, .most = most, .newest = true};
    EXPECT(op && check_case(op, text, a), "refuses %s", text);
}

void contract_refuses(const char *name, const char *text)
{
    const mr_op *op = op_of(name);
    EXPECT(op && !check_case(op, text, (ask){0}), "does not refuse %s", text);
}

void contract_fails(const char *name, const char *text, mr_status code)
{
    const mr_op *op = op_of(name);
    EXPECT(op && check_case(op, text, (ask){.fails = code}), "refuses %s", text);
}

void contract_too_large(const char *name, const char *text)
{
    static _Alignas(16) char nothing[16];
    const mr_op *op = op_of(name);
    op_case c;
    reference t;
    where = text;
    EXPECT(case_parse(op, text, &c), "cannot read this case");
    EXPECT(reference_of(&c, &t) == MR_OK, "%s", last_error());
    mr_call call = {.n_in = mr_op_n_in(op),
                    .n_out = mr_op_n_out(op),
                    .attr = t.attr,
                    .threads = 1,
                    .workspace = nothing};
    for (int i = 0; i < call.n_in; i++)
        call.in[i] =
            c.in[i].given ? (mr_view){nothing, c.in[i].desc} : (mr_view){NULL, {.rank = -1}};
    for (int k = 0; k < call.n_out; k++) {
        const mr_desc *d = &t.out_desc[k];
        call.out[k] = d->rank < 0 ? (mr_view){NULL, *d}
                                  : (mr_view){nothing, mr_desc_dense(d->dtype, d->rank, d->dim)};
    }
    for (int form = 0; form < device_forms(); form++)
        if (mr_cuda_kernel_find(name)->kernel.run[form])
            EXPECT(mr_cuda_kernel_find(name)->kernel.run[form](&call) == MR_E_UNSUPPORTED,
                   "is not refused");
}

// ---- comparison with plain kernels, where the naive kernel takes too long ----

// device memory for `d`; if `in` is given, with random values in the range of the case
static mr_view real_view(const mr_desc *d, const case_arg *in, uint64_t seed)
{
    mr_view v = {device_alloc((size_t)mr_desc_count(d) * mr_dtype_bytes(d->dtype)), *d};
    if (in)
        plain_draw(v.data, d->dtype, mr_desc_count(d), seed, in->lo, in->hi);
    return v;
}

static const int64_t *pad_of(const op_case *c)
{
    static const int64_t none[6] = {0};
    for (int i = 0; i < c->n_attr; i++)
        if (strcmp(c->attr[i].name, "pad") == 0)
            return c->attr[i].ints->v;
    return none;
}

/* The allowed error of an output. Each element of an f32 output that accumulates sums has (elements
 * of the first input) / (elements of the output) terms; its rounding error grows with the square
 * root of this. */
static double allowed_real(const reference *t, int k, const mr_desc *out)
{
    enum { SHORT = 10000 }; // number of terms that the tolerance of the op allows for
    const double most = allowed(t->c, out),
                 terms = (double)mr_desc_count(&t->c->in[0].desc) / (double)mr_desc_count(out);
    const bool sums = out->dtype == MR_F32 && t->c->op->out[k].must && t->c->rtol == 0;
    return sums ? most * sqrt(MR_MAX(terms / SHORT, 1.0)) : most;
}

/* Compares an output with the plain one in two ways: the error of all elements together, and the
 * largest error of one element, because one wrong row among many thousand hardly changes the first.
 */
static void compare_real(const reference *t, int k, const mr_view *got, const float *want)
{
    enum { TIMES = 64 }; // allowed error of one element, relative to the RMS
    const int64_t n = mr_desc_count(&got->desc);
    const plain_sums s = plain_differences(got->data, got->desc.dtype, want, n);
    // if all expected values are zero, no error is allowed
    const double most = allowed_real(t, k, &got->desc),
                 e = s.off > 0 ? sqrt(s.off / s.size) : s.off, root = sqrt(s.size / (double)n);
    const char *name = t->c->op->out[k].name;
    EXPECT(device_written(got->data, (size_t)n * mr_dtype_bytes(got->desc.dtype)),
           "output %s is not written everywhere", name);
    printf("%s: output %s is off by %.2g of %.2g, at most by %.2g of %.2g, at %lld\n", where, name,
           e, most, root > 0 ? s.most / root : s.most, TIMES * most, (long long)s.place);
    EXPECT(e <= most, "output %s is off by %.3g, allowed %.3g", name, e, most);
    EXPECT(s.most <= TIMES * most * root, "output %s is off by %.3g at %lld, allowed %.3g", name,
           s.most, (long long)s.place, TIMES * most * root);
}

// run the newest form on inputs that the device draws; the results stay on the device
static void run_real(const reference *t)
{
    const mr_op *op = t->c->op;
    const mr_cuda_kernel *cuda = mr_cuda_kernel_find(op->name);
    int form = device_forms() - 1;
    form = cuda->kernel.run[form] ? form : 0;
    mr_call call = {
        .n_in = mr_op_n_in(op), .n_out = mr_op_n_out(op), .attr = t->attr, .threads = 1};
    float *want[MR_MAX_OUT] = {0};
    for (int i = 0; i < call.n_in; i++)
        call.in[i] = t->c->in[i].given ? real_view(&t->c->in[i].desc, &t->c->in[i],
                                                   MR_MIX(case_seed, (uint64_t)i))
                                       : (mr_view){NULL, {.rank = -1}};
    for (int k = 0; k < call.n_out; k++) {
        mr_desc d = t->out_desc[k];
        const int place = op->out[k].must ? op->out[k].inplace - 1 : -1;
        if (d.rank >= 0)
            d = mr_desc_dense(d.dtype, d.rank, d.dim);
        call.out[k] = d.rank < 0   ? (mr_view){NULL, d}
                      : place >= 0 ? call.in[place]
                                   : real_view(&d, NULL, 0);
        if (d.rank >= 0)
            want[k] = device_alloc((size_t)mr_desc_count(&d) * sizeof *want[k]);
    }
    // run the plain kernel first, because outputs may overwrite inputs
    EXPECT(plain_row(op->name, &call, pad_of(t->c), want), "has no plain kernel");
    const size_t bytes = cuda->kernel.workspace ? cuda->kernel.workspace(&call, &forms[form]) : 0;
    call.workspace = bytes && bytes != MR_NO_KERNEL ? device_alloc(bytes) : NULL;
    const bool served = cuda->kernel.run[form](&call) == MR_OK;
    EXPECT(served, "%s", last_error());
    for (int k = 0; served && k < call.n_out; k++)
        if (call.out[k].desc.rank >= 0)
            compare_real(t, k, &call.out[k], want[k]);
    check_str(device_reports(), "", "the reports", where, 0);
    device_free_all();
}

void contract_real(const char *name, const char *text)
{
    const mr_op *op = op_of(name);
    const char *fresh = getenv("MOONREEL_SEED");
    op_case c;
    reference t;
    char line[1100];
    snprintf(line, sizeof line, "%s \"%s\"", name, text);
    where = line;
    case_seed = mr_name_word(line) + (fresh ? strtoull(fresh, NULL, 10) : 0);
    const bool read = op && case_parse(op, text, &c) && reference_of(&c, &t) == MR_OK;
    EXPECT(read, "cannot read this case");
    device_begin(0, true, true);
    if (read)
        run_real(&t);
    where = "";
}

int contract_done(void)
{
    return check_done();
}
