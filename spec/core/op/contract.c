/* op/contract: each op over all its cases. Usage: contract [NAME...] for these ops only.
 *
 *   kernel    each instruction set, 1 and 3 threads, dense and awkward strides,
 *             in place and not, compared with the naive op on equal (rounded) inputs; guards intact
 *   gradient  finite differences of the naive f64 op compared with the op's gradient in f64
 *   cost      bytes compared with counted bytes
 *   infer     a wrong argument is refused with a shape error
 * Covers: core/op/NAME.c core/cpu/naive.c core/cpu/conv.c core/cpu/conv_onednn.c core/cpu/onednn.c
 * core/cpu/isa/depthwise.c core/cpu/loop.c */
#include "opcontract.h"
#include "cpu/cpu.h"
#include "moonreel/graph.h"

#include <float.h>

/* ---- the reference: naive kernels in f64 ---- */

typedef struct reference {
    double *in[MR_MAX_IN], *out[MR_MAX_OUT];
    mr_desc out_desc[MR_MAX_OUT]; /* of the case's dtypes, from dense inputs */
    int n_in, n_out;
    unsigned char attr[MR_ATTR_BYTES];
} reference;

static mr_status infer(const mr_op *op, const mr_desc *const *in, const void *attr, mr_infer *ctx)
{
    *ctx = (mr_infer){.n_in = mr_op_n_in(op), .attr = attr};
    for (int i = 0; i < ctx->n_in; i++)
        ctx->in[i] = in[i];
    for (int i = 0; i < MR_MAX_OUT; i++)
        ctx->out[i].rank = -1;
    MR_TRY(mr_op_check_dtypes(op, ctx));
    MR_TRY(op->infer(ctx));
    // strides all zero = chosen here; an op that keeps a permuted order sets them itself
    for (int i = 0; i < mr_op_n_out(op); i++) {
        mr_desc *d = &ctx->out[i];
        bool set = false;
        for (int k = 0; k < d->rank; k++)
            set |= d->stride[k] != 0;
        if (!set && d->rank >= 0)
            *d = mr_desc_dense(d->dtype, d->rank, d->dim);
    }
    return MR_OK;
}

static mr_status run_naive(const mr_op *op, mr_call *call)
{
    size_t bytes = mr_op_naive_workspace(op, call);
    call->workspace = bytes ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
    mr_status st = mr_op_run_naive(op, call);
    free(call->workspace), call->workspace = NULL;
    return st;
}

/* Values of argument i as a view of its own dtype (ints) or f64 (floats), dense. */
static buf exact_arg(const mr_desc *d, const double *values)
{
    mr_desc wide = mr_desc_dense(mr_dtype_is_float(d->dtype) ? MR_F64 : d->dtype, d->rank, d->dim);
    buf b = buf_new(&wide, LAY_DENSE, 0);
    mr_view v = dense_f64(d, (double *)values);
    mr_view_copy(&b.view, &v);
    return b;
}

/* The naive op on the values; out[k] receives dense f64. */
static mr_status evaluate(const op_case *c, const reference *t, double *const *values,
                          double *const *out)
{
    mr_call call = {.n_in = t->n_in, .n_out = t->n_out, .attr = t->attr, .threads = 1};
    buf in[MR_MAX_IN] = {0}, res[MR_MAX_OUT] = {0};
    for (int i = 0; i < t->n_in; i++) {
        call.in[i].desc.rank = -1;
        if (!c->in[i].given)
            continue;
        in[i] = exact_arg(&c->in[i].desc, values[i]);
        call.in[i] = in[i].view;
    }
    for (int k = 0; k < t->n_out; k++) {
        call.out[k].desc.rank = -1;
        if (t->out_desc[k].rank < 0)
            continue;
        const mr_desc *d = &t->out_desc[k];
        mr_desc wide =
            mr_desc_dense(mr_dtype_is_float(d->dtype) ? MR_F64 : d->dtype, d->rank, d->dim);
        res[k] = buf_new(&wide, LAY_DENSE, k);
        call.out[k] = res[k].view;
    }
    mr_status st = run_naive(c->op, &call);
    for (int k = 0; k < t->n_out; k++) {
        if (t->out_desc[k].rank < 0)
            continue;
        mr_view v = dense_f64(&t->out_desc[k], out[k]);
        if (st == MR_OK)
            mr_view_copy(&v, &res[k].view);
        buf_free(&res[k]);
    }
    for (int i = 0; i < t->n_in; i++)
        buf_free(&in[i]);
    return st;
}

