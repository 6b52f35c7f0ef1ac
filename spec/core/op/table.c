/* op/table: ops by name, nearest names, attributes with defaults, limits and errors.
 * Covers: core/cpu/op_table.c */
#include "check.h"
#include "moonreel/op.h"

static void names(void)
{
    CHECK(mr_op_count() > 40);
    for (int i = 1; i < mr_op_count(); i++)
        CHECK(strcmp(mr_op_at(i - 1)->name, mr_op_at(i)->name) < 0);
    for (int i = 0; i < mr_op_count(); i++)
        CHECK(mr_op_find(mr_op_at(i)->name) == mr_op_at(i));
    CHECK(mr_op_find("no_such_op") == NULL);
    CHECK(mr_op_at(-1) == NULL);
    CHECK(mr_op_at(mr_op_count()) == NULL);
    CHECK_STR(mr_op_nearest("rms_nrom"), "rms_norm");
    CHECK_STR(mr_op_nearest("gelu"), "silu");
    // hidden ops are not proposed
    CHECK(strcmp(mr_op_nearest("silu_grad"), "silu_grad") != 0);
    CHECK_INT(mr_op_n_in(mr_op_find("linear")), 3);
    CHECK_INT(mr_op_n_out(mr_op_find("attention")), 2);
}

static void attributes(void)
{
    _Alignas(16) unsigned char dst[MR_ATTR_BYTES];
    const mr_op *affine = mr_op_find("affine"), *cast = mr_op_find("cast"),
                *sum = mr_op_find("sum"), *add = mr_op_find("add");
    double x[2];
    CHECK_OK(mr_op_attrs(affine, MR_ATTRS({"shift", .f = 0.5}), dst));
    memcpy(x, dst, sizeof x);
    CHECK_NEAR(x[0], 1, 0);
    CHECK_NEAR(x[1], 0.5, 0);
    CHECK_FAILS(mr_op_attrs(affine, MR_ATTRS({"scal", .f = 1}), dst), MR_E_USAGE,
                "did you mean 'scale'");
    CHECK_FAILS(mr_op_attrs(add, MR_ATTRS({"scale", .f = 1}), dst), MR_E_USAGE,
                "takes no attributes");
    CHECK_FAILS(mr_op_attrs(cast, MR_NO_ATTRS, dst), MR_E_USAGE, "'dtype' is missing");
    CHECK_FAILS(mr_op_attrs(cast, MR_ATTRS({"dtype", .i = 99}), dst), MR_E_USAGE,
                "'dtype' is 99, expected 0 to 8");
    mr_ints many = {.n = MR_MAX_RANK + 1};
    CHECK_FAILS(mr_op_attrs(sum, MR_ATTRS({"axes", .ints = &many}), dst), MR_E_USAGE,
                "expected at most 8");
}

static void instruction_sets(void)
{
    CHECK(mr_isa() >= 0);
    CHECK(mr_isa() <= 2);
    CHECK_STR(mr_isa_name(1), "avx2");
    CHECK_STR(mr_isa_name(7), "?");
    const mr_op *op = mr_op_find("silu");
    CHECK(mr_kernel_run(&op->cpu, 0) == op->cpu.run[0]);
    CHECK(mr_kernel_run(&op->cpu, 2) == op->cpu.run[2]);
    CHECK(op->cpu.run[0] != op->cpu.run[2]);
}

static mr_status by_hand(const mr_call *call)
{
    (void)call;
    return MR_OK;
}

static void devices(void)
{
    static const mr_kernel own = {.run = {by_hand}}, empty = {.run = {NULL}};
    const mr_op *silu = mr_op_find("silu"), *add = mr_op_find("add");
    CHECK(mr_op_kernel(silu, "cpu") == &silu->cpu);
    CHECK(mr_op_kernel(silu, "shadow") == &silu->cpu);
    CHECK(mr_op_kernel(silu, "cuda") == NULL);
    CHECK_OK(mr_op_add_kernel("cuda", "silu", &own));
    CHECK(mr_op_kernel(silu, "cuda") == &own);
    CHECK(mr_op_kernel(silu, "cpu") == &silu->cpu);
    CHECK(mr_op_kernel(add, "cuda") == NULL);
    CHECK(mr_kernel_run(&own, -1) == by_hand);
    CHECK(mr_kernel_run(&own, 2) == by_hand);
    CHECK(mr_kernel_run(&empty, 2) == NULL);
    CHECK_FAILS(mr_op_add_kernel("cuda", "silu", &own), MR_E_USAGE,
                "device 'cuda' already has kernels for op 'silu'");
    CHECK_FAILS(mr_op_add_kernel("cuda", "slu", &own), MR_E_USAGE, "did you mean 'silu'");
    CHECK_FAILS(mr_op_add_kernel("cuda", "add", &empty), MR_E_USAGE, "has no function");
}

static void costs(void)
{
    mr_call call = {.n_in = 2, .n_out = 1};
    call.in[0].desc = call.in[1].desc = call.out[0].desc =
        mr_desc_dense(MR_F32, 2, (int64_t[]){3, 5});
    mr_cost cost = mr_op_cost(mr_op_find("add"), &call);
    CHECK_NEAR(cost.flop, 15, 0);
    CHECK_NEAR(cost.bytes, 180, 0);
    // a repeated dimension moves once
    call.in[1].desc.stride[0] = 0;
    CHECK_NEAR(mr_op_cost(mr_op_find("add"), &call).bytes, 140, 0);
}

int main(void)
{
    names();
    attributes();
    instruction_sets();
    devices();
    costs();
    return check_done();
}
