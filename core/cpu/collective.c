/* cpu: groups of ranks by the numbers that rows name them with. Licence: Apache-2.0 */
#include "moonreel/collective.h"

typedef struct group {
    mr_collective_fn *run; /* NULL: nobody's */
    void *user;
} group;

static group *groups;
static int64_t n_groups;

mr_status mr_collective_add(mr_collective_fn *run, void *user, int64_t *out)
{
    // numbers are not used again: a program that outlives its group says so instead of meeting
    // others
    group *more = mr_realloc(groups, (size_t)(n_groups + 1) * sizeof *more);
    if (!more)
        return mr_fail_memory((size_t)(n_groups + 1) * sizeof *more);
    groups = more;
    groups[n_groups++] = (group){run, user};
    *out = n_groups;
    return MR_OK;
}

void mr_collective_remove(int64_t number)
{
    if (number > 0 && number <= n_groups)
        groups[number - 1] = (group){NULL, NULL};
}

mr_status mr_collective_run(int64_t number, mr_collective what, mr_dtype dtype, void *x,
                            int64_t count)
{
    if (number == 0)
        return MR_OK;
    const group *g = number > 0 && number <= n_groups ? &groups[number - 1] : NULL;
    if (!g || !g->run)
        return mr_fail(MR_E_USAGE, "group %lld of ranks is not there (any more)",
                       (long long)number);
    return g->run(g->user, what, dtype, x, count);
}
