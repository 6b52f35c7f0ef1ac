/* exec/ops: each op over its cases, run eagerly on the CPU and on the shadow device: the same bits.
 * The shadow device poisons, guards and faults memory, so this also proves that kernels read only
 * what they declare. Usage: ops [NAME...] for these ops only. */
#include "opcase.h"
#include "moonreel/exec.h"

enum { BIG = 1 << 20 }; /* elements; larger cases are left to op/contract */

static bool small(const op_case *c)
{
    int64_t n = 0;
    for (int i = 0; i < MR_MAX_IN; i++)
        if (c->in[i].given)
            n += mr_desc_count(&c->in[i].desc);
    return n < BIG;
}

static void check_case(const op_case *c, mr_device *const *devices)
{
    int n_in = mr_op_n_in(c->op), n_out = mr_op_n_out(c->op);
    mr_tensor *out[2][MR_MAX_OUT] = {{0}};
    double *values[MR_MAX_IN] = {0};
    for (int i = 0; i < n_in; i++)
        if (c->in[i].given)
            values[i] = case_values(&c->in[i]);
    mr_status st[2];
    for (int d = 0; d < 2; d++) {
        // accumulators are written in place: each device gets inputs of its own
        mr_tensor *in[MR_MAX_IN] = {0};
        for (int i = 0; i < n_in; i++) {
            if (!c->in[i].given)
                continue;
            const mr_desc *want = &c->in[i].desc;
            CHECK_OK(mr_tensor_new(want->dtype, want->rank, want->dim, &in[i]));
            mr_view from = dense_f64(want, values[i]);
            CHECK_OK(mr_view_copy(mr_tensor_view(in[i]), &from));
        }
        st[d] = mr_eager(devices[d], c->op->name, c->attr, c->n_attr, in, n_in, out[d]);
        CHECK_OK(st[d]);
        for (int i = 0; i < n_in; i++)
            if (in[i])
                mr_tensor_unref(in[i]);
    }
    for (int k = 0; k < n_out; k++) {
        if (st[0] == MR_OK && st[1] == MR_OK && out[0][k] && out[1][k]) {
            const mr_view *a = mr_tensor_view(out[0][k]), *b = mr_tensor_view(out[1][k]);
            size_t bytes = mr_desc_span_bytes(&a->desc);
            bool same =
                bytes == mr_desc_span_bytes(&b->desc) && memcmp(a->data, b->data, bytes) == 0;
            if (!check_note(same))
                printf("%s \"%s\": output %s differs between cpu and shadow\n", c->op->name,
                       c->text, c->op->out[k].name);
        }
        for (int d = 0; d < 2; d++)
            if (out[d][k])
                mr_tensor_unref(out[d][k]);
    }
    for (int i = 0; i < n_in; i++)
        free(values[i]);
}

int main(int argc, char **argv)
{
    mr_device *devices[2];
    CHECK_OK(mr_device_open("cpu", 2, &devices[0]));
    CHECK_OK(mr_device_open("shadow", 2, &devices[1]));
    int rows = 0, cases = 0;
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        bool wanted = argc == 1;
        for (int a = 1; a < argc; a++)
            wanted |= strcmp(argv[a], op->name) == 0;
        for (int k = 0; wanted && op->cases[k]; k++) {
            op_case c;
            case_seed = mr_name_word(op->cases[k]);
            CHECK(case_parse(op, op->cases[k], &c));
            if (small(&c))
                check_case(&c, devices), cases++;
        }
        rows += wanted;
    }
    CHECK(rows > 0 && cases >= rows);
    printf("%d rows, %d cases, seeds from the case texts\n", rows, cases);
    for (int d = 0; d < 2; d++)
        mr_device_close(devices[d]);
    return check_done();
}