static bool reference_new(const op_case *c, reference *t)
{
    *t = (reference){.n_in = mr_op_n_in(c->op), .n_out = mr_op_n_out(c->op)};
    bool ok = mr_op_attrs(c->op, c->attr, c->n_attr, t->attr) == MR_OK;
    EXPECT(ok, "attributes: %s", last_error());
    if (!ok)
        return false;
    const mr_desc *in[MR_MAX_IN] = {0};
    for (int i = 0; i < t->n_in; i++)
        if (c->in[i].given)
            in[i] = &c->in[i].desc, t->in[i] = case_values(&c->in[i]);
    mr_infer ctx;
    ok = infer(c->op, in, t->attr, &ctx) == MR_OK;
    EXPECT(ok, "infer: %s", last_error());
    if (!ok)
        return false;
    for (int k = 0; k < t->n_out; k++) {
        t->out_desc[k] = ctx.out[k];
        if (ctx.out[k].rank >= 0)
            t->out[k] = malloc(8 * (size_t)MR_MAX(mr_desc_count(&ctx.out[k]), 1));
    }
    ok = evaluate(c, t, t->in, t->out) == MR_OK;
    EXPECT(ok, "naive: %s", last_error());
    // a number beyond f32 (and bf16, whose range is the same) is infinite there
    for (int k = 0; ok && k < t->n_out; k++)
        for (int64_t i = 0, n = mr_desc_count(&t->out_desc[k]); t->out[k] && i < n; i++)
            if (t->out_desc[k].dtype != MR_F64 && fabs(t->out[k][i]) > (double)FLT_MAX)
                t->out[k][i] = copysign(INFINITY, t->out[k][i]);
    return ok;
}

static void reference_free(reference *t)
{
    for (int i = 0; i < MR_MAX_IN; i++)
        free(t->in[i]);
    for (int k = 0; k < MR_MAX_OUT; k++)
        free(t->out[k]);
}

/* ---- kernels ---- */

typedef struct variant {
    int isa, threads; /* isa -1: the naive op on the case's own dtypes */
    bool strided, alias;
} variant;

static lay strides_of(const op_case *c, int i, bool strided)
{
    lay kind = c->in[i].kind;
    for (int k = 0; k < mr_op_n_out(c->op); k++)
        if (c->op->out[k].must && c->op->out[k].inplace == i + 1)
            return LAY_DENSE;
    if (strided && c->op->in[i].access == MR_ANY)
        kind = LAY_ANY;
    if (strided && c->op->in[i].access == MR_ROWS)
        kind = LAY_ROWS;
    return kind;
}

/* The workspace that the kernel requests before it runs, and what it then uses: no byte more. */
static mr_status run_kernel(const op_case *c, mr_call *call, const variant *v)
{
    const mr_kernel *k = &c->op->cpu;
    mr_facts facts = mr_cpu_facts("cpu", v->isa, v->threads);
    void *state = NULL;
    mr_call shapes = *call;
    for (int i = 0; i < call->n_in; i++)
        shapes.in[i].data = NULL;
    for (int i = 0; i < call->n_out; i++)
        shapes.out[i].data = NULL;
    size_t bytes = k->workspace ? k->workspace(&shapes, &facts) : 0;
    if (bytes == MR_NO_KERNEL) // as the executor does
        return run_naive(c->op, call);
    mr_status st = k->prepare ? k->prepare(&shapes, &facts, &state) : MR_OK;
    if (st != MR_OK)
        return st;
    call->state = shapes.state = state;
    EXPECT(!k->workspace || k->workspace(&shapes, &facts) == bytes,
           "its workspace of %zu bytes depends on what was prepared", bytes);
    mr_desc space = mr_desc_dense(MR_U8, 1, (int64_t[]){(int64_t)bytes});
    buf work = buf_new(&space, LAY_DENSE, 0);
    call->workspace = work.view.data;
    st = mr_kernel_run(&c->op->cpu, v->isa)(call);
    EXPECT(buf_intact(&work), "wrote outside its workspace of %zu bytes", bytes);
    buf_free(&work);
    if (k->release)
        k->release(state);
    return st;
}

