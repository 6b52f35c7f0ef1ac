/* conv: chooses the algorithm of a convolution, and has the gathered algorithm.
 *
 * The gathered algorithm copies the inputs of some positions of the output (or of x, for its
 * gradient) into rows of taps x channels, and multiplies these by the weights. Weights are
 * transposed once per run, so that the channels of a tap are adjacent, as in x. The gradient of the
 * weights adds tiles of positions in order.
 *
 * At the sizes of the video autoencoder, on one core of an Emerald Rapids without AMX, winograd
 * takes 0.54 to 0.84 of the time of oneDNN 2.6 in f32, and in bf16 0.34 to 0.46 of the time of the
 * gathered algorithm. Licence: Apache-2.0 */
#include "cpu/conv.h"
#include "cpu/cpu.h"
#include "cpu/depthwise.h"
#include "cpu/narrow.h"
#include "cpu/points.h"
#include "cpu/product.h"
#include "cpu/winograd.h"

#include <string.h>

// bytes of rows gathered at a time; least and most rows
enum { GATHER_BYTES = 16 << 20, ROWS_MIN = 64, ROWS_MAX = 4096 };

struct mr_conv {
    mr_conv_spec spec;
    int threads;
    mr_gemm_fn *gemm;
    mr_conv_library *library; /* NULL: not oneDNN */
    mr_winograd_fn *winograd; /* NULL: another algorithm */
    mr_winograd_plan fewer;
    mr_depthwise_fn *depthwise; /* NULL: another algorithm */
    mr_depthwise_plan apart;
    mr_points_fn *points; /* NULL: another algorithm */
    mr_points_plan grouped;
    mr_narrow_fn *narrow; /* NULL: another algorithm */
    mr_narrow_plan few;
};

static int64_t taps_of(const mr_conv_spec *s)
{
    return s->kernel[0] * s->kernel[1] * s->kernel[2];
}

static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- the gathered algorithm ---- */

/* Sizes of the gathered rows and of their product. FORWARD and WEIGHTS gather x for positions of y,
 * DATA gathers y for positions of x. */
typedef struct plan {
    int64_t positions, rows;       /* all positions; rows gathered at a time */
    int64_t wide, columns;         /* gathered channels of one group; taps x wide */
    int64_t other;                 /* columns of the product: channels of a group of the tensor that
                                    * is not gathered */
    size_t gathered, turned, gemm; /* bytes */
} plan;

/* The product over `rows` gathered positions. */
static mr_product_spec product_of(const mr_conv_spec *s, const plan *p, int64_t rows)
{
    int64_t side = s->kind == MR_CONV_DATA ? s->channels : s->filters;
    if (s->kind == MR_CONV_WEIGHTS)
        return (mr_product_spec){.batch = 1,
                                 .m = p->other,
                                 .n = p->columns,
                                 .k = rows,
                                 .a_row = 1,
                                 .a_col = side,
                                 .b_row = p->columns,
                                 .b_col = 1,
                                 .c_row = p->columns,
                                 .in = s->type,
                                 .out = MR_F32,
                                 .accumulate = true};
    return (mr_product_spec){.batch = 1,
                             .m = rows,
                             .n = p->other,
                             .k = p->columns,
                             .a_row = p->columns,
                             .a_col = 1,
                             .b_row = 1,
                             .b_col = p->columns,
                             .c_row = side,
                             .in = s->type,
                             .out = s->type};
}

static plan plan_of(const mr_conv_spec *s, int threads)
{
    bool data = s->kind == MR_CONV_DATA;
    const int64_t *at = data ? s->in : s->out;
    size_t width = mr_dtype_bytes(s->type);
    plan p = {.positions = s->batch * at[0] * at[1] * at[2],
              .wide = (data ? s->filters : s->channels) / s->groups,
              .other = (data ? s->channels : s->filters) / s->groups};
    p.columns = taps_of(s) * p.wide;
    p.rows = GATHER_BYTES / MR_MAX(p.columns * (int64_t)width, 1);
    p.rows = MR_MIN(MR_MAX(MR_MIN(p.rows, ROWS_MAX), ROWS_MIN), MR_MAX(p.positions, 1));
    p.gathered = padded((size_t)(p.rows * p.columns) * width);
    bool weights = s->kind == MR_CONV_WEIGHTS;
    p.turned = padded((size_t)(p.other * p.columns) * (weights ? sizeof(float) : width));
    mr_product_spec g = product_of(s, &p, p.rows);
    p.gemm = padded(mr_gemm_workspace(&g, threads));
    return p;
}

