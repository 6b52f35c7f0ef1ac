/* exec/eager: every row over all its cases as a prompt call, on the cpu and the shadow device: equal
 * bit for bit, nothing read or left unwritten; programs are kept by shape. */
#include "opcase.h"
#include "moonreel/exec.h"

static mr_tensor *tensor_of(const case_arg *a)
{
    double *values = case_values(a);
    mr_tensor *t = NULL;
    CHECK_OK(mr_tensor_new(a->desc.dtype, a->desc.rank, a->desc.dim, &t));
    mr_view from = dense_f64(&a->desc, values);
    CHECK_OK(mr_view_copy(mr_tensor_view(t), &from));
    free(values);
    return t;
}

static int compared, cases;

static void one_case(mr_device *cpu, mr_device *shadow, const op_case *c, const char *text)
{
    mr_tensor *in[MR_MAX_IN] = {0}, *a[MR_MAX_OUT] = {0}, *b[MR_MAX_OUT] = {0};
    int n = mr_op_n_in(c->op);
    for (int i = 0; i < n; i++)
        if (c->in[i].given) in[i] = tensor_of(&c->in[i]);
    mr_status sa = mr_eager(cpu, c->op->name, c->attr, c->n_attr, in, n, a);
    CHECK_OK(sa);
    mr_status sb = mr_eager(shadow, c->op->name, c->attr, c->n_attr, in, n, b);
    CHECK_OK(sb);
    if (sa != MR_OK || sb != MR_OK) printf("  %s: %s\n", c->op->name, text);
    for (int k = 0; sa == MR_OK && sb == MR_OK && k < mr_op_n_out(c->op); k++) {
        CHECK_INT(a[k] != NULL, b[k] != NULL);
        if (!a[k] || !b[k]) continue;
        const mr_view *va = mr_tensor_view(a[k]), *vb = mr_tensor_view(b[k]);
        bool equal = mr_desc_same_shape(&va->desc, &vb->desc) && va->desc.dtype == vb->desc.dtype &&
                     memcmp(va->data, vb->data, mr_desc_span_bytes(&va->desc)) == 0;
        CHECK(equal);
        if (!equal) printf("  %s: %s, output %s\n", c->op->name, text, c->op->out[k].name);
        compared++;
    }
    for (int k = 0; k < MR_MAX_OUT; k++) mr_tensor_unref(a[k]), mr_tensor_unref(b[k]);
    for (int i = 0; i < n; i++) mr_tensor_unref(in[i]);
    cases++;
}

static void all_rows(mr_device *cpu, mr_device *shadow, int argc, char **argv)
{
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        bool wanted = argc == 1;
        for (int a = 1; a < argc; a++) wanted |= strcmp(argv[a], op->name) == 0;
        for (int k = 0; wanted && op->cases && op->cases[k]; k++) {
            op_case c;
            if (case_parse(op, op->cases[k], &c)) one_case(cpu, shadow, &c, op->cases[k]);
        }
    }
    CHECK(compared >= cases);
    printf("%d outputs of %d cases compared\n", compared, cases);
}

static float first_of(mr_tensor *t) { return ((float *)mr_tensor_view(t)->data)[0]; }

static void kept_programs(mr_device *dev, int run_allocations)
{
    mr_tensor *x = NULL, *y[MR_MAX_OUT];
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){4}, &x));
    ((float *)mr_tensor_view(x)->data)[0] = 3;
    // another scale is another program, whichever was used last
    for (int round = 0; round < 3; round++) {
        for (int scale = 1; scale <= 2; scale++) {
            CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = scale}), &x, 1, y));
            CHECK(first_of(y[0]) == (float)(3 * scale));
            mr_tensor_unref(y[0]);
        }
    }
    // the second call of a shape makes its result and nothing else
    CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 2}), &x, 1, y));
    int64_t before = mr_alloc_count();
    mr_tensor_unref(y[0]);
    CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 2}), &x, 1, y));
    int64_t one_tensor = mr_alloc_count();
    mr_tensor *same = NULL;
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){4}, &same));
    CHECK_INT(one_tensor - before, mr_alloc_count() - one_tensor + run_allocations);
    mr_tensor_unref(same), mr_tensor_unref(y[0]);
    // many shapes: old ones give way, answers stay right
    for (int64_t n = 1; n <= 150; n++) {
        mr_tensor *v = NULL;
        CHECK_OK(mr_tensor_new(MR_F32, 1, &n, &v));
        for (int64_t i = 0; i < n; i++) ((float *)mr_tensor_view(v)->data)[i] = (float)n;
        CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"shift", .f = 1}), &v, 1, y));
        CHECK(first_of(y[0]) == (float)(n + 1));
        mr_tensor_unref(y[0]), mr_tensor_unref(v);
    }
    mr_tensor_unref(x);
}

static void refusals(mr_device *dev)
{
    mr_tensor *x = NULL, *z = NULL, *y[MR_MAX_OUT];
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){4}, &x));
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){5}, &z));
    CHECK_FAILS(mr_eager(dev, "afine", MR_NO_ATTRS, &x, 1, y), MR_E_USAGE, "did you mean 'affine'");
    CHECK_FAILS(mr_eager(dev, "affine", MR_ATTRS({"scal", .f = 2}), &x, 1, y), MR_E_USAGE, "scal");
    CHECK_FAILS(mr_eager(dev, "add", MR_NO_ATTRS, (mr_tensor *[]){x, z}, 2, y), MR_E_SHAPE, "[5] f32");
    // every allocation of a first call fails once; the device is usable afterwards
    int failures = 0;
    for (int64_t n = 1; n < 200; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 100 + (double)n}), &x, 1, y);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            mr_tensor_unref(y[0]);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 5 && failures < 199);
    CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 2}), &x, 1, y));
    mr_tensor_unref(y[0]), mr_tensor_unref(x), mr_tensor_unref(z);
}

int main(int argc, char **argv)
{
    mr_device *cpu, *shadow;
    if (mr_device_open("cpu", 2, &cpu) != MR_OK || mr_device_open("shadow", 2, &shadow) != MR_OK) return 1;
    all_rows(cpu, shadow, argc, argv);
    kept_programs(cpu, 0);
    kept_programs(shadow, 1);    // its queue entry
    refusals(cpu);
    refusals(shadow);
    mr_device_close(cpu);
    mr_device_close(shadow);
    return check_done();
}
