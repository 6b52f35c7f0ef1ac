/* bind: moonreel.core.media - encode and decode for Lua. Pixels are u8 planar RGB [T][3][H][W] in a
 * string, or behind a light userdata with the option `bytes`. Licence: Apache-2.0 */
#include "bind/room.h"

#include "moonreel/media.h"

#include <string.h>

#define ENCODER "mr.Encoder"

static const mr_media *media(lua_State *L)
{
    const mr_media *m;
    mr_bind_check(L, mr_media_get(&m));
    return m;
}

// the table outlives the encoder, so freeing needs no Lua
static void free_encoder(void *enc)
{
    const mr_media *m;
    if (mr_media_get(&m) == MR_OK)
        m->encoder_free(enc);
}

// pixels at `arg`: a string, or a light userdata whose size the options at `opts` tell
static const uint8_t *check_pixels(lua_State *L, int arg, int opts, size_t want)
{
    size_t n = 0;
    const uint8_t *p = NULL;
    if (lua_type(L, arg) == LUA_TSTRING) {
        p = (const uint8_t *)lua_tolstring(L, arg, &n);
    } else {
        luaL_checktype(L, arg, LUA_TLIGHTUSERDATA);
        p = lua_touserdata(L, arg);
        n = (size_t)mr_bind_opt_int(L, opts, "bytes", 0);
    }
    if (n != want)
        mr_bind_raise(L, MR_E_SHAPE,
                      "pixels: %zu bytes came, expected %zu (frames x 3 x height x width)", n,
                      want);
    return p;
}

static int32_t opt_size(lua_State *L, int arg, const char *field, int32_t def, int32_t least)
{
    int64_t v = mr_bind_opt_int(L, arg, field, def);
    if (v < least || v > INT32_MAX)
        mr_bind_raise(L, MR_E_USAGE, "%s: %lld; expected %d or more", field, (long long)v, least);
    return (int32_t)v;
}

static mr_encode_options encode_options(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    mr_encode_options o = {.width = opt_size(L, arg, "width", 0, 1),
                           .height = opt_size(L, arg, "height", 0, 1),
                           .rate_num = opt_size(L, arg, "rate_num", 0, 0),
                           .rate_den = opt_size(L, arg, "rate_den", 1, 1),
                           .codec = mr_bind_opt_str(L, arg, "codec", NULL),
                           .pixel_format = mr_bind_opt_str(L, arg, "pixel_format", NULL),
                           .quality = opt_size(L, arg, "quality", 0, 0),
                           .gop = opt_size(L, arg, "gop", 0, 0),
                           .orient = opt_size(L, arg, "orient", 0, 0) & 7,
                           .sar_num = opt_size(L, arg, "sar_num", 1, 1),
                           .sar_den = opt_size(L, arg, "sar_den", 1, 1),
                           .matrix = mr_bind_opt_str(L, arg, "matrix", NULL),
                           .full_range = mr_bind_opt_bool(L, arg, "full_range", false),
                           .untagged = mr_bind_opt_bool(L, arg, "untagged", false),
                           .options = mr_bind_opt_str(L, arg, "options", NULL),
                           .mux_options = mr_bind_opt_str(L, arg, "mux_options", NULL)};
    double fps = mr_bind_opt_num(L, arg, "fps", 24);
    if (!(fps > 0 && fps <= 1000))
        mr_bind_raise(L, MR_E_USAGE, "fps: %g; expected above 0, at most 1000", fps);
    if (!o.rate_num) {
        bool whole = fps == (int32_t)fps;
        o.rate_num = whole ? (int32_t)fps : (int32_t)(fps * 1001 + 0.5),
        o.rate_den = whole ? 1 : 1001;
    }
    return o;
}

// encoder(path, {width, height, fps, codec, quality, gop, ...}) -> mr.Encoder
static int m_encoder(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    mr_encode_options o = encode_options(L, 2);
    const mr_media *m = media(L);
    void **box = mr_bind_box(L, ENCODER);
    // kept with the box: each frame is checked against it
    lua_pushinteger(L, (lua_Integer)o.width * o.height * 3);
    lua_setiuservalue(L, -2, 1);
    mr_encoder *enc;
    mr_bind_check(L, m->encoder_open(path, &o, &enc));
    *box = enc;
    return 1;
}

