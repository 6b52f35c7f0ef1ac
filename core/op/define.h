/* define: what op files share to define an op: shape checks for `infer`, a gradient of one node,
 * and a whole elementwise op from one formula. Licence: Apache-2.0 */
#ifndef MR_DEFINE_H
#define MR_DEFINE_H

#include "cpu/cpu.h"
#include "cpu/vec.h"
#include "moonreel/graph.h"

#define FORMULA VF_INLINE
#include "op/formula.h"

#define MR_OP_FN __attribute__((unused)) static inline

/* ---- infer ---- */

MR_OP_FN mr_status mr_infer_rank(const mr_desc *d, const char *name, int rank)
{
    char text[128];
    if (d->rank == rank)
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "%s is %s, expected rank %d", name,
                   mr_desc_text(d, text, sizeof text), rank);
}

MR_OP_FN mr_status mr_infer_same_shape(const mr_desc *a, const char *a_name, const mr_desc *b,
                                       const char *b_name)
{
    char ta[128], tb[128];
    if (mr_desc_same_shape(a, b))
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "%s is %s, %s is %s; expected equal shapes", a_name,
                   mr_desc_text(a, ta, sizeof ta), b_name, mr_desc_text(b, tb, sizeof tb));
}

MR_OP_FN mr_status mr_infer_same(const mr_desc *a, const char *a_name, const mr_desc *b,
                                 const char *b_name)
{
    char ta[128], tb[128];
    if (mr_desc_same_shape(a, b) && a->dtype == b->dtype)
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "%s is %s, %s is %s; expected equal shapes and dtypes", a_name,
                   mr_desc_text(a, ta, sizeof ta), b_name, mr_desc_text(b, tb, sizeof tb));
}

MR_OP_FN void mr_infer_out(mr_infer *c, int out, mr_dtype dtype, int rank, const int64_t *dim)
{
    c->out[out] = mr_desc_dense(dtype, rank, dim);
}

MR_OP_FN void mr_infer_out_like(mr_infer *c, int out, const mr_desc *d)
{
    mr_infer_out(c, out, d->dtype, d->rank, d->dim);
}

/* infer for an op with one output, where all inputs and the output have one shape and float
 * dtype */
MR_OP_FN mr_status mr_infer_like(mr_infer *c)
{
    static const char *const names[] = {"the first argument", "the second", "the third",
                                        "the fourth"};
    for (int i = 1; i < c->n_in; i++)
        MR_TRY(mr_infer_same(c->in[0], names[0], c->in[i], names[i]));
    mr_infer_out_like(c, 0, c->in[0]);
    return MR_OK;
}

/* ---- grad ---- */

/* din[i] = op(in...), one output, no attributes. */
#define mr_grad_node(ctx, i, op, ...)                                                              \
    mr_grad_op((ctx), (op), MR_NO_ATTRS, (const mr_ref[]){__VA_ARGS__},                            \
               (int)MR_COUNT(((const mr_ref[]){__VA_ARGS__})), &(ctx)->din[i])

/* ---- chunks ---- */

/* MR_CHUNK(id, each, i): defines id, a body for mr_cpu_for over a call. It calls the inline
 * function each(call, begin, end, dtype), compiled once for each dtype of input i. */
#define MR_CHUNK(id, each, i)                                                                      \
    static void id(void *user, int64_t begin, int64_t end, int worker)                             \
    {                                                                                              \
        const mr_call *call = user;                                                                \
        (void)worker;                                                                              \
        if (call->in[i].desc.dtype == MR_BF16)                                                     \
            each(call, begin, end, MR_BF16);                                                       \
        else                                                                                       \
            each(call, begin, end, MR_F32);                                                        \
    }

/* ---- elementwise ops ---- */

/* MR_ELEMENTWISE(id, n, vec_expr, naive_expr): defines the kernel and the naive kernel (id_naive)
 * of y = expr over n inputs. vec_expr sees vectors x[0] to x[n-1], naive_expr sees doubles of the
 * same name. Both see `attr`, the attributes of the op. Inputs and output share one dtype and may
 * have any strides. */
#define MR_ELEMENTWISE(id, n, vec_expr, naive_expr)                                                \
    VF_INLINE void id##_at(void *const *p, const int64_t *at, int64_t i, int64_t m,                \
                           const int64_t *step, const void *attr, mr_dtype t)                      \
    {                                                                                              \
        (void)attr;                                                                                \
        vf x[n];                                                                                   \
        for (int a = 0; a < n; a++)                                                                \
            x[a] = vf_ldx(p[a + 1], at[a + 1] + i * step[a + 1], step[a + 1], m, t);               \
        vf_stx(p[0], at[0] + i * step[0], step[0], (vec_expr), m, t);                              \
    }                                                                                              \
    VF_INLINE void id##_run(void *const *p, const int64_t *at, int64_t count, const int64_t *step, \
                            const void *attr, mr_dtype t)                                          \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + VF_LANES <= count; i += VF_LANES)                                               \
            id##_at(p, at, i, VF_LANES, step, attr, t);                                            \
        if (i < count)                                                                             \
            id##_at(p, at, i, count - i, step, attr, t);                                           \
    }                                                                                              \
    static void id##_part(void *user, const int64_t *at, int64_t count, const int64_t *step)       \
    {                                                                                              \
        static const int64_t ones[MR_LOOP_ARGS] = {1, 1, 1, 1};                                    \
        const mr_call *call = user;                                                                \
        void *p[MR_LOOP_ARGS] = {call->out[0].data};                                               \
        bool plain = step[0] == 1;                                                                 \
        for (int a = 0; a < n; a++)                                                                \
            p[a + 1] = call->in[a].data, plain &= step[a + 1] == 1;                                \
        if (call->out[0].desc.dtype == MR_BF16) {                                                  \
            if (plain)                                                                             \
                id##_run(p, at, count, ones, call->attr, MR_BF16);                                 \
            else                                                                                   \
                id##_run(p, at, count, step, call->attr, MR_BF16);                                 \
        } else {                                                                                   \
            if (plain)                                                                             \
                id##_run(p, at, count, ones, call->attr, MR_F32);                                  \
            else                                                                                   \
                id##_run(p, at, count, step, call->attr, MR_F32);                                  \
        }                                                                                          \
    }                                                                                              \
    MR_KERNEL(id)                                                                                  \
    {                                                                                              \
        mr_loop_call(call, 0, n, id##_part);                                                       \
        return MR_OK;                                                                              \
    }                                                                                              \
    MR_OP_FN mr_status id##_naive(const mr_call *call)                                             \
    {                                                                                              \
        const void *attr = call->attr;                                                             \
        (void)attr;                                                                                \
        double *y = call->out[0].data;                                                             \
        for (int64_t i = 0, end = mr_desc_count(&call->out[0].desc); i < end; i++) {               \
            double x[n];                                                                           \
            for (int a = 0; a < n; a++)                                                            \
                x[a] = ((const double *)call->in[a].data)[i];                                      \
            y[i] = (naive_expr);                                                                   \
        }                                                                                          \
        return MR_OK;                                                                              \
    }

#endif
