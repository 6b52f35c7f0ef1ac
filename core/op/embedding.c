/* embedding: y[i] = sum over k of table[ids[i, k]]; id -1 adds nothing. The gradient adds rows of
 * dy to acc in f32, in the order of the ids. Each thread adds to its own range of table rows, so
 * the order does not depend on the number of threads. Licence: Apache-2.0 */
#include "op/define.h"

typedef struct job {
    const mr_call *call;
    const int32_t *ids;
    int64_t k, c, n, rows;
} job;

static job job_of(const mr_call *call, const mr_desc *table)
{
    const mr_desc *ids = &call->in[0].desc;
    int64_t k = ids->dim[ids->rank - 1], n = 1;
    // count rows without ids, too
    for (int i = 0; i < ids->rank - 1; i++)
        n *= ids->dim[i];
    return (job){call, call->in[0].data, k, table->dim[1], n, table->dim[0]};
}

static mr_status check_ids(const job *j)
{
    for (int64_t i = 0; i < j->n * j->k; i++)
        if (j->ids[i] < -1 || j->ids[i] >= j->rows)
            return mr_fail(MR_E_RANGE, "id %d, expected -1 (none) to %lld", j->ids[i],
                           (long long)j->rows - 1);
    return MR_OK;
}

VF_INLINE void look_up(const job *j, int64_t begin, int64_t end, mr_dtype t)
{
    for (int64_t i = begin; i < end; i++)
        for (int64_t c = 0; c < j->c; c += VF_LANES) {
            int64_t m = MR_MIN((int64_t)VF_LANES, j->c - c);
            vf total = vf_zero();
            for (int64_t k = 0; k < j->k; k++)
                if (j->ids[i * j->k + k] >= 0)
                    total += vf_ldx(j->call->in[1].data, j->ids[i * j->k + k] * j->c + c, 1, m, t);
            vf_stx(j->call->out[0].data, i * j->c + c, 1, total, m, t);
        }
}
static void look_up_part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    if (j->call->in[1].desc.dtype == MR_BF16)
        look_up(j, begin, end, MR_BF16);
    else
        look_up(j, begin, end, MR_F32);
}
MR_KERNEL(embedding)
{
    job j = job_of(call, &call->in[1].desc);
    MR_TRY(check_ids(&j));
    mr_cpu_for(j.n, MR_MAX(1, MR_LOOP_PIECE / MR_MAX(j.c * j.k, 1)), call->threads, look_up_part,
               &j);
    return MR_OK;
}

VF_INLINE void add_rows(const job *j, int64_t begin, int64_t end, mr_dtype t)
{
    float *acc = j->call->out[0].data;
    for (int64_t i = 0; i < j->n * j->k; i++) {
        int64_t row = j->ids[i];
        if (row < begin || row >= end)
            continue;
        for (int64_t c = 0; c < j->c; c += VF_LANES) {
            int64_t m = MR_MIN((int64_t)VF_LANES, j->c - c);
            vf_stx(acc, row * j->c + c, 1,
                   vf_ldx(acc, row * j->c + c, 1, m, MR_F32) +
                       vf_ldx(j->call->in[1].data, i / j->k * j->c + c, 1, m, t),
                   m, MR_F32);
        }
    }
}
static void add_rows_part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const job *j = user;
    if (j->call->in[1].desc.dtype == MR_BF16)
        add_rows(j, begin, end, MR_BF16);
    else
        add_rows(j, begin, end, MR_F32);
}
MR_KERNEL(embedding_grad)
{
    job j = job_of(call, &call->in[2].desc);
    MR_TRY(check_ids(&j));
    mr_cpu_for(j.rows, (j.rows + 15) / 16, call->threads, add_rows_part, &j);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const mr_desc *ids = c->in[0], *table = c->in[1];
    MR_TRY(mr_infer_rank(table, "table", 2));
    if (ids->rank < 1)
        return mr_fail(MR_E_SHAPE, "ids is a scalar, expected [..., K]");
    mr_desc y = *ids;
    y.dtype = table->dtype, y.dim[y.rank - 1] = table->dim[1];
    mr_infer_out_like(c, 0, &y);
    return MR_OK;
}
static mr_status grad_infer(mr_infer *c)
{
    const mr_desc *ids = c->in[0], *dy = c->in[1], *acc = c->in[2];
    MR_TRY(mr_infer_rank(acc, "acc", 2));
    if (ids->rank < 1)
        return mr_fail(MR_E_SHAPE, "ids is a scalar, expected [..., K]");
    mr_desc want = *ids;
    want.dtype = dy->dtype, want.dim[want.rank - 1] = acc->dim[1];
    MR_TRY(mr_infer_same_shape(dy, "dy", &want, "the value of embedding"));
    mr_infer_out_like(c, 0, acc);
    return MR_OK;
}
static mr_status grad(mr_grad *ctx)
{
    mr_ref acc;
    MR_TRY(mr_grad_acc(ctx, 1, &acc));
    MR_TRY(mr_grad_node(ctx, 1, "embedding_grad", ctx->in[0], ctx->dout[0], acc));
    return MR_OK;
}

