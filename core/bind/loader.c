/* bind: moonreel.core.loader - batches of decoded clips, for moonreel.data.loader. Licence:
 * Apache-2.0
 *
 * The bucket rule comes as moonreel.data.buckets makes it: a list of tables {name, pixels,
 * aspects = {{ratio, height, width}, ...}, lengths = {{frames, keep, try, batch}, ...}}. */
#include "bind/room.h"

#include "moonreel/data.h"

#include <string.h>

#define LOADER "mr.Loader"

static void free_loader(void *l)
{
    mr_loader_free(l);
}

/* The set of samples at `at`, lent; NULL where there is none. */
static mr_subset *subset_at(lua_State *L, int at);

/* ---- the bucket rule ---- */

/* Number `i` of the list on top of the stack. */
static double number_at(lua_State *L, int i)
{
    int ok;
    lua_rawgeti(L, -1, i);
    double v = lua_tonumberx(L, -1, &ok);
    lua_pop(L, 1);
    if (!ok)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: entry %d is no number", i);
    return v;
}

/* Push list `name` of the table on top of the stack; its length. */
static int32_t push_list(lua_State *L, const char *name)
{
    if (lua_getfield(L, -1, name) != LUA_TTABLE)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: no list '%s'", name);
    return (int32_t)lua_rawlen(L, -1);
}

/* Push row `i` (from 0) of the list on top of the stack. */
static void push_row(lua_State *L, int32_t i)
{
    if (lua_rawgeti(L, -1, i + 1) != LUA_TTABLE)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: row %d is no table", (int)i + 1);
}

/* The two lists of the resolution on top of the stack, into memory that the caller's frame closes:
 * it stays on the stack above the resolution. */
static void read_aspects(lua_State *L, mr_bucket_resolution *r)
{
    r->n_aspects = push_list(L, "aspects");
    mr_bucket_aspect *rows = mr_bind_scratch(L, sizeof *rows * (size_t)(r->n_aspects + 1));
    lua_pushvalue(L, -2);
    for (int32_t i = 0; i < r->n_aspects; i++) {
        push_row(L, i);
        rows[i] = (mr_bucket_aspect){.ratio = number_at(L, 1),
                                     .height = (int32_t)number_at(L, 2),
                                     .width = (int32_t)number_at(L, 3)};
        lua_pop(L, 1);
    }
    r->aspects = rows;
}

// a number of the row on top that need not be there: 0
static double optional_at(lua_State *L, int i)
{
    lua_rawgeti(L, -1, i);
    double x = lua_isnil(L, -1) ? 0 : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    return x;
}

static void read_lengths(lua_State *L, mr_bucket_resolution *r)
{
    r->n_lengths = push_list(L, "lengths");
    mr_bucket_length *rows = mr_bind_scratch(L, sizeof *rows * (size_t)(r->n_lengths + 1));
    lua_pushvalue(L, -2);
    for (int32_t i = 0; i < r->n_lengths; i++) {
        push_row(L, i);
        rows[i] = (mr_bucket_length){.frames = (int32_t)number_at(L, 1),
                                     .keep = number_at(L, 2),
                                     .tries = number_at(L, 3),
                                     .batch = (int32_t)number_at(L, 4),
                                     .cost = optional_at(L, 5)};
        lua_pop(L, 1);
    }
    r->lengths = rows;
}

static void read_resolution(lua_State *L, int at, mr_bucket_resolution *r)
{
    if (lua_getfield(L, at, "name") != LUA_TSTRING)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: a resolution without a name");
    r->name = lua_tostring(L, -1); // lent by the table
    if (lua_getfield(L, at, "pixels") != LUA_TNUMBER)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: resolution '%s' without pixels", r->name);
    r->pixels = lua_tonumber(L, -1);
    lua_pushvalue(L, at);
    read_aspects(L, r);
    lua_pushvalue(L, at);
    read_lengths(L, r);
}

/* The list at `list` as a rule, which the caller owns. What it leaves on the stack goes with the
 * caller's frame. */
