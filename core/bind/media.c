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

// the table outlives the encoder, so freeing does not need Lua
static void free_encoder(void *enc)
{
    const mr_media *m;
    if (mr_media_get(&m) == MR_OK)
        m->encoder_free(enc);
}

// the pixels at `arg` are a string, or a light userdata of `bytes`
static const uint8_t *check_pixels(lua_State *L, int arg, int64_t bytes, size_t want)
{
    size_t n = 0;
    const uint8_t *p = NULL;
    if (lua_type(L, arg) == LUA_TSTRING) {
        p = (const uint8_t *)lua_tolstring(L, arg, &n);
    } else {
        luaL_checktype(L, arg, LUA_TLIGHTUSERDATA);
        p = lua_touserdata(L, arg);
        n = (size_t)bytes;
    }
    if (n != want)
        mr_bind_raise(L, MR_E_SHAPE,
                      "pixels have %zu bytes, expected %zu (frames x 3 x height x width)", n, want);
    return p;
}

typedef struct encode_options {
    mr_encode_options how;
    double fps;
    int32_t frames;
    int64_t bytes;
} encode_options;

static const mr_bind_field encode_fields[] = {
    MR_BIND_INT("frames", encode_options, frames, 1, 1,
                "Number of frames in the pixels; encode() only."),
    MR_BIND_INT("height", encode_options, how.height, 0, 1, "Rows of a frame, required."),
    MR_BIND_INT("width", encode_options, how.width, 0, 1, "Columns of a frame, required."),
    MR_BIND_NUM("fps", encode_options, fps, 24, "Frames per second, at most 1000."),
    MR_BIND_INT("rate_num", encode_options, how.rate_num, 0, 0,
                "Numerator of the rate, instead of fps; 0: from fps."),
    MR_BIND_INT("rate_den", encode_options, how.rate_den, 1, 1, "Denominator of the rate."),
    MR_BIND_STR("codec", encode_options, how.codec,
                "h264, vp9, vp8, av1, hevc, ...; default: by container."),
    MR_BIND_STR("pixel_format", encode_options, how.pixel_format, "Default: yuv420p."),
    MR_BIND_INT("quality", encode_options, how.quality, 0, 0,
                "Constant quality of the encoder, smaller is better; 0: default."),
    MR_BIND_INT("gop", encode_options, how.gop, 0, 0, "Most frames between key frames; 0: 48."),
    MR_BIND_INT("orient", encode_options, how.orient, 0, 0,
                "Orientation when displayed, 0 to 7, as a display matrix."),
    MR_BIND_INT("sar_num", encode_options, how.sar_num, 1, 1, "Width of a pixel."),
    MR_BIND_INT("sar_den", encode_options, how.sar_den, 1, 1, "Height of a pixel."),
    MR_BIND_STR("matrix", encode_options, how.matrix,
                "bt709 (default), bt601, smpte240m or bt2020."),
    MR_BIND_BOOL("full_range", encode_options, how.full_range,
                 "Values of 0 to 255 instead of 16 to 235."),
    MR_BIND_BOOL("untagged", encode_options, how.untagged, "Leave the colour tags out."),
    MR_BIND_STR("options", encode_options, how.options,
                "More options of the encoder, name=value:name=value."),
    MR_BIND_STR("mux_options", encode_options, how.mux_options, "More options of the container."),
    MR_BIND_INT("bytes", encode_options, bytes, 0, 0,
                "Size of the pixels behind a light userdata."),
    MR_BIND_END};

static encode_options read_encode_options(lua_State *L, int arg, const char *who)
{
    encode_options o = {0};
    mr_bind_options(L, arg, who, encode_fields, &o);
    if (!o.how.height || !o.how.width)
        mr_bind_raise(L, MR_E_USAGE, "%s: %s is missing", who, o.how.height ? "width" : "height");
    if (!(o.fps > 0 && o.fps <= 1000))
        mr_bind_raise(L, MR_E_USAGE, "%s: fps: %g; expected above 0, at most 1000", who, o.fps);
    if (!o.how.rate_num) {
        bool whole = o.fps == (int32_t)o.fps;
        o.how.rate_num = whole ? (int32_t)o.fps : (int32_t)(o.fps * 1001 + 0.5);
        o.how.rate_den = whole ? 1 : 1001;
    }
    o.how.orient &= 7;
    return o;
}

// encoder(path, {width, height, fps, codec, quality, gop, ...}) -> mr.Encoder
static int m_encoder(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    mr_encode_options o = read_encode_options(L, 2, "encoder").how;
    const mr_media *m = media(L);
    void **box = mr_bind_box(L, ENCODER);
    // the size is kept with the box, and each frame is checked against it
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
                             "frame: the pixels have %zu bytes, expected %zu (3 x height x width)",
                             n, want);
    mr_bind_check(L, media(L)->encoder_frame(enc, (const uint8_t *)p, pts));
    return 0;
}

