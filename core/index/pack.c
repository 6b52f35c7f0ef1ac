/* index: encodes and decodes rows of the index. Ref: dataplane 2.2. Licence: Apache-2.0 */
#include "index/store.h"

#include <stdio.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY // hashing state on the stack
#include <xxhash.h>

// appends a checksum of the bytes
static mr_status close_value(index_pack *p)
{
    index_put_int(p, XXH32(p->bytes, p->n, 0), 4);
    return p->failed ? mr_fail_memory(p->cap * 2) : MR_OK;
}

static mr_status open_value(MDB_val v, index_view *view)
{
    uint32_t sum;
    if (v.mv_size < 5)
        return mr_fail(MR_E_DATA, "a value of %zu bytes; expected 5 or more", v.mv_size);
    view->at = v.mv_data, view->end = view->at + v.mv_size - 4, view->failed = false;
    memcpy(&sum, view->end, 4);
    return XXH32(view->at, v.mv_size - 4, 0) == sum ? MR_OK
                                                    : mr_fail(MR_E_DATA, "its checksum is wrong");
}

/* A row is one value: version, a mask of fields that differ from their default, facts, key frames,
 * captions and a checksum. Numbers are varints. A field with its default is omitted. */
enum { VERSION = 2, NS = 1000000000 };
enum {
    NOT_FIRST_ROOT = 1,
    NOT_FROM_ZERO = 2, // the first time
    NOT_WHOLE_RATE = 4,
    NOT_BT709 = 8,
    NOT_PLAIN = 16, // flags
    NOT_SHOWN_SO = 32,
    NOT_SO_LONG = 64,
    NOT_SQUARE = 128,
    NOT_UPRIGHT = 256,
    NOT_WHOLE = 512,
    NOT_SIMPLE_TICKS = 1024,
    HAS_TAGS = 2048
};

// codecs with a number, which is part of the format; other codecs are stored by name
static const char *const codecs[] = {"",    "h264",  "hevc", "vp9",   "av1",
                                     "vp8", "mpeg4", "png",  "mjpeg", "mpeg2video"};

static int64_t usual_duration_ms(const mr_clip_info *i)
{
    return i->rate_num > 0 ? (int64_t)((double)i->frames * 1000 * i->rate_den / i->rate_num + 0.5)
                           : 0;
}

static unsigned unusual(const mr_row *r)
{
    const mr_clip_info *i = &r->info;
    bool tags = false;
    for (int32_t c = 0; c < r->n_captions; c++)
        tags |= *r->captions[c].tag != 0;
    return (r->root ? NOT_FIRST_ROOT : 0u) | (i->first_pts ? NOT_FROM_ZERO : 0) |
           (i->rate_den != 1 ? NOT_WHOLE_RATE : 0) |
           (i->matrix != 1 || i->range != 1 || i->transfer != 1 || i->primaries != 1 ? NOT_BT709
                                                                                     : 0) |
           (i->flags ? NOT_PLAIN : 0) |
           (i->width != i->coded_width || i->height != i->coded_height ? NOT_SHOWN_SO : 0) |
           (i->duration_ms != usual_duration_ms(i) ? NOT_SO_LONG : 0) |
           (i->sar_num != 1 || i->sar_den != 1 ? NOT_SQUARE : 0) | (i->orient ? NOT_UPRIGHT : 0) |
           (r->start_us || r->end_us != -1 ? NOT_WHOLE : 0) |
           (i->tb_num != 1 ? NOT_SIMPLE_TICKS : 0) | (tags ? HAS_TAGS : 0);
}

static void put_signed(index_pack *p, int64_t value)
{
    index_put_varint(p, index_zigzag(value));
}
static int64_t get_signed(index_view *v)
{
    return index_unzigzag(index_get_varint(v));
}

static void put_name(index_pack *p, const char *name)
{
    size_t n = strlen(name);
    index_put_varint(p, n);
    index_put(p, name, n);
}
static char *get_name(index_view *v, mr_arena *arena)
{
    size_t n = index_get_varint(v);
    const uint8_t *at = index_get(v, n);
    char *copy = at ? mr_arena_alloc(arena, n + 1) : NULL;
    if (copy)
        memcpy(copy, at, n), copy[n] = 0;
    return copy;
}

