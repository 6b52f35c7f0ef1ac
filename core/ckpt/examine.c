/* ckpt: computes statistics of one tensor, and compares two checkpoints bit by bit.
 * Licence: Apache-2.0 */
#include "moonreel/ckpt.h"
#include "moonreel/tensor.h"

#include <math.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 18, CHUNK_ELEMENTS = CHUNK_BYTES }; // at least one byte per element

mr_status mr_ckpt_stats_of(mr_ckpt *c, const char *name, mr_ckpt_stats *out)
{
    const mr_st_tensor *t = mr_ckpt_find(c, name);
    if (!t)
        return mr_ckpt_missing(c, name);
    *out = (mr_ckpt_stats){0};
    char *raw = mr_alloc(CHUNK_BYTES);
    double *x = mr_alloc(sizeof *x * CHUNK_ELEMENTS);
    mr_status st = raw && x ? MR_OK : mr_fail_memory(sizeof *x * CHUNK_ELEMENTS);
    int64_t size = (int64_t)mr_st_dtype_bytes(t->dtype);
    mr_summary s = {0};
    for (int64_t at = 0; at < t->bytes && st == MR_OK; at += CHUNK_BYTES) {
        int64_t bytes = MR_MIN(t->bytes - at, (int64_t)CHUNK_BYTES), n = bytes / size;
        st = mr_ckpt_read(c, name, raw, at, bytes);
        if (st != MR_OK)
            break;
        mr_st_to_f64(t->dtype, raw, n, x);
        mr_summary_add(&s, x, n);
    }
    *out = (mr_ckpt_stats){.n = s.n,
                           .zeros = s.zeros,
                           .nonfinite = s.nonfinite,
                           .min = s.min,
                           .max = s.max,
                           .mean = mr_summary_mean(&s),
                           .rms = mr_summary_rms(&s)};
    mr_free(raw);
    mr_free(x);
    return st;
}

static void compare_chunk(const mr_st_tensor *t, const char *a, const char *b, int64_t n,
                          int64_t first, double *x, double *y, mr_ckpt_delta *out)
{
    size_t size = mr_st_dtype_bytes(t->dtype);
    mr_st_to_f64(t->dtype, a, n, x);
    mr_st_to_f64(t->dtype, b, n, y);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(a + i * (int64_t)size, b + i * (int64_t)size, size) == 0)
            continue;
        if (!out->differing++)
            out->first = first + i;
        double d = fabs(x[i] - y[i]);
        if (!isfinite(d))
            continue;
        out->max_abs = fmax(out->max_abs, d);
        out->distance += d * d; // the sum of squares; the root follows after the last chunk
    }
}

mr_status mr_ckpt_compare(mr_ckpt *ca, const char *name, mr_ckpt *cb, const char *name_b,
                          mr_ckpt_delta *out)
{
    const mr_st_tensor *a = mr_ckpt_find(ca, name), *b = mr_ckpt_find(cb, name_b);
    if (!a || !b)
        return mr_ckpt_missing(a ? cb : ca, a ? name_b : name);
    if (a->dtype != b->dtype || a->rank != b->rank ||
        memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank))
        return mr_fail(MR_E_SHAPE, "tensor '%s' has another shape or dtype in %s than in %s", name,
                       mr_ckpt_path(ca), mr_ckpt_path(cb));
    int64_t size = (int64_t)mr_st_dtype_bytes(a->dtype);
    *out = (mr_ckpt_delta){.n = a->bytes / size, .first = -1};
    char *raw = mr_alloc(2 * CHUNK_BYTES);
    double *x = mr_alloc(sizeof *x * 2 * CHUNK_ELEMENTS);
    mr_status st = raw && x ? MR_OK : mr_fail_memory(sizeof *x * 2 * CHUNK_ELEMENTS);
    for (int64_t at = 0; at < a->bytes && st == MR_OK; at += CHUNK_BYTES) {
        int64_t bytes = MR_MIN(a->bytes - at, (int64_t)CHUNK_BYTES);
        if ((st = mr_ckpt_read(ca, name, raw, at, bytes)) != MR_OK)
            break;
        if ((st = mr_ckpt_read(cb, name_b, raw + CHUNK_BYTES, at, bytes)) != MR_OK)
            break;
        if (memcmp(raw, raw + CHUNK_BYTES, (size_t)bytes))
            compare_chunk(a, raw, raw + CHUNK_BYTES, bytes / size, at / size, x, x + CHUNK_ELEMENTS,
                          out);
    }
    out->distance = sqrt(out->distance);
    mr_free(raw);
    mr_free(x);
    return st;
}
