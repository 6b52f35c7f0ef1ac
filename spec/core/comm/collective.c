/* comm/collective: the results of each rank, for uneven and empty shares, compared with sums
 * computed here; and the bytes that each rank passes to the transport. */
#include "rankcase.h"

enum { MOST = 40000 };

// contribution of a rank: all ranks and elements differ, and their sums are rounded in f32
static float value(int rank, int64_t i)
{
    return (float)(1 + rank) * 0.1f + (float)((i * 2654435761u + 12345) % 1000) * 1e-3f;
}

static void fill(int rank, mr_dtype dtype, void *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = value(rank, i);
        switch (dtype) {
        case MR_F64: ((double *)x)[i] = v; break;
        case MR_F32: ((float *)x)[i] = v; break;
        case MR_BF16: ((uint16_t *)x)[i] = mr_f32_to_bf16(v); break;
        case MR_I64: ((int64_t *)x)[i] = (rank + 1) * (i - 5) * (INT64_C(1) << 33); break;
        default: ((int32_t *)x)[i] = (int32_t)((rank + 1) * (i % 1000 - 5)); break;
        }
    }
}

// the sum over ranks 0..n-1, in their order
static double sum_of(int n, mr_dtype dtype, int64_t i)
{
    double wide = 0;
    float f = 0;
    for (int r = 0; r < n; r++) {
        float v = value(r, i);
        v = dtype == MR_BF16 ? mr_bf16_to_f32(mr_f32_to_bf16(v)) : v;
        f = r ? f + v : v;
        wide += v;
    }
    switch (dtype) {
    case MR_F64: return wide;
    case MR_F32: return f;
    case MR_BF16: return mr_bf16_to_f32(mr_f32_to_bf16(f));
    case MR_I64: return (double)(n * (n + 1) / 2 * (i - 5) * (INT64_C(1) << 33));
    default: return (double)(n * (n + 1) / 2 * (i % 1000 - 5));
    }
}

static double get(mr_dtype dtype, const void *x, int64_t i)
{
    switch (dtype) {
    case MR_F64: return ((const double *)x)[i];
    case MR_F32: return ((const float *)x)[i];
    case MR_BF16: return mr_bf16_to_f32(((const uint16_t *)x)[i]);
    case MR_I64: return (double)((const int64_t *)x)[i];
    default: return ((const int32_t *)x)[i];
    }
}

static mr_status all_equal(const rank_case *c, mr_dtype dtype, const void *x, int64_t n, int64_t at)
{
    for (int64_t i = 0; i < n; i++)
        if (get(dtype, x, i) != sum_of(c->size, dtype, at + i))
            return mr_fail(MR_E_FAIL, "%s element %lld is %.9g, expected %.9g",
                           mr_dtype_name(dtype), (long long)(at + i), get(dtype, x, i),
                           sum_of(c->size, dtype, at + i));
    return MR_OK;
}

static mr_status expect(int64_t got, int64_t want, const char *what)
{
    return got == want ? MR_OK
                       : mr_fail(MR_E_FAIL, "%s is %lld, expected %lld", what, (long long)got,
                                 (long long)want);
}

static mr_status reduces_everywhere(rank_case *c)
{
    static const mr_dtype dtypes[] = {MR_F64, MR_F32, MR_BF16, MR_I64, MR_I32};
    // one hop, two, more, none; and shares that are summed in two pieces, the second in f32: in the
    // first case the last piece of each chunk has one element, with 2, 4 and 8 ranks
    const int64_t counts[] = {1, 300, 9001, MOST, 0, (1 << 18) + c->size, (1 << 20) + 5000};
    double *x = malloc((size_t)counts[MR_COUNT(counts) - 1] * 4);
    mr_status st = MR_OK;
    for (size_t d = 0; d < MR_COUNT(dtypes) && st == MR_OK; d++)
        for (size_t k = 0; k < MR_COUNT(counts) - 2 * (dtypes[d] != MR_F32) && st == MR_OK; k++) {
            fill(c->rank, dtypes[d], x, counts[k]);
            st = mr_comm_all_reduce(c->world, MR_COMM_SUM, dtypes[d], x, counts[k]);
            if (st == MR_OK)
                st = all_equal(c, dtypes[d], x, counts[k], 0);
        }
    free(x);
    return st;
}