static void put_codec(index_pack *p, const char *name)
{
    uint8_t code = MR_COUNT(codecs) - 1;
    while (code && strcmp(codecs[code], name))
        code--;
    index_put(p, &code, 1);
    if (!code)
        put_name(p, name);
}

static mr_status get_codec(index_view *v, mr_arena *arena, char out[24])
{
    uint64_t code = index_get_int(v, 1);
    const char *name = code >= MR_COUNT(codecs) ? NULL : code ? codecs[code] : get_name(v, arena);
    if (v->failed)
        return MR_OK; // the end reports it
    if (!name)
        return code ? mr_fail(MR_E_DATA, "unknown codec number %d", (int)code) : mr_fail_memory(0);
    snprintf(out, 24, "%s", name);
    return MR_OK;
}

static void put_facts(index_pack *p, const mr_row *r)
{
    const mr_clip_info *i = &r->info;
    unsigned mask = unusual(r);
    index_put_varint(p, mask);
    put_name(p, r->path);
    index_put(p, &r->key, sizeof r->key);
    index_put_varint(p, i->bytes);
    // whole seconds: copies and network stores round times
    index_put_varint(p, (uint64_t)MR_MAX(i->mtime_ns, 0) / NS);
    index_put_varint(p, (uint64_t)i->frames), index_put_varint(p, (uint32_t)i->tb_den);
    index_put_varint(p, (uint32_t)i->rate_num);
    index_put_varint(p, (uint32_t)i->coded_width), index_put_varint(p, (uint32_t)i->coded_height);
    index_put_int(p, (uint32_t)i->reorder, 1);
    put_codec(p, i->codec);
    if (mask & NOT_FIRST_ROOT)
        index_put_varint(p, r->root);
    if (mask & NOT_FROM_ZERO)
        put_signed(p, i->first_pts);
    if (mask & NOT_WHOLE_RATE)
        index_put_varint(p, (uint32_t)i->rate_den);
    if (mask & NOT_BT709)
        index_put(p, (const uint8_t[]){i->matrix, i->range, i->transfer, i->primaries}, 4);
    if (mask & NOT_PLAIN)
        index_put_varint(p, i->flags);
    if (mask & NOT_SHOWN_SO)
        index_put_varint(p, (uint32_t)i->width), index_put_varint(p, (uint32_t)i->height);
    if (mask & NOT_SO_LONG)
        index_put_varint(p, (uint64_t)i->duration_ms);
    if (mask & NOT_SQUARE)
        index_put_varint(p, (uint32_t)i->sar_num), index_put_varint(p, (uint32_t)i->sar_den);
    if (mask & NOT_UPRIGHT)
        index_put_int(p, (uint32_t)i->orient, 1);
    if (mask & NOT_WHOLE)
        put_signed(p, r->start_us), put_signed(p, r->end_us);
    if (mask & NOT_SIMPLE_TICKS)
        index_put_varint(p, (uint32_t)i->tb_num);
}

static int32_t get_int32(index_view *v)
{
    return (int32_t)(uint32_t)index_get_varint(v);
}

