/* patch: what patchify and unpatchify, each the adjoint of the other, share. Licence: Apache-2.0
 *
 * A token (t', h'*W'+w') holds the C*pt*ph*pw values of its patch: channel first (c, pt, ph, pw),
 * the order of a convolution weight, or channel last (pt, ph, pw, c), the order of the model's
 * output. Cells beyond T, H, W are zeros on the way in and dropped on the way out. Moves each byte
 * once. */
#ifndef MR_OP_PATCH_H
#define MR_OP_PATCH_H

#include "op/row.h"

typedef struct patch_attrs {
    int64_t pt, ph, pw;
    bool channel_last;
    mr_ints dims;
} patch_attrs;

typedef struct patch_walk {
    char *tokens, *cells; /* cells [B, C, T, H, W] */
    int64_t b, c, t, h, w, pt, ph, pw;
    size_t bytes; /* of one element */
    bool channel_last, to_tokens;
} patch_walk;

MR_ROW_FN int64_t patch_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Rows of tokens (b, t', h'), each independent. */
VF_INLINE void patch_rows(const patch_walk *p, int64_t begin, int64_t end, size_t w_bytes)
{
    int64_t nt = patch_ceil(p->t, p->pt), nh = patch_ceil(p->h, p->ph),
            nw = patch_ceil(p->w, p->pw);
    int64_t volume = p->pt * p->ph * p->pw;
    for (int64_t row = begin; row < end; row++) {
        int64_t b = row / (nt * nh), t = row / nh % nt, h = row % nh;
        for (int64_t x = 0; x < nw; x++)
            for (int64_t c = 0; c < p->c; c++)
                for (int64_t k = 0; k < volume; k++) {
                    int64_t ct = t * p->pt + k / (p->ph * p->pw),
                            ch = h * p->ph + k / p->pw % p->ph, cw = x * p->pw + k % p->pw;
                    int64_t inner = p->channel_last ? k * p->c + c : c * volume + k;
                    char *token =
                        p->tokens + ((row * nw + x) * p->c * volume + inner) * (int64_t)w_bytes;
                    bool inside = ct < p->t && ch < p->h && cw < p->w;
                    char *cell =
                        p->cells +
                        ((((b * p->c + c) * p->t + ct) * p->h + ch) * p->w + cw) * (int64_t)w_bytes;
                    if (!p->to_tokens) {
                        if (inside)
                            memcpy(cell, token, w_bytes);
                    } else if (inside)
                        memcpy(token, cell, w_bytes);
                    else
                        memset(token, 0, w_bytes);
                }
    }
}

__attribute__((unused)) static void patch_body(void *user, int64_t begin, int64_t end, int worker)
{
    const patch_walk *p = user;
    (void)worker;
    if (p->bytes == 2)
        patch_rows(p, begin, end, 2);
    else if (p->bytes == 4)
        patch_rows(p, begin, end, 4);
    else
        patch_rows(p, begin, end, p->bytes);
}

MR_ROW_FN mr_status patch_run(const mr_call *call, const mr_view *cells, const mr_view *tokens,
                              bool to_tokens)
{
    const patch_attrs *a = call->attr;
    const int64_t *d = cells->desc.dim;
    patch_walk p = {.tokens = tokens->data,
                    .cells = cells->data,
                    .b = d[0],
                    .c = d[1],
                    .t = d[2],
                    .h = d[3],
                    .w = d[4],
                    .pt = a->pt,
                    .ph = a->ph,
                    .pw = a->pw,
                    .bytes = mr_dtype_bytes(cells->desc.dtype),
                    .channel_last = a->channel_last,
                    .to_tokens = to_tokens};
    mr_cpu_for(p.b * patch_ceil(p.t, p.pt) * patch_ceil(p.h, p.ph), 8, call->threads, patch_body,
               &p);
    return MR_OK;
}

MR_ROW_FN void patch_cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop = 0;
}

#define PATCH_ATTRS                                                                                \
    {"pt", MR_ATTR_I64, offsetof(patch_attrs, pt), 1, 1, 4096, false, "frames of a patch"},        \
        {"ph", MR_ATTR_I64, offsetof(patch_attrs, ph), 1, 1, 4096, false, "rows of a patch"},      \
    {                                                                                              \
        "pw", MR_ATTR_I64, offsetof(patch_attrs, pw), 1, 1, 4096, false, "columns of a patch"      \
    }

#endif
