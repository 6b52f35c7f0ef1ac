/* Small graphs and models that executor specs share. Include after specops.h. */
#ifndef MR_EXECCASE_H
#define MR_EXECCASE_H
#include "specops.h"
#include "adamrows.h"
#include "check.h"

#define OK(call) CHECK_OK(call)

/* y = blend(x, x) of n elements */
static inline mr_graph *small_graph(int64_t n, double k)
{
    mr_graph *g = NULL;
    mr_ref x, y;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_input(g, "unread", MR_I32, 1, &n, &y));
    OK(mr_graph_add(g, "spec_blend", MR_ATTRS({"k", .f = k}), (mr_ref[]){x, x}, 2, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    return g;
}

typedef struct model {
    mr_params *params;
    int w, b, frozen;
} model;

static inline model model_of(mr_dtype compute)
{
    model m = {0};
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t eight = 8, five = 5;
    OK(mr_params_new(compute, &m.params));
    OK(mr_params_add(m.params,
                     &(mr_param){.name = "b",
                                 .desc = mr_desc_dense(compute, 1, &five),
                                 .init = {.kind = MR_INIT_ONES}},
                     &m.b));
    OK(mr_params_add(m.params,
                     &(mr_param){.name = "w",
                                 .desc = mr_desc_dense(compute, 1, &eight),
                                 .init = {MR_INIT_VALUES, 1, values}},
                     &m.w));
    OK(mr_params_add(m.params,
                     &(mr_param){.name = "f",
                                 .desc = mr_desc_dense(compute, 1, &eight),
                                 .init = {MR_INIT_VALUES, 1, values},
                                 .frozen = true},
                     &m.frozen));
    OK(mr_params_seal(m.params, NULL));
    return m;
}

/* y = (x w) f */
static inline mr_graph *scale_graph(const model *m)
{
    mr_graph *g = NULL;
    int64_t n = 8;
    mr_ref x, w, f;
    OK(mr_graph_new(m->params, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_param(g, m->w, &w));
    OK(mr_graph_param(g, m->frozen, &f));
    OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, w}, 2, &x));
    OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, f}, 2, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    return g;
}

/* Both devices, closed by the caller. */
static inline void open_both(mr_device *both[2])
{
    OK(mr_device_open("cpu", 2, &both[0]));
    OK(mr_device_open("shadow", 2, &both[1]));
}

#endif
