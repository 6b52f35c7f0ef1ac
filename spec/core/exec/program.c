/* exec/program: random graphs give the same bits with and without in-place and reuse, poisoned or not,
 * on both devices and again; the measured peak is the predicted one; runs allocate nothing; packed
 * weights follow their weights; memory that runs out leaves everything usable. */
#include "specops.h"
#include "check.h"
#include <stdlib.h>

static uint64_t state;
static int draw(int below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

enum { ROWS = 6, COLS = 40, OPS = 60 };
#define OK(call) CHECK_OK(call)

/* ---- a random graph: two inputs, elementwise rows, slices and joins, four outputs ------------------- */

static mr_graph *random_graph(uint64_t seed, bool no_inplace)
{
    state = seed;
    mr_graph *g = NULL;
    mr_ref pool[OPS + 2];
    int n = 2;
    OK(mr_graph_new(NULL, &(mr_graph_options){.no_inplace = no_inplace}, &g));
    OK(mr_graph_input(g, "x", MR_F32, 2, (int64_t[]){ROWS, COLS}, &pool[0]));
    OK(mr_graph_input(g, "z", MR_F32, 2, (int64_t[]){ROWS, COLS}, &pool[1]));
    while (n < OPS + 2) {
        // recent values mostly, so that lifetimes differ
        mr_ref a = pool[draw(3) ? n - 1 : draw(n)], b = pool[draw(n)], y = MR_NONE, parts[2];
        int at = 1 + draw(ROWS - 1);
        mr_graph_set_origin(g, n % 2 ? "odd.lua:1" : "even.lua:2");
        switch (draw(6)) {
        case 0: OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){a, b}, 2, &y)); break;
        case 1: OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &a, 1, &y)); break;
        case 2: OK(mr_graph_add(g, "affine", MR_ATTRS({"scale", .f = 0.5}, {"shift", .f = 0.125}), &a, 1, &y)); break;
        case 3: OK(mr_graph_add(g, "spec_blend", MR_ATTRS({"k", .f = -0.25}), (mr_ref[]){a, b}, 2, &y)); break;
        case 4:  // rows of a over rows of b
            OK(mr_graph_slice(g, a, 0, 0, at, &parts[0]));
            OK(mr_graph_slice(g, b, 0, at, ROWS, &parts[1]));
            OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &parts[0], 1, &parts[0]));
            OK(mr_graph_concat(g, parts, 2, 0, &y));
            break;
        default:  // columns, so that parts are strided
            OK(mr_graph_slice(g, b, 1, 0, 8, &parts[0]));
            OK(mr_graph_slice(g, a, 1, 8, COLS, &parts[1]));
            OK(mr_graph_add(g, "affine", MR_ATTRS({"scale", .f = -0.5}), &parts[1], 1, &parts[1]));
            OK(mr_graph_concat(g, parts, 2, 1, &y));
        }
        pool[n++] = y;
    }
    mr_ref corner;
    OK(mr_graph_slice(g, pool[n - 2], 1, 3, 9, &corner));
    OK(mr_graph_output(g, "last", pool[n - 1]));
    OK(mr_graph_output(g, "corner", corner));
    OK(mr_graph_output(g, "middle", pool[n / 2]));
    OK(mr_graph_output(g, "early", pool[4]));
    OK(mr_graph_finish(g));
    return g;
}

static const char *const names[] = {"last", "corner", "middle", "early"};
typedef struct answer { float v[4][ROWS * COLS]; } answer;

static mr_view view_of(float *data, int cols) { return (mr_view){data, mr_desc_dense(MR_F32, 2, (int64_t[]){ROWS, cols})}; }

static void set_inputs(mr_program *p)
{
    float x[ROWS * COLS], z[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) x[i] = sinf((float)i), z[i] = cosf(3 * (float)i);
    mr_view vx = view_of(x, COLS), vz = view_of(z, COLS);
    OK(mr_program_set(p, "x", &vx));
    OK(mr_program_set(p, "z", &vz));
}

static void get_outputs(mr_program *p, answer *a)
{
    memset(a, 0, sizeof *a);
    for (int i = 0; i < 4; i++) {
        mr_view v = view_of(a->v[i], i == 1 ? 6 : COLS);
        OK(mr_program_get(p, names[i], &v));
    }
}

static size_t above, checked;

