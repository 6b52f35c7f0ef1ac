/* graph, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_GRAPH_ROOM_H
#define MR_GRAPH_ROOM_H

#include "moonreel/graph.h"

/* How an alias value came from its parent: what the backward pass undoes. */
typedef enum view_kind {
    VIEW_NONE,
    VIEW_RESHAPE,
    VIEW_SLICE,
    VIEW_PERMUTE,
    VIEW_EXPAND,
    VIEW_WINDOW,  /* a parameter in gathered weights: as a leaf, it hands no gradient on */
    VIEW_DETACHED /* a constant as far as gradients go: a leaf, too */
} view_kind;

/* A value with what only this room needs. */
typedef struct value {
    mr_value pub;
    view_kind view;
    mr_ref parent; /* of a view */
    /* the value the chain of views starts from; itself when no view */
    mr_ref root;
    mr_ref beside; /* while a graph is closed: another value on this storage */
    int axis, order[MR_MAX_RANK];
    int64_t start, stop; /* slice */
    /* kept in host memory for the backward pass: the copy there, and the one back; else MR_NONE */
    mr_ref away, back;
    bool setup;   /* depends on constants only */
    bool forward; /* made before the backward pass began */
    /* of a parameter whose gradient the caller wants as a value: no row adds it to "grad" unseen */
    bool asked;
    bool gathered; /* weights of all ranks, which the backward pass gathers again */
} value;

/* Building order of nodes, views and leaves: the backward pass walks it in reverse. */
/* node >= 0, else a leaf or view */
typedef struct tape_entry {
    int node;
    mr_ref value;
} tape_entry;

typedef struct block {
    const char *name;
    bool recompute;
} block;
typedef struct output {
    const char *name;
    mr_ref value;
} output;

/* A bucket of a table that ranks share, in one graph. */
typedef struct bucket {
    mr_ref weights; /* gathered; MR_NONE not yet */
    mr_ref grad;    /* its gradients in the arena; MR_NONE none so far */
    int missing;    /* leaves of its parameters whose gradient is not complete */
    int gather;     /* the node that begins to gather it, -1 none */
    bool again;     /* gathered in the backward pass */
} bucket;
/* An operation between ranks that a graph starts, in its order. */
typedef struct rank_op {
    bool reduces; /* else gathers */
    int bucket;
} rank_op;

/* A growing array; elements move, so hold indices across calls. */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *at;                                                                                     \
        int n, cap;                                                                                \
    }
#define VEC_PUSH(v, item)                                                                          \
    (vec_room((void **)&(v).at, &(v).cap, (v).n, sizeof *(v).at) == MR_OK                          \
         ? ((v).at[(v).n++] = (item), MR_OK)                                                       \
         : MR_E_MEMORY)

struct mr_graph {
    mr_params *params;
    mr_graph_options options;
    mr_arena arena; /* names, origins, constants */
    VEC(mr_node) nodes;
    VEC(value) values;
    VEC(mr_storage) storages;
    VEC(tape_entry) tape;
    VEC(block) blocks;
    VEC(output) outputs;
    const char *origin;
    mr_queue queue; /* of nodes added now */
    int open_block;
    mr_ref newest;   /* made last on compute; MR_NONE none */
    mr_ref sent;     /* the newest copy of an offload */
    mr_ref sent_due; /* the newest before those that go together with it, until compute waits */
    bool sending;    /* no node of compute came since the newest offload */
    mr_ref fetch_at; /* what compute makes before it needs the newest that came back */
    bool *begun;     /* per parameter: its place in "grad" holds zeros; NULL: no place has to */
    bucket *buckets; /* of a shared table; NULL before it is needed */
    VEC(rank_op) rank_ops;
    mr_ref gather_at;  /* what compute makes before it needs the newest that was gathered */
    int to_reduce;     /* bucket that is reduced next, -1 none */
    int adding;        /* buckets whose gradients are begun and not reduced so far */
    mr_ref reduced[2]; /* the newest reductions, the very newest first */
    bool backward;     /* nodes added now belong to the backward pass */
    bool finished;
    /* forward node -> its repetition in the backward part, -1 none */
    int *clones;
    int n_forward;
};

