/* exec: creates executors, which own the persistent regions of a parameter table on one device.
 * Licence: Apache-2.0 */
#include "exec/room.h"
#include "cpu/cpu.h"

#include <string.h>

static mr_status add_region(mr_exec *e, const mr_region *def)
{
    region *r = &e->regions[e->n_regions];
    r->def = *def, r->bytes = mr_region_bytes(def);
    r->def.name = mr_arena_strdup(&e->names, def->name);
    r->def.prefix = def->prefix ? mr_arena_strdup(&e->names, def->prefix) : NULL;
    if (!r->def.name || (def->prefix && !r->def.prefix))
        return mr_fail_memory(strlen(def->name));
    if (def->transient) {
        e->transient = r;
        arena *a = &e->arena[MR_SPACE_DEVICE];
        if (e->dev && r->bytes)
            MR_TRY(e->dev->ops->alloc(e->dev, r->bytes, MR_SPACE_DEVICE, &a->at));
        a->bytes = r->bytes, r->at = a->at;
    } else if (def->shared) {
        r->at = e->regions[0].at;
    } else if (r->bytes && e->dev) {
        mr_status st = e->dev->ops->alloc(e->dev, r->bytes, def->space, &r->at);
        if (st != MR_OK)
            return mr_fail_note("region '%s' of elements %lld to %lld", def->name,
                                (long long)def->start, (long long)def->stop);
        mr_device_guard(e->dev, r->at, MR_GUARD_NAMED);
    }
    e->n_regions++;
    return MR_OK;
}

static mr_status add_regions(mr_exec *e, const mr_region *given, int n)
{
    if (!e->params)
        return MR_OK;
    if (!mr_params_sealed(e->params))
        return mr_fail(MR_E_USAGE,
                       "the parameter table is not sealed; try: seal it before making an executor");
    mr_region *defs = mr_alloc(((size_t)n + 2) * sizeof *defs);
    mr_status st = MR_OK;
    e->regions = mr_calloc((size_t)n + 2, sizeof *e->regions);
    if (!defs || !e->regions) {
        st = mr_fail_memory(((size_t)n + 2) * sizeof *defs);
        goto out;
    }
    MR_TRY_GOTO(mr_regions(e->params, given, n, defs));
    for (int i = 0; i < n + 2; i++)
        MR_TRY_GOTO(add_region(e, &defs[i]));
out:
    mr_free(defs);
    return st;
}

static mr_status make(mr_device *dev, const mr_facts *facts, mr_params *params,
                      const mr_exec_options *options, mr_exec **out)
{
    mr_exec *e;
    if (!MR_NEW(e))
        return mr_fail_memory(sizeof *e);
    e->dev = e->rated_by = dev, e->facts = *facts, e->params = params;
    mr_arena_init(&e->names);
    if (options)
        e->options = *options;
    e->at_once = mr_device_at_once(facts->device);
    mr_status st = add_regions(e, e->options.regions, e->options.n_regions);
    if (st == MR_OK && dev)
        st = mr_edge_open(e);
    e->options.regions = NULL, e->options.n_regions = 0; // owned by the caller: keep no pointer to
                                                         // it
    if (st != MR_OK) {
        mr_exec_free(e);
        return st;
    }
    *out = e;
    return MR_OK;
}

mr_status mr_exec_new(mr_device *dev, mr_params *params, const mr_exec_options *options,
                      mr_exec **out)
{
    return make(dev, &dev->facts, params, options, out);
}

mr_status mr_exec_plan(const mr_facts *facts, mr_params *params, const mr_exec_options *options,
                       mr_exec **out)
{
    bool any = false, host = false;
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_kernel *k = mr_op_kernel(mr_op_at(i), facts->device);
        any |= k != NULL, host |= k == &mr_op_at(i)->cpu;
    }
    if (!any)
        return mr_fail(MR_E_UNSUPPORTED,
                       "no kernels for device '%s' here; try: cpu, or open its "
                       "plug-in",
                       facts->device);
    if ((host && mr_isa_index(facts->isa) < 0) || facts->threads < 1)
        return mr_fail(MR_E_USAGE,
                       "facts of a processor with '%s' and %d threads; expected base, avx2 or "
                       "avx512, and at least one thread",
                       facts->isa, facts->threads);
    return make(NULL, facts, params, options, out);
}

void mr_exec_rates(mr_exec *e, mr_device *dev)
{
    e->rated_by = dev;
}

bool mr_exec_edges(const mr_exec *e)
{
    const mr_op *op = mr_op_find("conv3d");
    const mr_kernel *k = op ? mr_op_kernel(op, e->facts.device) : NULL;
    // one position, one channel: whether a kernel supports the op does not depend on the size
    const mr_desc one = mr_desc_dense(MR_F32, 5, (int64_t[]){1, 1, 1, 1, 1});
    unsigned char attr[MR_ATTR_BYTES];
    mr_call call = {.n_in = 3, .n_out = 1, .attr = attr, .threads = e->facts.threads};
    call.in[0].desc = call.in[1].desc = call.out[0].desc = one, call.in[2].desc.rank = -1;
    if (!k || mr_op_attrs(op, MR_ATTRS({"edge", .i = 1}), attr) != MR_OK)
        return false;
    return !k->workspace || k->workspace(&call, &e->facts) != MR_NO_KERNEL;
}

