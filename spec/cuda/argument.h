/* A kernel argument on the device: its layout, which of its bytes are elements, and which bytes a
 * kernel wrote. */
#ifndef MR_ARGUMENT_H
#define MR_ARGUMENT_H
#include "device.h"
#include "opcase.h"

enum { GAP = 0xA5, UNWRITTEN = 0xFF };
typedef struct argument {
    unsigned char *at;           // device address
    unsigned char *mem, *inside; // the host's copy; inside[i]: byte i belongs to an element
    size_t bytes, lead;          // lead: bytes before the first element
    mr_view view;                // view of the host's copy
    /* Spread: positions along `far_axis` (counted from 1) are `pitch` bytes apart on the device.
     * Each position has its pieces, in the order of the host's copy. 0: not spread. */
    size_t piece, pitch;
    int far_axis;
} argument;

static void mark(argument *a, int at, int64_t element)
{
    const mr_desc *d = &a->view.desc;
    if (at < d->rank) {
        for (int64_t i = 0; i < d->dim[at]; i++)
            mark(a, at + 1, element + i * d->stride[at]);
        return;
    }
    size_t w = mr_dtype_bytes(d->dtype);
    memset(a->inside + ((unsigned char *)a->view.data - a->mem) + (size_t)element * w, 1, w);
}

// the layout of the arguments of a run
typedef struct variant {
    const char *name;
    unsigned seed;
    bool late, strided, alias;
    // its elements have the layout of an earlier run, whose accesses were counted
    bool counted;
    // dense rows with gaps, each at a multiple of 16 elements
    bool apart;
    /* In addition, one argument, `only` (counted from 1, inputs first), does not allow 16-byte
     * pieces, for exactly one reason: its row stride is `odd` elements larger, or its columns have
     * gaps if any stride is allowed (`wide`), or it starts `off` elements after a 16-byte boundary.
     */
    bool wide;
    int odd, off, only;
    /* Counted from 1: the axis along which an argument is spread, so that its last position is 2^31
     * elements after the first, if its layout is free. */
    int far;
} variant;

static mr_desc rows_apart(const mr_desc *d, bool wide, int odd, int which)
{
    mr_desc l = *d;
    if (wide && d->rank > 0)
        l.stride[d->rank - 1] = 16;
    for (int i = d->rank - 2; i >= 0; i--)
        l.stride[i] =
            (l.stride[i + 1] * MR_MAX(d->dim[i + 1], 1) + 31 + 16 * which) / 16 * 16 + odd;
    return l;
}

// can an argument with this layout be spread along the axis?
static bool can_spread(const mr_desc *d, lay kind, int axis)
{
    return kind != LAY_DENSE && axis < d->rank - 1 && d->dim[axis] > 1 && mr_desc_count(d) > 0;
}

/* Memory for a dense host copy whose positions along one axis are far apart on the device. If there
 * is not enough memory, the argument stays dense. */
static void spread(argument *a, const mr_desc *d, int axis)
{
    const size_t w = mr_dtype_bytes(d->dtype), places = (size_t)d->dim[axis],
                 place = a->bytes / places;
    const int64_t stride = ((((int64_t)1 << 31) / (d->dim[axis] - 1) + 63) & ~(int64_t)63) + 64;
    a->pitch = (size_t)stride * w;
    a->piece = w;
    for (int i = axis + 1; i < d->rank; i++)
        a->piece *= (size_t)d->dim[i];
    a->at = (unsigned char *)device_alloc_far((places - 1) * a->pitch + place);
    a->far_axis = a->at ? axis + 1 : 0;
    if (!a->at)
        a->at = (unsigned char *)device_alloc(a->bytes);
    for (size_t i = 0; a->far_axis && i < places; i++)
        device_open(a->at + i * a->pitch, place);
}

// device address of a byte of the host's copy
static unsigned char *there(const argument *a, size_t i)
{
    if (!a->far_axis)
        return a->at + i;
    const size_t places = (size_t)a->view.desc.dim[a->far_axis - 1], piece = i / a->piece;
    return a->at + piece % places * a->pitch + piece / places * a->piece + i % a->piece;
}

static void put(argument *a)
{
    const size_t piece = a->far_axis ? a->piece : a->bytes;
    for (size_t i = 0; i < a->bytes; i += piece)
        device_put(there(a, i), a->mem + i, piece);
}

/* Elements are unwritten, gaps are filled. A layout that is not dense starts off a 16-byte
 * boundary, unless only its rows have gaps. */
static argument argument_new(const mr_desc *d, lay kind, const variant *v, int which)
{
    argument a = {0};
    const bool far = v->far && can_spread(d, kind, v->far - 1),
               apart = v->apart && kind != LAY_DENSE, single = v->only == which + 1;
    kind = v->far ? LAY_DENSE : kind;
    mr_desc l =
        apart ? rows_apart(d, single && v->wide && kind == LAY_ANY, single ? v->odd : 0, which)
              : lay_out(d, kind, which);
    const int off = single ? v->off : kind != LAY_DENSE && !apart;
    size_t lead = (size_t)off * mr_dtype_bytes(d->dtype);
    a.bytes = lead + mr_desc_span_bytes(&l);
    a.lead = lead;
    if (far)
        spread(&a, d, v->far - 1);
    else
        a.at = device_alloc(a.bytes);
    a.mem = malloc(a.bytes + 1);
    a.inside = calloc(1, a.bytes + 1);
    a.view = (mr_view){a.mem + lead, l};
    if (mr_desc_count(&l) > 0)
        mark(&a, 0, 0);
    for (size_t i = 0; i < a.bytes; i++)
        a.mem[i] = a.inside[i] ? UNWRITTEN : GAP;
    put(&a);
    return a;
}

static void argument_free(argument *a)
{
    free(a->mem);
    free(a->inside);
}

// as a kernel argument
static mr_view on_device(const argument *a)
{
    mr_view v = {a->at + a->lead, a->view.desc};
    const int axis = a->far_axis - 1;
    for (int i = 0; i < axis; i++)
        v.desc.stride[i] /= v.desc.dim[axis];
    if (axis >= 0)
        v.desc.stride[axis] = (int64_t)(a->pitch / mr_dtype_bytes(v.desc.dtype));
    return v;
}

static void argument_set(argument *a, const double *values)
{
    mr_view from = dense_f64(&a->view.desc, (double *)values);
    mr_view_copy(&a->view, &from);
    put(a);
    for (size_t i = 0; i < a->bytes; i++)
        if (a->inside[i])
            device_wrote(there(a, i), 1);
}

static void argument_get(argument *a)
{
    const size_t piece = a->far_axis ? a->piece : a->bytes;
    for (size_t i = 0; a->at && i < a->bytes; i += piece)
        device_get(a->mem + i, there(a, i), piece);
}

static bool gaps_intact(const argument *a)
{
    for (size_t i = 0; i < a->bytes; i++)
        if (!a->inside[i] && a->mem[i] != GAP)
            return false;
    return true;
}

static bool elements_written(const argument *a)
{
    for (size_t i = 0; i < a->bytes; i++)
        if (a->inside[i] && !device_written(there(a, i), 1))
            return false;
    return true;
}

static int64_t element_bytes(const argument *a)
{
    int64_t n = 0;
    for (size_t i = 0; i < a->bytes; i++)
        n += a->inside[i];
    return n;
}

#endif
