/* bind: writes checkpoints: converts Lua tensors to items for a file or for the saver of a run.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include <math.h>

static const char saver_type[] = "mr.Saver";

static void read_bounds(lua_State *L, int list, const char *name, int64_t *from, int64_t *to)
{
    int first_is, last_is;
    lua_rawgeti(L, list, 1), lua_rawgeti(L, list, 2);
    *from = lua_tointegerx(L, -2, &first_is), *to = lua_tointegerx(L, -1, &last_is);
    if (!first_is || !last_is || lua_rawlen(L, list) != 2)
        mr_bind_raise(L, MR_E_USAGE, "tensor '%s': expected {from, to} of its range or box", name);
    lua_pop(L, 2);
}

void mr_bind_slice(lua_State *L, int t, const char *name, int rank, mr_ckpt_slice *out)
{
    int top = lua_gettop(L);
    *out = (mr_ckpt_slice){0};
    if (lua_getfield(L, t, "range") == LUA_TTABLE) {
        out->cut = MR_CKPT_RANGE;
        read_bounds(L, top + 1, name, &out->from[0], &out->to[0]);
    }
    if (lua_getfield(L, t, "box") == LUA_TTABLE) {
        if (out->cut != MR_CKPT_ALL || lua_rawlen(L, top + 2) != (lua_Unsigned)rank)
            mr_bind_raise(L, MR_E_USAGE,
                          "tensor '%s': expected a range, or a box of %d times {from, to}", name,
                          rank);
        out->cut = MR_CKPT_BOX;
        for (int d = 0; d < rank; d++) {
            if (lua_rawgeti(L, top + 2, d + 1) != LUA_TTABLE)
                mr_bind_raise(L, MR_E_USAGE, "tensor '%s': box[%d]: expected {from, to}", name,
                              d + 1);
            read_bounds(L, top + 3, name, &out->from[d], &out->to[d]);
            lua_pop(L, 1);
        }
    }
    lua_settop(L, top);
}

/* The place of an item in a region that is not in host memory. */
typedef struct place {
    mr_exec *exec;
    const char *region;
    size_t at; // bytes
} place;

static mr_status copy_place(void *user, void *dst, int64_t offset, int64_t n)
{
    const place *p = user;
    return mr_exec_read(p->exec, p->region, p->at + (size_t)offset, dst, (size_t)n);
}

/* Read the executor at the top of the stack, and region= and at= of its row. */
static void read_place(lua_State *L, int row, mr_ckpt_item *item, place *out)
{
    out->exec = mr_bind_exec(L, -1);
    lua_getfield(L, row, "region"), lua_getfield(L, row, "at");
    out->region = luaL_checkstring(L, -2);
    out->at = (size_t)luaL_checkinteger(L, -1);
    item->copy = copy_place, item->user = out;
}

/* Read an item {name=, dtype=, shape=, range= or box=, ptr= lightuserdata or text, or exec=,
 * region=, at=, bytes=} at the top of the stack. The caller's table keeps texts and executors
 * alive. */
