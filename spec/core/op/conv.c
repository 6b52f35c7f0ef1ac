/* op/conv: convolutions with fewer products (core/cpu/isa/winograd.c) over more squares than are
 * processed together: outputs compared with f64 sums, bits of any team, memory within the plan.
 * Covers: core/cpu/conv.c core/cpu/isa/winograd.c */
#include "productcase.h"
#include "cpu/conv.h"
#include "cpu/winograd.h"

static mr_conv_spec shape(mr_conv_kind kind, mr_dtype type, int64_t channels, int64_t height,
                          int64_t width)
{
    return (mr_conv_spec){.kind = kind,
                          .batch = 2,
                          .in = {2, height, width},
                          .out = {4, height, width - 1},
                          .channels = channels,
                          .filters = channels,
                          .groups = 1,
                          .kernel = {2, 3, 3},
                          .stride = {1, 1, 1},
                          .before = {3, 1, 1},
                          .after = {0, 1, 0},
                          .type = type,
                          .bias = kind == MR_CONV_FORWARD};
}

/* Element [b, t, h, w, c] of the output, summed over what it reads. */
static double wanted(const mr_conv_spec *s, const void *from, const void *w, const void *bias,
                     const int64_t *at)
{
    bool data = s->kind == MR_CONV_DATA;
    const int64_t *read = data ? s->out : s->in;
    int64_t C = s->channels, sign = data ? -1 : 1;
    double sum = data ? 0 : get(bias, at[4], s->type);
    for (int64_t k = 0; k < 18; k++) {
        int64_t taps[] = {k / 9, k / 3 % 3, k % 3}, place[3];
        bool inside = true;
        for (int i = 0; i < 3; i++) {
            place[i] = at[1 + i] + sign * (taps[i] - s->before[i]);
            inside &= place[i] >= 0 && place[i] < read[i];
        }
        int64_t cell = ((at[0] * read[0] + place[0]) * read[1] + place[1]) * read[2] + place[2];
        for (int64_t c = 0; inside && c < C; c++)
            sum += get(from, cell * C + c, s->type) *
                   get(w, (data ? c * C + at[4] : at[4] * C + c) * 18 + k, s->type);
    }
    return sum;
}

static void run(const mr_conv_spec *s, const char *isa)
{
    bool data = s->kind == MR_CONV_DATA;
    const int64_t *to = data ? s->in : s->out, *read = data ? s->out : s->in;
    int64_t C = s->channels, n = s->batch * to[0] * to[1] * to[2] * C;
    void *from = fill(s->batch * read[0] * read[1] * read[2] * C, s->type, 1),
         *w = fill(C * C * 18, s->type, 2), *bias = fill(C, s->type, 3);
    void *out[2];
    for (int team = 0; team < 2; team++) {
        mr_facts facts = mr_cpu_facts("cpu", mr_isa_index(isa), team ? 3 : 1);
        mr_winograd_plan plan;
        // also where bf16 has instructions of its own
        facts.bf16 = false;
        CHECK(mr_winograd_fits(s, &facts, &plan));
        CHECK((to[1] + 1) / 2 * ((to[2] + 1) / 2) > plan.tiles);
        mr_conv *c = NULL;
        CHECK_OK(mr_conv_new(s, &facts, &c));
        size_t bytes = mr_conv_workspace(s, &facts);
        unsigned char *work = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
        memset(work, 0xff, bytes + 64); // an unwritten output is nan
        out[team] = fill(n, s->type, 4);
        CHECK_OK(mr_conv_run(c, data ? NULL : from, w, data ? NULL : bias, data ? from : NULL,
                             out[team], work));
        for (int i = 0; i < 64; i++)
            CHECK_INT(work[bytes + (size_t)i], 0xff);
        mr_conv_free(c);
        free(work);
    }
    CHECK(memcmp(out[0], out[1], (size_t)n * mr_dtype_bytes(s->type)) == 0);
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i += 197) {
        int64_t at[] = {i / (to[0] * to[1] * to[2] * C), i / (to[1] * to[2] * C) % to[0],
                        i / (to[2] * C) % to[1], i / C % to[2], i % C};
        double want = wanted(s, from, w, bias, at), d = get(out[0], i, s->type) - want;
        diff += d * d, norm += want * want;
    }
    double e = sqrt(diff / norm), tol = s->type == MR_BF16 ? 3e-3 : 1e-6;
    if (!check_note(e <= tol))
        printf("%s, kind %d, %lld channels: off by %.3g, allowed %.3g\n", isa, (int)s->kind,
               (long long)C, e, tol);
    free(from), free(w), free(bias), free(out[0]), free(out[1]);
}

/* When products of bf16 are faster than those of f32, or there is little to gain, others serve. */
static void ways(void)
{
    mr_facts facts = {.isa = "avx512", .threads = 1, .bf16 = true};
    mr_winograd_plan plan;
    mr_conv_spec s = shape(MR_CONV_FORWARD, MR_BF16, 64, 20, 21);
    CHECK(!mr_winograd_fits(&s, &facts, &plan));
    facts.bf16_by_f32 = true;
    CHECK(mr_winograd_fits(&s, &facts, &plan));
    // with instructions of its own bf16 uses them for pairs of frames and many channels
    facts.bf16_by_f32 = false;
    mr_conv_spec wide = shape(MR_CONV_FORWARD, MR_BF16, 128, 20, 21);
    wide.kernel[0] = 3, wide.before[0] = 2, wide.in[0] = wide.out[0] = 8;
    CHECK(mr_winograd_fits(&wide, &facts, &plan) && plan.pairs);
    facts.amx = true;
    CHECK(!mr_winograd_fits(&wide, &facts, &plan));
    facts.amx = false;
    mr_conv_spec lacking[] = {wide, wide, wide};
    lacking[0].channels = lacking[0].filters = 112;
    lacking[1].stride[1] = lacking[1].stride[2] = 2, lacking[1].out[1] = 10, lacking[1].out[2] = 11;
    lacking[2].kernel[0] = 1, lacking[2].before[0] = 0; // no time is saved
    for (size_t i = 0; i < MR_COUNT(lacking); i++)
        CHECK(!mr_winograd_fits(&lacking[i], &facts, &plan));
    facts.bf16_by_f32 = true;
    mr_conv_spec other[] = {s, s, s, s, s};
    other[0].channels = 24;
    other[1].stride[1] = 2; // of height alone
    other[2].kernel[2] = 1;
    other[3].groups = 2;
    other[4].kind = MR_CONV_WEIGHTS;
    for (size_t i = 0; i < MR_COUNT(other); i++)
        CHECK(!mr_winograd_fits(&other[i], &facts, &plan));
}

int main(void)
{
    for (int isa = 0; isa <= mr_isa(); isa++)
        for (int kind = MR_CONV_FORWARD; kind <= MR_CONV_DATA; kind++) {
            mr_conv_spec f32 = shape(kind, MR_F32, 64, 23, 32),
                         bf16 = shape(kind, MR_BF16, 80, 22, 31);
            run(&f32, mr_isa_name(isa)), run(&bf16, mr_isa_name(isa));
        }
    mr_conv_spec many = shape(MR_CONV_FORWARD, MR_F32, 384, 30, 28);
    run(&many, mr_isa_name(mr_isa()));
    ways();
    return check_done();
}
