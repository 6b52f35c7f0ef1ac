/* attention_amx: tiled attention with AMX products of bf16, one head at a time.
 *
 * The left operand of a product is row-major bf16. The right one consists of packed tiles: 16 rows
 * of 16 pairs, each of two neighbours along the summed dimension. Scores, softmax and sums are f32;
 * probabilities and score gradients are rounded to bf16 to be operands. Gradients of keys and
 * values are accumulated transposed, so that score gradients are packed as right operands only.
 * Licence: Apache-2.0 */
#include "cpu/amx.h"
#include "cpu/amx_block.h"
#include "cpu/transpose.h"
#include "op/attention_job.h"

#if defined(__AVX512F__) && defined(__x86_64__) && defined(__linux__)
/* amx_block for m rows and n columns, both multiples of 16. The outer loop is over columns, so that
 * b stays in the cache. */
AMX_FN void amx_product(int64_t m, int64_t n, int64_t steps, const uint16_t *a, int64_t lda,
                        const uint16_t *b, int64_t bs, int64_t bn, float *c, int64_t ldc, bool add)
{
    for (int64_t j = 0; j < n; j += 32)
        for (int64_t i = 0; i < m; i += 32) {
            const uint16_t *ai = a + i * lda, *bj = b + j / 16 * bn * AMX_TILE;
            float *cij = c + i * ldc + j;
            if (i + 16 < m && j + 16 < n)
                amx_block(true, true, steps, ai, lda, bj, bs, bn, cij, ldc, add);
            else if (i + 16 < m)
                amx_block(true, false, steps, ai, lda, bj, bs, bn, cij, ldc, add);
            else if (j + 16 < n)
                amx_block(false, true, steps, ai, lda, bj, bs, bn, cij, ldc, add);
            else
                amx_block(false, false, steps, ai, lda, bj, bs, bn, cij, ldc, add);
        }
}

/* One head of a bf16 argument whose head dimension is dense. For keys and values, row 0 is existing
 * key `from`; for queries, `keys` is NULL. */
typedef struct amx_head {
    uint16_t *at;
    int64_t step, from;
    const attention_keys *keys;
} amx_head;
MR_OP_FN amx_head amx_head_of(const mr_view *v, int64_t b, int64_t g, int64_t h, int64_t from,
                              const attention_keys *keys)
{
    const int64_t *s = v->desc.stride;
    uint16_t *at = (uint16_t *)v->data + b * s[0] + g * s[1] + h * s[3];
    return (amx_head){at, s[2], from, keys};
}
MR_OP_FN uint16_t *amx_row(const amx_head *h, int64_t r)
{
    r += h->from;
    return h->at + (h->keys ? attention_row(h->keys, r) : r) * h->step;
}

/* dst[to, ld] = rows first .. first + rows, padded with zeros. */
MR_OP_FN void amx_rows(const amx_head *h, int64_t first, int64_t rows, int64_t d, uint16_t *dst,
                       int64_t ld, int64_t to)
{
    for (int64_t r = 0; r < to; r++) {
        int64_t n = r < rows ? d : 0;
        if (n)
            memcpy(dst + r * ld, amx_row(h, first + r), (size_t)n * 2);
        memset(dst + r * ld + n, 0, (size_t)(ld - n) * 2);
    }
}

/* Pack the right operand of a product with the transpose. The columns of tile (s, n), at n * steps
 * + s, are rows 16 n .. as pairs of elements 32 s .. */
MR_OP_FN void amx_pack_transposed(const amx_head *h, int64_t rows, int64_t d, uint16_t *dst,
                                  int64_t steps, int64_t to)
{
    for (int64_t n = 0; n < to; n += 16)
        for (int64_t s = 0; s < steps; s++, dst += AMX_TILE) {
            vf r[VF_LANES];
            int64_t pairs = MR_MIN((d - 32 * s) / 2, 16);
            for (int l = 0; l < 16; l++)
                r[l] =
                    n + l < rows
                        ? vf_loadn((const float *)(const void *)(amx_row(h, n + l) + 32 * s), pairs)
                        : vf_zero();
            vf_transpose(r);
            for (int l = 0; l < 16; l++)
                vf_store((float *)(void *)dst + 16 * l, r[l]);
        }
}

VF_INLINE __m512i amx_words(const uint16_t *p, int64_t n)
{
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_mask(n), p));
}

/* Pack the right operand of a product with the rows themselves. Tile (s, e), at s * columns + e,
 * has rows 32 s .. in pairs, elements 16 e .. */