void mr_exec_free(mr_exec *e)
{
    if (!e)
        return;
    while (e->programs)
        mr_program_free(e->programs);
    if (e->dev)
        mr_edge_close(e);
    for (int i = 0; i < e->n_regions; i++)
        if (e->regions[i].at && !e->regions[i].def.shared && !e->regions[i].def.transient)
            e->dev->ops->free(e->dev, e->regions[i].at, e->regions[i].bytes,
                              e->regions[i].def.space);
    for (int i = 0; i < MR_SPACE_COUNT; i++)
        if (e->arena[i].at)
            e->dev->ops->free(e->dev, e->arena[i].at, e->arena[i].bytes, (mr_space)i);
    if (e->landing.at)
        e->dev->ops->free(e->dev, e->landing.at, e->landing.bytes, MR_SPACE_DEVICE);
    mr_free(e->regions);
    mr_arena_fini(&e->names);
    mr_free(e->staging);
    mr_free(e);
}

mr_status mr_exec_sync(mr_exec *e)
{
    MR_TRY(mr_exec_works(e));
    e->waits.all++;
    return e->dev->ops->sync(e->dev);
}

static mr_status place(mr_exec *e, const char *name, size_t at, size_t bytes, mr_dptr *out)
{
    MR_TRY(mr_exec_works(e));
    const region *r = mr_exec_need(e, name);
    if (!r)
        return MR_E_USAGE;
    if (at > r->bytes || bytes > r->bytes - at)
        return mr_fail(MR_E_RANGE, "region '%s' has %zu bytes; asked for %zu at %zu", name,
                       r->bytes, bytes, at);
    if (r == e->transient && bytes)
        MR_TRY(mr_exec_transient(e));
    *out = r->at + at;
    e->waits.all += bytes > 0;
    return MR_OK;
}

mr_status mr_exec_read(mr_exec *e, const char *name, size_t at, void *dst, size_t bytes)
{
    mr_dptr from = 0;
    MR_TRY(place(e, name, at, bytes, &from));
    return bytes ? e->dev->ops->copy_out(e->dev, dst, from, bytes) : MR_OK;
}

mr_status mr_exec_write(mr_exec *e, const char *name, size_t at, const void *src, size_t bytes)
{
    mr_dptr to = 0;
    MR_TRY(place(e, name, at, bytes, &to));
    e->used |= e->transient && strcmp(name, e->transient->def.name) == 0;
    return bytes ? e->dev->ops->copy_in(e->dev, to, src, bytes) : MR_OK;
}

/* ---- all weights ---- */

/* Write n elements from `first` on of the trainable (or frozen) range, as far as the region covers
 * them. `scratch` has room for n elements. */
static mr_status put(mr_exec *e, const region *r, int64_t first, int64_t n, float *values,
                     void *scratch)
{
    int64_t from = MR_MAX(first, r->def.start), to = MR_MIN(first + n, r->def.stop), m = to - from;
    void *src = values + (from - first);
    if (m <= 0)
        return MR_OK;
    if (r->def.dtype != MR_F32) {
        mr_view given = {src, mr_desc_dense(MR_F32, 1, &m)},
                rounded = {scratch, mr_desc_dense(r->def.dtype, 1, &m)};
        MR_TRY(mr_view_copy(&rounded, &given));
        src = scratch;
    }
    size_t size = mr_dtype_bytes(r->def.dtype);
    return mr_exec_write(e, r->def.name, (size_t)(from - r->def.start) * size, src,
                         (size_t)m * size);
}

mr_status mr_exec_init_params(mr_exec *e, uint64_t seed)
{
    if (!e->params)
        return MR_OK;
    int64_t most = 0;
    for (int i = 0; i < mr_params_count(e->params); i++)
        most = MR_MAX(most, mr_desc_count(&mr_params_at(e->params, i)->desc));
    float *values = mr_alloc((size_t)most * 2 * sizeof *values);
    if (!values)
        return mr_fail_memory((size_t)most * 2 * sizeof *values);
    mr_status st = MR_OK;
    for (int i = 0; i < mr_params_count(e->params); i++) {
        const mr_param *p = mr_params_at(e->params, i);
        int64_t n = mr_desc_count(&p->desc);
        MR_TRY_GOTO(mr_interrupt_check());
        MR_TRY_GOTO(mr_params_init(e->params, i, seed, values));
        for (int k = 0; k < e->n_regions; k++) {
            const region *r = &e->regions[k];
            if (r->def.role != MR_ROLE_STATE && p->frozen == (r->def.role == MR_ROLE_FROZEN))
                MR_TRY_GOTO(put(e, r, p->offset, n, values, values + most));
        }
    }
out:
    mr_free(values);
    return st;
}

/* Round the weights of a region of masters into all regions of weights. */
static mr_status round_master(mr_exec *e, const region *master, int64_t piece, float *values)
{
    for (int64_t at = master->def.start; at < master->def.stop; at += piece) {
        int64_t m = MR_MIN(master->def.stop - at, piece);
        MR_TRY(mr_exec_read(e, master->def.name, (size_t)(at - master->def.start) * 4, values,
                            (size_t)m * 4));
        for (int i = 0; i < e->n_regions; i++)
            if (e->regions[i].def.role == MR_ROLE_WEIGHTS)
                MR_TRY(put(e, &e->regions[i], at, m, values, values + piece));
    }
    return MR_OK;
}

mr_status mr_exec_refresh(mr_exec *e)
{
    enum { PIECE = 1 << 18 };
    float *values = mr_alloc(PIECE * 2 * sizeof *values);
    if (!values)
        return mr_fail_memory(PIECE * 2 * sizeof *values);
    mr_status st = MR_OK;
    for (int i = 0; i < e->n_regions && st == MR_OK; i++) {
        const region *r = &e->regions[i];
        if (r->def.role == MR_ROLE_MASTER && !r->def.shared)
            st = round_master(e, r, PIECE, values);
    }
    mr_free(values);
    return st;
}
