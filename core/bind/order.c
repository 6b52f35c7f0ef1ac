/* bind: mr.Order - the order of micro-batches of an index, without decoding, for
 * moonreel.data.order. Licence: Apache-2.0 */
#include "bind/room.h"

#include <string.h>

#define ORDER "mr.Order"

typedef struct order {
    mr_blend *blend;
    mr_bucket_rule *rule;
    int32_t n;
    mr_hash128 fp_order[MR_SOURCES_MAX];
    char *name[MR_SOURCES_MAX];
    uint64_t *ids, *keys; // samples of a draw
    char *quarantine;     // NULL: no quarantine
    uint64_t epochs;      // 0: unlimited
} order;

static void free_order(void *object)
{
    order *o = object;
    if (!o)
        return;
    mr_blend_free(o->blend);
    mr_bucket_rule_free(o->rule);
    for (int32_t i = 0; i < o->n; i++)
        mr_free(o->name[i]);
    mr_free(o->ids);
    mr_free(o->keys);
    mr_free(o->quarantine);
    mr_free(o);
}

typedef struct order_options {
    mr_bind_rule_options rule;
    int64_t seed, epochs;
    int32_t slot;
    bool carry, fill, unshuffled;
    const char *quarantine;
} order_options;

const mr_bind_field mr_bind_order_fields[] = {
    MR_BIND_RULE_FIELDS(order_options, rule),
    MR_BIND_INT("seed", order_options, seed, 0, INT64_MIN, "Seed of the order."),
    MR_BIND_INT("slot", order_options, slot, 1, 1,
                "Number of micro-batches of equal cost that are drawn together."),
    MR_BIND_BOOL("carry", order_options, carry,
                 "Samples that do not fill a micro-batch at the end of an epoch come first in the "
                 "next one."),
    MR_BIND_INT("epochs", order_options, epochs, 0, 0,
                "Number of epochs; the last one carries no samples."),
    MR_BIND_BOOL(
        "fill", order_options, fill,
        "The order of a reference, but batches at the end are filled with samples from the front."),
    MR_BIND_BOOL("unshuffled", order_options, unshuffled,
                 "The order of a reference without shuffling."),
    MR_BIND_STR("quarantine", order_options, quarantine,
                "A quarantine.jsonl that excludes samples from later epochs."),
    MR_BIND_END};

static mr_status open_order(order *o, const mr_source *sources, int32_t n,
                            const order_options *options)
{
    mr_order_options core = {.seed = (uint64_t)options->seed,
                             .slot = options->slot,
                             .carry = options->carry,
                             .fill = options->fill,
                             .unshuffled = options->unshuffled,
                             .epochs = (uint64_t)options->epochs};
    MR_TRY(mr_blend_new(sources, n, o->rule, &core, &o->blend));
    o->epochs = core.epochs;
    size_t most = (size_t)mr_order_batch_max(mr_blend_order(o->blend, 0));
    o->ids = mr_alloc(sizeof *o->ids * most);
    o->keys = mr_alloc(sizeof *o->keys * most);
    if (options->quarantine)
        o->quarantine = mr_strdup(options->quarantine);
    bool good = o->ids && o->keys && (o->quarantine || !options->quarantine);
    for (; o->n < n && good; o->n++) {
        o->fp_order[o->n] = mr_index_get_facts(sources[o->n].index).fp_order;
        good = (o->name[o->n] = mr_strdup(sources[o->n].name)) != NULL;
    }
    return good ? MR_OK : mr_fail_memory(0);
}

int mr_bind_order_new(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    order_options options = {0};
    mr_bind_options(L, 2, "loader.order", mr_bind_order_fields, &options);
    void **box = mr_bind_box(L, ORDER);
    order *o;
    mr_bind_check(L, MR_NEW(o) ? MR_OK : mr_fail_memory(sizeof *o));
    *box = o;
    int32_t n;
    mr_source *sources = mr_bind_sources(L, 1, &n);
    o->rule = mr_bind_rule(L, 2, &options.rule);
    mr_bind_check(L, open_order(o, sources, n, &options));
    lua_pushvalue(L, 3);
    return 1;
}

// Exclude samples that failed twice up to an epoch of a source from the next epoch on.
static mr_status leave_out(order *o, int32_t i, uint64_t epoch)
{
    uint64_t *keys, n;
    if (!o->quarantine)
        return MR_OK;
    MR_TRY(mr_quarantine_excluded(o->quarantine, o->fp_order[i], o->name[i], epoch + 1, &keys, &n));
    mr_status st = mr_order_exclude(mr_blend_order(o->blend, i), keys, n);
    mr_free(keys);
    return st;
}

