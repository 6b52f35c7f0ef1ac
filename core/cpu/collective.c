/* cpu: maps group numbers, by which ops name groups of ranks, to groups. Licence: Apache-2.0 */
#include "moonreel/collective.h"

#include <pthread.h>

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static mr_group *groups; /* an entry without `run` is free */
static int64_t n_groups;
static mr_collective_watcher *watching;

mr_status mr_collective_add(const mr_group *group, int64_t *out)
{
    pthread_mutex_lock(&looking);
    // a number is never reused: a program that outlives its group gets an error, not another group
    mr_group *more = mr_realloc(groups, (size_t)(n_groups + 1) * sizeof *more);
    if (more) {
        groups = more;
        groups[n_groups++] = *group;
        *out = n_groups;
    }
    pthread_mutex_unlock(&looking);
    return more ? MR_OK : mr_fail_memory(sizeof *more);
}

void mr_collective_remove(int64_t number)
{
    if (number && watching)
        watching(number);
    pthread_mutex_lock(&looking);
    if (number > 0 && number <= n_groups)
        groups[number - 1] = (mr_group){0};
    pthread_mutex_unlock(&looking);
}

void mr_collective_watch(mr_collective_watcher *watcher)
{
    watching = watcher;
}

mr_status mr_collective_group(int64_t number, mr_group *out)
{
    pthread_mutex_lock(&looking);
    *out = number > 0 && number <= n_groups ? groups[number - 1] : (mr_group){0};
    pthread_mutex_unlock(&looking);
    if (!out->run)
        return mr_fail(MR_E_USAGE,
                       "group %lld of ranks does not exist or was removed; try: compile the "
                       "program again after the ranks have joined",
                       (long long)number);
    return MR_OK;
}

mr_status mr_collective_ranks(int64_t number, int64_t ranks, int64_t at)
{
    mr_group g;
    if (number == 0)
        return MR_OK;
    MR_TRY(mr_collective_group(number, &g));
    if (g.size == ranks && g.rank == at)
        return MR_OK;
    return mr_fail(MR_E_USAGE, "ranks is %lld and at is %lld; expected %d and %d, as in group %lld",
                   (long long)ranks, (long long)at, g.size, g.rank, (long long)number);
}

mr_status mr_collective_run(int64_t number, mr_collective what, mr_dtype dtype, void *x,
                            int64_t count)
{
    mr_group g;
    if (number == 0)
        return MR_OK;
    MR_TRY(mr_collective_group(number, &g));
    return g.run(g.user, what, dtype, x, count);
}

mr_status mr_collective_exchange(int64_t number, const mr_exchange *what)
{
    mr_group g;
    if (number == 0)
        return mr_fail(MR_E_USAGE, "group 0 is this rank alone, so no other rank can receive; "
                                   "expected the number of a group of several ranks");
    MR_TRY(mr_collective_group(number, &g));
    return g.exchange(g.user, what);
}
