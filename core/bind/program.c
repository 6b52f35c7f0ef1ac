/* bind: programs: a graph compiled for an executor; set, run, get, costs and times.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include <string.h>

static void free_program(void *object)
{
    program *p = object;
    if (p->of) {
        program **at = &p->of->programs;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        mr_program_free(p->prog);
    }
    mr_free(p);
}

/* The program at `arg`; its executor and graph are still open. */
static mr_program *check_program(lua_State *L, int arg)
{
    program *p = mr_bind_unbox(L, arg, "mr.Program");
    if (!p->of)
        mr_bind_raise(L, MR_E_USAGE, "the executor of this program is closed");
    lua_getiuservalue(L, arg, 2);
    mr_bind_graph(L, -1);
    lua_pop(L, 1);
    return p->prog;
}

int mr_bind_program_new(lua_State *L)
{
    mr_exec *exec = mr_bind_exec(L, 1);
    mr_graph *g = mr_bind_graph(L, 2);
    void **box = mr_bind_box(L, "mr.Program");
    program *p;
    if (!MR_NEW(p))
        mr_bind_check(L, mr_fail_memory(sizeof *p));
    mr_status st = mr_exec_compile(exec, g, &p->prog);
    if (st != MR_OK)
        mr_free(p);
    mr_bind_check(L, st);
    p->of = mr_bind_unbox(L, 1, "mr.Exec");
    p->next = p->of->programs, p->of->programs = p;
    *box = p;
    lua_pushvalue(L, 1), lua_setiuservalue(L, -2, 1);
    lua_pushvalue(L, 2), lua_setiuservalue(L, -2, 2);
    return 1;
}

static int p_set(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    mr_bind_check(L,
                  mr_program_set(p, luaL_checkstring(L, 2), mr_tensor_view(mr_bind_tensor(L, 3))));
    return 0;
}

/* pass(output, first, count, to, input, at): elements of an output become some of an input */
static int p_pass(lua_State *L)
{
    mr_program *from = check_program(L, 1), *to = check_program(L, 5);
    mr_bind_check(L, mr_program_pass(from, luaL_checkstring(L, 2), luaL_checkinteger(L, 3),
                                     luaL_checkinteger(L, 4), to, luaL_checkstring(L, 6),
                                     luaL_checkinteger(L, 7)));
    return 0;
}

static int p_skip(lua_State *L)
{
    mr_bind_check(L, mr_program_skip(check_program(L, 1), luaL_checkstring(L, 2),
                                     luaL_checkinteger(L, 3), luaL_checkinteger(L, 4)));
    return 0;
}

static int p_run(lua_State *L)
{
    mr_bind_check(L, mr_program_run(check_program(L, 1)));
    return 0;
}

static mr_graph *graph_of(lua_State *L)
{
    lua_getiuservalue(L, 1, 2);
    mr_graph *g = mr_bind_graph(L, -1);
    lua_pop(L, 1);
    return g;
}

static int p_get(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    const char *name = luaL_checkstring(L, 2);
    mr_graph *g = graph_of(L);
    mr_ref x = mr_graph_output_find(g, name);
    if (x == MR_NONE)
        return mr_bind_raise(L, MR_E_USAGE, "the graph has no output '%s'", name);
    const mr_desc *d = &mr_graph_value(g, x)->desc;
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(d->dtype, d->rank, d->dim, t));
    mr_bind_check(L, mr_program_get(p, name, mr_tensor_view(*t)));
    return 1;
}

/* ---- fetched results ---- */

typedef struct fetched {
    uint64_t ticket;
    mr_desc desc;
} fetched;

/* fetch(name) -> mr.Fetched, whose user value is the executor */
static int p_fetch(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    const char *name = luaL_checkstring(L, 2);
    mr_graph *g = graph_of(L);
    void **box = mr_bind_box(L, "mr.Fetched");
    fetched *f;
    if (!MR_NEW(f))
        mr_bind_check(L, mr_fail_memory(sizeof *f));
    mr_status st = mr_program_fetch(p, name, &f->ticket);
    if (st != MR_OK)
        mr_free(f);
    mr_bind_check(L, st);
    f->desc = mr_graph_value(g, mr_graph_output_find(g, name))->desc;
    *box = f;
    lua_getiuservalue(L, 1, 1), lua_setiuservalue(L, -2, 1);
    return 1;
}

static mr_exec *exec_of_fetched(lua_State *L)
{
    lua_getiuservalue(L, 1, 1);
    mr_exec *exec = mr_bind_exec(L, lua_gettop(L));
    lua_pop(L, 1);
    return exec;
}

