/* comm/carried: calls that a device carries out are counted and reported as the group's own, the
 * broadcast of an id uses the group, and a lost rank is noticed without waiting for it. */
#include "moonreel/collective.h"
#include "rankcase.h"

enum { N = 3, CALLS = 2 };

static mr_status expect(int64_t got, int64_t want, const char *what)
{
    return got == want ? MR_OK
                       : mr_fail(MR_E_FAIL, "%s is %lld, expected %lld", what, (long long)got,
                                 (long long)want);
}

static mr_status group_of(rank_case *c, mr_group *g)
{
    int64_t number = 0;
    MR_TRY(mr_comm_op_group(c->world, &number));
    return mr_collective_group(number, g);
}

static mr_status counts(rank_case *c)
{
    mr_group g;
    MR_TRY(group_of(c, &g));
    MR_TRY(expect(g.rank, c->rank, "rank"));
    MR_TRY(expect(g.size, N, "size"));
    char word[8] = "others";
    if (c->rank == 0)
        strcpy(word, "first");
    MR_TRY(g.broadcast(g.user, word, sizeof word));
    MR_TRY(expect(strcmp(word, "first"), 0, "what the first rank said"));
    float x = 1;
    MR_TRY(mr_comm_all_reduce(c->world, MR_COMM_SUM, MR_F32, &x, 1));
    const mr_comm_count host = mr_comm_counted(c->world, MR_COMM_ALL_REDUCE);
    mr_carried call = {.op = MR_COMM_ALL_REDUCE, .dtype = MR_F32, .count = 8, .bytes = 64};
    for (int i = 0; i < CALLS; i++) {
        g.begins(g.user, &call);
        g.ends(g.user, &call);
    }
    mr_comm_count both = mr_comm_counted(c->world, MR_COMM_ALL_REDUCE);
    MR_TRY(expect(both.calls, host.calls + CALLS, "calls"));
    MR_TRY(expect(both.bytes, host.bytes + CALLS * 64, "bytes"));
    mr_comm_count_reset(c->world);
    both = mr_comm_counted(c->world, MR_COMM_ALL_REDUCE);
    MR_TRY(expect(both.calls + both.bytes, 0, "what is counted after a reset"));
    // the group's own calls continue in parallel
    MR_TRY(mr_comm_all_reduce(c->world, MR_COMM_SUM, MR_F32, &x, 1));
    return mr_comm_barrier(c->world, 0);
}

static mr_status one_gives_up(rank_case *c)
{
    mr_group g;
    MR_TRY(group_of(c, &g));
    MR_TRY(g.look(g.user, 100));
    MR_TRY(mr_comm_barrier(c->world, 0));
    if (c->rank == 1)
        return g.give_up(g.user, mr_fail(MR_E_NODE, "its GPU is lost"));
    mr_status st = MR_OK;
    while (st == MR_OK)
        st = g.look(g.user, 0);
    return st;
}

static mr_status one_leaves(rank_case *c)
{
    mr_group g;
    MR_TRY(group_of(c, &g));
    if (c->rank == 2)
        return MR_OK;
    // all its messages may be sent: rank 0 reports it after a wait, rank 1 is notified
    mr_status st = MR_OK;
    while (st == MR_OK && c->rank == 1)
        st = g.look(g.user, 0);
    for (const double until = mr_now_s() + 0.03; st == MR_OK && mr_now_s() < until;)
        if (g.look(g.user, 1) != MR_OK)
            return mr_fail(MR_E_FAIL, "it is lost at once: %s", mr_error_last()->text);
    while (st == MR_OK)
        st = g.look(g.user, 3);
    return st;
}

static void ends(mr_status (*run)(rank_case *c), int spared, const char *text)
{
    rank_case *cases = ranks_run(N, run, NULL, NULL);
    for (int r = 0; r < N; r++) {
        CHECK_INT(cases[r].st, r == spared ? MR_OK : MR_E_NODE);
        if (r != spared && !CHECK(strstr(cases[r].text, text)))
            printf("  rank %d: %s\n", r, cases[r].text);
    }
    free(cases);
}

static int report;
static void gone(int64_t number)
{
    mr_group g;
    // the group can be used until then
    report += mr_collective_group(number, &g) == MR_OK;
}

// a rank that polls notices a group that ends, while the group still exists
static void watched(void)
{
    mr_comm *alone = NULL;
    mr_group g;
    int64_t number = 0;
    mr_collective_watch(gone);
    CHECK_OK(mr_comm_world(NULL, NULL, &alone));
    mr_comm_free(alone);
    CHECK_INT(report, 0);
    CHECK_OK(mr_comm_world(NULL, NULL, &alone));
    CHECK_OK(mr_comm_op_group(alone, &number));
    mr_comm_free(alone);
    CHECK_INT(report, 1);
    CHECK_FAILS(mr_collective_group(number, &g), MR_E_USAGE, "does not exist or was removed");
    mr_collective_watch(NULL);
}

int main(void)
{
    ranks_succeed(N, counts, NULL);
    ends(one_gives_up, -1, "its GPU is lost");
    for (int i = 0; i < 20; i++)
        ends(one_leaves, 2, "rank 2 has left the world");
    watched();
    return check_done();
}
