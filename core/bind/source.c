/* bind: mr.Subset, a subset of the samples of an index, and the sources from which an order or a
 * loader draws. Licence: Apache-2.0 */
#include "bind/room.h"

/* ---- subsets of an index ---- */

#define SUBSET "mr.Subset"

static void free_subset(void *set)
{
    mr_subset_unref(set);
}

typedef struct hold_options {
    double hold_back;
    bool held;
} hold_options;

const mr_bind_field mr_bind_quantiles_fields[] = {
    MR_BIND_STR("column", mr_quantiles, column, "A column of the index, required."),
    MR_BIND_NUM("from", mr_quantiles, from, 0, "Lower quantile, among samples with a value."),
    MR_BIND_NUM("to", mr_quantiles, to, 1, "Upper quantile."),
    MR_BIND_NUM("trim_top", mr_quantiles, trim_top, 0,
                "Share of the largest values that is removed first."),
    MR_BIND_END};

int mr_bind_quantiles(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, mr_bind_index_type);
    mr_quantiles q = {0};
    mr_number bounds[2];
    mr_subset *set;
    mr_bind_options(L, 2, "loader.quantiles", mr_bind_quantiles_fields, &q);
    luaL_argcheck(L, q.column, 2, "column is required");
    void **box = mr_bind_box(L, SUBSET);
    mr_bind_check(L, mr_subset_quantiles(mr_index_reader_index(reader), &q, &set, bounds));
    *box = set;
    mr_bind_push_number(L, bounds[0]);
    mr_bind_push_number(L, bounds[1]);
    return 3;
}

const mr_bind_field mr_bind_hold_back_fields[] = {
    MR_BIND_NUM("hold_back", hold_options, hold_back, 0,
                "A share below 1, or a count; above 0, required."),
    MR_BIND_BOOL("held", hold_options, held, "Return the held back samples instead of the others."),
    MR_BIND_ANY("of", "mr.Subset", "Choose among these samples; default: all."), MR_BIND_END};

int mr_bind_hold_back(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, mr_bind_index_type);
    hold_options o = {0};
    mr_subset *set;
    mr_bind_options(L, 2, "loader.hold", mr_bind_hold_back_fields, &o);
    luaL_argcheck(L, o.hold_back > 0, 2, "hold_back is required, above 0");
    lua_getfield(L, 2, "of");
    mr_subset *of = mr_bind_subset(L, lua_gettop(L));
    void **box = mr_bind_box(L, SUBSET);
    mr_bind_check(L, mr_subset_hold(mr_index_reader_index(reader), of, o.hold_back, o.held, &set));
    *box = set;
    return 1;
}

static int subset_count(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mr_subset_count(mr_bind_unbox(L, 1, SUBSET)));
    return 1;
}

static int subset_has(lua_State *L)
{
    mr_subset *set = mr_bind_unbox(L, 1, SUBSET);
    lua_Integer row = luaL_checkinteger(L, 2);
    luaL_argcheck(L, row >= 1 && (uint64_t)row <= mr_subset_rows(set), 2,
                  "is not a row of the index");
    lua_pushboolean(L, mr_subset_has(set, (uint64_t)row - 1));
    return 1;
}

mr_subset *mr_bind_subset(lua_State *L, int at)
{
    return lua_isnoneornil(L, at) ? NULL : mr_bind_unbox(L, at, SUBSET);
}

/* ---- sources ---- */

typedef struct source_row {
    const char *name, *seen;
    int64_t epochs, epoch;
} source_row;

static const mr_bind_field source_fields[] = {
    MR_BIND_ANY("index", "mr.Index", "Required."),
    MR_BIND_ANY("weights", "table", "{{samples, weight}, ...}, ascending; default: 1."),
    MR_BIND_ANY("members", "mr.Subset", "Its samples; default: all."),
    MR_BIND_STR("name", source_row, name, "Name, if there are several sources."),
    MR_BIND_INT("epochs", source_row, epochs, 0, 0,
                "After this many epochs, the other sources get its share; 0: never."),
    MR_BIND_STR("seen", source_row, seen, "The list of its state, written by loader.carry."),
    MR_BIND_INT("epoch", source_row, epoch, 0, 0, "First epoch if there is no state."),
    MR_BIND_END};

// read the weights of the source at `at`
static void read_weights(lua_State *L, int at, mr_source *s)
{
    if (lua_getfield(L, at, "weights") != LUA_TTABLE)
        return;
    int list = lua_gettop(L);
    s->n_weights = (int32_t)lua_rawlen(L, list);
    mr_weight *rows = mr_bind_scratch(L, sizeof *rows * (size_t)(s->n_weights + 1));
    for (int32_t i = 0; i < s->n_weights; i++) {
        lua_rawgeti(L, list, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        rows[i] = (mr_weight){.samples = (uint64_t)MR_MAX(luaL_checknumber(L, -2), 0),
                              .weight = luaL_checknumber(L, -1)};
        lua_pop(L, 3);
    }
    s->weights = rows;
}

mr_source *mr_bind_sources(lua_State *L, int list, int32_t *n)
{
    luaL_checktype(L, list, LUA_TTABLE);
    *n = (int32_t)lua_rawlen(L, list);
    mr_source *sources = mr_bind_scratch(L, sizeof *sources * ((size_t)*n + 1));
    for (int32_t i = 0; i < *n; i++) {
        luaL_checkstack(L, 16, "too many sources");
        lua_rawgeti(L, list, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        int at = lua_gettop(L);
        source_row row = {0};
        mr_bind_options(L, at, "loader: a source", source_fields, &row);
        lua_getfield(L, at, "index");
        mr_index_reader *reader = mr_bind_unbox(L, -1, mr_bind_index_type);
        sources[i] = (mr_source){.name = row.name ? row.name : "",
                                 .index = mr_index_reader_index(reader),
                                 .epochs = (uint64_t)row.epochs,
                                 .seen = row.seen,
                                 .epoch = (uint64_t)row.epoch};
        lua_getfield(L, at, "members");
        sources[i].members = mr_bind_subset(L, lua_gettop(L));
        read_weights(L, at, &sources[i]);
    }
    return sources;
}

static const mr_bind_entry subset_entries[] = {
    MR_ENTRY("count", subset_count, "(): integer", "The number of samples."),
    MR_ENTRY("has", subset_has, "(row: integer): boolean",
             "Whether row, from 1, is one of the samples."),
    MR_ENTRY_END};
static const mr_bind_face subset_face = {"mr.Subset", "A subset of the samples of an index.",
                                         subset_entries, free_subset};

void mr_bind_subset_type_open(lua_State *L)
{
    mr_bind_type(L, &subset_face);
}
