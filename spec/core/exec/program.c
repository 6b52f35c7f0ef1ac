/* exec/program: random graphs compute the same bits with and without in-place ops and reuse,
 * poisoned or not, on both devices and again, and on random queues in any order. The measured
 * peak is the predicted one, runs allocate nothing, and after a failed allocation everything is
 * usable. Covers: core/layout/layout.c */
#include "execcase.h"
#include "queuecase.h"
#include "exec/room.h"

static uint64_t state;
static int draw(int below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)below);
}

enum { ROWS = 6, COLS = 40, OPS = 60 };

/* ---- a random graph: two inputs, elementwise ops, slices and joins, four outputs ---- */

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
        case 2:
            OK(mr_graph_add(g, "affine", MR_ATTRS({"scale", .f = 0.5}, {"shift", .f = 0.125}), &a,
                            1, &y));
            break;
        case 3:
            OK(mr_graph_add(g, "spec_blend", MR_ATTRS({"k", .f = -0.25}), (mr_ref[]){a, b}, 2, &y));
            break;
        case 4: // rows of a over rows of b
            OK(mr_graph_slice(g, a, 0, 0, at, &parts[0]));
            OK(mr_graph_slice(g, b, 0, at, ROWS, &parts[1]));
            OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &parts[0], 1, &parts[0]));
            OK(mr_graph_concat(g, parts, 2, 0, &y));
            break;
        default: // columns, so that parts are strided
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
typedef struct answer {
    float v[4][ROWS * COLS];
} answer;

static mr_view view_of(float *data, int cols)
{
    return (mr_view){data, mr_desc_dense(MR_F32, 2, (int64_t[]){ROWS, cols})};
}