typedef struct gatherer {
    const mr_conv_spec *s;
    const char *from; /* x, or y for DATA */
    char *to;
    int64_t first, wide, stride_c,
        at_c; /* first position; channels to copy, of how many, from which on */
    size_t width;
} gatherer;

/* Copy the inputs of one row of taps (kt, kh) of an output position, along W: one run of
 * channels. */
static void gather_run(const gatherer *g, const char *line, char *to, int64_t w0)
{
    const mr_conv_spec *s = g->s;
    size_t each = (size_t)g->wide * g->width;
    int64_t kw = s->kernel[2], lead = MR_MIN(MR_MAX(-w0, 0), kw),
            end = MR_MAX(MR_MIN(s->in[2] - w0, kw), lead);
    memset(to, 0, (size_t)lead * each);
    if (g->wide == g->stride_c)
        memcpy(to + (size_t)lead * each, line + (size_t)(w0 + lead) * each,
               (size_t)(end - lead) * each);
    else
        for (int64_t k = lead; k < end; k++)
            memcpy(to + (size_t)k * each, line + (size_t)((w0 + k) * g->stride_c) * g->width, each);
    memset(to + (size_t)end * each, 0, (size_t)(kw - end) * each);
}

/* Gather the inputs x of positions of y. */
static void gather_inputs(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const gatherer *g = user;
    const mr_conv_spec *s = g->s;
    size_t run = (size_t)(s->kernel[2] * g->wide) * g->width;
    for (int64_t i = begin; i < end; i++) {
        int64_t p = g->first + i, w = p % s->out[2], h = p / s->out[2] % s->out[1],
                t = p / (s->out[2] * s->out[1]) % s->out[0],
                b = p / (s->out[2] * s->out[1] * s->out[0]);
        char *to = g->to + (size_t)i * (size_t)(s->kernel[0] * s->kernel[1]) * run;
        for (int64_t kt = 0; kt < s->kernel[0]; kt++)
            for (int64_t kh = 0; kh < s->kernel[1]; kh++, to += run) {
                int64_t ti = t * s->stride[0] - s->before[0] + kt,
                        hi = h * s->stride[1] - s->before[1] + kh;
                if (ti < 0 || ti >= s->in[0] || hi < 0 || hi >= s->in[1]) {
                    memset(to, 0, run);
                    continue;
                }
                int64_t line = ((b * s->in[0] + ti) * s->in[1] + hi) * s->in[2] * g->stride_c;
                gather_run(g, g->from + (size_t)(line + g->at_c) * g->width, to,
                           w * s->stride[2] - s->before[2]);
            }
    }
}

/* The position of y whose tap k reads position p of x along one axis, or -1. */
static int64_t reader(const mr_conv_spec *s, int axis, int64_t p, int64_t k)
{
    int64_t at = p + s->before[axis] - k;
    if (at < 0 || at % s->stride[axis] || at / s->stride[axis] >= s->out[axis])
        return -1;
    return at / s->stride[axis];
}

/* Gather the outputs y that depend on positions of x, one tap at a time. */
static void gather_readers(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const gatherer *g = user;
    const mr_conv_spec *s = g->s;
    size_t each = (size_t)g->wide * g->width;
    char *to = g->to + (size_t)(begin * taps_of(s)) * each;
    for (int64_t i = begin; i < end; i++) {
        int64_t p = g->first + i, w = p % s->in[2], h = p / s->in[2] % s->in[1],
                t = p / (s->in[2] * s->in[1]) % s->in[0], b = p / (s->in[2] * s->in[1] * s->in[0]);
        for (int64_t kt = 0; kt < s->kernel[0]; kt++)
            for (int64_t kh = 0; kh < s->kernel[1]; kh++)
                for (int64_t kw = 0; kw < s->kernel[2]; kw++, to += each) {
                    int64_t to_t = reader(s, 0, t, kt), to_h = reader(s, 1, h, kh),
                            to_w = reader(s, 2, w, kw);
                    if (to_t < 0 || to_h < 0 || to_w < 0) {
                        memset(to, 0, each);
                        continue;
                    }
                    int64_t at = ((b * s->out[0] + to_t) * s->out[1] + to_h) * s->out[2] + to_w;
                    memcpy(to, g->from + (size_t)(at * g->stride_c + g->at_c) * g->width, each);
                }
    }
}

