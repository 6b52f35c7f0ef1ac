/* bind: mr.BucketRule - chooses the bucket of a sample, for moonreel.data.buckets.
 * Licence: Apache-2.0
 *
 * moonreel.data.buckets creates rules: a list of tables {name, pixels, aspects = {{ratio, height,
 * width}, ...}, lengths = {{frames, keep, try, batch, cost, pair}}}. With `pair` there are two
 * probabilities, else try is 1. */
#include "bind/room.h"

#include <math.h>
#include <string.h>

const char mr_bind_rule_type[] = "mr.BucketRule";

/* ---- reading a rule ---- */

/* Number `i` of the list on top of the stack. */
static double number_at(lua_State *L, int i)
{
    int ok;
    lua_rawgeti(L, -1, i);
    double v = lua_tonumberx(L, -1, &ok);
    lua_pop(L, 1);
    if (!ok)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: entry %d is not a number", i);
    return v;
}

/* Push list `name` of the table on top of the stack; returns its length. */
static int32_t push_list(lua_State *L, const char *name)
{
    if (lua_getfield(L, -1, name) != LUA_TTABLE)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: list '%s' is missing", name);
    return (int32_t)lua_rawlen(L, -1);
}

/* Push row `i` (from 0) of the list on top of the stack. */
static void push_row(lua_State *L, int32_t i)
{
    if (lua_rawgeti(L, -1, i + 1) != LUA_TTABLE)
        mr_bind_raise(L, MR_E_RECIPE, "bucket rule: row %d is not a table", (int)i + 1);
}

/* Read both lists of the resolution on top of the stack. Their memory stays on the stack above the
 * resolution, and the caller's frame frees it. */
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

// an optional number of the row on top; default 0
static double optional_at(lua_State *L, int i)
{
    lua_rawgeti(L, -1, i);
    double x = lua_isnil(L, -1) ? 0 : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    return x;
}

