/* op/conv_onednn: convolutions by the library: nan reaches only the outputs that read it, and
 * kernels that are larger than a frame read and write nothing else.
 * Covers: core/cpu/conv_onednn.c */
#define _GNU_SOURCE // RTLD_DEFAULT
#include "productcase.h"
#include "cpu/conv.h"

#include <dlfcn.h>
#include <math.h>

enum { NONE = 0xff }; // unwritten bytes of memory: nan in any float

/* The lengths of y are those of stride 1 with `after` such that the kernel fits. */
static mr_conv_spec shape(mr_conv_kind kind, mr_dtype type, const int64_t *in,
                          const int64_t *kernel, const int64_t *stride, const int64_t *before,
                          int64_t channels, int64_t filters)
{
    mr_conv_spec s = {.kind = kind,
                      .batch = 2,
                      .channels = channels,
                      .filters = filters,
                      .groups = 1,
                      .type = type};
    for (int i = 0; i < 3; i++) {
        s.in[i] = in[i], s.kernel[i] = kernel[i], s.stride[i] = stride[i], s.before[i] = before[i];
        s.after[i] = MR_MAX(kernel[i] - 1 - before[i], 0);
        s.after[i] = MR_MAX(s.after[i], kernel[i] - in[i] - before[i]);
        s.out[i] = (in[i] + before[i] + s.after[i] - kernel[i]) / stride[i] + 1;
    }
    return s;
}

static int64_t cells(int64_t batch, const int64_t *size)
{
    return batch * size[0] * size[1] * size[2];
}

/* The cell of x that tap `tap` of position p of y reads, or -1: it is outside. */
static int64_t read_by(const mr_conv_spec *s, int64_t p, int64_t tap)
{
    int64_t positions = cells(1, s->out), at[3], rest = p % positions;
    for (int i = 2; i >= 0; i--) {
        at[i] = rest % s->out[i] * s->stride[i] - s->before[i] + tap % s->kernel[i];
        rest /= s->out[i], tap /= s->kernel[i];
        if (at[i] < 0 || at[i] >= s->in[i])
            return -1;
    }
    return ((p / positions * s->in[0] + at[0]) * s->in[1] + at[1]) * s->in[2] + at[2];
}

/* Runs in an unwritten workspace, between bytes that must not change. */
static void run(const mr_conv_spec *s, const void *x, const void *w, const void *y, void *out)
{
    mr_facts facts = mr_cpu_facts("cpu", mr_isa(), 2);
    facts.bf16_by_f32 = false; // the library's whenever possible
    mr_conv *c = NULL;
    CHECK_OK(mr_conv_new(s, &facts, &c));
    size_t bytes = mr_conv_workspace(s, &facts);
    unsigned char *work = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    memset(work, NONE, bytes + 64);
    CHECK_OK(mr_conv_run(c, x, w, NULL, y, out, work));
    for (int i = 0; i < 64; i++)
        CHECK_INT(work[bytes + (size_t)i], NONE);
    mr_conv_free(c);
    free(work);
}

/* It serves when it is built in and its weights fit into the planned room. */
static void serves(void)
{
    static const int64_t in[] = {1, 4, 8}, kernel[] = {1, 3, 3}, one[] = {1, 1, 1}, before[3] = {0};
    const bool built = mr_isa() > 0 && dlsym(RTLD_DEFAULT, "dnnl_primitive_create");
    const mr_facts facts = mr_cpu_facts("cpu", mr_isa(), 1);
    const mr_conv_spec s = shape(MR_CONV_FORWARD, MR_F32, in, kernel, one, before, 16, 16);
    mr_conv_library *planned = mr_conv_library_new(&s, 1, mr_conv_workspace(&s, &facts)),
                    *without = mr_conv_library_new(&s, 1, 0);
    CHECK((planned != NULL) == built && !without);
    mr_conv_library_free(planned);
    mr_conv_library_free(without);
}

/* ---- nan ---- */

static void put_nan(void *x, int64_t i, mr_dtype t)
{
    if (t == MR_BF16)
        ((uint16_t *)x)[i] = mr_f32_to_bf16(NAN);
    else
        ((float *)x)[i] = NAN;
}

