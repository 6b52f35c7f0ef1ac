// Random numbers as PyTorch draws them.
#include "base/mersenne.h"
#include "check.h"
#include <math.h>

static bool near(float a, double b)
{
    return fabs((double)a - b) < 6e-5;
}

int main(void)
{
    // torch.manual_seed(42); torch.randn(24), as it prints them: the first 16
    static const double whole[] = {1.9269,  1.4873,  0.9007,  -2.1055, 0.6784,  -1.2345,
                                   -0.0431, -1.6047, -0.7521, 1.6487,  -0.3925, -1.4036,
                                   -0.7279, -0.5594, -0.7688, 0.7624};
    float x[64], y[16], z[20];
    CHECK_OK(mr_torch_normal(x, 64, 42, 0));
    for (int i = 0; i < 16; i++)
        CHECK(near(x[i], whole[i]));
    // a second fill continues where the first ended, also after a tail
    CHECK_OK(mr_torch_normal(y, 16, 42, 1));
    for (int i = 0; i < 16; i++)
        CHECK(y[i] == x[16 + i]);
    CHECK_OK(mr_torch_normal(z, 20, 42, 0));
    CHECK(z[0] == x[0] && z[3] == x[3]);
    CHECK(z[4] != x[4]);
    enum { MANY = 100000 };
    static float many[MANY];
    float all = 0, square = 0;
    CHECK_OK(mr_torch_normal(many, MANY, 7, 2));
    for (int i = 0; i < MANY; i++)
        all += many[i] / MANY, square += many[i] * many[i] / MANY;
    CHECK(fabsf(all) < 0.02f && fabsf(square - 1) < 0.02f);
    CHECK_FAILS(mr_torch_normal(x, 15, 42, 0), MR_E_RANGE, "count is 15");
    return check_done();
}
