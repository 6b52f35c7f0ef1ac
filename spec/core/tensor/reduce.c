/* Sums, means, extremes and norms over axes: each dtype, strides in any order, lines longer than a
 * buffer, values that are not finite; checked element by element. */
#include "check.h"
#include "moonreel/tensor.h"

#include <math.h>

enum { ROOM = 1 << 16 };
static double memory[ROOM]; // f64 is the widest element
static uint64_t seed = 20;

static int64_t draw(int64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(seed >> 33) % n;
}

/* A strided view of small integers: they are exact in each dtype, also when added up. */
static mr_view drawn(mr_dtype dtype)
{
    mr_view v = {memory, {.dtype = dtype, .rank = (int)draw(5)}};
    int order[MR_MAX_RANK];
    for (int i = 0; i < v.desc.rank; i++) {
        v.desc.dim[i] = 1 + draw(i ? 5 : 40);
        order[i] = i;
    }
    // strides in any order, with gaps, sometimes 0
    for (int i = v.desc.rank - 1; i > 0; i--) {
        int k = (int)draw(i + 1), t = order[i];
        order[i] = order[k], order[k] = t;
    }
    int64_t step = 1;
    for (int i = 0; i < v.desc.rank; i++) {
        v.desc.stride[order[i]] = draw(6) ? step : 0;
        step = step * v.desc.dim[order[i]] + draw(2);
    }
    int64_t n = (int64_t)mr_desc_span_bytes(&v.desc) / (int64_t)mr_dtype_bytes(dtype);
    mr_view flat = {memory, mr_desc_dense(dtype, 1, &n)};
    for (int64_t i = 0; i < n; i++)
        mr_view_set(&flat, &i, (double)(draw(9) + (dtype == MR_U8 || dtype == MR_BOOL ? 0 : -4)));
    return v;
}

/* The result at `index` (of x, zeros for reduced axes), straight from the definition. */
static double wanted(mr_reduction kind, const mr_view *x, const bool *over, const int64_t *index)
{
    int64_t at[MR_MAX_RANK] = {0}, n = 0;
    double sum = 0, squares = 0, hi = -INFINITY, lo = INFINITY;
    for (int i = 0; i < x->desc.rank; i++)
        at[i] = index[i];
    for (;;) {
        double v = mr_view_get(x, at);
        sum += v, squares += v * v, hi = fmax(hi, v), lo = fmin(lo, v), n++;
        int k = x->desc.rank - 1;
        for (; k >= 0; k--) {
            if (!over[k])
                continue;
            if (++at[k] < x->desc.dim[k])
                break;
            at[k] = 0;
        }
        if (k < 0)
            break;
    }
    const double results[] = {sum, sum / (double)n, hi, lo, sqrt(squares)};
    return results[kind];
}

static void compare(mr_reduction kind, const mr_view *x, const bool *over)
{
    int64_t left[MR_MAX_RANK], index[MR_MAX_RANK] = {0};
    int n = 0;
    for (int i = 0; i < x->desc.rank; i++)
        if (!over[i])
            left[n++] = x->desc.dim[i];
    mr_tensor *out;
    CHECK_OK(mr_tensor_new(mr_reduction_dtype(kind, x->desc.dtype), n, left, &out));
    const mr_view *v = mr_tensor_view(out);
    CHECK_OK(mr_view_reduce(kind, x, over, v));
    int64_t wrong = 0;
    for (int64_t e = 0, all = mr_desc_count(&v->desc); e < all; e++) {
        int64_t rest = e, at[MR_MAX_RANK] = {0};
        for (int i = x->desc.rank - 1, k = n - 1; i >= 0; i--) {
            if (over[i])
                continue;
            at[k] = index[i] = rest % x->desc.dim[i];
            rest /= x->desc.dim[i], k--;
        }
        double want = wanted(kind, x, over, index), got = mr_view_get(v, at);
        // roots and quotients are rounded to the result's f32
        wrong += fabs(got - want) > fabs(want) * 1e-7;
    }
    CHECK_INT(wrong, 0);
    mr_tensor_unref(out);
}

static void drawn_cases(void)
{
    for (int round = 0; round < 700; round++) {
        mr_view x = drawn((mr_dtype)(round % MR_DTYPE_COUNT));
        bool over[MR_MAX_RANK] = {0};
        for (int i = 0; i < x.desc.rank; i++)
            over[i] = draw(2);
        compare((mr_reduction)draw(5), &x, over);
    }
}

