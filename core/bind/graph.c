/* bind: moonreel.core.graph - builds graphs. params.c has the parameter tables, value.c the values.
 * Licence: Apache-2.0 */
#include "bind/room.h"

typedef struct graph_table {
    mr_graph_options o;
    bool no_save, edges;
} graph_table;

static const mr_bind_field graph_fields[] = {
    MR_BIND_BOOL("no_inplace", graph_table, o.no_inplace, "No op overwrites its input; for tests."),
    MR_BIND_BOOL("no_cheap", graph_table, o.no_cheap,
                 "Keep cheap values instead of computing them again."),
    MR_BIND_BOOL("no_fuse", graph_table, o.no_fuse, "Do not fuse ops: every op is a node."),
    MR_BIND_BOOL("fresh_gradients", graph_table, o.fresh_gradients,
                 "Gradients of parameters start at zero in each run."),
    MR_BIND_BOOL("no_save", graph_table, no_save,
                 "Ignore `save`: all values of a block are computed again."),
    MR_BIND_BOOL("edges", graph_table, edges,
                 "The device supports `edge` of conv3d: exec:edges()."),
    MR_BIND_END};

enum { NO_SAVE = 2, EDGES = 3 }; /* user values of a graph with these options */

static int g_new(lua_State *L)
{
    mr_params *params = lua_isnoneornil(L, 1) ? NULL : mr_bind_params(L, 1);
    graph_table t = {0};
    mr_bind_options(L, 2, "graph.graph", graph_fields, &t);
    void **box = mr_bind_box(L, "mr.Graph");
    mr_graph *g;
    mr_bind_check(L, mr_graph_new(params, &t.o, &g));
    *box = g;
    lua_pushboolean(L, t.no_save), lua_setiuservalue(L, -2, NO_SAVE);
    lua_pushboolean(L, t.edges), lua_setiuservalue(L, -2, EDGES);
    if (params)
        lua_pushvalue(L, 1), lua_setiuservalue(L, -2, 1);
    return 1;
}

static int g_edges(lua_State *L)
{
    mr_bind_graph(L, 1);
    lua_getiuservalue(L, 1, EDGES);
    return 1;
}

