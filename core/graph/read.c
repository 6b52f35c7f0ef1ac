/* graph: reads and prints a graph. Licence: Apache-2.0 */
#include "graph/room.h"

#include "base/text.h"

#include <string.h>

static const char *const queues[MR_QUEUE_COUNT] = {"compute", "comm_intra", "comm_inter", "h2d",
                                                   "d2h"};

const char *mr_queue_name(mr_queue queue)
{
    return (unsigned)queue < MR_QUEUE_COUNT ? queues[queue] : "?";
}

mr_queue mr_queue_find(const char *name)
{
    int q = 0;
    while (q < MR_QUEUE_COUNT && strcmp(queues[q], name) != 0)
        q++;
    return (mr_queue)q;
}

bool mr_graph_finished(const mr_graph *g)
{
    return g->finished;
}
int mr_graph_nodes(const mr_graph *g)
{
    return g->nodes.n;
}
const mr_node *mr_graph_node(const mr_graph *g, int i)
{
    return &g->nodes.at[i];
}
const mr_value *mr_graph_value(const mr_graph *g, mr_ref x)
{
    return &g->values.at[x].pub;
}
int mr_graph_storages(const mr_graph *g)
{
    return g->storages.n;
}
const mr_storage *mr_graph_storage(const mr_graph *g, int i)
{
    return &g->storages.at[i];
}
int mr_graph_outputs(const mr_graph *g)
{
    return g->outputs.n;
}
mr_params *mr_graph_params(const mr_graph *g)
{
    return g->params;
}
const char *mr_graph_block_name(const mr_graph *g, int block)
{
    return block < 0 ? "" : g->blocks.at[block].name;
}

mr_ref mr_graph_output_at(const mr_graph *g, int i, const char **name)
{
    if (name)
        *name = g->outputs.at[i].name;
    return g->outputs.at[i].value;
}

mr_ref mr_graph_output_find(const mr_graph *g, const char *name)
{
    for (int i = 0; i < g->outputs.n; i++)
        if (strcmp(g->outputs.at[i].name, name) == 0)
            return g->outputs.at[i].value;
    return MR_NONE;
}

mr_ref mr_graph_input_find(const mr_graph *g, const char *name)
{
    for (int i = 0; i < g->values.n; i++) {
        const value *v = &g->values.at[i];
        const mr_storage *s = &g->storages.at[v->pub.storage];
        if (s->kind == MR_INPUT && v->view == VIEW_NONE && strcmp(s->name, name) == 0)
            return i;
    }
    return MR_NONE;
}

size_t mr_graph_bytes(const mr_graph *g)
{
    size_t bytes = (size_t)g->nodes.cap * sizeof *g->nodes.at +
                   (size_t)g->values.cap * sizeof *g->values.at +
                   (size_t)g->storages.cap * sizeof *g->storages.at;
    for (int i = 0; i < g->storages.n; i++)
        if (g->storages.at[i].kind == MR_CONST && g->storages.at[i].data)
            bytes += g->storages.at[i].bytes;
    return bytes;
}

static void put_value(mr_text *t, const mr_graph *g, mr_ref x)
{
    char shape[128];
    const mr_value *v = &g->values.at[x].pub;
    const mr_storage *s = &g->storages.at[v->storage];
    static const char *const kinds[] = {"", "in:", "const:", ""};
    mr_text_add(t, " %%%d", (int)x);
    if (s->kind == MR_REGION)
        mr_text_add(t, "=%s%s%s", s->region, s->name ? ":" : "", s->name ? s->name : "");
    else if (s->kind != MR_ARENA)
        mr_text_add(t, "=%s%s", kinds[s->kind], s->name ? s->name : "");
    else
        mr_text_add(t, "@%ss%d", s->space == MR_SPACE_PINNED ? "host:" : "", v->storage);
    mr_text_add(t, "%s%s", mr_desc_text(&v->desc, shape, sizeof shape),
                mr_desc_is_dense(&v->desc) ? "" : " strided");
}

mr_status mr_graph_print(const mr_graph *g, char **text)
{
    mr_text t = {0};
    int block = -1;
    mr_text_add(&t, "graph: %d nodes, %d storages\n", g->nodes.n, g->storages.n);
    for (int i = 0; i < g->nodes.n; i++) {
        const mr_node *node = &g->nodes.at[i];
        if (node->block != block) {
            block = node->block;
            mr_text_add(&t, "-- %s%s\n", block < 0 ? "(no block)" : g->blocks.at[block].name,
                        node->backward ? ", backward" : "");
        }
        mr_text_add(&t, "%5d %-24s", i, node->op->name);
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] != MR_NONE)
                put_value(&t, g, node->out[k]);
        mr_text_add(&t, " <-");
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] != MR_NONE)
                put_value(&t, g, node->in[k]);
        if (node->recompute_of >= 0)
            mr_text_add(&t, "  recompute_of %d", node->recompute_of);
        if (node->setup)
            mr_text_add(&t, "  setup");
        if (node->queue != MR_Q_COMPUTE)
            mr_text_add(&t, "  on %s", mr_queue_name(node->queue));
        if (node->after != MR_NONE)
            mr_text_add(&t, "  after %%%d", (int)node->after);
        for (int k = 0; k < node->n_out; k++)
            if (node->op->out[k].inplace && node->out[k] != MR_NONE &&
                node->in[node->op->out[k].inplace - 1] != MR_NONE &&
                g->values.at[node->out[k]].pub.storage ==
                    g->values.at[node->in[node->op->out[k].inplace - 1]].pub.storage)
                mr_text_add(&t, "  in place");
        if (*node->origin)
            mr_text_add(&t, "  (%s)", node->origin);
        mr_text_add(&t, "\n");
    }
    for (int i = 0; i < g->outputs.n; i++)
        mr_text_add(&t, "output %s = %%%d\n", g->outputs.at[i].name, (int)g->outputs.at[i].value);
    return mr_text_end(&t, text);
}