static void solve(mr_device *dev, uint64_t seed, bool no_inplace, const mr_exec_options *options, answer *out)
{
    mr_graph *g = random_graph(seed, no_inplace);
    mr_exec *e = NULL;
    mr_program *p = NULL;
    OK(mr_exec_new(dev, NULL, options, &e));
    OK(mr_exec_compile(e, g, &p));
    set_inputs(p);
    answer again;
    OK(mr_program_run(p));
    get_outputs(p, out);
    int64_t before = mr_alloc_count();
    set_inputs(p);
    OK(mr_program_run(p));
    get_outputs(p, &again);
    if (!dev->checks) CHECK_INT(mr_alloc_count() - before, 0);
    CHECK(memcmp(out, &again, sizeof again) == 0);
    mr_memory m = mr_program_memory(p);
    CHECK(m.bound <= m.arena);
    if (!options->no_reuse) {
        CHECK((double)m.arena <= 1.05 * (double)m.bound);
        above += m.arena > m.bound, checked++;
    }
    if (options->poison) CHECK_INT((mr_program_measured(p) + 63) / 64 * 64, m.arena);
    mr_program_free(p);
    mr_exec_free(e);
    mr_graph_free(g);
}

static void same_bits(mr_device *cpu, mr_device *shadow, uint64_t seed)
{
    static const struct { bool no_inplace, no_reuse, poison, shadow; } ways[] = {
        {true, true, false, false}, {true, false, true, false}, {false, true, true, false}, {false, false, false, false},
        {false, false, true, false}, {false, false, false, true}, {false, false, true, true}, {true, false, false, true}};
    answer first, other;
    for (size_t i = 0; i < MR_COUNT(ways); i++) {
        mr_exec_options o = {.no_reuse = ways[i].no_reuse, .poison = ways[i].poison};
        solve(ways[i].shadow ? shadow : cpu, seed, ways[i].no_inplace, &o, i ? &other : &first);
        bool equal = !i || memcmp(&first, &other, sizeof first) == 0;
        CHECK(equal);
        if (!equal) printf("seed %llu, way %zu\n", (unsigned long long)seed, i);
    }
}

/* ---- results, arena, inputs ------------------------------------------------------------------------- */

/* y = blend(x, x) of n elements */
static mr_graph *small_graph(int64_t n, double k)
{
    mr_graph *g = NULL;
    mr_ref x, y;
    OK(mr_graph_new(NULL, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_input(g, "unread", MR_I32, 1, &n, &y));
    OK(mr_graph_add(g, "spec_blend", MR_ATTRS({"k", .f = k}), (mr_ref[]){x, x}, 2, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    return g;
}

static void sharing(mr_device *dev)
{
    mr_exec *e = NULL;
    mr_program *small = NULL, *large = NULL;
    mr_graph *gs = small_graph(4, 2), *gl = small_graph(100000, 3);
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_exec_compile(e, gs, &small));
    float x[4] = {1, 2, 3, 4}, y[4];
    double wide[4] = {5, 6, 7, 8};
    int64_t n = 4;
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)}, vw = {wide, mr_desc_dense(MR_F64, 1, &n)};
    CHECK_FAILS(mr_program_run(small), MR_E_USAGE, "input 'x' was never set");
    OK(mr_program_set(small, "x", &vx));
    OK(mr_program_run(small));
    // the arena moves when a larger program comes; the earlier one and its result stay
    OK(mr_exec_compile(e, gl, &large));
    float *big = calloc(100000, 4);
    mr_view vb = {big, mr_desc_dense(MR_F32, 1, (int64_t[]){100000})};
    for (int i = 0; i < 100000; i++) big[i] = 7;
    OK(mr_program_set(large, "x", &vb));
    OK(mr_program_run(large));
    OK(mr_program_get(small, "y", &vy));
    CHECK(y[0] == 3 && y[3] == 12);
    OK(mr_program_get(large, "y", &vb));
    CHECK(big[0] == 28 && big[99999] == 28);
    // other dtypes are converted both ways
    OK(mr_program_set(small, "x", &vw));
    OK(mr_program_run(small));
    OK(mr_program_get(small, "y", &vw));
    CHECK(wide[0] == 15 && wide[3] == 24);
    int64_t three = 3;
    mr_view bad = {x, mr_desc_dense(MR_F32, 1, &three)};
    CHECK_FAILS(mr_program_set(small, "x", &bad), MR_E_SHAPE, "input 'x' is [4] f32, the tensor given is [3] f32");
    CHECK_FAILS(mr_program_get(small, "y", &bad), MR_E_SHAPE, "output 'y' is [4] f32");
    CHECK_FAILS(mr_program_set(small, "q", &vx), MR_E_USAGE, "no input 'q'");
    CHECK_FAILS(mr_program_get(small, "q", &vx), MR_E_USAGE, "no output 'q'");
    // a failing row names itself, its node and its line
    mr_graph *gf = NULL;
    mr_program *fails = NULL;
    mr_ref v;
    OK(mr_graph_new(NULL, NULL, &gf));
    mr_graph_set_origin(gf, "model.lua:99");
    OK(mr_graph_input(gf, "x", MR_F32, 1, &n, &v));
    OK(mr_graph_add(gf, "spec_fail", MR_NO_ATTRS, &v, 1, &v));
    OK(mr_graph_output(gf, "y", v));
    OK(mr_graph_finish(gf));
    OK(mr_exec_compile(e, gf, &fails));
    OK(mr_program_set(fails, "x", &vx));
    mr_status st = mr_program_run(fails);
    if (st == MR_OK) st = mr_exec_sync(e);
    CHECK_FAILS(st, MR_E_DATA, "model.lua:99: spec_fail");
    OK(mr_program_run(small));
    OK(mr_exec_sync(e));
    // times and trace
    mr_step_time row;
    mr_program_time(small, true);
    OK(mr_program_run(small));
    CHECK_INT(mr_program_times(small, &row, 1), 1);
    CHECK_STR(row.node->op->name, "spec_blend");
    CHECK(row.seconds > 0 && row.seconds < 1);
    CHECK(row.cost.bytes > 0 && mr_program_cost(small).bytes == row.cost.bytes);
    CHECK_FAILS(mr_program_trace(large, "/tmp/none"), MR_E_USAGE, "was not timed");
    mr_exec_free(e);             // takes its programs along
    mr_graph_free(gs), mr_graph_free(gl), mr_graph_free(gf);
    free(big);
}

