/* bind: moonreel.core.exec - executors on devices (device.c), and their programs (program.c).
 * Objects may be closed in any order: a device lives as long as its executors, and closing an
 * executor closes its programs. Licence: Apache-2.0 */
#include "bind/room.h"

#include <string.h>

static void free_executor(void *object)
{
    executor *e = object;
    for (program *p = e->programs; p; p = p->next)
        p->prog = NULL, p->of = NULL;
    mr_exec_free(e->exec);
    if (e->dev)
        mr_bind_device_unref(e->dev);
    mr_free(e);
}

/* ---- regions of an optimizer ---- */

/* A region from Lua; texts are lent while its table lives. */
typedef struct region_table {
    const char *name, *dtype, *role, *prefix, *space;
    int64_t start, stop, per;
    bool transient;
} region_table;

static const mr_bind_field region_fields[] = {
    MR_BIND_STR("name", region_table, name, "Name in graphs."),
    MR_BIND_STR("dtype", region_table, dtype, "Dtype of its elements."),
    MR_BIND_STR("role", region_table, role, "state, master, average or weights."),
    MR_BIND_STR("prefix", region_table, prefix, "Prefix of its tensors in a checkpoint."),
    MR_BIND_INT("start", region_table, start, 0, 0, "First element of the trainable range."),
    MR_BIND_INT("stop", region_table, stop, 0, 0, "End of the range; 0: all."),
    MR_BIND_INT("per", region_table, per, 1, 1, "Trainable elements per element of the region."),
    MR_BIND_STR("space", region_table, space, "device, or pinned: in host memory."),
    MR_BIND_BOOL("transient", region_table, transient,
                 "In the arena: its content is valid from the run that writes it until a run that "
                 "does not use it."),
    MR_BIND_END};

static const char *const role_names[] = {[MR_ROLE_STATE] = "state",
                                         [MR_ROLE_MASTER] = "master",
                                         [MR_ROLE_AVERAGE] = "average",
                                         [MR_ROLE_WEIGHTS] = "weights",
                                         [MR_ROLE_FROZEN] = "frozen"};

/* The region in the table on top of the stack. */
static mr_region read_region(lua_State *L)
{
    region_table t = {0};
    mr_bind_options(L, lua_gettop(L), "exec.new: regions", region_fields, &t);
    if (!t.name || !t.dtype)
        mr_bind_raise(L, MR_E_USAGE, "exec.new: a region needs a name and a dtype");
    int role = t.role ? 0 : MR_ROLE_STATE;
    while (t.role && role <= MR_ROLE_WEIGHTS && strcmp(role_names[role], t.role) != 0)
        role++;
    if (role > MR_ROLE_WEIGHTS)
        mr_bind_raise(L, MR_E_USAGE,
                      "exec.new: region '%s' is '%s'; expected state, master, average or weights",
                      t.name, t.role);
    int space = t.space ? 0 : MR_SPACE_DEVICE;
    while (t.space && mr_bind_spaces[space] && strcmp(mr_bind_spaces[space], t.space) != 0)
        space++;
    if (!mr_bind_spaces[space])
        mr_bind_raise(L, MR_E_USAGE,
                      "exec.new: region '%s': space is '%s'; expected device or pinned", t.name,
                      t.space);
    lua_getfield(L, -1, "dtype");
    mr_dtype dtype = mr_bind_dtype(L, lua_gettop(L));
    lua_pop(L, 1);
    return (mr_region){.name = t.name,
                       .dtype = dtype,
                       .role = (mr_region_role)role,
                       .prefix = t.prefix,
                       .start = t.start,
                       .stop = t.stop,
                       .per = t.per,
                       .transient = t.transient,
                       .space = (mr_space)space};
}