// whether the row on top has two probabilities
static bool is_pair(lua_State *L)
{
    lua_getfield(L, -1, "pair");
    bool pair = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return pair;
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
                                     .tries = is_pair(L) ? number_at(L, 3) : NAN,
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

static mr_reference reference_of(lua_State *L, const char *name)
{
    static const char *const names[] = {NULL, "opensora-1.2", "opensora-2.0"};
    if (!name)
        return MR_REFERENCE_NONE;
    for (int i = 1; i < (int)MR_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0)
            return (mr_reference)i;
    mr_bind_raise(L, MR_E_USAGE, "reference '%s': expected %s or %s", name, names[1], names[2]);
    return MR_REFERENCE_NONE;
}

/* Create a rule from the list at `list`; the caller owns it. Values that it leaves on the stack are
 * dropped with the caller's frame. */
static mr_bucket_rule *read_rule(lua_State *L, int list, const mr_bind_rule_options *o)
{
    luaL_checktype(L, list, LUA_TTABLE);
    mr_reference reference = reference_of(L, o->reference);
    int32_t n = (int32_t)lua_rawlen(L, list);
    mr_bucket_resolution *resolutions = mr_bind_scratch(L, sizeof *resolutions * (size_t)(n + 1));
    for (int32_t i = 0; i < n; i++) {
        luaL_checkstack(L, 16, "too many resolutions");
        lua_rawgeti(L, list, i + 1);
        luaL_checktype(L, -1, LUA_TTABLE);
        read_resolution(L, lua_gettop(L), &resolutions[i]);
    }
    mr_bucket_rule *rule;
    mr_bind_check(L, mr_bucket_rule_new(resolutions, n, o->frame_interval, o->compat, &rule));
    mr_bucket_rule_repeat(rule, (uint64_t)o->draw_epochs);
    mr_status st = mr_bucket_rule_follow(rule, reference, o->fps_max);
    if (st != MR_OK)
        mr_bucket_rule_free(rule);
    mr_bind_check(L, st);
    return rule;
}

mr_bucket_rule *mr_bind_rule(lua_State *L, int options, const mr_bind_rule_options *o)
{
    lua_getfield(L, options, "buckets");
    return read_rule(L, lua_gettop(L), o);
}

/* ---- the type ---- */

static void free_rule(void *rule)
{
    mr_bucket_rule_free(rule);
}

typedef struct rule_options {
    mr_bind_rule_options rule;
} rule_options;

const mr_bind_field mr_bind_rule_fields[] = {MR_BIND_RULE_FIELDS(rule_options, rule), MR_BIND_END};

int mr_bind_rule_new(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    rule_options o = {0};
    mr_bind_options(L, 1, "loader.rule", mr_bind_rule_fields, &o);
    void **box = mr_bind_box(L, mr_bind_rule_type);
    *box = mr_bind_rule(L, 1, &o.rule);
    lua_pushvalue(L, 2);
    return 1;
}

/* ---- queries ---- */

typedef struct rule_sample {
    int64_t frames, height, width, key, seed, epoch, row;
    double fps;
} rule_sample;

static const mr_bind_field sample_fields[] = {
    MR_BIND_INT("frames", rule_sample, frames, 1, 1, "Frames of the clip; 1: a picture."),
    MR_BIND_INT("height", rule_sample, height, 1, 1, "As shown."),
    MR_BIND_INT("width", rule_sample, width, 1, 1, "As shown."),
    MR_BIND_INT("key", rule_sample, key, 0, INT64_MIN, "Low half of the sample's key."),
    MR_BIND_INT("seed", rule_sample, seed, 0, INT64_MIN, "Of the order."),
    MR_BIND_INT("epoch", rule_sample, epoch, 0, 0, "From 0."),
    MR_BIND_INT("row", rule_sample, row, 1, 1,
                "Row of the index; the draws of a rule that follows a reference depend on it."),
    MR_BIND_NUM("fps", rule_sample, fps, 0, "Rate of the clip; 0: unknown."),
    MR_BIND_END};

// read the sample in the table at argument 2
static mr_hot sample_at(lua_State *L, const char *who, rule_sample *s)
{
    mr_bind_options(L, 2, who, sample_fields, s);
    luaL_argcheck(L, MR_MAX(s->height, s->width) <= MR_CLIP_SHOWN_MAX && s->frames <= UINT32_MAX, 2,
                  "larger than an index holds");
    luaL_argcheck(L, s->fps >= 0 && s->fps < 4e6, 2, "fps is not a valid rate");
    return (mr_hot){.key_lo = (uint64_t)s->key,
                    .frames = (uint32_t)s->frames,
                    .fps_milli = (uint32_t)(s->fps * 1000 + 0.5),
                    .height = (uint16_t)s->height,
                    .width = (uint16_t)s->width};
}

void mr_bind_push_shape(lua_State *L, const mr_bucket_rule *rule, int32_t b)
{
    mr_bucket bucket = mr_bucket_rule_get(rule, b);
    lua_createtable(L, 0, 6);
    MR_BIND_SET(L, bucket, resolution, frames, height, width, batch);
}

static int rule_assign(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, mr_bind_rule_type);
    rule_sample s = {0};
    mr_hot hot = sample_at(L, "rule:assign", &s);
    mr_drop why;
    int32_t b = mr_bucket_rule_assign(rule, (uint64_t)s.seed, (uint64_t)s.epoch,
                                      (uint64_t)s.row - 1, &hot, &why);
    if (b < 0) {
        lua_pushnil(L);
        lua_pushstring(L, mr_drop_text(why));
        return 2;
    }
    mr_bind_push_shape(L, rule, b);
    return 1;
}

// push what a length says about a clip with this number of frames
static void push_said(lua_State *L, const mr_bucket_rule *rule, const mr_asked *a, int64_t have)
{
    bool skip = mr_bucket_rule_follows(rule) == MR_REFERENCE_20;
    switch (a->said) {
    case MR_SAID_NOTHING: lua_pushliteral(L, "not asked: a longer one did not keep it"); break;
    case MR_SAID_SMALL: lua_pushstring(L, mr_drop_text(MR_DROP_SMALL)); break;
    case MR_SAID_UNFIT:
        lua_pushstring(L, mr_drop_text(have == 1 ? MR_DROP_IMAGE : MR_DROP_SHORT));
        break;
    case MR_SAID_NOT_TRIED:
        lua_pushfstring(L, "not tried at random, with probability %f",
                        skip ? a->tries : 1 - a->tries);
        break;
    case MR_SAID_NOT_KEPT:
        lua_pushfstring(L, "not kept at random, with probability %f", 1 - a->keep);
        break;
    case MR_SAID_TAKES: lua_pushliteral(L, "takes it");
    }
    lua_setfield(L, -2, "says");
}

