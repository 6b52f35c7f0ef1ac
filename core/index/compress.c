/* index: compresses captions as zstd frames with a dictionary of the index, because short texts
 * compress well only with a shared dictionary. Ref: dataplane 2.2, text codec 1.
 * Licence: Apache-2.0 */
#include "index/list.h"
#include "index/store.h"

#include <string.h>
#include <zdict.h>
#include <zstd.h>

enum { DICT_BYTES = 64 << 10, SAMPLE_BYTES = 3 << 20, TEXT_MAX = 16 << 20, LEVEL = 3 };

struct index_compress {
    ZSTD_CCtx *out;
    ZSTD_CDict *out_dict;
    index_pack buffer;
};

struct index_decompress {
    ZSTD_DDict *dict;
};

// chooses captions evenly over the whole list: writes their texts, and their sizes as size_t
static mr_status choose(const index_source *s, index_pack *samples, index_pack *sizes)
{
    uint64_t stride = s->text_bytes / SAMPLE_BYTES + 1, place;
    index_spill_reader rows = index_spill_read(s->rows, 0, UINT64_MAX);
    mr_status st = MR_OK;
    for (uint64_t i = 0; i < s->n && st == MR_OK; i++) {
        const uint8_t *record;
        size_t n;
        st = index_spill_next(&rows, &record, &n, &place);
        const char *text = st == MR_OK && i % stride == 0 ? index_input_of(record).text : NULL;
        if (!text || !*text)
            continue;
        n = strlen(text);
        index_put(samples, text, n);
        index_put(sizes, &n, sizeof n);
    }
    index_spill_reader_fini(&rows);
    if (st == MR_OK && (samples->failed || sizes->failed))
        st = mr_fail_memory(samples->cap * 2);
    return st;
}

mr_status index_dict_make(const index_pack *samples, const index_pack *sizes, index_pack *dict)
{
    uint8_t *room = mr_alloc(DICT_BYTES);
    if (!room)
        return mr_fail_memory(DICT_BYTES);
    // texts without common parts give no dictionary and stay uncompressed
    size_t made = ZDICT_trainFromBuffer(room, DICT_BYTES, samples->bytes,
                                        (const size_t *)(const void *)sizes->bytes,
                                        (unsigned)(sizes->n / sizeof(size_t)));
    if (!ZDICT_isError(made))
        index_put(dict, room, made);
    mr_free(room);
    return dict->failed ? mr_fail_memory(made) : MR_OK;
}

mr_status index_dict_train(const index_source *s, index_pack *dict)
{
    index_pack samples = {0}, sizes = {0};
    dict->n = 0;
    if (s->text_bytes < (uint64_t)DICT_BYTES * 4)
        return MR_OK; // small sets stay uncompressed
    mr_status st = choose(s, &samples, &sizes);
    if (st == MR_OK)
        st = index_dict_make(&samples, &sizes, dict);
    mr_free(sizes.bytes);
    mr_free(samples.bytes);
    return st;
}

mr_status index_compress_new(const void *dict, size_t n, index_compress **out)
{
    index_compress *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->out = ZSTD_createCCtx();
    s->out_dict = ZSTD_createCDict(dict, n, LEVEL);
    // frames omit the id of the dictionary, since an index has only one
    if (!s->out || !s->out_dict ||
        ZSTD_isError(ZSTD_CCtx_setParameter(s->out, ZSTD_c_dictIDFlag, 0)) ||
        ZSTD_isError(ZSTD_CCtx_refCDict(s->out, s->out_dict))) {
        index_compress_free(s);
        return mr_fail_memory(n);
    }
    *out = s;
    return MR_OK;
}

void index_compress_free(index_compress *s)
{
    if (!s)
        return;
    ZSTD_freeCCtx(s->out);
    ZSTD_freeCDict(s->out_dict);
    mr_free(s->buffer.bytes);
    mr_free(s);
}