// encoder:finish(): write remaining frames and give the file its name
static int encoder_finish(lua_State *L)
{
    mr_bind_check(L, media(L)->encoder_finish(mr_bind_unbox(L, 1, ENCODER)));
    return 0;
}

// encode(path, pixels [T][3][H][W], {frames, height, width, fps, codec, quality, ...})
static int m_encode(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    encode_options o = read_encode_options(L, 3, "encode");
    size_t frames = (size_t)o.frames, one = (size_t)o.how.width * (size_t)o.how.height * 3;
    const uint8_t *rgb = check_pixels(L, 2, o.bytes, one * frames);
    const mr_media *m = media(L);
    mr_encoder *enc;
    mr_status st = m->encoder_open(path, &o.how, &enc);
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

// one worker for all calls of this state; it is in the registry and is collected with it
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
    lua_createtable(L, 0, 30);
    MR_BIND_SET(L, *info, frames, duration_ms, width, height, coded_width, coded_height, sar_num,
                sar_den, orient, rate_num, rate_den, tb_num, tb_den, first_pts, reorder, bytes);
    MR_BIND_SET(L, *info, mtime_ns, matrix, range, transfer, primaries, codec);
    mr_bind_set_int(L, "keys", info->n_keys);
    const struct {
        const char *name;
        uint32_t bit;
    } flags[] = {{"vfr", MR_CLIP_VFR},
                 {"no_pts", MR_CLIP_NO_PTS},
                 {"interlaced", MR_CLIP_INTERLACED},
                 {"hdr", MR_CLIP_HDR},
                 {"image", MR_CLIP_IMAGE}};
    for (size_t i = 0; i < MR_COUNT(flags); i++)
        mr_bind_set_bool(L, flags[i].name, info->flags & flags[i].bit);
    mr_bind_set_num(L, "fps", info->rate_num ? (double)info->rate_num / info->rate_den : 0);
}

static void check(lua_State *L, mr_status st)
{
    mr_bind_check(L,
                  mr_fail_try(st, "if ffplay plays it, encode it again: ffmpeg -i CLIP NEW.mp4"));
}

// scan(path) -> table of facts: frames, fps, width, height, codec, ...
static int m_scan(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const mr_media *m = media(L);
    mr_clip_info info;
    mr_fault fault;
    check(L, m->scan(worker(L, m), path, 0, &info, &fault));
    int32_t keys = info.n_keys;
    mr_clip_info_fini(&info);
    info.n_keys = keys;
    push_info(L, &info);
    return 1;
}

typedef struct decode_options {
    int64_t start;
    int32_t interval, frames, height, width;
    double deadline_s;
    const char *filter;
} decode_options;

static const mr_bind_field decode_fields[] = {
    MR_BIND_INT("frames", decode_options, frames, 0, 0,
                "Number of frames; 0: all from `start` on."),
    MR_BIND_INT("height", decode_options, height, 0, 0, "Rows; 0: those of the displayed clip."),
    MR_BIND_INT("width", decode_options, width, 0, 0, "Columns; 0: those of the displayed clip."),
    MR_BIND_INT("start", decode_options, start, 0, INT64_MIN, "The first frame, counted from 0."),
    MR_BIND_INT("interval", decode_options, interval, 1, 1,
                "Step from one returned frame to the next."),
    MR_BIND_STR("filter", decode_options, filter, "bilinear (default), area, bicubic or lanczos."),
    MR_BIND_NUM("deadline_s", decode_options, deadline_s, 0, "Seconds; 0: 60."),
    MR_BIND_END};

// decode(path, {frames, height, width, start, interval}) -> pixels [T][3][H][W], facts
static int m_decode(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    static const char *const filters[] = {"bilinear", "area", "bicubic", "lanczos", NULL};
    lua_settop(L, 2);
    decode_options o;
    mr_bind_options(L, 2, "decode", decode_fields, &o);
    mr_clip_request q = {.path = path,
                         .start = o.start,
                         .step = o.interval,
                         .frames = o.frames,
                         .height = o.height,
                         .width = o.width,
                         .deadline_s = o.deadline_s};
    const char *filter = o.filter ? o.filter : filters[0];
    while (filters[q.filter] && strcmp(filters[q.filter], filter))
        q.filter++;
    if (!filters[q.filter])
        return mr_bind_raise(L, MR_E_USAGE,
                             "filter: '%s'; expected bilinear, area, bicubic or lanczos", filter);
    const mr_media *m = media(L);
    mr_media_worker *w = worker(L, m);
    mr_clip_info *info = mr_bind_scratch(L, sizeof *info);
    void **keys = mr_bind_hold(L);
    mr_fault fault;
    check(L, m->scan(w, path, q.deadline_s, info, &fault));
    *keys = info->key_pts;
    // without sizes, decode all frames from the start at the displayed size
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
    check(L, m->read(w, &q, out, &fault));
    luaL_pushresultsize(&buf, bytes);
    push_info(L, info);
    return 2;
}

