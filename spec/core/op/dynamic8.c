/* op/dynamic8: the error of decoded numbers, and what encoding leaves unchanged.
 * Covers: core/op/dynamic8.c core/op/dynamic8.h */
#include "check.h"
#include "moonreel/op.h"

#include <math.h>
#include <string.h>

#define FORMULA static inline
#include "op/dynamic8.h"

enum { BLOCK = 64, N = 3 * BLOCK + 7, BLOCKS = 4 };
typedef struct state {
    uint8_t codes[N];
    float scale[BLOCKS];
} state;

static bool root;

static void call(const char *name, int isa, bool has_sign, mr_call *c)
{
    const mr_op *op = mr_op_find(name);
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    CHECK_OK(mr_op_attrs(op, MR_ATTRS({"signed", .i = has_sign}, {"root", .i = root}), attr));
    c->attr = attr, c->threads = 2;
    CHECK_OK(mr_kernel_run(&op->cpu, isa)(c));
}

static void encode(int isa, bool has_sign, float *x, state *s)
{
    mr_desc n = mr_desc_dense(MR_F32, 1, (int64_t[]){N}),
            codes = mr_desc_dense(MR_U8, 1, (int64_t[]){N}),
            scale = mr_desc_dense(MR_F32, 1, (int64_t[]){BLOCKS});
    mr_call c = {.in = {{x, n}, {s->codes, codes}, {s->scale, scale}},
                 .out = {{s->codes, codes}, {s->scale, scale}},
                 .n_in = 3,
                 .n_out = 2};
    call("encode_dynamic8", isa, has_sign, &c);
}

static void decode(int isa, bool has_sign, state *s, float *x)
{
    mr_desc n = mr_desc_dense(MR_F32, 1, (int64_t[]){N}),
            codes = mr_desc_dense(MR_U8, 1, (int64_t[]){N}),
            scale = mr_desc_dense(MR_F32, 1, (int64_t[]){BLOCKS});
    mr_call c = {
        .in = {{s->codes, codes}, {s->scale, scale}}, .out = {{x, n}}, .n_in = 2, .n_out = 1};
    call("decode_dynamic8", isa, has_sign, &c);
}

/* Half of the widest gap of a decade, as a share of the block's largest magnitude: 0.9 of the
 * decade's top in equal parts. Numbers between a decade and the next are in that gap. */
static double bound(bool has_sign, double share)
{
    int decade = DYNAMIC8_DECADES - 1;
    double top = 1;
    while (decade > 0 && share < top * 0.1)
        top *= 0.1, decade--;
    double parts = (has_sign ? 1 : 2) << decade, gap = top * 0.9 / parts;
    // below the lowest value the other end of the gap is zero; above the highest it is 1
    double lowest = dynamic8_value(has_sign, has_sign ? 128 : 1);
    return share < lowest ? lowest / 2 : gap / 2;
}

static void near(int isa, bool has_sign)
{
    float x[N], y[N];
    state s = {0};
    for (int i = 0; i < N; i++) {
        // magnitudes over seven decades, with another largest one in each block
        x[i] = (float)(pow(10, -7.0 * (i * 37 % BLOCK) / BLOCK) * (1 + i / BLOCK));
        x[i] = has_sign && i % 3 == 1 ? -x[i] : x[i];
    }
    encode(isa, has_sign, x, &s), decode(isa, has_sign, &s, y);
    double most[BLOCKS] = {0};
    for (int i = 0; i < N; i++)
        most[i / BLOCK] = fmax(most[i / BLOCK], fabs((double)x[i]));
    for (int i = 0; i < N; i++) {
        double largest = most[i / BLOCK], share = fabs((double)x[i]) / largest;
        CHECK_NEAR(y[i] / largest, x[i] / largest, bound(has_sign, share) * 1.0001);
    }
    for (int b = 0; b < BLOCKS; b++)
        CHECK_NEAR(s.scale[b], most[b], 0);
    // decoded values are not encoded again: the scale might shrink
    state again = s;
    encode(isa, has_sign, y, &again);
    CHECK(memcmp(&again, &s, sizeof s) == 0);
    // but a block in which one number differs is
    y[BLOCK] *= 1.5f;
    encode(isa, has_sign, y, &again);
    CHECK(memcmp(again.codes, s.codes, BLOCK) == 0 && again.scale[0] == s.scale[0]);
    CHECK(memcmp(again.codes + BLOCK, s.codes + BLOCK, BLOCK) != 0);
}