/* Transposes the weights of one group: FORWARD to [filter][tap][channel], DATA to
 * [channel][tap][filter]. WEIGHTS transposes back and adds to f32. */
typedef struct turner {
    const mr_conv_spec *s;
    const char *from;
    char *to;
    int64_t group;
    size_t width;
} turner;

static void turn_rows(void *user, int64_t begin, int64_t end, int worker)
{
    (void)worker;
    const turner *u = user;
    const mr_conv_spec *s = u->s;
    int64_t taps = taps_of(s), c = s->channels / s->groups, o = s->filters / s->groups;
    bool data = s->kind == MR_CONV_DATA;
    int64_t inner = data ? o : c;
    for (int64_t i = begin; i < end; i++)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t k = 0; k < inner; k++) {
                int64_t filter = u->group * o + (data ? k : i), channel = data ? i : k;
                int64_t plain = (filter * c + channel) * taps + tap,
                        turned = (i * taps + tap) * inner + k;
                if (s->kind == MR_CONV_WEIGHTS)
                    ((float *)u->to)[plain] += ((const float *)u->from)[turned];
                else if (u->width == 2)
                    ((uint16_t *)u->to)[turned] = ((const uint16_t *)u->from)[plain];
                else
                    ((float *)u->to)[turned] = ((const float *)u->from)[plain];
            }
}

static void run_group(mr_conv *c, int64_t group, const char *x, const char *w, const char *bias,
                      const char *y, char *out, char *work)
{
    const mr_conv_spec *s = &c->spec;
    plan p = plan_of(s, c->threads);
    bool data = s->kind == MR_CONV_DATA, weights = s->kind == MR_CONV_WEIGHTS;
    size_t width = mr_dtype_bytes(s->type);
    char *gathered = work, *turned = work + p.gathered, *scratch = turned + p.turned;
    turner u = {s, weights ? turned : w, weights ? out : turned, group, width};
    if (weights)
        memset(turned, 0, p.turned);
    else
        mr_cpu_for(p.other, 1, c->threads, turn_rows, &u);
    int64_t side = data ? s->channels : s->filters;
    for (int64_t first = 0; first < p.positions && !mr_interrupt_get(); first += p.rows) {
        int64_t n = MR_MIN(p.rows, p.positions - first);
        gatherer g = {s,
                      data ? y : x,
                      gathered,
                      first,
                      p.wide,
                      data ? s->filters : s->channels,
                      group * p.wide,
                      width};
        mr_cpu_for(n, 16, c->threads, data ? gather_readers : gather_inputs, &g);
        size_t at = (size_t)(first * side + group * p.other) * width;
        mr_product_spec product = product_of(s, &p, n);
        mr_gemm m = mr_gemm_of(&product, c->threads);
        m.a = weights ? y + at : gathered, m.b = weights ? gathered : turned;
        m.c = weights ? turned : out + at, m.workspace = scratch;
        m.bias = bias ? bias + (size_t)(group * p.other) * width : NULL;
        c->gemm(&m);
    }
    if (weights)
        mr_cpu_for(p.other, 1, c->threads, turn_rows, &u);
}

/* ---- winograd ---- */

enum { WEIGHTS_MANY = 4 << 20, CHANNELS_MIN = 32, STRIDED_MIN = 64, WIDEST_TILE_ROWS = 12 };

