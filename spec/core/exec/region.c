/* exec/region: regions of an optimizer: whole or a range, of any dtype, several weights to one
 * element; a master that needs no memory of its own has none.
 * Covers: core/exec/region.c core/exec/exec.c core/exec/held.c */
#include "execcase.h"

/* state of another optimizer: the second half of the weights, moments in bytes with a scale for
 * every 64 */
static const mr_region half[] = {
    {.name = "grad", .dtype = MR_F32},
    {.name = "exact", .dtype = MR_F32, .role = MR_ROLE_MASTER, .start = 64, .stop = 128},
    {.name = "average", .dtype = MR_F32, .role = MR_ROLE_AVERAGE, .start = 66, .stop = 128},
    {.name = "bytes", .dtype = MR_U8, .prefix = "bytes.", .start = 64, .stop = 128},
    {.name = "scales", .dtype = MR_F32, .prefix = "scales.", .start = 64, .stop = 128, .per = 64}};

static void rows(void)
{
    model m = model_of(MR_BF16); // b at 0, w at 64 of 128 elements
    mr_region r[MR_COUNT(half) + 2];
    OK(mr_regions(m.params, half, MR_COUNT(half), r));
    CHECK_STR(r[0].name, "w");
    CHECK_STR(r[1].name, "frozen");
    CHECK_INT(mr_region_bytes(&r[0]), 256);
    CHECK_INT(mr_region_bytes(&r[1]), 128);
    static const size_t bytes[] = {512, 256, 248, 64, 4};
    for (size_t i = 0; i < MR_COUNT(half); i++) {
        CHECK_STR(r[i + 2].name, half[i].name);
        CHECK_INT(mr_region_bytes(&r[i + 2]), bytes[i]);
        CHECK(!r[i + 2].shared);
    }

    // where parameters are in them
    const mr_param *b = mr_params_at(m.params, m.b), *w = mr_params_at(m.params, m.w),
                   *f = mr_params_at(m.params, m.frozen);
    int64_t at, count;
    OK(mr_region_find(&r[2], w, &at, &count));
    CHECK(at == 64 && count == 8);
    OK(mr_region_find(&r[5], w, &at, &count));
    CHECK(at == 0 && count == 8);
    OK(mr_region_find(&r[6], w, &at, &count));
    CHECK(at == 0 && count == 1);
    CHECK_FAILS(mr_region_find(&r[5], b, &at, &count), MR_E_RANGE,
                "'b' has elements 0 to 5, region 'bytes' those from 64 to 128");
    CHECK_FAILS(mr_region_find(&r[4], w, &at, &count), MR_E_RANGE, "those from 66");
    CHECK_FAILS(mr_region_find(&r[0], f, &at, &count), MR_E_USAGE, "'f' is frozen: it has no w");
    CHECK_FAILS(mr_region_find(&r[1], w, &at, &count), MR_E_USAGE, "is trained");
    OK(mr_region_find(&r[1], f, &at, &count));
    CHECK(at == 0 && count == 8);
    mr_params_free(m.params);
}

static void shared(void)
{
    mr_region r[7];
    model m = model_of(MR_F32);
    OK(mr_regions(m.params, adam_rows, MR_COUNT(adam_rows), r));
    for (int i = 0; i < 7; i++)
        CHECK(r[i].shared == (strcmp(r[i].name, "master") == 0));
    // a part of the weights is not the weights
    OK(mr_regions(m.params, half, MR_COUNT(half), r));
    CHECK(!r[3].shared);
    // a region that is "w" is at its place, whatever was requested
    mr_region pinned = {
        .name = "m", .dtype = MR_F32, .role = MR_ROLE_MASTER, .space = MR_SPACE_PINNED};
    OK(mr_regions(m.params, &pinned, 1, r));
    CHECK(r[2].shared && r[2].space == MR_SPACE_DEVICE);
    mr_params_free(m.params);
    m = model_of(MR_BF16);
    OK(mr_regions(m.params, &pinned, 1, r));
    CHECK(!r[2].shared && r[2].space == MR_SPACE_PINNED);
    OK(mr_regions(m.params, adam_rows, MR_COUNT(adam_rows), r));
    CHECK(!r[3].shared);
    mr_params_free(m.params);
}

