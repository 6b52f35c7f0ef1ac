/* layout/layout: lifetimes of real graphs, checked by walking the nodes; the report. */
#include "check.h"
#include "moonreel/layout.h"

#define OK(call) CHECK_OK(call)
enum { B = 2, C = 48, LAYERS = 8 };

/* A small trained stack: x -> (silu(x) mul w-like input, sums), with blocks, backward and constants. */
static mr_graph *stack(bool recompute)
{
    mr_graph *g = NULL;
    mr_ref x, k, loss, dx;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){B, C}, &x));
    OK(mr_graph_input(g, "k", MR_F32, 2, (int64_t[]){B, C}, &k));
    mr_ref in = x;
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        mr_ref a, b;
        snprintf(name, sizeof name, "layer.%d", i);
        mr_graph_set_origin(g, name);
        OK(mr_graph_block_begin(g, name, recompute));
        OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &a));
        OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){a, k}, 2, &b));
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &b, 1, &a));
        OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){a, x}, 2, &x));
        OK(mr_graph_block_end(g));
    }
    mr_ints axes = {2, {0, 1}};
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axes}), &x, 1, &loss));
    OK(mr_graph_output(g, "loss", loss));
    OK(mr_graph_backward(g, loss, &in, 1, &dx));
    OK(mr_graph_output(g, "dx", dx));
    OK(mr_graph_finish(g));
    return g;
}

/* Walk the nodes with an owner per granule: what a node reads must still be owned by that storage. */
static void replay(const mr_graph *g, const mr_layout *l, const size_t *workspace)
{
    size_t granules = mr_layout_peak(l) / 64;
    int *owner = mr_alloc((granules + 1) * sizeof *owner), wrong = 0;
    for (size_t i = 0; i < granules; i++) owner[i] = -1;
    for (int i = 0; i < mr_graph_nodes(g); i++) {
        const mr_node *node = mr_graph_node(g, i);
        for (int k = 0; k < node->n_in + node->n_out; k++) {
            bool reads = k < node->n_in;
            mr_ref x = reads ? node->in[k] : node->out[k - node->n_in];
            if (x == MR_NONE) continue;
            int s = mr_graph_value(g, x)->storage;
            const mr_storage *st = mr_graph_storage(g, s);
            if (st->kind != MR_ARENA) continue;
            for (size_t j = mr_layout_offset(l, s) / 64; j < (mr_layout_offset(l, s) + st->bytes + 63) / 64; j++) {
                if (reads) wrong += owner[j] != s;
                else owner[j] = s;
            }
        }
        // a workspace lies where nothing of this node lies
        size_t at = mr_layout_workspace(l, i);
        for (size_t j = at / 64; workspace[i] && j < (at + workspace[i] + 63) / 64; j++) {
            for (int k = 0; k < node->n_in; k++)
                wrong += node->in[k] != MR_NONE && owner[j] == mr_graph_value(g, node->in[k])->storage;
            owner[j] = -2;
        }
    }
    for (int i = 0; i < mr_graph_outputs(g); i++) {
        int s = mr_graph_value(g, mr_graph_output_at(g, i, NULL))->storage;
        for (size_t j = mr_layout_offset(l, s) / 64; j < (mr_layout_offset(l, s) + mr_graph_storage(g, s)->bytes + 63) / 64; j++)
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
    for (int i = 0; i < n; i++) workspace[i] = (size_t)(i % 3) * 1000;
    mr_layout *l = NULL;
    OK(mr_layout_new(g, &(mr_layout_options){workspace, no_reuse}, &l));
    replay(g, l, workspace);
    size_t peak = mr_layout_peak(l), sum = 0;
    CHECK(mr_layout_bound(l) <= peak);
    for (int i = 0; i < mr_layout_entries(l); i++) sum += mr_layout_at(l, i)->bytes;
    if (no_reuse) CHECK_INT(peak, sum);
    else CHECK((double)peak <= 1.05 * (double)mr_layout_bound(l));
    mr_layout_free(l);
    mr_free(workspace);
    mr_graph_free(g);
    return peak;
}

static void report(void)
{
    mr_graph *g = stack(false);
    mr_layout *l = NULL;
    char *text = NULL;
    OK(mr_layout_new(g, NULL, &l));
    OK(mr_layout_report(l, &text));
    CHECK(strstr(text, "MiB") && strstr(text, "most lives at node"));
    CHECK(strstr(text, "layer.0"));
    CHECK(strstr(text, "silu"));
    CHECK(strstr(text, "kept for the backward pass are the largest part; try: recompute"));
    mr_free(text);
    for (int64_t n = 1; n < 20; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_layout_report(l, &text);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            CHECK(n > 2);
            mr_free(text);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
    }
    mr_layout_free(l);
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
    size_t kept = peak_of(false, false), redone = peak_of(true, false), spread = peak_of(false, true);
    printf("peak: kept %zu, recomputed %zu, without reuse %zu\n", kept, redone, spread);
    CHECK(redone < kept);
    CHECK(kept < spread);
    report();
    return check_done();
}