/* Runs one variant; results as dense f64 in got[]. False when it failed. */
static bool run_variant(const op_case *c, const reference *t, const variant *v, double *const *got)
{
    mr_call call = {.n_in = t->n_in, .n_out = t->n_out, .attr = t->attr, .threads = v->threads};
    buf in[MR_MAX_IN] = {0}, out[MR_MAX_OUT] = {0};
    unsigned char *before[MR_MAX_IN] = {0};
    bool over[MR_MAX_IN] = {0}, shared[MR_MAX_OUT] = {0};
    const mr_desc *descs[MR_MAX_IN] = {0};
    for (int i = 0; i < t->n_in; i++) {
        call.in[i].desc.rank = -1;
        if (!c->in[i].given)
            continue;
        in[i] = buf_new(&c->in[i].desc, strides_of(c, i, v->strided), i);
        mr_view values = dense_f64(&c->in[i].desc, t->in[i]);
        mr_view_copy(&in[i].view, &values);
        call.in[i] = in[i].view, descs[i] = &in[i].view.desc;
        before[i] = malloc(in[i].bytes);
        memcpy(before[i], in[i].mem, in[i].bytes);
    }
    mr_infer ctx;
    mr_status st = infer(c->op, descs, t->attr, &ctx);
    for (int k = 0; k < t->n_out; k++) {
        call.out[k].desc.rank = -1;
        if (ctx.out[k].rank < 0)
            continue;
        int place = c->op->out[k].inplace - 1;
        bool fits = place >= 0 && c->in[place].given && !over[place] &&
                    mr_desc_same_shape(&ctx.out[k], &in[place].view.desc) &&
                    ctx.out[k].dtype == in[place].view.desc.dtype &&
                    mr_desc_is_dense(&in[place].view.desc);
        if (fits && (c->op->out[k].must || v->alias)) {
            shared[k] = over[place] = true;
            call.out[k] = in[place].view;
            continue;
        }
        EXPECT(!c->op->out[k].must || place < 0 || !c->in[place].given, "output %s must lie in %s",
               c->op->out[k].name, c->op->in[place].name);
        lay kind = !v->strided                       ? LAY_DENSE
                   : c->op->out[k].access == MR_ANY  ? LAY_ANY
                   : c->op->out[k].access == MR_ROWS ? LAY_ROWS
                                                     : LAY_DENSE;
        out[k] = buf_new(&ctx.out[k], kind, t->n_in + k);
        call.out[k] = out[k].view;
    }
    if (st == MR_OK)
        st = v->isa < 0 ? run_naive(c->op, &call) : run_kernel(c, &call, v);
    EXPECT(st == MR_OK, "%s", last_error());
    for (int k = 0; k < t->n_out; k++) {
        if (ctx.out[k].rank < 0)
            continue;
        mr_view to = dense_f64(&ctx.out[k], got[k]);
        mr_view_copy(&to, &call.out[k]);
        if (shared[k])
            continue;
        EXPECT(buf_intact(&out[k]), "wrote outside output %s", c->op->out[k].name);
        buf_free(&out[k]);
    }
    for (int i = 0; i < t->n_in; i++) {
        if (!c->in[i].given)
            continue;
        EXPECT(over[i] ? buf_intact(&in[i]) : memcmp(before[i], in[i].mem, in[i].bytes) == 0,
               "wrote into input %s", c->op->in[i].name);
        free(before[i]), buf_free(&in[i]);
    }
    return st == MR_OK;
}