/* Read the list `regions` of the options at `arg`; its memory stays on the stack. */
static void read_regions(lua_State *L, int arg, mr_exec_options *o)
{
    int n = 0;
    if (lua_type(L, arg) == LUA_TTABLE && lua_getfield(L, arg, "regions") == LUA_TTABLE)
        n = (int)luaL_len(L, -1);
    else if (!lua_isnil(L, -1))
        mr_bind_raise(L, MR_E_USAGE, "exec.new: regions: expected a list of tables");
    mr_region *regions = mr_bind_scratch(L, (size_t)n * sizeof *regions);
    for (int i = 0; i < n; i++) {
        lua_geti(L, -2, i + 1);
        regions[i] = read_region(L);
        lua_pop(L, 1);
    }
    o->regions = regions, o->n_regions = n;
}

/* ---- executors ---- */

static const mr_bind_field exec_fields[] = {
    MR_BIND_ANY("regions", "table[]",
                "Regions of an optimizer: tables of name, dtype, role, prefix, start, stop, per, "
                "space, transient."),
    MR_BIND_BOOL("poison", mr_exec_options, poison,
                 "Fill the arena with poison before each run; for tests."),
    MR_BIND_BOOL("no_reuse", mr_exec_options, no_reuse,
                 "Share no memory between values; for tests."),
    MR_BIND_END};

/* Box an executor with the parameters at 2: on a device, or, if d is NULL, one that only plans by
 * facts. */
static executor *push_executor(lua_State *L, device *d, const mr_facts *facts,
                               const mr_exec_options *o)
{
    mr_params *params = lua_isnoneornil(L, 2) ? NULL : mr_bind_params(L, 2);
    void **box = mr_bind_box(L, "mr.Exec");
    executor *e;
    if (!MR_NEW(e))
        mr_bind_check(L, mr_fail_memory(sizeof *e));
    mr_status st =
        d ? mr_exec_new(d->dev, params, o, &e->exec) : mr_exec_plan(facts, params, o, &e->exec);
    if (st != MR_OK)
        mr_free(e);
    mr_bind_check(L, st);
    if (d)
        e->dev = d, d->refs++;
    *box = e;
    lua_pushvalue(L, 1), lua_setiuservalue(L, -2, 1);
    lua_pushvalue(L, 2), lua_setiuservalue(L, -2, 2);
    return e;
}

static int e_new(lua_State *L)
{
    device *d = mr_bind_device(L, 1);
    lua_settop(L, 3);
    mr_exec_options o = {0};
    mr_bind_options(L, 3, "exec.new", exec_fields, &o);
    read_regions(L, 3, &o);
    push_executor(L, d, NULL, &o);
    return 1;
}

/* ---- executors that only plan ---- */

static const mr_bind_field plan_fields[] = {
    MR_BIND_ANY("regions", "table[]", "As of exec.new."),
    MR_BIND_ANY("facts", "table", "As device:facts() gives them; absent: this processor's."),
    MR_BIND_ANY("rates", "mr.Device",
                "By whose rates it predicts seconds, which the device measures when needed."),
    MR_BIND_END};

/* plan(params?, options?): inserts an argument 1, which is the device in exec.new */
static int e_plan(lua_State *L)
{
    lua_settop(L, 2);
    lua_pushnil(L), lua_insert(L, 1);
    mr_exec_options o = {0};
    mr_bind_options(L, 3, "exec.plan", plan_fields, &o);
    bool given = lua_istable(L, 3);
    if (given)
        lua_getfield(L, 3, "facts");
    else
        lua_pushnil(L);
    mr_facts facts = mr_bind_facts(L);
    read_regions(L, 3, &o);
    executor *e = push_executor(L, NULL, &facts, &o);
    int box = lua_gettop(L);
    if (given && lua_getfield(L, 3, "rates") != LUA_TNIL) {
        e->dev = mr_bind_device(L, -1), e->dev->refs++;
        mr_exec_rates(e->exec, e->dev->dev);
    }
    lua_settop(L, box);
    return 1;
}

static int x_sync(lua_State *L)
{
    mr_bind_check(L, mr_exec_sync(mr_bind_exec(L, 1)));
    return 0;
}

static int x_edges(lua_State *L)
{
    lua_pushboolean(L, mr_exec_edges(mr_bind_exec(L, 1)));
    return 1;
}

