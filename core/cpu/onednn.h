/* onednn: one interface for oneDNN 2.6 and 3.x. Memory descriptors are plain structs in 2.x and
 * owned handles in 3.x. Primitive descriptors take an operation descriptor in 2.x and arguments in
 * 3.x. The sum post-op has more arguments in 3.x. Licence: Apache-2.0 */
#ifndef MR_ONEDNN_H
#define MR_ONEDNN_H

#include "moonreel/tensor.h"

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_md; /* lent */
typedef dnnl_memory_desc_t onednn_own_md;   /* owned; NULL when unused */
#define ONEDNN_MD(own) (*(own))
static inline void onednn_md_free(onednn_own_md *md)
{
    if (*md)
        dnnl_memory_desc_destroy(*md);
    *md = NULL;
}
static inline bool onednn_md_same(onednn_md a, onednn_md b)
{
    return dnnl_memory_desc_equal(a, b);
}
static inline dnnl_status_t onednn_md_clone(onednn_own_md *out, onednn_md from)
{
    return dnnl_memory_desc_clone(out, from);
}
#else
typedef const dnnl_memory_desc_t *onednn_md;
typedef dnnl_memory_desc_t onednn_own_md;
#define ONEDNN_MD(own) (own)
static inline void onednn_md_free(onednn_own_md *md)
{
    (void)md;
}
static inline bool onednn_md_same(onednn_md a, onednn_md b)
{
    return dnnl_memory_desc_equal(a, b);
}
static inline dnnl_status_t onednn_md_clone(onednn_own_md *out, onednn_md from)
{
    return *out = *from, dnnl_success;
}
#endif

/* A memory descriptor with strides in elements; with strides NULL the library chooses the format.
 * dims arrays have 12 entries because the 2.x prototypes require it. */
static inline dnnl_status_t onednn_md_init(onednn_own_md *md, int rank, const int64_t *dim,
                                           const int64_t *stride, dnnl_data_type_t type)
{
    dnnl_dims_t d = {0}, s = {0};
    for (int i = 0; i < rank; i++)
        d[i] = dim[i], s[i] = stride ? stride[i] : 0;
#if DNNL_VERSION_MAJOR >= 3
    if (!stride)
        return dnnl_memory_desc_create_with_tag(md, rank, d, type, dnnl_format_tag_any);
    return dnnl_memory_desc_create_with_strides(md, rank, d, type, s);
#else
    if (!stride)
        return dnnl_memory_desc_init_by_tag(md, rank, d, type, dnnl_format_tag_any);
    return dnnl_memory_desc_init_by_strides(md, rank, d, type, s);
#endif
}

/* The CPU engine of oneDNN, created at the first call; NULL if that fails. MOONREEL_ISA limits the
 * library's instruction set as it does that of moonreel's kernels. Threads: any. */
dnnl_engine_t onednn_engine(void);
/* Set the team size of oneDNN, which is the OpenMP setting of the calling thread. Returns the old
 * one. */
int onednn_team(int threads);
/* A primitive that copies a matrix or volume into another format; `add`: it adds to the target. */
dnnl_status_t onednn_reorder(dnnl_primitive_t *out, onednn_md from, onednn_md to, bool add);
/* Execute a primitive over at most 5 operands; those without data are skipped. Any thread can call
 * it, and it returns at the end. It keeps no memory handles: handles for every product and worker
 * took 1.3 MB in a program of the demo. */
typedef struct onednn_operand {
    int arg; /* DNNL_ARG_* */
    const void *data;
} onednn_operand;
dnnl_status_t onednn_run(dnnl_primitive_t primitive, const onednn_operand *operands, size_t n);

static inline dnnl_data_type_t onednn_type(mr_dtype t)
{
    return t == MR_BF16 ? dnnl_bf16 : dnnl_f32;
}

static inline dnnl_status_t onednn_add_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1.0f);
#endif
}

static inline dnnl_status_t onednn_matmul(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                          onednn_md a, onednn_md b, onednn_md bias, onednn_md c,
                                          dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(pd, engine, a, b, bias, c, attr);
#else
    dnnl_matmul_desc_t op;
    dnnl_status_t st = dnnl_matmul_desc_init(&op, a, b, bias, c);
    return st != dnnl_success ? st : dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
#endif
}

/* One convolution. Channels are the second dimension, lengths and kernel follow. kind: 0 forward, 1
 * gradient of x, 2 gradient of w. */
typedef struct onednn_conv_args {
    onednn_md x, w, bias, y;
    dnnl_dims_t stride, before, after;
} onednn_conv_args;

#if DNNL_VERSION_MAJOR >= 3
static inline dnnl_status_t onednn_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, int kind,
                                        const onednn_conv_args *a, dnnl_primitive_attr_t attr)
{
    dnnl_dims_t dense = {0};
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t st = dnnl_convolution_forward_primitive_desc_create(
        kind ? &hint : pd, engine, kind ? dnnl_forward_training : dnnl_forward_inference,
        dnnl_convolution_direct, a->x, a->w, a->bias, a->y, a->stride, dense, a->before, a->after,
        kind ? NULL : attr);
    if (st != dnnl_success || !kind)
        return st;
    if (kind == 1)
        st = dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, a->x, a->w, a->y, a->stride, dense, a->before,
            a->after, hint, attr);
    else
        st = dnnl_convolution_backward_weights_primitive_desc_create(
            pd, engine, dnnl_convolution_direct, a->x, a->w, NULL, a->y, a->stride, dense,
            a->before, a->after, hint, attr);
    dnnl_primitive_desc_destroy(hint);
    return st;
}
#else
static inline dnnl_status_t onednn_conv(dnnl_primitive_desc_t *pd, dnnl_engine_t engine, int kind,
                                        const onednn_conv_args *a, dnnl_primitive_attr_t attr)
{
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t hint = NULL;
    // the forward hint needs weights of the activations' dtype; the gradient has f32 weights
    onednn_own_md like = *a->w;
    if (kind == 2)
        like.data_type = a->x->data_type;
    dnnl_status_t st = dnnl_convolution_forward_desc_init(
        &d, kind ? dnnl_forward_training : dnnl_forward_inference, dnnl_convolution_direct, a->x,
        &like, a->bias, a->y, a->stride, a->before, a->after);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(kind ? &hint : pd, &d, kind ? NULL : attr, engine, NULL);
    if (st != dnnl_success || !kind)
        return st;
    if (kind == 1)
        st = dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, a->x, a->w, a->y,
                                                      a->stride, a->before, a->after);
    else
        st = dnnl_convolution_backward_weights_desc_init(
            &d, dnnl_convolution_direct, a->x, a->w, NULL, a->y, a->stride, a->before, a->after);
    if (st == dnnl_success)
        st = dnnl_primitive_desc_create(pd, &d, attr, engine, hint);
    dnnl_primitive_desc_destroy(hint);
    return st;
}
#endif

static inline onednn_md onednn_query_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

#endif