static void set_inputs(mr_program *p)
{
    float x[ROWS * COLS], z[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = sinf((float)i), z[i] = cosf(3 * (float)i);
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

static void solve(mr_device *dev, uint64_t seed, bool no_inplace, const mr_exec_options *options,
                  answer *out)
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
    if (!dev->checks)
        CHECK_INT(mr_alloc_count() - before, 0);
    CHECK(memcmp(out, &again, sizeof again) == 0);
    mr_memory m = mr_program_memory(p);
    CHECK(m.bound <= m.arena);
    if (!options->no_reuse) {
        CHECK((double)m.arena <= 1.05 * (double)m.bound);
        above += m.arena > m.bound, checked++;
    }
    if (options->poison)
        CHECK_INT((mr_program_measured(p) + 63) / 64 * 64, m.arena);
    mr_program_free(p);
    mr_exec_free(e);
    mr_graph_free(g);
}

static void same_bits(mr_device *cpu, mr_device *shadow, uint64_t seed)
{
    static const struct {
        bool no_inplace, no_reuse, poison, shadow;
    } ways[] = {{true, true, false, false},  {true, false, true, false},
                {false, true, true, false},  {false, false, false, false},
                {false, false, true, false}, {false, false, false, true},
                {false, false, true, true},  {true, false, false, true}};
    answer first, other;
    for (size_t i = 0; i < MR_COUNT(ways); i++) {
        mr_exec_options o = {.no_reuse = ways[i].no_reuse, .poison = ways[i].poison};
        solve(ways[i].shadow ? shadow : cpu, seed, ways[i].no_inplace, &o, i ? &other : &first);
        bool equal = !i || memcmp(&first, &other, sizeof first) == 0;
        CHECK(equal);
        if (!equal)
            printf("seed %llu, way %zu\n", (unsigned long long)seed, i);
    }
}

/* ---- parallel queues ---- */

typedef struct results {
    float grad[Q_GRAD], last[Q_ROWS * Q_COLS], middle[Q_ROWS * Q_COLS], corner[Q_ROWS * 6],
        sum[Q_COLS];
} results;

static void run_once(mr_exec *e, mr_program *p, results *r)
{
    mr_view last = view_of(r->last, COLS), middle = view_of(r->middle, COLS),
            corner = view_of(r->corner, 6),
            sum = {r->sum, mr_desc_dense(MR_F32, 1, (int64_t[]){Q_COLS})};
    memset(r, 0, sizeof *r);
    OK(mr_exec_write(e, "grad", 0, r->grad, sizeof r->grad));
    OK(mr_program_set(p, "sum", &sum));
    OK(mr_program_run(p));
    OK(mr_program_get(p, "last", &last));
    OK(mr_program_get(p, "middle", &middle));
    OK(mr_program_get(p, "corner", &corner));
    OK(mr_program_get(p, "sum", &sum));
    OK(mr_exec_read(e, "grad", 0, r->grad, sizeof r->grad));
}

/* Graph `seed` with `side` percent of its nodes on side queues gives `want` in each of the runs;
 * with `first` it sets `want`. */
static void run_queues(mr_device *dev, mr_params *params, uint64_t seed, int side, bool poison,
                       bool first, results *want)
{
    mr_graph *g = queue_graph(params, seed, side, seed % 3 == 0);
    mr_exec *e = NULL;
    mr_program *p = NULL;
    results now;
    const mr_region row = {.name = "grad", .dtype = MR_F32};
    mr_exec_options o = {.regions = &row, .n_regions = 1, .poison = poison};
    OK(mr_exec_new(dev, params, &o, &e));
    OK(mr_exec_compile(e, g, &p));
    set_inputs(p);
    for (int run = 0; run < (dev->checks ? 6 : 1); run++) {
        run_once(e, p, first ? want : &now);
        bool equal = first || memcmp(want, &now, sizeof now) == 0;
        CHECK(equal);
        if (!equal)
            printf("graph %llu, %d %% on side queues, run %d on %s\n", (unsigned long long)seed,
                   side, run, dev->facts.device);
    }
    mr_exec_free(e);
    mr_graph_free(g);
}

static void queues(mr_device *cpu, mr_device *shadow)
{
    mr_params *params = NULL;
    int id;
    int64_t n = Q_GRAD;
    results want;
    OK(mr_params_new(MR_F32, &params));
    OK(mr_params_add(params, &(mr_param){.name = "w", .desc = mr_desc_dense(MR_F32, 1, &n)}, &id));
    OK(mr_params_seal(params, NULL));
    // the last run shows it when a writer overtakes readers
    for (uint64_t i = 1; i <= 40; i++) {
        uint64_t seed = i < 40 ? i : 221;
        run_queues(cpu, params, seed, 0, false, true, &want);
        run_queues(cpu, params, seed, 50, false, false, &want);
        run_queues(shadow, params, seed, 0, false, false, &want);
        run_queues(shadow, params, seed, 50, false, false, &want);
        run_queues(shadow, params, seed, 20, seed % 2, false, &want);
    }
    mr_params_free(params);
}

/* ---- failing allocations ---- */

static mr_status whole(mr_device *dev, const model *m, const mr_graph *g, float *y0)
{
    mr_exec *e = NULL;
    mr_program *p = NULL;
    float x[8] = {2, 2, 2, 2, 2, 2, 2, 2}, y[8] = {0};
    int64_t n = 8;
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, &n)}, vy = {y, mr_desc_dense(MR_F32, 1, &n)};
    mr_status st = mr_exec_new(dev, m->params, &(mr_exec_options){TRAINING_EMA}, &e);
    if (st == MR_OK)
        st = mr_exec_init_params(e, 1);
    if (st == MR_OK)
        st = mr_exec_compile(e, g, &p);
    if (st == MR_OK)
        st = mr_program_set(p, "x", &vx);
    if (st == MR_OK)
        st = mr_program_run(p);
    if (st == MR_OK)
        st = mr_program_get(p, "y", &vy);
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
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    printf("%d failing allocations on %s\n", failures, dev->facts.device);
    CHECK(failures > 20 && failures < 499);
    CHECK_NEAR(y, 2, 0);
    // an arena that cannot be allocated: named with its size, earlier programs still run
    mr_exec *e = NULL;
    mr_program *small = NULL, *large = NULL;
    mr_graph *gs = small_graph(4, 2), *gl = small_graph(1000, 2);
    float x[4] = {1, 2, 3, 4};
    mr_view vx = {x, mr_desc_dense(MR_F32, 1, (int64_t[]){4})};
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_exec_compile(e, gs, &small));
    OK(mr_program_set(small, "x", &vx));
    bool report = false;
    for (int64_t n = 1; n < 100; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_exec_compile(e, gl, &large);
        mr_alloc_fail_at(0);
        char text[2048] = "";
        if (st == MR_OK)
            break;
        mr_error_format(mr_error_last(), text, sizeof text);
        report |= strstr(text, "arena of ") != NULL;
        OK(mr_program_run(small));
        OK(mr_program_get(small, "y", &vx));
        CHECK(x[3] == 12);
        x[0] = 1, x[1] = 2, x[2] = 3, x[3] = 4;
    }
    CHECK(report);
    mr_exec_free(e);
    mr_graph_free(gs), mr_graph_free(gl), mr_graph_free(g);
    mr_params_free(m.params);
}