static mr_status takes_the_largest(rank_case *c)
{
    float x[3] = {(float)-c->rank, (float)c->rank, c->rank == 1 ? NAN : 0};
    int64_t y[2] = {-c->rank - 1, INT64_C(1) << (40 + c->rank)};
    MR_TRY(mr_comm_all_reduce(c->world, MR_COMM_MAX, MR_F32, x, 3));
    MR_TRY(mr_comm_all_reduce(c->world, MR_COMM_MAX, MR_I64, y, 2));
    MR_TRY(expect((int64_t)x[0], 0, "largest of 0, -1, ..."));
    MR_TRY(expect((int64_t)x[1], c->size - 1, "largest of ranks"));
    MR_TRY(expect(isnan(x[2]) || c->size == 1, 1, "what is no number"));
    MR_TRY(expect(y[0], -1, "largest of negative numbers"));
    return expect(y[1], INT64_C(1) << (39 + c->size), "largest of long numbers");
}

// shares of ranks: uneven, some empty
static int64_t share(int rank)
{
    return rank % 3 == 1 ? 0 : 7000 + 1234 * rank;
}

static mr_status shares(rank_case *c)
{
    int64_t counts[16], total = 0, at = 0;
    for (int r = 0; r < c->size; r++) {
        counts[r] = share(r);
        at += r < c->rank ? counts[r] : 0;
        total += counts[r];
    }
    float *x = malloc((size_t)total * sizeof *x + 1), *own = malloc(100000 * sizeof *own);
    fill(c->rank, MR_F32, x, total);
    mr_comm_count_reset(c->world);
    mr_status st = mr_comm_reduce_scatter(c->world, MR_COMM_SUM, MR_F32, x, counts, MR_F32, own);
    int64_t bytes = mr_comm_counted(c->world, MR_COMM_REDUCE_SCATTER).bytes;
    if (st == MR_OK)
        st = expect(bytes, (total - counts[c->rank]) * 4, "bytes of reduce_scatter");
    if (st == MR_OK)
        st = all_equal(c, MR_F32, own, counts[c->rank], at);
    // in place, and rounded to bf16
    if (st == MR_OK)
        st = mr_comm_reduce_scatter(c->world, MR_COMM_SUM, MR_F32, x, counts, MR_F32, x + at);
    if (st == MR_OK)
        st = all_equal(c, MR_F32, x + at, counts[c->rank], at);
    memset(x, 0, (size_t)total * sizeof *x);
    mr_comm_count_reset(c->world);
    if (st == MR_OK)
        st = mr_comm_all_gather(c->world, MR_F32, own, counts, x);
    bytes = mr_comm_counted(c->world, MR_COMM_ALL_GATHER).bytes;
    if (st == MR_OK)
        st = expect(bytes, counts[c->rank] * 4 * (c->size - 1), "bytes of all_gather");
    if (st == MR_OK)
        st = all_equal(c, MR_F32, x, total, 0);
    free(x), free(own);
    return st;
}

static mr_status changes_dtype(rank_case *c)
{
    int64_t counts[16], mine = 100 + c->rank, total = 0, at = 0;
    for (int r = 0; r < c->size; r++) {
        counts[r] = 100 + r, at += r < c->rank ? counts[r] : 0;
        total += counts[r];
    }
    uint16_t half[4000], halves[200];
    float full[4000], wide[200];
    fill(c->rank, MR_BF16, half, total), fill(c->rank, MR_F32, full, total);
    MR_TRY(mr_comm_reduce_scatter(c->world, MR_COMM_SUM, MR_BF16, half, counts, MR_F32, wide));
    MR_TRY(mr_comm_reduce_scatter(c->world, MR_COMM_SUM, MR_F32, full, counts, MR_BF16, halves));
    for (int64_t i = 0; i < mine; i++) {
        // bf16 contributions are not rounded on the way; f32 ones are rounded once
        float f = 0;
        for (int r = 0; r < c->size; r++)
            f += mr_bf16_to_f32(mr_f32_to_bf16(value(r, at + i)));
        if (f != wide[i])
            return mr_fail(MR_E_FAIL, "element %d: %.9g, expected %.9g", (int)i, wide[i], f);
        MR_TRY(expect(halves[i], mr_f32_to_bf16((float)sum_of(c->size, MR_F32, at + i)), "bf16"));
    }
    return MR_OK;
}

