/* exec: runs one op on host tensors, as a graph of one node. The graph is cached for the next call
 * of the same shape.
 * Licence: Apache-2.0 */
#include "exec/room.h"

#include <string.h>

enum { KEPT = 64, KEPT_BYTES = 256 << 20 };

/* The key of a cached program. It is compared as bytes, so it is zeroed first. */
typedef struct shape {
    int64_t dtype, rank, dim[MR_MAX_RANK];
} shape;
typedef struct key {
    const mr_op *op;
    int64_t n_in;
    unsigned char attr[MR_ATTR_BYTES];
    shape in[MR_MAX_IN];
} key;

typedef struct entry {
    key key;
    uint64_t hash, used;
    mr_graph *graph;
    mr_program *program;
    mr_ref out[MR_MAX_OUT];
} entry;

typedef struct cache {
    mr_exec *exec;
    entry *kept[KEPT];
    uint64_t clock;
} cache;

/* Names of inputs are "ia", "ib", ...; of outputs "oa", "ob", ... */
static void name_of(char name[3], char kind, int i)
{
    name[0] = kind, name[1] = (char)('a' + i), name[2] = 0;
}

static void drop(entry *e)
{
    if (!e)
        return;
    mr_program_free(e->program);
    mr_graph_free(e->graph);
    mr_free(e);
}

static void drop_cache(mr_device *dev)
{
    cache *c = dev->eager;
    if (!c)
        return;
    for (int i = 0; i < KEPT; i++)
        drop(c->kept[i]);
    mr_exec_free(c->exec);
    mr_free(c);
    dev->eager = NULL;
}

void mr_device_close(mr_device *dev)
{
    if (!dev)
        return;
    drop_cache(dev);
    dev->ops->close(dev);
}

static mr_status open_cache(mr_device *dev)
{
    if (dev->eager)
        return MR_OK;
    cache *c;
    if (!MR_NEW(c))
        return mr_fail_memory(sizeof *c);
    dev->eager = c;
    mr_status st = mr_exec_new(dev, NULL, NULL, &c->exec);
    if (st != MR_OK)
        drop_cache(dev);
    return st;
}

static mr_status build(entry *e, const mr_attr *attrs, int n_attrs, mr_exec *exec)
{
    char name[3];
    mr_ref in[MR_MAX_IN];
    MR_TRY(mr_graph_new(NULL, NULL, &e->graph));
    for (int i = 0; i < e->key.n_in; i++) {
        const shape *s = &e->key.in[i];
        in[i] = MR_NONE;
        name_of(name, 'i', i);
        if (s->rank >= 0)
            MR_TRY(
                mr_graph_input(e->graph, name, (mr_dtype)s->dtype, (int)s->rank, s->dim, &in[i]));
    }
    MR_TRY(mr_graph_add(e->graph, e->key.op->name, attrs, n_attrs, in, (int)e->key.n_in, e->out));
    for (int i = 0; i < mr_op_n_out(e->key.op); i++) {
        name_of(name, 'o', i);
        if (e->out[i] != MR_NONE)
            MR_TRY(mr_graph_output(e->graph, name, e->out[i]));
    }
    MR_TRY(mr_graph_finish(e->graph));
    return mr_exec_compile(exec, e->graph, &e->program);
}

static size_t bytes_of(const entry *e)
{
    mr_memory m = mr_program_memory(e->program);
    return m.inputs + m.consts;
}

/* Make room for a program of `bytes`: drop the least recently used ones. Returns a free place. */
static int make_room(cache *c, size_t bytes)
{
    for (;;) {
        size_t sum = bytes;
        int oldest = -1, free = -1;
        for (int i = 0; i < KEPT; i++) {
            if (!c->kept[i])
                free = i;
            else
                sum += bytes_of(c->kept[i]);
            if (c->kept[i] && (oldest < 0 || c->kept[i]->used < c->kept[oldest]->used))
                oldest = i;
        }
        if (free >= 0 && (sum <= KEPT_BYTES || oldest < 0))
            return free;
        drop(c->kept[oldest]);
        c->kept[oldest] = NULL;
    }
}

static mr_status entry_for(cache *c, const key *k, const mr_attr *attrs, int n_attrs, entry **out)
{
    uint64_t hash = mr_hash64(k, sizeof *k);
    for (int i = 0; i < KEPT; i++)
        if (c->kept[i] && c->kept[i]->hash == hash && memcmp(&c->kept[i]->key, k, sizeof *k) == 0) {
            *out = c->kept[i];
            return MR_OK;
        }
    entry *e;
    if (!MR_NEW(e))
        return mr_fail_memory(sizeof *e);
    e->key = *k, e->hash = hash;
    mr_status st = build(e, attrs, n_attrs, c->exec);
    if (st != MR_OK) {
        drop(e);
        return st;
    }
    c->kept[make_room(c, bytes_of(e))] = e;
    *out = e;
    return MR_OK;
}

static mr_status results(const entry *e, mr_tensor **outs)
{
    char name[3];
    for (int i = 0; i < mr_op_n_out(e->key.op); i++) {
        if (e->out[i] == MR_NONE)
            continue;
        const mr_desc *d = &mr_graph_value(e->graph, e->out[i])->desc;
        MR_TRY(mr_tensor_new(d->dtype, d->rank, d->dim, &outs[i]));
        name_of(name, 'o', i);
        MR_TRY(mr_program_get(e->program, name, mr_tensor_view(outs[i])));
    }
    return MR_OK;
}

mr_status mr_eager(mr_device *dev, const char *op, const mr_attr *attrs, int n_attrs,
                   mr_tensor *const *in, int n_in, mr_tensor **outs)
{
    MR_TRY(open_cache(dev));
    cache *c = dev->eager;
    key k;
    memset(&k, 0, sizeof k);
    k.op = mr_op_find(op), k.n_in = n_in;
    if (!k.op)
        return mr_fail(MR_E_USAGE, "unknown op '%s'; did you mean '%s'?", op, mr_op_nearest(op));
    if (n_in > MR_MAX_IN)
        return mr_fail(MR_E_USAGE, "%s: %d inputs, at most %d", op, n_in, MR_MAX_IN);
    MR_TRY(mr_op_attrs(k.op, attrs, n_attrs, k.attr));
    for (int i = 0; i < n_in; i++) {
        const mr_desc *d = in[i] ? &mr_tensor_view(in[i])->desc : NULL;
        k.in[i].rank = d ? d->rank : -1;
        if (!d)
            continue;
        k.in[i].dtype = d->dtype;
        for (int j = 0; j < d->rank; j++)
            k.in[i].dim[j] = d->dim[j];
    }
    entry *e = NULL;
    MR_TRY(entry_for(c, &k, attrs, n_attrs, &e));
    e->used = ++c->clock;
    char name[3];
    for (int i = 0; i < n_in; i++) {
        name_of(name, 'i', i);
        if (in[i])
            MR_TRY(mr_program_set(e->program, name, mr_tensor_view(in[i])));
    }
    MR_TRY(mr_program_run(e->program));
    for (int i = 0; i < mr_op_n_out(k.op); i++)
        outs[i] = NULL;
    mr_status st = results(e, outs);
    for (int i = 0; st != MR_OK && i < mr_op_n_out(k.op); i++) {
        mr_tensor_unref(outs[i]);
        outs[i] = NULL;
    }
    return st;
}