// every frame begins with these bytes, so they are omitted
static const uint8_t magic[4] = {0x28, 0xb5, 0x2f, 0xfd};

mr_status index_compress_put(index_compress *s, index_pack *p, const char *text)
{
    size_t n = strlen(text), made = n;
    if (n > TEXT_MAX)
        return mr_fail(MR_E_DATA, "a caption of %zu bytes; expected at most %d", n, TEXT_MAX);
    if (s && n) {
        size_t room = ZSTD_compressBound(n);
        if (room > s->buffer.cap) {
            uint8_t *more = mr_realloc(s->buffer.bytes, room);
            if (!more)
                return mr_fail_memory(room);
            s->buffer.bytes = more, s->buffer.cap = room;
        }
        size_t got = ZSTD_compress2(s->out, s->buffer.bytes, room, text, n);
        if (ZSTD_isError(got))
            return mr_fail(MR_E_INTERNAL, "cannot compress a caption: %s", ZSTD_getErrorName(got));
        made = got - sizeof magic;
    }
    // a text that does not get shorter stays uncompressed
    bool compressed = made < n;
    made = compressed ? made : n;
    index_put_varint(p, (uint64_t)made << 1 | compressed);
    index_put(p, compressed ? (const char *)s->buffer.bytes + sizeof magic : text, made);
    return MR_OK;
}

mr_status index_decompress_new(const void *dict, size_t n, index_decompress **out)
{
    index_decompress *u;
    if (!MR_NEW(u))
        return mr_fail_memory(sizeof *u);
    if (!(u->dict = ZSTD_createDDict(dict, n))) {
        mr_free(u);
        return mr_fail_memory(n);
    }
    *out = u;
    return MR_OK;
}

void index_decompress_free(index_decompress *u)
{
    if (!u)
        return;
    ZSTD_freeDDict(u->dict);
    mr_free(u);
}

static mr_status decompress(const index_decompress *u, void *context, const uint8_t *bytes,
                            size_t n, mr_arena *arena, char **text)
{
    if (!u)
        return mr_fail(MR_E_DATA, "captions are compressed, but the index has no dictionary");
    uint8_t *frame = mr_arena_alloc(arena, n + sizeof magic);
    if (!frame)
        return mr_fail_memory(n);
    memcpy(frame, magic, sizeof magic);
    memcpy(frame + sizeof magic, bytes, n);
    n += sizeof magic;
    unsigned long long size = ZSTD_getFrameContentSize(frame, n);
    if (size > TEXT_MAX)
        return mr_fail(MR_E_DATA, "a compressed caption has no size");
    if (!(*text = mr_arena_alloc(arena, (size_t)size + 1)))
        return mr_fail_memory((size_t)size);
    size_t got = ZSTD_decompress_usingDDict(context, *text, (size_t)size, frame, n, u->dict);
    if (ZSTD_isError(got) || got != size)
        return mr_fail(MR_E_DATA, "a caption cannot be decompressed");
    (*text)[size] = 0;
    return MR_OK;
}

mr_status index_decompress_get(const index_decompress *u, void *context, index_view *v,
                               mr_arena *arena, const char **text)
{
    uint64_t head = index_get_varint(v);
    size_t n = (size_t)(head >> 1);
    const uint8_t *bytes = index_get(v, n);
    char *copy = NULL;
    if (!bytes)
        return MR_OK; // the view has failed; its owner reports it
    if (head & 1) {
        MR_TRY(decompress(u, context, bytes, n, arena, &copy));
    } else {
        if (!(copy = mr_arena_alloc(arena, n + 1)))
            return mr_fail_memory(n);
        memcpy(copy, bytes, n);
        copy[n] = 0;
    }
    *text = copy;
    return MR_OK;
}

void *index_decompress_context(void)
{
    return ZSTD_createDCtx();
}
void index_decompress_context_free(void *context)
{
    ZSTD_freeDCtx(context);
}
