/* op/conv_ways: convolutions and both gradients by the ways that conv.c chooses for a shape, over
 * strides, padding and remainders of all sizes: f64 sums, the same bits by any team, memory within
 * the plan.
 * Covers: core/cpu/isa/depthwise.c, core/cpu/isa/points.c, core/cpu/isa/narrow.c,
 * core/cpu/isa/winograd.c */
#include "productcase.h"
#include "cpu/conv.h"
#include "cpu/narrow.h"

enum { NONE = 0xff }; // unwritten bytes of memory: nan in any float

typedef struct row {
    const char *way;
    int64_t in[3], kernel[3], stride[3], before[3], after[3], channels, filters, groups;
} row;

static mr_conv_spec spec_of(const row *r, mr_conv_kind kind, mr_dtype type)
{
    mr_conv_spec s = {.kind = kind,
                      .batch = 2,
                      .channels = r->channels,
                      .filters = r->filters,
                      .groups = r->groups,
                      .type = type,
                      .bias = kind == MR_CONV_FORWARD};
    for (int i = 0; i < 3; i++) {
        s.in[i] = r->in[i], s.kernel[i] = r->kernel[i], s.stride[i] = r->stride[i];
        s.before[i] = r->before[i], s.after[i] = r->after[i];
        s.out[i] = (s.in[i] + s.before[i] + s.after[i] - s.kernel[i]) / s.stride[i] + 1;
    }
    return s;
}

static int64_t volume(const int64_t *n)
{
    return n[0] * n[1] * n[2];
}

/* Sums in f64 of the output. */
static void sums(const mr_conv_spec *s, const void *x, const void *w, const void *y, double *out)
{
    int64_t taps = volume(s->kernel), places = volume(s->out), C = s->channels / s->groups,
            O = s->filters / s->groups;
    for (int64_t i = 0; i < s->batch * places * taps; i++) {
        int64_t place = i / taps, tap = i % taps, rest = place % places, k = tap, at[3];
        bool inside = true;
        for (int a = 2; a >= 0; a--) {
            at[a] = rest % s->out[a] * s->stride[a] - s->before[a] + k % s->kernel[a];
            rest /= s->out[a], k /= s->kernel[a];
            inside &= at[a] >= 0 && at[a] < s->in[a];
        }
        int64_t cell = ((place / places * s->in[0] + at[0]) * s->in[1] + at[1]) * s->in[2] + at[2];
        for (int64_t n = 0; inside && n < s->filters * C; n++) {
            int64_t o = n / C, xi = cell * s->channels + o / O * C + n % C, wi = n * taps + tap,
                    yi = place * s->filters + o;
            if (s->kind == MR_CONV_FORWARD)
                out[yi] += get(x, xi, s->type) * get(w, wi, s->type);
            else if (s->kind == MR_CONV_DATA)
                out[xi] += get(y, yi, s->type) * get(w, wi, s->type);
            else
                out[wi] += get(x, xi, s->type) * get(y, yi, s->type);
        }
    }
}

/* A team as the way sees it: fewer products are used where bf16 has none of its own. */
static mr_facts facts_of(const char *way, const char *isa, int team)
{
    mr_facts facts = mr_cpu_facts("cpu", mr_isa_index(isa), team);
    facts.bf16 &= strcmp(way, "fewer products") != 0;
    return facts;
}

static void run(const mr_conv_spec *s, const char *expected, const char *isa, int team,
                const void *x, const void *w, const void *bias, const void *y, void *out)
{
    mr_facts facts = facts_of(expected, isa, team);
    const char *way = mr_conv_way(s, &facts);
    // a layer that reads few channels uses that way for the gradient of x
    mr_conv_kind named = s->channels > MR_NARROW_MOST ? MR_CONV_FORWARD : MR_CONV_DATA;
    CHECK(s->kind != named || (way && strcmp(way, expected) == 0));
    mr_conv *c = NULL;
    CHECK_OK(mr_conv_new(s, &facts, &c));
    size_t bytes = mr_conv_workspace(s, &facts);
    unsigned char *work = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
    memset(work, NONE, bytes + 64);
    CHECK_OK(mr_conv_run(c, x, w, bias, y, out, work));
    for (int i = 0; i < 64; i++)
        CHECK_INT(work[bytes + (size_t)i], NONE);
    mr_conv_free(c);
    free(work);
}

/* The results of one and of three threads by an instruction set, compared with the sums `want`. */
static void compare(const row *r, const mr_conv_spec *s, const char *isa, const void *x,
                    const void *w, const void *bias, const void *y, const double *want, int64_t n)
{
    const bool forward = s->kind == MR_CONV_FORWARD, data = s->kind == MR_CONV_DATA;
    mr_dtype to = forward || data ? s->type : MR_F32;
    size_t bytes = (size_t)n * mr_dtype_bytes(to);
    void *out[] = {fill(n, to, 5), fill(n, to, 5)};
    double off = 0, norm = 0;
    for (int i = 0; i < 2; i++)
        run(s, r->way, isa, i ? 3 : 1, data ? NULL : x, forward || data ? w : NULL,
            forward ? bias : NULL, forward ? NULL : y, out[i]);
    for (int64_t i = 0; i < n; i++)
        off += pow(get(out[0], i, to) - want[i], 2), norm += want[i] * want[i];
    mr_facts facts = facts_of(r->way, isa, 1);
    // the library's sums may depend on the team
    bool own = mr_conv_way(s, &facts) != NULL;
    double e = sqrt(off / norm), tol = to == MR_BF16 ? 3e-3 : 1e-6;
    if (!check_note(e <= tol && (!own || memcmp(out[0], out[1], bytes) == 0)))
        printf(
            "%s, %s, kind %d, %s, x %lld x %lld x %lld x %lld, kernel %lld x %lld x %lld: off by "
            "%.3g, allowed %.3g\n",
            isa, mr_dtype_name(s->type), (int)s->kind, r->way, (long long)s->in[0],
            (long long)s->in[1], (long long)s->in[2], (long long)s->channels,
            (long long)s->kernel[0], (long long)s->kernel[1], (long long)s->kernel[2], e, tol);
    free(out[0]), free(out[1]);
}