static void refused(void)
{
    static const struct {
        mr_region row;
        mr_status code;
        const char *text;
    } bad[] = {
        {{.name = "w", .dtype = MR_F32}, MR_E_USAGE, "region 'w' exists already"},
        {{.name = "m", .dtype = MR_BF16, .role = MR_ROLE_MASTER}, MR_E_USAGE, "and is bf16"},
        {{.name = "m", .dtype = MR_F32, .role = MR_ROLE_AVERAGE, .per = 2},
         MR_E_USAGE,
         "per 2 weights"},
        {{.name = "m", .dtype = MR_F32, .start = 1, .stop = 129}, MR_E_RANGE, "1 to 129"},
        {{.name = "m", .dtype = MR_F32, .start = 65, .stop = 64}, MR_E_RANGE, "65 to 64"},
        {{.name = "m", .dtype = MR_F32, .start = -1, .stop = 64}, MR_E_RANGE, "-1 to 64"},
        {{.name = "m", .dtype = MR_F32, .start = 8, .stop = 64, .per = 16}, MR_E_RANGE, "for 16"},
        {{.name = "m", .dtype = MR_F32, .start = 0, .stop = 72, .per = 16}, MR_E_RANGE, "for 16"},
        {{.name = "m", .dtype = MR_F32, .per = -1}, MR_E_USAGE, "per -1 weights"},
        {{.name = "m", .dtype = MR_F32, .per = 48}, MR_E_USAGE, "expected a divisor of 64"},
        {{.name = "m", .dtype = MR_F32, .per = 128}, MR_E_USAGE, "per 128 weights"},
        {{.name = "g", .dtype = MR_F32, .transient = true, .prefix = "g."},
         MR_E_USAGE,
         "'g' is transient"},
        {{.name = "g", .dtype = MR_F32, .transient = true, .space = MR_SPACE_PINNED},
         MR_E_USAGE,
         "state on the device"},
        {{.name = "g", .dtype = MR_F32, .transient = true, .role = MR_ROLE_MASTER},
         MR_E_USAGE,
         "expected state on the device"},
    };
    model m = model_of(MR_F32);
    mr_region out[3];
    for (size_t i = 0; i < MR_COUNT(bad); i++)
        CHECK_FAILS(mr_regions(m.params, &bad[i].row, 1, out), bad[i].code, bad[i].text);
    mr_params_free(m.params);
}