/* waits() -> {all, results, inputs} */
static int x_waits(lua_State *L)
{
    mr_waits w = mr_exec_waits(mr_bind_exec(L, 1));
    lua_createtable(L, 0, 3);
    MR_BIND_SET(L, w, all, results, inputs);
    return 1;
}

static int x_init(lua_State *L)
{
    mr_bind_check(L, mr_exec_init_params(mr_bind_exec(L, 1), (uint64_t)luaL_checkinteger(L, 2)));
    return 0;
}

static int x_refresh(lua_State *L)
{
    mr_bind_check(L, mr_exec_refresh(mr_bind_exec(L, 1)));
    return 0;
}

static int x_has(lua_State *L)
{
    lua_pushboolean(L, mr_exec_region(mr_bind_exec(L, 1), luaL_checkstring(L, 2)) != NULL);
    return 1;
}

/* regions() -> list of rows */
static int x_regions(lua_State *L)
{
    const mr_exec *exec = mr_bind_exec(L, 1);
    int n = mr_exec_regions(exec);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        const mr_region *r = mr_exec_region_at(exec, i);
        lua_createtable(L, 0, 11);
        MR_BIND_SET(L, *r, name, prefix, start, stop, per, shared, transient);
        mr_bind_set_str(L, "space", mr_bind_spaces[r->space]);
        mr_bind_set_str(L, "dtype", mr_dtype_name(r->dtype));
        mr_bind_set_str(L, "role", role_names[r->role]);
        mr_bind_set_int(L, "bytes", (int64_t)mr_region_bytes(r));
        lua_seti(L, -2, i + 1);
    }
    return 1;
}

/* host(region) -> pointer, bytes; nothing if the region is not in host memory */
static int x_host(lua_State *L)
{
    mr_exec *exec = mr_bind_exec(L, 1);
    const char *region = luaL_checkstring(L, 2);
    mr_bind_check(L, mr_exec_sync(exec));
    const void *at = mr_exec_host(exec, region);
    if (!at)
        return 0;
    lua_pushlightuserdata(L, (void *)at);
    lua_pushinteger(L, (lua_Integer)mr_region_bytes(mr_exec_region(exec, region)));
    return 2;
}

/* The offset of `at` elements of `size` bytes, in bytes. */
static size_t bytes_at(lua_State *L, int64_t at, size_t size)
{
    if (at < 0 || (uint64_t)at > MR_BYTES_MAX / size)
        mr_bind_raise(L, MR_E_RANGE, "offset %lld; expected 0 or more, within a region",
                      (long long)at);
    return (size_t)at * size;
}

static void push_region(lua_State *L, mr_exec *exec, const char *region, int64_t at,
                        const mr_desc *d)
{
    size_t size = mr_dtype_bytes(d->dtype), from = bytes_at(L, at, size);
    mr_tensor **t = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(d->dtype, d->rank, d->dim, t));
    mr_bind_check(L, mr_exec_read(exec, region, from, mr_tensor_view(*t)->data,
                                  (size_t)mr_desc_count(d) * size));
}

/* read(region, dtype, offset in elements, dims) -> tensor */
static int x_read(lua_State *L)
{
    int64_t dim[MR_MAX_RANK];
    mr_exec *exec = mr_bind_exec(L, 1);
    int rank = mr_bind_dims(L, 5, dim);
    mr_desc d = mr_desc_dense(mr_bind_dtype(L, 3), rank, dim);
    push_region(L, exec, luaL_checkstring(L, 2), luaL_checkinteger(L, 4), &d);
    return 1;
}

