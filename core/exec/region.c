/* exec: the regions of a parameter table, as an optimizer declares them.
 *
 * A region covers a range of the trainable elements, in the order of the parameter table.
 * Definitions are plain data: planning reads them without a device. Licence: Apache-2.0 */
#include "moonreel/exec.h"

#include <string.h>

static mr_status check(const mr_region *r, int64_t elements, const mr_region *before, int n)
{
    bool weights = r->role == MR_ROLE_MASTER || r->role == MR_ROLE_AVERAGE;
    for (int i = 0; i < n; i++)
        if (strcmp(before[i].name, r->name) == 0)
            return mr_fail(MR_E_USAGE, "region '%s' exists already; try: another name", r->name);
    if (weights && (r->dtype != MR_F32 || r->per != 1))
        return mr_fail(MR_E_USAGE,
                       "region '%s' has weights, and is %s with one element per %lld weights; "
                       "expected f32, one element per weight",
                       r->name, mr_dtype_name(r->dtype), (long long)r->per);
    for (int i = 0; i < n && r->transient; i++)
        if (before[i].transient)
            return mr_fail(MR_E_USAGE, "regions '%s' and '%s' are transient; expected one at most",
                           before[i].name, r->name);
    if (r->transient && (r->role != MR_ROLE_STATE || r->prefix || r->space != MR_SPACE_DEVICE))
        return mr_fail(
            MR_E_USAGE,
            "region '%s' is transient; expected state on the device that is not in checkpoints",
            r->name);
    if (r->per < 1 || MR_PARAM_ALIGN % r->per)
        return mr_fail(MR_E_USAGE,
                       "region '%s' has one element per %lld weights; expected a divisor of %d, so "
                       "that no two parameters share an element",
                       r->name, (long long)r->per, MR_PARAM_ALIGN);
    if (r->start < 0 || r->start > r->stop || r->stop > elements || r->start % r->per ||
        r->stop % r->per)
        return mr_fail(MR_E_RANGE,
                       "region '%s' covers elements %lld to %lld, one for %lld; expected a part of "
                       "the trainable range, which has %lld",
                       r->name, (long long)r->start, (long long)r->stop, (long long)r->per,
                       (long long)elements);
    return MR_OK;
}

mr_status mr_regions(const mr_params *params, const mr_region *regions, int n, mr_region *out)
{
    mr_dtype compute = mr_params_compute(params);
    int64_t elements = mr_params_elements(params, false);
    out[0] = (mr_region){.name = "w",
                         .dtype = compute,
                         .role = MR_ROLE_WEIGHTS,
                         .prefix = "",
                         .stop = elements,
                         .per = 1};
    out[1] = (mr_region){.name = "frozen",
                         .dtype = compute,
                         .role = MR_ROLE_FROZEN,
                         .prefix = "",
                         .stop = mr_params_elements(params, true),
                         .per = 1};
    for (int i = 0; i < n; i++) {
        mr_region r = regions[i];
        if (r.role == MR_ROLE_WEIGHTS)
            out[0].stop = 0, r.dtype = compute, r.prefix = "", r.per = 1;
        else if (!r.start && !r.stop)
            r.stop = elements;
        if (!r.per)
            r.per = 1;
        MR_TRY(check(&r, elements, out, i + 2));
        r.shared = r.role == MR_ROLE_MASTER && r.dtype == compute && !r.start && r.stop == elements;
        if (r.shared)
            r.space = MR_SPACE_DEVICE;
        out[i + 2] = r;
    }
    return MR_OK;
}

size_t mr_region_bytes(const mr_region *r)
{
    return (size_t)((r->stop - r->start) / r->per) * mr_dtype_bytes(r->dtype);
}

mr_status mr_region_find(const mr_region *r, const mr_param *p, int64_t *at, int64_t *count)
{
    int64_t n = mr_desc_count(&p->desc), first = p->offset, end = first + n;
    if (p->frozen != (r->role == MR_ROLE_FROZEN))
        return mr_fail(MR_E_USAGE, "parameter '%s' is %s: it has no %s", p->name,
                       p->frozen ? "frozen" : "trained", r->name);
    if (first < r->start || end > r->stop)
        return mr_fail(MR_E_RANGE,
                       "parameter '%s' has elements %lld to %lld, region '%s' those from %lld to "
                       "%lld",
                       p->name, (long long)first, (long long)end, r->name, (long long)r->start,
                       (long long)r->stop);
    *at = (first - r->start) / r->per;
    *count = (n + r->per - 1) / r->per;
    return MR_OK;
}