/* Wrong outputs: nan without reading cell `cell` of x, or not nan although they read it. */
static int strays(const mr_conv_spec *s, const void *y, int64_t cell)
{
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    int n = 0;
    for (int64_t p = 0; p < cells(s->batch, s->out); p++) {
        bool reads = false;
        for (int64_t tap = 0; tap < taps; tap++)
            reads |= read_by(s, p, tap) == cell;
        for (int64_t o = 0; o < s->filters; o++)
            n += isnan(get(y, p * s->filters + o, s->type)) != reads;
    }
    return n;
}

static void not_a_number(mr_dtype type, int64_t channels, const int64_t *kernel)
{
    static const int64_t in[] = {3, 6, 9}, one[] = {1, 1, 1};
    const int64_t before[] = {kernel[0] - 1, kernel[1] / 2, kernel[2] / 2};
    mr_conv_spec s = shape(MR_CONV_FORWARD, type, in, kernel, one, before, channels, 20);
    int64_t n = cells(s.batch, s.in) * channels;
    void *w = fill(20 * channels * kernel[0] * kernel[1] * kernel[2], type, 2),
         *y = fill(cells(s.batch, s.out) * 20, type, 3);
    for (int64_t i = 0; i < n; i += 97) {
        void *x = fill(n, type, 1);
        put_nan(x, i, type);
        run(&s, x, w, NULL, y);
        int wrong = strays(&s, y, i / channels);
        if (!check_note(wrong == 0))
            printf("%s, %lld channels, kernel %lld x %lld x %lld: %d outputs wrong by a NaN at "
                   "%lld\n",
                   mr_dtype_name(type), (long long)channels, (long long)kernel[0],
                   (long long)kernel[1], (long long)kernel[2], wrong, (long long)i);
        free(x);
    }
    free(w), free(y);
}

/* Wrong gradients of weights: nan without reading cell `cell` of x in channel `channel`, or not nan
 * although they read it. */
static int stray_gradients(const mr_conv_spec *s, const float *dw, int64_t cell, int64_t channel)
{
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2];
    int n = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        bool reads = false;
        for (int64_t p = 0; p < cells(s->batch, s->out); p++)
            reads |= read_by(s, p, tap) == cell;
        for (int64_t i = 0; i < s->filters * s->channels; i++)
            n += isnan(dw[i * taps + tap]) != (reads && i % s->channels == channel);
    }
    return n;
}

