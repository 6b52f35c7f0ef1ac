/* exec: persistent regions of a parameter table on one device. Licence: Apache-2.0 */
#include "exec/room.h"

#include <string.h>

static mr_status add_region(mr_exec *e, const char *name, mr_dtype dtype, int64_t elements)
{
    region *r = &e->regions[e->n_regions];
    r->name = name, r->bytes = (size_t)elements * mr_dtype_bytes(dtype);
    if (r->bytes) {
        mr_status st = e->dev->ops->alloc(e->dev, r->bytes, MR_SPACE_DEVICE, &r->at);
        if (st != MR_OK)
            return mr_fail_note("region '%s' of %lld elements", name, (long long)elements);
        mr_device_guard(e->dev, r->at, MR_GUARD_NAMED);
    }
    e->n_regions++;
    return MR_OK;
}

static mr_status add_regions(mr_exec *e)
{
    if (!e->params)
        return MR_OK;
    if (!mr_params_sealed(e->params))
        return mr_fail(MR_E_USAGE,
                       "the parameter table is not sealed; try: seal it before making an executor");
    const mr_exec_options *o = &e->options;
    mr_dtype compute = mr_params_compute(e->params);
    e->f32 = compute == MR_F32;
    int64_t n = mr_params_elements(e->params, false), frozen = mr_params_elements(e->params, true);
    bool state = o->training && !o->no_moments;
    // in f32 "w" and "master" are one region: the name in the list is "w"
    MR_TRY(add_region(e, "w", compute, n));
    MR_TRY(add_region(e, "frozen", compute, frozen));
    if (o->training)
        MR_TRY(add_region(e, "grad", MR_F32, n));
    if (state && compute != MR_F32)
        MR_TRY(add_region(e, "master", MR_F32, n));
    if (state)
        MR_TRY(add_region(e, "adam_m", MR_F32, n));
    if (state)
        MR_TRY(add_region(e, "adam_v", MR_F32, n));
    if (o->ema)
        MR_TRY(add_region(e, "ema", MR_F32, n));
    return MR_OK;
}

mr_status mr_exec_new(mr_device *dev, mr_params *params, const mr_exec_options *options,
                      mr_exec **out)
{
    mr_exec *e;
    if (!MR_NEW(e))
        return mr_fail_memory(sizeof *e);
    e->dev = dev, e->params = params;
    if (options)
        e->options = *options;
    mr_status st = add_regions(e);
    if (st != MR_OK) {
        mr_exec_free(e);
        return st;
    }
    *out = e;
    return MR_OK;
}

void mr_exec_free(mr_exec *e)
{
    if (!e)
        return;
    e->dev->ops->sync(e->dev);
    while (e->programs)
        mr_program_free(e->programs);
    for (int i = 0; i < e->n_regions; i++)
        if (e->regions[i].at)
            e->dev->ops->free(e->dev, e->regions[i].at, e->regions[i].bytes, MR_SPACE_DEVICE);
    if (e->arena)
        e->dev->ops->free(e->dev, e->arena, e->arena_bytes, MR_SPACE_DEVICE);
    mr_free(e->staging);
    mr_free(e);
}

mr_status mr_exec_sync(mr_exec *e)
{
    return e->dev->ops->sync(e->dev);
}

mr_status mr_exec_staging(mr_exec *e, size_t bytes)
{
    if (bytes <= e->staging_bytes)
        return MR_OK;
    void *more = mr_alloc(bytes);
    if (!more)
        return mr_fail_memory(bytes);
    mr_free(e->staging);
    e->staging = more, e->staging_bytes = bytes;
    return MR_OK;
}

region *mr_exec_region(mr_exec *e, const char *name)
{
    if (strcmp(name, "master") == 0 && e->f32)
        name = "w";
    for (int i = 0; i < e->n_regions; i++)
        if (strcmp(e->regions[i].name, name) == 0)
            return &e->regions[i];
    return NULL;
}

