/* tensor: statistics of values for reports: extremes, mean, rms, histogram, NaN and infinity.
 * Licence: Apache-2.0 */
#include "moonreel/tensor.h"

#include <math.h>

enum { CHUNK = 16384 };

void mr_summary_add(mr_summary *s, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            s->nonfinite++;
            continue;
        }
        if (s->n + i == s->nonfinite)
            s->min = s->max = x[i]; // the first finite one
        s->min = fmin(s->min, x[i]), s->max = fmax(s->max, x[i]);
        s->zeros += x[i] == 0;
        s->sum += x[i], s->squares += (long double)x[i] * x[i];
    }
    s->n += n;
}

double mr_summary_mean(const mr_summary *s)
{
    int64_t finite = s->n - s->nonfinite;
    return finite ? (double)(s->sum / (long double)finite) : 0;
}

double mr_summary_rms(const mr_summary *s)
{
    int64_t finite = s->n - s->nonfinite;
    return finite ? (double)sqrtl(s->squares / (long double)finite) : 0;
}

/* In NaN and infinity all bits of the exponent are set. */
#define COUNT_EXPONENTS(type, mask)                                                                \
    do {                                                                                           \
        const type *x = data;                                                                      \
        for (int64_t i = 0; i < n; i++)                                                            \
            count += (x[i] & (type)(mask)) == (type)(mask);                                        \
    } while (0)

int64_t mr_nonfinite(const void *data, mr_dtype dtype, int64_t n)
{
    int64_t count = 0;
    if (dtype == MR_F64)
        COUNT_EXPONENTS(uint64_t, 0x7ff0000000000000);
    else if (dtype == MR_F32)
        COUNT_EXPONENTS(uint32_t, 0x7f800000);
    else if (dtype == MR_BF16)
        COUNT_EXPONENTS(uint16_t, 0x7f80);
    return count;
}

/* Pass all values of a view to `take` as doubles, in the order of its indices. */
typedef void taker(void *user, const double *x, int64_t n);
static mr_status walk(const mr_view *v, taker *take, void *user)
{
    int64_t n = mr_desc_count(&v->desc), index[MR_MAX_RANK] = {0};
    bool dense = mr_desc_is_dense(&v->desc);
    double *x = mr_alloc(sizeof *x * CHUNK);
    if (!x)
        return mr_fail_memory(sizeof *x * CHUNK);
    mr_status st = MR_OK;
    for (int64_t at = 0; at < n && st == MR_OK; at += CHUNK) {
        int64_t piece = MR_MIN(n - at, (int64_t)CHUNK);
        if (dense) {
            mr_view from = {(char *)v->data + at * (int64_t)mr_dtype_bytes(v->desc.dtype),
                            mr_desc_dense(v->desc.dtype, 1, &piece)};
            mr_view to = {x, mr_desc_dense(MR_F64, 1, &piece)};
            st = mr_view_copy(&to, &from);
        } else {
            for (int64_t i = 0; i < piece; i++) {
                x[i] = mr_view_get(v, index);
                for (int k = v->desc.rank - 1; k >= 0; k--) {
                    if (++index[k] < v->desc.dim[k])
                        break;
                    index[k] = 0;
                }
            }
        }
        if (st == MR_OK)
            take(user, x, piece);
        if (st == MR_OK)
            st = mr_interrupt_check();
    }
    mr_free(x);
    return st;
}

static void take_summary(void *user, const double *x, int64_t n)
{
    mr_summary_add(user, x, n);
}

mr_status mr_view_summary(const mr_view *v, mr_summary *s)
{
    return walk(v, take_summary, s);
}

typedef struct histogram {
    double lo, hi;
    int bins;
    int64_t *counts;
} histogram;

static void take_counts(void *user, const double *x, int64_t n)
{
    const histogram *h = user;
    // halves keep the width finite if the range is all of f64
    double half = h->hi / 2 - h->lo / 2;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= h->lo && (x[i] <= h->hi || half <= 0)) || (half <= 0 && x[i] != h->lo))
            continue;
        int bin = half > 0 ? (int)((x[i] / 2 - h->lo / 2) / half * h->bins) : 0;
        h->counts[MR_MIN(bin, h->bins - 1)]++;
    }
}

mr_status mr_view_histogram(const mr_view *v, double lo, double hi, int bins, int64_t *counts)
{
    if (bins < 1 || !isfinite(lo) || !isfinite(hi))
        return mr_fail(
            MR_E_USAGE,
            "histogram: got %d bins from %g to %g; expected at least 1 bin and a finite range",
            bins, lo, hi);
    histogram h = {lo, hi, bins, counts};
    return walk(v, take_counts, &h);
}