/* ---- weights ----------------------------------------------------------------------------------------- */

typedef struct model { mr_params *params; int w, b, frozen; } model;

static model model_of(mr_dtype compute)
{
    model m = {0};
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t eight = 8, five = 5;
    OK(mr_params_new(compute, &m.params));
    OK(mr_params_add(m.params, &(mr_param){.name = "b", .desc = mr_desc_dense(compute, 1, &five), .init = {.kind = MR_INIT_ONES}}, &m.b));
    OK(mr_params_add(m.params, &(mr_param){.name = "w", .desc = mr_desc_dense(compute, 1, &eight), .init = {MR_INIT_VALUES, 1, values}}, &m.w));
    OK(mr_params_add(m.params, &(mr_param){.name = "f", .desc = mr_desc_dense(compute, 1, &eight), .init = {MR_INIT_VALUES, 1, values}, .frozen = true}, &m.frozen));
    OK(mr_params_seal(m.params));
    return m;
}

/* y = (x w) f, both scaled by packed forms */
static mr_graph *scale_graph(const model *m)
{
    mr_graph *g = NULL;
    int64_t n = 8;
    mr_ref x, w, f;
    OK(mr_graph_new(m->params, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_param(g, m->w, &w));
    OK(mr_graph_param(g, m->frozen, &f));
    OK(mr_graph_add(g, "spec_scale", MR_NO_ATTRS, (mr_ref[]){x, w}, 2, &x));
    OK(mr_graph_add(g, "spec_scale", MR_NO_ATTRS, (mr_ref[]){x, f}, 2, &x));
    OK(mr_graph_output(g, "y", x));
    OK(mr_graph_finish(g));
    return g;
}

static void packing(mr_device *dev)
{
    model m = model_of(MR_F32);
    mr_exec *e = NULL;
    mr_program *a = NULL, *b = NULL, *update = NULL;
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.training = true}, &e));
    OK(mr_exec_init_params(e, 1));
    mr_graph *g = scale_graph(&m), *g2 = scale_graph(&m), *gu = NULL;
    OK(mr_exec_compile(e, g, &a));
    OK(mr_exec_compile(e, g2, &b));
    CHECK(mr_program_memory(a).packed == 2 * 8 * 4);
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8];
    int64_t n = 8;
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_program_set(a, "x", &vx));
    OK(mr_program_set(b, "x", &vx));
    int packs = spec_packs;
    for (int i = 0; i < 3; i++) OK(mr_program_run(a));
    OK(mr_program_run(b));
    OK(mr_program_get(b, "y", &vy));
    CHECK_INT(spec_packs - packs, 2);   // two weights, once each, for both programs
    for (int i = 0; i < 8; i++) CHECK_NEAR(y[i], 4.0 * (i + 1) * (i + 1), 0);
    // an update program makes them stale; the next run that needs them makes them anew
    mr_ref w, dw;
    OK(mr_graph_new(NULL, NULL, &gu));
    OK(mr_graph_input(gu, "g", MR_F32, 1, &n, &dw));
    OK(mr_graph_region(gu, "master", MR_F32, mr_params_at(m.params, m.w)->offset, 1, &n, &w));
    OK(mr_graph_add(gu, "spec_update", MR_NO_ATTRS, (mr_ref[]){w, dw}, 2, &w));
    OK(mr_graph_finish(gu));
    OK(mr_exec_compile(e, gu, &update));
    OK(mr_program_set(update, "g", &vx));
    for (int round = 1; round <= 3; round++) {
        OK(mr_program_run(update));
        OK(mr_program_run(a));
        OK(mr_program_get(a, "y", &vy));
        for (int i = 0; i < 8; i++) CHECK_NEAR(y[i], 4.0 * (i + 1 + round) * (i + 1), 0);
    }
    // so does a write from the host
    float zero[8] = {0};
    OK(mr_exec_write(e, "frozen", (size_t)mr_params_at(m.params, m.frozen)->offset * 4, zero, sizeof zero));
    OK(mr_program_run(b));
    OK(mr_program_get(b, "y", &vy));
    CHECK(y[0] == 0 && y[7] == 0);
    mr_exec_free(e);
    // without packing the plain weights are read
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.no_pack = true}, &e));
    OK(mr_exec_init_params(e, 1));
    OK(mr_exec_compile(e, g, &a));
    OK(mr_program_set(a, "x", &vx));
    OK(mr_program_run(a));
    OK(mr_program_get(a, "y", &vy));
    for (int i = 0; i < 8; i++) CHECK_NEAR(y[i], (i + 1) * (i + 1), 0);
    CHECK_INT(mr_program_memory(a).packed, 0);
    // regions that are not there, or too short
    mr_graph *bad[2] = {0};
    for (int i = 0; i < 2; i++) {
        int64_t far = i ? mr_params_elements(m.params, false) - 7 : 0;
        OK(mr_graph_new(NULL, NULL, &bad[i]));
        OK(mr_graph_region(bad[i], i ? "w" : "grad", MR_F32, far, 1, &n, &w));
        OK(mr_graph_output(bad[i], "w", w));
        OK(mr_graph_finish(bad[i]));
    }
    CHECK_FAILS(mr_exec_compile(e, bad[0], &update), MR_E_USAGE, "region 'grad', this executor has none");
    CHECK_FAILS(mr_exec_compile(e, bad[1], &update), MR_E_RANGE, "of region 'w', which has");
    mr_exec_free(e);
    for (int i = 0; i < 2; i++) mr_graph_free(bad[i]);
    mr_graph_free(g), mr_graph_free(g2), mr_graph_free(gu);
    mr_params_free(m.params);
}

