/* bind: moonreel.core.loader - batches of decoded clips, for moonreel.data.loader.
 * Licence: Apache-2.0 */
#include "bind/room.h"
#include "moonreel/position.h"

#include <string.h>

#define LOADER "mr.Loader"

static void free_loader(void *l)
{
    mr_loader_free(l);
}

/* ---- creation ---- */

typedef struct loader_options {
    mr_loader_options core;
    mr_bind_rule_options rule;
} loader_options;

static const mr_bind_field loader_fields[] = {
    MR_BIND_RULE_FIELDS(loader_options, rule),
    MR_BIND_INT("seed", loader_options, core.seed, 0, INT64_MIN, "Seed of the order."),
    MR_BIND_INT("threads", loader_options, core.threads, 0, 0,
                "Decode threads; 0: one per processor."),
    MR_BIND_INT("prefetch", loader_options, core.prefetch, 0, 0, "Batches decoded ahead; 0: 2."),
    MR_BIND_INT("epochs", loader_options, core.epochs, 0, 0, "The number of epochs; 0: no end."),
    MR_BIND_STR("state", loader_options, core.state, "Continue from this loader:state()."),
    MR_BIND_STR("excluded", loader_options, core.excluded,
                "Excluded samples of that state: loader:excluded()."),
    MR_BIND_STR("quarantine", loader_options, core.quarantine, "The run's quarantine.jsonl."),
    MR_BIND_INT("slot", loader_options, core.slot, 1, 1,
                "Number of micro-batches of equal cost that are drawn together."),
    MR_BIND_BOOL("carry", loader_options, core.carry,
                 "Samples that do not fill a micro-batch at the end of an epoch come first in the "
                 "next one."),
    MR_BIND_NUM("deadline_s", loader_options, core.deadline_s, 0, "Seconds for one clip; 0: 60."),
    MR_BIND_BOOL("isolated", loader_options, core.isolated,
                 "Each thread decodes in a separate process."),
    MR_BIND_BOOL("allow_empty", loader_options, core.allow_empty,
                 "Drop lengths that no sample can enter, instead of an error."),
    MR_BIND_INT("part", loader_options, core.part, 0, 0,
                "Index of this rank among those that share the order."),
    MR_BIND_INT("parts", loader_options, core.parts, 1, 1, "Number of ranks that share the order."),
    MR_BIND_INT("group", loader_options, core.group, 0, 0,
                "Draws are assigned in groups of this size; 0: parts."),
    MR_BIND_BOOL("lpt", loader_options, core.lpt,
                 "Assign draws of a group by falling cost to the rank with the least load."),
    MR_BIND_BOOL("blind", loader_options, core.blind, "Nothing is decoded."),
    MR_BIND_INT("sample_part", loader_options, core.sample_part, 0, 0,
                "Decode only the samples of this part, from 1."),
    MR_BIND_INT("sample_parts", loader_options, core.sample_parts, 0, 0,
                "Number of parts; 0: all samples."),
    MR_BIND_INT("node", loader_options, core.node, 0, 0, "NUMA node for slabs, from 1; 0: any."),
    MR_BIND_INT("local_ranks", loader_options, core.local_ranks, 1, 1,
                "Ranks that share the memory of this host."),
    MR_BIND_END};

static int l_new(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    loader_options o = {0};
    mr_bind_options(L, 2, "loader.new", loader_fields, &o);
    void **box = mr_bind_box(L, LOADER);
    int32_t n;
    int box_at = lua_gettop(L);
    mr_source *sources = mr_bind_sources(L, 1, &n);
    mr_bucket_rule *rule = mr_bind_rule(L, 2, &o.rule);
    mr_loader *l;
    mr_bind_check(L, mr_loader_new(sources, n, rule, &o.core, &l));
    *box = l;
    lua_pushvalue(L, box_at);
    return 1;
}

/* ---- a state for other data or another rule ---- */

typedef struct carry_options {
    const char *state, *excluded, *seen, *folder;
    int64_t seed;
} carry_options;

static const mr_bind_field carry_fields[] = {
    MR_BIND_STR("state", carry_options, state, "Of the old loader, required."),
    MR_BIND_STR("excluded", carry_options, excluded,
                "Excluded samples of that state: loader:excluded()."),
    MR_BIND_STR("seen", carry_options, seen, "The list that belongs to that state, if any."),
    MR_BIND_STR("folder", carry_options, folder, "Where the new list is written, required."),
    MR_BIND_INT("seed", carry_options, seed, 0, INT64_MIN, "Seed of the order."),
    MR_BIND_ANY("was_members", "mr.Subset", "Samples of the old order; default: all."),
    MR_BIND_ANY("members", "mr.Subset", "Samples of the new order; default: all."),
    MR_BIND_END};