mr_bucket_rule *mr_bind_bucket_rule(lua_State *L, int list, int32_t interval, bool compat,
                                    uint64_t repeat)
{
    luaL_checktype(L, list, LUA_TTABLE);
    int32_t n = (int32_t)lua_rawlen(L, list);
    mr_bucket_resolution *resolutions = mr_bind_scratch(L, sizeof *resolutions * (size_t)(n + 1));
    for (int32_t i = 0; i < n; i++) {
        luaL_checkstack(L, 16, "too many resolutions");
        lua_rawgeti(L, list, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        read_resolution(L, lua_gettop(L), &resolutions[i]);
    }
    mr_bucket_rule *rule;
    mr_bind_check(L, mr_bucket_rule_new(resolutions, n, interval, compat, &rule));
    mr_bucket_rule_repeat(rule, repeat);
    return rule;
}

#define RULE "mr.BucketRule"

static void free_rule(void *rule)
{
    mr_bucket_rule_free(rule);
}

typedef struct rule_options {
    int64_t draw_epochs;
    int32_t frame_interval;
    bool compat;
} rule_options;

static const mr_bind_field rule_fields[] = {
    MR_BIND_ANY("buckets", "table", "The bucket rule, required."),
    MR_BIND_INT("frame_interval", rule_options, frame_interval, 1, 1,
                "Frames from one to the next."),
    MR_BIND_BOOL("compat", rule_options, compat, "Lengths and frames as in Open-Sora 1.2."),
    MR_BIND_INT("draw_epochs", rule_options, draw_epochs, 0, 0,
                "Epochs after which draws of samples repeat; 0: never."),
    MR_BIND_END};

static int l_rule(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    rule_options o = {0};
    mr_bind_options(L, 1, "loader.rule", rule_fields, &o);
    void **box = mr_bind_box(L, RULE);
    int box_at = lua_gettop(L);
    lua_getfield(L, 1, "buckets");
    *box =
        mr_bind_bucket_rule(L, lua_gettop(L), o.frame_interval, o.compat, (uint64_t)o.draw_epochs);
    lua_pushvalue(L, box_at);
    return 1;
}

typedef struct rule_sample {
    int64_t frames, height, width, key, seed, epoch;
} rule_sample;

static const mr_bind_field sample_fields[] = {
    MR_BIND_INT("frames", rule_sample, frames, 1, 1, "Of the clip; 1: a picture."),
    MR_BIND_INT("height", rule_sample, height, 1, 1, "As shown."),
    MR_BIND_INT("width", rule_sample, width, 1, 1, "As shown."),
    MR_BIND_INT("key", rule_sample, key, 0, INT64_MIN, "Low half of the sample's key."),
    MR_BIND_INT("seed", rule_sample, seed, 0, INT64_MIN, "Of the order."),
    MR_BIND_INT("epoch", rule_sample, epoch, 0, 0, "From 0."),
    MR_BIND_END};

/* A table {resolution, frames, height, width, batch} of bucket b. */
void mr_bind_push_shape(lua_State *L, const mr_bucket_rule *rule, int32_t b)
{
    mr_bucket bucket = mr_bucket_rule_get(rule, b);
    lua_createtable(L, 0, 6);
    mr_bind_set_str(L, "resolution", bucket.resolution);
    mr_bind_set_int(L, "frames", bucket.frames);
    mr_bind_set_int(L, "height", bucket.height);
    mr_bind_set_int(L, "width", bucket.width);
    mr_bind_set_int(L, "batch", bucket.batch);
}

static int rule_assign(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, RULE);
    rule_sample s = {0};
    mr_bind_options(L, 2, "rule:assign", sample_fields, &s);
    luaL_argcheck(L, MR_MAX(s.height, s.width) <= MR_CLIP_SHOWN_MAX && s.frames <= UINT32_MAX, 2,
                  "larger than an index holds");
    mr_hot hot = {.key_lo = (uint64_t)s.key,
                  .frames = (uint32_t)s.frames,
                  .height = (uint16_t)s.height,
                  .width = (uint16_t)s.width};
    mr_drop why;
    int32_t b = mr_bucket_rule_assign(rule, (uint64_t)s.seed, (uint64_t)s.epoch, &hot, &why);
    if (b < 0) {
        lua_pushnil(L);
        lua_pushstring(L, mr_drop_text(why));
        return 2;
    }
    mr_bind_push_shape(L, rule, b);
    return 1;
}

