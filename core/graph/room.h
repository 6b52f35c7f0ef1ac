/* graph, inside: what the files of the room share. Licence: Apache-2.0 */
#ifndef MR_GRAPH_ROOM_H
#define MR_GRAPH_ROOM_H

#include "moonreel/graph.h"

/* How a view was derived from its parent; the backward pass reverses it. */
typedef enum view_kind {
    VIEW_NONE,
    VIEW_RESHAPE,
    VIEW_SLICE,
    VIEW_PERMUTE,
    VIEW_EXPAND,
    VIEW_WINDOW,  /* a parameter in gathered weights: it is a leaf, and passes on no gradient */
    VIEW_DETACHED /* a constant for gradients: a leaf, too */
} view_kind;

/* A value, with fields for this room only. */
typedef struct value {
    mr_value pub;
    view_kind view;
    mr_ref parent; /* the parent of a view */
    /* the value at which the chain of views starts; itself if it is not a view */
    mr_ref root;
    mr_ref sibling; /* while a graph is finished: another value on this storage */
    int axis, order[MR_MAX_RANK];
    int64_t start, stop; /* slice */
    /* kept in host memory for the backward pass: the copy there, and the copy back; else MR_NONE */
    mr_ref away, back;
    bool setup;   /* depends on constants only */
    bool forward; /* created before the backward pass */
    /* a parameter in wrt: its gradient is a value, so no op adds it to "grad" directly */
    bool asked;
    bool gathered; /* gathered weights of all ranks, which the backward pass gathers again */
} value;

/* The order of creation of nodes, views and leaves, which the backward pass walks in reverse. */
/* node >= 0; else a leaf or view */
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

/* The state of a bucket in one graph, if ranks share the table. */
typedef struct bucket {
    mr_ref weights; /* gathered weights; MR_NONE: not yet */
    mr_ref grad;    /* its gradients in the arena; MR_NONE: none so far */
    int missing;    /* number of leaves of its parameters whose gradient is incomplete */
    int gather;     /* the node that starts to gather it; -1: none */
    bool again;     /* gathered in the backward pass */
} bucket;
/* A collective that a graph starts. */
typedef struct rank_op {
    bool reduces; /* else it gathers */
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
    mr_queue queue; /* of the next nodes */
    int open_block;
    mr_ref newest;   /* last value created on compute; MR_NONE: none */
    mr_ref sent;     /* the newest offload copy */
    mr_ref sent_due; /* the newest copy of the previous group, until compute waits for it */
    bool sending;    /* no compute node since the newest offload */
    mr_ref fetch_at; /* the last value on compute before the newest copy back is needed */
    bool *begun;     /* per parameter: its gradient is zeroed; NULL: gradients need no zeroing */
    bucket *buckets; /* of a shared table; NULL until needed */
    VEC(rank_op) rank_ops;
    mr_ref gather_at;  /* the last value on compute before the newest gathered weights are needed */
    int to_reduce;     /* the bucket to reduce next; -1: none */
    int adding;        /* number of buckets whose gradients are begun but not reduced */
    mr_ref reduced[2]; /* the two newest reductions, newest first */
    bool backward;     /* the next nodes belong to the backward pass */
    bool finished;
    /* forward node -> its clone in the backward pass; -1: none */
    int *clones;
    int n_forward;
};

mr_status vec_room(void **at, int *cap, int n, size_t size);

mr_status graph_new_storage(mr_graph *g, mr_class kind, size_t bytes, int *out);
mr_status graph_new_value(mr_graph *g, const value *v, mr_ref *out);
/* Create a leaf: a value without producer, on its own storage. */
mr_status graph_new_leaf(mr_graph *g, const mr_storage *storage, const mr_desc *desc, int param,
                         mr_ref *out);
/* Append a node with inferred outputs. Inserts no copies, and only its own tape entry. */
mr_status graph_append(mr_graph *g, const mr_node *node, mr_ref *outs);
/* The same for an op, with the current origin, block and queue; and for a dense copy of x. */
mr_status graph_append_op(mr_graph *g, const mr_op *op, const mr_attr *attrs, int n_attrs,
                          const mr_ref *in, int n_in, mr_ref *outs);
mr_status graph_dense_copy(mr_graph *g, mr_ref x, mr_ref *out);
static inline mr_space graph_space_of(const mr_graph *g, mr_ref x)
{
    return g->storages.at[g->values.at[x].pub.storage].space;
}
/* Append node "zeros" on the current queue: a value of `rank` dimensions `dim`. */
mr_status graph_zeros(mr_graph *g, mr_dtype dtype, int rank, const int64_t *dim, mr_ref *out);
/* Whether gradients end at v: it is a leaf, or a parameter in gathered weights. */
bool graph_is_leaf(const value *v);
/* In the backward pass: the value to read for forward value x (computed again if x is not kept). */
mr_status graph_available(mr_graph *g, mr_ref x, mr_ref *out);
/* Before a backward pass: mark values that leave their recompute block, and outputs, as kept. */
void graph_save_results(mr_graph *g);

/* ---- rank_ops.c: collectives in order ---- */

/* The value for which the next gather waits: compute starts to use the last gathered weights after
 * it. */
mr_ref graph_next_gather(mr_graph *g);
/* Before a node is cloned, which can be part of a gather: the value for which the clone waits. */
mr_status graph_gather_again(mr_graph *g, int node, mr_ref *after);
/* Whether a node sends data for which other ranks wait. */
bool graph_tells(const mr_node *node);

/* ---- shards.c: parameters that ranks share ---- */

/* The value that accumulates the gradient of `desc` elements of a parameter, from its element `at`
 * on. */
mr_status graph_grad_place(mr_graph *g, int param, int64_t at, const mr_desc *desc, mr_ref *out);
/* Whether `grad` is such a value: then its op has accumulated the gradient. */
bool graph_in_grad(const mr_graph *g, mr_ref grad);
/* Around the backward walk: count the leaves of parameters, note each finished leaf, and reduce
 * complete buckets; `all`: the remaining buckets, too. */
mr_status graph_count_leaves(mr_graph *g);
void graph_leaf_over(mr_graph *g, int param);
mr_status graph_reduce_complete(mr_graph *g, bool all);

/* ---- fresh.c: gradients that start at zero ---- */

/* Around the backward walk: begin with no gradient zeroed; at the end, zero those to which no op
 * added. */
mr_status graph_begin_fresh(mr_graph *g);
mr_status graph_end_fresh(mr_graph *g);
/* Before an op adds to the gradient of a parameter: zero it if that is not done yet. */
mr_status graph_fresh_place(mr_graph *g, int param);

/* ---- fuse.c ---- */

/* Fuse pairs of live nodes as definitions declare (mr_fusion), and mark replaced nodes as dead.
 * Runs before joins and places are decided. */
mr_status graph_fuse(mr_graph *g, bool *live);

/* Whether an op with this access can read or write these strides. */
bool graph_strides_fit(mr_access access, const mr_desc *d);
mr_status graph_check_open(const mr_graph *g, const char *what);
mr_status graph_check_ref(const mr_graph *g, mr_ref x, const char *what);

#endif