// write the list of a state as seen-HASH.bits to a folder
static mr_status write_seen(const mr_subset *seen, const char *folder, char path[4200])
{
    if (snprintf(path, 4200, "%s/seen-%016llx.bits", folder,
                 (unsigned long long)mr_subset_hash(seen)) >= 4200)
        return mr_fail(MR_E_IO, "%s: path is too long", folder);
    return mr_subset_write(seen, path);
}

static mr_status carry(const carry_options *o, mr_carry *from, mr_index *now,
                       const mr_bucket_rule *rule, const mr_subset *members, char **text,
                       char path[4200], uint64_t *count)
{
    uint64_t *keys = NULL;
    mr_subset *seen = NULL;
    char *whole;
    MR_TRY(mr_position_whole(o->state, o->excluded, &whole));
    from->text = whole;
    mr_status st = o->excluded ? mr_quarantine_keys(o->excluded, &keys, &from->n_excluded) : MR_OK;
    from->excluded = keys;
    if (st == MR_OK && o->seen)
        st = mr_subset_read(o->seen, &from->seen);
    if (st == MR_OK)
        st = mr_order_carry(from, now, rule, members, text, &seen);
    if (st == MR_OK) {
        *count = mr_subset_count(seen);
        st = write_seen(seen, o->folder, path);
    }
    mr_subset_unref(seen);
    mr_subset_unref(from->seen);
    mr_free(keys);
    mr_free(whole);
    return st;
}

/* carry(old index, old rule, index, rule, options) -> state, path of the list, samples in it */
static int l_carry(lua_State *L)
{
    carry_options o = {0};
    mr_carry from = {.index = mr_index_reader_index(mr_bind_unbox(L, 1, mr_bind_index_type)),
                     .rule = mr_bind_unbox(L, 2, mr_bind_rule_type)};
    mr_index *now = mr_index_reader_index(mr_bind_unbox(L, 3, mr_bind_index_type));
    const mr_bucket_rule *rule = mr_bind_unbox(L, 4, mr_bind_rule_type);
    mr_bind_options(L, 5, "loader.carry", carry_fields, &o);
    luaL_argcheck(L, o.state && o.folder, 5, "state and folder are required");
    from.seed = (uint64_t)o.seed;
    lua_getfield(L, 5, "was_members");
    from.members = mr_bind_subset(L, lua_gettop(L));
    lua_getfield(L, 5, "members");
    const mr_subset *members = mr_bind_subset(L, lua_gettop(L));
    char **text = (char **)mr_bind_hold(L), path[4200];
    uint64_t count = 0;
    mr_bind_check(L, carry(&o, &from, now, rule, members, text, path, &count));
    lua_pushstring(L, *text);
    lua_pushstring(L, path);
    lua_pushinteger(L, (lua_Integer)count);
    return 3;
}

/* ---- a batch ---- */

/* Set field `name` of the table on top to a list of n integers (i64 or i32) or numbers (f32). Ids
 * and keys are unsigned in the core: all their bits are kept. */
