/* cpu: groups of ranks by the numbers that rows name them with. Licence: Apache-2.0 */
#include "moonreel/collective.h"

typedef struct group {
    mr_collective_fn *run; /* NULL: nobody's */
    mr_exchange_fn *exchange;
    void *user;
} group;

static group *groups;
static int64_t n_groups;

mr_status mr_collective_add(mr_collective_fn *run, mr_exchange_fn *exchange, void *user,
                            int64_t *out)
{
    // numbers are not used again: a program that outlives its group says so instead of meeting
    // others
    group *more = mr_realloc(groups, (size_t)(n_groups + 1) * sizeof *more);
    if (!more)
        return mr_fail_memory((size_t)(n_groups + 1) * sizeof *more);
    groups = more;
    groups[n_groups++] = (group){run, exchange, user};
    *out = n_groups;
    return MR_OK;
}

void mr_collective_remove(int64_t number)
{
    if (number > 0 && number <= n_groups)
        groups[number - 1] = (group){NULL, NULL, NULL};
}

/* Errors: MR_E_USAGE it is not there */
static mr_status find(int64_t number, const group **out)
{
    *out = number > 0 && number <= n_groups ? &groups[number - 1] : NULL;
    if (!*out || !(*out)->run)
        return mr_fail(MR_E_USAGE, "group %lld of ranks is not there (any more)",
                       (long long)number);
    return MR_OK;
}

mr_status mr_collective_run(int64_t number, mr_collective what, mr_dtype dtype, void *x,
                            int64_t count)
{
    const group *g;
    if (number == 0)
        return MR_OK;
    MR_TRY(find(number, &g));
    return g->run(g->user, what, dtype, x, count);
}

mr_status mr_collective_exchange(int64_t number, const mr_exchange *what)
{
    const group *g;
    if (number == 0)
        return mr_fail(MR_E_USAGE, "group 0 is this rank alone: it has nobody to exchange with");
    MR_TRY(find(number, &g));
    return g->exchange(g->user, what);
}
