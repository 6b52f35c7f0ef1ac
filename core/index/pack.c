/* index: rows of the index as bytes and back. Ref: dataplane 2.2. Licence: Apache-2.0 */
#include "index/room.h"

#include <string.h>
#define XXH_STATIC_LINKING_ONLY // hashing state on the stack
#include <xxhash.h>

static char *get_text(index_view *v, mr_arena *arena, int length_bytes)
{
    size_t n = index_get_int(v, length_bytes);
    const uint8_t *p = index_get(v, n);
    char *copy = p ? mr_arena_alloc(arena, n + 1) : NULL;
    if (copy)
        memcpy(copy, p, n);
    return copy;
}

// a checksum follows the bytes
static mr_status close_value(index_pack *p)
{
    index_put_int(p, XXH32(p->bytes, p->n, 0), 4);
    return p->failed ? mr_fail_memory(p->cap * 2) : MR_OK;
}

static mr_status open_value(MDB_val v, index_view *view)
{
    uint32_t sum;
    if (v.mv_size < 5)
        return mr_fail(MR_E_DATA, "a value of %zu bytes", v.mv_size);
    view->at = v.mv_data, view->end = view->at + v.mv_size - 4, view->failed = false;
    memcpy(&sum, view->end, 4);
    return XXH32(view->at, v.mv_size - 4, 0) == sum ? MR_OK
                                                    : mr_fail(MR_E_DATA, "its checksum is wrong");
}

mr_status index_pack_row(index_pack *p, const mr_row *r)
{
    const mr_clip_info *i = &r->info;
    p->n = 0, p->failed = false;
    index_put_int(p, 1, 1);
    index_put_int(p, r->root, 2);
    index_put_text(p, r->path, 2);
    index_put_int(p, r->key.lo, 8), index_put_int(p, r->key.hi, 8);
    index_put_int(p, (uint64_t)r->start_us, 8), index_put_int(p, (uint64_t)r->end_us, 8);
    index_put_int(p, i->bytes, 8), index_put_int(p, (uint64_t)i->mtime_ns, 8);
    index_put_int(p, (uint64_t)i->frames, 8), index_put_int(p, (uint64_t)i->first_pts, 8);
    index_put_int(p, (uint32_t)i->tb_num, 4), index_put_int(p, (uint32_t)i->tb_den, 4);
    index_put_int(p, (uint32_t)i->rate_num, 4), index_put_int(p, (uint32_t)i->rate_den, 4);
    index_put_int(p, (uint64_t)i->duration_ms, 8);
    index_put_int(p, (uint32_t)i->coded_width, 2), index_put_int(p, (uint32_t)i->coded_height, 2);
    index_put_int(p, (uint32_t)i->width, 4), index_put_int(p, (uint32_t)i->height, 4);
    index_put_int(p, (uint32_t)i->sar_num, 4), index_put_int(p, (uint32_t)i->sar_den, 4);
    index_put_int(p, (uint32_t)i->orient, 1), index_put_int(p, (uint32_t)i->reorder, 1),
        index_put_int(p, i->flags, 2);
    index_put_int(p, i->matrix, 1), index_put_int(p, i->range, 1), index_put_int(p, i->transfer, 1),
        index_put_int(p, i->primaries, 1);
    index_put_text(p, i->codec, 1);
    return close_value(p);
}

mr_status index_unpack_row(MDB_val value, mr_arena *arena, mr_row *r)
{
    index_view view, *v = &view;
    MR_TRY(open_value(value, v));
    if (index_get_int(v, 1) != 1)
        return mr_fail(MR_E_DATA, "a row of another version");
    mr_clip_info *i = &r->info;
    r->root = (uint16_t)index_get_int(v, 2);
    r->path = get_text(v, arena, 2);
    r->key.lo = index_get_int(v, 8), r->key.hi = index_get_int(v, 8);
    r->start_us = (int64_t)index_get_int(v, 8), r->end_us = (int64_t)index_get_int(v, 8);
    i->bytes = index_get_int(v, 8), i->mtime_ns = (int64_t)index_get_int(v, 8);
    i->frames = (int64_t)index_get_int(v, 8), i->first_pts = (int64_t)index_get_int(v, 8);
    i->tb_num = (int32_t)index_get_int(v, 4), i->tb_den = (int32_t)index_get_int(v, 4);
    i->rate_num = (int32_t)index_get_int(v, 4), i->rate_den = (int32_t)index_get_int(v, 4);
    i->duration_ms = (int64_t)index_get_int(v, 8);
    i->coded_width = (int32_t)index_get_int(v, 2), i->coded_height = (int32_t)index_get_int(v, 2);
    i->width = (int32_t)index_get_int(v, 4), i->height = (int32_t)index_get_int(v, 4);
    i->sar_num = (int32_t)index_get_int(v, 4), i->sar_den = (int32_t)index_get_int(v, 4);
    i->orient = (int32_t)index_get_int(v, 1), i->reorder = (int32_t)index_get_int(v, 1),
    i->flags = (uint32_t)index_get_int(v, 2);
    i->matrix = (uint8_t)index_get_int(v, 1), i->range = (uint8_t)index_get_int(v, 1);
    i->transfer = (uint8_t)index_get_int(v, 1), i->primaries = (uint8_t)index_get_int(v, 1);
    const char *codec = get_text(v, arena, 1);
    if (v->failed)
        return mr_fail(MR_E_DATA, "a row that ends too early");
    if (!codec || !r->path)
        return mr_fail_memory(0);
    size_t n = MR_MIN(strlen(codec), sizeof i->codec - 1);
    memcpy(i->codec, codec, n);
    i->codec[n] = 0;
    return MR_OK;
}