MR_OP_FN void amx_pack_pairs(const amx_head *h, int64_t rows, int64_t d, uint16_t *dst,
                             int64_t columns, int64_t to)
{
    for (int64_t s = 0; s < to; s += 32)
        for (int64_t e = 0; e < columns; e++, dst += AMX_TILE)
            for (int64_t r = 0; r < 16; r++) {
                int64_t i = s + 2 * r, m = MR_MIN(d - 16 * e, 16);
                __m512i lo = _mm512_setzero_si512(), hi = lo;
                if (i < rows)
                    lo = amx_words(amx_row(h, i) + 16 * e, m);
                if (i + 1 < rows)
                    hi = amx_words(amx_row(h, i + 1) + 16 * e, m);
                _mm512_storeu_si512(dst + 32 * r, _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
            }
}

/* dst[dp, ld] = transpose of src[ld, ..] in bf16; both multiples of 16. */
AMX_FN void amx_turn(const uint16_t *src, int64_t src_ld, int64_t dp, uint16_t *dst, int64_t ld)
{
    for (int64_t i = 0; i < ld; i += 16)
        for (int64_t e = 0; e < dp; e += 16) {
            vf r[VF_LANES];
            for (int l = 0; l < 16; l++)
                r[l] = vf_bload(src + (i + l) * src_ld + e);
            vf_transpose(r);
            for (int l = 0; l < 16; l++)
                _mm256_storeu_si256((__m256i *)(void *)(dst + (e + l) * ld + i),
                                    (__m256i)_mm512_cvtneps_pbh(r[l]));
        }
}

/* 2^x with an error below 3e-6, clamped to 2^-126 .. 2^64. The upper limit is for padding: a
 * missing key next to scores far below zero gets a huge weight, which is multiplied by zeros and so
 * must be finite. */
VF_INLINE vf amx_exp2(vf x)
{
    x = _mm512_max_ps(vf_set(-126.0f), x); // keeps a NaN in x
    x = _mm512_min_ps(vf_set(64.0f), x);
    vf n = _mm512_roundscale_ps(x, 8), f = x - n;
    vf p = vf_fma(f, vf_set(0.00133336f), vf_set(0.00961813f));
    p = vf_fma(f, p, vf_set(0.05550411f));
    p = vf_fma(f, p, vf_set(0.24022651f));
    p = vf_fma(f, p, vf_set(0.69314718f));
    return _mm512_scalef_ps(vf_fma(f, p, vf_set(1.0f)), n);
}

/* Softmax of one row of scores with an online maximum: p[0 .. padded) bf16, zeros past n. */
AMX_INLINE float amx_softmax(const float *s, uint16_t *p, int64_t n, int64_t padded, vf factor,
                             float *max)
{
    vf top = vf_set(*max), sum = vf_zero();
    for (int64_t j = 0; j < n; j += 16) {
        vf x = vf_load(s + j) * factor;
        top = _mm512_mask_max_ps(top, vf_mask(MR_MIN(n - j, 16)), top, x);
    }
    *max = _mm512_reduce_max_ps(top);
    if (*max == -INFINITY) {
        // no key so far, all keys with a bias of -inf, or NaN scores only
        vf all = vf_zero();
        for (int64_t j = 0; j < n; j += 16)
            all = all + vf_loadn(s + j, MR_MIN(n - j, 16));
        memset(p, 0, (size_t)padded * 2);
        return isnan(vf_sum(all)) ? NAN : 0;
    }
    vf low = vf_set(-*max);
    for (int64_t j = 0; j < padded; j += 32) {
        int64_t left = n - j;
        vf a = amx_exp2(vf_fma(vf_load(s + j), factor, low)),
           b = amx_exp2(vf_fma(vf_load(s + j + 16), factor, low));
        if (left < 32) {
            a = _mm512_maskz_mov_ps(vf_mask(MR_MAX(MR_MIN(left, 16), 0)), a);
            b = _mm512_maskz_mov_ps(vf_mask(MR_MAX(left - 16, 0)), b);
        }
        sum = sum + (a + b);
        _mm512_storeu_si512(p + j, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    }
    return vf_sum(sum);
}

AMX_ENTRY void mr_attention_amx_forward(const attention_job *jb, int64_t b, int64_t g, int64_t h,
                                        int64_t first, int64_t last, void *scratch)
{
    const mr_call *c = jb->call;
    const int64_t d = c->in[0].desc.dim[4], dv = c->in[2].desc.dim[4];
    attention_keys keys = attention_keys_of(c, b);
    amx_sizes z = amx_scratch(c, c->in[1].desc.dim[2], false);
    amx_head q = amx_head_of(&c->in[0], b, g, h, 0, NULL),
             k = amx_head_of(&c->in[1], b, g, h, 0, &keys),
             v = amx_head_of(&c->in[2], b, g, h, 0, &keys),
             o = amx_head_of(&c->out[0], b, g, h, 0, NULL);
    float *lse = (float *)c->out[1].data + attention_stat(c, b, g, h), max[AMX_ROWS], sum[AMX_ROWS];
    uint16_t *kt = scratch, *vp = kt + z.mp * z.dk, *qr = vp + z.mp * z.vp,
             *p = qr + AMX_ROWS * z.dk;
    float *s = (float *)(void *)(p + AMX_ROWS * AMX_LD), *ot = s + AMX_ROWS * AMX_LD;
    int64_t steps = z.dk / 32, columns = z.vp / 16, most = attention_seen(&keys, last - 1),
            all = attention_pad(most, 32);
    vf factor = vf_set(jb->scale * 1.44269504f);
    amx_begin();
    amx_pack_transposed(&k, most, d, kt, steps, all);
    amx_pack_pairs(&v, most, dv, vp, columns, all);
    for (int64_t i = first; i < last; i += AMX_ROWS) {
        int64_t rows = MR_MIN(last - i, AMX_ROWS), padded = attention_pad(rows, 16),
                seen = attention_seen(&keys, i + rows - 1);
        amx_rows(&q, i, rows, d, qr, z.dk, padded);
        for (int64_t r = 0; r < padded; r++)
            max[r] = -INFINITY, sum[r] = 0;
        for (int64_t j = 0; j < seen; j += AMX_KEYS) {
            int64_t m = MR_MIN(seen - j, AMX_KEYS), mp = attention_pad(m, 32);
            amx_product(padded, mp, steps, qr, z.dk, kt + j * z.dk, 1, steps, s, AMX_LD, false);
            for (int64_t r = 0; r < padded; r++) {
                int64_t n = attention_seen_of(&keys, MR_MIN(i + r, last - 1), j, m);
                float *row = s + r * AMX_LD, old = max[r];
                if (mr_given(jb->bias) && r < rows)
                    attention_add_bias(jb, h, i + r, &keys, j, n, 1 / jb->scale, row);
                float add = amx_softmax(row, p + r * AMX_LD, n, mp, factor, &max[r]);
                float fade = j && max[r] > -INFINITY ? exp2f(old - max[r]) : 0;
                sum[r] = sum[r] * fade + add;
                for (int64_t e = 0; j && fade != 1 && e < z.vp; e += 16)
                    vf_store(ot + r * z.vp + e, vf_load(ot + r * z.vp + e) * vf_set(fade));
            }
            amx_product(padded, z.vp, mp / 32, p, AMX_LD, vp + j * z.vp, columns, 1, ot, z.vp,
                        j > 0);
        }
        for (int64_t r = 0; r < rows; r++) {
            bool any = sum[r] != 0; // also for NaN
            lse[i + r] = any ? (max[r] + log2f(sum[r])) * 0.693147181f : -INFINITY;
            vf share = vf_set(any ? 1 / sum[r] : 0);
            for (int64_t e = 0; e < dv; e += 16) {
                vf x = vf_zero();
                if (any)
                    x = vf_load(ot + r * z.vp + e) * share;
                vf_bstoren(amx_row(&o, i + r) + e, x, MR_MIN(dv - e, 16));
            }
        }
    }
    amx_end();
}

/* Probabilities and score gradients of 32 queries and 32 keys, packed as right operands (tiles n, n
 * + 1 of one step); score gradients also row-major. */
AMX_INLINE void amx_backward_block(const float *s, const float *dp, const float *low,
                                   const float *D, float factor, float scale, uint16_t *pt,
                                   uint16_t *dst, uint16_t *dsr)
{
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    vf f = vf_set(factor), sc = vf_set(scale);
    for (int64_t r = 0; r < 32; r += 2) {
        vf low0 = vf_set(low[r]), low1 = vf_set(low[r + 1]), D0 = vf_set(D[r]),
           D1 = vf_set(D[r + 1]);
        for (int64_t n = 0; n < 2; n++) {
            vf p0 = amx_exp2(vf_fma(vf_load(s + r * 32 + n * 16), f, low0)),
               p1 = amx_exp2(vf_fma(vf_load(s + (r + 1) * 32 + n * 16), f, low1));
            vf g0 = p0 * vf_fma(vf_load(dp + r * 32 + n * 16), sc, D0),
               g1 = p1 * vf_fma(vf_load(dp + (r + 1) * 32 + n * 16), sc, D1);
            __m512i p = (__m512i)_mm512_cvtne2ps_pbh(p1, p0),
                    g = (__m512i)_mm512_cvtne2ps_pbh(g1, g0);
            _mm512_storeu_si512(pt + n * AMX_TILE + r * 16, _mm512_permutexvar_epi16(zip, p));
            _mm512_storeu_si512(dst + n * AMX_TILE + r * 16, _mm512_permutexvar_epi16(zip, g));
            _mm256_storeu_si256((__m256i *)(void *)(dsr + r * AMX_LD + n * 16),
                                _mm512_castsi512_si256(g));
            _mm256_storeu_si256((__m256i *)(void *)(dsr + (r + 1) * AMX_LD + n * 16),
                                _mm512_extracti64x4_epi64(g, 1));
        }
    }
}

/* head[0 .. keys) = transpose of src[d, ld]. */
MR_OP_FN void amx_scatter_turned(const amx_head *h, int64_t keys, int64_t d, const float *src,
                                 int64_t ld)
{
    for (int64_t j = 0; j < keys; j += 16)
        for (int64_t e = 0; e < d; e += 16) {
            vf r[VF_LANES];
            for (int l = 0; l < 16; l++)
                r[l] = vf_load(src + (e + l) * ld + j);
            vf_transpose(r);
            for (int64_t l = 0; l < MR_MIN(keys - j, 16); l++)
                vf_bstoren(amx_row(h, j + l) + e, r[l], MR_MIN(d - e, 16));
        }
}

/* Zero the rows of keys that do not exist. */
MR_OP_FN void amx_clear(const amx_head *h, int64_t d)
{
    for (int64_t j = 0; j < h->keys->gap; j++)
        memset(h->at + (h->keys->first + j) * h->step, 0, (size_t)d * 2);
}

/* low = -lse, in log2, and D = -scale (rowsum(do o) - dlse) of `padded` queries from i on. A query
 * that sees no key gets probabilities of 2^-126. */
AMX_FN void amx_sums(const attention_job *jb, int64_t b, int64_t g, int64_t h, int64_t i,
                     int64_t rows, int64_t padded, const uint16_t *yr, int64_t ld, float *low,
                     float *D)
{
    const mr_call *c = jb->call;
    const int64_t dv = c->in[2].desc.dim[4], at = attention_stat(c, b, g, h) + i;
    const float *lse = (const float *)c->in[5].data + at,
                *dlse = c->in[7].data ? (const float *)c->in[7].data + at : NULL;
    amx_head o = amx_head_of(&c->in[4], b, g, h, 0, NULL);
    for (int64_t r = 0; r < padded; r++) {
        vf dot = vf_zero();
        for (int64_t e = 0; r < rows && e < dv; e += 16)
            dot = vf_fma(vf_bload(yr + r * ld + e),
                         vf_bloadn(amx_row(&o, i + r) + e, MR_MIN(dv - e, 16)), dot);
        bool sees = r < rows && lse[r] != -INFINITY;
        low[r] = sees ? lse[r] * -1.44269504f : -INFINITY;
        D[r] = -jb->scale * (vf_sum(dot) - (dlse && r < rows ? dlse[r] : 0));
    }
}

/* Complete the scores of 32 queries from i on and 32 keys from j on: add the bias, and set -inf
 * where a query does not see a key. `last` is the last query. */
MR_OP_FN void amx_mask(const attention_job *jb, int64_t h, const attention_keys *keys, int64_t i,
                       int64_t last, int64_t j, float *s)
{
    for (int64_t r = 0; r < 32 && i + r <= last; r++) {
        int64_t n = attention_seen_of(keys, i + r, j, 32);
        if (mr_given(jb->bias))
            attention_add_bias(jb, h, i + r, keys, j, n, 1 / jb->scale, s + r * 32);
        for (int64_t e = n; e < 32; e++)
            s[r * 32 + e] = -INFINITY * jb->scale;
    }
}

AMX_ENTRY void mr_attention_amx_backward(const attention_job *jb, int64_t b, int64_t g, int64_t h,
                                         int64_t range, void *scratch)
{
    const mr_call *c = jb->call;
    const int64_t N = c->in[0].desc.dim[2], d = c->in[0].desc.dim[4], dv = c->in[2].desc.dim[4];
    attention_keys all = attention_keys_of(c, b);
    int64_t from = range * jb->range_keys, keys = MR_MAX(MR_MIN(all.all - from, jb->range_keys), 0);
    amx_sizes z = amx_scratch(c, jb->range_keys, true);
    amx_head q = amx_head_of(&c->in[0], b, g, h, 0, NULL),
             k = amx_head_of(&c->in[1], b, g, h, from, &all),
             v = amx_head_of(&c->in[2], b, g, h, from, &all),
             dy = amx_head_of(&c->in[6], b, g, h, 0, NULL);
    amx_head dq = amx_head_of(&c->out[0], b, g, h, 0, NULL),
             dk = amx_head_of(&c->out[1], b, g, h, from, &all),
             dw = amx_head_of(&c->out[2], b, g, h, from, &all);
    uint16_t *kt = scratch, *vt = kt + z.mp * z.dk, *kp = vt + z.mp * z.vk, *qr = kp + z.mp * z.dp,
             *yr = qr + AMX_ROWS * z.dk;
    uint16_t *qc = yr + AMX_ROWS * z.vk, *yc = qc + AMX_ROWS * z.dp, *pt = yc + AMX_ROWS * z.vp,
             *dst = pt + AMX_ROWS * AMX_KEYS;
    uint16_t *dsr = dst + AMX_ROWS * AMX_KEYS;
    float *gk = (float *)(void *)(dsr + AMX_ROWS * AMX_LD), *gv = gk + z.dp * z.gp,
          *gq = gv + z.vp * z.gp, *s = gq + AMX_ROWS * z.dp;
    float *dp = s + 32 * 32, *low = dp + 32 * 32, *D = low + AMX_ROWS;
    float *part = jb->ranges > 1 ? attention_parts(jb, b, g, h, range) : NULL;
    int64_t steps = z.dk / 32, v_steps = z.vk / 32, columns = z.dp / 16,
            padded_keys = attention_pad(keys, 32);
    amx_begin();
    amx_pack_transposed(&k, keys, d, kt, steps, padded_keys);
    amx_pack_transposed(&v, keys, dv, vt, v_steps, padded_keys);
    amx_pack_pairs(&k, keys, d, kp, columns, padded_keys);
    memset(gk, 0, (size_t)((z.dp + z.vp) * z.gp) * 4);
    for (int64_t i = 0; i < N; i += AMX_ROWS) {
        int64_t rows = MR_MIN(N - i, AMX_ROWS), padded = attention_pad(rows, 32),
                seen = attention_seen_of(&all, i + rows - 1, from, keys);
        amx_rows(&q, i, rows, d, qr, z.dk, padded);
        amx_rows(&dy, i, rows, dv, yr, z.vk, padded);
        amx_turn(qr, z.dk, z.dp, qc, padded);
        amx_turn(yr, z.vk, z.vp, yc, padded);
        amx_sums(jb, b, g, h, i, rows, padded, yr, z.vk, low, D);
        for (int64_t j = 0; j < seen; j += AMX_KEYS) {
            int64_t mp = attention_pad(MR_MIN(seen - j, AMX_KEYS), 32);
            for (int64_t n = 0; n < mp; n += 32)
                for (int64_t r = 0; r < padded; r += 32) {
                    amx_block(true, true, steps, qr + r * z.dk, z.dk, kt + (j + n) * z.dk, 1, steps,
                              s, 32, false);
                    amx_block(true, true, v_steps, yr + r * z.vk, z.vk, vt + (j + n) * z.vk, 1,
                              v_steps, dp, 32, false);
                    if (mr_given(jb->bias) || all.frame)
                        amx_mask(jb, h, &all, i + r, N - 1, from + j + n, s);
                    int64_t tile = (r / 32 * (mp / 16) + n / 16) * AMX_TILE;
                    amx_backward_block(s, dp, low + r, D + r, jb->scale * 1.44269504f, jb->scale,
                                       pt + tile, dst + tile, dsr + r * AMX_LD + n);
                }
            amx_product(padded, z.dp, mp / 32, dsr, AMX_LD, kp + j * z.dp, columns, 1, gq, z.dp,
                        j > 0);
            amx_product(z.vp, mp, padded / 32, yc, padded, pt, mp / 16, 1, gv + j, z.gp, true);
            amx_product(z.dp, mp, padded / 32, qc, padded, dst, mp / 16, 1, gk + j, z.gp, true);
        }
        for (int64_t r = 0; r < rows; r++)
            for (int64_t e = 0; e < z.dp; e += 16) {
                vf x = seen ? vf_load(gq + r * z.dp + e) : vf_zero();
                if (part)
                    vf_store(part + (i + r) * z.dp + e, x);
                else
                    vf_bstoren(amx_row(&dq, i + r) + e, x, MR_MIN(d - e, 16));
            }
    }
    amx_end();
    amx_scatter_turned(&dk, keys, d, gk, z.gp);
    amx_scatter_turned(&dw, keys, dv, gv, z.gp);
    if (range == 0)
        amx_clear(&dk, d), amx_clear(&dw, dv);
}
#endif
