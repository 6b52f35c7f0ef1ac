/* bind: mr.Sweep - threads that read the files of index rows, for moonreel.data.examine.
 * Licence: Apache-2.0 */
#include "bind/room.h"

#include "moonreel/index.h"

#include <string.h>

#define SWEEP "mr.Sweep"

typedef struct sweep_options {
    const char *look;
    mr_sweep_options how;
} sweep_options;

const mr_bind_field mr_bind_sweep_fields[] = {
    MR_BIND_STR("look", sweep_options, look,
                "packets (default); frames: decode all frames; changes: also measure how much each "
                "frame differs from the previous one."),
    MR_BIND_INT("threads", sweep_options, how.threads, 0, 0, "0: one per processor."),
    MR_BIND_NUM("deadline_s", sweep_options, how.deadline_s, 0,
                "Seconds for a clip, in addition to its own length; 0: 60."),
    MR_BIND_BOOL("isolated", sweep_options, how.isolated,
                 "Each thread checks in a separate process."),
    MR_BIND_END};

static void free_sweep(void *s)
{
    mr_sweep_free(s);
}

// read the row numbers at `arg`, from 1, as ids; the caller frees their block
static uint64_t *check_rows(lua_State *L, int arg, uint64_t *n)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    *n = lua_rawlen(L, arg);
    uint64_t *ids = lua_newuserdatauv(L, sizeof *ids * (size_t)(*n + 1), 0);
    for (uint64_t i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, (lua_Integer)i + 1);
        ids[i] = (uint64_t)luaL_checkinteger(L, -1) - 1;
        lua_pop(L, 1);
    }
    return ids;
}

int mr_bind_sweep_new(lua_State *L)
{
    static const char *const looks[] = {"packets", "frames", "changes", NULL};
    mr_index_reader *reader = mr_bind_unbox(L, 1, mr_bind_index_type);
    sweep_options o = {0};
    mr_bind_options(L, 3, "index.sweep", mr_bind_sweep_fields, &o);
    const char *name = o.look ? o.look : looks[0];
    while (looks[o.how.look] && strcmp(looks[o.how.look], name))
        o.how.look++;
    if (!looks[o.how.look])
        return mr_bind_raise(L, MR_E_USAGE, "look: '%s'; expected packets, frames or changes",
                             name);
    uint64_t n;
    uint64_t *ids = check_rows(L, 2, &n);
    void **box = mr_bind_box(L, SWEEP);
    // the box keeps alive what the sweep borrows
    lua_pushvalue(L, -2);
    lua_setiuservalue(L, -2, 1);
    mr_sweep *s;
    mr_bind_check(L, mr_sweep_new(mr_index_reader_index(reader), ids, n, &o.how, &s));
    *box = s;
    return 1;
}

// sweep:next(seconds) -> {row, class, why, changes, keys}, or nil
static int sweep_next(lua_State *L)
{
    mr_seen seen;
    bool got;
    mr_bind_check(
        L, mr_sweep_next(mr_bind_unbox(L, 1, SWEEP), luaL_optnumber(L, 2, 0.1), &seen, &got));
    if (!got)
        return 0;
    lua_createtable(L, 0, 4);
    mr_bind_set_int(L, "row", (int64_t)seen.id + 1);
    if (seen.class) {
        MR_BIND_SET(L, seen, class, why);
    }
    if (seen.class && strcmp(seen.class, "keys") == 0) {
        lua_createtable(L, seen.n_keys, 0);
        for (int32_t i = 0; i < seen.n_keys; i++) {
            lua_pushinteger(L, seen.keys[i]);
            lua_rawseti(L, -2, i + 1);
        }
        lua_setfield(L, -2, "keys");
    }
    if (!seen.n_changes)
        return 1;
    lua_createtable(L, (int)MR_MIN(seen.n_changes, INT32_MAX), 0);
    for (int64_t i = 0; i < seen.n_changes; i++) {
        lua_pushnumber(L, seen.changes[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "changes");
    return 1;
}

static const mr_bind_entry sweep_entries[] = {
    MR_ENTRY(
        "next", sweep_next, "(seconds?: number): table?",
        "The result of the next row: {row, class, why, changes, keys}; nil after the time or the "
        "last row. class: the fault, nil: none; keys: for class \"keys\", the valid key frames."),
    MR_ENTRY_END};
static const mr_bind_face sweep_face = {SWEEP, "Threads that check the files of rows.",
                                        sweep_entries, free_sweep};

void mr_bind_sweep_type(lua_State *L)
{
    mr_bind_type(L, &sweep_face);
}
