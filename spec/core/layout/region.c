/* layout/region: a region in the arena. No tensor overlaps a range of it from the node that writes
 * it on, or at any time when the graph reads earlier values. */
#include "check.h"
#include "moonreel/layout.h"

#define OK(call) CHECK_OK(call)
enum { N = 16, MANY = 1 << 18 };

static mr_ref region(mr_graph *g, int64_t at, int64_t n)
{
    mr_ref x;
    OK(mr_graph_region(g, "grad", MR_SPACE_DEVICE, MR_F32, at, 1, &n, &x));
    return x;
}

/* A table of N parameters of MANY elements, and a chain of products with each. */
static mr_params *table(void)
{
    mr_params *p = NULL;
    OK(mr_params_new(MR_F32, &p));
    for (int i = 0; i < N; i++) {
        char name[8];
        int id;
        int64_t n = MANY;
        snprintf(name, sizeof name, "p%d", i);
        OK(mr_params_add(p, &(mr_param){.name = name, .desc = mr_desc_dense(MR_F32, 1, &n)}, &id));
    }
    OK(mr_params_seal(p, NULL));
    return p;
}

static mr_graph *chain(mr_params *p, bool fresh)
{
    mr_graph *g = NULL;
    mr_ref x, w, loss;
    int64_t n = MANY;
    mr_ints axis = {1, {0}};
    OK(mr_graph_new(p, &(mr_graph_options){.fresh_gradients = fresh}, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    for (int i = 0; i < N; i++) {
        OK(mr_graph_param(g, i, &w));
        OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, w}, 2, &x));
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &x));
    }
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axis}), &x, 1, &loss));
    OK(mr_graph_output(g, "loss", loss));
    OK(mr_graph_backward(g, loss, NULL, 0, NULL));
    OK(mr_graph_finish(g));
    return g;
}

static bool together(const mr_layout_entry *a, const mr_layout_entry *b)
{
    return a->space == b->space && a->first <= b->last && b->first <= a->last &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* The layout of g with the region; no tensor that is alive at the same time overlaps it. */
static mr_layout *lay(const mr_graph *g, size_t bytes, bool no_reuse, mr_hold hold)
{
    mr_layout *l = NULL;
    OK(mr_layout_new(
        g,
        &(mr_layout_options){.transient = "grad", .transient_bytes = bytes, .no_reuse = no_reuse},
        &l));
    CHECK_INT(mr_layout_hold(l), hold);
    size_t fixed = 0;
    for (int i = 0; i < mr_layout_entries(l); i++) {
        const mr_layout_entry *a = mr_layout_at(l, i);
        for (int k = 0; k < i; k++)
            CHECK(!together(a, mr_layout_at(l, k)));
        CHECK(!a->fixed || a->last == mr_graph_nodes(g) - 1);
        CHECK(!a->fixed || strcmp(mr_layout_purpose(l, a), "region") == 0);
        fixed += a->fixed ? a->bytes : 0;
    }
    CHECK_INT(fixed, hold == MR_HOLD_NOTHING ? 0 : bytes);
    CHECK(hold == MR_HOLD_NOTHING || mr_layout_peak(l) >= bytes);
    return l;
}

static size_t peak(const mr_graph *g, size_t bytes, bool no_reuse, mr_hold hold)
{
    mr_layout *l = lay(g, bytes, no_reuse, hold);
    size_t n = mr_layout_peak(l);
    mr_layout_free(l);
    return n;
}

static void of_gradients(void)
{
    mr_params *p = table();
    size_t bytes = (size_t)mr_params_elements(p, false) * 4, one = MANY * 4;
    mr_graph *fresh = chain(p, true), *added = chain(p, false);
    mr_layout *plain = NULL;
    OK(mr_layout_new(added, NULL, &plain));
    CHECK_INT(mr_layout_hold(plain), MR_HOLD_NOTHING);
    size_t alone = mr_layout_peak(plain);
    // values kept for the backward pass leave as much room as gradients need
    CHECK(alone >= bytes - 2 * one);
    CHECK(peak(fresh, bytes, false, MR_HOLD_MADE) <= alone + 4 * one);
    CHECK(peak(added, bytes, false, MR_HOLD_KEPT) >= alone + bytes);
    CHECK(peak(fresh, bytes, true, MR_HOLD_MADE) > alone + bytes);
    // a region that is larger than what the graph writes of it is not part of the arena
    CHECK(peak(fresh, bytes + 256, false, MR_HOLD_KEPT) >= alone + bytes);
    mr_layout_free(plain);
    mr_graph_free(fresh), mr_graph_free(added);

    // a graph that does not use it has all of the arena
    mr_graph *g = NULL;
    mr_ref x;
    int64_t n = MANY;
    OK(mr_graph_new(p, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    CHECK_INT(peak(g, bytes, false, MR_HOLD_NOTHING), one);
    mr_graph_free(g);
    mr_params_free(p);
}

/* Graphs that write all of it, yet read it first, read a part that is not written, or write from a
 * side queue. */
static void of_parts(void)
{
    mr_graph *g = NULL;
    mr_ref x, y;
    int64_t n = 64;
    for (int how = 0; how < 3; how++) {
        mr_queue before;
        OK(mr_graph_new(NULL, NULL, &g));
        OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &y));
        OK(mr_graph_set_queue(g, how == 2 ? MR_Q_H2D : MR_Q_COMPUTE, &before));
        if (how)
            OK(mr_graph_move(g, y, MR_SPACE_PINNED, MR_NONE, &y));
        for (int i = 0; i < 2; i++)
            if (how)
                OK(mr_graph_put(g, y, region(g, i * 64, 64), &x));
            else
                OK(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){region(g, i * 64, 64), y},
                                2, &x));
        OK(mr_graph_set_queue(g, MR_Q_COMPUTE, &before));
        x = region(g, how == 1 ? 96 : 0, 64); // the first part, or half of the unwritten part
        OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &x));
        OK(mr_graph_output(g, "y", x));
        OK(mr_graph_finish(g));
        CHECK(peak(g, 512, false, MR_HOLD_KEPT) >= 512);
        mr_graph_free(g);
    }
}

/* Workspaces of setup nodes come after values that runs left in the region. */
static void of_setup(void)
{
    mr_graph *g = NULL;
    mr_layout *l = NULL;
    mr_ref x;
    float one = 1;
    size_t workspace = 1000;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_const(g, &(mr_view){&one, mr_desc_dense(MR_F32, 0, NULL)}, &x));
    OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    CHECK(mr_graph_node(g, 0)->setup);
    size_t of[8] = {workspace};
    OK(mr_layout_new(
        g, &(mr_layout_options){.workspace = of, .transient = "grad", .transient_bytes = 512}, &l));
    CHECK_INT(mr_layout_workspace(l, 0), 512);
    CHECK_INT(mr_layout_peak(l), 512 + 1024);
    mr_layout_free(l);
    mr_graph_free(g);
}

int main(void)
{
    of_gradients();
    of_parts();
    of_setup();
    return check_done();
}
