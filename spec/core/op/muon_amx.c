/* op/muon_amx: the rounds on tiles in plain C, so that they are tested on processors without AMX:
 * their results compared with sums in f64. */
#include "tiles.h"

#include "check.h"

#ifdef SPEC_TILES
#define MR_ISA_avx512      1
#define mr_muon_amx_rounds rounds_on_tiles_in_c
#include "op/muon_amx.c"

enum { ROWS = 64, COLS = 96, SQUARES = 3 };

static void fill(uint16_t *y)
{
    double sum = 0;
    float x[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)((i * 7919) % 255 - 127) / 128.0f + (i / COLS == i % COLS ? 2.0f : 0.0f);
        sum += (double)x[i] * x[i];
    }
    for (int i = 0; i < ROWS * COLS; i++)
        y[i] = mr_f32_to_bf16((float)(x[i] * sqrt(sqrt(MUON_C)) / sqrt(sum)));
}

// Y = P Y of one round
static void round_of(double *y)
{
    static double gram[ROWS][ROWS], mixed[ROWS][ROWS], next[ROWS * COLS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROWS; j++) {
            gram[i][j] = 0;
            for (int k = 0; k < COLS; k++)
                gram[i][j] += y[i * COLS + k] * y[j * COLS + k];
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < ROWS; j++) {
            mixed[i][j] = muon_gram_shift() * gram[i][j] + (i == j ? MUON_A : 0);
            for (int k = 0; k < ROWS; k++)
                mixed[i][j] += gram[i][k] * gram[k][j];
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            next[i * COLS + j] = 0;
            for (int k = 0; k < ROWS; k++)
                next[i * COLS + j] += mixed[i][k] * y[k * COLS + j];
        }
    memcpy(y, next, sizeof next);
}

static void check_rounds(void)
{
    static uint16_t y[ROWS * COLS], other[ROWS * COLS], squares[SQUARES][ROWS * ROWS],
        own[ROWS * COLS];
    static double want[ROWS * COLS];
    fill(y);
    for (int i = 0; i < ROWS * COLS; i++)
        want[i] = mr_bf16_to_f32(y[i]);
    for (int k = 0; k < MUON_ROUNDS; k++)
        round_of(want);
    muon_places at = {(char *)y,          (char *)other,      (char *)squares[0],
                      (char *)squares[1], (char *)squares[2], (char *)own};
    mr_muon_amx_rounds(&at, ROWS, COLS);
    double off = 0, all = 0;
    for (int i = 0; i < ROWS * COLS; i++) {
        double d = mr_bf16_to_f32(((uint16_t *)(void *)at.y)[i]) - want[i];
        off += d * d, all += want[i] * want[i];
    }
    CHECK(sqrt(off / all) < 0.02);
    // about as many as rows are orthogonal
    CHECK(all > 0.5 * ROWS && all < 2.0 * ROWS);
}

int main(void)
{
    if (tiles_usable())
        check_rounds();
    else
        printf("this processor has no AVX-512 BF16: nothing to run\n");
    return check_done();
}
#else
int main(void)
{
    printf("the kernels under test need AVX-512: nothing to run\n");
    return check_done();
}
#endif