static int f_ready(lua_State *L)
{
    const fetched *f = mr_bind_unbox(L, 1, "mr.Fetched");
    bool ready = false;
    mr_bind_check(L, mr_exec_ready(exec_of_fetched(L), f->ticket, &ready));
    lua_pushboolean(L, ready);
    return 1;
}

static int f_get(lua_State *L)
{
    const fetched *f = mr_bind_unbox(L, 1, "mr.Fetched");
    mr_exec *exec = exec_of_fetched(L);
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(f->desc.dtype, f->desc.rank, f->desc.dim, t));
    mr_bind_check(L, mr_exec_take(exec, f->ticket, mr_tensor_view(*t)));
    return 1;
}

static int p_memory(lua_State *L)
{
    mr_memory m = mr_program_memory(check_program(L, 1));
    lua_createtable(L, 0, 16);
    MR_BIND_SET(L, m, arena, bound, pinned, workspace, params, state, inputs, landing, staged, ring,
                results, consts, offloaded, library, host, staging);
    return 1;
}

/* plan() -> {seconds, flop, bytes, memory = {...}, total}: the predicted cost of a run */
static int p_plan(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    double seconds;
    mr_bind_check(L, mr_program_seconds(p, &seconds));
    mr_memory m = mr_program_memory(p);
    lua_createtable(L, 0, 5);
    mr_cost c = mr_program_cost(p);
    mr_bind_set_num(L, "seconds", seconds);
    MR_BIND_SET(L, c, flop, bytes);
    p_memory(L), lua_setfield(L, -2, "memory");
    mr_bind_set_int(L, "total",
                    (int64_t)(m.arena + m.pinned + m.params + m.state + m.inputs + m.landing +
                              m.staged + m.ring + m.results + m.consts + m.library + m.host +
                              m.offloaded));
    return 1;
}

static int p_cost(lua_State *L)
{
    mr_cost c = mr_program_cost(check_program(L, 1));
    lua_createtable(L, 0, 2);
    MR_BIND_SET(L, c, flop, bytes);
    return 1;
}

static int p_time(lua_State *L)
{
    mr_bind_check(L, mr_program_time(check_program(L, 1), lua_isnone(L, 2) || lua_toboolean(L, 2)));
    return 0;
}

/* push the shapes of the inputs of a node as text: [2, 256, 1152] bf16, [3456, 1152] bf16, - */
static void push_shapes(lua_State *L, const mr_graph *g, const mr_node *node)
{
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (int i = 0; i < node->n_in; i++) {
        char one[256];
        luaL_addstring(&text, i ? ", " : "");
        luaL_addstring(&text,
                       node->in[i] == MR_NONE
                           ? "-"
                           : mr_desc_text(&mr_graph_value(g, node->in[i])->desc, one, sizeof one));
    }
    luaL_pushresult(&text);
}

/* The number of ranks with which a node communicates, if its op states it; else 0. */
static int64_t ranks_of(const mr_node *node)
{
    for (int i = 0; i < MR_MAX_ATTR && node->op->attr[i].name; i++) {
        const mr_attr_def *def = &node->op->attr[i];
        if (strcmp(def->name, "ranks") == 0)
            return *(const int64_t *)((const char *)node->attr + def->at);
    }
    return 0;
}

/* push its queue, and the rows of other queues for which it waits */
static void push_place(lua_State *L, const mr_schedule_step *step)
{
    mr_bind_set_str(L, "queue", mr_queue_name(step->queue));
    lua_createtable(L, step->wait_n, 0);
    for (int k = 0; k < step->wait_n; k++)
        lua_pushinteger(L, step->wait[k] + 1), lua_rawseti(L, -2, k + 1);
    lua_setfield(L, -2, "after");
}

/* push the fields that steps of one kind share: op, shapes, backward, again, naive, expected, flop,
 * bytes, ranks, way */
static void push_kind(lua_State *L, const mr_graph *g, const mr_step_time *row)
{
    const mr_node *node = row->node;
    lua_createtable(L, 0, 16);
    mr_bind_set_str(L, "op", node->op->name);
    push_shapes(L, g, node), lua_setfield(L, -2, "shapes");
    if (ranks_of(node))
        mr_bind_set_int(L, "ranks", ranks_of(node));
    mr_bind_set_bool(L, "backward", node->backward);
    mr_bind_set_bool(L, "again", node->recompute_of >= 0);
    MR_BIND_SET(L, *row, naive, way, expected);
    MR_BIND_SET(L, row->cost, flop, bytes);
}

static mr_step_time *times_of(lua_State *L, const mr_program *p, int *n)
{
    *n = mr_program_times(p, NULL, 0);
    mr_step_time *rows = mr_bind_scratch(L, (size_t)*n * sizeof *rows);
    mr_program_times(p, rows, *n);
    return rows;
}

