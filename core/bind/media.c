/* bind: moonreel.core.media - encode and decode for Lua. Pixels are u8 planar RGB [T][3][H][W] in a
 * string, or behind a light userdata with the option `bytes`. Licence: Apache-2.0 */
#include "bind.h"

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
    if (mr_media_get(&m) == MR_OK) m->encoder_free(enc);
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
    if (n != want) mr_bind_raise(L, MR_E_SHAPE, "pixels: %zu bytes came, expected %zu (frames x 3 x height x width)", n, want);
    return p;
}

static int32_t opt_size(lua_State *L, int arg, const char *field, int32_t def, int32_t least)
{
    int64_t v = mr_bind_opt_int(L, arg, field, def);
    if (v < least || v > INT32_MAX) mr_bind_raise(L, MR_E_USAGE, "%s: %lld; expected %d or more", field, (long long)v, least);
    return (int32_t)v;
}

static mr_encode_options encode_options(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    mr_encode_options o = {
        .width = opt_size(L, arg, "width", 0, 1), .height = opt_size(L, arg, "height", 0, 1),
        .rate_num = opt_size(L, arg, "rate_num", 0, 0), .rate_den = opt_size(L, arg, "rate_den", 1, 1),
        .codec = mr_bind_opt_str(L, arg, "codec", NULL), .pixel_format = mr_bind_opt_str(L, arg, "pixel_format", NULL),
        .quality = opt_size(L, arg, "quality", 0, 0), .gop = opt_size(L, arg, "gop", 0, 0),
        .orient = opt_size(L, arg, "orient", 0, 0) & 7,
        .sar_num = opt_size(L, arg, "sar_num", 1, 1), .sar_den = opt_size(L, arg, "sar_den", 1, 1),
        .matrix = mr_bind_opt_str(L, arg, "matrix", NULL),
        .full_range = mr_bind_opt_bool(L, arg, "full_range", false), .untagged = mr_bind_opt_bool(L, arg, "untagged", false),
        .options = mr_bind_opt_str(L, arg, "options", NULL), .mux_options = mr_bind_opt_str(L, arg, "mux_options", NULL)};
    double fps = mr_bind_opt_num(L, arg, "fps", 24);
    if (!(fps > 0 && fps <= 1000)) mr_bind_raise(L, MR_E_USAGE, "fps: %g; expected above 0, at most 1000", fps);
    if (!o.rate_num) {
        bool whole = fps == (int32_t)fps;
        o.rate_num = whole ? (int32_t)fps : (int32_t)(fps * 1001 + 0.5), o.rate_den = whole ? 1 : 1001;
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
    lua_getiuservalue(L, 1, 1);
    size_t want = (size_t)lua_tointeger(L, -1), n;
    const char *p = luaL_checklstring(L, 2, &n);
    if (n != want) return mr_bind_raise(L, MR_E_SHAPE, "frame: %zu bytes came, expected %zu (3 x height x width)", n, want);
    mr_bind_check(L, media(L)->encoder_frame(enc, (const uint8_t *)p, luaL_optinteger(L, 3, -1)));
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
    size_t frames = (size_t)opt_size(L, 3, "frames", 1, 1), one = (size_t)o.width * (size_t)o.height * 3;
    const uint8_t *rgb = check_pixels(L, 2, 3, one * frames);
    const mr_media *m = media(L);
    mr_encoder *enc;
    mr_status st = m->encoder_open(path, &o, &enc);
    if (st == MR_OK) {
        for (size_t i = 0; i < frames && st == MR_OK; i++) st = m->encoder_frame(enc, rgb + i * one, -1);
        if (st == MR_OK) st = m->encoder_finish(enc);
        m->encoder_free(enc);
    }
    mr_bind_check(L, st);
    return 0;
}

MR_BIND_ROOM(media)
{
    static const luaL_Reg methods[] = {{"frame", encoder_frame}, {"finish", encoder_finish}, {NULL, NULL}};
    static const luaL_Reg rows[] = {{"encoder", m_encoder}, {"encode", m_encode}, {NULL, NULL}};
    mr_bind_type(L, ENCODER, methods, NULL, free_encoder);
    luaL_newlib(L, rows);
    return 1;
}
