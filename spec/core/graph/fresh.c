/* graph/fresh: with the option all bytes of "grad" are written before they are read, whatever the
 * loss depends on, small parameters together; without it none is cleared. */
#include "check.h"
#include "moonreel/graph.h"

#define OK(call) CHECK_OK(call)

enum { W, FROZEN, UNUSED, B, LAST, FAR, END, PARAMS };
enum { MOST = 1 << 20 };

static mr_params *table(void)
{
    static const char *const names[] = {"w", "frozen", "unused", "b", "last", "far", "end"};
    static const int64_t counts[] = {70, 100, 3, 300000, 5, 300000, 3};
    mr_params *p = NULL;
    OK(mr_params_new(MR_F32, &p));
    for (int i = 0; i < PARAMS; i++) {
        int id;
        OK(mr_params_add(p,
                         &(mr_param){.name = names[i],
                                     .desc = mr_desc_dense(MR_F32, 1, &counts[i]),
                                     .frozen = i == FROZEN},
                         &id));
    }
    OK(mr_params_seal(p, NULL));
    return p;
}

/* x w' on a side queue, whose op adds to the gradient of w by itself */
static mr_ref product(mr_graph *g, mr_ref w)
{
    mr_ref x, y;
    mr_queue before;
    OK(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){2, 3}, &x));
    OK(mr_graph_reshape(g, w, 2, (int64_t[]){1, 3}, &w));
    OK(mr_graph_set_queue(g, MR_Q_COMM_INTRA, &before));
    OK(mr_graph_add(g, "linear", MR_NO_ATTRS, (mr_ref[]){x, w}, 2, &y));
    OK(mr_graph_set_queue(g, before, NULL));
    OK(mr_graph_reshape(g, y, 1, (int64_t[]){2}, &y));
    return y;
}

/* loss = the sums of the squares of those in `uses`, of the last one of a product with it */
static mr_graph *graph(mr_params *p, bool fresh, int uses)
{
    mr_graph *g = NULL;
    mr_ints axis = {1, {0}};
    mr_ref loss = MR_NONE;
    OK(mr_graph_new(p, &(mr_graph_options){.fresh_gradients = fresh}, &g));
    for (int id = 0; id < PARAMS; id++) {
        if (!(uses >> id & 1))
            continue;
        mr_ref x, y, sum;
        OK(mr_graph_param(g, id, &x));
        x = id == END ? product(g, x) : x;
        OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, x}, 2, &y));
        OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axis}), &y, 1, &sum));
        if (loss == MR_NONE)
            loss = sum;
        else
            OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){loss, sum}, 2, &loss));
    }
    OK(mr_graph_output(g, "loss", loss));
    OK(mr_graph_backward(g, loss, NULL, 0, NULL));
    OK(mr_graph_finish(g));
    return g;
}

static const mr_storage *grad_of(const mr_graph *g, mr_ref x)
{
    const mr_storage *s = x == MR_NONE ? NULL : mr_graph_storage(g, mr_graph_value(g, x)->storage);
    return s && s->kind == MR_REGION && strcmp(s->region, "grad") == 0 ? s : NULL;
}

/* Walks the nodes and records what they write in "grad"; what they read there must have been
 * written. Returns the ranges that were cleared. */
static int walk(const mr_graph *g, char *written)
{
    int cleared = 0;
    for (int i = 0; i < mr_graph_nodes(g); i++) {
        const mr_node *node = mr_graph_node(g, i);
        for (int k = 0; k < node->n_in; k++) {
            const mr_storage *s = grad_of(g, node->in[k]);
            int early = 0;
            for (size_t j = 0; s && j < s->bytes / 4; j++)
                early += !written[(size_t)s->region_offset / 4 + j];
            CHECK_INT(early, 0);
        }
        for (int k = 0; k < node->n_out; k++) {
            const mr_storage *s = grad_of(g, node->out[k]);
            for (size_t j = 0; s && j < s->bytes / 4; j++)
                written[(size_t)s->region_offset / 4 + j] = 1;
            if (s && strcmp(node->op->name, "zeros") == 0) {
                cleared++;
                CHECK(node->backward && node->queue == MR_Q_COMPUTE);
            }
        }
    }
    return cleared;
}

static void whole(mr_params *p, int uses, int expected)
{
    static char written[MOST];
    memset(written, 0, sizeof written);
    int64_t n = mr_params_elements(p, false), missing = 0;
    CHECK(n <= MOST);
    mr_graph *g = graph(p, true, uses);
    CHECK_INT(walk(g, written), expected);
    for (int64_t i = 0; i < n; i++)
        missing += !written[i];
    CHECK_INT(missing, 0);
    mr_graph_free(g);
}

int main(void)
{
    mr_params *p = table();
    whole(p, 1 << W | 1 << UNUSED | 1 << B | 1 << LAST | 1 << FAR | 1 << END, 3);
    whole(p, 1 << W | 1 << END, 3); // the gap between the two at the end
    whole(p, 1 << LAST, 3);         // the gaps before and after it
    whole(p, 1 << B, 2);
    whole(p, 1 << END, 2);

    // without fresh the old values stay and are added to
    static char written[MOST];
    memset(written, 1, sizeof written);
    mr_graph *g = graph(p, false, 1 << W);
    CHECK_INT(walk(g, written), 0);
    mr_graph_free(g);

    // gradients that ranks share start from zero in any case
    OK(mr_params_share(p, &(mr_param_shares){.hop = {{.ranks = 1, .queue = MR_Q_COMM_INTRA}},
                                             .hops = 1,
                                             .gradients = true}));
    mr_ref x, loss;
    mr_ints axis = {1, {0}};
    OK(mr_graph_new(p, &(mr_graph_options){.fresh_gradients = true}, &g));
    OK(mr_graph_param(g, W, &x));
    OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axis}), &x, 1, &loss));
    CHECK_FAILS(mr_graph_backward(g, loss, NULL, 0, NULL), MR_E_USAGE, "without fresh");
    mr_graph_free(g);
    mr_params_free(p);
    return check_done();
}
