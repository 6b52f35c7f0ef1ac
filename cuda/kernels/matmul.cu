/* matmul: y = op(a) op(b) for equal leading dimensions; op transposes the last two dimensions on
 * request. Runs as one batched product of cuda/gemm if the leading dimensions join into one step,
 * otherwise as one product per matrix. An operand without a dense dimension is copied to the
 * workspace first. Sums are f32. One algorithm per shape makes runs reproducible. */
#include "cuda/kernels/gather.cuh"

struct attr { // as in core/op/matmul.c
    bool ta, tb;
};

// join the leading dimensions into one step (0 for a single matrix); false: not possible
static bool joined(const mr_desc *d, int64_t *n, int64_t *step)
{
    *n = 1;
    *step = 0;
    for (int i = 0; i < d->rank - 2; i++) {
        if (d->dim[i] == 1)
            continue;
        if (*n > 1 && *step != d->stride[i] * d->dim[i])
            return false;
        *n *= d->dim[i];
        *step = d->stride[i];
    }
    return true;
}

// rows and columns of op(v) as steps of a product
static void steps_of(const mr_desc *d, bool transposed, int64_t *row, int64_t *col)
{
    *row = d->stride[d->rank - (transposed ? 1 : 2)];
    *col = d->stride[d->rank - (transposed ? 2 : 1)];
}

struct Plan {
    mr_product_spec spec;
    mr_view in[2];
    bool copied[2];
    int64_t loops; // number of products: 1, or one per matrix
    size_t bytes;
};

static void set_steps(Plan *p, const attr *a)
{
    mr_product_spec &s = p->spec;
    steps_of(&p->in[0].desc, a->ta, &s.a_row, &s.a_col);
    steps_of(&p->in[1].desc, a->tb, &s.b_row, &s.b_col);
}

static Plan plan_of(const mr_call *call)
{
    const attr *a = (const attr *)call->attr;
    const mr_desc *x = &call->in[0].desc, *y = &call->out[0].desc;
    Aside aside = {(char *)call->workspace, 0};
    Plan p = {};
    mr_product_spec &s = p.spec;
    s.batch = 1;
    s.m = y->dim[y->rank - 2];
    s.n = y->dim[y->rank - 1];
    s.k = x->dim[x->rank - (a->ta ? 2 : 1)];
    s.c_row = s.n;
    s.c_batch = s.m * s.n;
    s.in = x->dtype;
    s.out = y->dtype;
    for (int i = 0; i < 2; i++)
        p.in[i] = call->in[i];
    set_steps(&p, a);
    for (int i = 0; i < 2; i++) {
        // could this operand be used unchanged if the other were dense?
        mr_product_spec alone = s;
        (i ? alone.a_row : alone.b_row) = i ? s.k : s.n;
        (i ? alone.a_col : alone.b_col) = 1;
        p.copied[i] = !mr_cuda_product_fits(&alone);
        if (p.copied[i])
            p.in[i] = aside.dense(&call->in[i]);
    }
    set_steps(&p, a);
    p.bytes = aside.bytes;
    p.loops = 1;
    int64_t n, m;
    if (joined(&p.in[0].desc, &n, &s.a_batch) && joined(&p.in[1].desc, &m, &s.b_batch)) {
        s.batch = n;
    } else {
        s.a_batch = s.b_batch = 0;
        p.loops = mr_desc_count(y) / (s.m * s.n > 0 ? s.m * s.n : 1);
    }
    return p;
}

static size_t workspace(const mr_call *call, const mr_facts *)
{
    Plan p = plan_of(call);
    return p.bytes + mr_cuda_product_workspace(&p.spec);
}

// address of matrix i
static char *matrix(const mr_view *v, int64_t i)
{
    int64_t at = 0;
    for (int k = v->desc.rank - 3; k >= 0; k--) {
        at += i % v->desc.dim[k] * v->desc.stride[k];
        i /= v->desc.dim[k];
    }
    return (char *)v->data + at * (int64_t)mr_dtype_bytes(v->desc.dtype);
}

MR_CUDA_KERNEL(matmul, workspace)
{
    Plan p = plan_of(call);
    for (int i = 0; i < 2; i++)
        if (p.copied[i])
            MR_TRY(copy_view(&p.in[i], &call->in[i], stream));
    for (int64_t i = 0; i < p.loops; i++)
        MR_TRY(mr_cuda_product_run(&p.spec, NULL, matrix(&p.in[0], i), matrix(&p.in[1], i), NULL,
                                   matrix(&call->out[0], i), (char *)call->workspace + p.bytes,
                                   stream));
    return MR_OK;
}