mr_status index_pack_text(index_pack *p, const mr_row *r, index_squeeze *squeeze)
{
    p->n = 0, p->failed = false;
    // codec 0 is plain text, 1 is zstd with the dictionary of the index
    index_put_int(p, squeeze ? 1 : 0, 1);
    index_put_int(p, (uint64_t)r->n_captions, 1);
    for (int32_t c = 0; c < r->n_captions; c++) {
        index_put_text(p, r->captions[c].tag, 1);
        if (squeeze)
            MR_TRY(index_squeeze_put(squeeze, p, r->captions[c].text));
        else
            index_put_text(p, r->captions[c].text, 4);
    }
    return close_value(p);
}

mr_status index_unpack_text(MDB_val value, mr_arena *arena, mr_row *r, const index_unsqueeze *u,
                            void *context)
{
    index_view view, *v = &view;
    MR_TRY(open_value(value, v));
    uint64_t codec = index_get_int(v, 1), n = index_get_int(v, 1);
    if (codec > 1)
        return mr_fail(MR_E_DATA, "captions of codec %d", (int)codec);
    mr_caption *list = mr_arena_alloc(arena, sizeof *list * (n + 1));
    if (!list)
        return mr_fail_memory(sizeof *list * n);
    for (uint64_t c = 0; c < n && !v->failed; c++) {
        list[c].tag = get_text(v, arena, 1);
        if (codec == 0)
            list[c].text = get_text(v, arena, 4);
        else
            MR_TRY(index_unsqueeze_get(u, context, v, arena, &list[c].text));
        if (!v->failed && (!list[c].tag || !list[c].text))
            return mr_fail_memory(0);
    }
    if (v->failed)
        return mr_fail(MR_E_DATA, "captions that end too early");
    r->captions = list, r->n_captions = (int32_t)n;
    return MR_OK;
}

mr_status index_pack_keys(index_pack *p, const mr_row *r)
{
    p->n = 0, p->failed = false;
    index_put_varint(p, (uint64_t)r->info.n_keys);
    int64_t before = 0;
    for (int32_t k = 0; k < r->info.n_keys; k++) {
        index_put_varint(p, index_zigzag(r->info.key_pts[k] - before));
        before = r->info.key_pts[k];
    }
    return close_value(p);
}

mr_status index_unpack_keys(MDB_val value, mr_arena *arena, mr_row *r)
{
    index_view view, *v = &view;
    MR_TRY(open_value(value, v));
    uint64_t n = index_get_varint(v);
    if (n > value.mv_size)
        return mr_fail(MR_E_DATA, "a key frame list that ends too early");
    int64_t *list = mr_arena_alloc(arena, sizeof *list * (n + 1)), before = 0;
    if (!list)
        return mr_fail_memory(sizeof *list * n);
    for (uint64_t k = 0; k < n; k++)
        list[k] = before += index_unzigzag(index_get_varint(v));
    if (v->failed)
        return mr_fail(MR_E_DATA, "a key frame list that ends too early");
    r->info.key_pts = list, r->info.n_keys = (int32_t)n;
    return MR_OK;
}

mr_hot index_hot_of(const mr_row *r)
{
    const mr_clip_info *i = &r->info;
    return (mr_hot){
        .key_lo = r->key.lo,
        .frames = (uint32_t)MR_MIN(i->frames, UINT32_MAX),
        .fps_milli = i->rate_num ? (uint32_t)MR_MIN((double)i->rate_num * 1000 / i->rate_den + 0.5,
                                                    UINT32_MAX)
                                 : 0,
        .duration_ms = (uint32_t)MR_MIN(i->duration_ms, UINT32_MAX),
        .width = (uint16_t)i->width,
        .height = (uint16_t)i->height,
        .flags = (uint16_t)i->flags,
        .source = r->root};
}

mr_hash128 index_row_hash(const mr_row *r)
{
    // root numbers and places on disk are not part of what a sample is
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
    // zero bytes stand between the parts, so that no two lists of parts look alike
    XXH3_state_t s;
    XXH3_128bits_reset(&s);
    XXH3_128bits_update(&s, source, strlen(source) + 1);
    XXH3_128bits_update(&s, path, strlen(path) + 1);
    XXH3_128bits_update(&s, &start_us, sizeof start_us);
    XXH3_128bits_update(&s, &end_us, sizeof end_us);
    XXH128_hash_t h = XXH3_128bits_digest(&s);
    return (mr_hash128){h.low64, h.high64};
}
