/* patch: what patchify and unpatchify share; each is the adjoint of the other. Licence: Apache-2.0
 *
 * Token (t', h'*W'+w') has the C*pt*ph*pw values of its patch: channel first (c, pt, ph, pw), the
 * order of a convolution weight, or channel last (pt, ph, pw, c), the order of the model's output.
 * Cells beyond T, H, W are zeros in tokens, and are dropped on the way back. Copies each byte
 * once. */
#ifndef MR_OP_PATCH_H
#define MR_OP_PATCH_H

#include "op/define.h"

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

MR_OP_FN int64_t patch_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Copy rows of tokens (b, t', h'), which are independent. Each line of cells is spread over the
 * tokens of a row. */
VF_INLINE void patch_rows(const patch_walk *p, int64_t begin, int64_t end, size_t bytes)
{
    int64_t nt = patch_ceil(p->t, p->pt), nh = patch_ceil(p->h, p->ph),
            nw = patch_ceil(p->w, p->pw), lines = p->pt * p->ph,
            token_bytes = p->c * lines * p->pw * (int64_t)bytes,
            step = (p->channel_last ? p->c : 1) * (int64_t)bytes;
    for (int64_t row = begin; row < end; row++) {
        int64_t b = row / (nt * nh), t = row / nh % nt, h = row % nh;
        for (int64_t i = 0; i < p->c * lines; i++) {
            int64_t c = i / lines, k = i % lines, ct = t * p->pt + k / p->ph,
                    ch = h * p->ph + k % p->ph;
            int64_t inner = p->channel_last ? k * p->pw * p->c + c : i * p->pw;
            char *token = p->tokens + row * nw * token_bytes + inner * (int64_t)bytes,
                 *cell =
                     p->cells + (((b * p->c + c) * p->t + ct) * p->h + ch) * p->w * (int64_t)bytes;
            int64_t width = ct < p->t && ch < p->h ? p->w : 0;
            for (int64_t x = 0; x < nw; x++, token += token_bytes)
                for (int64_t j = 0; j < p->pw; j++) {
                    char *one = token + j * step, *at = cell + (x * p->pw + j) * (int64_t)bytes;
                    bool inside = x * p->pw + j < width;
                    if (inside)
                        memcpy(p->to_tokens ? one : at, p->to_tokens ? at : one, bytes);
                    else if (p->to_tokens)
                        memset(one, 0, bytes);
                }
        }
    }
}

__attribute__((unused)) static void patch_body(void *user, int64_t begin, int64_t end, int worker)
{
    const patch_walk *p = user;
    (void)worker;
    switch (p->bytes) {
    case 2: patch_rows(p, begin, end, 2); break;
    case 4: patch_rows(p, begin, end, 4); break;
    case 8: patch_rows(p, begin, end, 8); break;
    default: patch_rows(p, begin, end, p->bytes); break;
    }
}

MR_OP_FN patch_walk patch_of(const mr_call *call, const mr_view *cells, const mr_view *tokens,
                             bool to_tokens)
{
    const patch_attrs *a = call->attr;
    const int64_t *d = cells->desc.dim;
    return (patch_walk){.tokens = tokens->data,
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
}

MR_OP_FN mr_status patch_run(const mr_call *call, const mr_view *cells, const mr_view *tokens,
                             bool to_tokens)
{
    patch_walk p = patch_of(call, cells, tokens, to_tokens);
    // adjacent columns of a patch, in both cells and tokens, are copied as one element
    if (!p.channel_last && p.w % p.pw == 0)
        p.bytes *= (size_t)p.pw, p.w /= p.pw, p.pw = 1;
    mr_cpu_for(p.b * patch_ceil(p.t, p.pt) * patch_ceil(p.h, p.ph), 8, call->threads, patch_body,
               &p);
    return MR_OK;
}

/* The reference: one cell at a time. */
MR_OP_FN mr_status patch_naive(const mr_call *call, const mr_view *cells, const mr_view *tokens,
                               bool to_tokens)
{
    patch_walk p = patch_of(call, cells, tokens, to_tokens);
    int64_t volume = p.pt * p.ph * p.pw, nh = patch_ceil(p.h, p.ph), nw = patch_ceil(p.w, p.pw);
    if (to_tokens)
        memset(tokens->data, 0, (size_t)mr_desc_count(&tokens->desc) * sizeof(double));
    for (int64_t i = 0; i < p.b * p.c * p.t * p.h * p.w; i++) {
        int64_t w = i % p.w, h = i / p.w % p.h, t = i / p.w / p.h % p.t, bc = i / p.w / p.h / p.t,
                c = bc % p.c;
        int64_t token =
                    ((bc / p.c * patch_ceil(p.t, p.pt) + t / p.pt) * nh + h / p.ph) * nw + w / p.pw,
                k = (t % p.pt * p.ph + h % p.ph) * p.pw + w % p.pw;
        double *one = (double *)tokens->data + token * p.c * volume +
                      (p.channel_last ? k * p.c + c : c * volume + k),
               *at = (double *)cells->data + i;
        *(to_tokens ? one : at) = *(to_tokens ? at : one);
    }
    return MR_OK;
}

MR_OP_FN void patch_cost(const mr_call *call, mr_cost *cost)
{
    (void)call;
    cost->flop = 0;
}

#define PATCH_ATTRS                                                                                \
    {"pt", MR_ATTR_I64, offsetof(patch_attrs, pt), 1, 1, 4096, false, "frames per patch"},         \
        {"ph", MR_ATTR_I64, offsetof(patch_attrs, ph), 1, 1, 4096, false, "rows per patch"},       \
    {                                                                                              \
        "pw", MR_ATTR_I64, offsetof(patch_attrs, pw), 1, 1, 4096, false, "columns per patch"       \
    }

#endif