static void regions(mr_device *dev)
{
    model m = model_of(MR_BF16);
    mr_exec *e = NULL;
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.training = true, .ema = true}, &e));
    size_t n = (size_t)mr_params_elements(m.params, false), at = (size_t)mr_params_at(m.params, m.w)->offset;
    CHECK_INT(mr_exec_region_bytes(e, "w"), n * 2);
    static const char *const f32[] = {"grad", "master", "adam_m", "adam_v", "ema"};
    for (size_t i = 0; i < MR_COUNT(f32); i++) CHECK_INT(mr_exec_region_bytes(e, f32[i]), n * 4);
    CHECK(!mr_exec_has(e, "moments"));
    CHECK_INT(mr_exec_region_bytes(e, "moments"), 0);
    OK(mr_exec_init_params(e, 3));
    float got[8], third = 1.0f + 1.0f / 512;
    uint16_t w[8];
    for (int k = 1; k < 5; k += 3) {
        OK(mr_exec_read(e, f32[k], at * 4, got, sizeof got));
        CHECK(got[0] == 1 && got[7] == 8);
    }
    OK(mr_exec_read(e, "w", at * 2, w, sizeof w));
    CHECK(mr_bf16_to_f32(w[7]) == 8);
    OK(mr_exec_read(e, "adam_v", at * 4, got, sizeof got));
    CHECK(got[0] == 0);
    // w follows master when asked
    OK(mr_exec_write(e, "master", at * 4, &third, 4));
    OK(mr_exec_refresh(e));
    OK(mr_exec_read(e, "w", at * 2, w, sizeof w));
    CHECK(w[0] == mr_f32_to_bf16(third) && mr_bf16_to_f32(w[1]) == 2);
    CHECK_FAILS(mr_exec_read(e, "w", n * 2 - 1, w, 2), MR_E_RANGE, "region 'w'");
    CHECK_FAILS(mr_exec_read(e, "q", 0, w, 2), MR_E_USAGE, "no region 'q'");
    mr_exec_free(e);
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.training = true, .no_moments = true}, &e));
    CHECK(mr_exec_has(e, "grad") && !mr_exec_has(e, "master") && !mr_exec_has(e, "adam_m"));
    mr_exec_free(e);
    OK(mr_exec_new(dev, m.params, NULL, &e));
    CHECK(mr_exec_has(e, "w") && mr_exec_has(e, "frozen") && !mr_exec_has(e, "grad"));
    mr_exec_free(e);
    mr_params_free(m.params);
    // in f32, master and w are one region with two names
    m = model_of(MR_F32);
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){.training = true}, &e));
    OK(mr_exec_write(e, "master", 0, &third, 4));
    OK(mr_exec_read(e, "w", 0, got, 4));
    CHECK(got[0] == third);
    mr_exec_free(e);
    mr_params_free(m.params);
    OK(mr_params_new(MR_F32, &m.params));
    CHECK_FAILS(mr_exec_new(dev, m.params, NULL, &e), MR_E_USAGE, "not sealed");
    mr_params_free(m.params);
}