static void read_item(lua_State *L, int row, mr_ckpt_item *item, place *where)
{
    int t = lua_gettop(L);
    if (!lua_istable(L, t))
        mr_bind_raise(L, MR_E_USAGE, "tensors[%d]: expected a table, got %s", row,
                      luaL_typename(L, t));
    if (lua_getfield(L, t, "name") != LUA_TSTRING)
        mr_bind_raise(L, MR_E_USAGE, "tensors[%d].name: expected text, got %s", row,
                      luaL_typename(L, -1));
    item->name = lua_tostring(L, -1);
    const char *dtype = lua_getfield(L, t, "dtype") == LUA_TSTRING ? lua_tostring(L, -1) : "";
    item->dtype = mr_st_dtype_from_name(dtype);
    if (item->dtype == MR_ST_DTYPE_COUNT)
        mr_bind_raise(L, MR_E_USAGE, "tensor '%s': unknown dtype '%s'", item->name, dtype);
    if (lua_getfield(L, t, "shape") != LUA_TTABLE)
        mr_bind_raise(L, MR_E_USAGE, "tensor '%s': shape: expected a list", item->name);
    lua_Unsigned rank = lua_rawlen(L, -1);
    if (rank > MR_ST_RANK_MAX)
        mr_bind_raise(L, MR_E_USAGE, "tensor '%s': more than %d dimensions", item->name,
                      MR_ST_RANK_MAX);
    item->rank = (int)rank;
    for (int i = 0; i < item->rank; i++) {
        int is_int;
        lua_rawgeti(L, t + 3, i + 1);
        item->shape[i] = lua_tointegerx(L, -1, &is_int);
        if (!is_int)
            mr_bind_raise(L, MR_E_USAGE, "tensor '%s': shape[%d]: expected an integer", item->name,
                          i + 1);
        lua_pop(L, 1);
    }
    int64_t want, have;
    mr_bind_slice(L, t, item->name, item->rank, &item->slice);
    mr_bind_check(L, mr_ckpt_item_bytes(item, &want));
    lua_getfield(L, t, "bytes");
    have = lua_tointeger(L, -1);
    int kind = lua_getfield(L, t, "ptr");
    if (kind == LUA_TSTRING) {
        size_t n;
        item->data = lua_tolstring(L, -1, &n), have = (int64_t)n;
    } else if (kind == LUA_TLIGHTUSERDATA) {
        item->data = lua_touserdata(L, -1);
    } else if (lua_getfield(L, t, "exec") == LUA_TUSERDATA) {
        read_place(L, t, item, where);
    } else {
        lua_pop(L, 1);
        mr_bind_raise(L, MR_E_USAGE, "tensor '%s': ptr: expected a pointer or text, got %s",
                      item->name, luaL_typename(L, -1));
        return;
    }
    if (have != want)
        mr_bind_raise(L, MR_E_SHAPE,
                      "tensor '%s' has %lld bytes by its shape, but %lld bytes are given; expected "
                      "equal numbers",
                      item->name, (long long)want, (long long)have);
    lua_settop(L, t);
}

static mr_ckpt_item *read_items(lua_State *L, int arg, int *n)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    *n = (int)lua_rawlen(L, arg);
    mr_ckpt_item *items = mr_bind_scratch(L, sizeof *items * (size_t)(*n + 1));
    place *places = mr_bind_scratch(L, sizeof *places * (size_t)(*n + 1));
    luaL_checkstack(L, 16, NULL);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, i + 1);
        read_item(L, i + 1, &items[i], &places[i]);
        lua_pop(L, 1);
    }
    return items;
}

int mr_bind_metadata(lua_State *L, int arg, mr_st_pair **out)
{
    int n = 0, at = 0;
    bool given = lua_istable(L, arg);
    if (given)
        for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1), n++)
            if (lua_type(L, -1) != LUA_TSTRING || lua_type(L, -2) != LUA_TSTRING)
                return mr_bind_raise(L, MR_E_USAGE, "metadata: expected texts only");
    mr_st_pair *pairs = *out = mr_bind_scratch(L, sizeof *pairs * (size_t)(n + 1));
    if (given)
        for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1))
            pairs[at++] = (mr_st_pair){lua_tostring(L, -2), lua_tostring(L, -1)};
    return n;
}

int mr_bind_ckpt_write(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int n;
    mr_ckpt_item *items = read_items(L, 2, &n);
    mr_st_pair *meta;
    int n_meta = mr_bind_metadata(L, 3, &meta);
    mr_bind_check(L, mr_safetensors_write(path, items, n, meta, n_meta));
    return 0;
}

const mr_bind_field mr_bind_saver_fields[] = {
    MR_BIND_ANY("lock", "mr.RunLock", "The lock of the run, if the caller has it."),
    MR_BIND_INT("rank", mr_saver_options, rank, 0, 0, "Number of this rank."),
    MR_BIND_INT("ranks", mr_saver_options, ranks, 0, 0,
                "Number of ranks that write each checkpoint; 0: one."),
    MR_BIND_INT("fence", mr_saver_options, fence, 0, 0,
                "From rank 1 on: the fencing number of that lock; 0: the current one."),
    MR_BIND_INT("keep", mr_saver_options, keep, 0, -1,
                "Newest checkpoints to keep; 0: 3, -1: all."),
    MR_BIND_INT("keep_every", mr_saver_options, keep_every, 0, 0,
                "Multiples of this step are kept permanently."),
    MR_BIND_INT("attempts", mr_saver_options, attempts, 0, 0, "Tries per save; 0: 3."),
    MR_BIND_INT("intervals_max", mr_saver_options, intervals_max, 0, 0,
                "Saves in a row without a commit before check() raises; 0: 3."),
    MR_BIND_NUM("deadline_s", mr_saver_options, deadline_s, 0,
                "Seconds of one save before it counts as stuck; 0: 600."),
    MR_BIND_INT("buffer_bytes", mr_saver_options, buffer_bytes, 0, 0,
                "Bytes of the host buffer of a save while save() waits; 0: copy all."),
    MR_BIND_END};

