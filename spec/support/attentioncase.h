/* Attention compared with sums in f64 that are computed here, with a default scale, lengths and a
 * softmax of their own. */
#ifndef MR_ATTENTIONCASE_H
#define MR_ATTENTIONCASE_H
#include "check.h"
#include "moonreel/op.h"

#include <stdlib.h>

enum { B = 2, H = 2, D = 24, E = 40 };
/* A case in addition to its sizes; scale 0: the op's default. */
typedef struct how_case {
    const int32_t *len;
    double scale;
    int64_t frame, text;
    bool bias, hides; /* a bias; one that hides keys by -inf */
    bool dbias;       /* with the bias' gradient */
} how_case;
typedef struct set {
    int64_t N, M;
    mr_dtype dtype;
    void *q, *k, *v, *dy, *o, *dq, *dk, *dv;
    float *lse, *bias, *dbias;
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

static void set_free(set *s)
{
    void *all[] = {s->q, s->k, s->v, s->dy, s->o, s->dq, s->dk, s->dv, s->lse, s->bias, s->dbias};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        free(all[i]);
}

/* Differences of one result from its oracle, added up for a relative L2 error. */
typedef struct sums {
    double diff, norm;
} sums;
static void compare(sums *s, double got, double want)
{
    s->diff += (got - want) * (got - want), s->norm += want * want;
}

/* The call of a set, forward and backward. */
static void calls_of(const set *s, const how_case *how, const void *attr, mr_call *fwd,
                     mr_call *bwd)
{
    mr_desc q = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->N, H, D}),
            k = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->M, H, D}),
            v = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->M, H, E}),
            o = mr_desc_dense(s->dtype, 5, (int64_t[]){B, 1, s->N, H, E});
    mr_desc lse = mr_desc_dense(MR_F32, 4, (int64_t[]){B, 1, H, s->N}),
            lens = mr_desc_dense(MR_I32, 1, (int64_t[]){B}),
            biases = mr_desc_dense(MR_F32, 3, (int64_t[]){H, s->N, s->M});
    mr_view none = {.desc.rank = -1},
            vl = how->len ? (mr_view){(void *)(uintptr_t)how->len, lens} : none,
            vb = how->bias ? (mr_view){s->bias, biases} : none,
            va = how->dbias ? (mr_view){s->dbias, biases} : none;
    *fwd = (mr_call){.in = {{s->q, q}, {s->k, k}, {s->v, v}, vl, vb},
                     .out = {{s->o, o}, {s->lse, lse}},
                     .n_in = 5,
                     .n_out = 2,
                     .attr = attr,
                     .threads = 2};
    *bwd = (mr_call){.in = {{s->q, q},
                            {s->k, k},
                            {s->v, v},
                            vl,
                            {s->o, o},
                            {s->lse, lse},
                            {s->dy, o},
                            none,
                            vb,
                            va},
                     .out = {{s->dq, q}, {s->dk, k}, {s->dv, v}, va},
                     .n_in = 10,
                     .n_out = 4,
                     .attr = attr,
                     .threads = 2};
}

/* Attention and its gradients for one head of one sample; g[] are the differences of o, dq, dk, dv
 * and lse. Its part of the bias gradient is added to dbias [N, M]. */
