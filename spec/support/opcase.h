/* Contract cases of ops: "x=[2,7,64]/any f32 -4..4 w=[64] f32 eps=1e-5 axes={0,1} rtol=1e-5"
 * becomes descs, value ranges and attributes; buffers with awkward strides and guards around
 * them. */
#ifndef MR_OPCASE_H
#define MR_OPCASE_H
#include "check.h"
#include "moonreel/op.h"
#include <stdlib.h>

typedef enum { LAY_DENSE, LAY_ROWS, LAY_ANY } lay;
typedef struct case_arg {
    bool given;
    mr_desc desc; /* dense */
    lay kind;
    double lo, hi;
} case_arg;
typedef struct op_case {
    const mr_op *op;
    const char *text;
    case_arg in[MR_MAX_IN];
    mr_attr attr[MR_MAX_ATTR];
    mr_ints ints[MR_MAX_ATTR];
    char names[MR_MAX_ATTR][32];
    int n_attr;
    double rtol;
    bool no_grad;
} op_case;

static uint64_t case_seed = 1;
static inline double case_uniform(void)
{
    return mr_fraction(MR_MIX(case_seed++, 0x0a));
}

static inline bool case_attr(op_case *c, const char *name, const char *value)
{
    if (c->n_attr == MR_MAX_ATTR)
        return false;
    snprintf(c->names[c->n_attr], sizeof c->names[0], "%s", name);
    mr_attr *a = &c->attr[c->n_attr];
    a->name = c->names[c->n_attr];
    if (value[0] == '{') {
        mr_ints *list = &c->ints[c->n_attr];
        for (const char *p = value + 1; *p && *p != '}' && list->n < MR_MAX_RANK;) {
            char *end;
            list->v[list->n++] = strtoll(p, &end, 10);
            p = *end == ',' ? end + 1 : end;
        }
        a->ints = list;
    } else if (mr_dtype_from_name(value) != MR_DTYPE_COUNT) {
        a->i = mr_dtype_from_name(value);
    } else {
        a->f = strcmp(value, "true") == 0 ? 1 : atof(value);
        a->i = (int64_t)a->f;
    }
    c->n_attr++;
    return true;
}

/* False (and a printed reason) when the text is not a case of this op. */
static inline bool case_parse(const mr_op *op, const char *text, op_case *c)
{
    static char buf[1024];
    *c = (op_case){.op = op, .text = text};
    snprintf(buf, sizeof buf, "%s", text);
    case_arg *last = NULL;
    for (char *tok = strtok(buf, " "); tok; tok = strtok(NULL, " ")) {
        char *eq = strchr(tok, '=');
        if (!eq) {
            char *dots = strstr(tok, "..");
            if (!last)
                return false;
            if (dots)
                last->lo = atof(tok), last->hi = atof(dots + 2);
            else if (mr_dtype_from_name(tok) == MR_DTYPE_COUNT)
                return false;
            else {
                last->desc =
                    mr_desc_dense(mr_dtype_from_name(tok), last->desc.rank, last->desc.dim);
                if (!mr_dtype_is_float(last->desc.dtype))
                    last->lo = 0, last->hi = 3;
            }
            continue;
        }
        *eq = 0;
        if (eq[1] != '[') {
            if (strcmp(tok, "rtol") == 0)
                c->rtol = atof(eq + 1);
            else if (strcmp(tok, "grad") == 0)
                c->no_grad = strcmp(eq + 1, "elsewhere") == 0;
            else if (!case_attr(c, tok, eq + 1))
                return false;
            continue;
        }
        last = NULL;
        for (int i = 0; i < mr_op_n_in(op); i++)
            if (strcmp(op->in[i].name, tok) == 0)
                last = &c->in[i];
        if (!last)
            return false;
        int64_t dim[MR_MAX_RANK];
        int rank = 0;
        char *p = eq + 2;
        while (*p && *p != ']' && rank < MR_MAX_RANK) {
            dim[rank++] = strtoll(p, &p, 10);
            if (*p == ',')
                p++;
        }
        *last = (case_arg){true, mr_desc_dense(MR_F32, rank, dim), LAY_DENSE, -1, 1};
        if (strstr(p, "/rows"))
            last->kind = LAY_ROWS;
        if (strstr(p, "/any"))
            last->kind = LAY_ANY;
    }
    for (int i = 0; i < mr_op_n_in(op); i++)
        if (!c->in[i].given && !(op->in[i].flags & MR_OPTIONAL))
            return false;
    return true;
}

/* ---- buffers ---- */

enum { GUARD = 128, CANARY = 0xA5 };
typedef struct buf {
    unsigned char *mem, *touched; /* whole block; touched[i] = byte i belongs to an element */
    size_t bytes;
    mr_view view;
} buf;