static void check_kernels(const op_case *c, const reference *t)
{
    static char text[512];
    double *got[MR_MAX_OUT] = {0};
    for (int k = 0; k < t->n_out; k++)
        if (t->out[k])
            got[k] = malloc(8 * (size_t)MR_MAX(mr_desc_count(&t->out_desc[k]), 1));
    const char *base = where;
    for (int isa = -1; isa <= mr_isa(); isa++) {
        static const variant shapes[] = {
            {0, 1, false, false}, {0, 3, true, false}, {0, 3, false, true}};
        for (size_t s = 0; s < MR_COUNT(shapes); s++) {
            variant v = shapes[s];
            v.isa = isa;
            if (isa < 0 ? s > 1 : !mr_kernel_run(&c->op->cpu, isa))
                continue;
            snprintf(text, sizeof text, "%s [%s, %d threads%s%s]", base,
                     isa < 0 ? "naive" : mr_isa_name(isa), v.threads, v.strided ? ", strided" : "",
                     v.alias ? ", in place" : "");
            where = text;
            if (!run_variant(c, t, &v, got))
                continue;
            for (int k = 0; k < t->n_out; k++) {
                if (!t->out[k])
                    continue;
                double e = rel_error(got[k], t->out[k], mr_desc_count(&t->out_desc[k])),
                       tol = tolerance(c, &t->out_desc[k]);
                EXPECT(e <= tol, "output %s is off by %.3g, allowed %.3g", c->op->out[k].name, e,
                       tol);
            }
        }
    }
    where = base;
    for (int k = 0; k < t->n_out; k++)
        free(got[k]);
}

/* ---- gradients ---- */

/* Runs a finished graph in host memory with the naive ops. bases[] are the storages. */
static mr_status run_graph(const mr_graph *g, unsigned char **bases)
{
    for (int i = 0; i < mr_graph_nodes(g); i++) {
        const mr_node *node = mr_graph_node(g, i);
        mr_call call = {.n_in = node->n_in, .n_out = node->n_out, .attr = node->attr, .threads = 1};
        for (int k = 0; k < MR_MAX_IN; k++)
            call.in[k].desc.rank = -1;
        for (int k = 0; k < MR_MAX_OUT; k++)
            call.out[k].desc.rank = -1;
        for (int k = 0; k < node->n_in; k++) {
            if (node->in[k] == MR_NONE)
                continue;
            const mr_value *v = mr_graph_value(g, node->in[k]);
            call.in[k] = (mr_view){bases[v->storage] + v->offset, v->desc};
        }
        for (int k = 0; k < node->n_out; k++) {
            if (node->out[k] == MR_NONE)
                continue;
            const mr_value *v = mr_graph_value(g, node->out[k]);
            call.out[k] = (mr_view){bases[v->storage] + v->offset, v->desc};
        }
        MR_TRY(run_naive(node->op, &call));
    }
    return MR_OK;
}

typedef struct grads {
    double *din[MR_MAX_IN];     /* dense f64; NULL = no gradient */
    double *weight[MR_MAX_OUT]; /* cotangents; NULL = the output is not differentiated */
} grads;