/* hash(region, offset, count in elements) -> integer: 64 bits of XXH3 over the bytes */
static int x_hash(lua_State *L)
{
    enum { PIECE = 1 << 20 };
    mr_exec *exec = mr_bind_exec(L, 1);
    const char *name = luaL_checkstring(L, 2);
    const mr_region *region = mr_exec_region(exec, name);
    size_t size = region ? mr_dtype_bytes(region->dtype) : 1,
           at = bytes_at(L, luaL_checkinteger(L, 3), size),
           bytes = bytes_at(L, luaL_checkinteger(L, 4), size);
    const char *host = mr_exec_host(exec, name);
    char *piece = mr_bind_scratch(L, host ? 1 : PIECE);
    uint64_t hash = 0;
    // check the range, and wait for running work
    if (host)
        mr_bind_check(L, mr_exec_sync(exec));
    mr_bind_check(L, mr_exec_read(exec, name, at + bytes, piece, 0));
    for (size_t from = at, stop = at + bytes; from < stop; from += PIECE) {
        size_t n = MR_MIN(stop - from, (size_t)PIECE);
        if (!host)
            mr_bind_check(L, mr_exec_read(exec, name, from, piece, n));
        hash = MR_MIX(hash, mr_hash64(host ? host + from : piece, n));
    }
    lua_pushinteger(L, (lua_Integer)hash);
    return 1;
}

