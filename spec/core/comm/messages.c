/* comm/messages: when ranks disagree, the error names the rank and both calls; no rank waits past
 * the deadline, and after a failed call the world is over for all ranks.
 * Covers: core/comm/plugin.c */
#include "rankcase.h"

#include <stdatomic.h>

enum { N = 3 };

// each spec says what rank 1 does in place of the others' call
typedef struct odd {
    mr_status (*others)(mr_comm *c);
    mr_status (*one)(mr_comm *c);
} odd;

static mr_status differ(rank_case *c)
{
    const odd *o = c->user;
    return c->rank == 1 ? o->one(c->world) : o->others(c->world);
}

static mr_status gathers(mr_comm *c)
{
    float x = 1, all[N];
    const int64_t counts[N] = {1, 1, 1};
    return mr_comm_all_gather(c, MR_F32, &x, counts, all);
}
static mr_status reduces(mr_comm *c)
{
    float x[3] = {0};
    return mr_comm_all_reduce(c, MR_COMM_SUM, MR_F32, x, 3);
}
static mr_status reduces_doubles(mr_comm *c)
{
    double x[3] = {0};
    return mr_comm_all_reduce(c, MR_COMM_SUM, MR_F64, x, 3);
}
// as many bytes as of f32
static mr_status reduces_numbers(mr_comm *c)
{
    int32_t x[3] = {0};
    return mr_comm_all_reduce(c, MR_COMM_SUM, MR_I32, x, 3);
}
static mr_status reduces_more(mr_comm *c)
{
    float x[4] = {0};
    return mr_comm_all_reduce(c, MR_COMM_SUM, MR_F32, x, 4);
}
static mr_status largest(mr_comm *c)
{
    float x[3] = {0};
    return mr_comm_all_reduce(c, MR_COMM_MAX, MR_F32, x, 3);
}
static mr_status skips(mr_comm *c)
{
    MR_TRY(reduces(c));
    return gathers(c);
}
static mr_status does_both(mr_comm *c)
{
    MR_TRY(gathers(c));
    MR_TRY(reduces(c));
    return gathers(c);
}
static mr_status leaves(mr_comm *c)
{
    (void)c;
    return MR_OK;
}
static mr_status gives_little(mr_comm *c)
{
    uint8_t in[N] = {0}, out[N];
    const int64_t ones[N] = {1, 1, 1};
    return mr_comm_all_to_all(c, MR_U8, in, ones, out, ones);
}
static mr_status wants_more(mr_comm *c)
{
    uint8_t in[N] = {0}, out[2 * N];
    const int64_t ones[N] = {1, 1, 1}, more[N] = {2, 1, 1};
    return mr_comm_all_to_all(c, MR_U8, in, ones, out, more);
}

// three elements in all, of which the ranks asked for have none
static mr_status gathers_from_one(mr_comm *c)
{
    float all[3];
    const int64_t counts[N] = {0, 3, 0};
    return mr_comm_all_gather(c, MR_F32, NULL, counts, all);
}
static mr_status gathers_from_another(mr_comm *c)
{
    float all[3];
    const int64_t counts[N] = {3, 0, 0};
    return mr_comm_all_gather(c, MR_F32, NULL, counts, all);
}
static mr_status shares_for_one(mr_comm *c)
{
    float x[3] = {0}, own[3];
    const int64_t counts[N] = {0, 3, 0};
    return mr_comm_reduce_scatter(c, MR_COMM_SUM, MR_F32, x, counts, MR_F32, own);
}
static mr_status shares_for_another(mr_comm *c)
{
    float x[3] = {0}, own[3];
    const int64_t counts[N] = {3, 0, 0};
    return mr_comm_reduce_scatter(c, MR_COMM_SUM, MR_F32, x, counts, MR_F32, own);
}

/* At least `least` ranks fail; one of their errors contains `part`. */
static void fail(odd o, int least, bool check, mr_status code, const char *part)
{
    mr_comm_options options[N] = {{.deadline_s = 120, .check = check},
                                  {.deadline_s = 120, .check = check},
                                  {.deadline_s = 120, .check = check}};
    rank_case *cases = ranks_run(N, differ, &o, options);
    int failed = 0, said = 0;
    for (int r = 0; r < N; r++) {
        failed += cases[r].st != MR_OK;
        said += strstr(cases[r].text, part) && cases[r].st == code;
    }
    CHECK(failed >= least);
    if (!CHECK(said > 0))
        printf("expected %s; got '%s', '%s', '%s'\n", part, cases[0].text, cases[1].text,
               cases[2].text);
    free(cases);
}

