/* graph/build and store: invalid shapes, offsets and places are refused when they are requested,
 * with names.
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
                "expected the same number of elements");
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
    CHECK_FAILS(mr_graph_region(g, "w", MR_SPACE_DEVICE, MR_F32, -16, 1, (int64_t[]){16}, &x),
                MR_E_RANGE, "region 'w': offset -16");
    CHECK_FAILS(
        mr_graph_region(g, "w", MR_SPACE_DEVICE, MR_F32, (int64_t)1 << 62, 1, (int64_t[]){16}, &x),
        MR_E_RANGE, "offset 4611686018427387904");
    CHECK_FAILS(mr_graph_region(g, "w", MR_SPACE_DEVICE, MR_F32, 0, 1, (int64_t[]){-16}, &x),
                MR_E_SHAPE, "region 'w'");
    CHECK_OK(mr_graph_region(g, "w", MR_SPACE_DEVICE, MR_F32, 16, 1, (int64_t[]){16}, &x));
    mr_graph_free(g);
}

/* A view of a view of a parameter has the right first element and first byte. */
static void views(void)
{
    mr_params *p = NULL;
    mr_graph *g = NULL;
    int id;
    mr_ref x, rows, row;
    CHECK_OK(mr_params_new(MR_F32, &p));
    mr_param w = {.name = "w", .desc = mr_desc_dense(MR_F32, 2, (int64_t[]){5, 3})};
    CHECK_OK(mr_params_add(p, &w, &id));
    CHECK_OK(mr_params_seal(p, NULL));
    CHECK_OK(mr_graph_new(p, NULL, &g));
    CHECK_OK(mr_graph_param(g, id, &x));
    CHECK_OK(mr_graph_slice(g, x, 0, 1, 4, &rows));
    CHECK_OK(mr_graph_slice(g, rows, 0, 2, 3, &row));
    const mr_value *v = mr_graph_value(g, row);
    CHECK_INT(v->param, id);
    CHECK_INT(v->param_at, 9);
    CHECK_INT(v->offset, 36);
    mr_graph_free(g);
    mr_params_free(p);
}

/* An op that overwrites its input may not do so to a constant, also not through a view. */
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

/* The current queue is stored in each node; setup and the sums of gradients stay on compute. */
static void queues(void)
{
    mr_graph *g = graph();
    mr_queue before;
    mr_ref x, y, z, c, dx;
    float one = 1;
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        CHECK_INT(mr_queue_find(mr_queue_name((mr_queue)q)), q);
    CHECK_INT(mr_queue_find("comm"), MR_QUEUE_COUNT);
    CHECK_STR(mr_queue_name(MR_QUEUE_COUNT), "?");
    CHECK_FAILS(mr_graph_set_queue(g, MR_QUEUE_COUNT, &before), MR_E_USAGE,
                "queue 5: expected 0 (compute) to 4 (d2h)");
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){4}, &x));
    CHECK_OK(mr_graph_const(g, &(mr_view){&one, mr_desc_dense(MR_F32, 0, NULL)}, &c));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_H2D, &before));
    CHECK_INT(before, MR_Q_COMPUTE);
    CHECK_OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    CHECK_OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &c, 1, &c));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_COMPUTE, &before));
    CHECK_INT(before, MR_Q_H2D);
    CHECK_OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){y, x}, 2, &z));
    CHECK_OK(mr_graph_expand(g, c, 1, (int64_t[]){4}, &c));
    CHECK_OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){z, c}, 2, &z));
    CHECK_OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &(mr_ints){1, {0}}}), &z, 1, &z));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_D2H, NULL));
    CHECK_OK(mr_graph_backward(g, z, &x, 1, &dx));
    CHECK_OK(mr_graph_set_queue(g, MR_Q_D2H, &before));
    CHECK_INT(before, MR_Q_D2H); // as before the gradients
    CHECK_OK(mr_graph_output(g, "dx", dx));
    CHECK_OK(mr_graph_finish(g));
    CHECK_FAILS(mr_graph_set_queue(g, MR_Q_H2D, NULL), MR_E_USAGE, "finished");
    char *text = NULL;
    CHECK_OK(mr_graph_print(g, &text));
    int on = 0;
    for (const char *at = text; (at = strstr(at, "  on ")); at++)
        on++;
    for (int i = 0; i < mr_graph_nodes(g); i++) {
        const mr_node *node = mr_graph_node(g, i);
        bool side = strstr(node->op->name, "silu") != NULL;
        CHECK_INT(node->queue, side ? MR_Q_H2D : MR_Q_COMPUTE);
        on -= side;
    }
    CHECK_INT(on, 0);
    mr_free(text);
    mr_graph_free(g);
}

int main(void)
{
    sizes();
    queues();
    regions();
    views();
    constants();
    strangers();
    return check_done();
}
