/* conv_onednn: a convolution as a oneDNN primitive. Activations are read and written in place,
 * channels last. Weights are reordered in the workspace into the format that the library prefers.
 *
 * Products of bf16 take channels in pairs. With an odd number, the last channel is paired with the
 * memory after it, at weight zero. A NaN there would survive. The forward pass therefore copies x
 * and w with one more channel of zeros. The copies take a twentieth of its time, a third for small
 * frames. The gathered algorithm takes three times as long (1 to 33 channels to 64 or 128, one core
 * of a Zen 4, oneDNN 2.6). Licence: Apache-2.0 */
#include "cpu/conv.h"
#ifdef MR_HAVE_ONEDNN
#include "cpu/cpu.h"
#include "cpu/onednn.h"

#include <string.h>

struct mr_conv_library {
    mr_conv_spec given; /* the spec as given; `spec` has an even number of channels */
    int threads;
    dnnl_primitive_t conv, reorder; /* reorder: of weights, to or from the format of the library */
    size_t packed_bytes, scratch_bytes;
    bool slow; /* an implementation without vectors */
};

/* Describe [batch, T, H, W, C]; oneDNN orders dimensions as batch, C, T, H, W. */
static dnnl_status_t volume(onednn_own_md *md, int64_t batch, const int64_t *size, int64_t channels,
                            mr_dtype t)
{
    int64_t row = size[2] * channels, plane = size[1] * row;
    int64_t dim[] = {batch, channels, size[0], size[1], size[2]},
            step[] = {size[0] * plane, 1, plane, row, channels};
    return onednn_md_init(md, 5, dim, step, onednn_type(t));
}

/* Describe weights, with a dimension of groups if there are several: dense, or in the format that
 * the library prefers. */
static dnnl_status_t weights(onednn_own_md *md, const mr_conv_spec *s, mr_dtype t, bool any)
{
    const int64_t *k = s->kernel;
    int64_t taps = k[0] * k[1] * k[2], c = s->channels / s->groups, o = s->filters / s->groups;
    int64_t dim[] = {s->groups, o, c, k[0], k[1], k[2]},
            step[] = {o * c * taps, c * taps, taps, k[1] * k[2], k[2], 1};
    int lead = s->groups == 1;
    return onednn_md_init(md, 6 - lead, dim + lead, any ? NULL : step + lead, onednn_type(t));
}

static dnnl_status_t make(mr_conv_library *l, const mr_conv_spec *s)
{
    onednn_own_md x = {0}, y = {0}, w = {0}, plain = {0}, bias = {0};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_engine_t engine = onednn_engine();
    bool weighs = s->kind == MR_CONV_WEIGHTS;
    mr_dtype type = weighs ? MR_F32 : s->type;
    int64_t one[] = {1};
    dnnl_status_t st;
#define STEP(call)                                                                                 \
    if ((st = (call)) != dnnl_success)                                                             \
    goto out
    STEP(volume(&x, s->batch, s->in, s->channels, s->type));
    STEP(volume(&y, s->batch, s->out, s->filters, s->type));
    STEP(weights(&w, s, type, true));
    STEP(weights(&plain, s, type, false));
    if (s->bias)
        STEP(onednn_md_init(&bias, 1, &s->filters, one, onednn_type(s->type)));
    STEP(dnnl_primitive_attr_create(&attr));
    STEP(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    onednn_conv_args args = {.x = ONEDNN_MD(&x),
                             .w = ONEDNN_MD(&w),
                             .bias = s->bias ? ONEDNN_MD(&bias) : NULL,
                             .y = ONEDNN_MD(&y)};
    memcpy(args.stride, s->stride, sizeof s->stride);
    memcpy(args.before, s->before, sizeof s->before);
    for (int i = 0; i < 3; i++) // the padding behind ends where the last output does
        args.after[i] = (s->out[i] - 1) * s->stride[i] + s->kernel[i] - s->in[i] - s->before[i];
    STEP(onednn_conv(&pd, engine, (int)s->kind, &args, attr));
    STEP(dnnl_primitive_create(&l->conv, pd));
    onednn_md packed =
                  onednn_query_md(pd, weighs ? dnnl_query_diff_weights_md : dnnl_query_weights_md),
              scratch = onednn_query_md(pd, dnnl_query_scratchpad_md);
    l->packed_bytes = dnnl_memory_desc_get_size(packed);
    l->scratch_bytes = dnnl_memory_desc_get_size(scratch);
    STEP(onednn_reorder(&l->reorder, weighs ? packed : ONEDNN_MD(&plain),
                        weighs ? ONEDNN_MD(&plain) : packed, weighs));
    const char *info = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &info);
    l->slow = strstr(info, "ref") != NULL;
out:
#undef STEP
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    onednn_md_free(&x), onednn_md_free(&y), onednn_md_free(&w), onednn_md_free(&plain);
    onednn_md_free(&bias);
    return st;
}

/* ---- an odd number of channels ---- */

static bool is_odd(const mr_conv_spec *s)
{
    return s->kind == MR_CONV_FORWARD && s->type == MR_BF16 && s->groups == 1 && s->channels % 2;
}

/* Copies rows of bf16 and appends `more` zeros to each. */
typedef struct widening {
    const uint16_t *from;
    uint16_t *to;
    int64_t rows, wide, more;
} widening;