static mr_status exchanges(rank_case *c)
{
    // rank a sends rank b (a + 2 b) % 5 bytes, each of value 16 a + b, in 8 bits
    int64_t sends[64], receives[64], n_in = 0, n_out = 0;
    uint8_t in[320], out[320];
    for (int r = 0; r < c->size; r++) {
        sends[r] = (c->rank + 2 * r) % 5, receives[r] = (r + 2 * c->rank) % 5;
        memset(in + n_in, 16 * c->rank + r, (size_t)sends[r]), n_in += sends[r];
    }
    MR_TRY(mr_comm_all_to_all(c->world, MR_U8, in, sends, out, receives));
    for (int r = 0; r < c->size; r++)
        for (int64_t i = 0; i < receives[r]; i++)
            MR_TRY(expect(out[n_out++], (uint8_t)(16 * r + c->rank), "byte of all_to_all"));
    return MR_OK;
}

static mr_status tells(rank_case *c)
{
    enum { COUNT = 70000 };
    int32_t *x = malloc(COUNT * sizeof *x);
    mr_status st = MR_OK;
    for (int root = 0; root < c->size && st == MR_OK; root++) {
        memset(x, c->rank == root ? root + 1 : 99, COUNT * sizeof *x);
        st = mr_comm_broadcast(c->world, root, MR_I32, x, COUNT);
        if (st == MR_OK)
            st = expect(x[COUNT - 1], 0x01010101 * (root + 1), "broadcast");
    }
    free(x);
    return st;
}

static mr_status passes_on(rank_case *c)
{
    // around the ring, from rank 0 back to it
    int32_t token = 7;
    int next = (c->rank + 1) % c->size, last = (c->rank + c->size - 1) % c->size;
    if (c->rank)
        MR_TRY(mr_comm_receive(c->world, last, MR_I32, &token, 1));
    token++;
    if (c->size > 1)
        MR_TRY(mr_comm_send(c->world, next, MR_I32, &token, 1));
    if (c->rank == 0 && c->size > 1)
        MR_TRY(mr_comm_receive(c->world, last, MR_I32, &token, 1));
    MR_TRY(mr_comm_barrier(c->world, 0));
    return expect(token, c->rank ? 8 + c->rank : 7 + c->size, "token");
}

static mr_status counts_bytes(rank_case *c)
{
    // the table of ZeRO: 2 (W - 1) / W of the reduced bytes
    enum { N = 12 * 5 * 7 * 100 };
    float *x = calloc(N, sizeof *x);
    mr_comm_count_reset(c->world);
    mr_status st = mr_comm_all_reduce(c->world, MR_COMM_SUM, MR_F32, x, N);
    mr_comm_count got = mr_comm_counted(c->world, MR_COMM_ALL_REDUCE);
    free(x);
    MR_TRY(st);
    MR_TRY(expect(got.calls, 1, "calls"));
    return expect(got.bytes, INT64_C(2) * N * 4 / c->size * (c->size - 1), "bytes");
}

static mr_status knows_all(rank_case *c)
{
    int64_t sum = c->rank + 1;
    MR_TRY(mr_comm_all_reduce(c->world, MR_COMM_SUM, MR_I64, &sum, 1));
    MR_TRY(mr_comm_barrier(c->world, 0));
    return expect(sum, c->size * (c->size + 1) / 2, "sum of ranks");
}

