/* ckpt/strided: any range of any strided tensor equals a lookup of each element. */
#include "check.h"
#include "ckpt/torch.h"

static uint32_t seed = 11;
static int64_t draw(int64_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 8) % below;
}

enum { MEMORY = 20000, SIZE_MAX_ELEMENT = 8 };

int main(void)
{
    static unsigned char memory[MEMORY * SIZE_MAX_ELEMENT], out[MEMORY * SIZE_MAX_ELEMENT];
    printf("strided: seed %u\n", (unsigned)seed);
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (unsigned char)draw(256);
    int64_t compared = 0;
    for (int round = 0; round < 2000; round++) {
        static const size_t sizes[] = {1, 2, 4, 8};
        size_t size = sizes[draw(4)];
        int rank = (int)draw(6);
        int64_t shape[MR_ST_RANK_MAX], stride[MR_ST_RANK_MAX], count = 1;
        for (int d = 0; d < rank; d++) {
            shape[d] = 1 + draw(6), count *= shape[d];
            // expanded dimensions, dense rows and wide steps
            stride[d] = draw(3) ? draw(400) : draw(2);
        }
        int64_t from = draw(count), n = draw(count - from + 1);
        memset(out, 0, sizeof out);
        mr_strided_gather(memory, size, rank, shape, stride, from, n, out);
        bool same = true;
        for (int64_t i = 0; i < n; i++) {
            int64_t left = from + i, at = 0;
            for (int d = rank - 1; d >= 0; d--) {
                at += left % shape[d] * stride[d];
                left /= shape[d];
            }
            same = same && !memcmp(out + (size_t)i * size, memory + (size_t)at * size, size);
            compared++;
        }
        // nothing is written after the range
        same = same && out[(size_t)n * size] == 0;
        if (!same)
            printf("round %d: rank %d, from %lld, n %lld\n", round, rank, (long long)from,
                   (long long)n);
        CHECK(same);
    }
    CHECK(compared > 50000);
    return check_done();
}