/* What becomes of an index's rows in an epoch, in memory that the caller's frame closes. */
typedef struct survey {
    int64_t *samples;                                       /* per bucket */
    int64_t dropped[MR_DROP_COUNT], example[MR_DROP_COUNT]; /* rows; one of them, counted from 1 */
} survey;

static mr_status count_rows(const mr_bucket_rule *rule, mr_index_reader *reader,
                            const mr_subset *members, uint64_t seed, uint64_t epoch, survey *s)
{
    int64_t rows = (int64_t)mr_index_get_facts(mr_index_reader_index(reader)).rows;
    for (int64_t at = 0; at < rows;) {
        const mr_hot *hot;
        int32_t n;
        MR_TRY(mr_index_hot(reader, (uint64_t)(at / MR_HOT_ROWS), &hot, &n));
        for (int32_t i = 0; i < n; i++, at++) {
            mr_drop why = MR_DROP_OUTSIDE;
            int32_t b = -1;
            if (!members || mr_subset_has(members, (uint64_t)at))
                b = mr_bucket_rule_assign(rule, seed, epoch, &hot[i], &why);
            if (b >= 0)
                s->samples[b]++;
            else if (!s->dropped[why]++)
                s->example[why] = at + 1;
        }
    }
    return MR_OK;
}

/* survey(index, seed, epoch) -> {buckets = {{resolution, frames, height, width, batch, samples}},
 * dropped = {{why, rows, example}}} */
static int rule_survey(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, RULE);
    mr_index_reader *reader = mr_bind_unbox(L, 2, "mr.Index");
    int32_t n = mr_bucket_rule_count(rule), used = 0;
    survey s = {.samples = mr_bind_scratch(L, sizeof *s.samples * ((size_t)n + 1))};
    memset(s.samples, 0, sizeof *s.samples * ((size_t)n + 1));
    mr_bind_check(L, count_rows(rule, reader, subset_at(L, 5), (uint64_t)luaL_checkinteger(L, 3),
                                (uint64_t)luaL_checkinteger(L, 4), &s));
    lua_createtable(L, 0, 2);
    lua_newtable(L);
    for (int32_t i = 0; i < n; i++)
        if (s.samples[i]) {
            mr_bind_push_shape(L, rule, i);
            mr_bind_set_int(L, "samples", s.samples[i]);
            lua_rawseti(L, -2, ++used);
        }
    lua_setfield(L, -2, "buckets");
    lua_newtable(L);
    for (int why = MR_DROP_NONE + 1, k = 0; why < MR_DROP_COUNT; why++)
        if (s.dropped[why]) {
            lua_createtable(L, 0, 3);
            mr_bind_set_str(L, "why", mr_drop_text((mr_drop)why));
            mr_bind_set_int(L, "rows", s.dropped[why]);
            mr_bind_set_int(L, "example", s.example[why]);
            lua_rawseti(L, -2, ++k);
        }
    lua_setfield(L, -2, "dropped");
    return 1;
}

static int rule_hash(lua_State *L)
{
    char hex[17];
    snprintf(
        hex, sizeof hex, "%016llx",
        (unsigned long long)mr_bucket_rule_hash_of(mr_bind_unbox(L, 1, RULE), subset_at(L, 2)));
    lua_pushstring(L, hex);
    return 1;
}