static void oracle(const set *s, const how_case *how, int64_t b, int64_t h, double *dbias,
                   sums g[6])
{
    const int64_t row = H * D, wide = H * E, N = s->N, M = s->M;
    const int64_t q0 = (b * N * H + h) * D, k0 = (b * M * H + h) * D, v0 = (b * M * H + h) * E,
                  o0 = (b * N * H + h) * E;
    const double scale = how->scale > 0 ? how->scale : 1 / sqrt(D);
    mr_dtype t = s->dtype;
    double *p = malloc((size_t)M * sizeof *p), *dp = malloc((size_t)M * sizeof *dp),
           *dk = calloc((size_t)(M * D), sizeof *dk), *dv = calloc((size_t)(M * E), sizeof *dv);
    for (int64_t i = 0; i < N; i++) {
        double max = -INFINITY, sum = 0, mean = 0;
        for (int64_t j = 0; j < M; j++) {
            // text: the first keys, of which some exist
            bool text = j < (how->text ? how->text : M);
            p[j] = dp[j] = 0;
            for (int64_t e = 0; e < D; e++)
                p[j] += scale * at(s->q, q0 + i * row + e, t) * at(s->k, k0 + j * row + e, t);
            for (int64_t e = 0; e < E; e++)
                dp[j] += (double)at(s->dy, o0 + i * wide + e, t) * at(s->v, v0 + j * wide + e, t);
            p[j] += how->bias ? s->bias[(h * N + i) * M + j] : 0;
            if ((how->len && text && j >= how->len[b]) ||
                (how->frame && j / how->frame > i / how->frame))
                p[j] = -INFINITY;
            max = fmax(max, p[j]);
        }
        for (int64_t j = 0; j < M; j++)
            sum += p[j] = exp(p[j] - max);
        for (int64_t j = 0; j < M; j++)
            p[j] /= sum;
        // the gradient op gets the output as it was stored
        for (int64_t e = 0; e < E; e++)
            mean += (double)at(s->dy, o0 + i * wide + e, t) * at(s->o, o0 + i * wide + e, t);
        compare(&g[4], s->lse[(b * H + h) * N + i], max + log(sum));
        for (int64_t e = 0; e < E; e++) {
            double o = 0;
            for (int64_t j = 0; j < M; j++) {
                o += p[j] * at(s->v, v0 + j * wide + e, t);
                dv[j * E + e] += p[j] * at(s->dy, o0 + i * wide + e, t);
            }
            compare(&g[0], at(s->o, o0 + i * wide + e, t), o);
        }
        for (int64_t e = 0; e < D; e++) {
            double dq = 0;
            for (int64_t j = 0; j < M; j++) {
                double ds = scale * p[j] * (dp[j] - mean);
                dq += ds * at(s->k, k0 + j * row + e, t);
                dk[j * D + e] += ds * at(s->q, q0 + i * row + e, t);
            }
            compare(&g[1], at(s->dq, q0 + i * row + e, t), dq);
        }
        for (int64_t j = 0; j < M; j++)
            dbias[i * M + j] += p[j] * (dp[j] - mean);
    }
    for (int64_t j = 0; j < M; j++) {
        for (int64_t e = 0; e < D; e++)
            compare(&g[2], at(s->dk, k0 + j * row + e, t), dk[j * D + e]);
        for (int64_t e = 0; e < E; e++)
            compare(&g[3], at(s->dv, v0 + j * wide + e, t), dv[j * E + e]);
    }
    free(p), free(dp), free(dk), free(dv);
}

/* Forward and backward of the set; `isa` is the caller's. */
typedef void runner(set *s, int isa, const how_case *how);

/* Different values everywhere; the bias and the results are zero; `size` is that of q and k. */
static set set_of(int64_t N, int64_t M, mr_dtype t, float size)
{
    int64_t nq = B * N * H * D, nk = B * M * H * D, nb = H * N * M;
    set s = {.N = N, .M = M, .dtype = t};
    void **all[] = {&s.q, &s.k, &s.v, &s.dy, &s.o, &s.dq, &s.dk, &s.dv};
    int64_t n[] = {nq, nk, nk / D * E, nq / D * E, nq / D * E, nq, nk, nk / D * E};
    for (int i = 0; i < 8; i++) {
        *all[i] = room(n[i], t, 0);
        for (int64_t e = 0; i < 4 && e < n[i]; e++)
            put(*all[i], e,
                (i < 2 ? size : 1) * (2 * mr_random_uniform(7, (uint64_t)i, 0, 0, (uint64_t)e) - 1),
                t);
    }
    s.lse = room(B * H * N, MR_F32, 0), s.bias = room(nb, MR_F32, 0);
    s.dbias = room(nb, MR_F32, 0);
    return s;
}

