/* op/loop: chunks and strided loops visit each element once; sums do not depend on the team.
 * Covers: core/cpu/loop.c */
#include "check.h"
#include "cpu/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct seen {
    _Atomic int visits[5000];
    _Atomic int bad;
} seen;

static void chunk(void *user, int64_t begin, int64_t end, int worker)
{
    seen *s = user;
    if (begin % 7 != 0 || end - begin > 7 || worker < 0 || worker > 2)
        s->bad++;
    for (int64_t i = begin; i < end; i++)
        s->visits[i]++;
}

static void chunks(void)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        seen *s = calloc(1, sizeof *s);
        mr_cpu_for(4999, 7, threads, chunk, s);
        int once = 0;
        for (int i = 0; i < 5000; i++)
            once += s->visits[i] == 1;
        CHECK_INT(once, 4999);
        CHECK_INT(s->bad, 0);
        mr_cpu_for(0, 7, threads, chunk, s);
        free(s);
    }
}

static void add_up(void *user, const int64_t *at, int64_t n, const int64_t *step)
{
    // argument 0 is the index, argument 1 the expected value there
    int **data = user;
    for (int64_t i = 0; i < n; i++)
        data[0][at[0] + i * step[0]] += data[1][at[1] + i * step[1]];
}

static void strided(void)
{
    // y dense [3,4,5,6]; x the same shape with permuted memory
    int64_t dim[] = {3, 4, 5, 6};
    mr_desc y = mr_desc_dense(MR_I32, 4, dim), x = y;
    x.stride[0] = 1, x.stride[1] = 3, x.stride[2] = 3 * 4, x.stride[3] = 3 * 4 * 5;
    int *to = calloc(360, sizeof *to), *from = calloc(360, sizeof *from);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 5; c++)
                for (int d = 0; d < 6; d++)
                    from[a + 3 * b + 12 * c + 60 * d] = ((a * 4 + b) * 5 + c) * 6 + d;
    mr_loop loop;
    mr_loop_init(&loop, (const mr_desc *[]){&y, &x}, 2);
    mr_loop_run(&loop, 3, add_up, (int *[]){to, from});
    int right = 0;
    for (int i = 0; i < 360; i++)
        right += to[i] == i;
    CHECK_INT(right, 360);
    // dense neighbours join
    mr_loop_init(&loop, (const mr_desc *[]){&y, &y}, 2);
    CHECK_INT(loop.rank, 1);
    CHECK_INT(loop.dim[0], 360);
    free(to), free(from);
}

static float sum_with(const float *x, int64_t n, int threads)
{
    const mr_op *op = mr_op_find("sum");
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES];
    float y = 0;
    mr_call call = {.n_in = 1, .n_out = 1, .attr = attr, .threads = threads};
    mr_facts facts = {.threads = threads};
    CHECK_OK(mr_op_attrs(op, MR_NO_ATTRS, attr));
    call.in[0] = (mr_view){(void *)(uintptr_t)x, mr_desc_dense(MR_F32, 1, &n)};
    call.out[0] = (mr_view){&y, mr_desc_dense(MR_F32, 0, NULL)};
    call.workspace = malloc(op->cpu.workspace(&call, &facts) + 64);
    CHECK_OK(mr_kernel_run(&op->cpu, mr_isa())(&call));
    free(call.workspace);
    return y;
}

static void sums(void)
{
    enum { n = 300001 };
    static float x[n];
    mr_random_fill_normal(x, n, 1, 2, 3, 0, 0);
    float one = sum_with(x, n, 1), three = sum_with(x, n, 3), four = sum_with(x, n, 4);
    CHECK(one == three);
    CHECK(one == four);
}

int main(void)
{
    chunks();
    strided();
    sums();
    return check_done();
}
