/* graph: records the collectives that a graph starts, in order. Licence: Apache-2.0 */
#include "graph/room.h"

#include "base/text.h"

#include <string.h>

bool graph_tells(const mr_node *node)
{
    return strcmp(node->op->name, "gather") == 0 || strcmp(node->op->name, "reduce_scatter") == 0;
}

mr_ref graph_next_gather(mr_graph *g)
{
    mr_ref after = g->gather_at;
    g->gather_at = g->newest;
    return after;
}

mr_status graph_gather_again(mr_graph *g, int node, mr_ref *after)
{
    *after = MR_NONE;
    for (int i = 0; g->buckets && i < mr_params_buckets(g->params); i++) {
        if (g->buckets[i].gather != node)
            continue;
        g->buckets[i].again = true, *after = graph_next_gather(g);
        return VEC_PUSH(g->rank_ops, ((rank_op){.bucket = i}));
    }
    return MR_OK;
}

mr_status mr_graph_op_log(const mr_graph *g, char **text)
{
    mr_text t = {0};
    for (int i = 0; i < g->rank_ops.n; i++)
        mr_text_add(&t, "%s%s %d", i ? ", " : "", g->rank_ops.at[i].reduces ? "reduce" : "gather",
                    g->rank_ops.at[i].bucket + 1);
    return mr_text_end(&t, text);
}