static widening wider_x(const mr_conv_spec *s)
{
    return (widening){
        .rows = s->batch * s->in[0] * s->in[1] * s->in[2], .wide = s->channels, .more = 1};
}

static widening wider_w(const mr_conv_spec *s)
{
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    return (widening){.rows = s->filters, .wide = s->channels * taps, .more = taps};
}

static size_t wider_bytes(const widening *w)
{
    return ((size_t)(w->rows * (w->wide + w->more)) * sizeof *w->to + 63) & ~(size_t)63;
}

static void widen_part(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const widening *w = user;
    for (int64_t i = begin; i < end; i++) {
        uint16_t *to = w->to + i * (w->wide + w->more);
        memcpy(to, w->from + i * w->wide, (size_t)w->wide * sizeof *to);
        memset(to + w->wide, 0, (size_t)w->more * sizeof *to);
    }
}

/* Copy rows to *at, and advance *at. */
static const void *widen(widening w, const void *from, char **at, int threads)
{
    enum { GRAIN = 32768 };
    w.from = from, w.to = (uint16_t *)(void *)*at;
    mr_cpu_for(w.rows, MR_MAX(GRAIN / MR_MAX(w.wide, 1), 1), threads, widen_part, &w);
    *at += wider_bytes(&w);
    return w.to;
}

size_t mr_conv_library_aside(const mr_conv_spec *s)
{
    widening x = wider_x(s), w = wider_w(s);
    return is_odd(s) ? wider_bytes(&x) + wider_bytes(&w) : 0;
}

/* ---- the object ---- */

mr_conv_library *mr_conv_library_new(const mr_conv_spec *s, int threads, size_t room)
{
    mr_conv_library *l;
    mr_conv_spec even = *s;
    if (!onednn_engine() || !MR_NEW(l))
        return NULL;
    l->given = *s, l->threads = threads;
    even.channels += is_odd(s);
    int before = onednn_team(threads);
    dnnl_status_t st = make(l, &even);
    onednn_team(before);
    // an implementation without vectors is slower than the gathered algorithm
    if (st != dnnl_success || l->slow ||
        mr_conv_library_aside(s) + ((l->packed_bytes + 63) & ~63ul) + l->scratch_bytes > room) {
        mr_conv_library_free(l);
        return NULL;
    }
    return l;
}

void mr_conv_library_free(mr_conv_library *l)
{
    if (!l)
        return;
    dnnl_primitive_t primitives[] = {l->conv, l->reorder};
    for (size_t i = 0; i < MR_COUNT(primitives); i++)
        if (primitives[i])
            dnnl_primitive_destroy(primitives[i]);
    mr_free(l);
}

mr_status mr_conv_library_run(mr_conv_library *l, const void *x, const void *w, const void *bias,
                              const void *y, void *out, void *workspace)
{
    const mr_conv_kind kind = l->given.kind;
    bool weighs = kind == MR_CONV_WEIGHTS, data = kind == MR_CONV_DATA;
    char *work = workspace;
    if (is_odd(&l->given)) {
        x = widen(wider_x(&l->given), x, &work, l->threads);
        w = widen(wider_w(&l->given), w, &work, l->threads);
    }
    char *packed = work, *scratch = packed + ((l->packed_bytes + 63) & ~(size_t)63);
    onednn_operand turn[] = {{DNNL_ARG_FROM, weighs ? packed : w},
                             {DNNL_ARG_TO, weighs ? out : packed}};
    onednn_operand operands[] = {{data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, data ? out : x},
                                 {weighs ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, packed},
                                 {kind == MR_CONV_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST,
                                  kind == MR_CONV_FORWARD ? out : y},
                                 {DNNL_ARG_BIAS, l->given.bias ? bias : NULL},
                                 {DNNL_ARG_SCRATCHPAD, l->scratch_bytes ? scratch : NULL}};
    int before = onednn_team(l->threads);
    dnnl_status_t st = dnnl_success;
    if (!weighs)
        st = onednn_run(l->reorder, turn, MR_COUNT(turn));
    if (st == dnnl_success)
        st = onednn_run(l->conv, operands, MR_COUNT(operands));
    if (st == dnnl_success && weighs)
        st = onednn_run(l->reorder, turn, MR_COUNT(turn));
    onednn_team(before);
    return st == dnnl_success ? MR_OK
                              : mr_fail(MR_E_INTERNAL,
                                        "oneDNN cannot run this convolution: status %d; try: "
                                        "MOONREEL_ISA=base, which does not use oneDNN",
                                        (int)st);
}
#else
size_t mr_conv_library_aside(const mr_conv_spec *s)
{
    (void)s;
    return 0;
}
mr_conv_library *mr_conv_library_new(const mr_conv_spec *s, int threads, size_t room)
{
    (void)s, (void)threads, (void)room;
    return NULL;
}
void mr_conv_library_free(mr_conv_library *l)
{
    (void)l;
}
mr_status mr_conv_library_run(mr_conv_library *l, const void *x, const void *w, const void *bias,
                              const void *y, void *out, void *workspace)
{
    (void)l, (void)x, (void)w, (void)bias, (void)y, (void)out, (void)workspace;
    return mr_fail(MR_E_INTERNAL, "built without oneDNN");
}
#endif
