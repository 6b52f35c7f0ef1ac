/* exec: packed copies of weights, one per range and key, shared by all programs. Licence: Apache-2.0 */
#include "exec/room.h"

#include <string.h>

static void drop(mr_exec *e, packed *p)
{
    e->dev->ops->release(e->dev, &p->step);
    if (p->step.dst) e->dev->ops->free(e->dev, p->step.dst, p->step.bytes, MR_SPACE_DEVICE);
    mr_free(p);
}

static mr_status make(mr_exec *e, const mr_step *step, const region *from, size_t offset, uint64_t key, packed **out)
{
    packed *p;
    if (!MR_NEW(p)) return mr_fail_memory(sizeof *p);
    p->from = from, p->offset = offset, p->key = key;
    p->step = (mr_step){.kind = MR_STEP_PACK, .op = step->op, .call = step->call, .node = NULL};
    p->step.call.state = NULL;
    p->step.bytes = step->op->cpu.pack_bytes(&step->call);
    // a kernel state of its own: the node's lives only as long as its program
    mr_status st = e->dev->ops->resolve(e->dev, &p->step);
    if (st == MR_OK) st = e->dev->ops->alloc(e->dev, p->step.bytes, MR_SPACE_DEVICE, &p->step.dst);
    if (st == MR_OK && e->n_packed == e->cap_packed) {
        int cap = e->cap_packed ? e->cap_packed * 2 : 64;
        packed **more = mr_realloc(e->packed, (size_t)cap * sizeof *more);
        if (more) e->packed = more, e->cap_packed = cap;
        else st = mr_fail_memory((size_t)cap * sizeof *more);
    }
    if (st != MR_OK) {
        drop(e, p);
        return st;
    }
    p->step.call.in[step->op->cpu.pack_input].data = (void *)(from->at + offset);
    e->packed[e->n_packed++] = p;
    e->stale = true;
    *out = p;
    return MR_OK;
}

mr_status mr_packed_for(mr_exec *e, const mr_graph *g, const mr_step *step, packed **out)
{
    const mr_kernel *k = &step->op->cpu;
    *out = NULL;
    if (e->options.no_pack || step->naive || !k->packs || step->node->in[k->pack_input] == MR_NONE) return MR_OK;
    const mr_value *v = mr_graph_value(g, step->node->in[k->pack_input]);
    const mr_storage *s = mr_graph_storage(g, v->storage);
    if (s->kind != MR_REGION) return MR_OK;
    const region *from = mr_exec_region(e, s->region);
    if (!from || (strcmp(from->name, "w") && strcmp(from->name, "frozen"))) return MR_OK;
    if (!k->pack_bytes(&step->call)) return MR_OK;
    size_t offset = (size_t)(s->region_offset + v->offset);
    uint64_t key = k->pack_key(&step->call);
    for (int i = 0; i < e->n_packed; i++) {
        packed *p = e->packed[i];
        if (p->from == from && p->offset == offset && p->key == key && p->step.op->cpu.pack == k->pack) {
            *out = p;
            return MR_OK;
        }
    }
    return make(e, step, from, offset, key, out);
}

mr_status mr_exec_pack(mr_exec *e)
{
    for (int i = 0; i < e->n_packed; i++) MR_TRY(e->dev->ops->run(e->dev, &e->packed[i]->step, 1));
    e->stale = false;
    return MR_OK;
}

void mr_packed_free(mr_exec *e)
{
    for (int i = 0; i < e->n_packed; i++) drop(e, e->packed[i]);
    mr_free(e->packed);
}
