/* comm/group: splits by color and key, lanes that two threads use at the same time, worlds of
 * different programs. */
#include "rankcase.h"

enum { N = 6 };

static mr_status expect(int got, int want, const char *what)
{
    return got == want ? MR_OK : mr_fail(MR_E_FAIL, "%s is %d, expected %d", what, got, want);
}

static mr_status splits(rank_case *c)
{
    // even and odd ranks, the last first; rank 5 is in no group
    mr_comm *part, *none;
    int color = c->rank == 5 ? -1 : c->rank % 2;
    MR_TRY(mr_comm_split(c->world, color, -c->rank, 0, &part));
    MR_TRY(mr_comm_split(c->world, -1, 0, 0, &none));
    MR_TRY(expect(none == NULL, 1, "a group of no color"));
    if (c->rank == 5)
        return expect(part == NULL, 1, "a rank without a color");
    int32_t sum = c->rank;
    mr_status st = expect(mr_comm_size(part), c->rank % 2 ? 2 : 3, "size");
    if (st == MR_OK)
        st = expect(mr_comm_rank(part), ((c->rank % 2 ? 3 : 4) - c->rank) / 2, "rank");
    if (st == MR_OK)
        st = expect(mr_comm_world_rank(part, mr_comm_rank(part)), c->rank, "rank in the world");
    if (st == MR_OK)
        st = mr_comm_all_reduce(part, MR_COMM_SUM, MR_I32, &sum, 1);
    if (st == MR_OK)
        st = expect(sum, c->rank % 2 ? 4 : 6, "sum of the group");
    mr_comm_free(part);
    return st;
}

typedef struct lane {
    mr_comm *comm;
    mr_status st;
} lane;

static void *second_thread(void *arg)
{
    lane *b = arg;
    for (int i = 0; i < 50 && b->st == MR_OK; i++) {
        int64_t x = i;
        b->st = mr_comm_all_reduce(b->comm, MR_COMM_SUM, MR_I64, &x, 1);
        if (b->st == MR_OK && x != (int64_t)i * N)
            b->st = MR_E_FAIL;
    }
    return NULL;
}

static mr_status two_lanes(rank_case *c)
{
    lane b = {0};
    pthread_t thread;
    MR_TRY(mr_comm_split(c->world, 0, 0, 1, &b.comm));
    pthread_create(&thread, NULL, second_thread, &b);
    mr_status st = MR_OK;
    for (int i = 0; i < 50 && st == MR_OK; i++)
        st = mr_comm_barrier(c->world, 0);
    pthread_join(thread, NULL);
    mr_comm_free(b.comm);
    return st == MR_OK ? expect(b.st, MR_OK, "the other lane") : st;
}

static mr_status other_order(rank_case *c)
{
    mr_comm *pair[2] = {0};
    MR_TRY(mr_comm_split(c->world, 0, 0, 0, &pair[0]));
    mr_status st = mr_comm_split(c->world, 0, 0, 0, &pair[1]);
    for (int i = 0; i < 2 && st == MR_OK; i++)
        st = mr_comm_barrier(pair[c->rank == 1 ? 1 - i : i], 0);
    mr_comm_free(pair[0]), mr_comm_free(pair[1]);
    return st;
}

static void orders(void)
{
    rank_case *cases = ranks_run(3, other_order, NULL, NULL);
    int said = 0;
    for (int r = 0; r < 3; r++) {
        CHECK_INT(cases[r].st, MR_E_NODE);
        said += strstr(cases[r].text, "barrier 0 of another group, this rank, ") != NULL;
    }
    CHECK(said > 0);
    free(cases);
}

static mr_status nothing(rank_case *c)
{
    (void)c;
    return MR_OK;
}

static void programs(void)
{
    mr_comm_options options[4];
    for (int r = 0; r < 4; r++)
        options[r] = (mr_comm_options){.deadline_s = 120, .program = r == 2 ? 8 : 7};
    rank_case *cases = ranks_run(4, nothing, NULL, options);
    for (int r = 0; r < 4; r++) {
        CHECK_INT(cases[r].st, MR_E_NODE);
        // each rank has detected it or was notified
        CHECK(strstr(cases[r].text, "rank 2 runs another program than rank 0") != NULL);
    }
    free(cases);
}

static void wrong_lane(void)
{
    mr_comm *c, *part;
    CHECK_OK(mr_comm_world(NULL, NULL, &c));
    CHECK_FAILS(mr_comm_split(c, 0, 0, MR_TRANSPORT_LANES, &part), MR_E_USAGE,
                "lane is 2; expected 0 to 1");
    CHECK_OK(mr_comm_split(c, 0, 0, 0, &part));
    // a group outlives its world, and reports so
    mr_comm_free(c);
    CHECK_FAILS(mr_comm_barrier(part, 0), MR_E_USAGE,
                "the world of ranks has ended: it was closed");
    mr_comm_free(part);
}

int main(void)
{
    for (rank_host = 2; rank_host >= 0; rank_host--) {
        ranks_succeed(N, splits, NULL);
        ranks_succeed(N, two_lanes, NULL);
    }
    rank_host = 0;
    orders();
    programs();
    wrong_lane();
    return check_done();
}