/* A step that writes to constants, inputs or weights by mistake is stopped on the shadow device. */
static void places(mr_device *shadow)
{
    model m = model_of(MR_F32);
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    int64_t n = 8;
    float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    mr_view v = {data, mr_desc_dense(MR_F32, 1, &n)};
    mr_ref x, c, w, y;
    OK(mr_exec_new(shadow, m.params, NULL, &e));
    OK(mr_graph_new(m.params, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_const(g, &v, &c));
    OK(mr_graph_param(g, m.w, &w));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &c, 1, &c));
    OK(mr_graph_add(g, "mul", MR_NO_ATTRS, (mr_ref[]){x, w}, 2, &y));
    OK(mr_graph_add(g, "add", MR_NO_ATTRS, (mr_ref[]){y, c}, 2, &y));
    OK(mr_graph_output(g, "y", y));
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    OK(mr_program_set(p, "x", &v));
    mr_step *first = &p->steps[p->n_setup];
    CHECK_STR(first->op->name, "mul");
    mr_arg *written = &first->arg[first->n_in];
    mr_dptr right = written->at;
    const struct {
        mr_dptr at;
        const char *report;
    } wrong[] = {{p->consts, "into constants"},
                 {p->inputs, "into an input or a region"},
                 {mr_exec_need(e, "w")->at, "into an input or a region"},
                 {mr_exec_need(e, "frozen")->at, "into an input or a region"}};
    for (size_t i = 0; i < MR_COUNT(wrong); i++) {
        written->at = wrong[i].at;
        OK(mr_program_run(p));
        CHECK_FAILS(mr_exec_sync(e), MR_E_INTERNAL, wrong[i].report);
    }
    written->at = right;
    OK(mr_program_run(p));
    OK(mr_exec_sync(e));
    mr_exec_free(e);
    mr_graph_free(g);
    mr_params_free(m.params);
}

/* What a device keeps for the steps of a program is made once, passed to each run, updated when the
 * arena grows for another program, and freed once. */
static const mr_device_ops *plain;
static int kept_alive, moves;
static void *seen_at;
static mr_status keep(mr_device *dev, mr_step *steps, int n, void **prepared)
{
    *prepared = steps, kept_alive++;
    return plain->prepare(dev, steps, n, prepared);
}
static void move(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    (void)dev;
    CHECK(prepared == steps && n > 0);
    seen_at = (void *)steps[0].arg[steps[0].n_in].at;
    moves++;
}
static void drop(mr_device *dev, mr_step *steps, int n, void *prepared)
{
    CHECK(prepared == steps);
    kept_alive--;
    plain->forget(dev, steps, n, NULL);
}
static mr_status run_kept(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    CHECK(prepared == steps);
    return plain->run(dev, steps, n, NULL);
}

static void handles(mr_device *dev)
{
    mr_device_ops ops = *dev->ops;
    plain = dev->ops;
    ops.prepare = keep, ops.moved = move, ops.forget = drop, ops.run = run_kept;
    dev->ops = &ops, moves = 0;
    mr_exec *e = NULL;
    mr_program *small = NULL, *large = NULL;
    mr_graph *gs = small_graph(16, 2), *gl = small_graph(40000, 2);
    float x[16] = {1};
    int64_t n = 16;
    mr_view v = {x, mr_desc_dense(MR_F32, 1, &n)};
    OK(mr_exec_new(dev, NULL, NULL, &e));
    OK(mr_exec_compile(e, gs, &small));
    CHECK_INT(kept_alive, 1);
    CHECK_INT(moves, 1);
    OK(mr_program_set(small, "x", &v));
    OK(mr_program_run(small));
    OK(mr_exec_compile(e, gl, &large));
    CHECK_INT(kept_alive, 2);
    CHECK_INT(moves, 3); // the small program's arena was freed, the large one's was allocated
    CHECK(seen_at == (void *)large->steps[large->n_setup].arg[2].at);
    OK(mr_program_run(small));
    mr_program_free(large);
    CHECK_INT(kept_alive, 1);
    mr_exec_free(e);
    CHECK_INT(kept_alive, 0);
    dev->ops = plain;
    mr_graph_free(gs);
    mr_graph_free(gl);
}

