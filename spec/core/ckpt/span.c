/* ckpt/span: boxes and ranges as runs of bytes, and their intersections, compared with counting
 * element by element. */
#include "check.h"
#include "ckpt/span.h"

enum { MOST = 4096 };

static unsigned seed = 7;
static int64_t draw(int64_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 8) % below;
}

static void draw_part(int64_t n, int64_t *from, int64_t *to)
{
    *from = draw(n + 1), *to = *from + draw(n - *from + 1);
    // often all of it, so that runs are joined
    if (draw(2))
        *from = 0, *to = n;
}

static mr_st_tensor draw_tensor(void)
{
    mr_st_tensor t = {.name = "t", .dtype = draw(2) ? MR_ST_F32 : MR_ST_U8, .rank = (int)draw(5)};
    for (int d = 0; d < t.rank; d++)
        t.shape[d] = 1 + draw(5);
    CHECK_OK(mr_st_shape_bytes(t.dtype, t.rank, t.shape, &t.bytes));
    return t;
}

static mr_ckpt_slice draw_slice(const mr_st_tensor *t)
{
    mr_ckpt_slice s = {.cut = (mr_ckpt_cut)draw(3)};
    if (s.cut == MR_CKPT_RANGE)
        draw_part(t->bytes / (int64_t)mr_st_dtype_bytes(t->dtype), &s.from[0], &s.to[0]);
    for (int d = 0; d < t->rank && s.cut == MR_CKPT_BOX; d++)
        draw_part(t->shape[d], &s.from[d], &s.to[d]);
    return s;
}

/* For each byte of the tensor its position in the slice, or -1; returns the bytes of the slice. */
static int64_t places(const mr_st_tensor *t, const mr_ckpt_slice *s, int64_t place[MOST])
{
    int64_t size = (int64_t)mr_st_dtype_bytes(t->dtype), n = 0;
    for (int64_t i = 0; i < t->bytes / size; i++) {
        bool in =
            s->cut == MR_CKPT_ALL || (s->cut == MR_CKPT_RANGE && i >= s->from[0] && i < s->to[0]);
        if (s->cut == MR_CKPT_BOX) {
            int64_t rest = i;
            in = true;
            for (int d = t->rank - 1; d >= 0; d--) {
                int64_t x = rest % t->shape[d];
                rest /= t->shape[d];
                in = in && x >= s->from[d] && x < s->to[d];
            }
        }
        for (int64_t b = 0; b < size; b++)
            place[i * size + b] = in ? n++ : -1;
    }
    return n;
}

/* The runs that mr_span_intersect reported, by position in the first span. */
static int64_t met[MOST];
static int64_t n_met, last_met;
static mr_status note(void *user, int64_t at_a, int64_t at_b, int64_t n)
{
    (void)user;
    CHECK(n > 0 && at_a > last_met);
    for (int64_t i = 0; i < n; i++)
        met[at_a + i] = at_b + i;
    n_met += n;
    last_met = at_a + n - 1;
    return MR_OK;
}

static void random_parts(void)
{
    static int64_t in_a[MOST], in_b[MOST];
    int64_t both = 0, boxes = 0;
    for (int round = 0; round < 20000; round++) {
        mr_st_tensor t = draw_tensor();
        mr_ckpt_slice a = draw_slice(&t), b = draw_slice(&t);
        mr_span ra, rb;
        CHECK_OK(mr_span_of(&t, &a, &ra));
        CHECK_OK(mr_span_of(&t, &b, &rb));
        CHECK_INT(mr_span_bytes(&ra), places(&t, &a, in_a));
        CHECK_INT(mr_span_bytes(&rb), places(&t, &b, in_b));
        boxes += ra.outer > 0;
        for (int64_t i = 0; i < ra.runs; i++) {
            CHECK_INT(in_a[mr_span_start(&ra, i)], i * ra.run);
            CHECK_INT(in_a[mr_span_start(&ra, i) + ra.run - 1], (i + 1) * ra.run - 1);
        }
        n_met = 0, last_met = -1;
        CHECK_OK(mr_span_intersect(&ra, &rb, note, NULL));
        int64_t want = 0;
        for (int64_t i = 0; i < t.bytes; i++)
            if (in_a[i] >= 0 && in_b[i] >= 0) {
                CHECK_INT(met[in_a[i]], in_b[i]);
                want++;
            }
        CHECK_INT(n_met, want);
        both += want;
    }
    printf("seed 7: %lld bytes in both, %lld spans of several runs\n", (long long)both,
           (long long)boxes);
    CHECK(both > 100000 && boxes > 500);
}