/* `d` with memory laid out by `kind`: rows padded, or dimensions in another order with gaps.
 * `which` numbers the arguments of a call. Each gets strides of its own, so that a kernel that
 * reads one argument with the strides of another is detected. */
static inline mr_desc lay_out(const mr_desc *d, lay kind, int which)
{
    mr_desc out = *d;
    if (kind == LAY_DENSE)
        return out;
    int64_t step = kind == LAY_ANY ? 2 + which % 3 : 1;
    for (int k = 0; k < d->rank; k++) {
        // from the last dimension, from the first, or from one in the middle
        int i = kind == LAY_ROWS ? d->rank - 1 - k : (k + which / 3) % d->rank;
        out.stride[i] = step;
        step = step * MR_MAX(d->dim[i], 1) + (k == 0 ? 3 + 2 * which : 0);
        // a row is left out after each group of rows, so that these do not join into one stride
        if (kind == LAY_ROWS && k == 1)
            step += out.stride[i];
    }
    return out;
}

/* Marks the elements, of w bytes, from dimension `at` on, and sets them to nan. */
static inline void touch(buf *b, const mr_desc *d, size_t w, int at, size_t offset)
{
    bool line = at + 1 == d->rank && d->stride[at] == 1; // they are adjacent
    for (int64_t i = 0; at < d->rank && !line && i < d->dim[at]; i++)
        touch(b, d, w, at + 1, offset + (size_t)(i * d->stride[at]));
    if (at < d->rank && !line)
        return;
    size_t first = (size_t)((unsigned char *)b->view.data - b->mem) + offset * w;
    size_t bytes = line ? (size_t)d->dim[at] * w : w;
    memset(b->touched + first, 1, bytes);
    memset(b->mem + first, 0xFF, bytes);
}

/* Elements start off the 64-byte grid unless the layout is dense, and are nan, so that a kernel
 * that reads one before it is written is detected. `which` as in lay_out. */
static inline buf buf_new(const mr_desc *d, lay kind, int which)
{
    buf b = {0};
    mr_desc l = lay_out(d, kind, which);
    size_t lead = GUARD + (kind == LAY_DENSE ? 0 : mr_dtype_bytes(d->dtype));
    b.bytes = (lead + mr_desc_span_bytes(&l) + GUARD + 63) & ~(size_t)63;
    b.mem = aligned_alloc(64, b.bytes), b.touched = calloc(1, b.bytes);
    memset(b.mem, CANARY, b.bytes);
    b.view = (mr_view){b.mem + lead, l};
    touch(&b, &l, mr_dtype_bytes(d->dtype), 0, 0);
    return b;
}
static inline void buf_free(buf *b)
{
    free(b->mem), free(b->touched), *b = (buf){0};
}
/* No byte outside the elements was written. */
static inline bool buf_intact(const buf *b)
{
    unsigned bad = 0;
    for (size_t i = 0; i < b->bytes; i++)
        bad |= !b->touched[i] & (b->mem[i] != CANARY);
    return bad == 0;
}

/* Random values of an argument, dense f64, rounded to its dtype. */
static inline double *case_values(const case_arg *a)
{
    int64_t n = mr_desc_count(&a->desc);
    double *x = malloc(sizeof *x * (size_t)MR_MAX(n, 1));
    for (int64_t i = 0; i < n; i++) {
        // nan and infinite values are kept
        double u = a->hi > a->lo ? a->lo + (a->hi - a->lo) * case_uniform() : a->lo;
        switch (a->desc.dtype) {
        case MR_F64: x[i] = u; break;
        case MR_F32: x[i] = (float)u; break;
        case MR_BF16: x[i] = mr_bf16_to_f32(mr_f32_to_bf16((float)u)); break;
        case MR_F8_E4M3:
        case MR_F8_E5M2:
            x[i] = mr_f8_to_f32(a->desc.dtype, mr_f32_to_f8(a->desc.dtype, (float)u));
            break;
        case MR_BOOL: x[i] = case_uniform() < 0.5; break;
        default: x[i] = floor(a->lo + (a->hi - a->lo + 1) * case_uniform()); break;
        }
    }
    return x;
}

static inline mr_view dense_f64(const mr_desc *d, double *values)
{
    return (mr_view){values, mr_desc_dense(MR_F64, d->rank, d->dim)};
}

/* sqrt(sum (a-b)^2 / sum b^2); equal infinities count as equal, and so do two nan; any other
 * non-finite value counts as 1e30. */
static inline double rel_error(const double *a, const double *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if ((isinf(a[i]) && a[i] == b[i]) || (isnan(a[i]) && isnan(b[i])))
            continue;
        if (!isfinite(a[i]) || !isfinite(b[i]))
            return 1e30;
        diff += (a[i] - b[i]) * (a[i] - b[i]), norm += b[i] * b[i];
    }
    return diff == 0 ? 0 : sqrt(diff / MR_MAX(norm, 1e-30));
}
#endif