/* Each run begins with a poisoned arena, whatever another program left there. */
static void poisoned(mr_device *dev)
{
    mr_exec *e = NULL;
    mr_program *large = NULL, *small = NULL;
    mr_graph *gl = small_graph(4000, 2), *gs = small_graph(16, 2);
    float x[4000];
    for (int i = 0; i < 4000; i++)
        x[i] = 1;
    OK(mr_exec_new(dev, NULL, &(mr_exec_options){.poison = true}, &e));
    OK(mr_exec_compile(e, gl, &large));
    OK(mr_exec_compile(e, gs, &small));
    mr_view vl = {x, mr_desc_dense(MR_F32, 1, (int64_t[]){4000})},
            vs = {x, mr_desc_dense(MR_F32, 1, (int64_t[]){16})};
    OK(mr_program_set(large, "x", &vl));
    OK(mr_program_set(small, "x", &vs));
    for (int round = 0; round < 2; round++) {
        OK(mr_program_run(large));
        CHECK_INT((mr_program_measured(large) + 63) / 64 * 64, mr_program_memory(large).arena);
        OK(mr_program_run(small));
        CHECK_INT((mr_program_measured(small) + 63) / 64 * 64, mr_program_memory(small).arena);
    }
    CHECK(mr_program_memory(large).arena > mr_program_memory(small).arena);
    mr_exec_free(e);
    mr_graph_free(gl), mr_graph_free(gs);
}

/* The nodes that a program may have, and where it may write. */
static void limits(mr_device *dev)
{
    mr_graph *g = NULL;
    mr_exec *e = NULL;
    mr_program *p = NULL;
    model m = model_of(MR_F32);
    int64_t n = 8, elements = mr_params_elements(m.params, false);
    mr_ref x, y, w;
    OK(mr_exec_new(dev, m.params, &(mr_exec_options){TRAINING}, &e));
    OK(mr_graph_new(m.params, NULL, &g));
    OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
    OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y));
    OK(mr_graph_output(g, "y", y));
    CHECK_FAILS(mr_exec_compile(e, g, &p), MR_E_USAGE, "finish it, then compile");
    OK(mr_graph_finish(g));
    OK(mr_exec_compile(e, g, &p));
    mr_graph_free(g);
    model other = model_of(MR_F32);
    g = scale_graph(&other);
    CHECK_FAILS(mr_exec_compile(e, g, &p), MR_E_USAGE, "another parameter table");
    mr_graph_free(g);
    mr_params_free(other.params);
    // the last elements of a region, and one further
    for (int64_t past = 0; past < 2; past++) {
        OK(mr_graph_new(m.params, NULL, &g));
        OK(mr_graph_region(g, "grad", MR_SPACE_DEVICE, MR_F32, elements - n + past, 1, &n, &w));
        OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
        OK(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){w, x}, 2, &y));
        OK(mr_graph_finish(g));
        if (past)
            CHECK_FAILS(mr_exec_compile(e, g, &p), MR_E_RANGE, "of region 'grad'");
        else
            OK(mr_exec_compile(e, g, &p));
        if (!past)
            mr_program_free(p);
        mr_graph_free(g);
    }
    mr_exec_free(e);
    mr_params_free(m.params);
}

int main(void)
{
    mr_device *both[2];
    open_both(both);
    places(both[1]);
    for (uint64_t seed = 1; seed <= 12; seed++)
        same_bits(both[0], both[1], seed);
    queues(both[0], both[1]);
    printf("%zu of %zu layouts above the bound, seeds 1 to 12\n", above, checked);
    for (int i = 0; i < 2; i++) {
        limits(both[i]);
        poisoned(both[i]);
        handles(both[i]);
        running_out(both[i]);
        mr_device_close(both[i]);
    }
    return check_done();
}