static int rule_ask(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, mr_bind_rule_type);
    rule_sample s = {0};
    mr_hot hot = sample_at(L, "rule:ask", &s);
    int32_t n = mr_bucket_rule_lengths(rule);
    mr_asked *asked = mr_bind_scratch(L, sizeof *asked * (size_t)n);
    mr_bucket_rule_ask(rule, (uint64_t)s.seed, (uint64_t)s.epoch, (uint64_t)s.row - 1, &hot, asked);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 4);
        MR_BIND_SET(L, asked[i], resolution, frames);
        push_said(L, rule, &asked[i], s.frames);
        lua_createtable(L, asked[i].n_draws, 0);
        for (int32_t k = 0; k < asked[i].n_draws; k++) {
            lua_pushnumber(L, asked[i].draws[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "draws");
        lua_rawseti(L, -2, i + 1);
        if (asked[i].said == MR_SAID_TAKES)
            break;
    }
    return 1;
}

/* A survey of the rows of an index in an epoch; the caller's frame frees its memory. */
typedef struct survey {
    int64_t *samples; /* per bucket */
    double *pixels;   /* per bucket: pixels per source frame, first the sum, then the mean */
    int64_t dropped[MR_DROP_COUNT], example[MR_DROP_COUNT]; /* number of dropped rows; one of them,
                                                             * from 1 */
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
                b = mr_bucket_rule_assign(rule, seed, epoch, (uint64_t)at, &hot[i], &why);
            if (b >= 0)
                s->samples[b]++, s->pixels[b] += (double)hot[i].width * hot[i].height;
            else if (!s->dropped[why]++)
                s->example[why] = at + 1;
        }
    }
    for (int32_t b = 0; b < mr_bucket_rule_count(rule); b++)
        s->pixels[b] /= (double)MR_MAX(s->samples[b], 1);
    return MR_OK;
}

/* Count the rows of buckets that a reference drops with `ranks` ranks. */
static mr_status count_left(const mr_bucket_rule *rule, mr_index_reader *reader, uint64_t seed,
                            uint64_t epoch, int32_t ranks, survey *s)
{
    mr_order *order;
    uint64_t row;
    mr_order_options options = {.seed = seed, .slot = ranks};
    MR_TRY(mr_order_new(mr_index_reader_index(reader), rule, &options, &order));
    mr_status st = epoch ? mr_order_begin(order, epoch) : MR_OK;
    for (int32_t b = 0; b < mr_bucket_rule_count(rule); b++)
        s->samples[b] = (int64_t)mr_order_samples(order, b);
    s->dropped[MR_DROP_LEFT] = (int64_t)mr_order_dropped(order, MR_DROP_LEFT);
    if (mr_order_left_row(order, &row))
        s->example[MR_DROP_LEFT] = (int64_t)row + 1;
    mr_order_free(order);
    return st;
}

/* survey(index, seed, epoch, members, ranks) -> {buckets = {{resolution, frames, height, width,
 * batch, samples, pixels}}, dropped = {{why, rows, example}}} */
static int rule_survey(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, mr_bind_rule_type);
    mr_index_reader *reader = mr_bind_unbox(L, 2, mr_bind_index_type);
    int32_t n = mr_bucket_rule_count(rule), used = 0;
    survey s = {.samples = mr_bind_scratch(L, sizeof *s.samples * ((size_t)n + 1)),
                .pixels = mr_bind_scratch(L, sizeof *s.pixels * ((size_t)n + 1))};
    memset(s.samples, 0, sizeof *s.samples * ((size_t)n + 1));
    memset(s.pixels, 0, sizeof *s.pixels * ((size_t)n + 1));
    uint64_t seed = (uint64_t)luaL_checkinteger(L, 3), epoch = (uint64_t)luaL_checkinteger(L, 4);
    lua_Integer ranks = luaL_optinteger(L, 6, 1);
    luaL_argcheck(L, ranks >= 1 && ranks <= INT32_MAX, 6, "expected 1 or more ranks");
    mr_bind_check(L, count_rows(rule, reader, mr_bind_subset(L, 5), seed, epoch, &s));
    if (mr_bucket_rule_follows(rule))
        mr_bind_check(L, count_left(rule, reader, seed, epoch, (int32_t)ranks, &s));
    lua_createtable(L, 0, 2);
    lua_newtable(L);
    for (int32_t i = 0; i < n; i++)
        if (s.samples[i]) {
            mr_bind_push_shape(L, rule, i);
            mr_bind_set_int(L, "samples", s.samples[i]);
            lua_pushnumber(L, s.pixels[i]);
            lua_setfield(L, -2, "pixels");
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
    snprintf(hex, sizeof hex, "%016llx",
             (unsigned long long)mr_bucket_rule_hash_of(mr_bind_unbox(L, 1, mr_bind_rule_type),
                                                        mr_bind_subset(L, 2)));
    lua_pushstring(L, hex);
    return 1;
}