static int rule_measure(lua_State *L)
{
    lua_Integer rows = luaL_checkinteger(L, 2);
    luaL_argcheck(L, rows >= 1 && rows <= 10000000000, 2, "expected 1 to 10^10 rows");
    mr_order_times t;
    mr_bind_check(L, mr_order_measure(mr_bind_unbox(L, 1, RULE), (uint64_t)rows, &t));
    lua_createtable(L, 0, 6);
    mr_bind_set_num(L, "plan_s", t.plan_s);
    mr_bind_set_num(L, "select_s", t.select_s);
    mr_bind_set_int(L, "bytes", (int64_t)t.bytes);
    mr_bind_set_int(L, "state_bytes", (int64_t)t.state_bytes);
    mr_bind_set_int(L, "buckets", t.buckets);
    mr_bind_set_int(L, "used", t.used);
    return 1;
}

static int rule_crop(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, RULE);
    lua_Integer frames = luaL_checkinteger(L, 2), have = luaL_checkinteger(L, 3);
    lua_Integer start = luaL_optinteger(L, 4, 0);
    luaL_argcheck(L, frames >= 1 && frames <= 100000, 2, "expected 1 to 100000 frames");
    luaL_argcheck(L, have >= 1 && have <= INT32_MAX, 3, "expected 1 or more");
    mr_crop crop = mr_bucket_rule_crop(rule, (int32_t)frames, have);
    luaL_argcheck(L, start >= 0 && start < crop.starts, 4, "is none of the possible starts");
    lua_createtable(L, (int)frames, 0);
    for (int32_t i = 0; i < frames; i++) {
        lua_pushinteger(L, mr_crop_frame(&crop, start, i));
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushinteger(L, crop.starts);
    return 2;
}

/* ---- some samples of an index ---- */

#define SUBSET "mr.Subset"

static void free_subset(void *set)
{
    mr_subset_unref(set);
}

static const mr_bind_field quantiles_fields[] = {
    MR_BIND_STR("column", mr_quantiles, column, "A column of the index, required."),
    MR_BIND_NUM("from", mr_quantiles, from, 0, "A share of the samples that have a value."),
    MR_BIND_NUM("to", mr_quantiles, to, 1, "And the other end."),
    MR_BIND_NUM("trim_top", mr_quantiles, trim_top, 0,
                "The share with the largest values that is left out first."),
    MR_BIND_END};

static int l_quantiles(lua_State *L)
{
    mr_index_reader *reader = mr_bind_unbox(L, 1, mr_bind_index_type);
    mr_quantiles q = {0};
    double bounds[2];
    mr_subset *set;
    mr_bind_options(L, 2, "loader.quantiles", quantiles_fields, &q);
    luaL_argcheck(L, q.column, 2, "column is required");
    void **box = mr_bind_box(L, SUBSET);
    mr_bind_check(L, mr_subset_quantiles(mr_index_reader_index(reader), &q, &set, bounds));
    *box = set;
    lua_pushnumber(L, bounds[0]);
    lua_pushnumber(L, bounds[1]);
    return 3;
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
    luaL_argcheck(L, row >= 1 && (uint64_t)row <= mr_subset_rows(set), 2, "is no row of the index");
    lua_pushboolean(L, mr_subset_has(set, (uint64_t)row - 1));
    return 1;
}

static mr_subset *subset_at(lua_State *L, int at)
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
    MR_BIND_ANY("weights", "table", "{{samples, weight}, ...}, ascending; none: 1."),
    MR_BIND_ANY("members", "mr.Subset", "Samples that it is of; none: all."),
    MR_BIND_STR("name", source_row, name, "Of a source among others."),
    MR_BIND_INT("epochs", source_row, epochs, 0, 0,
                "After so many its share goes to the others; 0: never."),
    MR_BIND_STR("seen", source_row, seen, "The list that loader.carry wrote, of its state."),
    MR_BIND_INT("epoch", source_row, epoch, 0, 0, "Without a state: begin at this one."),
    MR_BIND_END};