/* Codes rise with values, the largest stands for 1, and zero is zero. */
static void map(bool has_sign)
{
    for (int k = 1; k < DYNAMIC8_CODES; k++)
        CHECK(dynamic8_value(has_sign, k - 1) < dynamic8_value(has_sign, k));
    for (int k = 0; k < DYNAMIC8_CODES - 1; k++)
        CHECK(dynamic8_value(has_sign, k) < dynamic8_border(has_sign, k) &&
              dynamic8_border(has_sign, k) < dynamic8_value(has_sign, k + 1));
    CHECK_NEAR(dynamic8_value(has_sign, 255), 1, 0);
    CHECK_NEAR(dynamic8_value(has_sign, has_sign ? 127 : 0), 0, 0);
}

/* A GPU computes codes, the CPU searches them among borders: numbers on each border, next to it,
 * and between two. */
static void codes(bool has_sign)
{
    for (int k = 0; k < DYNAMIC8_CODES - 1; k++) {
        float border = dynamic8_border(has_sign, k);
        CHECK(dynamic8_code(has_sign, border) == k);
        CHECK(dynamic8_code(has_sign, nextafterf(border, -2)) == k);
        CHECK(dynamic8_code(has_sign, nextafterf(border, 2)) == k + 1);
        CHECK(dynamic8_code(has_sign, dynamic8_value(has_sign, k)) == k);
    }
    CHECK(dynamic8_code(has_sign, 1) == 255);
    CHECK(dynamic8_code(has_sign, has_sign ? -1 : 0) == 0);
}

/* A first step begins with zero bytes, which stand for zeros; numbers beyond the largest float do
 * not affect the others of their block. */
static void ends(int isa)
{
    float x[N] = {0};
    state s = {0}, zero = {0};
    encode(isa, true, x, &s);
    CHECK(memcmp(&s, &zero, sizeof s) == 0);
    decode(isa, true, &s, x);
    for (int i = 0; i < N; i++)
        CHECK(x[i] == 0);
    x[3] = INFINITY, x[4] = 2;
    encode(isa, false, x, &s), decode(isa, false, &s, x);
    CHECK(isfinite(x[3]) && x[3] > 3e38f && x[4] == 0);
}

/* Roots: a number's error is twice its root's, and numbers of fourteen decades are not zero;
 * decoded values stay unchanged. */
static void roots(int isa)
{
    float x[N] = {0}, y[N];
    state s = {0};
    root = true;
    for (int i = 0; i < N; i++)
        x[i] = (float)pow(10, -12.0 * (i * 37 % BLOCK) / BLOCK);
    encode(isa, false, x, &s), decode(isa, false, &s, y);
    for (int i = 0; i < N; i++) {
        double kept = sqrt((double)x[i]);
        CHECK(y[i] > 0);
        CHECK_NEAR(sqrt((double)y[i]), kept, bound(false, kept) * 1.0001);
    }
    state again = s;
    encode(isa, false, y, &again);
    root = false;
    CHECK(memcmp(&again, &s, sizeof s) == 0);
}

int main(void)
{
    map(true), map(false), codes(true), codes(false);
    for (int isa = 0; isa <= mr_isa(); isa++)
        near(isa, true), near(isa, false), ends(isa), roots(isa);
    return check_done();
}
