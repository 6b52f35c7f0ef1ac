/* A group of ranks in which only this one is real: it counts the reports about calls that a device
 * carries out. */
#ifndef MR_GROUPCASE_H
#define MR_GROUPCASE_H
#include "check.h"
#include "moonreel/collective.h"

typedef struct group_case {
    int begun, ended, given_up;
    mr_status why;    /* of the last report of a failure */
    mr_carried last;  /* the call that began last */
    double waited_s;  /* the last reported state */
    size_t broadcast; /* bytes of the last one */
    mr_status lost;   /* result of a check for lost ranks */
} group_case;

// the first rank's bytes, for any caller
static inline mr_status group_case_broadcast(void *user, void *data, size_t bytes)
{
    ((group_case *)user)->broadcast = bytes;
    memset(data, 'y', bytes);
    return MR_OK;
}

static inline mr_status group_case_look(void *user, double waited_s)
{
    mr_status lost = ((group_case *)user)->lost;
    ((group_case *)user)->waited_s = waited_s;
    return lost ? mr_fail(lost, "rank 2 ended by signal 9") : MR_OK;
}

static inline mr_status group_case_give_up(void *user, mr_status st)
{
    ((group_case *)user)->given_up++, ((group_case *)user)->why = st;
    return st;
}

static inline void group_case_begins(void *user, mr_carried *call)
{
    ((group_case *)user)->begun++, ((group_case *)user)->last = *call;
}

static inline void group_case_ends(void *user, const mr_carried *call)
{
    (void)call;
    ((group_case *)user)->ended++;
}

// calls that no device carries out are not made
static inline mr_status group_case_run(void *user, mr_collective what, mr_dtype dtype, void *x,
                                       int64_t count)
{
    (void)user, (void)what, (void)dtype, (void)x, (void)count;
    return mr_fail(MR_E_UNSUPPORTED, "no rank is there");
}

/* Its number; `c` outlives it. */
static inline int64_t group_case_add(group_case *c, int rank, int size, double deadline_s)
{
    int64_t number = 0;
    CHECK_OK(mr_collective_add(&(mr_group){.user = c,
                                           .rank = rank,
                                           .size = size,
                                           .deadline_s = deadline_s,
                                           .run = group_case_run,
                                           .broadcast = group_case_broadcast,
                                           .look = group_case_look,
                                           .give_up = group_case_give_up,
                                           .begins = group_case_begins,
                                           .ends = group_case_ends},
                               &number));
    return number;
}

#endif