/* write(region, offset in elements, tensor): copy bytes of a dense tensor */
static int x_write(lua_State *L)
{
    mr_exec *exec = mr_bind_exec(L, 1);
    const mr_view *v = mr_tensor_view(mr_bind_tensor(L, 4));
    if (!mr_desc_is_dense(&v->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "write: the tensor is strided; try: t:clone()");
    size_t size = mr_dtype_bytes(v->desc.dtype);
    mr_bind_check(L, mr_exec_write(exec, luaL_checkstring(L, 2),
                                   bytes_at(L, luaL_checkinteger(L, 3), size), v->data,
                                   (size_t)mr_desc_count(&v->desc) * size));
    return 0;
}

/* The part of region 2 that belongs to parameter 3. */
typedef struct part {
    const mr_param *param;
    const char *region;
    int64_t at; /* offset in the region, in elements */
    mr_desc desc;
} part;

/* Find the part. A frozen parameter has its weight in region frozen, and no master or average. */
static part check_part(lua_State *L, const mr_exec *exec)
{
    lua_getiuservalue(L, 1, 2);
    if (lua_isnil(L, -1))
        mr_bind_raise(L, MR_E_USAGE, "this executor has no parameter table");
    const mr_params *params = mr_bind_params(L, -1);
    lua_pop(L, 1);
    part p = {.region = luaL_checkstring(L, 2)};
    int id = mr_params_find(params, luaL_checkstring(L, 3));
    if (id < 0)
        mr_bind_raise(L, MR_E_USAGE, "no parameter '%s'", lua_tostring(L, 3));
    p.param = mr_params_at(params, id);
    const mr_region *region = mr_exec_region(exec, p.region);
    if (!region)
        mr_bind_check(L, mr_exec_read((mr_exec *)exec, p.region, 0, NULL, 0)); // fails with a list
                                                                               // of the regions
    if (p.param->frozen && region->role == MR_ROLE_WEIGHTS)
        region = mr_exec_region(exec, "frozen");
    int64_t count;
    mr_bind_check(L, mr_region_find(region, p.param, &p.at, &count));
    p.region = region->name;
    p.desc = region->per == 1 ? mr_desc_dense(region->dtype, p.param->desc.rank, p.param->desc.dim)
                              : mr_desc_dense(region->dtype, 1, &count);
    return p;
}

/* param(region, name) -> tensor of the region's dtype */
static int x_param(lua_State *L)
{
    mr_exec *exec = mr_bind_exec(L, 1);
    part p = check_part(L, exec);
    push_region(L, exec, p.region, p.at, &p.desc);
    return 1;
}

/* set_param(region, name, tensor): converts to the dtype of the region */
static int x_set_param(lua_State *L)
{
    mr_exec *exec = mr_bind_exec(L, 1);
    part p = check_part(L, exec);
    const mr_view *v = mr_tensor_view(mr_bind_tensor(L, 4));
    char came[128], want[128];
    if (!mr_desc_same_shape(&v->desc, &p.desc))
        return mr_bind_raise(L, MR_E_SHAPE,
                             "parameter '%s' is %s, the given tensor is %s; expected equal shapes",
                             p.param->name, mr_desc_text(&p.desc, want, sizeof want),
                             mr_desc_text(&v->desc, came, sizeof came));
    size_t size = mr_dtype_bytes(p.desc.dtype), bytes = (size_t)mr_desc_count(&p.desc) * size;
    mr_view dense = {mr_bind_scratch(L, bytes), p.desc};
    mr_bind_check(L, mr_view_copy(&dense, v));
    mr_bind_check(L, mr_exec_write(exec, p.region, (size_t)p.at * size, dense.data, bytes));
    return 0;
}

static const mr_bind_entry exec_module_entries[] = {
    MR_ENTRY("device", mr_bind_device_open, "(name?: string, threads?: integer): mr.Device",
             "Open a device: cpu, shadow or, with its plug-in, cuda (cuda:1 is the second); "
             "default: MOONREEL_DEVICE or cpu. Up to 4096 threads, 0: all."),
    MR_ENTRY_OPTIONS(
        "new", e_new, "(device: mr.Device, params?: mr.Params, options?: table): mr.Exec",
        "An executor: the memory of the parameters, and programs over it.", exec_fields),
    MR_ENTRY_OPTIONS("plan", e_plan, "(params?: mr.Params, options?: table): mr.Exec",
                     "An executor without a device: its programs predict bytes, cost and seconds, "
                     "and need no memory.",
                     plan_fields),
    MR_ENTRY_END};
static const mr_bind_face exec_module_face = {"moonreel.core.exec",
                                              "Devices, executors and programs: graphs that run.",
                                              exec_module_entries, NULL};

static const mr_bind_entry exec_entries[] = {
    MR_ENTRY("compile", mr_bind_program_new, "(graph: mr.Graph): mr.Program",
             "Compile a finished graph for this executor."),
    MR_ENTRY("sync", x_sync, "()", "Wait until all enqueued work is done."),
    MR_ENTRY("waits", x_waits, "(): table",
             "Number of waits so far: {all, results, inputs} - for all enqueued work, for fetched "
             "results, for inputs in transfer."),
    MR_ENTRY("host", x_host, "(region: string): lightuserdata?, integer?",
             "Pointer and bytes of a region; nothing if it is not in host memory."),
    MR_ENTRY("edges", x_edges, "(): boolean", "Whether conv3d supports `edge` on this device."),
    MR_ENTRY("init", x_init, "(seed: integer)", "Set all parameters to their initial values."),
    MR_ENTRY("refresh", x_refresh, "()", "Compute weights from the masters."),
    MR_ENTRY("has", x_has, "(region: string): boolean", "Whether the region exists."),
    MR_ENTRY("regions", x_regions, "(): table[]",
             "All regions: name, dtype, role, prefix, start, stop, per, shared, transient, bytes."),
    MR_ENTRY("read", x_read,
             "(region: string, dtype: mr.Dtype, offset: integer, dims: integer[]): mr.Tensor",
             "Read elements from offset on, without conversion."),
    MR_ENTRY("hash", x_hash, "(region: string, offset: integer, count: integer): integer",
             "A 64-bit hash of a range of a region; offset and count in elements."),
    MR_ENTRY("write", x_write, "(region: string, offset: integer, values: mr.Tensor)",
             "Write elements from offset on: a dense tensor of the dtype of the region."),
    MR_ENTRY("param", x_param, "(region: string, name: string): mr.Tensor",
             "Read one parameter: its weight, master, gradient, ...; an error if the region does "
             "not have all of it."),
    MR_ENTRY("set_param", x_set_param, "(region: string, name: string, values: mr.Tensor)",
             "Write one parameter; converted to the region's dtype."),
    MR_ENTRY_END};
static const mr_bind_face exec_face = {
    "mr.Exec", "An executor. Its regions: w, frozen, and those that an optimizer declares.",
    exec_entries, free_executor};

MR_BIND_ROOM(exec)
{
    mr_bind_device_type(L);
    mr_bind_type(L, &exec_face);
    mr_bind_program_type(L);
    return mr_bind_module(L, &exec_module_face);
}
