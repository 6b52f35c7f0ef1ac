/* graph: makes parameters values, and shards them over ranks: weights are gathered for each pass,
 * gradients are reduced bucket by bucket.
 *
 * A bucket of gradients is zeroed before the first op adds to it, and reduced when the backward
 * walk has passed the last leaf of its parameters. Buckets are reduced from the last to the first,
 * even if they are complete in another order, so that graphs of all shapes start the same
 * collectives. A gather starts before a reduction that would delay it on its queue. Ref:
 * parallelism 1 to 3, 9. Licence: Apache-2.0 */
#include "graph/room.h"

#include <stdio.h>

static const mr_param_shares *shares_of(const mr_graph *g)
{
    return mr_params_shares(g->params);
}

static mr_status open_buckets(mr_graph *g)
{
    int n = mr_params_buckets(g->params);
    if (g->buckets)
        return MR_OK;
    g->buckets = mr_calloc((size_t)n + 1, sizeof *g->buckets);
    if (!g->buckets)
        return mr_fail_memory((size_t)n * sizeof *g->buckets);
    for (int i = 0; i < n; i++)
        g->buckets[i] = (bucket){.weights = MR_NONE, .grad = MR_NONE, .gather = -1};
    g->to_reduce = n - 1;
    return MR_OK;
}

/* ---- weights ---- */

static mr_status add_gather(mr_graph *g, int i, mr_ref *x)
{
    const mr_param_shares *s = shares_of(g);
    for (int k = s->hops; k-- > 0;) {
        const mr_hop *hop = &s->hop[k];
        int node = g->nodes.n;
        g->queue = (mr_queue)hop->queue;
        MR_TRY(mr_graph_add(
            g, "gather",
            MR_ATTRS({"group", .i = hop->group}, {"ranks", .i = hop->ranks}, {"at", .i = hop->at}),
            x, 1, x));
        g->values.at[*x].gathered = true;
        if (k == s->hops - 1)
            g->buckets[i].gather = node, g->nodes.at[node].after = graph_next_gather(g);
    }
    return VEC_PUSH(g->rank_ops, ((rank_op){.bucket = i}));
}

/* Gather all weights of bucket i, outside of any block, since other blocks need them, too. */
static mr_status gather(mr_graph *g, int i, mr_ref *out)
{
    char name[32];
    int64_t start, stop;
    mr_params_chunk(g->params, i, &start, &stop);
    snprintf(name, sizeof name, "w.%d", i + 1);
    MR_TRY(mr_graph_region(g, name, MR_SPACE_DEVICE, mr_params_compute(g->params), 0, 1,
                           &(int64_t){stop - start}, out));
    mr_queue queue = g->queue;
    int block = g->open_block;
    g->open_block = -1;
    mr_status st = add_gather(g, i, out);
    g->queue = queue, g->open_block = block;
    return st;
}

/* The parameter `id` as a view of gathered weights. */
static mr_status gathered(mr_graph *g, int id, mr_ref *out)
{
    int64_t start, stop;
    int i = mr_params_bucket_of(g->params, mr_params_at(g->params, id)->offset);
    MR_TRY(open_buckets(g));
    bucket *b = &g->buckets[i];
    if (b->weights == MR_NONE)
        MR_TRY(gather(g, i, &b->weights));
    mr_params_bucket(g->params, i, &start, &stop);
    return mr_graph_window(g, b->weights, start, id, out);
}

mr_status mr_graph_param(mr_graph *g, int id, mr_ref *out)
{
    MR_TRY(graph_check_open(g, "parameter"));
    const mr_param *p = g->params ? mr_params_at(g->params, id) : NULL;
    if (!p)
        return mr_fail(MR_E_USAGE, "parameter %d is not in the graph's table of %d", id,
                       g->params ? mr_params_count(g->params) : 0);
    if (!mr_params_sealed(g->params))
        return mr_fail(MR_E_USAGE, "parameter '%s': seal the table before building graphs",
                       p->name);
    if (!p->frozen && mr_params_shares(g->params)->weights)
        return gathered(g, id, out);
    mr_storage s = {.kind = MR_REGION,
                    .bytes = mr_desc_span_bytes(&p->desc),
                    .region = p->frozen ? "frozen" : "w",
                    .region_offset = p->offset * (int64_t)mr_dtype_bytes(p->desc.dtype),
                    .name = p->name};
    return graph_new_leaf(g, &s, &p->desc, id, out);
}

/* ---- gradients ---- */

/* Zero the gradients of a bucket. They wait until at most one other bucket is in memory. */
static mr_status begin_gradients(mr_graph *g, int i)
{
    int64_t start, stop;
    mr_params_bucket(g->params, i, &start, &stop);
    int64_t count = stop - start;
    mr_queue queue = g->queue;
    int node = g->nodes.n;
    g->queue = g->backward ? MR_Q_COMPUTE : (mr_queue)shares_of(g)->hop[0].queue;
    mr_status st = graph_zeros(g, MR_F32, 1, &count, &g->buckets[i].grad);
    if (st == MR_OK)
        g->nodes.at[node].after = g->reduced[g->adding++ == 0];
    g->queue = queue;
    return st;
}