/* ---- memory that runs out ---------------------------------------------------------------------------- */

static mr_status whole(mr_device *dev, const model *m, const mr_graph *g, float *y0)
{
    mr_exec *e = NULL;
    mr_program *p = NULL;
    float x[8] = {2, 2, 2, 2, 2, 2, 2, 2}, y[8] = {0};
    int64_t n = 8;
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)};
    mr_status st = mr_exec_new(dev, m->params, &(mr_exec_options){.training = true, .ema = true}, &e);
    if (st == MR_OK) st = mr_exec_init_params(e, 1);
    if (st == MR_OK) st = mr_exec_compile(e, g, &p);
    if (st == MR_OK) st = mr_program_set(p, "x", &vx);
    if (st == MR_OK) st = mr_program_run(p);
    if (st == MR_OK) st = mr_program_get(p, "y", &vy);
    *y0 = y[0];
    mr_exec_free(e);
    return st;
}

static void running_out(mr_device *dev)
{
    model m = model_of(MR_F32);
    mr_graph *g = scale_graph(&m);
    int failures = 0;
    float y = 0;
    for (int64_t n = 1; n < 500; n++) {
        mr_alloc_fail_at(n);
        mr_status st = whole(dev, &m, g, &y);
        mr_alloc_fail_at(0);
        if (st == MR_OK) break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    printf("%d failing allocations on %s\n", failures, dev->facts.device);
    CHECK(failures > 20 && failures < 499);
    CHECK_NEAR(y, 8, 0);
    // an arena that cannot be had: named with its size, earlier programs go on
    mr_exec *e = NULL;
    mr_program *small = NULL, *large = NULL;
    mr_graph *gs = small_graph(4, 2), *gl = small_graph(1000, 2);
    float x[4] = {1, 2, 3, 4};
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, (int64_t[]){4})};
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_exec_compile(e, gs, &small));
    OK(mr_program_set(small, "x", &vx));
    bool told = false;
    for (int64_t n = 1; n < 100; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_exec_compile(e, gl, &large);
        mr_alloc_fail_at(0);
        char text[2048] = "";
        if (st == MR_OK) break;
        mr_error_format(mr_error_last(), text, sizeof text);
        told |= strstr(text, "arena of ") != NULL;
        OK(mr_program_run(small));
        OK(mr_program_get(small, "y", &vx));
        CHECK(x[3] == 12);
        x[0] = 1, x[1] = 2, x[2] = 3, x[3] = 4;
    }
    CHECK(told);
    mr_exec_free(e);
    mr_graph_free(gs), mr_graph_free(gl), mr_graph_free(g);
    mr_params_free(m.params);
}

int main(void)
{
    mr_device *cpu, *shadow;
    if (mr_device_open("cpu", 2, &cpu) != MR_OK || mr_device_open("shadow", 2, &shadow) != MR_OK) return 1;
    for (uint64_t seed = 1; seed <= 12; seed++) same_bits(cpu, shadow, seed);
    printf("%zu of %zu layouts above the bound, seeds 1 to 12\n", above, checked);
    mr_device *both[] = {cpu, shadow};
    for (int i = 0; i < 2; i++) {
        sharing(both[i]);
        packing(both[i]);
        regions(both[i]);
        running_out(both[i]);
    }
    mr_device_close(cpu);
    mr_device_close(shadow);
    return check_done();
}
