/* graph/schedule: on random graphs over random queues each pair of steps that must not overlap is
 * ordered, and no wait is redundant; steps that run in parallel are printed and played. */
#include "queuecase.h"

#include <string.h>

/* ---- steps that must not overlap, found by looking at all pairs ---- */

static bool share(const mr_graph *g, mr_ref x, mr_ref y)
{
    if (x == MR_NONE || y == MR_NONE)
        return false;
    const mr_value *v = mr_graph_value(g, x), *w = mr_graph_value(g, y);
    const mr_storage *s = mr_graph_storage(g, v->storage), *t = mr_graph_storage(g, w->storage);
    int64_t lo = v->offset, at = w->offset;
    if (s->kind == MR_REGION && t->kind == MR_REGION) {
        if (strcmp(s->region, t->region) != 0)
            return false;
        lo += s->region_offset, at += t->region_offset;
    } else if (v->storage != w->storage) {
        return false;
    }
    return lo < at + (int64_t)mr_desc_span_bytes(&w->desc) &&
           at < lo + (int64_t)mr_desc_span_bytes(&v->desc);
}

typedef struct uses {
    mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
    int n_in, n_out;
} uses;

static uses uses_of(const mr_graph *g, const mr_schedule_step *t)
{
    uses u = {.n_in = 1};
    if (t->node < 0) {
        u.in[0] = mr_graph_output_at(g, t->output, NULL);
        return u;
    }
    const mr_node *node = mr_graph_node(g, t->node);
    u.n_in = node->n_in, u.n_out = node->n_out;
    memcpy(u.in, node->in, sizeof u.in);
    memcpy(u.out, node->out, sizeof u.out);
    return u;
}

static bool clash(const mr_graph *g, const uses *a, const uses *b)
{
    for (int i = 0; i < a->n_out; i++) {
        for (int k = 0; k < b->n_in; k++)
            if (share(g, a->out[i], b->in[k]))
                return true;
        for (int k = 0; k < b->n_out; k++)
            if (share(g, a->out[i], b->out[k]))
                return true;
    }
    for (int i = 0; i < a->n_in; i++)
        for (int k = 0; k < b->n_out; k++)
            if (share(g, a->in[i], b->out[k]))
                return true;
    return false;
}

static int waits, missing, idle, wrong;

static void orders(mr_params *params, uint64_t seed, int side)
{
    mr_graph *g = queue_graph(params, seed, side, seed % 3 == 0);
    mr_schedule *s = NULL;
    CHECK_OK(mr_schedule_new(g, NULL, 0, &s));
    int n = mr_schedule_steps(s), last[MR_QUEUE_COUNT];
    bool *before = queue_order(s, -1, 0);
    for (int q = 0; q < MR_QUEUE_COUNT; q++)
        last[q] = -1;
    for (int b = 0; b < n; b++) {
        const mr_schedule_step *t = mr_schedule_at(s, b);
        uses ub = uses_of(g, t);
        wrong += t->before[t->queue] != last[t->queue];
        last[t->queue] = b;
        for (int a = 0; a < b; a++) {
            const mr_schedule_step *f = mr_schedule_at(s, a);
            uses ua = uses_of(g, f);
            missing += clash(g, &ua, &ub) && !before[a * n + b];
            wrong += mr_schedule_before(s, a, b) != before[a * n + b];
            wrong += mr_schedule_before(s, b, a);
            for (int k = 0; k < t->wait_n; k++)
                wrong += t->wait[k] == a && (f->queue == t->queue || !clash(g, &ua, &ub));
        }
        for (int k = 0; k < t->wait_n; k++, waits++) {
            bool *without = queue_order(s, b, k);
            idle += without[t->wait[k] * n + b];
            mr_free(without);
        }
    }
    mr_free(before);
    mr_schedule_free(s);
    mr_graph_free(g);
}

/* ---- a step of copies and a collective in parallel with compute ---- */