static int g_input(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 4, dim);
    mr_ref out;
    mr_bind_check(L, mr_graph_input(g, luaL_checkstring(L, 2), mr_bind_dtype(L, 3), n, dim, &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

/* The parameter of the graph's table whose name is argument `arg`. */
static int check_param(lua_State *L, const mr_graph *g, int arg)
{
    const char *name = luaL_checkstring(L, arg);
    mr_params *p = mr_graph_params(g);
    int id = p ? mr_params_find(p, name) : -1;
    if (id < 0)
        mr_bind_raise(L, MR_E_USAGE, "no parameter '%s' in the graph's table", name);
    return id;
}

static int g_param(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref out;
    mr_bind_check(L, mr_graph_param(g, check_param(L, g, 2), &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

static int g_window(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref out;
    mr_bind_check(L, mr_graph_window(g, mr_bind_ref_of(L, g, 2), luaL_checkinteger(L, 3),
                                     check_param(L, g, 4), &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

static int g_const(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_bind_push_value(L, 1, g, mr_bind_ref(L, g, 2));
    return 1;
}

static int g_region(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    int64_t dim[MR_MAX_RANK];
    int n = mr_bind_dims(L, 5, dim);
    mr_ref out;
    mr_space space =
        (mr_space)luaL_checkoption(L, 6, mr_bind_spaces[MR_SPACE_DEVICE], mr_bind_spaces);
    mr_bind_check(L, mr_graph_region(g, luaL_checkstring(L, 2), space, mr_bind_dtype(L, 3),
                                     luaL_checkinteger(L, 4), n, dim, &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

static int g_output(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_bind_check(L, mr_graph_output(g, luaL_checkstring(L, 2), mr_bind_ref_of(L, g, 3)));
    lua_settop(L, 1);
    return 1;
}

/* block(name, recompute, function() ... end): returns what the function returns. */
static int g_block(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    luaL_checktype(L, 4, LUA_TFUNCTION);
    lua_settop(L, 4);
    mr_bind_check(L, mr_graph_block_begin(g, luaL_checkstring(L, 2), lua_toboolean(L, 3)));
    int st = lua_pcall(L, 0, LUA_MULTRET, 0);
    mr_status end = mr_graph_block_end(mr_bind_graph(L, 1)); // f can have closed the graph
    if (st != LUA_OK)
        return lua_error(L);
    mr_bind_check(L, end);
    return lua_gettop(L) - 3;
}

/* queue(name, function() ... end): returns what the function returns. */
static int g_queue(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    luaL_checktype(L, 3, LUA_TFUNCTION);
    lua_settop(L, 3);
    const char *name = luaL_checkstring(L, 2);
    mr_queue queue = mr_queue_find(name), before;
    if (queue == MR_QUEUE_COUNT)
        return mr_bind_raise(L, MR_E_USAGE,
                             "queue '%s': expected compute, comm_intra, comm_inter, h2d or d2h",
                             name);
    mr_bind_check(L, mr_graph_set_queue(g, queue, &before));
    int st = lua_pcall(L, 0, LUA_MULTRET, 0);
    g = mr_bind_graph(L, 1); // f can have closed the graph
    if (!mr_graph_finished(g))
        mr_graph_set_queue(g, before, NULL);
    if (st != LUA_OK)
        return lua_error(L);
    return lua_gettop(L) - 2;
}

static int g_move(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref x = mr_bind_ref_of(L, g, 2), out;
    int space = luaL_checkoption(L, 3, NULL, mr_bind_spaces);
    mr_ref after = lua_isnoneornil(L, 4) ? MR_NONE : mr_bind_ref_of(L, g, 4);
    mr_bind_check(L, mr_graph_move(g, x, (mr_space)space, after, &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

static int g_put(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref x = mr_bind_ref_of(L, g, 2), out;
    mr_bind_check(L, mr_graph_put(g, x, mr_bind_ref_of(L, g, 3), &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

static int g_offload(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_bind_check(L, mr_graph_offload(g, mr_bind_ref_of(L, g, 2)));
    lua_settop(L, 2);
    return 1;
}

static int g_save(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref x = mr_bind_ref_of(L, g, 2);
    lua_getiuservalue(L, 1, NO_SAVE);
    if (!lua_toboolean(L, -1))
        mr_bind_check(L, mr_graph_save(g, x));
    lua_settop(L, 2);
    return 1;
}

/* (loss, {x, y}) -> {dx, dy}, by mr_graph_backward or a similar function; an absent gradient is
 * false */
static int differentiate(lua_State *L,
                         mr_status (*by)(mr_graph *, mr_ref, const mr_ref *, int, mr_ref *))
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref loss = mr_bind_ref_of(L, g, 2);
    mr_ref wrt[64], grad[64];
    int n = lua_isnoneornil(L, 3) ? 0 : (int)luaL_len(L, 3);
    luaL_argcheck(L, n <= 64, 3, "at most 64 values");
    for (int i = 0; i < n; i++) {
        lua_geti(L, 3, i + 1);
        wrt[i] = mr_bind_ref_of(L, g, lua_gettop(L));
        lua_pop(L, 1);
    }
    mr_bind_set_origin(L, g);
    mr_bind_check(L, by(g, loss, wrt, n, grad));
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        if (grad[i] == MR_NONE)
            lua_pushboolean(L, 0);
        else
            mr_bind_push_value(L, 1, g, grad[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int g_backward(lua_State *L)
{
    return differentiate(L, mr_graph_backward);
}

static int g_gradients(lua_State *L)
{
    return differentiate(L, mr_graph_gradients);
}

static int g_detach(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    mr_ref out;
    mr_bind_check(L, mr_graph_detach(g, mr_bind_ref_of(L, g, 2), &out));
    mr_bind_push_value(L, 1, g, out);
    return 1;
}

static int g_echo(lua_State *L)
{
    mr_bind_check(L, mr_graph_echo(mr_bind_graph(L, 1), mr_bind_graph(L, 2)));
    lua_settop(L, 1);
    return 1;
}

static int g_op_log(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_graph_op_log(mr_bind_graph(L, 1), text));
    lua_pushstring(L, *text);
    return 1;
}

static int g_finish(lua_State *L)
{
    mr_bind_check(L, mr_graph_finish(mr_bind_graph(L, 1)));
    lua_settop(L, 1);
    return 1;
}

static int g_print(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_graph_print(mr_bind_graph(L, 1), text));
    lua_pushstring(L, *text);
    return 1;
}

static int g_schedule(lua_State *L)
{
    lua_settop(L, 2);
    const mr_exec *exec = lua_isnil(L, 2) ? NULL : mr_bind_exec(L, 2);
    int regions = exec ? mr_exec_regions(exec) : 0, n = 0;
    const char **shared = mr_bind_scratch(L, (size_t)regions * sizeof *shared);
    char **text = (char **)mr_bind_hold(L);
    mr_schedule *s;
    for (int i = 0; i < regions; i++)
        if (mr_exec_region_at(exec, i)->shared)
            shared[n++] = mr_exec_region_at(exec, i)->name;
    mr_bind_check(L, mr_schedule_new(mr_bind_graph(L, 1), shared, n, &s));
    mr_status st = mr_schedule_print(s, text);
    mr_schedule_free(s);
    mr_bind_check(L, st);
    lua_pushstring(L, *text);
    return 1;
}

static int g_outputs(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    int n = mr_graph_outputs(g);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const char *name;
        mr_graph_output_at(g, i, &name);
        lua_pushstring(L, name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int g_inputs(lua_State *L)
{
    mr_graph *g = mr_bind_graph(L, 1);
    lua_newtable(L);
    for (int i = 0; i < mr_graph_storages(g); i++) {
        const mr_storage *s = mr_graph_storage(g, i);
        if (s->kind != MR_INPUT)
            continue;
        mr_bind_push_value(L, 1, g, mr_graph_input_find(g, s->name));
        lua_setfield(L, -2, s->name);
    }
    return 1;
}

/* concat({v1, v2, ...}, axis): values, or eager tensors. */
static int g_concat(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int n = (int)luaL_len(L, 1);
    int64_t axis = luaL_checkinteger(L, 2);
    lua_settop(L, 2);
    if (n < 1)
        return mr_bind_raise(L, MR_E_USAGE, "concat: expected at least one tensor or value");
    lua_geti(L, 1, 1);
    mr_bind_value *v = luaL_testudata(L, 3, MR_VALUE);
    if (!v) { // eager tensors: join in pairs, within the number of inputs of an op
        for (int i = 2; i <= n; i++) {
            lua_settop(L, 3);
            lua_geti(L, 1, i);
            lua_createtable(L, 0, 1);
            lua_pushinteger(L, axis), lua_setfield(L, -2, "axis");
            mr_bind_call_op(L, "concat", 3, 5);
            lua_replace(L, 3);
        }
        lua_settop(L, 3);
        return 1;
    }
    mr_bind_value_at(L, 3);
    mr_ref *parts = mr_bind_scratch(L, sizeof *parts * (size_t)n), out;
    mr_bind_set_origin(L, v->graph);
    for (int i = 0; i < n; i++) {
        lua_geti(L, 1, i + 1);
        parts[i] = mr_bind_ref(L, v->graph, lua_gettop(L));
        lua_pop(L, 1);
    }
    mr_bind_check(L, mr_graph_concat(v->graph, parts, n, (int)axis, &out));
    lua_getiuservalue(L, 3, 1);
    mr_bind_push_value(L, -1, v->graph, out);
    return 1;
}

static void free_graph(void *g)
{
    mr_graph_free(g);
}

static const mr_bind_entry graph_module_entries[] = {
    MR_ENTRY("params", mr_bind_params_new, "(dtype: mr.Dtype): mr.Params",
             "An empty table of parameters; dtype is that of compute."),
    MR_ENTRY_OPTIONS("graph", g_new, "(params?: mr.Params, options?: table): mr.Graph",
                     "An empty graph.", graph_fields),
    MR_ENTRY("op", mr_bind_op_by_name, "(name: string, inputs: any[], attributes?: table): ...",
             "Call an op by its name, as ops.NAME; inputs can have holes."),
    MR_ENTRY("concat", g_concat, "(parts: any[], axis: integer): any",
             "Join tensors or values along an axis."),
    MR_ENTRY_END};
static const mr_bind_face graph_module_face = {
    "moonreel.core.graph", "Graphs: values, their gradients, tables of parameters.",
    graph_module_entries, NULL};

static const mr_bind_entry graph_entries[] = {
    MR_ENTRY("input", g_input, "(name: string, dtype: mr.Dtype, dims: integer[]): mr.Value",
             "An input, which program:set() sets."),
    MR_ENTRY("param", g_param, "(name: string): mr.Value", "A parameter of the table."),
    MR_ENTRY("window", g_window, "(gathered: mr.Value, first: integer, name: string): mr.Value",
             "A parameter inside gathered weights, whose first element is `first` of all."),
    MR_ENTRY("const", g_const, "(values: mr.Tensor): mr.Value", "A constant."),
    MR_ENTRY("region", g_region,
             "(region: string, dtype: mr.Dtype, offset: integer, dims: integer[], space?: string): "
             "mr.Value",
             "A range of a region of the executor, on the device or in pinned host memory."),
    MR_ENTRY("output", g_output, "(name: string, value: mr.Value): mr.Graph",
             "Name a value that program:get() reads."),
    MR_ENTRY("block", g_block, "(name: string, recompute: boolean, f: fun(): ...): ...",
             "The nodes that f adds form a block; recompute: compute them again in the backward "
             "pass. Returns the results of f."),
    MR_ENTRY("queue", g_queue, "(name: string, f: fun(): ...): ...",
             "The nodes that f adds run on that queue (compute, comm_intra, comm_inter, h2d, d2h), "
             "in parallel with other queues if data allows it. Returns the results of f."),
    MR_ENTRY("save", g_save, "(value: mr.Value): mr.Value", "Keep a value of a recomputed block."),
    MR_ENTRY("move", g_move, "(value: mr.Value, space: string, after?: mr.Value): mr.Value",
             "A copy of a value in another memory: device, or pinned (host). It starts when "
             "`after`, a value of another queue, is computed."),
    MR_ENTRY("put", g_put, "(value: mr.Value, region: mr.Value): mr.Value",
             "Copy a value to a range of a region in the other memory."),
    MR_ENTRY("offload", g_offload, "(value: mr.Value): mr.Value",
             "Keep a value for the backward pass in host memory."),
    MR_ENTRY("backward", g_backward, "(loss: mr.Value, wrt?: mr.Value[]): (mr.Value|false)[]",
             "Add the backward pass of a scalar loss: gradients of the parameters, and those of "
             "wrt, which it returns; false: no gradient."),
    MR_ENTRY(
        "gradients", g_gradients, "(loss: mr.Value, wrt: mr.Value[]): (mr.Value|false)[]",
        "Gradients of a scalar with respect to wrt only, before backward; parameters get none."),
    MR_ENTRY("detach", g_detach, "(value: mr.Value): mr.Value",
             "The same value as a constant: no gradient passes through it."),
    MR_ENTRY("echo", g_echo, "(like: mr.Graph): mr.Graph",
             "Repeat the collectives of `like`, for a rank that computes nothing meanwhile."),
    MR_ENTRY("op_log", g_op_log, "(): string", "Its collectives, in order."),
    MR_ENTRY("finish", g_finish, "(): mr.Graph",
             "Finish the graph: check it, remove dead nodes, choose in-place outputs."),
    MR_ENTRY("print", g_print, "(): string", "The graph as text."),
    MR_ENTRY("schedule", g_schedule, "(exec?: mr.Exec): string",
             "The steps of a run of the finished graph: queue, op, node, the steps waited for, and "
             "which steps they may overlap. exec: knows which regions share memory; absent: "
             "regions of different names do not."),
    MR_ENTRY("inputs", g_inputs, "(): table<string, mr.Value>", "Names of the inputs."),
    MR_ENTRY("outputs", g_outputs, "(): string[]", "Names of the outputs."),
    MR_ENTRY("edges", g_edges, "(): boolean", "Whether its device supports `edge` of conv3d."),
    MR_ENTRY_END};
static const mr_bind_face graph_face = {
    "mr.Graph", "A graph under construction; finish it to compile it.", graph_entries, free_graph};

MR_BIND_ROOM(graph)
{
    mr_bind_type(L, &graph_face);
    mr_bind_params_type(L);
    mr_bind_value_type(L);
    return mr_bind_module(L, &graph_module_face);
}
