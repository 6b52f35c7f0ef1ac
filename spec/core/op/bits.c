/* op/bits: own kernels compute the same bits for any team: each op over its cases, in each
 * instruction set, with 1, 2 and 5 threads. Products and convolutions are exempt, because oneDNN
 * chooses by the team. */
#include "cpu/cpu.h"
#include "opcase.h"

static bool exempt(const char *name)
{
    return strncmp(name, "linear", 6) == 0 || strcmp(name, "matmul") == 0 ||
           strncmp(name, "conv3d", 6) == 0;
}

/* One run on dense arguments; out[] receives new buffers. False when no kernel serves the case. */
static bool run(const op_case *c, double *const *values, int isa, int threads, buf *out, int *n_out)
{
    const mr_op *op = c->op;
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    CHECK_OK(mr_op_attrs(op, c->attr, c->n_attr, attr));
    mr_infer ctx = {.n_in = mr_op_n_in(op), .attr = attr};
    mr_call call = {.n_in = ctx.n_in, .n_out = mr_op_n_out(op), .attr = attr, .threads = threads};
    buf in[MR_MAX_IN] = {0};
    for (int i = 0; i < ctx.n_in; i++) {
        call.in[i].desc.rank = -1;
        if (!c->in[i].given)
            continue;
        in[i] = buf_new(&c->in[i].desc, LAY_DENSE, i);
        mr_view from = dense_f64(&c->in[i].desc, values[i]);
        mr_view_copy(&in[i].view, &from);
        call.in[i] = in[i].view, ctx.in[i] = &c->in[i].desc;
    }
    for (int k = 0; k < MR_MAX_OUT; k++)
        ctx.out[k].rank = -1;
    CHECK_OK(op->infer(&ctx));
    *n_out = call.n_out;
    for (int k = 0; k < call.n_out; k++) {
        call.out[k].desc.rank = -1;
        if (ctx.out[k].rank < 0)
            continue;
        mr_desc dense = mr_desc_dense(ctx.out[k].dtype, ctx.out[k].rank, ctx.out[k].dim);
        out[k] = buf_new(&dense, LAY_DENSE, k);
        // accumulators are in the place of their input: its values are copied
        int place = op->out[k].inplace - 1;
        if (op->out[k].must && c->in[place].given) {
            mr_view_copy(&out[k].view, &in[place].view);
            call.in[place].data = out[k].view.data;
        }
        call.out[k] = out[k].view;
    }
    mr_facts facts = mr_cpu_facts("cpu", isa, threads);
    mr_status st = op->cpu.prepare ? op->cpu.prepare(&call, &facts, &call.state) : MR_OK;
    if (st == MR_OK) {
        size_t bytes = op->cpu.workspace ? op->cpu.workspace(&call, &facts) : 0;
        call.workspace = bytes ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
        CHECK_OK(mr_kernel_run(&op->cpu, isa)(&call));
        free(call.workspace);
        if (op->cpu.release)
            op->cpu.release(call.state);
    }
    for (int i = 0; i < ctx.n_in; i++)
        buf_free(&in[i]);
    return st == MR_OK;
}

static void check_case(const op_case *c)
{
    static const int teams[] = {1, 2, 5};
    double *values[MR_MAX_IN] = {0};
    case_seed = mr_hash64(c->text, strlen(c->text));
    for (int i = 0; i < mr_op_n_in(c->op); i++)
        if (c->in[i].given)
            values[i] = case_values(&c->in[i]);
    for (int isa = 0; isa <= mr_isa(); isa++) {
        buf first[MR_MAX_OUT] = {0};
        for (size_t t = 0; t < MR_COUNT(teams); t++) {
            buf out[MR_MAX_OUT] = {0};
            int n = 0;
            bool served = mr_kernel_run(&c->op->cpu, isa) && run(c, values, isa, teams[t], out, &n);
            for (int k = 0; k < n && served; k++) {
                if (t == 0 || !out[k].mem)
                    continue;
                bool same = memcmp(out[k].mem, first[k].mem, out[k].bytes) == 0;
                if (!same)
                    printf("%s \"%s\" [%s]: output %s differs between 1 and %d threads\n",
                           c->op->name, c->text, mr_isa_name(isa), c->op->out[k].name, teams[t]);
                CHECK(same);
            }
            for (int k = 0; k < n; k++) {
                if (t == 0)
                    first[k] = out[k];
                else
                    buf_free(&out[k]);
            }
        }
        for (int k = 0; k < MR_MAX_OUT; k++)
            buf_free(&first[k]);
    }
    for (int i = 0; i < MR_MAX_IN; i++)
        free(values[i]);
}

int main(void)
{
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        for (const char *const *text = op->cases; text && *text && !exempt(op->name); text++) {
            op_case c;
            CHECK(case_parse(op, *text, &c));
            check_case(&c);
        }
    }
    return check_done();
}