static mr_ref add(mr_graph *g, mr_queue queue, const char *op, mr_ref a, mr_ref b)
{
    mr_ref y = MR_NONE;
    CHECK_OK(mr_graph_set_queue(g, queue, NULL));
    CHECK_OK(mr_graph_add(g, op, MR_NO_ATTRS, (mr_ref[]){a, b}, b == MR_NONE ? 1 : 2, &y));
    return y;
}

static void overlapping(void)
{
    mr_graph *g = NULL;
    mr_schedule *s = NULL;
    mr_ref x, k;
    CHECK_OK(mr_graph_new(NULL, NULL, &g));
    CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, (int64_t[]){64}, &x));
    CHECK_OK(mr_graph_input(g, "k", MR_F32, 1, (int64_t[]){64}, &k));
    mr_ref a = add(g, MR_Q_COMPUTE, "silu", x, MR_NONE),        // 0
        kept = add(g, MR_Q_D2H, "copy", a, MR_NONE),            // 1, of 0
        b = add(g, MR_Q_COMPUTE, "silu", a, MR_NONE),           // 2
        gathered = add(g, MR_Q_COMM_INTRA, "copy", k, MR_NONE), // 3, at once
        c = add(g, MR_Q_COMPUTE, "silu", b, MR_NONE),           // 4
        back = add(g, MR_Q_H2D, "copy", kept, MR_NONE),         // 5, of 1
        d = add(g, MR_Q_COMPUTE, "mul", c, gathered),           // 6, of 3
        e = add(g, MR_Q_COMPUTE, "add", d, back);               // 7, of 5
    CHECK_OK(mr_graph_output(g, "y", e));                       // 8
    CHECK_FAILS(mr_schedule_new(g, NULL, 0, &s), MR_E_USAGE, "not finished");
    CHECK_OK(mr_graph_finish(g));
    CHECK_OK(mr_schedule_new(g, NULL, 0, &s));
    static const struct {
        mr_queue queue;
        int wait; /* -1: none */
    } want[] = {{MR_Q_COMPUTE, -1},    {MR_Q_D2H, 0},      {MR_Q_COMPUTE, -1},
                {MR_Q_COMM_INTRA, -1}, {MR_Q_COMPUTE, -1}, {MR_Q_H2D, 1},
                {MR_Q_COMPUTE, 3},     {MR_Q_COMPUTE, 5},  {MR_Q_D2H, 7}};
    CHECK_INT(mr_schedule_steps(s), MR_COUNT(want));
    for (int i = 0; i < mr_schedule_steps(s); i++) {
        const mr_schedule_step *t = mr_schedule_at(s, i);
        CHECK_INT(t->queue, want[i].queue);
        CHECK_INT(t->wait_n, want[i].wait >= 0);
        CHECK_INT(t->wait_n ? t->wait[0] : -1, want[i].wait);
        CHECK_INT(t->output, i == 8 ? 0 : -1);
    }
    char *text = NULL;
    CHECK_OK(mr_schedule_print(s, &text));
    CHECK(strstr(text, "schedule: 9 steps on 4 queues\n"));
    CHECK(strstr(text, "    1 d2h         copy 'copy#1'  waits for 0  overlaps compute 2 to 6, "
                       "comm_intra 3\n"));
    CHECK(strstr(text, "    3 comm_intra  copy 'copy#3'  overlaps compute 0 to 4, h2d 5, d2h 1\n"));
    CHECK(strstr(text, "    5 h2d         copy 'copy#5'  waits for 1  overlaps compute 2 to 6, "
                       "comm_intra 3\n"));
    CHECK(strstr(text, "    6 compute     mul 'mul#6'  waits for 3\n"));
    CHECK(strstr(text, "    8 d2h         copy out 'y'  waits for 7\n"));
    mr_free(text);
    // seconds: the copies take 3, the collective 2, all else 1
    static const double seconds[] = {1, 3, 1, 2, 1, 3, 1, 1, 1},
                        starts[] = {0, 1, 1, 0, 2, 4, 3, 7, 8};
    double start[MR_COUNT(seconds)];
    CHECK_NEAR(mr_schedule_play(s, seconds, start), 9, 0);
    for (size_t i = 0; i < MR_COUNT(start); i++)
        CHECK_NEAR(start[i], starts[i], 0);
    mr_schedule_free(s);
    mr_graph_free(g);
}