/* The pairs that bf16 instructions multiply are along the width here: odd and even widths of y. */
static void gradients_of_not_a_number(mr_dtype type)
{
    static const struct {
        int64_t in[3], kernel[3], stride[3], before[3], channels, filters;
    } rows[] = {{{1, 4, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, 16, 16},
                {{1, 4, 8}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, 16, 16},
                {{3, 3, 9}, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, 8, 20},
                {{2, 3, 6}, {1, 1, 4}, {1, 1, 1}, {0, 0, 0}, 32, 16},
                {{1, 5, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, 16, 32},
                {{1, 5, 12}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, 16, 32},
                {{1, 3, 5}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, 16, 32},
                {{5, 2, 3}, {3, 1, 1}, {1, 1, 1}, {2, 0, 0}, 16, 32},
                {{3, 5, 3}, {1, 3, 1}, {1, 1, 1}, {0, 1, 0}, 32, 16},
                {{2, 4, 5}, {1, 1, 1}, {1, 1, 2}, {0, 0, 0}, 16, 16},
                {{1, 3, 3}, {1, 1, 2}, {1, 2, 1}, {0, 0, 1}, 24, 32},
                {{4, 2, 3}, {2, 2, 2}, {1, 1, 1}, {1, 0, 1}, 7, 18}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_conv_spec s = shape(MR_CONV_WEIGHTS, type, rows[i].in, rows[i].kernel, rows[i].stride,
                               rows[i].before, rows[i].channels, rows[i].filters);
        int64_t n = cells(s.batch, s.in) * s.channels,
                weights = s.filters * s.channels * s.kernel[0] * s.kernel[1] * s.kernel[2];
        void *y = fill(cells(s.batch, s.out) * s.filters, type, 2);
        float *dw = malloc((size_t)weights * sizeof *dw);
        for (int64_t at = 0; at < n; at += 53) {
            void *x = fill(n, type, 1);
            put_nan(x, at, type);
            memset(dw, 0, (size_t)weights * sizeof *dw);
            run(&s, x, NULL, y, dw);
            int wrong = stray_gradients(&s, dw, at / s.channels, at % s.channels);
            if (!check_note(wrong == 0))
                printf("%s, row %zu: %d gradients wrong by a NaN at %lld\n", mr_dtype_name(type), i,
                       wrong, (long long)at);
            free(x);
        }
        free(y), free(dw);
    }
}

/* ---- larger than a frame ---- */

static double wanted(const mr_conv_spec *s, const void *x, const void *y, int64_t i)
{
    int64_t taps = s->kernel[0] * s->kernel[1] * s->kernel[2], tap = i % taps,
            channel = i / taps % s->channels, filter = i / taps / s->channels;
    double sum = 0;
    for (int64_t p = 0; p < cells(s->batch, s->out); p++) {
        int64_t cell = read_by(s, p, tap);
        if (cell >= 0)
            sum += get(x, cell * s->channels + channel, s->type) *
                   get(y, p * s->filters + filter, s->type);
    }
    return sum;
}

static void weights(const mr_conv_spec *s)
{
    enum { MARGIN = 1 << 16 }; // bytes around the gradient
    int64_t n = s->filters * s->channels * s->kernel[0] * s->kernel[1] * s->kernel[2];
    size_t bytes = (size_t)n * sizeof(float), all = (bytes + 63) / 64 * 64 + 2 * MARGIN;
    void *x = fill(cells(s->batch, s->in) * s->channels, s->type, 1),
         *y = fill(cells(s->batch, s->out) * s->filters, s->type, 2);
    unsigned char *room = aligned_alloc(64, all);
    float *dw = (float *)(void *)(room + MARGIN);
    memset(room, NONE, all);
    memset(dw, 0, bytes);
    run(s, x, NULL, y, dw);
    double off = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double want = wanted(s, x, y, i);
        off += (dw[i] - want) * (dw[i] - want), norm += want * want;
    }
    int overwritten = 0;
    for (size_t i = 0; i < all; i++)
        overwritten += (i < MARGIN || i >= MARGIN + bytes) && room[i] != NONE;
    if (!check_note(sqrt(off / norm) < 1e-5 && overwritten == 0))
        printf("%s, frames of %lld x %lld, kernel %lld x %lld: off by %.3g, %d bytes around it\n",
               mr_dtype_name(s->type), (long long)s->in[1], (long long)s->in[2],
               (long long)s->kernel[1], (long long)s->kernel[2], sqrt(off / norm), overwritten);
    free(x), free(y), free(room);
}

static void larger_than_a_frame(mr_dtype type)
{
    static const struct {
        int64_t in[3], kernel[3], stride[3], before[3], channels, filters;
    } rows[] = {{{5, 7, 1}, {4, 4, 2}, {1, 1, 3}, {1, 2, 0}, 2, 35},
                {{10, 1, 5}, {3, 4, 3}, {1, 2, 1}, {2, 1, 2}, 4, 4},
                {{6, 4, 2}, {4, 4, 4}, {1, 3, 3}, {0, 0, 1}, 20, 38},
                {{4, 2, 3}, {4, 4, 4}, {1, 1, 1}, {0, 2, 1}, 7, 18},
                {{10, 2, 20}, {3, 4, 3}, {1, 1, 1}, {1, 2, 2}, 3, 31},
                {{1, 4, 4}, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, 16, 32}};
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        mr_conv_spec s = shape(MR_CONV_WEIGHTS, type, rows[i].in, rows[i].kernel, rows[i].stride,
                               rows[i].before, rows[i].channels, rows[i].filters);
        weights(&s);
    }
}

int main(void)
{
    static const int64_t kernels[][3] = {{1, 1, 1}, {1, 3, 3}, {3, 3, 3}, {2, 1, 4}};
    serves();
    for (int bf16 = 0; bf16 < 2; bf16++) {
        mr_dtype type = bf16 ? MR_BF16 : MR_F32;
        for (int64_t channels = 1; channels < 7; channels++)
            for (size_t k = 0; k < MR_COUNT(kernels); k++)
                not_a_number(type, channels, kernels[k]);
        gradients_of_not_a_number(type);
        larger_than_a_frame(type);
    }
    return check_done();
}
