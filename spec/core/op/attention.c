/* op/attention, in every form (short, tiled, AMX): forward and gradients against sums in f64,
 * samples without keys, keys past the end that are not numbers.
 * Covers: core/op/attention_lanes.c core/op/attention_tile.c */
#include "attentioncase.h"
#include "cpu/cpu.h"

static void call_op(const char *name, int isa, mr_call *call)
{
    const mr_op *op = mr_op_find(name);
    mr_facts facts = mr_cpu_facts("cpu", isa, call->threads);
    CHECK_OK(op->cpu.prepare(call, &facts, &call->state));
    size_t bytes = op->cpu.workspace(call, &facts);
    call->workspace = aligned_alloc(64, bytes);
    memset(call->workspace, 0xff, bytes); // NaN wherever scratch is read before it is written
    CHECK_OK(mr_op_cpu(op, isa)(call));
    free(call->workspace);
}

/* scale 0: the row's default */
static void run(set *s, int isa, const int32_t *len, double scale)
{
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    CHECK_OK(mr_op_attrs(mr_op_find("attention"), MR_ATTRS({"scale", .f = scale}), attr));
    mr_desc q = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->N, H, D}),
            k = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->M, H, D});
    mr_desc lse = mr_desc_dense(MR_F32, 4, (int64_t[]){B, 1, H, s->N}),
            lens = mr_desc_dense(MR_I32, 1, (int64_t[]){B});
    mr_view none = {.desc.rank = -1}, vl = len ? (mr_view){(void *)(uintptr_t)len, lens} : none;
    mr_call fwd = {.in = {{s->q, q}, {s->k, k}, {s->v, k}, vl},
                   .out = {{s->o, q}, {s->lse, lse}},
                   .n_in = 4,
                   .n_out = 2,
                   .attr = attr,
                   .threads = 2};
    call_op("attention", isa, &fwd);
    mr_call bwd = {
        .in = {{s->q, q}, {s->k, k}, {s->v, k}, vl, {s->o, q}, {s->lse, lse}, {s->dy, q}, none},
        .out = {{s->dq, q}, {s->dk, k}, {s->dv, k}},
        .n_in = 8,
        .n_out = 3,
        .attr = attr,
        .threads = 2};
    call_op("attention_grad", isa, &bwd);
}

static void check_form(int64_t N, int64_t M, mr_dtype t, int isa)
{
    int64_t nq = B * N * H * D, nk = B * M * H * D, row = H * D;
    set s = {N,
             M,
             t,
             room(nq, t, 1),
             room(nk, t, 1),
             room(nk, t, 1),
             room(nq, t, 1),
             room(nq, t, 0),
             room(nq, t, 0),
             room(nk, t, 0),
             room(nk, t, 0),
             room(B * H * N, MR_F32, 0)};
    // sample 0 has no keys, sample 1 some; what lies past them is no number
    int32_t len[B] = {0, (int32_t)(M - 1)};
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = len[b] * row; i < M * row; i++)
            put(s.k, b * M * row + i, NAN, t), put(s.v, b * M * row + i, INFINITY, t);
    run(&s, isa, len, 0);
    int bad = 0;
    for (int64_t i = 0; i < nq; i++)
        bad += !isfinite(at(s.o, i, t)) || !isfinite(at(s.dq, i, t));
    for (int64_t i = 0; i < nk; i++)
        bad += !isfinite(at(s.dk, i, t)) || !isfinite(at(s.dv, i, t));
    CHECK_INT(bad, 0);
    for (int64_t i = 0; i < nq / B; i++)
        bad += at(s.o, i, t) != 0 || at(s.dq, i, t) != 0;
    for (int64_t i = 0; i < nk / B; i++)
        bad += at(s.dk, i, t) != 0 || at(s.dv, i, t) != 0;
    for (int64_t i = nk - row; i < nk; i++)
        bad += at(s.dk, i, t) != 0 || at(s.dv, i, t) != 0;
    CHECK_INT(bad, 0);
    for (int64_t i = 0; i < H * N; i++)
        CHECK(s.lse[i] == -INFINITY);

    // equal values at every key: the output is that value, whatever the scores and tiles
    for (int64_t i = 0; i < nk; i++)
        put(s.k, i, (float)(i % 23) - 11, t), put(s.v, i, (float)(i % D), t);
    run(&s, isa, NULL, 0);
    double worst = 0;
    for (int64_t i = 0; i < nq; i++)
        worst = fmax(worst, fabs(at(s.o, i, t) - (double)(i % D)) / D);
    CHECK_NEAR(worst, 0, t == MR_BF16 ? 1e-2 : 1e-5);
    set_free(&s);
}

int main(void)
{
    printf("AMX %s run here\n", mr_cpu_amx() ? "is" : "is not");
    for (int isa = 0; isa <= mr_isa(); isa++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            mr_dtype t = bf16 ? MR_BF16 : MR_F32;
            check_form(5, 5, t, isa);
            check_form(33, 40, t, isa);
            check_form(70, 257, t, isa);
            check_form(200, 600, t, isa);
            check_all_values(run, isa, mr_isa_name(isa), t);
        }
    return check_done();
}
