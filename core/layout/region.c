/* layout: computes the ranges of a region in the arena, and their lifetimes.
 *
 * If a graph writes each range of the region before it reads it, other storages can use the bytes
 * until then. Each range lives to the end of the run, since the region can be read afterwards. If a
 * graph reads a range first, the whole region lives from the start. Licence: Apache-2.0 */
#include "layout/room.h"

#include <string.h>

/* The disjoint ranges that the graph has written so far, by start. */
typedef struct made {
    mr_layout_entry *entry;
    int n;
    size_t bytes;
} made;

/* The first range that ends behind `at`. */
static int find(const made *m, size_t at)
{
    int lo = 0, hi = m->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (m->entry[mid].offset + m->entry[mid].bytes > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static const mr_storage *in_region(const mr_graph *g, mr_ref x, const char *name)
{
    const mr_storage *s = x == MR_NONE ? NULL : mr_graph_storage(g, mr_graph_value(g, x)->storage);
    return s && s->kind == MR_REGION && s->bytes && strcmp(s->region, name) == 0 ? s : NULL;
}

/* Whether the range of a value is inside a written range. */
static bool is_made(const made *m, const mr_storage *s)
{
    size_t at = (size_t)s->region_offset;
    int i = find(m, at);
    return i < m->n && m->entry[i].offset <= at &&
           at + s->bytes <= m->entry[i].offset + m->entry[i].bytes;
}

/* Node i writes x without reading it: add a new range if x is its whole storage. False on a side
 * queue, which could write before the bytes are free. */
static bool make(made *m, const mr_graph *g, int i, mr_ref x, const mr_storage *s)
{
    const mr_value *v = mr_graph_value(g, x);
    size_t at = (size_t)s->region_offset;
    int to = find(m, at);
    bool whole = mr_graph_node(g, i)->queue == MR_Q_COMPUTE && v->offset == 0 &&
                 mr_desc_is_dense(&v->desc) && mr_desc_span_bytes(&v->desc) == s->bytes &&
                 at % MR_GRANULE == 0 && s->bytes % MR_GRANULE == 0;
    if (!whole || (to < m->n && m->entry[to].offset < at + s->bytes))
        return false;
    memmove(m->entry + to + 1, m->entry + to, (size_t)(m->n - to) * sizeof *m->entry);
    m->entry[to] = (mr_layout_entry){.storage = v->storage,
                                     .node = i,
                                     .first = i,
                                     .last = mr_graph_nodes(g) - 1,
                                     .bytes = s->bytes,
                                     .offset = at,
                                     .fixed = true};
    m->n++, m->bytes += s->bytes;
    return true;
}

/* Whether the graph writes every range of the region before it reads it. */
static bool makes(made *m, const mr_graph *g, const char *name, bool *touched)
{
    for (int i = 0; i < mr_graph_nodes(g); i++) {
        const mr_node *node = mr_graph_node(g, i);
        for (int k = 0; k < node->n_in; k++) {
            const mr_storage *s = in_region(g, node->in[k], name);
            *touched |= s != NULL;
            if (s && !is_made(m, s))
                return false;
        }
        for (int k = 0; k < node->n_out; k++) {
            const mr_storage *s = in_region(g, node->out[k], name);
            *touched |= s != NULL;
            if (s && !is_made(m, s) && !make(m, g, i, node->out[k], s))
                return false;
        }
    }
    return true;
}

mr_status layout_region(mr_layout *l, const char *name)
{
    const mr_graph *g = l->graph;
    bool touched = false;
    made m = {.entry = mr_alloc((size_t)mr_graph_storages(g) * sizeof *m.entry)};
    if (!m.entry)
        return mr_fail_memory((size_t)mr_graph_storages(g) * sizeof *m.entry);
    bool all = makes(&m, g, name, &touched) && m.bytes == l->transient;
    if (touched && !all) {
        m.n = 1;
        m.entry[0] = (mr_layout_entry){
            .storage = -1, .last = mr_graph_nodes(g) - 1, .bytes = l->transient, .fixed = true};
    }
    l->hold = !touched ? MR_HOLD_NOTHING : all ? MR_HOLD_MADE : MR_HOLD_KEPT;
    memcpy(l->entry + l->n, m.entry, (size_t)m.n * sizeof *m.entry);
    l->n += m.n;
    mr_free(m.entry);
    return MR_OK;
}