static void disagreements(void)
{
    // reported by the ranks that meet, and by name when calls are compared before they are made
    fail((odd){reduces, gathers}, 3, false, MR_E_NODE, "rank 1 is at all_gather 0 (3 f32)");
    fail((odd){reduces, gathers}, 3, true, MR_E_NODE,
         "rank 1 makes the call all_gather 0 (3 f32), while rank 0 and most others make all_reduce "
         "0 (3 f32)");
    fail((odd){does_both, skips}, 3, true, MR_E_NODE,
         "rank 1 makes the call all_reduce 0 (3 f32), while rank 0");
    fail((odd){does_both, skips}, 3, false, MR_E_NODE, "is at all_reduce 0");
    fail((odd){reduces, reduces_doubles}, 3, false, MR_E_SHAPE,
         "rank 1 calls all_reduce 0 (3 f64)");
    fail((odd){reduces, reduces_numbers}, 3, false, MR_E_SHAPE,
         "rank 1 calls all_reduce 0 (3 i32)");
    fail((odd){reduces, reduces_more}, 3, false, MR_E_SHAPE, "rank 1 calls all_reduce 0 (4 f32)");
    fail((odd){reduces, largest}, 3, false, MR_E_NODE, "is at all_reduce 0 max (3 f32)");
    fail((odd){gives_little, wants_more}, 1, false, MR_E_SHAPE,
         "rank 0 sends 1 bytes to this rank, 1, which expects 2");
    // ranks with nothing to send report so, and no rank waits for them
    fail((odd){gathers_from_one, gathers_from_another}, 3, false, MR_E_SHAPE,
         "sends 0 bytes to this rank, 0, which expects 12");
    fail((odd){shares_for_one, shares_for_another}, 1, false, MR_E_SHAPE,
         "sends 12 bytes to this rank, 1, which expects 0");
    fail((odd){reduces, leaves}, 2, false, MR_E_NODE, "rank 1 has left the world");
}

static mr_status never_comes(rank_case *c)
{
    // rank 1 stays until the others have given up, without a call
    atomic_int *gone = c->user;
    if (c->rank == 1) {
        while (atomic_load(gone) < 2)
            mr_clock_table()->sleep_ns(1000000);
        float x[3] = {0};
        return mr_comm_all_reduce(c->world, MR_COMM_SUM, MR_F32, x, 3);
    }
    float x[3] = {0};
    mr_status st = mr_comm_barrier(c->world, 0.05);
    char text[1024];
    snprintf(text, sizeof text, "%s", mr_error_last()->text);
    atomic_fetch_add(gone, 1);
    // the world is over for this rank, at once and with the reason
    if (st != MR_E_NODE || mr_comm_all_reduce(c->world, MR_COMM_SUM, MR_F32, x, 3) != MR_E_NODE ||
        !strstr(mr_error_last()->text, "the world of ranks has ended: barrier 0: "))
        return mr_fail(MR_E_FAIL, "the world goes on: %s", mr_error_last()->text);
    return mr_fail(st, "%s", text);
}

static void deadlines(void)
{
    atomic_int gone = 0;
    rank_case *cases = ranks_run(N, never_comes, &gone, NULL);
    const char *first =
        strstr(cases[0].text, "received nothing from rank") ? cases[0].text : cases[2].text;
    CHECK(strstr(first, "barrier 0: received nothing from rank 1") != NULL ||
          strstr(first, "barrier 0: received nothing from rank 2") != NULL);
    CHECK(strstr(first, " in 0.05 s") != NULL);
    CHECK_INT(cases[1].st, MR_E_NODE);
    free(cases);
}

static void no_plugin(void)
{
    mr_transport *transport;
    CHECK(mr_mpi_transport(0, 2, 1, &transport) == MR_E_UNSUPPORTED || !transport);
    CHECK(transport == NULL);
}

int main(void)
{
    for (rank_host = 2; rank_host >= 0; rank_host--) {
        disagreements();
        deadlines();
    }
    rank_host = 0;
    no_plugin();
    CHECK_STR(mr_comm_op_name(MR_COMM_ALL_TO_ALL), "all_to_all");
    CHECK_STR(mr_comm_op_name(MR_COMM_OP_COUNT), "?");
    return check_done();
}