static void set_list(lua_State *L, const char *name, mr_dtype kind, const void *values, int32_t n)
{
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        if (kind == MR_I64)
            lua_pushinteger(L, ((const int64_t *)values)[i]);
        else if (kind == MR_I32)
            lua_pushinteger(L, ((const int32_t *)values)[i]);
        else
            lua_pushnumber(L, ((const float *)values)[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
}

static void set_texts(lua_State *L, const char *name, const char *const *texts, int32_t n)
{
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_pushstring(L, texts[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
}

static void push_batch(lua_State *L, const mr_batch *b)
{
    lua_createtable(L, 0, 29);
    MR_BIND_SET(L, *b, epoch, draw, drawn, last, other, size, n, bytes, wait_s);
    MR_BIND_SET(L, b->shape, resolution, frames, height, width);
    mr_bind_set_int(L, "source", b->source + 1);
    mr_bind_set_int(L, "bucket", b->bucket + 1);
    lua_pushlightuserdata(L, (void *)(uintptr_t)b);
    lua_setfield(L, -2, "handle");
    // a draw of another rank has only its samples, no padding
    int32_t known = b->other ? b->n : b->size;
    set_list(L, "ids", MR_I64, b->ids, known);
    set_list(L, "keys", MR_I64, b->keys, known);
    if (b->other)
        return;
    lua_pushlightuserdata(L, b->pixels);
    lua_setfield(L, -2, "pointer");
    set_list(L, "weights", MR_F32, b->weights, b->size);
    set_list(L, "starts", MR_I64, b->starts, b->size);
    set_list(L, "fps", MR_F32, b->fps, b->size);
    set_list(L, "native_fps", MR_F32, b->native_fps, b->size);
    set_list(L, "native_heights", MR_I32, b->native_height, b->size);
    set_list(L, "native_widths", MR_I32, b->native_width, b->size);
    set_texts(L, "captions", b->captions, b->size);
}

static int l_in_part(lua_State *L)
{
    lua_pushboolean(L, mr_sample_in_part((uint64_t)luaL_checkinteger(L, 1),
                                         (int32_t)luaL_checkinteger(L, 2),
                                         (int32_t)luaL_checkinteger(L, 3)));
    return 1;
}

static int l_next(lua_State *L)
{
    const mr_batch *b;
    mr_bind_check(L, mr_loader_next(mr_bind_unbox(L, 1, LOADER), &b));
    if (!b)
        return 0;
    push_batch(L, b);
    return 1;
}

static int l_release(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    luaL_checktype(L, 2, LUA_TLIGHTUSERDATA);
    mr_loader_release(l, lua_touserdata(L, 2));
    return 0;
}

/* ---- state and facts ---- */

static int l_failures(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_loader_failures(mr_bind_unbox(L, 1, LOADER), text));
    lua_pushstring(L, *text);
    return 1;
}

static int l_agree(lua_State *L)
{
    mr_bind_check(L, mr_loader_agree(mr_bind_unbox(L, 1, LOADER), luaL_checkstring(L, 2)));
    return 0;
}

static int l_state(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_loader_state(mr_bind_unbox(L, 1, LOADER), text));
    lua_pushstring(L, *text);
    return 1;
}

static int l_excluded(lua_State *L)
{
    char **text = (char **)mr_bind_hold(L);
    mr_bind_check(L, mr_loader_excluded(mr_bind_unbox(L, 1, LOADER), text));
    lua_pushstring(L, *text);
    return 1;
}

static int l_order(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    int64_t n = luaL_checkinteger(L, 2), got;
    luaL_argcheck(L, n >= 1 && n <= 100000000, 2, "expected 1 or more");
    uint64_t *ids = mr_bind_scratch(L, sizeof *ids * (size_t)n);
    mr_bind_check(L, mr_loader_peek(l, ids, n, &got));
    lua_createtable(L, (int)got, 0);
    for (int64_t i = 0; i < got; i++) {
        lua_pushinteger(L, (lua_Integer)ids[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Push the numbers of rows that enter no bucket, by reason. */
static void push_dropped(lua_State *L, const uint64_t *dropped)
{
    lua_createtable(L, 0, MR_DROP_COUNT);
    for (int why = MR_DROP_NONE + 1; why < MR_DROP_COUNT; why++)
        if (dropped[why])
            mr_bind_set_int(L, mr_drop_text(why), (int64_t)dropped[why]);
}

/* Push a bucket of the rule, with its samples and batches of the epoch. */
static void push_bucket(lua_State *L, const mr_loader *l, int32_t i)
{
    uint64_t samples;
    mr_bucket b = mr_loader_bucket(l, i, &samples);
    uint64_t size = (uint64_t)b.batch, batches = size ? (samples + size - 1) / size : 0;
    lua_createtable(L, 0, 8);
    mr_bind_set_int(L, "bucket", i + 1);
    MR_BIND_SET(L, b, resolution, frames, height, width, batch);
    mr_bind_set_int(L, "samples", (int64_t)samples);
    mr_bind_set_int(L, "batches", (int64_t)batches);
}

/* Push the facts of a source: its first epoch, and the samples given out. */
static void push_source(lua_State *L, mr_loader *l, int32_t i)
{
    mr_source_facts f = mr_loader_source(l, i);
    lua_createtable(L, 0, 6);
    MR_BIND_SET(L, f, name, rows, epoch, samples, batches, delivered);
}

static int l_facts(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    mr_loader_facts f = mr_loader_get_facts(l);
    lua_createtable(L, 0, 16);
    // of the first epoch of the loader
    MR_BIND_SET(L, f, epoch, samples, batches);
    push_dropped(L, f.dropped);
    lua_setfield(L, -2, "dropped");
    lua_newtable(L);
    for (int32_t i = 0; i < mr_loader_buckets(l); i++) {
        push_bucket(L, l, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "buckets");
    lua_newtable(L);
    for (int32_t i = 0; i < mr_loader_sources(l); i++) {
        push_source(L, l, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "sources");
    // its memory
    MR_BIND_SET(L, f, slabs, slab_bytes, pool_s, small_bytes, threads);
    // counted so far
    MR_BIND_SET(L, f, delivered, failed, hits, waits, ready, wait_s);
    mr_bind_set_int(L, "decoded_bytes", (int64_t)f.bytes);
    return 1;
}

static const mr_bind_entry loader_module_entries[] = {
    MR_ENTRY_OPTIONS("new", l_new, "(sources: table[], options: table): mr.Loader",
                     "Start decode threads on sources, each {index, name, weights = {{samples, "
                     "weight}, ...}, epochs, seen, epoch}.",
                     loader_fields),
    MR_ENTRY_OPTIONS(
        "rule", mr_bind_rule_new, "(options: table): mr.BucketRule",
        "Create a bucket rule; moonreel.data.buckets.rule takes the tables of a recipe.",
        mr_bind_rule_fields),
    MR_ENTRY("in_part", l_in_part, "(key: integer, part: integer, parts: integer): boolean",
             "Whether the sample with this low half of a key belongs to a part, from 1."),
    MR_ENTRY_OPTIONS("carry", l_carry,
                     "(was: mr.Index, was_rule: mr.BucketRule, now: mr.Index, rule: mr.BucketRule, "
                     "options: table): string, string, integer",
                     "Convert a state to another index or rule. Returns the state, the path of the "
                     "list of samples that the epoch has trained, and their number.",
                     carry_fields),
    MR_ENTRY_OPTIONS(
        "quantiles", mr_bind_quantiles,
        "(index: mr.Index, options: table): mr.Subset, number, number",
        "The samples between two quantiles of a column, and their smallest and largest value.",
        mr_bind_quantiles_fields),
    MR_ENTRY_OPTIONS("hold", mr_bind_hold_back, "(index: mr.Index, options: table): mr.Subset",
                     "The samples that training never takes, by the hashes of their keys, or all "
                     "others.",
                     mr_bind_hold_back_fields),
    MR_ENTRY_OPTIONS("order", mr_bind_order_new, "(sources: table[], options: table): mr.Order",
                     "The order of samples without decoding, from the first epoch on; "
                     "moonreel.data.order takes settings.",
                     mr_bind_order_fields),
    MR_ENTRY_END};
static const mr_bind_face loader_module_face = {
    "moonreel.core.loader", "Batches of decoded clips; use moonreel.data.loader.",
    loader_module_entries, NULL};

static const mr_bind_entry loader_entries[] = {
    MR_ENTRY("next", l_next, "(): table?",
             "The next batch; nil after the last epoch. Fields: moonreel.data.loader."),
    MR_ENTRY("release", l_release, "(handle: lightuserdata)", "Release the memory of a batch."),
    MR_ENTRY("state", l_state, "(): string",
             "The position of the order after the last batch given out."),
    MR_ENTRY("excluded", l_excluded, "(): string", "The excluded samples at that state."),
    MR_ENTRY("failures", l_failures, "(): string",
             "Samples that failed here since the last call, for the ranks that share the order."),
    MR_ENTRY("agree", l_agree, "(others: string)",
             "Pass the failures of all other ranks; needed at the end of an epoch."),
    MR_ENTRY("order", l_order, "(n: integer): integer[]",
             "Row ids, from 0, of the next n samples."),
    MR_ENTRY("facts", l_facts, "(): table",
             "Facts of its first epoch: samples, batches, dropped by rule, buckets; and counters."),
    MR_ENTRY_END};
static const mr_bind_face loader_face = {"mr.Loader", "Decode threads on an index.", loader_entries,
                                         free_loader};

MR_BIND_ROOM(loader)
{
    mr_bind_subset_type_open(L);
    mr_bind_rule_type_open(L);
    mr_bind_type(L, &loader_face);
    mr_bind_order_type(L);
    return mr_bind_module(L, &loader_module_face);
}