static int rule_measure(lua_State *L)
{
    lua_Integer rows = luaL_checkinteger(L, 2);
    luaL_argcheck(L, rows >= 1 && rows <= 10000000000, 2, "expected 1 to 10^10 rows");
    mr_order_times t;
    mr_bind_check(L, mr_order_measure(mr_bind_unbox(L, 1, mr_bind_rule_type), (uint64_t)rows, &t));
    lua_createtable(L, 0, 6);
    MR_BIND_SET(L, t, plan_s, select_s, bytes, state_bytes, buckets, used);
    return 1;
}

static int rule_crop(lua_State *L)
{
    const mr_bucket_rule *rule = mr_bind_unbox(L, 1, mr_bind_rule_type);
    lua_Integer frames = luaL_checkinteger(L, 2), have = luaL_checkinteger(L, 3);
    lua_Integer start = luaL_optinteger(L, 4, 0);
    luaL_argcheck(L, frames >= 1 && frames <= 100000, 2, "expected 1 to 100000 frames");
    luaL_argcheck(L, have >= 1 && have <= INT32_MAX, 3, "expected 1 or more");
    lua_Number fps = luaL_optnumber(L, 5, 0);
    luaL_argcheck(L, fps >= 0 && fps < 4e6, 5, "is not a valid rate");
    int32_t interval = mr_bucket_rule_interval(rule, (uint32_t)(fps * 1000 + 0.5));
    mr_crop crop = mr_bucket_rule_crop(rule, (int32_t)frames, have, interval);
    luaL_argcheck(L, start >= 0 && start < crop.starts, 4, "is not a possible start");
    lua_createtable(L, (int)frames, 0);
    for (int32_t i = 0; i < frames; i++) {
        lua_pushinteger(L, mr_crop_frame(&crop, start, i));
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushinteger(L, crop.starts);
    return 2;
}

static const mr_bind_entry rule_entries[] = {
    MR_ENTRY_OPTIONS("assign", rule_assign, "(options: table): table?, string?",
                     "The bucket that a sample enters: resolution, frames, height, width, batch; "
                     "or nil and the reason.",
                     sample_fields),
    MR_ENTRY("survey", rule_survey,
             "(index: mr.Index, seed: integer, epoch: integer, members?: mr.Subset, ranks?: "
             "integer): table",
             "A survey of the rows of an index in an epoch: used buckets with their samples and "
             "the mean pixels of their source frames, and dropped: {why, rows, example (a row from "
             "1)}. The rows that a reference drops depend on the ranks."),
    MR_ENTRY_OPTIONS(
        "ask", rule_ask, "(options: table): table[]",
        "The answers of resolutions and lengths for a sample, in the order in which they are "
        "tried: {resolution, frames, says, draws (in 0..1)}; the last one takes the sample.",
        sample_fields),
    MR_ENTRY("measure", rule_measure, "(rows: integer): table",
             "The cost of planning this many synthetic rows: {plan_s, select_s (per sample), "
             "bytes, state_bytes, buckets, used}."),
    MR_ENTRY("hash", rule_hash, "(members?: mr.Subset): string",
             "A hash of everything except batch sizes and costs: 16 hexadecimal digits, as in a "
             "state of the order."),
    MR_ENTRY("crop", rule_crop,
             "(frames: integer, have: integer, start?: integer, fps?: number): integer[], integer",
             "The frames, from 0, that a sample of this length takes from a clip; and the number "
             "of possible starts."),
    MR_ENTRY_END};
static const mr_bind_face rule_face = {mr_bind_rule_type, "Decides which bucket a sample enters.",
                                       rule_entries, free_rule};

void mr_bind_rule_type_open(lua_State *L)
{
    mr_bind_type(L, &rule_face);
}
