/* op/ranks: ops that were made for another number of ranks than their group has are refused before
 * anything is packed or sent.
 * Covers: core/op/exchange.c core/op/over_ranks.c core/cpu/collective.c */
#include "groupcase.h"
#include "opcase.h"

static mr_status run(const char *name, const char *text, int64_t group)
{
    const mr_op *op = mr_op_find(name);
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES] = {0};
    float x[16] = {0}, y[64];
    op_case c;
    CHECK(case_parse(op, text, &c));
    c.attr[c.n_attr++] = (mr_attr){"group", .i = group};
    CHECK_OK(mr_op_attrs(op, c.attr, c.n_attr, attr));
    mr_infer ctx = {.in = {&c.in[0].desc}, .n_in = 1, .attr = attr};
    CHECK_OK(op->infer(&ctx));
    mr_call call = {.n_in = 1, .n_out = 1, .attr = attr, .threads = 1};
    call.in[0] = (mr_view){x, c.in[0].desc};
    call.out[0] = (mr_view){y, ctx.out[0]};
    return mr_kernel_run(&op->cpu, mr_isa())(&call);
}

int main(void)
{
    group_case here = {0};
    const int64_t number = group_case_add(&here, 0, 2, 5);
    static const char *const of[][2] = {
        {"all_to_all", "x=[2,4] f32 ranks=3 at=0 split=1 length=6"},
        {"all_to_all", "x=[2,4] f32 ranks=2 at=1 split=1 length=4"},
        {"all_to_all", "x=[2,4] f32 ranks=1 at=0 split=1 length=2"},
        {"gather_shares", "x=[2,4] f32 ranks=3 at=0 length=6"},
        {"gather_shares", "x=[2,4] f32 ranks=2 at=1 length=4"},
        {"gather_shares", "x=[2,4] f32 ranks=1 at=0 length=2"},
        {"gather", "x=[4] f32 ranks=3 at=0"},
        {"gather", "x=[4] f32 ranks=2 at=1"},
        {"gather", "x=[4] f32 ranks=1 at=0"},
    };
    for (size_t i = 0; i < MR_COUNT(of); i++)
        if (!CHECK_FAILS(run(of[i][0], of[i][1], number), MR_E_USAGE,
                         "; expected 2 and 0, as in group"))
            printf("%s \"%s\"\n", of[i][0], of[i][1]);
    // its own ranks are queried
    CHECK_FAILS(run("gather", "x=[4] f32 ranks=2 at=0", number), MR_E_UNSUPPORTED, "no rank is");
    mr_collective_remove(number);
    CHECK_FAILS(run("gather", "x=[4] f32 ranks=2 at=0", number), MR_E_USAGE,
                "does not exist or was removed");
    return check_done();
}
