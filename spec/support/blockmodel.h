/* A small transformer whose training executor specs share: LAYERS blocks over x [B, T, S, C],
 * forward, backward and update. BLOCK_D and BLOCK_LAYERS may
 * be set before. */
#ifndef MR_BLOCKMODEL_H
#define MR_BLOCKMODEL_H
#include "adamrows.h"
#include "check.h"

#ifndef BLOCK_D
#define BLOCK_D 36
#endif
#ifndef BLOCK_LAYERS
#define BLOCK_LAYERS 3
#endif
#define OK(call) CHECK_OK(call)

enum { B = 2, T = 3, S = 20, H = 2, D = BLOCK_D, C = H * D, LAYERS = BLOCK_LAYERS, STEPS = 10 };

typedef struct layer {
    int qkv, qkv_b, out, up, up_b, down;
} layer;
typedef struct model {
    mr_params *params;
    mr_dtype dtype;
    layer layer[LAYERS];
} model;

static int weight(model *m, int layer, const char *name, int64_t rows, int64_t cols)
{
    char full[32];
    int id = -1;
    snprintf(full, sizeof full, "blocks.%d.%s", layer, name);
    mr_desc d = mr_desc_dense(m->dtype, cols ? 2 : 1, (int64_t[]){rows, cols});
    mr_param p = {.name = full,
                  .desc = d,
                  .init = {.kind = cols ? MR_INIT_XAVIER : MR_INIT_ZEROS},
                  .decay = 1,
                  .lr_factor = 1};
    OK(mr_params_add(m->params, &p, &id));
    return id;
}

static model model_new(mr_dtype dtype)
{
    model m = {.dtype = dtype};
    OK(mr_params_new(dtype, &m.params));
    for (int i = 0; i < LAYERS; i++)
        m.layer[i] = (layer){weight(&m, i, "qkv", 3 * C, C),  weight(&m, i, "qkv_b", 3 * C, 0),
                             weight(&m, i, "out", C, C),      weight(&m, i, "up", 4 * C, C),
                             weight(&m, i, "up_b", 4 * C, 0), weight(&m, i, "down", C, 4 * C)};
    OK(mr_params_seal(m.params, NULL));
    return m;
}

static mr_ref op(mr_graph *g, const char *name, const mr_ref *in, int n)
{
    mr_ref out[MR_MAX_OUT] = {MR_NONE};
    OK(mr_graph_add(g, name, MR_NO_ATTRS, in, n, out));
    return out[0];
}

static mr_ref linear(mr_graph *g, mr_ref x, int w, int b)
{
    mr_ref in[3] = {x, MR_NONE, MR_NONE};
    OK(mr_graph_param(g, w, &in[1]));
    if (b >= 0)
        OK(mr_graph_param(g, b, &in[2]));
    return op(g, "linear", in, 3);
}

static mr_ref block(mr_graph *g, const layer *l, mr_ref x, mr_ref shift, mr_ref scale, mr_ref gate)
{
    mr_ref q[3], h = linear(g, op(g, "layer_norm_modulate", (mr_ref[]){x, shift, scale}, 3), l->qkv,
                            l->qkv_b);
    for (int i = 0; i < 3; i++) {
        OK(mr_graph_slice(g, h, 3, i * C, (i + 1) * C, &q[i]));
        OK(mr_graph_reshape(g, q[i], 5, (int64_t[]){B, T, S, H, D}, &q[i]));
    }
    h = op(g, "attention", (mr_ref[]){q[0], q[1], q[2], MR_NONE}, 4);
    OK(mr_graph_reshape(g, h, 4, (int64_t[]){B, T, S, C}, &h));
    x = op(g, "gated_residual", (mr_ref[]){x, gate, linear(g, h, l->out, -1)}, 3);
    h = op(g, "gelu_tanh",
           (mr_ref[]){linear(g, op(g, "layer_norm_modulate", (mr_ref[]){x, shift, scale}, 3), l->up,
                             l->up_b)},
           1);
    return op(g, "gated_residual", (mr_ref[]){x, gate, linear(g, h, l->down, -1)}, 3);
}

static mr_graph *step_graph(const model *m, bool recompute)
{
    mr_graph *g = NULL;
    mr_ref x, mod[3], dx;
    OK(mr_graph_new(m->params, NULL, &g));
    OK(mr_graph_input(g, "x", m->dtype, 4, (int64_t[]){B, T, S, C}, &x));
    static const char *const names[] = {"shift", "scale", "gate"};
    for (int i = 0; i < 3; i++)
        OK(mr_graph_input(g, names[i], m->dtype, 3, (int64_t[]){B, T, C}, &mod[i]));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "blocks.%d", i);
        OK(mr_graph_block_begin(g, name, recompute));
        x = block(g, &m->layer[i], x, mod[0], mod[1], mod[2]);
        OK(mr_graph_block_end(g));
    }
    x = op(g, "mul", (mr_ref[]){x, x}, 2);
    OK(mr_graph_add(g, "cast", MR_ATTRS({"dtype", .i = MR_F32}), &x, 1, &x));
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &(mr_ints){4, {0, 1, 2, 3}}}), &x, 1, &x));
    OK(mr_graph_output(g, "loss", x));
    OK(mr_graph_backward(g, x, &mod[0], 1, &dx));
    OK(mr_graph_output(g, "dshift", dx));
    OK(mr_graph_finish(g));
    return g;
}

static mr_graph *update_graph(const model *m)
{
    static const char *const regions[] = {"master", "grad", "adam_m", "adam_v", "ema", "w"};
    mr_graph *g = NULL;
    mr_ref in[8], out[MR_MAX_OUT];
    int64_t n = mr_params_elements(m->params, false);
    OK(mr_graph_new(m->params, NULL, &g));
    for (int i = 0; i < 6; i++) {
        in[i] = MR_NONE;
        if (i < 5 || m->dtype == MR_BF16)
            OK(mr_graph_region(g, regions[i], MR_SPACE_DEVICE, i < 5 ? MR_F32 : MR_BF16, 0, 1, &n,
                               &in[i]));
    }
    OK(mr_graph_input(g, "hyper", MR_F64, 1, (int64_t[]){12}, &in[6]));
    in[7] = op(g, "sum_squares", &in[1], 1);
    OK(mr_graph_output(g, "sumsq", in[7]));
    OK(mr_graph_add(g, "adamw", MR_NO_ATTRS, in, 8, out));
    OK(mr_graph_finish(g));
    return g;
}

/* An f32 input of smooth values. */
static void set(mr_program *p, const char *name, int seed, double scale, int rank,
                const int64_t *dim)
{
    mr_tensor *t = NULL;
    OK(mr_tensor_new(MR_F32, rank, dim, &t));
    const mr_view *v = mr_tensor_view(t);
    for (int64_t i = 0, n = mr_desc_count(&v->desc); i < n; i++)
        ((float *)v->data)[i] = (float)(scale * sin(seed + 1.7 * (double)i));
    OK(mr_program_set(p, name, v));
    mr_tensor_unref(t);
}

#endif
