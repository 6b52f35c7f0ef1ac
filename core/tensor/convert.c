/* tensor: reads, writes and converts elements of any dtype. Licence: Apache-2.0 */
#include "moonreel/tensor.h"

#include <string.h>

static double load(mr_dtype dtype, const char *p)
{
    double f64;
    float f32;
    uint16_t bf16;
    int64_t i64;
    int32_t i32;
    switch (dtype) {
    case MR_F64: return memcpy(&f64, p, 8), f64;
    case MR_F32: return memcpy(&f32, p, 4), f32;
    case MR_BF16: return memcpy(&bf16, p, 2), mr_bf16_to_f32(bf16);
    case MR_I64: return memcpy(&i64, p, 8), (double)i64;
    case MR_I32: return memcpy(&i32, p, 4), i32;
    case MR_U8: return *(const unsigned char *)p;
    case MR_BOOL: return *p != 0;
    case MR_F8_E4M3:
    case MR_F8_E5M2: return mr_f8_to_f32(dtype, *(const uint8_t *)p);
    case MR_DTYPE_COUNT: break;
    }
    return 0;
}

static int64_t load_int(mr_dtype dtype, const char *p)
{
    int64_t x;
    return dtype == MR_I64 ? (memcpy(&x, p, 8), x) : (int64_t)load(dtype, p);
}

static void store(mr_dtype dtype, char *p, double x)
{
    float f32 = (float)x;
    uint16_t bf16;
    // in C a value out of range converts to an undefined one: clamp; NaN becomes 0
    double i = x != x ? 0 : x;
    int64_t i64 = i >= 0x1p63 ? INT64_MAX : i < -0x1p63 ? INT64_MIN : (int64_t)i;
    int32_t i32 = i >= 0x1p31 ? INT32_MAX : i < -0x1p31 ? INT32_MIN : (int32_t)i;
    switch (dtype) {
    case MR_F64: memcpy(p, &x, 8); break;
    case MR_F32: memcpy(p, &f32, 4); break;
    case MR_BF16: bf16 = mr_f32_to_bf16(f32), memcpy(p, &bf16, 2); break;
    case MR_I64: memcpy(p, &i64, 8); break;
    case MR_I32: memcpy(p, &i32, 4); break;
    case MR_U8: *(unsigned char *)p = (unsigned char)(i < 0 ? 0 : i > 255 ? 255 : i); break;
    case MR_BOOL: *p = x != 0; break;
    case MR_F8_E4M3:
    case MR_F8_E5M2: *(uint8_t *)p = mr_f32_to_f8(dtype, f32); break;
    case MR_DTYPE_COUNT: break;
    }
}

static int64_t element(const mr_desc *d, const int64_t *index)
{
    int64_t at = 0;
    for (int i = 0; i < d->rank; i++)
        at += index[i] * d->stride[i];
    return at;
}

double mr_view_get(const mr_view *v, const int64_t *index)
{
    return load(v->desc.dtype, (const char *)v->data + element(&v->desc, index) *
                                                           (int64_t)mr_dtype_bytes(v->desc.dtype));
}

void mr_view_set(const mr_view *v, const int64_t *index, double x)
{
    store(v->desc.dtype,
          (char *)v->data + element(&v->desc, index) * (int64_t)mr_dtype_bytes(v->desc.dtype), x);
}

/* Copy n elements of the innermost dimension. */
static void copy_run(mr_dtype od, char *o, int64_t os, mr_dtype id, const char *i, int64_t is,
                     int64_t n)
{
    size_t ob = mr_dtype_bytes(od), ib = mr_dtype_bytes(id);
    if (od == id && os == 1 && is == 1) {
        memmove(o, i, (size_t)n * ob);
        return;
    }
    if (od == MR_F32 && id == MR_BF16 && os == 1 && is == 1) {
        const uint16_t *src = (const void *)i;
        float *dst = (void *)o;
        for (int64_t k = 0; k < n; k++)
            dst[k] = mr_bf16_to_f32(src[k]);
        return;
    }
    if (od == MR_BF16 && id == MR_F32 && os == 1 && is == 1) {
        const float *src = (const void *)i;
        uint16_t *dst = (void *)o;
        for (int64_t k = 0; k < n; k++)
            dst[k] = mr_f32_to_bf16(src[k]);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        char *to = o + k * os * (int64_t)ob;
        const char *from = i + k * is * (int64_t)ib;
        if (od == id)
            memmove(to, from, ob);
        else if (od == MR_I64) {
            int64_t x = load_int(id, from);
            if (mr_dtype_is_float(id))
                store(od, to, load(id, from));
            else
                memcpy(to, &x, 8);
        } else
            store(od, to, load(id, from));
    }
}

enum { PIECE = 1 << 20, STRIDED_PIECE = 1 << 16 };

/* Copy n elements with the strides `os` and `is`, in pieces: Ctrl-C is checked between them. */
static mr_status copy_line(mr_dtype od, char *o, int64_t os, mr_dtype id, const char *i, int64_t is,
                           int64_t n)
{
    int64_t step = os == 1 && is == 1 ? PIECE : STRIDED_PIECE;
    for (int64_t at = 0; at < n; at += step) {
        copy_run(od, o + at * os * (int64_t)mr_dtype_bytes(od), os, id,
                 i + at * is * (int64_t)mr_dtype_bytes(id), is, MR_MIN(n - at, step));
        if (n > step)
            MR_TRY(mr_interrupt_check());
    }
    return MR_OK;
}

mr_status mr_view_copy(const mr_view *out, const mr_view *in)
{
    if (!mr_desc_same_shape(&out->desc, &in->desc)) {
        char a[128], b[128];
        return mr_fail(
            MR_E_SHAPE,
            "cannot copy %s into %s: expected the same shape; try: reshape or slice one of them",
            mr_desc_text(&in->desc, a, sizeof a), mr_desc_text(&out->desc, b, sizeof b));
    }
    const mr_desc *o = &out->desc, *i = &in->desc;
    if (mr_desc_count(o) == 0)
        return MR_OK;
    if (mr_desc_is_dense(o) && mr_desc_is_dense(i) && o->dtype == i->dtype)
        return mr_interrupt_copy(out->data, in->data, mr_desc_span_bytes(o));
    if (mr_desc_is_dense(o) && mr_desc_is_dense(i))
        return copy_line(o->dtype, out->data, 1, i->dtype, in->data, 1, mr_desc_count(o));
    // `index` counts over all dimensions but the last
    int last = o->rank - 1;
    int64_t index[MR_MAX_RANK] = {0}, seen = 0, n = last < 0 ? 1 : o->dim[last];
    for (;;) {
        MR_TRY(copy_line(
            o->dtype, (char *)out->data + element(o, index) * (int64_t)mr_dtype_bytes(o->dtype),
            last < 0 ? 1 : o->stride[last], i->dtype,
            (const char *)in->data + element(i, index) * (int64_t)mr_dtype_bytes(i->dtype),
            last < 0 ? 1 : i->stride[last], n));
        if ((seen += n) >= STRIDED_PIECE) {
            MR_TRY(mr_interrupt_check());
            seen = 0;
        }
        int k = last - 1;
        for (; k >= 0; k--) {
            if (++index[k] < o->dim[k])
                break;
            index[k] = 0;
        }
        if (k < 0)
            return MR_OK;
    }
}
