/* Attention against sums in f64 written out here, with their own idea of the default scale, of
 * lengths and of the softmax. */
#ifndef MR_ATTENTIONCASE_H
#define MR_ATTENTIONCASE_H
#include "check.h"
#include "moonreel/op.h"

#include <stdlib.h>

enum { B = 2, H = 2, D = 24 };
typedef struct set {
    int64_t N, M;
    mr_dtype dtype;
    void *q, *k, *v, *dy, *o, *dq, *dk, *dv;
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

static void set_free(set *s)
{
    void *all[] = {s->q, s->k, s->v, s->dy, s->o, s->dq, s->dk, s->dv, s->lse};
    for (size_t i = 0; i < MR_COUNT(all); i++)
        free(all[i]);
}

/* Differences of one result from its oracle, summed up for a relative L2 error. */
typedef struct sums {
    double diff, norm;
} sums;
static void compare(sums *s, double got, double want)
{
    s->diff += (got - want) * (got - want), s->norm += want * want;
}

/* What attention and its gradients are, for one head: element (i, e) of q lies at base + i * row +
 * e, of k at its own base; g[] are the differences of o, dq, dk, dv and lse. */
static void oracle(const set *s, int64_t q0, int64_t k0, int64_t stat, int64_t keys, double scale,
                   sums g[5])
{
    const int64_t row = H * D, N = s->N, M = s->M;
    mr_dtype t = s->dtype;
    double *p = malloc((size_t)M * sizeof *p), *dp = malloc((size_t)M * sizeof *dp),
           *dk = calloc((size_t)(M * D), sizeof *dk), *dv = calloc((size_t)(M * D), sizeof *dv);
    for (int64_t i = 0; i < N; i++) {
        int64_t qi = q0 + i * row;
        double max = -INFINITY, sum = 0, mean = 0;
        for (int64_t j = 0; j < keys; j++) {
            p[j] = dp[j] = 0;
            for (int64_t e = 0; e < D; e++) {
                p[j] += scale * at(s->q, qi + e, t) * at(s->k, k0 + j * row + e, t);
                dp[j] += (double)at(s->dy, qi + e, t) * at(s->v, k0 + j * row + e, t);
            }
            max = fmax(max, p[j]);
        }
        for (int64_t j = 0; j < keys; j++)
            sum += p[j] = exp(p[j] - max);
        for (int64_t j = 0; j < keys; j++)
            p[j] /= sum;
        // the gradient's row is given the output as it was stored
        for (int64_t e = 0; e < D; e++)
            mean += (double)at(s->dy, qi + e, t) * at(s->o, qi + e, t);
        compare(&g[4], s->lse[stat + i], max + log(sum));
        for (int64_t e = 0; e < D; e++) {
            double o = 0, dq = 0;
            for (int64_t j = 0; j < keys; j++) {
                double ds = scale * p[j] * (dp[j] - mean);
                o += p[j] * at(s->v, k0 + j * row + e, t);
                dq += ds * at(s->k, k0 + j * row + e, t);
                dk[j * D + e] += ds * at(s->q, qi + e, t);
                dv[j * D + e] += p[j] * at(s->dy, qi + e, t);
            }
            compare(&g[0], at(s->o, qi + e, t), o);
            compare(&g[1], at(s->dq, qi + e, t), dq);
        }
    }
    for (int64_t j = 0; j < M; j++)
        for (int64_t e = 0; e < D; e++) {
            compare(&g[2], at(s->dk, k0 + j * row + e, t), dk[j * D + e]);
            compare(&g[3], at(s->dv, k0 + j * row + e, t), dv[j * D + e]);
        }
    free(p), free(dp), free(dk), free(dv);
}

/* Forward and backward of the set; `how` is the caller's. */
typedef void runner(set *s, int how, const int32_t *len, double scale);

/* Different values everywhere; `size` of q and k sets how large the scores are. */
static void check_values(runner *run, int how, const char *name, int64_t N, int64_t M, mr_dtype t,
                         const int32_t *len, double scale, float size)
{
    static const char *const names[] = {"o", "dq", "dk", "dv", "lse"};
    int64_t nq = B * N * H * D, nk = B * M * H * D;
    set s = {.N = N, .M = M, .dtype = t};
    void **of_q[] = {&s.q, &s.dy, &s.o, &s.dq}, **of_k[] = {&s.k, &s.v, &s.dk, &s.dv};
    for (int i = 0; i < 4; i++)
        *of_q[i] = room(nq, t, 0), *of_k[i] = room(nk, t, 0);
    s.lse = room(B * H * N, MR_F32, 0);
    void *filled[] = {s.q, s.k, s.v, s.dy};
    for (int i = 0; i < 4; i++)
        for (int64_t e = 0; e < (i == 0 || i == 3 ? nq : nk); e++)
            put(filled[i], e,
                (i < 2 ? size : 1) * (2 * mr_random_uniform(7, (uint64_t)i, 0, 0, (uint64_t)e) - 1),
                t);
    run(&s, how, len, scale);
    sums g[5] = {0};
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            oracle(&s, b * N * H * D + h * D, b * M * H * D + h * D, (b * H + h) * N,
                   len ? len[b] : M, scale > 0 ? scale : 1 / sqrt(D), g);
    for (int i = 0; i < 5; i++) {
        // f32: scores of a few hundred are off by 2e-5 each, and so are their exponentials.
        // bf16: results are rounded, probabilities and score gradients may be before that
        double e = sqrt(g[i].diff / g[i].norm), f32 = size > 2 ? 3e-4 : 5e-6;
        double allowed = t == MR_F32 || i == 4 ? f32 : 1.0 / 256;
        if (!check_note(e <= allowed))
            printf("[%lld, %lld] %s %s%s, scale %g, size %g: %s is off by %.3g, allowed %.3g\n",
                   (long long)N, (long long)M, mr_dtype_name(t), name, len ? " with lengths" : "",
                   scale, (double)size, names[i], e, allowed);
    }
    set_free(&s);
}

/* Short sequences, and such that meet several tiles of keys and of queries, without lengths too. */
static void check_all_values(runner *run, int how, const char *name, mr_dtype t)
{
    static const int64_t sizes[][2] = {{5, 7}, {33, 40}, {70, 300}, {130, 600}};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        int64_t N = sizes[i][0], M = sizes[i][1];
        check_values(run, how, name, N, M, t, NULL, 0, 1);
        check_values(run, how, name, N, M, t, NULL, 0.7, 1.5f);
        check_values(run, how, name, N, M, t, (int32_t[]){(int32_t)M - 3, 3}, 0, 1);
        // scores beyond the range of exp: several hundred
        check_values(run, how, name, N, M, t, NULL, 1, 10);
    }
}

#endif