// encoder:frame(pixels [, pts]): one frame [3][H][W]
static int encoder_frame(lua_State *L)
{
    mr_encoder *enc = mr_bind_unbox(L, 1, ENCODER);
    int64_t pts = luaL_optinteger(L, 3, -1);
    lua_getiuservalue(L, 1, 1);
    size_t want = (size_t)lua_tointeger(L, -1), n;
    const char *p = luaL_checklstring(L, 2, &n);
    if (n != want)
        return mr_bind_raise(L, MR_E_SHAPE,
                             "frame: %zu bytes came, expected %zu (3 x height x width)", n, want);
    mr_bind_check(L, media(L)->encoder_frame(enc, (const uint8_t *)p, pts));
    return 0;
}

// encoder:finish(): writes what is left and gives the file its name
static int encoder_finish(lua_State *L)
{
    mr_bind_check(L, media(L)->encoder_finish(mr_bind_unbox(L, 1, ENCODER)));
    return 0;
}

// encode(path, pixels [T][3][H][W], {frames, height, width, fps, codec, quality, ...})
static int m_encode(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    mr_encode_options o = encode_options(L, 3);
    size_t frames = (size_t)opt_size(L, 3, "frames", 1, 1),
           one = (size_t)o.width * (size_t)o.height * 3;
    const uint8_t *rgb = check_pixels(L, 2, 3, one * frames);
    const mr_media *m = media(L);
    mr_encoder *enc;
    mr_status st = m->encoder_open(path, &o, &enc);
    if (st == MR_OK) {
        for (size_t i = 0; i < frames && st == MR_OK; i++)
            st = m->encoder_frame(enc, rgb + i * one, -1);
        if (st == MR_OK)
            st = m->encoder_finish(enc);
        m->encoder_free(enc);
    }
    mr_bind_check(L, st);
    return 0;
}

#define WORKER "mr.MediaWorker"

static void free_worker(void *w)
{
    const mr_media *m;
    if (mr_media_get(&m) == MR_OK)
        m->worker_free(w);
}

// one worker for all calls of this state, kept in the registry; collected with it
static mr_media_worker *worker(lua_State *L, const mr_media *m)
{
    if (lua_getfield(L, LUA_REGISTRYINDEX, WORKER " in use") == LUA_TNIL) {
        lua_pop(L, 1);
        void **box = mr_bind_box(L, WORKER);
        mr_media_worker *w;
        mr_bind_check(L, m->worker_new(&w));
        *box = w;
        lua_pushvalue(L, -1);
        lua_setfield(L, LUA_REGISTRYINDEX, WORKER " in use");
    }
    mr_media_worker *w = mr_bind_unbox(L, -1, WORKER);
    lua_pop(L, 1);
    return w;
}

static void push_info(lua_State *L, const mr_clip_info *info)
{
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"frames", info->frames},
                {"duration_ms", info->duration_ms},
                {"width", info->width},
                {"height", info->height},
                {"coded_width", info->coded_width},
                {"coded_height", info->coded_height},
                {"sar_num", info->sar_num},
                {"sar_den", info->sar_den},
                {"orient", info->orient},
                {"rate_num", info->rate_num},
                {"rate_den", info->rate_den},
                {"tb_num", info->tb_num},
                {"tb_den", info->tb_den},
                {"first_pts", info->first_pts},
                {"reorder", info->reorder},
                {"bytes", (int64_t)info->bytes},
                {"mtime_ns", info->mtime_ns},
                {"matrix", info->matrix},
                {"range", info->range},
                {"transfer", info->transfer},
                {"primaries", info->primaries},
                {"keys", info->n_keys}};
    lua_createtable(L, 0, (int)MR_COUNT(rows) + 8);
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        lua_pushinteger(L, rows[i].value);
        lua_setfield(L, -2, rows[i].name);
    }
    const struct {
        const char *name;
        uint32_t bit;
    } flags[] = {{"vfr", MR_CLIP_VFR},
                 {"no_pts", MR_CLIP_NO_PTS},
                 {"interlaced", MR_CLIP_INTERLACED},
                 {"hdr", MR_CLIP_HDR},
                 {"image", MR_CLIP_IMAGE}};
    for (size_t i = 0; i < MR_COUNT(flags); i++) {
        lua_pushboolean(L, (info->flags & flags[i].bit) != 0);
        lua_setfield(L, -2, flags[i].name);
    }
    lua_pushnumber(L, info->rate_num ? (double)info->rate_num / info->rate_den : 0);
    lua_setfield(L, -2, "fps");
    lua_pushstring(L, info->codec);
    lua_setfield(L, -2, "codec");
}