/* A region that is "w" under another name: readers of the other wait for its writer. */
static void aliases(void)
{
    for (int f32 = 0; f32 < 2; f32++) {
        mr_params *params = NULL;
        mr_graph *g = NULL;
        mr_schedule *s = NULL;
        int64_t n = 64;
        int id;
        mr_ref x, m, w, y;
        mr_dtype dtype = f32 ? MR_F32 : MR_BF16;
        CHECK_OK(mr_params_new(dtype, &params));
        CHECK_OK(mr_params_add(params,
                               &(mr_param){.name = "w", .desc = mr_desc_dense(dtype, 1, &n)}, &id));
        CHECK_OK(mr_params_seal(params, NULL));
        CHECK_OK(mr_graph_new(params, NULL, &g));
        CHECK_OK(mr_graph_input(g, "x", MR_F32, 1, &n, &x));
        CHECK_OK(mr_graph_region(g, "master", MR_SPACE_DEVICE, MR_F32, 0, 1, &n, &m));
        CHECK_OK(mr_graph_param(g, id, &w));
        CHECK_OK(mr_graph_set_queue(g, MR_Q_COMM_INTER, NULL));
        CHECK_OK(mr_graph_add(g, "accumulate", MR_NO_ATTRS, (mr_ref[]){m, x}, 2, &m));
        CHECK_OK(mr_graph_set_queue(g, MR_Q_COMPUTE, NULL));
        CHECK_OK(mr_graph_add(g, "silu", MR_NO_ATTRS, &w, 1, &y));
        CHECK_OK(mr_graph_output(g, "y", y));
        CHECK_OK(mr_graph_finish(g));
        CHECK_OK(mr_schedule_new(g, NULL, 0, &s));
        CHECK_INT(mr_schedule_at(s, 1)->wait_n, 0);
        mr_schedule_free(s);
        // a caller who knows the regions passes them
        CHECK_OK(mr_schedule_new(g, (const char *const[]){"other", "master"}, 2, &s));
        CHECK_INT(mr_schedule_at(s, 1)->wait_n, 1);
        mr_schedule_free(s);
        CHECK_OK(mr_schedule_new(g, (const char *const[]){"other"}, 1, &s));
        CHECK_INT(mr_schedule_at(s, 1)->wait_n, 0);
        mr_schedule_free(s);
        mr_graph_free(g);
        mr_params_free(params);
    }
}

static void running_out(mr_params *params)
{
    mr_graph *g = queue_graph(params, 1, 50, false);
    mr_schedule *s = NULL;
    char *text = NULL;
    int failures = 0;
    for (int64_t n = 1; n < 40; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_schedule_new(g, NULL, 0, &s);
        if (st == MR_OK)
            st = mr_schedule_print(s, &text);
        mr_alloc_fail_at(0);
        mr_schedule_free(s), mr_free(text);
        s = NULL, text = NULL;
        if (st == MR_OK)
            break;
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 5 && failures < 39);
    mr_graph_free(g);
}

int main(void)
{
    mr_params *params = NULL;
    int id;
    int64_t n = Q_GRAD;
    CHECK_OK(mr_params_new(MR_F32, &params));
    CHECK_OK(
        mr_params_add(params, &(mr_param){.name = "w", .desc = mr_desc_dense(MR_F32, 1, &n)}, &id));
    CHECK_OK(mr_params_seal(params, NULL));
    overlapping();
    aliases();
    for (uint64_t seed = 1; seed <= 60; seed++)
        orders(params, seed, seed % 2 ? 50 : 20);
    printf("%d waits in 60 graphs\n", waits);
    CHECK(waits > 500);
    CHECK_INT(missing, 0);
    CHECK_INT(idle, 0);
    CHECK_INT(wrong, 0);
    running_out(params);
    mr_params_free(params);
    return check_done();
}
