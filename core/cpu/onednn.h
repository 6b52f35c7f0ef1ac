/* onednn: one face for oneDNN 2.6 and 3.x. Memory descriptions are plain structs in 2.x and owned
 * handles in 3.x; primitive descriptors take an operation descriptor in 2.x and arguments in 3.x;
 * the sum post-op has more arguments in 3.x. All else is the same. Licence: Apache-2.0 */
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

/* A description with strides in elements; strides NULL lets the library choose the layout.
 * dims arrays have 12 entries because the 2.x prototypes ask for them. */
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

static inline onednn_md onednn_query_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

#endif
