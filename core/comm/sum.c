/* comm: sums the contributions of ranks in rank order. Floats are added in f32, f64 in f64, and
 * rounded once. Ref: parallelism 1, 10. Licence: Apache-2.0 */
#include "comm/room.h"

#include <math.h>

enum { BLOCK = 512 }; /* elements whose sums stay in the L1 cache */

#define LOAD_F32(p, i)      (((const float *)(p))[i])
#define LOAD_F64(p, i)      (((const double *)(p))[i])
#define LOAD_BF16(p, i)     mr_bf16_to_f32(((const uint16_t *)(p))[i])
#define LOAD_I64(p, i)      (((const uint64_t *)(p))[i])
#define LOAD_I32(p, i)      (((const uint32_t *)(p))[i])
#define STORE_F32(p, i, x)  (((float *)(p))[i] = (x))
#define STORE_F64(p, i, x)  (((double *)(p))[i] = (x))
#define STORE_BF16(p, i, x) (((uint16_t *)(p))[i] = mr_f32_to_bf16(x))
#define STORE_I64(p, i, x)  (((uint64_t *)(p))[i] = (x))
#define STORE_I32(p, i, x)  (((uint32_t *)(p))[i] = (x))

// NaN stays; of equal values the first is kept
#define MAX_FLOAT(a, b) ((b) > (a) || isnan(b) ? (b) : (a))
#define MAX_I64(a, b)   ((int64_t)(b) > (int64_t)(a) ? (b) : (a))
#define MAX_I32(a, b)   ((int32_t)(b) > (int32_t)(a) ? (b) : (a))

/* name(kind, parts, n, count, out); integer sums wrap around */
#define REDUCTION(name, type, LOAD, STORE, MAX)                                                    \
    static void name(mr_comm_kind kind, const void *const *parts, int n, int64_t count, void *out) \
    {                                                                                              \
        type sum[BLOCK];                                                                           \
        for (int64_t from = 0; from < count; from += BLOCK) {                                      \
            int64_t some = MR_MIN(count - from, (int64_t)BLOCK);                                   \
            for (int64_t i = 0; i < some; i++)                                                     \
                sum[i] = LOAD(parts[0], from + i);                                                 \
            for (int r = 1; r < n; r++) {                                                          \
                const void *x = parts[r];                                                          \
                if (kind == MR_COMM_SUM)                                                           \
                    for (int64_t i = 0; i < some; i++)                                             \
                        sum[i] += LOAD(x, from + i);                                               \
                else                                                                               \
                    for (int64_t i = 0; i < some; i++)                                             \
                        sum[i] = MAX(sum[i], LOAD(x, from + i));                                   \
            }                                                                                      \
            for (int64_t i = 0; i < some; i++)                                                     \
                STORE(out, from + i, sum[i]);                                                      \
        }                                                                                          \
    }
REDUCTION(f64_f64, double, LOAD_F64, STORE_F64, MAX_FLOAT)
REDUCTION(f32_f32, float, LOAD_F32, STORE_F32, MAX_FLOAT)
REDUCTION(f32_bf16, float, LOAD_F32, STORE_BF16, MAX_FLOAT)
REDUCTION(bf16_f32, float, LOAD_BF16, STORE_F32, MAX_FLOAT)
REDUCTION(bf16_bf16, float, LOAD_BF16, STORE_BF16, MAX_FLOAT)
REDUCTION(i64_i64, uint64_t, LOAD_I64, STORE_I64, MAX_I64)
REDUCTION(i32_i32, uint32_t, LOAD_I32, STORE_I32, MAX_I32)

typedef void reduction(mr_comm_kind kind, const void *const *parts, int n, int64_t count,
                       void *out);
static reduction *const reductions[MR_DTYPE_COUNT][MR_DTYPE_COUNT] = {
    [MR_F64][MR_F64] = f64_f64,   [MR_F32][MR_F32] = f32_f32,     [MR_F32][MR_BF16] = f32_bf16,
    [MR_BF16][MR_F32] = bf16_f32, [MR_BF16][MR_BF16] = bf16_bf16, [MR_I64][MR_I64] = i64_i64,
    [MR_I32][MR_I32] = i32_i32,
};

mr_status comm_can_sum(mr_dtype dtype, mr_dtype to)
{
    if (dtype < MR_DTYPE_COUNT && to < MR_DTYPE_COUNT && reductions[dtype][to])
        return MR_OK;
    if (dtype < MR_DTYPE_COUNT && reductions[dtype][dtype])
        return mr_fail(MR_E_USAGE, "a reduction of %s cannot return %s; try: %s",
                       mr_dtype_name(dtype), mr_dtype_name(to), mr_dtype_name(dtype));
    return mr_fail(MR_E_USAGE,
                   "%s has no sum over ranks: expected f64, f32, bf16, i64 or i32; try: a copy in "
                   "one of them",
                   mr_dtype_name(dtype));
}

void comm_sum(mr_comm_kind kind, mr_dtype dtype, const void *const *parts, int n, int64_t count,
              mr_dtype to, void *out)
{
    reductions[dtype][to](kind, parts, n, count, out);
}

const char *mr_comm_kind_name(mr_comm_kind kind)
{
    static const char *const names[MR_COMM_KIND_COUNT] = {"sum", "max"};
    return (unsigned)kind < MR_COMM_KIND_COUNT ? names[kind] : "?";
}