/* A region in host memory: read, written and visible there, also to graphs that know it. */
static void in_host_memory(mr_device *dev)
{
    model m = model_of(MR_BF16);
    mr_exec *e = NULL;
    mr_region row = {
        .name = "m", .dtype = MR_F32, .role = MR_ROLE_MASTER, .space = MR_SPACE_PINNED};
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.regions = &row, .n_regions = 1}, &e));
    OK(mr_exec_init_params(e, 3));
    float seen[4], six = 6;
    int64_t n = 4;
    for (int right = 0; right < 2; right++) {
        mr_graph *g = NULL;
        mr_program *p = NULL;
        mr_ref here, there, twice, put;
        OK(mr_graph_new(m.params, NULL, &g));
        OK(mr_graph_region(g, "m", right ? MR_SPACE_PINNED : MR_SPACE_DEVICE, MR_F32, 64, 1, &n,
                           &there));
        here = there;
        if (right) {
            OK(mr_graph_move(g, there, MR_SPACE_DEVICE, MR_NONE, &here));
            CHECK_FAILS(mr_graph_put(g, here, here, &put), MR_E_USAGE, "is not in a region");
            CHECK_FAILS(mr_graph_put(g, there, there, &put), MR_E_USAGE, "own memory");
            OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){here, here}, 2, &twice));
            mr_ref two;
            OK(mr_graph_slice(g, twice, 0, 0, 2, &two));
            CHECK_FAILS(mr_graph_put(g, two, there, &put), MR_E_SHAPE, "the value is [2] f32");
            OK(mr_graph_put(g, twice, there, &put));
        } else {
            OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){here, here}, 2, &twice));
            OK(mr_graph_output(g, "y", twice));
        }
        OK(mr_graph_finish(g));
        if (right) {
            OK(mr_exec_compile(e, g, &p));
            OK(mr_program_run(p));
            CHECK_INT(mr_program_memory(p).offloaded, 512);
            CHECK_INT(mr_program_memory(p).state, 0);
            mr_program_free(p);
        } else {
            CHECK_FAILS(mr_exec_compile(e, g, &p), MR_E_USAGE, "has it in host memory");
        }
        mr_graph_free(g);
    }
    OK(mr_exec_sync(e));
    const float *host = mr_exec_host(e, "m");
    CHECK(host[64] == 2 && host[67] == 8 && host[68] == 5);
    OK(mr_exec_write(e, "m", 64 * 4, &six, 4));
    OK(mr_exec_read(e, "m", 64 * 4, seen, sizeof seen));
    CHECK(seen[0] == 6 && seen[1] == 4 && seen[3] == 8);
    mr_exec_free(e);
    mr_params_free(m.params);
}

/* grad += x; of the loss sum(w * w) the fresh gradients; or none of either: y = exp(x) of n */
static mr_graph *of_grad(const model *m, bool fresh, int64_t n)
{
    mr_graph *g = NULL;
    mr_ref x, y;
    OK(mr_graph_new(m->params, &(mr_graph_options){.fresh_gradients = fresh}, &g));
    if (fresh) {
        mr_ints axis = {1, {0}};
        OK(mr_graph_param(g, m->w, &x));
        OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, x}, 2, &y));
        OK(mr_graph_add(g, "sum", MR_ATTRS({"axes", .ints = &axis}), &y, 1, &y));
        OK(mr_graph_output(g, "loss", y));
        OK(mr_graph_backward(g, y, NULL, 0, NULL));
    } else {
        OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
        if (n == 8) {
            OK(mr_graph_region(g, "grad", MR_SPACE_DEVICE, MR_F32, 64, 1, &n, &y));
            OK(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){y, x}, 2, &y));
        } else {
            OK(mr_graph_add(g, "exp", MR_NO_ATTRS, &x, 1, &y));
            OK(mr_graph_output(g, "y", y));
        }
    }
    OK(mr_graph_finish(g));
    return g;
}

static mr_program *program_of(mr_exec *e, const mr_graph *g)
{
    float zeros[4096] = {0};
    mr_program *p = NULL;
    OK(mr_exec_compile(e, g, &p));
    mr_ref x = mr_graph_input_find(g, "x");
    if (x != MR_NONE)
        OK(mr_program_set(p, "x", &(mr_view){zeros, mr_graph_value(g, x)->desc}));
    return p;
}

/* A transient region holds the result of a run until another one takes its place, and reports this
 * then. */