/* loss = sum over differentiable outputs of <weight, y>, in f64, then its gradient by the graph. */
static mr_status graph_grads(const op_case *c, const reference *t, grads *gr, bool *nothing,
                             double *allowed)
{
    mr_graph *g;
    mr_graph_options options = {.no_inplace = true};
    MR_TRY(mr_graph_new(NULL, &options, &g));
    mr_status st = MR_OK;
    mr_ref in[MR_MAX_IN], outs[MR_MAX_OUT], loss = MR_NONE, wrt[MR_MAX_IN], dwrt[MR_MAX_IN];
    int which[MR_MAX_IN], n_wrt = 0;
    unsigned char **bases = NULL;
    int n_bases = 0;
    for (int i = 0; i < t->n_in; i++) {
        in[i] = MR_NONE;
        if (!c->in[i].given)
            continue;
        const mr_desc *d = &c->in[i].desc;
        mr_dtype dtype = mr_dtype_is_float(d->dtype) ? MR_F64 : d->dtype;
        MR_TRY_GOTO(mr_graph_input(g, c->op->in[i].name, dtype, d->rank, d->dim, &in[i]));
        if (dtype == MR_F64 && !(c->op->in[i].flags & MR_NO_GRAD))
            which[n_wrt] = i, wrt[n_wrt++] = in[i];
    }
    MR_TRY_GOTO(mr_graph_add(g, c->op->name, c->attr, c->n_attr, in, t->n_in, outs));
    // differentiable outputs are f64 when the inputs are; an op that fixes its dtype (cast, a loss)
    // has one: the first
    bool wide = false;
    for (int k = 0; k < t->n_out; k++)
        wide |= outs[k] != MR_NONE && mr_graph_value(g, outs[k])->desc.dtype == MR_F64;
    mr_dtype first = mr_graph_value(g, outs[0])->desc.dtype;
    if (!wide && mr_dtype_is_float(first)) {
        // its cotangent is rounded to that dtype
        if (first == MR_BF16)
            *allowed = 1.0 / 256;
        MR_TRY_GOTO(
            mr_graph_add(g, "cast", MR_ATTRS({"dtype", .i = MR_F64}), &outs[0], 1, &outs[0]));
    }
    for (int k = 0; k < t->n_out; k++) {
        if (outs[k] == MR_NONE || mr_graph_value(g, outs[k])->desc.dtype != MR_F64)
            continue;
        int64_t n = mr_desc_count(&t->out_desc[k]);
        gr->weight[k] = malloc(8 * (size_t)MR_MAX(n, 1));
        for (int64_t i = 0; i < n; i++)
            gr->weight[k][i] = 2 * case_uniform() - 1;
        mr_view w = dense_f64(&t->out_desc[k], gr->weight[k]);
        mr_ref cot, prod;
        MR_TRY_GOTO(mr_graph_const(g, &w, &cot));
        MR_TRY_GOTO(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){outs[k], cot}, 2, &prod));
        mr_ints axes = {.n = t->out_desc[k].rank};
        for (int i = 0; i < axes.n; i++)
            axes.v[i] = i;
        MR_TRY_GOTO(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axes}), &prod, 1, &prod));
        if (loss == MR_NONE)
            loss = prod;
        else
            MR_TRY_GOTO(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){loss, prod}, 2, &loss));
    }
    EXPECT(loss != MR_NONE || n_wrt == 0 || !mr_dtype_is_float(first),
           "has a gradient, but no float output");
    if (loss == MR_NONE || n_wrt == 0) {
        *nothing = true;
        goto out;
    }
    MR_TRY_GOTO(mr_graph_add(g, "cast", MR_ATTRS({"dtype", .i = MR_F32}), &loss, 1, &loss));
    MR_TRY_GOTO(mr_graph_backward(g, loss, wrt, n_wrt, dwrt));
    for (int i = 0; i < n_wrt; i++)
        if (dwrt[i] != MR_NONE)
            MR_TRY_GOTO(mr_graph_output(g, c->op->in[which[i]].name, dwrt[i]));
    MR_TRY_GOTO(mr_graph_finish(g));
    n_bases = mr_graph_storages(g);
    bases = calloc((size_t)n_bases, sizeof *bases);
    for (int s = 0; s < n_bases; s++) {
        const mr_storage *store = mr_graph_storage(g, s);
        bases[s] = aligned_alloc(64, (store->bytes + 64) & ~(size_t)63);
        memset(bases[s], 0xFF, store->bytes);
        if (store->data)
            memcpy(bases[s], store->data, store->bytes);
        for (int i = 0; store->kind == MR_INPUT && i < t->n_in; i++) {
            if (!c->in[i].given || strcmp(store->name, c->op->in[i].name) != 0)
                continue;
            buf b = exact_arg(&c->in[i].desc, t->in[i]);
            memcpy(bases[s], b.view.data, mr_desc_span_bytes(&b.view.desc));
            buf_free(&b);
        }
    }
    MR_TRY_GOTO(run_graph(g, bases));
    for (int i = 0; i < n_wrt; i++) {
        mr_ref r = mr_graph_output_find(g, c->op->in[which[i]].name);
        if (dwrt[i] == MR_NONE || r == MR_NONE)
            continue;
        const mr_value *v = mr_graph_value(g, r);
        gr->din[which[i]] = malloc(8 * (size_t)MR_MAX(mr_desc_count(&v->desc), 1));
        mr_view to = dense_f64(&v->desc, gr->din[which[i]]),
                from = {bases[v->storage] + v->offset, v->desc};
        MR_TRY_GOTO(mr_view_copy(&to, &from));
    }