static mr_status naive(const mr_call *call)
{
    job j = job_of(call, &call->in[1].desc);
    const double *table = call->in[1].data;
    double *y = call->out[0].data;
    MR_TRY(check_ids(&j));
    for (int64_t i = 0; i < j.n; i++)
        for (int64_t c = 0; c < j.c; c++) {
            y[i * j.c + c] = 0;
            for (int64_t k = 0; k < j.k; k++)
                if (j.ids[i * j.k + k] >= 0)
                    y[i * j.c + c] += table[j.ids[i * j.k + k] * j.c + c];
        }
    return MR_OK;
}
static mr_status grad_naive(const mr_call *call)
{
    job j = job_of(call, &call->in[2].desc);
    const double *dy = call->in[1].data, *acc = call->in[2].data;
    double *out = call->out[0].data;
    MR_TRY(check_ids(&j));
    for (int64_t e = 0; e < j.rows * j.c; e++)
        out[e] = acc[e];
    for (int64_t i = 0; i < j.n * j.k; i++)
        for (int64_t c = 0; c < j.c && j.ids[i] >= 0; c++)
            out[j.ids[i] * j.c + c] += dy[i / j.k * j.c + c];
    return MR_OK;
}
/* Only the rows of the table that ids names are read. */
static void cost(const mr_call *call, mr_cost *cost)
{
    double rows = (double)mr_desc_count(&call->in[0].desc);
    const mr_desc *table = call->in[2].desc.rank == 2 ? &call->in[2].desc : &call->in[1].desc;
    cost->flop = rows * (double)table->dim[1];
}

MR_OP(embedding) = {
    .name = "embedding",
    .doc = "Sum of the table's rows that the last dimension of ids names; -1 adds nothing.",
    .in = {{"ids", "[..., K] i32", MR_CONTIG, MR_NO_GRAD},
           {"table", "[R, C] f32|bf16", MR_CONTIG, 0}},
    .out = {{"y", "[..., C] like table", 0, false, MR_CONTIG}},
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(embedding)},
    .cases = MR_CASES("ids=[2,7,3] i32 -1..10 table=[11,24] f32",
                      "ids=[30,1] i32 -1..4 table=[5,33] f32",
                      "ids=[2,9,2] i32 0..10 table=[11,65] bf16",
                      // rows without ids
                      "ids=[3,0] i32 table=[7,5] f32"),
};
MR_OP(embedding_grad) = {
    .name = "embedding_grad",
    .doc = "Gradient of embedding for the table: adds the rows of dy to acc.",
    .in = {{"ids", "[..., K] i32", MR_CONTIG, 0},
           {"dy", "[..., C] f32|bf16", MR_CONTIG, 0},
           {"acc", "[R, C] f32", MR_CONTIG, 0}},
    .out = {{"acc", "like acc", 3, true, MR_CONTIG}},
    .infer = grad_infer,
    .cost = cost,
    .naive = grad_naive,
    .cpu = {.run = MR_CPU(embedding_grad)},
    .hidden = true,
    .cases = MR_CASES("ids=[2,7,3] i32 -1..10 dy=[2,7,24] f32 acc=[11,24] f32",
                      "ids=[40,2] i32 -1..4 dy=[40,33] bf16 acc=[5,33] f32",
                      "ids=[1500,3] i32 -1..6 dy=[1500,33] bf16 acc=[7,33] f32"),
};