// longer than one line of the buffer, in both directions
static void long_lines(void)
{
    int64_t dims[2] = {7, 2500};
    mr_view x = {memory, mr_desc_dense(MR_F32, 2, dims)};
    for (int64_t i = 0; i < 7 * 2500; i++)
        ((float *)memory)[i] = (float)(draw(100) - 50);
    for (int axis = 0; axis < 2; axis++) {
        bool over[2] = {axis == 0, axis == 1};
        for (int kind = 0; kind < 5; kind++)
            compare((mr_reduction)kind, &x, over);
    }
}

static double all_of(mr_reduction kind, mr_dtype dtype, const void *values, int64_t n)
{
    mr_view x = {(void *)(uintptr_t)values, mr_desc_dense(dtype, 1, &n)};
    bool over = true;
    double sum;
    int64_t whole;
    mr_dtype to = mr_reduction_dtype(kind, dtype);
    float narrow;
    mr_view out = {to == MR_F64   ? (void *)&sum
                   : to == MR_I64 ? (void *)&whole
                                  : (void *)&narrow,
                   mr_desc_dense(to, 0, NULL)};
    if (!CHECK_OK(mr_view_reduce(kind, &x, &over, &out)))
        return 0;
    return to == MR_F64 ? sum : to == MR_I64 ? (double)whole : (double)narrow;
}

static void edges(void)
{
    // all bits of an i64 count
    const int64_t big[] = {INT64_MAX - 1, INT64_MAX, 5};
    mr_view x = {(void *)(uintptr_t)big, mr_desc_dense(MR_I64, 1, &(int64_t){3})};
    int64_t got;
    mr_view out = {&got, mr_desc_dense(MR_I64, 0, NULL)};
    bool over = true;
    CHECK_OK(mr_view_reduce(MR_REDUCE_MAX, &x, &over, &out));
    CHECK(got == INT64_MAX);
    // nan wins, at any position
    for (int at = 0; at < 3; at++) {
        double values[] = {1, 2, 3};
        values[at] = NAN;
        for (int kind = 0; kind < 5; kind++)
            CHECK(isnan(all_of((mr_reduction)kind, MR_F64, values, 3)));
    }
    const double far[] = {1, -INFINITY, 7};
    CHECK(all_of(MR_REDUCE_MIN, MR_F64, far, 3) == -INFINITY);
    CHECK(all_of(MR_REDUCE_MAX, MR_F64, far, 3) == 7);
    // small values next to large ones are not lost before the end
    const double lost[] = {1e16, 1, 1, -1e16};
    CHECK(all_of(MR_REDUCE_SUM, MR_F64, lost, 4) == 2);
    // an empty tensor
    CHECK(all_of(MR_REDUCE_SUM, MR_F32, far, 0) == 0);
    CHECK(isnan(all_of(MR_REDUCE_MEAN, MR_F32, far, 0)));
    int64_t none = 0;
    mr_view empty = {(void *)(uintptr_t)far, mr_desc_dense(MR_F64, 1, &none)};
    double sum;
    mr_view one = {&sum, mr_desc_dense(MR_F64, 0, NULL)};
    CHECK_FAILS(mr_view_reduce(MR_REDUCE_MAX, &empty, &over, &one), MR_E_SHAPE, "no values");
}

static void failures(void)
{
    int64_t n = 1 << 19, zero = 0;
    mr_desc repeated = {.dtype = MR_F32, .rank = 1, .dim = {n}, .stride = {zero}};
    mr_view x = {memory, repeated};
    float sum;
    mr_view out = {&sum, mr_desc_dense(MR_F32, 0, NULL)};
    bool over = true;
    mr_interrupt_set(true);
    CHECK_FAILS(mr_view_reduce(MR_REDUCE_SUM, &x, &over, &out), MR_E_STOPPED, "stopped");
    mr_interrupt_set(false);
    mr_alloc_fail_at(1);
    CHECK_FAILS(mr_view_reduce(MR_REDUCE_SUM, &x, &over, &out), MR_E_MEMORY, "cannot allocate");
}

int main(void)
{
    drawn_cases();
    long_lines();
    edges();
    failures();
    return check_done();
}