// scan(path) -> table of facts: frames, fps, width, height, codec, ...
static int m_scan(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const mr_media *m = media(L);
    mr_clip_info info;
    mr_fault fault;
    mr_bind_check(L, m->scan(worker(L, m), path, 0, &info, &fault));
    int32_t keys = info.n_keys;
    mr_clip_info_fini(&info);
    info.n_keys = keys;
    push_info(L, &info);
    return 1;
}

// decode(path, {frames, height, width, start, interval}) -> pixels [T][3][H][W], facts
static int m_decode(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    static const char *const filters[] = {"bilinear", "area", "bicubic", "lanczos", NULL};
    lua_settop(L, 2);
    if (lua_isnil(L, 2)) {
        lua_newtable(L);
        lua_replace(L, 2);
    }
    mr_clip_request q = {.path = path,
                         .start = mr_bind_opt_int(L, 2, "start", 0),
                         .step = opt_size(L, 2, "interval", 1, 1),
                         .frames = opt_size(L, 2, "frames", 0, 0),
                         .height = opt_size(L, 2, "height", 0, 0),
                         .width = opt_size(L, 2, "width", 0, 0),
                         .deadline_s = mr_bind_opt_num(L, 2, "deadline_s", 0)};
    const char *filter = mr_bind_opt_str(L, 2, "filter", "bilinear");
    while (filters[q.filter] && strcmp(filters[q.filter], filter))
        q.filter++;
    if (!filters[q.filter])
        return mr_bind_raise(L, MR_E_USAGE,
                             "filter: '%s'; expected bilinear, area, bicubic or lanczos", filter);
    const mr_media *m = media(L);
    mr_media_worker *w = worker(L, m);
    mr_clip_info *info = mr_bind_scratch(L, sizeof *info);
    mr_fault fault;
    mr_bind_check(L, m->scan(w, path, q.deadline_s, info, &fault));
    // without sizes: everything from the start, as it is shown
    q.info = info;
    int64_t left = info->frames - q.start;
    if (!q.frames)
        q.frames = (int32_t)((left + q.step - 1) / q.step);
    if (!q.height)
        q.height = info->height;
    if (!q.width)
        q.width = info->width;
    if (q.frames < 1)
        q.frames = 1;
    size_t bytes = (size_t)q.frames * 3 * (size_t)q.height * (size_t)q.width;
    luaL_Buffer buf;
    uint8_t *out = (uint8_t *)luaL_buffinitsize(L, &buf, bytes);
    mr_status st = m->read(w, &q, out, &fault);
    int32_t keys = info->n_keys;
    mr_clip_info_fini(info);
    info->n_keys = keys;
    mr_bind_check(L, st);
    luaL_pushresultsize(&buf, bytes);
    push_info(L, info);
    return 2;
}

MR_BIND_ROOM(media)
{
    static const luaL_Reg methods[] = {
        {"frame", encoder_frame}, {"finish", encoder_finish}, {NULL, NULL}};
    static const luaL_Reg rows[] = {{"encoder", m_encoder},
                                    {"encode", m_encode},
                                    {"scan", m_scan},
                                    {"decode", m_decode},
                                    {NULL, NULL}};
    mr_bind_type(L, WORKER, NULL, NULL, free_worker);
    mr_bind_type(L, ENCODER, methods, NULL, free_encoder);
    luaL_newlib(L, rows);
    return 1;
}
