/* layout: reports the storages that are alive at peak memory, and suggests how to reduce it.
 * Licence: Apache-2.0 */
#include "layout/room.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { LINES = 24 };

/* Purposes of the bytes at the peak. */
enum { KEPT, WORKSPACE, GRADIENT, FORWARD, REGION, PURPOSES };
static const char *const purposes[] = {"kept", "workspace", "gradient", "forward", "region"};

static int purpose(const mr_layout *l, const mr_layout_entry *e)
{
    if (e->fixed)
        return REGION;
    if (e->storage < 0)
        return WORKSPACE;
    if (mr_graph_node(l->graph, e->node)->backward)
        return GRADIENT;
    return mr_graph_node(l->graph, e->last)->backward ? KEPT : FORWARD;
}

const char *mr_layout_purpose(const mr_layout *l, const mr_layout_entry *e)
{
    return purposes[purpose(l, e)];
}

static int by_bytes(const void *x, const void *y)
{
    const mr_layout_entry *a = *(const mr_layout_entry *const *)x,
                          *b = *(const mr_layout_entry *const *)y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a < b ? -1 : a > b;
}

static double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

int mr_layout_live(const mr_layout *l, const mr_layout_entry **live)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (l->entry[i].space == MR_SPACE_DEVICE && l->entry[i].first <= l->bound_at &&
            l->bound_at <= l->entry[i].last)
            live[n++] = &l->entry[i];
    qsort(live, (size_t)n, sizeof *live, by_bytes);
    return n;
}

mr_status mr_layout_profile(const mr_layout *l, size_t *out, int n)
{
    int nodes = mr_graph_nodes(l->graph);
    size_t *change = mr_calloc((size_t)nodes + 1, sizeof *change), live = 0;
    if (!change)
        return mr_fail_memory(((size_t)nodes + 1) * sizeof *change);
    // differences can wrap around, but their sum is correct
    for (int i = 0; i < l->n; i++)
        if (l->entry[i].space == MR_SPACE_DEVICE) {
            change[l->entry[i].first] += l->entry[i].bytes;
            change[l->entry[i].last + 1] -= l->entry[i].bytes;
        }
    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < nodes; i++) {
        size_t *most = &out[(int64_t)i * n / nodes];
        live += change[i];
        *most = MR_MAX(*most, live);
    }
    mr_free(change);
    return MR_OK;
}

static const char *advice(const size_t *share)
{
    if (share[KEPT] >= share[WORKSPACE] && share[KEPT] >= share[GRADIENT] &&
        share[KEPT] >= share[FORWARD])
        return "values kept for the backward pass are the largest part; try: recompute the blocks "
               "named "
               "above, or a smaller batch";
    if (share[WORKSPACE] >= share[GRADIENT] && share[WORKSPACE] >= share[FORWARD])
        return "workspace of one node is the largest part; try: a smaller batch or fewer threads";
    if (share[GRADIENT] >= share[FORWARD])
        return "gradients of activations are the largest part; try: a smaller batch";
    return "values of the forward pass are the largest part; try: a smaller batch, size or length";
}

mr_status mr_layout_report(const mr_layout *l, char **text)
{
    const mr_layout_entry **live = mr_alloc((size_t)(l->n + 1) * sizeof *live);
    if (!live)
        return mr_fail_memory((size_t)(l->n + 1) * sizeof *live);
    int n = mr_layout_live(l, live);
    mr_text t = {0};
    mr_text_add(&t, "arena %.2f MiB, bound %.2f MiB (%.1f %% above)", mib(l->peak[MR_SPACE_DEVICE]),
                mib(l->bound),
                l->bound ? 100.0 * ((double)l->peak[MR_SPACE_DEVICE] / (double)l->bound - 1) : 0.0);
    if (n) {
        const mr_node *at = mr_graph_node(l->graph, l->bound_at);
        mr_text_add(&t, "; most lives at node %d, %s '%s' %s\n", l->bound_at, at->op->name,
                    at->name, at->origin);
    } else {
        mr_text_add(&t, "; nothing lives in the arena\n");
    }
    size_t share[PURPOSES] = {0}, rest = 0;
    for (int i = 0; i < n; i++) {
        const mr_node *node = mr_graph_node(l->graph, live[i]->node);
        share[purpose(l, live[i])] += live[i]->bytes;
        if (i >= LINES) {
            rest += live[i]->bytes;
            continue;
        }
        const char *block = node->block < 0 ? "-" : mr_graph_block_name(l->graph, node->block);
        mr_text_add(&t, "  %10.3f MiB  %-24s %s%s '%s' %s\n", mib(live[i]->bytes), block,
                    node->op->name, purpose(l, live[i]) == WORKSPACE ? " workspace" : "",
                    node->name, node->origin);
    }
    if (n > LINES)
        mr_text_add(&t, "  %10.3f MiB  in %d smaller ranges\n", mib(rest), n - LINES);
    if (n)
        mr_text_add(&t, "  %s\n", advice(share));
    mr_free(live);
    return mr_text_end(&t, text);
}