// the weights of the source on top of the stack
static void read_weights(lua_State *L, mr_source *s)
{
    if (lua_getfield(L, -1, "weights") != LUA_TTABLE) {
        lua_pop(L, 1);
        return;
    }
    int list = lua_gettop(L);
    s->n_weights = (int32_t)lua_rawlen(L, list);
    mr_weight *rows = mr_bind_scratch(L, sizeof *rows * (size_t)(s->n_weights + 1));
    lua_pushvalue(L, list);
    for (int32_t i = 0; i < s->n_weights; i++) {
        push_row(L, i);
        rows[i] =
            (mr_weight){.samples = (uint64_t)MR_MAX(number_at(L, 1), 0), .weight = number_at(L, 2)};
        lua_pop(L, 1);
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
        mr_index_reader *reader = mr_bind_unbox(L, -1, "mr.Index");
        sources[i] = (mr_source){.name = row.name ? row.name : "",
                                 .index = mr_index_reader_index(reader),
                                 .epochs = (uint64_t)row.epochs,
                                 .seen = row.seen,
                                 .epoch = (uint64_t)row.epoch};
        lua_getfield(L, at, "members");
        sources[i].members = subset_at(L, lua_gettop(L));
        lua_pushvalue(L, at);
        read_weights(L, &sources[i]);
    }
    return sources;
}

/* ---- making one ---- */

typedef struct loader_options {
    mr_loader_options core;
    int32_t frame_interval;
    bool compat;
    int64_t draw_epochs;
} loader_options;

static const mr_bind_field loader_fields[] = {
    MR_BIND_ANY("buckets", "table", "The bucket rule, required."),
    MR_BIND_INT("frame_interval", loader_options, frame_interval, 1, 1,
                "Frames from one to the next."),
    MR_BIND_INT("draw_epochs", loader_options, draw_epochs, 0, 0,
                "Epochs after which draws of samples repeat; 0: never."),
    MR_BIND_BOOL("compat", loader_options, compat, "The length test of Open-Sora 1.2."),
    MR_BIND_INT("seed", loader_options, core.seed, 0, INT64_MIN, "Of the order."),
    MR_BIND_INT("threads", loader_options, core.threads, 0, 0,
                "Of decoding; 0: one per processor."),
    MR_BIND_INT("prefetch", loader_options, core.prefetch, 0, 0, "Batches decoded ahead; 0: 2."),
    MR_BIND_INT("epochs", loader_options, core.epochs, 0, 0, "End after so many in all; 0: never."),
    MR_BIND_STR("state", loader_options, core.state, "Go on from this loader:state()."),
    MR_BIND_STR("excluded", loader_options, core.excluded, "Left out there: loader:excluded()."),
    MR_BIND_STR("quarantine", loader_options, core.quarantine, "The run's quarantine.jsonl."),
    MR_BIND_INT("slot", loader_options, core.slot, 1, 1,
                "Micro-batches of equal cost drawn together."),
    MR_BIND_BOOL("carry", loader_options, core.carry,
                 "What is no whole micro-batch at an epoch's end comes first in the next."),
    MR_BIND_NUM("deadline_s", loader_options, core.deadline_s, 0, "Seconds for one clip; 0: 60."),
    MR_BIND_BOOL("isolated", loader_options, core.isolated,
                 "Each thread decodes in a process of its own."),
    MR_BIND_BOOL("allow_empty", loader_options, core.allow_empty,
                 "Lengths that no sample can enter are left out, not refused."),
    MR_BIND_INT("part", loader_options, core.part, 0, 0,
                "Which of the ranks that share the order."),
    MR_BIND_INT("parts", loader_options, core.parts, 1, 1, "How many share it."),
    MR_BIND_INT("group", loader_options, core.group, 0, 0,
                "Of so many draws each rank has every parts-th; 0: of parts."),
    MR_BIND_BOOL("lpt", loader_options, core.lpt,
                 "The costliest draw of a group goes to the rank with least to do."),
    MR_BIND_BOOL("blind", loader_options, core.blind, "Nothing is decoded."),
    MR_BIND_INT("sample_part", loader_options, core.sample_part, 0, 0,
                "Decode the samples of this part alone, from 1."),
    MR_BIND_INT("sample_parts", loader_options, core.sample_parts, 0, 0, "Of so many; 0: all."),
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
    lua_getfield(L, 2, "buckets");
    mr_bucket_rule *rule =
        mr_bind_bucket_rule(L, lua_gettop(L), o.frame_interval, o.compat, (uint64_t)o.draw_epochs);
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
    MR_BIND_STR("excluded", carry_options, excluded, "Left out there: loader:excluded()."),
    MR_BIND_STR("seen", carry_options, seen, "The list that belongs to that state, if any."),
    MR_BIND_STR("folder", carry_options, folder, "Where the new list is written, required."),
    MR_BIND_INT("seed", carry_options, seed, 0, INT64_MIN, "Of the order."),
    MR_BIND_ANY("was_members", "mr.Subset", "Samples that the old order was of; none: all."),
    MR_BIND_ANY("members", "mr.Subset", "And the new one."),
    MR_BIND_END};

