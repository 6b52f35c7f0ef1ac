/* graph: gradients that start at zero in each run.
 *
 * The gradient of a parameter is zeroed just before the first op that adds to it, so its memory is
 * free until then. Adjacent parameters are zeroed together, up to a limit. After the backward walk
 * all other gradients are zeroed, so that region "grad" is written completely, including padding.
 * Licence: Apache-2.0 */
#include "graph/room.h"

enum {
    TOGETHER = 1 << 18
}; /* elements that are zeroed together: 1 MiB takes as long as about ten
                              * nodes */

/* The trainable parameter after `id` in the range, and its start; the number of parameters at the
 * end. Classes follow one another. */
static int next_trained(const mr_params *p, int id, int64_t *at)
{
    enum { LAST = 2 };
    const int n = mr_params_count(p);
    for (int class = id < 0 ? 0 : mr_param_class(mr_params_at(p, id));; class ++, id = -1) {
        int next = id + 1;
        while (next < n &&
               (mr_params_at(p, next)->frozen || mr_param_class(mr_params_at(p, next)) != class))
            next++;
        if (next < n || class == LAST) {
            *at = next < n ? mr_params_at(p, next)->offset : mr_params_elements(p, false);
            return next;
        }
    }
}

static mr_status add_zeros(mr_graph *g, int64_t start, int64_t stop)
{
    mr_ref place, zeros;
    int64_t count = stop - start;
    mr_queue queue = g->queue;
    if (count == 0)
        return MR_OK;
    MR_TRY(mr_graph_region(g, "grad", MR_SPACE_DEVICE, MR_F32, start, 1, &count, &place));
    g->queue = MR_Q_COMPUTE;
    mr_status st = graph_zeros(g, MR_F32, 1, &count, &zeros);
    g->queue = queue;
    MR_TRY(st);
    mr_value *v = &g->values.at[zeros].pub;
    v->storage = g->values.at[place].pub.storage, v->alias = v->save = true;
    return MR_OK;
}

mr_status graph_begin_fresh(mr_graph *g)
{
    if (!g->options.fresh_gradients || !g->params)
        return MR_OK;
    if (mr_params_shares(g->params)->gradients)
        return mr_fail(MR_E_USAGE, "backward: the option fresh is set, but gradients of a table "
                                   "that ranks share always start at zero; try: without fresh");
    g->begun = mr_calloc((size_t)mr_params_count(g->params), sizeof *g->begun);
    return g->begun ? MR_OK : mr_fail_memory((size_t)mr_params_count(g->params));
}

mr_status graph_fresh_place(mr_graph *g, int param)
{
    const mr_params *p = g->params;
    if (!g->begun || g->begun[param])
        return MR_OK;
    int64_t at = mr_params_at(p, param)->offset, part = at / TOGETHER, start;
    // from the first parameter of this part of the range to the first one after it
    int id = next_trained(p, -1, &at);
    for (; at / TOGETHER < part; id = next_trained(p, id, &at))
        ;
    start = at;
    for (; id < mr_params_count(p) && at / TOGETHER == part; id = next_trained(p, id, &at))
        g->begun[id] = true;
    return add_zeros(g, start, at);
}

mr_status graph_end_fresh(mr_graph *g)
{
    const mr_params *p = g->params;
    int64_t start = 0, at;
    if (!g->begun)
        return MR_OK;
    // zero the range between two gradients that were begun, in one node
    int id = next_trained(p, -1, &at);
    while (id < mr_params_count(p)) {
        bool begun = g->begun[id];
        if (begun)
            MR_TRY(add_zeros(g, start, at));
        id = next_trained(p, id, &at);
        start = begun ? at : start;
    }
    return add_zeros(g, start, at);
}