/* times() -> a row per step: {op, node, shapes, block, origin, seconds, expected, flop, bytes,
 * naive, backward, again, ranks (that it speaks to), way (of its kernel, where that has several;
 * nil: the usual one), queue, after} */
static int p_times(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    mr_graph *g = graph_of(L);
    int n;
    const mr_step_time *rows = times_of(L, p, &n);
    const mr_schedule *schedule = mr_layout_schedule(mr_program_layout(p));
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mr_node *node = rows[i].node;
        push_kind(L, g, &rows[i]);
        mr_bind_set_str(L, "node", node->name);
        mr_bind_set_str(L, "block", mr_graph_block_name(g, node->block));
        mr_bind_set_str(L, "origin", node->origin);
        mr_bind_set_num(L, "seconds", rows[i].seconds);
        push_place(L, mr_schedule_at(schedule, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Whether two steps have equal fields of push_kind. */
static bool same_kind(const mr_graph *g, const mr_step_time *a, const mr_step_time *b)
{
    const mr_node *x = a->node, *y = b->node;
    if (x->op != y->op || x->n_in != y->n_in || x->backward != y->backward ||
        (x->recompute_of >= 0) != (y->recompute_of >= 0) || a->naive != b->naive ||
        a->way != b->way || a->cost.flop != b->cost.flop || a->cost.bytes != b->cost.bytes ||
        a->expected != b->expected || ranks_of(x) != ranks_of(y))
        return false;
    for (int i = 0; i < x->n_in; i++) {
        if ((x->in[i] == MR_NONE) != (y->in[i] == MR_NONE))
            return false;
        if (x->in[i] == MR_NONE)
            continue;
        const mr_desc *p = &mr_graph_value(g, x->in[i])->desc,
                      *q = &mr_graph_value(g, y->in[i])->desc;
        if (p->dtype != q->dtype || p->rank != q->rank ||
            memcmp(p->dim, q->dim, (size_t)MR_MAX(p->rank, 0) * sizeof *p->dim) != 0)
            return false;
    }
    return true;
}

/* kinds() -> a row per kind of step, with the fields of push_kind and count */
static int p_kinds(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    mr_graph *g = graph_of(L);
    int n, kinds = 0;
    const mr_step_time *rows = times_of(L, p, &n);
    int *first = mr_bind_scratch(L, 2 * (size_t)n * sizeof *first), *count = first + n;
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < kinds && !same_kind(g, &rows[first[k]], &rows[i]))
            k++;
        if (k == kinds)
            first[kinds] = i, count[kinds++] = 0;
        count[k]++;
    }
    lua_createtable(L, kinds, 0);
    for (int k = 0; k < kinds; k++) {
        push_kind(L, g, &rows[first[k]]);
        mr_bind_set_int(L, "count", count[k]);
        lua_rawseti(L, -2, k + 1);
    }
    return 1;
}

static int p_trace(lua_State *L)
{
    mr_program *p = check_program(L, 1);
    mr_bind_check(L, mr_program_trace(p, luaL_checkstring(L, 2)));
    return 0;
}

/* report() -> text: what is in memory at the peak, and what to do */
static int p_report(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_layout_report(mr_program_layout(check_program(L, 1)), text));
    lua_pushstring(L, *text);
    return 1;
}

/* live() -> list of {bytes, purpose, op, node, block, origin}, largest first */
static int p_live(lua_State *L)
{
    const mr_layout *l = mr_program_layout(check_program(L, 1));
    mr_graph *g = graph_of(L);
    const mr_layout_entry **live =
        mr_bind_scratch(L, ((size_t)mr_layout_entries(l) + 1) * sizeof *live);
    int n = mr_layout_live(l, live);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mr_node *node = mr_graph_node(g, live[i]->node);
        lua_createtable(L, 0, 6);
        mr_bind_set_int(L, "bytes", (int64_t)live[i]->bytes);
        mr_bind_set_str(L, "purpose", mr_layout_purpose(l, live[i]));
        mr_bind_set_str(L, "op", node->op->name);
        mr_bind_set_str(L, "node", node->name);
        mr_bind_set_str(L, "block", mr_graph_block_name(g, node->block));
        mr_bind_set_str(L, "origin", node->origin);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* profile(n) -> n sizes */
static int p_profile(lua_State *L)
{
    lua_Integer n = luaL_checkinteger(L, 2);
    luaL_argcheck(L, n >= 1 && n <= 1 << 20, 2, "expected 1 to 1048576 parts");
    size_t *bytes = mr_bind_scratch(L, (size_t)n * sizeof *bytes);
    mr_bind_check(L, mr_layout_profile(mr_program_layout(check_program(L, 1)), bytes, (int)n));
    lua_createtable(L, (int)n, 0);
    for (lua_Integer i = 0; i < n; i++)
        lua_pushinteger(L, (lua_Integer)bytes[i]), lua_rawseti(L, -2, i + 1);
    return 1;
}

static int p_schedule(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_program_schedule(check_program(L, 1), text));
    lua_pushstring(L, *text);
    return 1;
}