static mr_status get_facts(index_view *v, mr_arena *arena, mr_row *r, unsigned *mask)
{
    mr_clip_info *i = &r->info;
    *mask = (unsigned)index_get_varint(v);
    r->path = get_name(v, arena);
    if (!v->failed && !r->path)
        return mr_fail_memory(0);
    r->key.lo = index_get_int(v, 8), r->key.hi = index_get_int(v, 8);
    i->bytes = index_get_varint(v);
    uint64_t seconds = index_get_varint(v);
    i->mtime_ns = (int64_t)MR_MIN(seconds, INT64_MAX / NS) * NS;
    i->frames = (int64_t)index_get_varint(v), i->tb_den = get_int32(v);
    i->rate_num = get_int32(v);
    i->coded_width = get_int32(v), i->coded_height = get_int32(v);
    i->reorder = (int32_t)index_get_int(v, 1);
    MR_TRY(get_codec(v, arena, i->codec));
    r->root = *mask & NOT_FIRST_ROOT ? (uint16_t)index_get_varint(v) : 0;
    i->first_pts = *mask & NOT_FROM_ZERO ? get_signed(v) : 0;
    i->rate_den = *mask & NOT_WHOLE_RATE ? get_int32(v) : 1;
    i->matrix = i->range = i->transfer = i->primaries = 1;
    const uint8_t *tags = *mask & NOT_BT709 ? index_get(v, 4) : NULL;
    if (tags)
        i->matrix = tags[0], i->range = tags[1], i->transfer = tags[2], i->primaries = tags[3];
    i->flags = *mask & NOT_PLAIN ? (uint32_t)index_get_varint(v) : 0;
    i->width = *mask & NOT_SHOWN_SO ? get_int32(v) : i->coded_width;
    i->height = *mask & NOT_SHOWN_SO ? get_int32(v) : i->coded_height;
    i->duration_ms = *mask & NOT_SO_LONG ? (int64_t)index_get_varint(v) : usual_duration_ms(i);
    i->sar_num = *mask & NOT_SQUARE ? get_int32(v) : 1;
    i->sar_den = *mask & NOT_SQUARE ? get_int32(v) : 1;
    i->orient = *mask & NOT_UPRIGHT ? (int32_t)index_get_int(v, 1) : 0;
    r->start_us = *mask & NOT_WHOLE ? get_signed(v) : 0;
    r->end_us = *mask & NOT_WHOLE ? get_signed(v) : -1;
    i->tb_num = *mask & NOT_SIMPLE_TICKS ? get_int32(v) : 1;
    return MR_OK;
}

// key frames are mostly at equal distances, so the changes of the distance are written
static void put_keys(index_pack *p, const mr_clip_info *i)
{
    int64_t before = i->first_pts, distance = 0;
    index_put_varint(p, (uint64_t)i->n_keys);
    for (int32_t k = 0; k < i->n_keys; k++) {
        int64_t d = (int64_t)((uint64_t)i->key_pts[k] - (uint64_t)before);
        put_signed(p, (int64_t)((uint64_t)d - (uint64_t)distance));
        before = i->key_pts[k], distance = d;
    }
}

static mr_status get_keys(index_view *v, mr_arena *arena, mr_clip_info *i)
{
    uint64_t n = index_get_varint(v), before = (uint64_t)i->first_pts, distance = 0;
    // each key frame has at least one byte
    if (v->failed || n > (size_t)(v->end - v->at))
        return mr_fail(MR_E_DATA, "the key frame list is cut off");
    int64_t *list = mr_arena_alloc(arena, sizeof *list * (n + 1));
    if (!list)
        return mr_fail_memory(sizeof *list * n);
    for (uint64_t k = 0; k < n; k++) {
        distance += (uint64_t)get_signed(v);
        list[k] = (int64_t)(before += distance);
    }
    i->key_pts = list, i->n_keys = (int32_t)n;
    return MR_OK;
}

static mr_status put_captions(index_pack *p, const mr_row *r, index_compress *compress)
{
    bool tags = unusual(r) & HAS_TAGS;
    index_put_varint(p, (uint64_t)r->n_captions);
    for (int32_t c = 0; c < r->n_captions; c++) {
        if (tags)
            put_name(p, r->captions[c].tag);
        MR_TRY(index_compress_put(compress, p, r->captions[c].text));
    }
    return MR_OK;
}

static mr_status get_captions(index_view *v, mr_arena *arena, mr_row *r, bool tags,
                              const index_decompress *u, void *context)
{
    uint64_t n = index_get_varint(v);
    if (v->failed || n > (size_t)(v->end - v->at))
        return mr_fail(MR_E_DATA, "the captions are cut off");
    mr_caption *list = mr_arena_alloc(arena, sizeof *list * (n + 1));
    if (!list)
        return mr_fail_memory(sizeof *list * n);
    for (uint64_t c = 0; c < n; c++) {
        list[c] = (mr_caption){"", NULL};
        if (tags)
            list[c].tag = get_name(v, arena);
        MR_TRY(index_decompress_get(u, context, v, arena, &list[c].text));
        if (v->failed)
            return mr_fail(MR_E_DATA, "the captions are cut off");
        if (!list[c].tag)
            return mr_fail_memory(0);
    }
    r->captions = list, r->n_captions = (int32_t)n;
    return MR_OK;
}

