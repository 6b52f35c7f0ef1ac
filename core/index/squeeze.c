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

mr_status index_dict_train(const index_input *rows, uint64_t n, index_pack *dict)
{
    // captions are chosen evenly over the whole list
    uint64_t bytes = 0, taken = 0, stride = 1;
    for (uint64_t i = 0; i < n; i++)
        bytes += rows[i].text ? strlen(rows[i].text) : 0;
    dict->n = 0;
    if (bytes < (uint64_t)DICT_BYTES * 4)
        return MR_OK; // small sets stay plain
    stride = bytes / SAMPLE_BYTES + 1;
    index_pack samples = {0};
    size_t *sizes = mr_alloc(sizeof *sizes * (size_t)(n / stride + 1));
    if (!sizes)
        return mr_fail_memory(sizeof *sizes * (size_t)n);
    for (uint64_t i = 0; i < n; i += stride) {
        size_t len = rows[i].text ? strlen(rows[i].text) : 0;
        if (!len)
            continue;
        index_put(&samples, rows[i].text, len);
        sizes[taken++] = len;
    }
    uint8_t *room = mr_alloc(DICT_BYTES);
    mr_status st = room && !samples.failed ? MR_OK : mr_fail_memory(samples.cap);
    // texts without anything in common make no dictionary and stay plain
    size_t made =
        st == MR_OK ? ZDICT_trainFromBuffer(room, DICT_BYTES, samples.bytes, sizes, (unsigned)taken)
                    : 0;
    if (st == MR_OK && !ZDICT_isError(made)) {
        index_put(dict, room, made);
        if (dict->failed)
            st = mr_fail_memory(made);
    }
    mr_free(room);
    mr_free(sizes);
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
