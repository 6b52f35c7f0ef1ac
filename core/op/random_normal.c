/* random_normal: standard normal numbers determined by (seed, purpose, sample key, epoch): equal on
 * every device, for any number of ranks and at every batch position. Ref: Salmon et al. 2011
 * (Philox).
 * Licence: Apache-2.0 */
#include "moonreel/random_inline.h"
#include "op/define.h"

typedef struct attrs {
    int64_t purpose;
    mr_ints dims;
} attrs;
typedef struct job {
    const mr_call *call;
    int64_t each;
} job;
enum { PIECE = 4096 };

static void pieces(void *user, int64_t begin, int64_t end, int worker)
{
    const job *j = user;
    const attrs *a = j->call->attr;
    int64_t per_sample = (j->each + PIECE - 1) / PIECE;
    uint64_t key = MR_MIX((uint64_t) * (const int64_t *)j->call->in[0].data, (uint64_t)a->purpose);
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / per_sample, first = i % per_sample * PIECE;
        mr_fill_normal_inline((float *)j->call->out[0].data + b * j->each + first,
                              MR_MIN(PIECE, j->each - first), key,
                              (uint64_t)((const int64_t *)j->call->in[1].data)[b],
                              (uint32_t) * (const int32_t *)j->call->in[2].data, (uint64_t)first);
    }
}

MR_KERNEL(random_normal)
{
    int64_t b = call->in[1].desc.dim[0], n = mr_desc_count(&call->out[0].desc);
    job j = {call, b ? n / b : 0};
    mr_cpu_for(b * ((j.each + PIECE - 1) / PIECE), 1, call->threads, pieces, &j);
    return MR_OK;
}

static mr_status naive(const mr_call *call)
{
    const attrs *a = call->attr;
    int64_t b = call->in[1].desc.dim[0], n = mr_desc_count(&call->out[0].desc) / MR_MAX(b, 1);
    for (int64_t i = 0; i < b; i++)
        for (int64_t e = 0; e < n; e++)
            ((double *)call->out[0].data)[i * n + e] = mr_random_normal(
                (uint64_t) * (const int64_t *)call->in[0].data, (uint64_t)a->purpose,
                (uint64_t)((const int64_t *)call->in[1].data)[i],
                (uint32_t) * (const int32_t *)call->in[2].data, (uint64_t)e);
    return MR_OK;
}

static mr_status infer(mr_infer *c)
{
    const attrs *a = c->attr;
    int64_t dim[MR_MAX_RANK] = {0};
    MR_TRY(mr_infer_rank(c->in[1], "keys", 1));
    if (mr_desc_count(c->in[0]) != 1 || mr_desc_count(c->in[2]) != 1)
        return mr_fail(MR_E_SHAPE, "expected seed and epoch with one number each");
    if (a->dims.n >= MR_MAX_RANK)
        return mr_fail(MR_E_SHAPE, "dims has %lld numbers; expected at most %d",
                       (long long)a->dims.n, MR_MAX_RANK - 1);
    dim[0] = c->in[1]->dim[0];
    for (int64_t i = 0; i < a->dims.n; i++)
        dim[i + 1] = a->dims.v[i];
    mr_infer_out(c, 0, MR_F32, (int)a->dims.n + 1, dim);
    return MR_OK;
}

static void cost(const mr_call *call, mr_cost *cost)
{
    cost->flop = 60.0 * (double)mr_desc_count(&call->out[0].desc);
}

MR_OP(random_normal) = {
    .name = "random_normal",
    .doc = "Standard normal numbers per sample, a pure function of seed, purpose, sample key and "
           "epoch.",
    .ref = "Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3; Box & Muller 1958",
    .in = {{"seed", "[1] i64", MR_CONTIG, MR_NO_GRAD},
           {"keys", "[B] i64", MR_CONTIG, MR_NO_GRAD},
           {"epoch", "[1] i32", MR_CONTIG, MR_NO_GRAD}},
    .out = {{"y", "[B, dims] f32", 0, false, MR_CONTIG}},
    .attr = {{"purpose", MR_ATTR_I64, offsetof(attrs, purpose), 0, 0, 0, false,
              "purpose of the numbers; each purpose has its own stream"},
             {"dims", MR_ATTR_INTS, offsetof(attrs, dims), 0, 0, 0, true, "shape of one sample"}},
    .infer = infer,
    .cost = cost,
    .naive = naive,
    .cpu = {.run = MR_CPU(random_normal)},
    .cases = MR_CASES(
        "seed=[1] i64 0..99 keys=[3] i64 0..100000 epoch=[1] i32 0..5 purpose=7 dims={4,3,5,7}",
        "seed=[1] i64 0..99 keys=[1] i64 0..100000 epoch=[1] i32 0..5 dims={9001}"),
};
