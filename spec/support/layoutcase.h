/* The graph that layout specs share. */
#ifndef MR_LAYOUTCASE_H
#define MR_LAYOUTCASE_H
#include "check.h"
#include "moonreel/layout.h"

#define OK(call) CHECK_OK(call)
enum { B = 2, C = 24000, LAYERS = 8 };

/* A small trained stack: x -> (silu(x) mul w-like input, sums), with blocks, backward and
 * constants. */
static inline mr_graph *stack(bool recompute)
{
    mr_graph *g = NULL;
    mr_ref x, k, loss, dx;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){B, C}, &x));
    OK(mr_graph_input(g, "k", MR_F32, 2, (int64_t[]){B, C}, &k));
    mr_ref in = x;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        mr_ref a, b;
        snprintf(name, sizeof name, "layer.%d", i);
        mr_graph_set_origin(g, name);
        OK(mr_graph_block_begin(g, name, recompute));
        OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &a));
        OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){a, k}, 2, &b));
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &b, 1, &a));
        OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){a, x}, 2, &x));
        OK(mr_graph_block_end(g));
    }
    mr_ints axes = {2, {0, 1}};
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axes}), &x, 1, &loss));
    OK(mr_graph_output(g, "loss", loss));
    OK(mr_graph_backward(g, loss, &in, 1, &dx));
    OK(mr_graph_output(g, "dx", dx));
    OK(mr_graph_finish(g));
    return g;
}

#endif
