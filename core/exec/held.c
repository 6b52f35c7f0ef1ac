/* exec: looks up the regions, outputs and tensors of an executor by name, and reports missing ones.
 * Licence: Apache-2.0 */
#include "exec/room.h"

#include <stdio.h>
#include <string.h>

static const region *find(const mr_exec *e, const char *name)
{
    for (int i = 0; i < e->n_regions; i++)
        if (strcmp(e->regions[i].def.name, name) == 0)
            return &e->regions[i];
    return NULL;
}

mr_status mr_exec_works(const mr_exec *e)
{
    return e->dev ? MR_OK
                  : mr_fail(MR_E_USAGE, "this executor only plans and has no device; try: run on "
                                        "an executor with a device");
}

mr_status mr_exec_transient(const mr_exec *e)
{
    return !e->lost ? MR_OK
                    : mr_fail(MR_E_USAGE,
                              "region '%s' is in the arena, and a later run or compilation has "
                              "overwritten it; try: compile all programs first, read it directly "
                              "after the run that writes it",
                              e->transient->def.name);
}

int mr_exec_regions(const mr_exec *e)
{
    return e->n_regions;
}

const mr_region *mr_exec_region_at(const mr_exec *e, int i)
{
    return &e->regions[i].def;
}

const mr_region *mr_exec_region(const mr_exec *e, const char *name)
{
    const region *r = find(e, name);
    return r ? &r->def : NULL;
}

const region *mr_exec_need(const mr_exec *e, const char *name)
{
    const region *r = find(e, name);
    char list[256] = "none";
    for (size_t i = 0, n = 0; !r && i < (size_t)e->n_regions && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "",
                              e->regions[i].def.name);
    if (!r)
        mr_fail(MR_E_USAGE,
                "this executor has no region '%s'; it has %s; try: declare it with the executor",
                name, list);
    return r;
}

const void *mr_exec_host(const mr_exec *e, const char *name)
{
    const region *r = find(e, name);
    if (r && e->dev && r->def.space == MR_SPACE_PINNED)
        return e->dev->ops->host(e->dev, r->at);
    return r && e->dev && e->dev->host ? (const void *)r->at : NULL;
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

const result *mr_program_result(const mr_program *p, const char *name)
{
    for (int i = 0; i < p->n_outputs; i++)
        if (strcmp(p->outputs[i].name, name) == 0)
            return &p->outputs[i];
    mr_fail(MR_E_USAGE, "the graph has no output '%s'", name);
    return NULL;
}

mr_status mr_shapes_differ(const char *what, const char *name, const mr_desc *came,
                           const mr_desc *expected)
{
    char a[128], b[128];
    return mr_fail(MR_E_SHAPE, "%s '%s' is %s, the given tensor is %s; expected equal shapes", what,
                   name, mr_desc_text(expected, b, sizeof b), mr_desc_text(came, a, sizeof a));
}
