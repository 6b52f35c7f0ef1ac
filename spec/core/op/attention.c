/* op/attention: what no oracle comparison shows: samples without keys, keys past the end that are
 * not numbers, sequences that meet several tiles, in every form (short, tiled, AMX). */
#include "check.h"
#include "cpu/cpu.h"
#include "moonreel/op.h"

#include <stdlib.h>

enum { B = 2, H = 2, D = 24 };
typedef struct set {
    int64_t N, M;
    mr_dtype dtype;
    void *q, *k, *v, *o, *dq, *dk, *dv;
    float *lse;
} set;

static void *room(int64_t n, mr_dtype t, float from)
{
    size_t w = mr_dtype_bytes(t);
    char *p = aligned_alloc(64, ((size_t)n * w + 63) & ~(size_t)63);
    for (int64_t i = 0; i < n; i++) {
        float x = from * (float)((i * 37) % 19 - 9) / 9.0f;
        if (t == MR_BF16)
            ((uint16_t *)(void *)p)[i] = mr_f32_to_bf16(x);
        else
            ((float *)(void *)p)[i] = x;
    }
    return p;
}
static float at(const void *p, int64_t i, mr_dtype t)
{
    return t == MR_BF16 ? mr_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
static void put(void *p, int64_t i, float x, mr_dtype t)
{
    if (t == MR_BF16)
        ((uint16_t *)p)[i] = mr_f32_to_bf16(x);
    else
        ((float *)p)[i] = x;
}

static void call_op(const char *name, int isa, mr_call *call)
{
    const mr_op *op = mr_op_find(name);
    mr_facts facts = {.device = "cpu", .threads = call->threads, .bf16 = isa == 2 && mr_cpu_bf16()};
    CHECK_OK(op->cpu.prepare(call, &facts, &call->state));
    size_t bytes = op->cpu.workspace(call, &facts);
    call->workspace = aligned_alloc(64, bytes);
    memset(call->workspace, 0xff, bytes); // NaN wherever scratch is read before it is written
    CHECK_OK(mr_op_cpu(op, isa)(call));
    free(call->workspace);
}

static void run(set *s, int isa, const int32_t *len)
{
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
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
        .in = {{s->q, q}, {s->k, k}, {s->v, k}, vl, {s->o, q}, {s->lse, lse}, {s->q, q}, none},
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
    run(&s, isa, len);
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
    run(&s, isa, NULL);
    double worst = 0;
    for (int64_t i = 0; i < nq; i++)
        worst = fmax(worst, fabs(at(s.o, i, t) - (double)(i % D)) / D);
    CHECK_NEAR(worst, 0, t == MR_BF16 ? 1e-2 : 1e-5);
    void *all[] = {s.q, s.k, s.v, s.o, s.dq, s.dk, s.dv, s.lse};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        free(all[i]);
}

int main(void)
{
    for (int isa = 0; isa <= mr_isa(); isa++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            mr_dtype t = bf16 ? MR_BF16 : MR_F32;
            check_form(5, 5, t, isa);
            check_form(33, 40, t, isa);
            check_form(70, 257, t, isa);
            check_form(200, 600, t, isa);
        }
    return check_done();
}