static void alone(void)
{
    mr_comm *c;
    float x[2] = {1, 2}, y[2];
    int64_t two = 2;
    CHECK_OK(mr_comm_world(NULL, NULL, &c));
    CHECK_INT(mr_comm_size(c), 1);
    CHECK_OK(mr_comm_all_reduce(c, MR_COMM_SUM, MR_F32, x, 2));
    CHECK_OK(mr_comm_reduce_scatter(c, MR_COMM_SUM, MR_F32, x, &two, MR_F32, y));
    CHECK_OK(mr_comm_all_gather(c, MR_F32, y, &two, x));
    CHECK_OK(mr_comm_broadcast(c, 0, MR_F32, x, 2));
    CHECK_OK(mr_comm_barrier(c, 0));
    CHECK_NEAR(x[1], 2, 0);
    CHECK_FAILS(mr_comm_all_reduce(c, MR_COMM_SUM, MR_BOOL, x, 1), MR_E_USAGE,
                "bool has no sum over ranks");
    CHECK_FAILS(mr_comm_reduce_scatter(c, MR_COMM_SUM, MR_F64, x, &two, MR_F32, y), MR_E_USAGE,
                "f64 cannot return f32");
    CHECK_FAILS(mr_comm_all_reduce(c, MR_COMM_SUM, MR_F32, x, -1), MR_E_USAGE, "-1 elements");
    CHECK_FAILS(mr_comm_send(c, 0, MR_F32, x, 1), MR_E_USAGE, "rank 0 is this one");
    CHECK_FAILS(mr_comm_broadcast(c, 1, MR_F32, x, 1), MR_E_USAGE, "rank 1: expected 0 to 0");
    mr_comm_free(c);
}

// a different number of elements from each rank, none from some, in both directions and all round
static mr_status shifts(rank_case *c)
{
    float x[512], y[512];
    for (int hops = -c->size - 1; hops <= c->size + 1; hops++) {
        int from = ((c->rank - hops) % c->size + c->size) % c->size;
        int64_t give = share(c->rank) / 100, get = share(from) / 100;
        fill(c->rank, MR_F32, x, give);
        mr_comm_count_reset(c->world);
        MR_TRY(mr_comm_shift(c->world, hops, MR_F32, x, give, y, get));
        for (int64_t i = 0; i < get; i++)
            if (y[i] != value(from, i))
                return mr_fail(MR_E_FAIL, "%d hops: %g at %lld, expected %g", hops, y[i],
                               (long long)i, value(from, i));
        MR_TRY(expect(mr_comm_counted(c->world, MR_COMM_SHIFT).bytes, hops % c->size ? give * 4 : 0,
                      "bytes of a shift"));
    }
    return MR_OK;
}

static mr_status shifts_of_other_sizes(rank_case *c)
{
    float x[8] = {0}, y[8];
    return mr_comm_shift(c->world, 1, MR_F32, x, 3, y, c->rank == 1 ? 4 : 3);
}

static void collectives(int most)
{
    for (int n = 1; n <= most; n++) {
        ranks_succeed(n, reduces_everywhere, NULL);
        ranks_succeed(n, takes_the_largest, NULL);
        ranks_succeed(n, shares, NULL);
        ranks_succeed(n, changes_dtype, NULL);
        ranks_succeed(n, exchanges, NULL);
        ranks_succeed(n, tells, NULL);
        ranks_succeed(n, passes_on, NULL);
        ranks_succeed(n, shifts, NULL);
    }
    for (int n = 2; n <= MR_MIN(most, 4); n++)
        ranks_succeed(n, counts_bytes, NULL);
}

int main(void)
{
    rank_case *cases = ranks_run(3, shifts_of_other_sizes, NULL, NULL);
    CHECK_INT(cases[1].st, MR_E_SHAPE);
    CHECK(strstr(cases[1].text, "rank 0 sends 12 bytes to this rank, 1, which expects 16") != NULL);
    free(cases);
    collectives(5);
    // each on a host of its own, then two on each host, where the last rank is alone
    rank_host = 1, collectives(3);
    rank_host = 2, collectives(5);
    ranks_succeed(16, exchanges, NULL);
    rank_host = 0;
    // schedules of many ranks, on rings of half a kilobyte
    ranks_succeed(64, exchanges, NULL);
    ranks_succeed(256, knows_all, NULL);
    alone();
    return check_done();
}