// the list of a state, as seen-HASH.bits in a folder
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
    return st;
}

/* carry(old index, old rule, index, rule, options) -> state, path of the list, samples in it */
static int l_carry(lua_State *L)
{
    carry_options o = {0};
    mr_carry from = {.index = mr_index_reader_index(mr_bind_unbox(L, 1, "mr.Index")),
                     .rule = mr_bind_unbox(L, 2, RULE)};
    mr_index *now = mr_index_reader_index(mr_bind_unbox(L, 3, "mr.Index"));
    const mr_bucket_rule *rule = mr_bind_unbox(L, 4, RULE);
    mr_bind_options(L, 5, "loader.carry", carry_fields, &o);
    luaL_argcheck(L, o.state && o.folder, 5, "state and folder are required");
    from.seed = (uint64_t)o.seed, from.text = o.state;
    lua_getfield(L, 5, "was_members");
    from.members = subset_at(L, lua_gettop(L));
    lua_getfield(L, 5, "members");
    const mr_subset *members = subset_at(L, lua_gettop(L));
    char **text = (char **)mr_bind_hold(L), path[4200];
    uint64_t count = 0;
    mr_bind_check(L, carry(&o, &from, now, rule, members, text, path, &count));
    lua_pushstring(L, *text);
    lua_pushstring(L, path);
    lua_pushinteger(L, (lua_Integer)count);
    return 3;
}

/* ---- a batch ---- */

/* Field `name` of the table on top: a list of n integers (i64 or i32) or numbers (f32). Ids and
 * keys are unsigned in the core: all their bits are kept. */
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
    mr_bind_set_int(L, "epoch", (int64_t)b->epoch);
    mr_bind_set_int(L, "draw", (int64_t)b->draw);
    mr_bind_set_int(L, "drawn", (int64_t)b->drawn);
    mr_bind_set_bool(L, "last", b->last);
    mr_bind_set_bool(L, "other", b->other);
    mr_bind_set_int(L, "source", b->source + 1);
    mr_bind_set_int(L, "bucket", b->bucket + 1);
    mr_bind_set_str(L, "resolution", b->shape.resolution);
    mr_bind_set_int(L, "frames", b->shape.frames);
    mr_bind_set_int(L, "height", b->shape.height);
    mr_bind_set_int(L, "width", b->shape.width);
    mr_bind_set_int(L, "size", b->size);
    mr_bind_set_int(L, "n", b->n);
    mr_bind_set_int(L, "bytes", (int64_t)b->bytes);
    mr_bind_set_num(L, "wait_s", b->wait_s);
    lua_pushlightuserdata(L, (void *)(uintptr_t)b);
    lua_setfield(L, -2, "handle");
    // a draw of another rank ends with its samples
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

/* ---- what it knows ---- */

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

