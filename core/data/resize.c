/* data: scales and crops pictures and frames as Open-Sora does: it scales them to cover the target
 * size and keeps the centre. Pictures use Pillow's bicubic filter on bytes, in integer arithmetic.
 * Frames use bilinear interpolation without antialiasing. Ref: opensora-1.2.md 4.3 and appendix A;
 * Pillow 9.4, torch's interpolate. Licence: Apache-2.0 */
#include "moonreel/data.h"

#include <math.h>
#include <string.h>

enum { BITS = 22 }; // fraction bits of a weight

// One side of a picture: n pixels are scaled to `scaled`, of which `target` are kept from `first`
// on.
typedef struct side {
    int64_t n, scaled, target, first;
} side;

// Compute the sides of a picture, scaled so that one fits and the other is at least as long.
static void cover(side *down, side *across, bool picture)
{
    double rows = (double)down->target / (double)down->n;
    double columns = (double)across->target / (double)across->n;
    down->scaled = down->target, across->scaled = across->target;
    if (rows > columns)
        across->scaled = lrint((double)across->n * rows);
    else
        down->scaled = lrint((double)down->n * columns);
    side *const both[] = {down, across};
    for (int i = 0; i < 2; i++) {
        int64_t rest = both[i]->scaled - both[i]->target;
        // the crop of pictures rounds to nearest, a half to even; that of frames rounds down
        both[i]->first = picture ? lrint((double)rest / 2) : rest / 2;
    }
}

// The weights of one pixel of the result: n neighbours from `first` on.
typedef struct taps {
    int64_t first, n;
    int32_t *weight;
} taps;

// The weights of pixels first .. first + target - 1, in one block of memory.
static taps *taps_new(const side *s, int64_t most)
{
    taps *all = mr_alloc((size_t)s->target * (sizeof *all + (size_t)most * sizeof(int32_t)));
    int32_t *numbers = all ? (int32_t *)(void *)(all + s->target) : NULL;
    for (int64_t i = 0; all && i < s->target; i++)
        all[i] = (taps){.weight = numbers + i * most};
    return all;
}

// the cubic kernel of Keys with a = -0.5
static double cubic(double x)
{
    x = fabs(x);
    if (x < 1)
        return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

static taps *bicubic(const side *s)
{
    double scale = (double)s->n / (double)s->scaled, wide = fmax(scale, 1);
    taps *all = taps_new(s, (int64_t)(4 * wide) + 3);
    for (int64_t i = 0; all && i < s->target; i++) {
        double centre = ((double)(s->first + i) + 0.5) * scale, sum = 0;
        int64_t lo = (int64_t)(centre - 2 * wide + 0.5), hi = (int64_t)(centre + 2 * wide + 0.5);
        lo = MR_MAX(lo, 0), hi = MR_MIN(hi, s->n);
        all[i].first = lo, all[i].n = hi - lo;
        for (int64_t k = lo; k < hi; k++)
            sum += cubic(((double)k + 0.5 - centre) / wide);
        for (int64_t k = lo; k < hi; k++) {
            double w = cubic(((double)k + 0.5 - centre) / wide) / sum;
            all[i].weight[k - lo] = (int32_t)(w * (1 << BITS) + (w < 0 ? -0.5 : 0.5));
        }
    }
    return all;
}

static uint8_t byte_of(const uint8_t *x, int64_t step, const taps *t)
{
    int64_t sum = 1 << (BITS - 1);
    for (int64_t k = 0; k < t->n; k++)
        sum += (int64_t)t->weight[k] * x[(t->first + k) * step];
    // a shift of a negative number rounds down
    sum = sum < 0 ? 0 : sum >> BITS;
    return (uint8_t)MR_MIN(sum, 255);
}

mr_status mr_resize_picture(const uint8_t *in, int64_t height, int64_t width, int64_t to_height,
                            int64_t to_width, uint8_t *out)
{
    side down = {.n = height, .target = to_height}, across = {.n = width, .target = to_width};
    cover(&down, &across, true);
    // scale all rows of the picture horizontally
    size_t bytes = (size_t)height * (size_t)to_width;
    uint8_t *rows = mr_alloc(bytes);
    taps *x = bicubic(&across), *y = bicubic(&down);
    bool good = rows && x && y;
    for (int plane = 0; good && plane < 3; plane++, in += height * width) {
        for (int64_t r = 0; r < height; r++)
            for (int64_t c = 0; c < to_width; c++)
                rows[r * to_width + c] = byte_of(in + r * width, 1, &x[c]);
        for (int64_t r = 0; r < to_height; r++)
            for (int64_t c = 0; c < to_width; c++)
                *out++ = byte_of(rows + c, to_width, &y[r]);
    }
    mr_free(rows), mr_free(x), mr_free(y);
    return good ? MR_OK : mr_fail_memory(bytes);
}

// the two neighbours of pixel i of a side, and the weight of the second
static float neighbours(const side *s, int64_t i, int64_t at[2])
{
    float scale = (float)s->n / (float)s->scaled;
    float source = fmaxf(((float)(s->first + i) + 0.5F) * scale - 0.5F, 0);
    at[0] = MR_MIN((int64_t)source, s->n - 1), at[1] = MR_MIN(at[0] + 1, s->n - 1);
    return source - (float)at[0];
}

void mr_resize_frame(const uint8_t *in, int64_t height, int64_t width, int64_t to_height,
                     int64_t to_width, float *out)
{
    side down = {.n = height, .target = to_height}, across = {.n = width, .target = to_width};
    cover(&down, &across, false);
    for (int plane = 0; plane < 3; plane++, in += height * width)
        for (int64_t r = 0; r < to_height; r++) {
            int64_t y[2], x[2];
            float low = neighbours(&down, r, y);
            const uint8_t *above = in + y[0] * width, *below = in + y[1] * width;
            for (int64_t c = 0; c < to_width; c++) {
                float right = neighbours(&across, c, x);
                float a = (1 - right) * above[x[0]] + right * above[x[1]];
                float b = (1 - right) * below[x[0]] + right * below[x[1]];
                *out++ = ((1 - low) * a + low * b) * (2 / 255.0F) - 1;
            }
        }
}
