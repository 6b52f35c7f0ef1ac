/* op/attention, in each form (short, tiled, AMX, vectors of bf16, f64): forward and gradients
 * compared with sums in f64, samples without keys, keys past the end that are nan.
 * Covers: core/op/attention_lanes.c core/op/attention_naive.c core/op/attention_tasks.c
 * core/op/attention_tile.c core/op/attention_dots.c core/cpu/dots.h */
#include "attentioncase.h"
#include "cpu/cpu.h"

/* Hides facts of the processor from planning, so that each form for bf16 that it has is tested. */
static enum { NOTHING, TILES_OF_AMX, ALL_BF16 } withheld;

static mr_facts facts_of(int isa, int threads)
{
    mr_facts facts = mr_cpu_facts("cpu", isa, threads);
    facts.amx = facts.amx && withheld == NOTHING;
    facts.bf16 = facts.bf16 && withheld != ALL_BF16;
    facts.bf16_by_f32 = facts.bf16_by_f32 && withheld == NOTHING;
    return facts;
}

static void call_op(const char *name, int isa, mr_call *call)
{
    const mr_op *op = mr_op_find(name);
    mr_facts facts = facts_of(isa, call->threads);
    CHECK_OK(op->cpu.prepare(call, &facts, &call->state));
    size_t bytes = op->cpu.workspace(call, &facts);
    call->workspace = aligned_alloc(64, bytes);
    memset(call->workspace, 0xff, bytes); // NaN wherever scratch is read before it is written
    CHECK_OK(mr_kernel_run(&op->cpu, isa)(call));
    free(call->workspace);
}

enum { NAIVE = -1 }; // in the place of an instruction set: the naive op

static void call_naive(const char *name, mr_call *call)
{
    const mr_op *op = mr_op_find(name);
    call->workspace = malloc(mr_op_naive_workspace(op, call));
    CHECK_OK(mr_op_run_naive(op, call));
    free(call->workspace);
}

static void run(set *s, int isa, const how_case *how)
{
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    CHECK_OK(mr_op_attrs(
        mr_op_find("attention"),
        MR_ATTRS({"scale", .f = how->scale}, {"frame", .i = how->frame}, {"text", .i = how->text}),
        attr));
    mr_call fwd, bwd;
    calls_of(s, how, attr, &fwd, &bwd);
    if (isa == NAIVE) {
        call_naive("attention", &fwd);
        call_naive("attention_grad", &bwd);
        return;
    }
    call_op("attention", isa, &fwd);
    call_op("attention_grad", isa, &bwd);
}

static void check_form(int64_t N, int64_t M, mr_dtype t, int isa)
{
    int64_t nq = B * N * H * D, nk = B * M * H * D, no = nq / D * E, nv = nk / D * E;
    set s = set_of(N, M, t, 1);
    // sample 0 has no keys, sample 1 some; memory past them is nan
    int32_t len[B] = {0, (int32_t)(M - 1)};
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = len[b]; j < M; j++) {
            for (int64_t i = 0; i < H * D; i++)
                put(s.k, (b * M + j) * H * D + i, NAN, t);
            for (int64_t i = 0; i < H * E; i++)
                put(s.v, (b * M + j) * H * E + i, INFINITY, t);
        }
    run(&s, isa, &(how_case){.len = len});
    int bad = 0;
    for (int64_t i = 0; i < no; i++)
        bad += !isfinite(at(s.o, i, t)) || (i < no / B && at(s.o, i, t) != 0);
    for (int64_t i = 0; i < nq; i++)
        bad += !isfinite(at(s.dq, i, t)) || (i < nq / B && at(s.dq, i, t) != 0);
    // gradients of keys that do not exist are 0
    for (int64_t i = 0; i < nk; i++)
        bad +=
            !isfinite(at(s.dk, i, t)) || ((i < nk / B || i >= nk - H * D) && at(s.dk, i, t) != 0);
    for (int64_t i = 0; i < nv; i++)
        bad +=
            !isfinite(at(s.dv, i, t)) || ((i < nv / B || i >= nv - H * E) && at(s.dv, i, t) != 0);
    CHECK_INT(bad, 0);
    for (int64_t i = 0; i < H * N; i++)
        CHECK(s.lse[i] == -INFINITY);

    // equal values at each key: the output is that value, whatever the scores and tiles
    for (int64_t i = 0; i < nk; i++)
        put(s.k, i, (float)(i % 23) - 11, t);
    for (int64_t i = 0; i < nv; i++)
        put(s.v, i, (float)(i % E), t);
    run(&s, isa, &(how_case){0});
    double worst = 0;
    for (int64_t i = 0; i < no; i++)
        worst = fmax(worst, fabs(at(s.o, i, t) - (double)(i % E)) / E);
    CHECK_NEAR(worst, 0, t == MR_BF16 ? 1e-2 : 1e-5);
    set_free(&s);
}

/* One heavy key before many light ones that are equal: the rounding error of each is the same, and
 * adds up unless they are summed separately. */
static void check_alike(int isa)
{
    enum { N = 70, M = 600 };
    // no query, so that only the bias matters
    set s = set_of(N, M, MR_F32, 0);
    for (int64_t i = 0; i < H * N; i++)
        s.bias[i * M] = 5;
    for (int64_t i = 0; i < (int64_t)B * M * H * E; i++)
        put(s.v, i, i / (H * E) % M ? 0.1f : 2, MR_F32);
    run(&s, isa, &(how_case){.bias = true});
    double light = exp(-5), want = (2 + (M - 1) * light * 0.1) / (1 + (M - 1) * light), worst = 0;
    for (int64_t i = 0; i < (int64_t)B * N * H * E; i++)
        worst = fmax(worst, fabs(at(s.o, i, MR_F32) / want - 1));
    CHECK_NEAR(worst, 0, 1e-6);
    set_free(&s);
}

static void check_type(mr_dtype t, int isa)
{
    check_form(5, 5, t, isa);
    check_form(33, 40, t, isa);
    check_form(70, 257, t, isa);
    check_form(200, 600, t, isa);
    check_all_values(run, isa, mr_isa_name(isa), t, true);
}

int main(void)
{
    printf("AMX %s run here\n", mr_cpu_amx() ? "is" : "is not");
    for (int isa = 0; isa <= mr_isa(); isa++)
        check_alike(isa);
    check_broken(run, NAIVE, "f64", 33, 40, MR_F32, false);
    check_broken(run, NAIVE, "f64", 33, 40, MR_F32, true);
    for (int isa = 0; isa <= mr_isa(); isa++) {
        check_type(MR_F32, isa);
        check_type(MR_BF16, isa);
        mr_facts facts = mr_cpu_facts("cpu", isa, 1);
        withheld = TILES_OF_AMX;
        if (facts.amx || facts.bf16_by_f32)
            check_type(MR_BF16, isa);
        withheld = ALL_BF16;
        if (facts.bf16)
            check_type(MR_BF16, isa);
        withheld = NOTHING;
    }
    return check_done();
}