out:
    for (int s = 0; s < n_bases; s++)
        free(bases[s]);
    free(bases);
    mr_graph_free(g);
    return st;
}

static double loss_of(const op_case *c, const reference *t, const grads *gr, double *const *values,
                      double *const *out)
{
    double loss = 0;
    if (evaluate(c, t, values, out) != MR_OK)
        return NAN;
    for (int k = 0; k < t->n_out; k++)
        for (int64_t i = 0, n = gr->weight[k] ? mr_desc_count(&t->out_desc[k]) : 0; i < n; i++)
            loss += gr->weight[k][i] * out[k][i];
    return loss;
}

/* The call of a case by its shapes, and the bytes of its operands. */
static mr_call shapes_of(const op_case *c, const reference *t, double *bytes)
{
    mr_call call = {.n_in = t->n_in, .n_out = t->n_out, .attr = t->attr, .threads = 1};
    *bytes = 0;
    for (int i = 0; i < t->n_in; i++) {
        call.in[i].desc.rank = -1;
        if (!c->in[i].given)
            continue;
        call.in[i].desc = c->in[i].desc;
        *bytes += (double)mr_desc_span_bytes(&c->in[i].desc);
    }
    for (int k = 0; k < t->n_out; k++) {
        call.out[k].desc = t->out_desc[k];
        if (t->out_desc[k].rank >= 0)
            *bytes += (double)mr_desc_span_bytes(&t->out_desc[k]);
    }
    return call;
}

/* Number of elements whose gradient was compared with finite differences, over the cases of one
 * op. */
static int64_t gradients_checked, gradients_wanted;

static void check_gradient(const op_case *c, const reference *t)
{
    grads gr = {0};
    double *out[MR_MAX_OUT] = {0};
    for (int k = 0; k < t->n_out; k++)
        if (t->out[k])
            out[k] = malloc(8 * (size_t)MR_MAX(mr_desc_count(&t->out_desc[k]), 1));
    bool nothing = false;
    double allowed = 2e-5;
    mr_status st = graph_grads(c, t, &gr, &nothing, &allowed);
    EXPECT(st == MR_OK, "gradient: %s", last_error());
    // no gradient is finite when the loss, which is f32, is not
    if (st == MR_OK && !nothing)
        nothing = fabs(loss_of(c, t, &gr, t->in, out)) > FLT_MAX;
    // as many elements as some ten million operations allow; large cases leave this to small ones
    double bytes;
    mr_call call = shapes_of(c, t, &bytes);
    double work = mr_op_cost(c->op, &call).flop + 2 * bytes;
    int cap = work > 3e6 ? 0 : (int)MR_MAX(3.0, MR_MIN(32.0, 1e7 / MR_MAX(work, 1)));
    for (int i = 0; st == MR_OK && !nothing && i < t->n_in; i++) {
        if (!c->in[i].given || !mr_dtype_is_float(c->in[i].desc.dtype) ||
            (c->op->in[i].flags & MR_NO_GRAD))
            continue;
        int64_t n = mr_desc_count(&c->in[i].desc);
        gradients_wanted += n > 0, gradients_checked += n > 0 ? cap : 0;
        double diff = 0, norm = 0, size = 0;
        for (int s = 0; s < cap && n > 0; s++) {
            int64_t e = (int64_t)(case_uniform() * (double)n);
            double x = t->in[i][e], h = 1e-5 * MR_MAX(1, fabs(x));
            t->in[i][e] = x + h;
            double up = loss_of(c, t, &gr, t->in, out);
            t->in[i][e] = x - h;
            double down = loss_of(c, t, &gr, t->in, out);
            t->in[i][e] = x;
            double fd = (up - down) / (2 * h), g = gr.din[i] ? gr.din[i][e] : 0;
            diff += (fd - g) * (fd - g), norm += fd * fd, size += 1;
        }
        double e = sqrt(diff) / MR_MAX(sqrt(norm), 1e-4 * sqrt(MR_MAX(size, 1)));
        EXPECT(e <= allowed,
               "gradient of %s is off by %.3g against finite differences, allowed %.3g",
               c->op->in[i].name, e, allowed);
    }
    for (int i = 0; i < MR_MAX_IN; i++)
        free(gr.din[i]);
    for (int k = 0; k < MR_MAX_OUT; k++)
        free(gr.weight[k]), free(out[k]);
}

