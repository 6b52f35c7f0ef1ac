/* layout/layout: lifetimes of real graphs, checked by walking the nodes. */
#include "layoutcase.h"

/* Walk the nodes with an owner per granule: what a node reads must still be owned by that
 * storage. */
static void replay(const mr_graph *g, const mr_layout *l, const size_t *workspace)
{
    size_t granules = mr_layout_peak(l) / 64;
    int *owner = mr_alloc((granules + 1) * sizeof *owner), wrong = 0;
    for (size_t i = 0; i < granules; i++)
        owner[i] = -1;
    for (int i = 0; i < mr_graph_nodes(g); i++) {
        const mr_node *node = mr_graph_node(g, i);
        for (int k = 0; k < node->n_in + node->n_out; k++) {
            bool reads = k < node->n_in;
            mr_ref x = reads ? node->in[k] : node->out[k - node->n_in];
            if (x == MR_NONE)
                continue;
            int s = mr_graph_value(g, x)->storage;
            const mr_storage *st = mr_graph_storage(g, s);
            if (st->kind != MR_ARENA)
                continue;
            for (size_t j = mr_layout_offset(l, s) / 64;
                 j < (mr_layout_offset(l, s) + st->bytes + 63) / 64; j++) {
                if (reads)
                    wrong += owner[j] != s;
                else
                    owner[j] = s;
            }
        }
        // a workspace lies where nothing of this node lies
        size_t at = mr_layout_workspace(l, i);
        for (size_t j = at / 64; workspace[i] && j < (at + workspace[i] + 63) / 64; j++) {
            for (int k = 0; k < node->n_in; k++)
                wrong +=
                    node->in[k] != MR_NONE && owner[j] == mr_graph_value(g, node->in[k])->storage;
            owner[j] = -2;
        }
    }
    for (int i = 0; i < mr_graph_outputs(g); i++) {
        int s = mr_graph_value(g, mr_graph_output_at(g, i, NULL))->storage;
        for (size_t j = mr_layout_offset(l, s) / 64;
             j < (mr_layout_offset(l, s) + mr_graph_storage(g, s)->bytes + 63) / 64; j++)
            wrong += owner[j] != s;
    }
    CHECK_INT(wrong, 0);
    mr_free(owner);
}

static size_t peak_of(bool recompute, bool no_reuse)
{
    mr_graph *g = stack(recompute);
    int n = mr_graph_nodes(g);
    size_t *workspace = mr_calloc((size_t)n, sizeof *workspace);
    for (int i = 0; i < n; i++)
        workspace[i] = (size_t)(i % 3) * 1000;
    mr_layout *l = NULL;
    OK(mr_layout_new(g, &(mr_layout_options){workspace, no_reuse}, &l));
    replay(g, l, workspace);
    size_t peak = mr_layout_peak(l), sum = 0;
    CHECK(mr_layout_bound(l) <= peak);
    for (int i = 0; i < mr_layout_entries(l); i++)
        sum += mr_layout_at(l, i)->bytes;
    if (no_reuse)
        CHECK_INT(peak, sum);
    else
        CHECK((double)peak <= 1.05 * (double)mr_layout_bound(l));
    mr_layout_free(l);
    mr_free(workspace);
    mr_graph_free(g);
    return peak;
}

static void running_out(void)
{
    mr_graph *g = stack(false);
    mr_layout *l = NULL;
    for (int64_t n = 1; n < 20; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_layout_new(g, NULL, &l);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            CHECK(n > 4);
            mr_layout_free(l);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
    }
    mr_graph_free(g);
}

int main(void)
{
    size_t kept = peak_of(false, false), redone = peak_of(true, false),
           spread = peak_of(false, true);
    printf("peak: kept %zu, recomputed %zu, without reuse %zu\n", kept, redone, spread);
    CHECK(redone < kept);
    CHECK(kept < spread);
    running_out();
    return check_done();
}