/* Rows that enter no bucket, by the rule that keeps them out. */
static void push_dropped(lua_State *L, const uint64_t *dropped)
{
    lua_createtable(L, 0, MR_DROP_COUNT);
    for (int why = MR_DROP_NONE + 1; why < MR_DROP_COUNT; why++)
        if (dropped[why])
            mr_bind_set_int(L, mr_drop_text(why), (int64_t)dropped[why]);
}

/* One bucket of the rule, and how many samples and batches the epoch has of it. */
static void push_bucket(lua_State *L, const mr_loader *l, int32_t i)
{
    uint64_t samples;
    mr_bucket b = mr_loader_bucket(l, i, &samples);
    uint64_t size = (uint64_t)b.batch, batches = size ? (samples + size - 1) / size : 0;
    lua_createtable(L, 0, 8);
    mr_bind_set_int(L, "bucket", i + 1);
    mr_bind_set_str(L, "resolution", b.resolution);
    mr_bind_set_int(L, "frames", b.frames);
    mr_bind_set_int(L, "height", b.height);
    mr_bind_set_int(L, "width", b.width);
    mr_bind_set_int(L, "batch", b.batch);
    mr_bind_set_int(L, "samples", (int64_t)samples);
    mr_bind_set_int(L, "batches", (int64_t)batches);
}

/* What the epoch a source began in has of it, and what it gave. */
static void push_source(lua_State *L, mr_loader *l, int32_t i)
{
    mr_source_facts f = mr_loader_source(l, i);
    lua_createtable(L, 0, 6);
    mr_bind_set_str(L, "name", f.name);
    mr_bind_set_int(L, "rows", (int64_t)f.rows);
    mr_bind_set_int(L, "epoch", (int64_t)f.epoch);
    mr_bind_set_int(L, "samples", (int64_t)f.samples);
    mr_bind_set_int(L, "batches", (int64_t)f.batches);
    mr_bind_set_int(L, "delivered", (int64_t)f.delivered);
}

static int l_facts(lua_State *L)
{
    mr_loader *l = mr_bind_unbox(L, 1, LOADER);
    mr_loader_facts f = mr_loader_get_facts(l);
    lua_createtable(L, 0, 16);
    // of the epoch the loader began in
    mr_bind_set_int(L, "epoch", (int64_t)f.epoch);
    mr_bind_set_int(L, "samples", (int64_t)f.samples);
    mr_bind_set_int(L, "batches", (int64_t)f.batches);
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
    // what it holds
    mr_bind_set_int(L, "slabs", f.slabs);
    mr_bind_set_int(L, "slab_bytes", (int64_t)f.slab_bytes);
    mr_bind_set_int(L, "threads", f.threads);
    // counted so far
    mr_bind_set_int(L, "delivered", (int64_t)f.delivered);
    mr_bind_set_int(L, "failed", (int64_t)f.failed);
    mr_bind_set_int(L, "hits", (int64_t)f.hits);
    mr_bind_set_int(L, "waits", (int64_t)f.waits);
    mr_bind_set_int(L, "decoded_bytes", (int64_t)f.bytes);
    mr_bind_set_int(L, "ready", f.ready);
    mr_bind_set_num(L, "wait_s", f.wait_s);
    return 1;
}

static const mr_bind_row loader_module_rows[] = {
    MR_ROW_OPTIONS("new", l_new, "(sources: table[], options: table): mr.Loader",
                   "Start decode threads on sources, each {index, name, weights = {{samples, "
                   "weight}, ...}, epochs, seen, epoch}.",
                   loader_fields),
    MR_ROW_OPTIONS("rule", l_rule, "(options: table): mr.BucketRule",
                   "A bucket rule by itself; moonreel.data.buckets.rule takes a recipe's tables.",
                   rule_fields),
    MR_ROW("in_part", l_in_part, "(key: integer, part: integer, parts: integer): boolean",
           "Does the sample with this lower half of a key belong to a part, from 1?"),
    MR_ROW_OPTIONS("carry", l_carry,
                   "(was: mr.Index, was_rule: mr.BucketRule, now: mr.Index, rule: mr.BucketRule, "
                   "options: table): string, string, integer",
                   "A state for another index, another rule or both: it, the path of the list of "
                   "samples that the epoch has trained, and how many they are.",
                   carry_fields),
    MR_ROW_OPTIONS("quantiles", l_quantiles,
                   "(index: mr.Index, options: table): mr.Subset, number, number",
                   "The samples between two quantiles of a column, and the least and the largest "
                   "value among them.",
                   quantiles_fields),
    MR_ROW_OPTIONS("order", mr_bind_order_new, "(sources: table[], options: table): mr.Order",
                   "The order of the sources' samples by itself, from the first epoch on; "
                   "moonreel.data.order takes settings.",
                   mr_bind_order_fields),
    MR_ROW_END};