/* ---- cost and refusals ---- */

static void check_cost(const op_case *c, const reference *t)
{
    double counted;
    mr_call call = shapes_of(c, t, &counted);
    mr_cost cost = mr_op_cost(c->op, &call);
    EXPECT(isfinite(cost.flop) && cost.flop >= 0, "cost says %g FLOP", cost.flop);
    EXPECT(cost.bytes >= counted / 2 - 64 && cost.bytes <= counted * 2 + 64,
           "cost says %g bytes, counted %g", cost.bytes, counted);
}

static void check_refusals(const op_case *c, const reference *t)
{
    mr_desc odd = mr_desc_dense(MR_U8, 1, (int64_t[]){5});
    for (int bad = 0; bad < t->n_in; bad++) {
        const mr_desc *in[MR_MAX_IN] = {0};
        for (int i = 0; i < t->n_in; i++)
            if (c->in[i].given)
                in[i] = i == bad ? &odd : &c->in[i].desc;
        mr_infer ctx;
        mr_status st = infer(c->op, in, t->attr, &ctx);
        EXPECT(st == MR_OK || st == MR_E_SHAPE || st == MR_E_USAGE, "input %s of u8 [5] gives %s",
               c->op->in[bad].name, mr_status_name(st));
    }
}

static void check_row(const mr_op *op)
{
    static char text[512];
    where = op->name;
    EXPECT(op->doc && op->doc[0], "has no doc");
    EXPECT(op->infer != NULL, "has no infer");
    EXPECT(op->naive != NULL, "has no naive kernel");
    EXPECT(op->cases && op->cases[0], "has no cases");
    EXPECT(mr_op_find(op->name) == op, "is not found by its name");
    if (!op->infer || !op->naive || !op->cases)
        return;
    gradients_checked = gradients_wanted = 0;
    for (int i = 0; op->cases[i]; i++) {
        snprintf(text, sizeof text, "%s \"%s\"", op->name, op->cases[i]);
        where = text;
        case_seed = mr_name_word(text);
        op_case c;
        bool ok = case_parse(op, op->cases[i], &c);
        EXPECT(ok, "cannot read this case");
        reference t;
        if (!ok)
            continue;
        if (reference_new(&c, &t)) {
            check_kernels(&c, &t);
            if (op->grad && !c.no_grad)
                check_gradient(&c, &t);
            check_cost(&c, &t);
            check_refusals(&c, &t);
        }
        reference_free(&t);
    }
    where = op->name;
    EXPECT(!gradients_wanted || gradients_checked, "no case is small enough for its gradient");
}

int main(int argc, char **argv)
{
    int rows = 0;
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        bool wanted = argc == 1;
        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], op->name) == 0;
        if (wanted)
            check_row(op), rows++;
    }
    CHECK(rows > 0);
    printf("%d rows, instruction sets up to %s, seeds from the case texts\n", rows,
           mr_isa_name(mr_isa()));
    return check_done();
}