/* `size` of q and k sets the size of the scores. */
static void check_values(runner *run, int isa, const char *name, int64_t N, int64_t M, mr_dtype t,
                         how_case how, float size)
{
    static const char *const names[] = {"o", "dq", "dk", "dv", "lse", "dbias"};
    int64_t nb = H * N * M;
    set s = set_of(N, M, t, size);
    // hidden: a third of the keys, and for the last query all but the last
    for (int64_t e = 0; e < nb; e++) {
        bool hide = how.hides && e % M < M - 1 && (e % 3 == 0 || e / M % N == N - 1);
        s.bias[e] = hide ? -INFINITY : 4 * mr_random_uniform(8, 0, 0, 0, (uint64_t)e) - 2;
        s.dbias[e] = 1; // the gradient is added
    }
    run(&s, isa, &how);
    sums g[6] = {0};
    for (int64_t h = 0; h < H; h++) {
        double *dbias = malloc((size_t)(N * M) * sizeof *dbias);
        for (int64_t e = 0; e < N * M; e++)
            dbias[e] = 1;
        for (int64_t b = 0; b < B; b++)
            oracle(&s, &how, b, h, dbias, g);
        for (int64_t e = 0; how.dbias && e < N * M; e++)
            compare(&g[5], s.dbias[h * N * M + e], dbias[e]);
        free(dbias);
    }
    for (int i = 0; i < 5 + how.dbias; i++) {
        // f32: scores of a few hundred have errors of 2e-5 each, and so have their exponentials.
        // bf16: results are rounded; probabilities and score gradients may be rounded before that.
        double e = sqrt(g[i].diff / g[i].norm), f32 = size > 2 ? 3e-4 : 5e-6;
        double allowed = t == MR_F32 || i > 3 ? f32 : 1.0 / 256;
        if (!check_note(e <= allowed))
            printf("[%lld, %lld] %s %s%s, scale %g, size %g, frame %d, text %d, bias %d: %s is off "
                   "by %.3g, allowed %.3g\n",
                   (long long)N, (long long)M, mr_dtype_name(t), name,
                   how.len ? " with lengths" : "", how.scale, (double)size, (int)how.frame,
                   (int)how.text, how.bias, names[i], e, allowed);
    }
    set_free(&s);
}

/* A NaN reaches these results: a query its row, a key all rows, a value its element of all rows, a
 * bias one row; also when a query attends to that key alone. */
static void check_broken(runner *run, int isa, const char *name, int64_t N, int64_t M, mr_dtype t,
                         bool alone)
{
    static const char *const names[] = {"q", "k", "v", "bias"};
    int64_t i = alone ? 0 : 2, j = alone ? 0 : M - 2;
    for (int what = 0; what < 4; what++) {
        set s = set_of(N, M, t, 1);
        // of head 0 in sample 0
        if (what == 3)
            s.bias[i * M + j] = NAN;
        else
            put(((void *[]){s.q, s.k, s.v})[what],
                ((int64_t[]){i * H * D, j * H * D, j * H * E})[what] + 5, NAN, t);
        run(&s, isa, &(how_case){.bias = what == 3, .frame = alone});
        int64_t rows = 0;
        for (int64_t r = 0; r < N; r++)
            rows += isnan(at(s.o, r * H * E + 5, t));
        if (!check_note(rows == (what == 1 || what == 2 ? N : 1)))
            printf("[%lld, %lld] %s %s%s: a %s that is no number is in %lld rows\n", (long long)N,
                   (long long)M, mr_dtype_name(t), name, alone ? ", causal" : "", names[what],
                   (long long)rows);
        set_free(&s);
    }
}

/* Short sequences, and ones with several tiles of keys and of queries, also without lengths;
 * `gradients` of a bias if the form has them. */
static void check_all_values(runner *run, int isa, const char *name, mr_dtype t, bool gradients)
{
    static const int64_t sizes[][2] = {{5, 7}, {33, 40}, {70, 300}, {130, 600}};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        int64_t N = sizes[i][0], M = sizes[i][1];
        check_broken(run, isa, name, N, M, t, false);
        check_broken(run, isa, name, N, M, t, true);
        const int32_t *most = (int32_t[]){(int32_t)M - 3, 3},
                      *text = (int32_t[]){(int32_t)M / 3, 0};
        check_values(run, isa, name, N, M, t, (how_case){0}, 1);
        check_values(run, isa, name, N, M, t, (how_case){.scale = 0.7}, 1.5f);
        check_values(run, isa, name, N, M, t, (how_case){.len = most}, 1);
        // scores beyond the range of exp: several hundred
        check_values(run, isa, name, N, M, t, (how_case){.scale = 1}, 10);
        check_values(run, isa, name, N, M, t, (how_case){.frame = 1}, 1);
        check_values(run, isa, name, N, M, t, (how_case){.len = most, .frame = 3 * N / 7}, 1);
        check_values(run, isa, name, N, M, t, (how_case){.len = text, .text = M / 2}, 1);
        check_values(run, isa, name, N, M, t, (how_case){.bias = true, .hides = true}, 1);
        check_values(run, isa, name, N, M, t,
                     (how_case){.len = text, .text = M / 2, .bias = true, .dbias = gradients}, 1);
        check_values(run, isa, name, N, M, t,
                     (how_case){.frame = N / 2, .bias = true, .dbias = gradients}, 1);
    }
}

#endif