mr_status index_pack_row(index_pack *p, const mr_row *r, index_compress *compress)
{
    p->n = 0, p->failed = false;
    index_put_int(p, VERSION, 1);
    put_facts(p, r);
    put_keys(p, &r->info);
    MR_TRY(put_captions(p, r, compress));
    return close_value(p);
}

static mr_status unpack(MDB_val value, mr_arena *arena, mr_row *r, index_view *v, unsigned *mask)
{
    MR_TRY(open_value(value, v));
    if (index_get_int(v, 1) != VERSION)
        return mr_fail(MR_E_DATA, "a row of another version");
    MR_TRY(get_facts(v, arena, r, mask));
    return v->failed ? mr_fail(MR_E_DATA, "the row is cut off") : MR_OK;
}

mr_status index_unpack_facts(MDB_val value, mr_arena *arena, mr_row *r)
{
    index_view v;
    unsigned mask;
    return unpack(value, arena, r, &v, &mask);
}

mr_status index_unpack_row(MDB_val value, mr_arena *arena, mr_row *r, const index_decompress *u,
                           void *context)
{
    index_view v;
    unsigned mask;
    MR_TRY(unpack(value, arena, r, &v, &mask));
    MR_TRY(get_keys(&v, arena, &r->info));
    MR_TRY(get_captions(&v, arena, r, mask & HAS_TAGS, u, context));
    return v.failed ? mr_fail(MR_E_DATA, "the row is cut off") : MR_OK;
}

mr_status index_read_row(MDB_txn *txn, const MDB_dbi *tables, uint64_t id, mr_arena *arena,
                         const index_decompress *u, void *context, mr_row *out)
{
    MDB_val k = {sizeof id, &id}, v;
    memset(out, 0, sizeof *out);
    out->id = id;
    int err = mdb_get(txn, tables[DATA_ROW], &k, &v);
    if (err)
        return index_fail_mdb(index_table_names[DATA_ROW], "read", err);
    return index_unpack_row(v, arena, out, u, context);
}

uint32_t mr_fps_milli(const mr_clip_info *i)
{
    return i->rate_num
               ? (uint32_t)MR_MIN((double)i->rate_num * 1000 / i->rate_den + 0.5, UINT32_MAX)
               : 0;
}

mr_hot index_hot_of(const mr_row *r)
{
    const mr_clip_info *i = &r->info;
    return (mr_hot){.key_lo = r->key.lo,
                    .frames = (uint32_t)MR_MIN(i->frames, UINT32_MAX),
                    .fps_milli = mr_fps_milli(i),
                    .duration_ms = (uint32_t)MR_MIN(i->duration_ms, UINT32_MAX),
                    .width = (uint16_t)i->width,
                    .height = (uint16_t)i->height,
                    .flags = (uint16_t)i->flags,
                    .source = r->root};
}

mr_hash128 index_row_hash(const mr_row *r)
{
    // the hash of a sample does not depend on its root number or place on disk
    mr_hot hot = index_hot_of(r);
    hot.source = 0;
    XXH3_state_t state, *s = &state;
    XXH3_128bits_reset(s);
    XXH3_128bits_update(s, &r->key, sizeof r->key);
    XXH3_128bits_update(s, &hot, sizeof hot);
    XXH3_128bits_update(s, &r->info.bytes, sizeof r->info.bytes);
    for (int32_t c = 0; c < r->n_captions; c++) {
        XXH3_128bits_update(s, r->captions[c].tag, strlen(r->captions[c].tag) + 1);
        XXH3_128bits_update(s, r->captions[c].text, strlen(r->captions[c].text) + 1);
    }
    XXH128_hash_t h = XXH3_128bits_digest(s);
    return (mr_hash128){h.low64, h.high64};
}

mr_hash128 mr_sample_key(const char *source, const char *path, int64_t start_us, int64_t end_us)
{
    // zero bytes separate the parts, so that different parts cannot give equal bytes
    XXH3_state_t s;
    XXH3_128bits_reset(&s);
    XXH3_128bits_update(&s, source, strlen(source) + 1);
    XXH3_128bits_update(&s, path, strlen(path) + 1);
    XXH3_128bits_update(&s, &start_us, sizeof start_us);
    XXH3_128bits_update(&s, &end_us, sizeof end_us);
    XXH128_hash_t h = XXH3_128bits_digest(&s);
    return (mr_hash128){h.low64, h.high64};
}