static const mr_bind_face loader_module_face = {
    "moonreel.core.loader", "Batches of decoded clips; moonreel.data.loader is what people use.",
    loader_module_rows, NULL};

static const mr_bind_row loader_rows[] = {
    MR_ROW("next", l_next, "(): table?",
           "The next batch; nil after the last epoch. Fields: moonreel.data.loader."),
    MR_ROW("release", l_release, "(handle: lightuserdata)", "Give a batch's memory back."),
    MR_ROW("state", l_state, "(): string",
           "Where the order stands after the batch given out last."),
    MR_ROW("excluded", l_excluded, "(): string", "The samples left out where that state stands."),
    MR_ROW("failures", l_failures, "(): string",
           "Which samples failed here since the last call, for the ranks that share the order."),
    MR_ROW("agree", l_agree, "(others: string)",
           "What failed on all other ranks; needed where an epoch is over."),
    MR_ROW("order", l_order, "(n: integer): integer[]", "Row ids, from 0, of the next n samples."),
    MR_ROW("facts", l_facts, "(): table",
           "Of the epoch it began in: samples, batches, dropped by rule, buckets; and counters."),
    MR_ROW_END};
static const mr_bind_face loader_face = {"mr.Loader", "Decode threads on an index.", loader_rows,
                                         free_loader};

static const mr_bind_row rule_rows[] = {
    MR_ROW_OPTIONS("assign", rule_assign, "(options: table): table?, string?",
                   "The bucket that a sample enters: resolution, frames, height, width, batch; or "
                   "nil and why it enters none.",
                   sample_fields),
    MR_ROW("survey", rule_survey,
           "(index: mr.Index, seed: integer, epoch: integer, members?: mr.Subset): table",
           "What becomes of an index's rows in an epoch: buckets that are used, each with its "
           "samples, and dropped: {why, rows, example (a row from 1)}."),
    MR_ROW("measure", rule_measure, "(rows: integer): table",
           "What planning so many made-up rows takes: {plan_s, select_s (of a sample), bytes, "
           "state_bytes, buckets, used}."),
    MR_ROW("hash", rule_hash, "(members?: mr.Subset): string",
           "Of all but batch sizes and costs: 16 hexadecimal digits, as in a state of the order."),
    MR_ROW("crop", rule_crop,
           "(frames: integer, have: integer, start?: integer): integer[], integer",
           "The frames that a sample of so many takes from a clip, from 0; and how many starts "
           "there are."),
    MR_ROW_END};
static const mr_bind_face rule_face = {"mr.BucketRule", "Which bucket a sample enters.", rule_rows,
                                       free_rule};

static const mr_bind_row subset_rows[] = {
    MR_ROW("count", subset_count, "(): integer", "How many samples it holds."),
    MR_ROW("has", subset_has, "(row: integer): boolean", "Is row, from 1, one of them?"),
    MR_ROW_END};
static const mr_bind_face subset_face = {"mr.Subset", "Some samples of an index.", subset_rows,
                                         free_subset};

MR_BIND_ROOM(loader)
{
    mr_bind_type(L, &subset_face);
    mr_bind_type(L, &rule_face);
    mr_bind_type(L, &loader_face);
    mr_bind_order_type(L);
    return mr_bind_module(L, &loader_module_face);
}