bool mr_exec_has(const mr_exec *e, const char *name)
{
    return mr_exec_region((mr_exec *)e, name) != NULL;
}

size_t mr_exec_region_bytes(const mr_exec *e, const char *name)
{
    const region *r = mr_exec_region((mr_exec *)e, name);
    return r ? r->bytes : 0;
}

const void *mr_exec_host(const mr_exec *e, const char *name)
{
    const region *r = mr_exec_region((mr_exec *)e, name);
    return r && e->dev->host ? (const void *)r->at : NULL;
}

static mr_status find(mr_exec *e, const char *name, size_t at, size_t bytes, region **out)
{
    region *r = mr_exec_region(e, name);
    if (!r)
        return mr_fail(MR_E_USAGE,
                       "no region '%s' here; try: an executor with training, moments or ema", name);
    if (at > r->bytes || bytes > r->bytes - at)
        return mr_fail(MR_E_RANGE, "region '%s' has %zu bytes; asked for %zu at %zu", name,
                       r->bytes, bytes, at);
    *out = r;
    return MR_OK;
}

mr_status mr_exec_read(mr_exec *e, const char *name, size_t at, void *dst, size_t bytes)
{
    region *r;
    MR_TRY(find(e, name, at, bytes, &r));
    return bytes ? e->dev->ops->copy_out(e->dev, dst, r->at + at, bytes) : MR_OK;
}

mr_status mr_exec_write(mr_exec *e, const char *name, size_t at, const void *src, size_t bytes)
{
    region *r;
    MR_TRY(find(e, name, at, bytes, &r));
    return bytes ? e->dev->ops->copy_in(e->dev, r->at + at, src, bytes) : MR_OK;
}

/* ---- weights as a whole ---- */

/* n f32 values into a region of another dtype, from element `at`. `scratch` holds n elements. */
static mr_status put(mr_exec *e, const char *name, mr_dtype dtype, int64_t at, int64_t n,
                     float *values, void *scratch)
{
    void *src = values;
    if (dtype != MR_F32) {
        mr_view from = {values, mr_desc_dense(MR_F32, 1, &n)},
                to = {scratch, mr_desc_dense(dtype, 1, &n)};
        MR_TRY(mr_view_copy(&to, &from));
        src = scratch;
    }
    size_t size = mr_dtype_bytes(dtype);
    return mr_exec_write(e, name, (size_t)at * size, src, (size_t)n * size);
}

mr_status mr_exec_init_params(mr_exec *e, uint64_t seed)
{
    if (!e->params)
        return MR_OK;
    mr_dtype compute = mr_params_compute(e->params);
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
        MR_TRY_GOTO(mr_params_init(e->params, i, seed, values));
        MR_TRY_GOTO(
            put(e, p->frozen ? "frozen" : "w", compute, p->offset, n, values, values + most));
        if (p->frozen)
            continue;
        if (mr_exec_has(e, "master"))
            MR_TRY_GOTO(put(e, "master", MR_F32, p->offset, n, values, NULL));
        if (mr_exec_has(e, "ema"))
            MR_TRY_GOTO(put(e, "ema", MR_F32, p->offset, n, values, NULL));
    }
out:
    mr_free(values);
    return st;
}

mr_status mr_exec_refresh(mr_exec *e)
{
    enum { PIECE = 1 << 18 };
    if (!e->params || mr_params_compute(e->params) == MR_F32)
        return MR_OK;
    float *values = mr_alloc(PIECE * 2 * sizeof *values);
    if (!values)
        return mr_fail_memory(PIECE * 2 * sizeof *values);
    mr_status st = MR_OK;
    int64_t n = mr_params_elements(e->params, false);
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = MR_MIN(n - at, (int64_t)PIECE);
        MR_TRY_GOTO(mr_exec_read(e, "master", (size_t)at * 4, values, (size_t)m * 4));
        MR_TRY_GOTO(put(e, "w", mr_params_compute(e->params), at, m, values, values + PIECE));
    }
out:
    mr_free(values);
    return st;
}