static mr_status take(order *o, mr_draw *draw)
{
    draw->ids = o->ids, draw->keys = o->keys;
    MR_TRY(mr_blend_next(o->blend, draw));
    return draw->last ? leave_out(o, draw->source, draw->epoch) : MR_OK;
}

// order:next() -> {source, epoch, number, last, bucket, rows, keys}
static int order_next(lua_State *L)
{
    order *o = mr_bind_unbox(L, 1, ORDER);
    mr_draw d;
    mr_bind_check(L, take(o, &d));
    lua_createtable(L, 0, 7);
    mr_bind_set_int(L, "source", d.source + 1);
    MR_BIND_SET(L, d, epoch, number, last);
    mr_bind_push_shape(L, o->rule, d.bucket);
    lua_setfield(L, -2, "bucket");
    lua_createtable(L, d.n, 0);
    lua_createtable(L, d.n, 0);
    for (int32_t i = 0; i < d.n; i++) {
        lua_pushinteger(L, (lua_Integer)d.ids[i] + 1);
        lua_rawseti(L, -3, i + 1);
        lua_pushinteger(L, (lua_Integer)d.keys[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -3, "keys");
    lua_setfield(L, -2, "rows");
    return 1;
}

// Skip whole epochs if possible, else one micro-batch.
static mr_status pass(order *o, uint64_t most, uint64_t *n)
{
    mr_draw d;
    uint64_t epoch;
    MR_TRY(mr_interrupt_check());
    MR_TRY(mr_blend_pass(o->blend, most, o->epochs, !o->quarantine, n, &epoch));
    if (*n)
        return leave_out(o, 0, epoch);
    *n = 1;
    return take(o, &d);
}

static int order_skip(lua_State *L)
{
    order *o = mr_bind_unbox(L, 1, ORDER);
    uint64_t left = (uint64_t)MR_MAX(luaL_checkinteger(L, 2), 0), n;
    for (; left && !mr_blend_over(o->blend, o->epochs); left -= n)
        mr_bind_check(L, pass(o, left, &n));
    lua_pushinteger(L, (lua_Integer)left);
    return 1;
}

static int order_over(lua_State *L)
{
    const order *o = mr_bind_unbox(L, 1, ORDER);
    lua_pushboolean(L, mr_blend_over(o->blend, o->epochs));
    return 1;
}

static int order_most(lua_State *L)
{
    const order *o = mr_bind_unbox(L, 1, ORDER);
    uint64_t most = mr_blend_most(o->blend, o->epochs);
    lua_pushinteger(L, most > LUA_MAXINTEGER ? LUA_MAXINTEGER : (lua_Integer)most);
    return 1;
}

static int order_begin(lua_State *L)
{
    order *o = mr_bind_unbox(L, 1, ORDER);
    lua_Integer epoch = luaL_checkinteger(L, 2);
    luaL_argcheck(L, epoch >= 0, 2, "expected an epoch from 0");
    for (int32_t i = 0; i < o->n; i++)
        mr_bind_check(L, mr_order_begin(mr_blend_order(o->blend, i), (uint64_t)epoch));
    return 0;
}

static int order_batches(lua_State *L)
{
    order *o = mr_bind_unbox(L, 1, ORDER);
    uint64_t sum = 0;
    for (int32_t i = 0; i < o->n; i++)
        sum += mr_order_batches(mr_blend_order(o->blend, i));
    lua_pushinteger(L, (lua_Integer)sum);
    return 1;
}

static const mr_bind_entry order_entries[] = {
    MR_ENTRY(
        "next", order_next, "(): table",
        "The next micro-batch: {source (from 1), epoch, number (from 0, in its epoch), last (of "
        "it), bucket = "
        "{resolution, frames, height, width, batch}, rows (from 1), keys}."),
    MR_ENTRY("skip", order_skip, "(n: integer): integer",
             "Skip the next n micro-batches. Returns how many did not exist before the end."),
    MR_ENTRY("over", order_over, "(): boolean",
             "Whether every source has been drawn `epochs` times."),
    MR_ENTRY("most", order_most, "(): integer",
             "An upper limit of the number of micro-batches; math.maxinteger: unknown."),
    MR_ENTRY("begin", order_begin, "(epoch: integer)", "Continue with this epoch of every source."),
    MR_ENTRY("batches", order_batches, "(): integer",
             "The number of micro-batches in the current epoch of each source, or in the one that "
             "has just ended."),
    MR_ENTRY_END};
static const mr_bind_face order_face = {
    "mr.Order", "The micro-batches of an index in order, epoch after epoch.", order_entries,
    free_order};

void mr_bind_order_type(lua_State *L)
{
    mr_bind_type(L, &order_face);
}