static int64_t ceil_of(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

/* The number of rounds of products over all output frames: one per tap of time that reads an
 * existing frame, or four per pair of frames if that is less. */
static int64_t rounds_of(mr_winograd_plan *p)
{
    int64_t rounds = 0, in_pairs = (p->out[0] + 1) / 2 * 4;
    for (int64_t t = -p->before[0]; t < p->out[0] - p->before[0]; t++)
        for (int64_t tap = 0; tap < p->taps; tap++)
            rounds += t + tap >= 0 && t + tap < p->in[0];
    p->pairs = p->taps == 3 && p->step == 1 && in_pairs < rounds;
    return p->pairs ? in_pairs : rounds;
}

/* Whether winograd in f32 takes less time than the plain products in bf16, at twice the rate. A
 * round has 16 products per 4 outputs, and a quarter more time for transforms. That equals 2.5 bf16
 * products per output, of the 9 that a round replaces. */
static bool beats_bf16(const mr_winograd_plan *p, int64_t rounds, const mr_facts *facts)
{
    enum { WIDE = 128 };
    return !facts->amx && !p->strided && MR_MIN(p->channels, p->filters) >= WIDE &&
           10 * rounds < 9 * p->taps * p->out[0];
}

bool mr_winograd_fits(const mr_conv_spec *s, const mr_facts *facts, mr_winograd_plan *p)
{
    bool data = s->kind == MR_CONV_DATA,
         in_f32 = s->type == MR_F32 || !facts->bf16 || facts->bf16_by_f32;
    bool strided = s->kind == MR_CONV_FORWARD && s->stride[1] == 2 && s->stride[2] == 2;
    int64_t taps = taps_of(s);
    if (s->kind == MR_CONV_WEIGHTS || s->groups > 1 || s->kernel[1] != 3 || s->kernel[2] != 3 ||
        s->channels % 16 || s->filters % 16 ||
        MR_MIN(s->channels, s->filters) < (strided ? STRIDED_MIN : CHANNELS_MIN) ||
        !(strided || s->stride[0] * s->stride[1] * s->stride[2] == 1))
        return false;
    *p = (mr_winograd_plan){.batch = s->batch,
                            .taps = s->kernel[0],
                            .channels = data ? s->filters : s->channels,
                            .filters = data ? s->channels : s->filters,
                            .w_filter = data ? taps : s->channels * taps,
                            .w_channel = data ? s->channels * taps : taps,
                            .step = s->stride[0],
                            .strided = strided,
                            .turned = data,
                            .type = s->type,
                            .threads = facts->threads};
    for (int i = 0; i < 3; i++) {
        p->in[i] = data ? s->out[i] : s->in[i], p->out[i] = data ? s->in[i] : s->out[i];
        p->before[i] = data ? s->kernel[i] - 1 - s->before[i] : s->before[i];
    }
    int64_t rounds = rounds_of(p);
    if (!in_f32 && !beats_bf16(p, rounds, facts))
        return false;
    // sizes for the widest instruction set, whose panels have 32 columns
    int64_t columns = ceil_of(p->filters, 32) * 32, points = strided ? 49 : 16,
            outs = strided ? 3 : 2;
    p->weight_floats = (strided ? 25 : 16) * (p->pairs ? 4 : p->taps) * p->channels * columns;
    // each part reads all weights; large ones come from memory, so parts are larger then
    int64_t most = strided                           ? MR_WINOGRAD_SQUARES / (p->pairs ? 1 : 2)
                   : p->weight_floats > WEIGHTS_MANY ? MR_WINOGRAD_MORE
                                                     : MR_WINOGRAD_SQUARES;
    // a group is whole frames, or a frame in equal parts: then rounds outside of the video can be
    // skipped
    int64_t frame = MR_MAX(ceil_of(p->out[1], outs) * ceil_of(p->out[2], outs), 1);
    p->parts = ceil_of(frame, most);
    p->group = frame > most ? frame : most / frame * frame;
    p->rows = ceil_of(ceil_of(p->group, p->parts), WIDEST_TILE_ROWS) * WIDEST_TILE_ROWS;
    p->tiles = MR_MIN(p->rows, p->group);
    int64_t sums = p->pairs ? 2 : 1;
    p->own_floats =
        points * (p->rows * (p->channels + sums * columns + (1 + sums) * MR_WINOGRAD_GAP) +
                  (1 + sums) * 5 * MR_WINOGRAD_GAP);
    return true;
}

size_t mr_winograd_workspace(const mr_winograd_plan *p)
{
    return (size_t)(p->weight_floats + p->threads * p->own_floats) * sizeof(float);
}

/* ---- depthwise ---- */

enum { BLOCK_MIN = 16, RING_BYTES = 2 << 20, BLOCKS_EACH = 4 };

/* Channels per block: as many adjacent ones as fit the cache, since with many channels each
 * position of the input is on another page; fewer if the team had too few blocks. */
static int64_t depthwise_block(const mr_depthwise_plan *p)
{
    int64_t ring = p->kernel[0] * p->height * p->width * (int64_t)sizeof(float),
            most = p->batch * p->channels / (BLOCKS_EACH * p->threads), n = MR_DEPTHWISE_BLOCK;
    while (n > BLOCK_MIN && (n * ring > RING_BYTES || n > most))
        n /= 2;
    return n;
}

bool mr_depthwise_fits(const mr_conv_spec *s, const mr_facts *facts, mr_depthwise_plan *p)
{
    bool data = s->kind == MR_CONV_DATA, weights = s->kind == MR_CONV_WEIGHTS;
    if (s->groups < 2 || s->channels != s->groups || s->filters != s->groups ||
        (data && s->stride[0] * s->stride[1] * s->stride[2] != 1))
        return false;
    *p = (mr_depthwise_plan){.batch = s->batch,
                             .channels = s->channels,
                             .weights = weights,
                             .turned = data,
                             .type = s->type,
                             .threads = facts->threads};
    for (int i = 0; i < 3; i++) {
        p->in[i] = data ? s->out[i] : s->in[i], p->out[i] = data ? s->in[i] : s->out[i];
        p->kernel[i] = s->kernel[i], p->stride[i] = s->stride[i];
        p->before[i] = data ? s->kernel[i] - 1 - s->before[i] : s->before[i];
    }
    p->height = (MR_MAX(p->out[1], 1) - 1) * p->stride[1] + p->kernel[1];
    p->width = (MR_MAX(p->out[2], 1) - 1) * p->stride[2] + p->kernel[2];
    p->block = depthwise_block(p);
    int64_t blocks = (p->channels + p->block - 1) / p->block;
    p->weight_floats = weights ? 0 : blocks * taps_of(s) * p->block;
    p->own_floats = p->kernel[0] * p->height * p->width * p->block;
    if (weights)
        p->own_floats += p->out[2] * 16 + taps_of(s) * p->block;
    else
        p->own_floats += (p->out[1] * p->out[2] + 1) * p->block;
    return true;
}

size_t mr_depthwise_workspace(const mr_depthwise_plan *p)
{
    return (size_t)(p->weight_floats + p->threads * p->own_floats) * sizeof(float);
}

/* ---- points ---- */

bool mr_points_fits(const mr_conv_spec *s, const mr_facts *facts, mr_points_plan *p)
{
    enum { WIDEST_COLUMNS = 32, STEP = 32 };
    bool data = s->kind == MR_CONV_DATA, alone = true;
    for (int i = 0; i < 3; i++)
        alone &= s->kernel[i] == 1 && s->stride[i] == 1 && s->before[i] == 0 && s->after[i] == 0;
    if (s->kind == MR_CONV_WEIGHTS || s->groups < 2 || !alone)
        return false;
    int64_t C = s->channels / s->groups, O = s->filters / s->groups;
    *p = (mr_points_plan){.places = s->batch * s->in[0] * s->in[1] * s->in[2],
                          .groups = s->groups,
                          .channels = data ? O : C,
                          .filters = data ? C : O,
                          .w_filter = data ? 1 : C,
                          .w_channel = data ? C : 1,
                          .type = s->type,
                          .pairs = s->type == MR_BF16 && facts->bf16 && !facts->bf16_by_f32,
                          .threads = facts->threads};
    int64_t columns = (p->filters + WIDEST_COLUMNS - 1) / WIDEST_COLUMNS * WIDEST_COLUMNS;
    size_t width = p->pairs ? sizeof(uint16_t) : sizeof(float);
    p->wide = p->pairs ? (p->channels + STEP - 1) / STEP * STEP : p->channels;
    p->weight_bytes = padded((size_t)(p->groups * columns * p->wide) * width);
    // a vector can be written behind the last row
    p->own_bytes = padded((size_t)(MR_POINTS_ROWS * p->groups * p->wide) * width) + 64;
    return true;
}

size_t mr_points_workspace(const mr_points_plan *p)
{
    return p->weight_bytes + (size_t)p->threads * p->own_bytes;
}

/* ---- narrow ---- */

bool mr_narrow_fits(const mr_conv_spec *s, const mr_facts *facts, mr_narrow_plan *p)
{
    enum { LEAST_READ = 32 };
    bool data = s->kind == MR_CONV_DATA;
    int64_t read = data ? s->filters : s->channels, written = data ? s->channels : s->filters,
            taps = taps_of(s);
    if (s->kind == MR_CONV_WEIGHTS || s->groups > 1 || read < LEAST_READ || written < 1 ||
        written > MR_NARROW_MOST || (s->type == MR_BF16 && facts->amx) ||
        (data && s->stride[0] * s->stride[1] * s->stride[2] != 1))
        return false;
    *p = (mr_narrow_plan){.batch = s->batch,
                          .channels = read,
                          .filters = written,
                          .w_filter = data ? taps : s->channels * taps,
                          .w_channel = data ? s->channels * taps : taps,
                          .turned = data,
                          .type = s->type,
                          .threads = facts->threads,
                          .weight_floats = taps * written * ((read + 15) / 16 * 16)};
    for (int i = 0; i < 3; i++) {
        p->in[i] = data ? s->out[i] : s->in[i], p->out[i] = data ? s->in[i] : s->out[i];
        p->kernel[i] = s->kernel[i], p->stride[i] = s->stride[i];
        p->before[i] = data ? s->kernel[i] - 1 - s->before[i] : s->before[i];
    }
    return true;
}

/* ---- choice ---- */

/* Errors of oneDNN 2.6 in bf16 gradients of weights. With strided frames and padding on both sides
 * that the kernel reaches, it skips positions. With a kernel larger than a frame, it reads
 * unwritten memory and writes outside of the gradient. It takes positions of a row in pairs: the
 * last of an odd number is paired with an element of x that its tap does not read, at a gradient of
 * zero, which keeps a NaN of that element. Zeros behind the row would not help, since the element
 * belongs to x. */
static bool library_errs(const mr_conv_spec *s)
{
    int64_t behind = (s->out[0] - 1) * s->stride[0] + s->kernel[0] - s->in[0] - s->before[0];
    bool strided = s->stride[0] > 1 && s->before[0] > 0 && behind > 0,
         larger = s->kernel[1] > s->in[1] || s->kernel[2] > s->in[2],
         unpaired = s->out[2] % 2 && s->kernel[2] > 1;
    return s->kind == MR_CONV_WEIGHTS && s->type == MR_BF16 && (strided || larger || unpaired);
}

/* If bf16 instructions are slow, the gathered algorithm, which computes in f32, is faster: by 1.13
 * to 1.5 at the sizes of the video autoencoder (Emerald Rapids without AMX, oneDNN 2.6). */
static bool library_serves(const mr_conv_spec *s, const mr_facts *facts)
{
    bool fast = s->type == MR_F32 || (facts->bf16 && !facts->bf16_by_f32),
         some = s->batch * s->channels * s->filters > 0;
    return mr_isa_index(facts->isa) > 0 && fast && some && !library_errs(s);
}

mr_status mr_conv_new(const mr_conv_spec *spec, const mr_facts *facts, mr_conv **out)
{
    static mr_gemm_fn *const own[] = {mr_gemm_base, mr_gemm_avx2, mr_gemm_avx512};
    static mr_winograd_fn *const fewer[] = {mr_winograd_base, mr_winograd_avx2, mr_winograd_avx512};
    static mr_depthwise_fn *const apart[] = {mr_depthwise_base, mr_depthwise_avx2,
                                             mr_depthwise_avx512};
    static mr_points_fn *const grouped[] = {mr_points_base, mr_points_avx2, mr_points_avx512};
    static mr_narrow_fn *const narrow[] = {mr_narrow_base, mr_narrow_avx2, mr_narrow_avx512};
    mr_conv *c;
    if (!MR_NEW(c))
        return mr_fail_memory(sizeof *c);
    c->spec = *spec, c->threads = facts->threads;
    int isa = MR_MAX(mr_isa_index(facts->isa), 0);
    c->gemm = own[isa];
    *out = c;
    if (mr_winograd_fits(spec, facts, &c->fewer)) {
        c->winograd = fewer[isa];
        return MR_OK;
    }
    if (mr_depthwise_fits(spec, facts, &c->apart)) {
        c->depthwise = apart[isa];
        return MR_OK;
    }
    if (mr_points_fits(spec, facts, &c->grouped)) {
        c->points = grouped[isa];
        return MR_OK;
    }
    if (mr_narrow_fits(spec, facts, &c->few)) {
        c->narrow = narrow[isa];
        return MR_OK;
    }
    if (library_serves(spec, facts))
        c->library = mr_conv_library_new(spec, facts->threads, mr_conv_workspace(spec, facts));
    return MR_OK;
}

void mr_conv_free(mr_conv *c)
{
    if (c)
        mr_conv_library_free(c->library);
    mr_free(c);
}

size_t mr_conv_workspace(const mr_conv_spec *spec, const mr_facts *facts)
{
    mr_winograd_plan fewer;
    if (mr_winograd_fits(spec, facts, &fewer))
        return mr_winograd_workspace(&fewer);
    mr_depthwise_plan apart;
    if (mr_depthwise_fits(spec, facts, &apart))
        return mr_depthwise_workspace(&apart);
    mr_points_plan grouped;
    if (mr_points_fits(spec, facts, &grouped))
        return mr_points_workspace(&grouped);
    mr_narrow_plan few;
    if (mr_narrow_fits(spec, facts, &few))
        return (size_t)few.weight_floats * sizeof(float);
    plan p = plan_of(spec, facts->threads);
    // oneDNN pads the channels of its weights to blocks, and can keep sums of them per worker
    size_t blocks = (size_t)(taps_of(spec) * spec->groups) *
                    padded((size_t)(spec->channels / spec->groups)) *
                    padded((size_t)(spec->filters / spec->groups)) * sizeof(float);
    size_t aside = library_serves(spec, facts) ? mr_conv_library_aside(spec) : 0;
    return p.gathered + p.turned + p.gemm + blocks + aside;
}

const char *mr_conv_way(const mr_conv_spec *spec, const mr_facts *facts)
{
    mr_winograd_plan fewer;
    mr_depthwise_plan apart;
    mr_points_plan grouped;
    mr_narrow_plan few;
    if (mr_winograd_fits(spec, facts, &fewer))
        return "fewer products";
    if (mr_depthwise_fits(spec, facts, &apart))
        return "channels";
    if (mr_points_fits(spec, facts, &grouped))
        return "places";
    return mr_narrow_fits(spec, facts, &few) ? "few channels" : NULL;
}

mr_status mr_conv_run(mr_conv *c, const void *x, const void *w, const void *bias, const void *y,
                      void *out, void *workspace)
{
    if (c->winograd) {
        bool data = c->spec.kind == MR_CONV_DATA;
        c->winograd(
            &c->fewer,
            &(mr_winograd_call){
                .from = data ? y : x, .w = w, .bias = bias, .to = out, .workspace = workspace});
        return MR_OK;
    }
    if (c->depthwise) {
        bool data = c->spec.kind == MR_CONV_DATA, weights = c->spec.kind == MR_CONV_WEIGHTS;
        c->depthwise(&c->apart, &(mr_depthwise_call){.from = data ? y : x,
                                                     .w = weights ? y : w,
                                                     .bias = bias,
                                                     .to = out,
                                                     .workspace = workspace});
        return MR_OK;
    }
    if (c->points) {
        c->points(&c->grouped, &(mr_points_call){.from = c->spec.kind == MR_CONV_DATA ? y : x,
                                                 .w = w,
                                                 .bias = bias,
                                                 .to = out,
                                                 .workspace = workspace});
        return MR_OK;
    }
    if (c->narrow) {
        c->narrow(&c->few, &(mr_narrow_call){.from = c->spec.kind == MR_CONV_DATA ? y : x,
                                             .w = w,
                                             .bias = bias,
                                             .to = out,
                                             .workspace = workspace});
        return MR_OK;
    }
    if (c->library)
        return mr_conv_library_run(c->library, x, w, bias, y, out, workspace);
    for (int64_t group = 0; group < c->spec.groups; group++)
        run_group(c, group, x, w, bias, y, out, workspace);
    return MR_OK;
}