mr_status graph_grad_place(mr_graph *g, int param, int64_t at, const mr_desc *desc, mr_ref *out)
{
    int64_t start, stop;
    at += mr_params_at(g->params, param)->offset;
    MR_TRY(graph_fresh_place(g, param));
    if (!shares_of(g)->gradients)
        return mr_graph_region(g, "grad", MR_SPACE_DEVICE, MR_F32, at, desc->rank, desc->dim, out);
    int i = mr_params_bucket_of(g->params, at);
    if (g->buckets[i].grad == MR_NONE)
        MR_TRY(begin_gradients(g, i));
    mr_params_bucket(g->params, i, &start, &stop);
    at -= start;
    MR_TRY(mr_graph_slice(g, g->buckets[i].grad, 0, at, at + mr_desc_count(desc), out));
    return mr_graph_reshape(g, *out, desc->rank, desc->dim, out);
}

bool graph_in_grad(const mr_graph *g, mr_ref grad)
{
    int storage = g->values.at[grad].pub.storage;
    if (g->storages.at[storage].kind == MR_REGION)
        return true;
    for (int i = 0; g->buckets && i < mr_params_buckets(g->params); i++)
        if (g->buckets[i].grad != MR_NONE &&
            g->values.at[g->buckets[i].grad].pub.storage == storage)
            return true;
    return false;
}

/* Reduce `x`, hop by hop, and add this rank's chunk to its region. */
static mr_status add_reduction(mr_graph *g, int i, mr_ref x)
{
    const mr_param_shares *s = shares_of(g);
    char name[32] = "grad";
    int64_t n = mr_graph_value(g, x)->desc.dim[0];
    mr_ref own[2];
    for (int k = 0; k < s->hops; k++) {
        const mr_hop *hop = &s->hop[k];
        g->queue = (mr_queue)hop->queue;
        MR_TRY(mr_graph_add(g, "reduce_scatter", MR_ATTRS({"group", .i = hop->group}), &x, 1, &x));
        n /= hop->ranks;
        MR_TRY(mr_graph_slice(g, x, 0, hop->at * n, (hop->at + 1) * n, &x));
    }
    if (i)
        snprintf(name, sizeof name, "grad.%d", i + 1);
    MR_TRY(mr_graph_region(g, name, MR_SPACE_DEVICE, MR_F32, 0, 1, &n, &own[0]));
    own[1] = x;
    MR_TRY(mr_graph_add(g, "accumulate", MR_NO_ATTRS, own, 2, &x));
    g->adding--, g->reduced[1] = g->reduced[0], g->reduced[0] = x;
    return VEC_PUSH(g->rank_ops, ((rank_op){.reduces = true, .bucket = i}));
}

static mr_status reduce(mr_graph *g, int i)
{
    if (g->buckets[i].grad == MR_NONE)
        MR_TRY(begin_gradients(g, i));
    mr_queue queue = g->queue;
    mr_status st = add_reduction(g, i, g->buckets[i].grad);
    g->queue = queue;
    return st;
}

/* The bucket that accumulates the gradient of a leaf; NULL if ranks do not share it. */
static bucket *bucket_of(mr_graph *g, int param)
{
    const mr_param *p = mr_params_at(g->params, param);
    return p->frozen || !shares_of(g)->gradients
               ? NULL
               : &g->buckets[mr_params_bucket_of(g->params, p->offset)];
}

mr_status graph_count_leaves(mr_graph *g)
{
    if (!g->params || !shares_of(g)->gradients)
        return MR_OK;
    MR_TRY(open_buckets(g));
    for (int t = 0; t < g->tape.n; t++) {
        const value *v = g->tape.at[t].node < 0 ? &g->values.at[g->tape.at[t].value] : NULL;
        bucket *b = v && v->pub.param >= 0 && graph_is_leaf(v) ? bucket_of(g, v->pub.param) : NULL;
        if (b)
            b->missing++;
    }
    return MR_OK;
}

void graph_leaf_over(mr_graph *g, int param)
{
    bucket *b = bucket_of(g, param);
    if (b)
        b->missing--;
}

/* Whether bucket i can be reduced: it is complete, and for the bucket before it, if needed, the
 * gather is started and the gradients are allocated. */
static bool may_reduce(const mr_graph *g, int i)
{
    const bucket *b = &g->buckets[i], *next = i ? b - 1 : NULL;
    bool begun = next && next->grad != MR_NONE && (next->again || next->gather < 0);
    return !b->missing && (!next || begun || !next->missing);
}

mr_status graph_reduce_complete(mr_graph *g, bool all)
{
    if (!g->params || !shares_of(g)->gradients)
        return MR_OK;
    for (; g->to_reduce >= 0 && (all || may_reduce(g, g->to_reduce)); g->to_reduce--)
        MR_TRY(reduce(g, g->to_reduce));
    return MR_OK;
}

/* ---- collectives ---- */

mr_status mr_graph_echo(mr_graph *g, const mr_graph *like)
{
    mr_ref x;
    MR_TRY(graph_check_open(g, "echo"));
    if (!g->params || g->params != like->params)
        return mr_fail(MR_E_USAGE,
                       "echo: the graphs have different parameter tables; expected the same one");
    MR_TRY(open_buckets(g));
    for (int i = 0; i < like->rank_ops.n; i++) {
        rank_op t = like->rank_ops.at[i];
        MR_TRY(t.reduces ? reduce(g, t.bucket) : gather(g, t.bucket, &x));
    }
    return MR_OK;
}