static void check(const row *r, mr_conv_kind kind, mr_dtype type)
{
    mr_conv_spec s = spec_of(r, kind, type);
    bool forward = kind == MR_CONV_FORWARD, data = kind == MR_CONV_DATA;
    int64_t nx = s.batch * volume(s.in) * s.channels, ny = s.batch * volume(s.out) * s.filters,
            nw = s.filters * s.channels / s.groups * volume(s.kernel),
            n = forward ? ny
                : data  ? nx
                        : nw;
    void *x = fill(nx, type, 1), *w = fill(nw, type, 2), *bias = fill(s.filters, type, 3),
         *y = fill(ny, type, 4), *before = fill(n, MR_F32, 5);
    double *want = calloc((size_t)n, sizeof *want);
    for (int64_t i = 0; !data && i < n; i++)
        want[i] = forward ? get(bias, i % s.filters, type) : get(before, i, MR_F32);
    sums(&s, x, w, y, want);
    for (int isa = 0; isa <= mr_isa(); isa++)
        compare(r, &s, mr_isa_name(isa), x, w, bias, y, want, n);
    free(x), free(w), free(bias), free(y), free(before), free(want);
}

static const row rows[] = {
    // each channel by itself: lines of sixteen, of four and of single positions, remainders of
    // channels, kernels that reach past both ends, more padding than the kernel reads, strides
    // beyond it
    {"channels", {4, 3, 21}, {5, 5, 5}, {1, 1, 1}, {2, 2, 2}, {2, 2, 2}, 33, 33, 33},
    {"channels", {2, 6, 39}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, 300, 300, 300},
    {"channels", {3, 2, 5}, {3, 1, 3}, {1, 1, 1}, {4, 3, 3}, {0, 1, 5}, 150, 150, 150},
    {"channels", {1, 4, 18}, {1, 2, 4}, {1, 1, 1}, {0, 1, 2}, {0, 0, 1}, 20, 20, 20},
    {"channels", {7, 9, 23}, {2, 3, 5}, {3, 2, 2}, {1, 1, 2}, {0, 1, 2}, 17, 17, 17},
    {"channels", {5, 8, 9}, {1, 2, 3}, {2, 3, 1}, {0, 1, 1}, {1, 0, 1}, 144, 144, 144},
    // single positions by groups: remainders of positions, of channels and of filters
    {"places", {2, 7, 9}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 96, 96, 3},
    {"places", {1, 5, 10}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 35, 205, 5},
    {"places", {3, 4, 4}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 128, 6, 2},
    {"places", {1, 2, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 66, 34, 2},
    // few channels written: positions by fours and one by one, remainders of channels, strides
    {"few channels", {3, 10, 70}, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}, 40, 3, 1},
    {"few channels", {2, 3, 9}, {1, 2, 5}, {1, 1, 1}, {0, 1, 3}, {1, 0, 4}, 64, 4, 1},
    {"few channels", {5, 6, 21}, {2, 3, 3}, {2, 1, 2}, {1, 1, 1}, {0, 1, 1}, 33, 2, 1},
    {"few channels", {2, 9, 6}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 50, 1, 1},
    // few channels read: the gradient of x writes them
    {"few channels", {3, 5, 37}, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}, 3, 40, 1},
    {"few channels", {2, 3, 9}, {1, 2, 5}, {1, 1, 1}, {0, 1, 3}, {1, 0, 4}, 4, 64, 1},
    // steps of 2 x 2: squares that reach past each edge, frames outside, more padding than is read
    {"fewer products", {5, 20, 17}, {3, 3, 3}, {1, 2, 2}, {2, 1, 1}, {0, 1, 1}, 64, 80, 1},
    {"fewer products", {4, 9, 32}, {2, 3, 3}, {2, 2, 2}, {1, 0, 3}, {2, 4, 0}, 80, 64, 1},
    // pairs of frames: an odd number of them, steps of 2 x 2, padding before, after and beyond
    {"fewer products", {7, 6, 9}, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0, 1, 1}, 48, 32, 1},
    {"fewer products", {4, 7, 8}, {3, 3, 3}, {1, 2, 2}, {1, 1, 1}, {1, 1, 1}, 64, 80, 1},
    {"fewer products", {9, 4, 5}, {3, 3, 3}, {1, 1, 1}, {4, 1, 1}, {4, 1, 1}, 32, 48, 1},
};

int main(void)
{
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        for (int kind = MR_CONV_FORWARD; kind <= MR_CONV_WEIGHTS; kind++) {
            check(&rows[i], kind, MR_F32);
            check(&rows[i], kind, MR_BF16);
        }
    return check_done();
}