/* A large tensor divided along its last dimension: runs are computed, not counted. */
static void many_runs(void)
{
    mr_st_tensor t = {.name = "t", .dtype = MR_ST_F32, .rank = 2, .shape = {1 << 30, 1000}};
    CHECK_OK(mr_st_shape_bytes(t.dtype, t.rank, t.shape, &t.bytes));
    mr_ckpt_slice column = {MR_CKPT_BOX, {0, 500}, {1 << 30, 501}};
    mr_span r, row = mr_span_stretch(4000ll * 999999999, 4000);
    CHECK_OK(mr_span_of(&t, &column, &r));
    CHECK_INT(r.runs, 1 << 30);
    n_met = 0, last_met = -1;
    CHECK_OK(mr_span_intersect(&row, &r, note, NULL));
    CHECK_INT(n_met, 4);
    CHECK_INT(met[2000], 4ll * 999999999);
}

static void refused(void)
{
    mr_st_tensor t = {
        .name = "t", .dtype = MR_ST_F32, .rank = 2, .shape = {4, 6}, .bytes = 4 * 6 * 4};
    static const struct {
        mr_ckpt_slice slice;
        const char *why;
    } rows[] = {
        {{MR_CKPT_RANGE, {0}, {25}}, "tensor 't': range 0 to 25: expected 0 <= from <= to <= 24"},
        {{MR_CKPT_RANGE, {-1}, {2}}, "range -1 to 2"},
        {{MR_CKPT_RANGE, {3}, {2}}, "range 3 to 2"},
        {{MR_CKPT_BOX, {0, 0}, {4, 7}}, "box 0 to 7: expected 0 <= from <= to <= 6"},
        {{MR_CKPT_BOX, {3, 0}, {2, 6}}, "box 3 to 2"},
    };
    mr_span r;
    for (size_t i = 0; i < MR_COUNT(rows); i++)
        CHECK_FAILS(mr_span_of(&t, &rows[i].slice, &r), MR_E_RANGE, rows[i].why);
}

/* The name and shape of a part in a rank's file. */
static void names(void)
{
    mr_ckpt_item item = {.name = "x", .dtype = MR_ST_F32, .rank = 2, .shape = {4, 6}}, part;
    char name[MR_SLICE_NAME];
    CHECK_OK(mr_ckpt_slice_item(&item, name, sizeof name, &part));
    CHECK_STR(part.name, "x");
    CHECK_INT(part.rank, 2);
    item.slice = (mr_ckpt_slice){MR_CKPT_BOX, {0, 2}, {4, 5}};
    CHECK_OK(mr_ckpt_slice_item(&item, name, sizeof name, &part));
    CHECK_STR(part.name, "x[0:4,2:5]");
    CHECK(part.rank == 2 && part.shape[0] == 4 && part.shape[1] == 3);
    item.slice = (mr_ckpt_slice){MR_CKPT_RANGE, {5}, {20}};
    CHECK_OK(mr_ckpt_slice_item(&item, name, sizeof name, &part));
    CHECK_STR(part.name, "x[5:20]");
    CHECK(part.rank == 1 && part.shape[0] == 15);
    item.slice.to[0] = 25;
    CHECK_FAILS(mr_ckpt_slice_item(&item, name, sizeof name, &part), MR_E_RANGE, "range 5 to 25");
}

int main(void)
{
    random_parts();
    many_runs();
    refused();
    names();
    return check_done();
}
