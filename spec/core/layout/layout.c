/* layout/layout: lifetimes of real graphs, checked by walking the nodes. */
#include "layoutcase.h"

/* Walks the nodes with an owner for each granule: what a node reads must still be owned by that
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
        // no tensor of this node overlaps its workspace
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

static bool touches(const mr_graph *g, int node, int storage)
{
    const mr_node *n = mr_graph_node(g, node);
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] != MR_NONE && mr_graph_value(g, n->in[k])->storage == storage)
            return true;
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] != MR_NONE && mr_graph_value(g, n->out[k])->storage == storage)
            return true;
    return false;
}

/* No entry lives longer than a node needs it. */
static void lifetimes(const mr_graph *g, const mr_layout *l)
{
    int nodes = mr_graph_nodes(g);
    for (int i = 0; i < mr_layout_entries(l); i++) {
        const mr_layout_entry *e = mr_layout_at(l, i);
        bool output = false;
        for (int k = 0; k < mr_graph_outputs(g); k++)
            output |= mr_graph_value(g, mr_graph_output_at(g, k, NULL))->storage == e->storage;
        if (e->storage < 0)
            CHECK_INT(e->first, e->last);
        else
            CHECK(touches(g, e->first, e->storage) &&
                  (touches(g, e->last, e->storage) || (output && e->last == nodes - 1)));
    }
}

static size_t peak_of(bool recompute, bool no_reuse)
{
    mr_graph *g = stack(recompute);
    int n = mr_graph_nodes(g);
    size_t *workspace = mr_calloc((size_t)n, sizeof *workspace);
    for (int i = 0; i < n; i++)
        workspace[i] = (size_t)(i % 3) * 100000;
    mr_layout *l = NULL;
    OK(mr_layout_new(g, &(mr_layout_options){.workspace = workspace, .no_reuse = no_reuse}, &l));
    replay(g, l, workspace);
    lifetimes(g, l);
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

/* Values that move to host memory have a place there. */
static void spaces(void)
{
    mr_graph *g = NULL;
    mr_layout *l = NULL;
    mr_ref x;
    int of[MR_SPACE_COUNT] = {0};
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){64}, &x));
    OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_move(g, x, MR_SPACE_PINNED, MR_NONE, &x));
    OK(mr_graph_move(g, x, MR_SPACE_DEVICE, MR_NONE, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    OK(mr_layout_new(g, NULL, &l));
    for (int i = 0; i < mr_layout_entries(l); i++) {
        const mr_layout_entry *e = mr_layout_at(l, i);
        CHECK_INT(e->space, mr_graph_storage(g, e->storage)->space);
        of[e->space]++;
    }
    CHECK(of[MR_SPACE_DEVICE] == 2 && of[MR_SPACE_PINNED] == 1);
    mr_layout_free(l);
    mr_graph_free(g);
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

/* Setup runs alone in the arena, which has room for its largest workspace. */
static void setup(void)
{
    mr_graph *g = NULL;
    mr_layout *l = NULL;
    mr_ref c, x;
    float data[4] = {1, 2, 3, 4};
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_const(g, &(mr_view){data, mr_desc_dense(MR_F32, 1, (int64_t[]){4})}, &c));
    OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){4}, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &c, 1, &c));
    OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){c, x}, 2, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    size_t workspace[2] = {10000, 100};
    CHECK(mr_graph_nodes(g) == 2 && mr_graph_node(g, 0)->setup);
    OK(mr_layout_new(g, &(mr_layout_options){.workspace = workspace}, &l));
    CHECK_INT(mr_layout_peak(l), 10048);
    CHECK_INT(mr_layout_bound(l), 64 + 128);
    CHECK_INT(mr_layout_workspace(l, 0), 0);
    CHECK_INT(mr_layout_entries(l), 2);
    mr_layout_free(l);
    mr_graph_free(g);
}

int main(void)
{
    setup();
    size_t kept = peak_of(false, false), redone = peak_of(true, false),
           spread = peak_of(false, true);
    printf("peak: kept %zu, recomputed %zu, without reuse %zu\n", kept, redone, spread);
    CHECK(redone < kept);
    CHECK(kept < spread);
    spaces();
    running_out();
    return check_done();
}