typedef struct cover_options {
    int32_t height, width;
    bool picture;
} cover_options;

static const mr_bind_field cover_fields[] = {
    MR_BIND_INT("height", cover_options, height, 0, 1, "Rows, required."),
    MR_BIND_INT("width", cover_options, width, 0, 1, "Columns, required."),
    MR_BIND_BOOL("picture", cover_options, picture,
                 "Scale as pictures, to u8; else as frames, to f32 of -1..1."),
    MR_BIND_END};

// cover(pixels u8 [n, 3, H, W], {height, width, picture}) -> the same at another size
static int m_cover(lua_State *L)
{
    const mr_view *in = mr_tensor_view(mr_bind_tensor(L, 1));
    cover_options o;
    mr_bind_options(L, 2, "cover", cover_fields, &o);
    if (!o.height || !o.width)
        return mr_bind_raise(L, MR_E_USAGE, "cover: %s is missing", o.height ? "width" : "height");
    const int64_t *dim = in->desc.dim;
    char text[128];
    if (in->desc.dtype != MR_U8 || in->desc.rank != 4 || dim[1] != 3 || dim[2] < 1 || dim[3] < 1 ||
        !mr_desc_is_dense(&in->desc))
        return mr_bind_raise(L, MR_E_SHAPE, "cover: pixels are %s; expected dense [n, 3, H, W] u8",
                             mr_desc_text(&in->desc, text, sizeof text));
    mr_tensor **out = mr_bind_new_tensor(L);
    mr_bind_check(L, mr_tensor_new(o.picture ? MR_U8 : MR_F32, 4,
                                   (int64_t[]){dim[0], 3, o.height, o.width}, out));
    void *to = mr_tensor_view(*out)->data;
    int64_t step = 3 * dim[2] * dim[3], to_step = (int64_t)3 * o.height * o.width;
    for (int64_t i = 0; i < dim[0]; i++) {
        const uint8_t *from = (const uint8_t *)in->data + i * step;
        if (!o.picture)
            mr_resize_frame(from, dim[2], dim[3], o.height, o.width, (float *)to + i * to_step);
        else
            mr_bind_check(L, mr_resize_picture(from, dim[2], dim[3], o.height, o.width,
                                               (uint8_t *)to + i * to_step));
    }
    return 1;
}

// watch(path) -> facts: decode every frame, return none
static int m_watch(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    const mr_media *m = media(L);
    mr_media_worker *w = worker(L, m);
    mr_clip_info *info = mr_bind_scratch(L, sizeof *info);
    void **keys = mr_bind_hold(L);
    mr_fault fault;
    check(L, m->scan(w, path, 0, info, &fault));
    *keys = info->key_pts;
    check(L, m->watch(w, path, info, 0, NULL, &fault));
    push_info(L, info);
    return 1;
}

static const mr_bind_entry media_entries[] = {
    MR_ENTRY_OPTIONS("encoder", m_encoder, "(path: string, options: table): mr.Encoder",
                     "Start a clip that is written frame by frame.", encode_fields),
    MR_ENTRY_OPTIONS("encode", m_encode,
                     "(path: string, pixels: string|lightuserdata, options: table)",
                     "Write a whole clip, or one picture.", encode_fields),
    MR_ENTRY("scan", m_scan, "(path: string): table",
             "Facts of a clip: frames, fps, width, height, codec, ..."),
    MR_ENTRY("watch", m_watch, "(path: string): table",
             "Decode every frame of a clip without returning them. Returns its facts; raises if a "
             "frame is damaged."),
    MR_ENTRY_OPTIONS("decode", m_decode, "(path: string, options?: table): string, table",
                     "Frames, and the facts of the clip.", decode_fields),
    MR_ENTRY_OPTIONS(
        "cover", m_cover, "(pixels: mr.Tensor, options: table): mr.Tensor",
        "Scale frames u8 [n, 3, H, W] to cover a size, and crop the centre, as Open-Sora does.",
        cover_fields),
    MR_ENTRY_END};
static const mr_bind_face media_face = {
    "moonreel.core.media",
    "Clips: encode, scan, decode. Pixels are u8 planar RGB, [T][3][H][W], as text.", media_entries,
    NULL};

static const mr_bind_entry encoder_entries[] = {
    MR_ENTRY("frame", encoder_frame, "(pixels: string, pts?: integer)", "Write a frame [3][H][W]."),
    MR_ENTRY("finish", encoder_finish, "()",
             "Write the frames still in the encoder, and give the file its name."),
    MR_ENTRY_END};
static const mr_bind_face encoder_face = {
    "mr.Encoder", "A clip under construction; if it is closed before finish(), no file remains.",
    encoder_entries, free_encoder};

static const mr_bind_face worker_face = {WORKER, NULL, NULL, free_worker};

MR_BIND_ROOM(media)
{
    mr_bind_type(L, &worker_face);
    mr_bind_type(L, &encoder_face);
    return mr_bind_module(L, &media_face);
}
