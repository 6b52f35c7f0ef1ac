/* graph/build and store: shapes, offsets and places that no graph may have are refused where they
 * are asked for, with names.
 * Covers: core/graph/store.c */
#include "check.h"
#include "moonreel/graph.h"

static mr_graph *graph(void)
{
    mr_graph *g = NULL;
    CHECK_OK(mr_graph_new(NULL, NULL, &g));
    return g;
}

static void sizes(void)
{
    static const int64_t big = (int64_t)1 << 40;
    mr_graph *g = graph();
    mr_ref x, y;
    CHECK_FAILS(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){big, big}, &x), MR_E_SHAPE,
                "input 'x'");
    CHECK_FAILS(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){3, -1}, &x), MR_E_SHAPE,
                "dimension 1 is -1");
    // 2^64 elements are 0 in 64 bits
    CHECK_FAILS(
        mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){(int64_t)1 << 32, (int64_t)1 << 32}, &x),
        MR_E_SHAPE, "too large");
    CHECK_FAILS(mr_graph_input(g, "x", MR_F32, 9, (int64_t[9]){0}, &x), MR_E_SHAPE, "rank 9");
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){1, 4}, &x));
    CHECK_FAILS(mr_graph_expand(g, x, 3, (int64_t[]){big, big, 4}, &y), MR_E_SHAPE, "too large");
    CHECK_FAILS(mr_graph_reshape(g, x, 3, (int64_t[]){(int64_t)1 << 62, 4, 4}, &y), MR_E_SHAPE,
                "not that many elements");
    // results too: a column times a row of expanded values
    mr_ref column, row;
    CHECK_OK(mr_graph_expand(g, x, 2, (int64_t[]){big, 4}, &column));
    CHECK_OK(mr_graph_permute(g, column, (int[]){1, 0}, &row));
    CHECK_FAILS(mr_graph_add(g, "matmul", MR_NO_ATTRS, (mr_ref[]){column, row}, 2, &y), MR_E_SHAPE,
                "too large");
    mr_ints dims = {2, {big, big}};
    CHECK_FAILS(mr_graph_add(g, "zeros", MR_ATTRS({"dtype", .i = MR_F32}, {"dims", .ints = &dims}),
                             NULL, 0, &y),
                MR_E_SHAPE, "too large");
    mr_graph_free(g);
}

static void regions(void)
{
    mr_graph *g = graph();
    mr_ref x;
    CHECK_FAILS(mr_graph_region(g, "w", MR_F32, -16, 1, (int64_t[]){16}, &x), MR_E_RANGE,
                "region 'w': offset -16");
    CHECK_FAILS(mr_graph_region(g, "w", MR_F32, (int64_t)1 << 62, 1, (int64_t[]){16}, &x),
                MR_E_RANGE, "offset 4611686018427387904");
    CHECK_FAILS(mr_graph_region(g, "w", MR_F32, 0, 1, (int64_t[]){-16}, &x), MR_E_SHAPE,
                "region 'w'");
    CHECK_OK(mr_graph_region(g, "w", MR_F32, 16, 1, (int64_t[]){16}, &x));
    mr_graph_free(g);
}

/* A row that writes over its input may not do so to a constant, also not through a view. */
static void constants(void)
{
    float data[4] = {1, 2, 3, 4};
    mr_view v = {data, mr_desc_dense(MR_F32, 1, (int64_t[]){4})};
    mr_graph *g = graph();
    mr_ref c, x, y, part;
    CHECK_OK(mr_graph_const(g, &v, &c));
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){4}, &x));
    CHECK_FAILS(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){c, x}, 2, &y), MR_E_USAGE,
                "'acc' is written over 'acc', which is constant");
    CHECK_OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &c, 1, &y));
    CHECK_OK(mr_graph_reshape(g, y, 2, (int64_t[]){4, 1}, &part));
    CHECK_OK(mr_graph_reshape(g, part, 1, (int64_t[]){4}, &part));
    CHECK_FAILS(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){part, x}, 2, &y), MR_E_USAGE,
                "which is constant");
    mr_graph_free(g);
}

static void strangers(void)
{
    mr_graph *g = graph();
    mr_ref x;
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){4}, &x));
    CHECK_FAILS(mr_graph_save(g, x + 1), MR_E_USAGE, "value 1 is not of this graph");
    CHECK_FAILS(mr_graph_output(g, "y", MR_NONE), MR_E_USAGE, "value -1 is not of this graph");
    CHECK(!mr_graph_finished(g));
    CHECK_OK(mr_graph_finish(g));
    CHECK(mr_graph_finished(g));
    CHECK_FAILS(mr_graph_output(g, "y", x), MR_E_USAGE, "finished");
    mr_graph_free(g);
}

int main(void)
{
    sizes();
    regions();
    constants();
    strangers();
    return check_done();
}