static void in_the_arena(mr_device *dev, bool poison)
{
    model m = model_of(MR_F32);
    mr_exec *e = NULL;
    mr_region rows[] = {{.name = "grad", .dtype = MR_F32, .transient = true},
                        {.name = "more", .dtype = MR_F32, .transient = true}};
    CHECK_FAILS(mr_exec_new(dev, m.params, &(mr_exec_options){.regions = rows, .n_regions = 2}, &e),
                MR_E_USAGE, "'grad' and 'more' are transient");
    OK(mr_exec_new(dev, m.params,
                   &(mr_exec_options){.regions = rows, .n_regions = 1, .poison = poison}, &e));
    OK(mr_exec_init_params(e, 3));
    float grad[128];
    OK(mr_exec_read(e, "grad", 0, grad, sizeof grad)); // cleared at the beginning
    CHECK(grad[0] == 0 && grad[127] == 0);
    mr_graph *fresh = of_grad(&m, true, 0), *adds = of_grad(&m, false, 8),
             *small = of_grad(&m, false, 16), *large = of_grad(&m, false, 4096);
    mr_program *makes = program_of(e, fresh), *goes_on = program_of(e, adds),
               *others = program_of(e, small);
    CHECK_INT(mr_program_memory(makes).state, 0);
    CHECK(mr_program_memory(makes).arena >= sizeof grad);
    OK(mr_program_run(goes_on)); // from zeros
    for (int i = 0; i < 3; i++) {
        OK(mr_program_run(makes));
        OK(mr_program_run(goes_on));
        OK(mr_exec_read(e, "grad", 0, grad, sizeof grad));
        CHECK(grad[64] == 2 && grad[71] == 16 && grad[0] == 0 && grad[72] == 0);
        OK(mr_exec_write(e, "grad", 0, grad, sizeof grad));
        if (i == 0)
            OK(mr_program_run(others));
        else if (i == 1)
            CHECK(program_of(e, large)); // the arena grows
        else
            continue;
        CHECK_FAILS(mr_program_run(goes_on), MR_E_USAGE, "has overwritten it");
        CHECK_FAILS(mr_exec_read(e, "grad", 0, grad, 4), MR_E_USAGE, "'grad' is in the arena");
        CHECK_FAILS(mr_exec_write(e, "grad", 0, grad, 4), MR_E_USAGE, "compile all programs first");
    }
    mr_exec_free(e);
    mr_graph_free(fresh), mr_graph_free(adds), mr_graph_free(small), mr_graph_free(large);
    mr_params_free(m.params);
}

/* Values and masters of a part of the weights. */
static void ranges(mr_device *dev)
{
    model m = model_of(MR_BF16);
    mr_exec *e = NULL;
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.regions = half, .n_regions = MR_COUNT(half)},
                   &e));
    OK(mr_exec_init_params(e, 3));
    float exact[8], average[8], near_three = 3.0f + 1.0f / 512;
    uint16_t w[69];
    OK(mr_exec_read(e, "exact", 0, exact, sizeof exact));
    OK(mr_exec_read(e, "average", 0, average, sizeof average));
    CHECK(exact[0] == 1 && exact[7] == 8 && average[0] == 3 && average[5] == 8 && average[6] == 0);
    uint8_t scale[4];
    OK(mr_exec_read(e, "scales", 0, scale, 4));
    CHECK(scale[0] == 0 && scale[3] == 0);
    CHECK_FAILS(mr_exec_read(e, "scales", 1, scale, 4), MR_E_RANGE, "'scales' has 4 bytes");
    // w follows a master, and stays unchanged without one
    OK(mr_exec_write(e, "exact", 4, &near_three, 4));
    OK(mr_exec_refresh(e));
    OK(mr_exec_read(e, "w", 0, w, sizeof w));
    CHECK(mr_bf16_to_f32(w[0]) == 1 && mr_bf16_to_f32(w[4]) == 1);
    CHECK(mr_bf16_to_f32(w[64]) == 1 && w[65] == mr_f32_to_bf16(near_three));
    CHECK(mr_bf16_to_f32(w[68]) == 5);
    mr_exec_free(e);
    // a refused region leaves nothing
    mr_region twice[] = {half[0], half[0]};
    CHECK_FAILS(
        mr_exec_new(dev, m.params, &(mr_exec_options){.regions = twice, .n_regions = 2}, &e),
        MR_E_USAGE, "'grad' exists already");
    mr_params_free(m.params);
}

int main(void)
{
    rows();
    shared();
    refused();
    mr_device *both[2];
    open_both(both);
    for (int i = 0; i < 2; i++) {
        in_host_memory(both[i]);
        in_the_arena(both[i], false);
        in_the_arena(both[i], true);
        ranges(both[i]);
        mr_device_close(both[i]);
    }
    return check_done();
}