int mr_bind_saver_new(lua_State *L)
{
    mr_saver_options opt = {0};
    if (lua_type(L, 1) == LUA_TSTRING)
        opt.run_dir = lua_tostring(L, 1);
    else
        opt.lock = mr_bind_unbox(L, 1, mr_bind_lock_type);
    mr_bind_options(L, 2, "ckpt.saver", mr_bind_saver_fields, &opt);
    void **box = mr_bind_box(L, saver_type);
    mr_saver *saver;
    mr_bind_check(L, mr_saver_open(&opt, &saver));
    *box = saver;
    return 1;
}

/* save(step, tensors, meta_json [, wait]) -> true if the snapshot was taken */
static int s_save(lua_State *L)
{
    mr_saver *s = mr_bind_unbox(L, 1, saver_type);
    int64_t step = luaL_checkinteger(L, 2);
    const char *meta = luaL_optstring(L, 4, NULL);
    bool wait = lua_toboolean(L, 5);
    int n;
    mr_ckpt_item *items = read_items(L, 3, &n);
    bool taken;
    mr_bind_check(L, mr_saver_save(s, step, items, n, meta, wait, &taken));
    lua_pushboolean(L, taken);
    return 1;
}

static int s_prepare(lua_State *L)
{
    mr_saver *s = mr_bind_unbox(L, 1, saver_type);
    int n;
    mr_ckpt_item *items = read_items(L, 2, &n);
    mr_bind_check(L, mr_saver_prepare(s, items, n, (int)luaL_optinteger(L, 3, 2)));
    return 0;
}

static int s_wait(lua_State *L)
{
    mr_bind_check(L,
                  mr_saver_wait(mr_bind_unbox(L, 1, saver_type), luaL_optnumber(L, 2, INFINITY)));
    return 0;
}

static int s_check(lua_State *L)
{
    mr_bind_check(L, mr_saver_check(mr_bind_unbox(L, 1, saver_type)));
    return 0;
}

static int s_part(lua_State *L)
{
    mr_saver_part(mr_bind_unbox(L, 1, saver_type), luaL_checknumber(L, 2));
    return 0;
}

static int s_status(lua_State *L)
{
    mr_saver_status s;
    mr_saver_get_status(mr_bind_unbox(L, 1, saver_type), &s);
    lua_createtable(L, 0, 5);
    MR_BIND_SET(L, s, commits, failures, failures_in_row, pending);
    if (s.last_commit >= 0)
        MR_BIND_SET(L, s, last_commit);
    return 1;
}

static int s_poll(lua_State *L)
{
    mr_saver_event e;
    if (!mr_saver_poll(mr_bind_unbox(L, 1, saver_type), &e))
        return 0;
    lua_createtable(L, 0, 6);
    mr_bind_set_str(L, "kind", mr_saver_kind_name(e.kind));
    MR_BIND_SET(L, e, step, bytes, copy_s, write_s, text);
    return 1;
}

static void free_saver(void *object)
{
    mr_saver_close(object);
}

static const mr_bind_entry saver_entries[] = {
    MR_ENTRY("save", s_save,
             "(step: integer, tensors: table[], meta: string, wait?: boolean): boolean",
             "Take a snapshot; the thread commits it. False: it was skipped or, with buffer_bytes, "
             "not committed; poll() tells why."),
    MR_ENTRY("prepare", s_prepare, "(tensors: table[], buffers?: integer)",
             "Allocate 1 or 2 buffers now (default 2), so that no save does."),
    MR_ENTRY("wait", s_wait, "(timeout_s?: number)",
             "Wait until no save is pending; raises if the newest save has no commit."),
    MR_ENTRY("check", s_check, "()",
             "Raise if saves keep failing, or if another process has taken over the run."),
    MR_ENTRY("part", s_part, "(seconds: number)",
             "Ranks are lost: wait at most this long for the parts of the others."),
    MR_ENTRY("status", s_status, "(): table",
             "{commits, failures, failures_in_row, pending, last_commit}."),
    MR_ENTRY("poll", s_poll, "(): table?",
             "The next event not yet returned: {kind, step, bytes, copy_s, write_s, text}."),
    MR_ENTRY_END};
static const mr_bind_face saver_face = {
    "mr.Saver", "Takes snapshots of a run and commits them in a separate thread.", saver_entries,
    free_saver};

void mr_bind_saver_type(lua_State *L)
{
    mr_bind_type(L, &saver_face);
}