static int p_measured(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_program_measured(check_program(L, 1)));
    return 1;
}

static const mr_bind_entry program_entries[] = {
    MR_ENTRY("set", p_set, "(name: string, values: mr.Tensor)",
             "Set an input: the tensor is copied at once, and the value is kept until it is set "
             "again. Does not wait for runs."),
    MR_ENTRY(
        "pass", p_pass,
        "(output: string, first: integer, count: integer, to: mr.Program, input: string, "
        "at: integer)",
        "Pass elements of an output of the last run to an input of another program on the device, "
        "without waiting. Elements must be passed in order, from element 0 of the input on."),
    MR_ENTRY("skip", p_skip, "(input: string, at: integer, count: integer)",
             "Skip elements of an input between those that are passed. Their values are undefined, "
             "and the graph must not use them in a result."),
    MR_ENTRY("run", p_run, "()", "Run it once."),
    MR_ENTRY("get", p_get, "(name: string): mr.Tensor", "A copy of an output of the last run."),
    MR_ENTRY("fetch", p_fetch, "(name: string): mr.Fetched",
             "Fetch an output of at most 512 bytes in its current state. It is copied in parallel "
             "with later runs, which do not wait for it."),
    MR_ENTRY("memory", p_memory, "(): table",
             "Bytes: {arena, bound, pinned, workspace, params, state, offloaded, inputs, landing, "
             "staged, ring, "
             "results, consts, library, host, staging}."),
    MR_ENTRY("cost", p_cost, "(): table", "{flop, bytes} of one run."),
    MR_ENTRY("time", p_time, "(on?: boolean)", "Measure each op in later runs; false: stop."),
    MR_ENTRY("times", p_times, "(): table[]",
             "A row per step: {op, node, shapes (of the inputs), block, origin, backward, again "
             "(recomputed), naive, flop, bytes, seconds (of the last timed run), expected (by the "
             "rates that are known), queue, after (rows of other queues that it waits for)}."),
    MR_ENTRY("kinds", p_kinds, "(): table[]",
             "A row per kind of step, i.e. of steps that differ in times() only by node, block, "
             "origin, seconds, queue and after; with their count."),
    MR_ENTRY("trace", p_trace, "(path: string)",
             "Write the last timed run as a trace for browsers, with a row per queue; with side "
             "queues or transfers, also as if each step started as soon as possible."),
    MR_ENTRY("plan", p_plan, "(): table",
             "The predicted cost of a run: {seconds, flop, bytes, memory, total}."),
    MR_ENTRY(
        "schedule", p_schedule, "(): string",
        "The steps: queue, op, node, the steps for which each waits, and the steps that it can "
        "overlap; then the transfers of inputs and results during the previous and the next run."),
    MR_ENTRY("live", p_live, "(): table[]",
             "Storages at the peak of memory, largest first: {bytes, purpose (kept, gradient, "
             "workspace, forward or region), op, node, block, origin}."),
    MR_ENTRY("profile", p_profile, "(parts: integer): integer[]",
             "Memory profile: the largest number of live arena bytes in each of n equal parts of a "
             "run."),
    MR_ENTRY("report", p_report, "(): string", "What is in memory at the peak, and what to do."),
    MR_ENTRY("measured", p_measured, "(): integer", "Bytes of the arena that a run has touched."),
    MR_ENTRY_END};
static const mr_bind_face program_face = {"mr.Program", "A graph compiled for an executor.",
                                          program_entries, free_program};

static const mr_bind_entry fetched_entries[] = {
    MR_ENTRY("ready", f_ready, "(): boolean", "Whether it has arrived."),
    MR_ENTRY("get", f_get, "(): mr.Tensor",
             "A copy of the output; waits until it has arrived. An executor keeps the last 64."),
    MR_ENTRY_END};
static const mr_bind_face fetched_face = {"mr.Fetched", "An output in transfer to the host.",
                                          fetched_entries, mr_free};

void mr_bind_program_type(lua_State *L)
{
    mr_bind_type(L, &program_face);
    mr_bind_type(L, &fetched_face);
}
