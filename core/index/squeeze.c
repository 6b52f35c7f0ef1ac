/* index: captions in zstd frames with a dictionary of the index. Short texts compress only against
 * what all of them share. Ref: dataplane 2.2, text codec 1. Licence: Apache-2.0 */
#include "index/room.h"

#include <string.h>
#include <zdict.h>
#include <zstd.h>

enum { DICT_BYTES = 64 << 10, SAMPLE_BYTES = 8 << 20, TEXT_MAX = 16 << 20, LEVEL = 3 };

struct index_squeeze {
    ZSTD_CCtx *out;
    ZSTD_CDict *out_dict;
    index_pack buffer;
};

struct index_unsqueeze {
    ZSTD_DDict *dict;
};

// captions are chosen evenly over the whole list: their texts and their sizes, size_t each
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

static mr_status train(const index_pack *samples, const index_pack *sizes, index_pack *dict)
{
    uint8_t *room = mr_alloc(DICT_BYTES);
    if (!room)
        return mr_fail_memory(DICT_BYTES);
    // texts without anything in common make no dictionary and stay plain
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
        return MR_OK; // small sets stay plain
    mr_status st = choose(s, &samples, &sizes);
    if (st == MR_OK)
        st = train(&samples, &sizes, dict);
    mr_free(sizes.bytes);
    mr_free(samples.bytes);
    return st;
}

mr_status index_squeeze_new(const void *dict, size_t n, index_squeeze **out)
{
    index_squeeze *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->out = ZSTD_createCCtx();
    s->out_dict = ZSTD_createCDict(dict, n, LEVEL);
    if (!s->out || !s->out_dict) {
        index_squeeze_free(s);
        return mr_fail_memory(n);
    }
    *out = s;
    return MR_OK;
}

void index_squeeze_free(index_squeeze *s)
{
    if (!s)
        return;
    ZSTD_freeCCtx(s->out);
    ZSTD_freeCDict(s->out_dict);
    mr_free(s->buffer.bytes);
    mr_free(s);
}

mr_status index_squeeze_put(index_squeeze *s, index_pack *p, const char *text)
{
    size_t n = strlen(text), room = ZSTD_compressBound(n);
    if (n > TEXT_MAX)
        return mr_fail(MR_E_DATA, "a caption of %zu bytes; expected at most %d", n, TEXT_MAX);
    if (room > s->buffer.cap) {
        uint8_t *more = mr_realloc(s->buffer.bytes, room);
        if (!more)
            return mr_fail_memory(room);
        s->buffer.bytes = more, s->buffer.cap = room;
    }
    size_t made = ZSTD_compress_usingCDict(s->out, s->buffer.bytes, room, text, n, s->out_dict);
    if (ZSTD_isError(made))
        return mr_fail(MR_E_INTERNAL, "cannot compress a caption: %s", ZSTD_getErrorName(made));
    index_put_int(p, made, 4);
    index_put(p, s->buffer.bytes, made);
    return MR_OK;
}

mr_status index_unsqueeze_new(const void *dict, size_t n, index_unsqueeze **out)
{
    index_unsqueeze *u;
    if (!MR_NEW(u))
        return mr_fail_memory(sizeof *u);
    if (!(u->dict = ZSTD_createDDict(dict, n))) {
        mr_free(u);
        return mr_fail_memory(n);
    }
    *out = u;
    return MR_OK;
}

void index_unsqueeze_free(index_unsqueeze *u)
{
    if (!u)
        return;
    ZSTD_freeDDict(u->dict);
    mr_free(u);
}

mr_status index_unsqueeze_get(const index_unsqueeze *u, void *context, index_view *v,
                              mr_arena *arena, const char **text)
{
    size_t n = index_get_int(v, 4);
    const uint8_t *frame = index_get(v, n);
    if (!frame)
        return MR_OK; // the view has failed; its owner tells
    if (!u)
        return mr_fail(MR_E_DATA, "compressed captions, and no dictionary in the index");
    unsigned long long size = ZSTD_getFrameContentSize(frame, n);
    if (size > TEXT_MAX)
        return mr_fail(MR_E_DATA, "a caption of unknown size");
    char *room = mr_arena_alloc(arena, (size_t)size + 1);
    if (!room)
        return mr_fail_memory((size_t)size);
    size_t got = ZSTD_decompress_usingDDict(context, room, (size_t)size, frame, n, u->dict);
    if (ZSTD_isError(got) || got != size)
        return mr_fail(MR_E_DATA, "a caption that does not unpack");
    *text = room;
    return MR_OK;
}

void *index_unsqueeze_context(void)
{
    return ZSTD_createDCtx();
}
void index_unsqueeze_context_free(void *context)
{
    ZSTD_freeDCtx(context);
}