mr_status vec_room(void **at, int *cap, int n, size_t size);

mr_status graph_new_storage(mr_graph *g, mr_class kind, size_t bytes, int *out);
mr_status graph_new_value(mr_graph *g, const value *v, mr_ref *out);
/* A leaf: a value without producer on a storage of its own. */
mr_status graph_new_leaf(mr_graph *g, const mr_storage *storage, const mr_desc *desc, int param,
                         mr_ref *out);
/* Append a node with inferred outputs; no copies inserted, no tape entry beyond its own. */
mr_status graph_append(mr_graph *g, const mr_node *node, mr_ref *outs);
/* The same of an op, under the origin, block and queue in force; and of a copy of x that is dense.
 */
mr_status graph_append_op(mr_graph *g, const mr_op *op, const mr_attr *attrs, int n_attrs,
                          const mr_ref *in, int n_in, mr_ref *outs);
mr_status graph_dense_copy(mr_graph *g, mr_ref x, mr_ref *out);
static inline mr_space graph_space_of(const mr_graph *g, mr_ref x)
{
    return g->storages.at[g->values.at[x].pub.storage].space;
}
/* Append node "zeros" on the queue in force: a value of `rank` dimensions `dim`. */
mr_status graph_zeros(mr_graph *g, mr_dtype dtype, int rank, const int64_t *dim, mr_ref *out);
/* Does a gradient end here: a value of its own, or a parameter in gathered weights? */
bool graph_is_leaf(const value *v);
/* In the backward pass: the value to read instead of forward value x (a repetition where x is not
 * kept). */
mr_status graph_available(mr_graph *g, mr_ref x, mr_ref *out);
/* Before a backward pass: mark what leaves its recompute block, and the outputs, as kept. */
void graph_save_results(mr_graph *g);

/* ---- rank_ops.c: operations between ranks, in their order ---- */

/* What the gather that comes waits for: compute begins with what was gathered last. */
mr_ref graph_next_gather(mr_graph *g);
/* Before a node is repeated that may be of a gather: what the repetition waits for. */
mr_status graph_gather_again(mr_graph *g, int node, mr_ref *after);
/* Does a node tell other ranks what they wait for? */
bool graph_tells(const mr_node *node);

/* ---- shards.c: what ranks share of the table ---- */

/* Where the gradient of `desc` elements of a parameter, from its element `at` on, is added up. */
mr_status graph_grad_place(mr_graph *g, int param, int64_t at, const mr_desc *desc, mr_ref *out);
/* Is that such a place? Then the row that made it has added it there. */
bool graph_in_grad(const mr_graph *g, mr_ref grad);
/* Around the backward walk: leaves of parameters are counted, each is over at some time, and what
 * is complete is reduced; `all`: the rest too. */
mr_status graph_count_leaves(mr_graph *g);
void graph_leaf_over(mr_graph *g, int param);
mr_status graph_reduce_complete(mr_graph *g, bool all);

/* ---- fresh.c: gradients that begin at zero ---- */

/* Around the backward walk: note that no place was begun, and clear those that nothing was added
 * to. */
mr_status graph_begin_fresh(mr_graph *g);
mr_status graph_end_fresh(mr_graph *g);
/* Before a row adds to the gradient of a parameter: its place holds zeros. */
mr_status graph_fresh_place(mr_graph *g, int param);

/* ---- fuse.c ---- */

/* Of the live nodes, pairs become one where rows say so (mr_fusion); what is not needed then lives
 * no longer. Before joins and places in memory are decided. */
mr_status graph_fuse(mr_graph *g, bool *live);

/* May a row with this access read or write these strides? */
bool graph_strides_fit(mr_access access, const mr_desc *d);
mr_status graph_check_open(const mr_graph *g, const char *what);
mr_status graph_check_ref(const mr_graph *g, mr_ref x, const char *what);

#endif
