/* Small tokenizer models, written field by field. Use: model m = {0}; put_piece(&m, "a", -1, 1);
 * ... write_model(&m, path); */
#ifndef MR_TOKENCASE_H
#define MR_TOKENCASE_H
#include "check.h"
#include "token/room.h"
#include <stdlib.h>
#include <unistd.h>

typedef struct model {
    char data[1 << 16];
    size_t n;
} model;

static inline void put(model *m, const void *data, size_t n)
{
    if (m->n + n > sizeof m->data)
        abort();
    memcpy(m->data + m->n, data, n);
    m->n += n;
}

static inline void put_varint(model *m, uint64_t x)
{
    for (; x > 127; x >>= 7)
        put(m, (char[]){(char)(x | 128)}, 1);
    put(m, (char[]){(char)x}, 1);
}

static inline void put_int(model *m, uint64_t field, uint64_t x)
{
    put_varint(m, field << 3);
    put_varint(m, x);
}

static inline void put_text(model *m, uint64_t field, const void *text, size_t n)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    put(m, text, n);
}

static inline void put_piece(model *m, const char *text, float score, int kind)
{
    model p = {0};
    put_text(&p, 1, text, strlen(text));
    put_varint(&p, 2 << 3 | 5);
    put(&p, &score, 4);
    if (kind != MR_PIECE_NORMAL)
        put_int(&p, 3, (uint64_t)kind);
    put_text(m, 1, p.data, p.n);
}

/* A list of numbered flags as field `part` of the model, ended by 0. */
static inline void put_flags(model *m, uint64_t part, const uint64_t (*flags)[2])
{
    model p = {0};
    for (; (*flags)[0]; flags++)
        put_int(&p, (*flags)[0], (*flags)[1]);
    put_text(m, part, p.data, p.n);
}
#define FLAGS(...) ((const uint64_t[][2]){__VA_ARGS__, {0, 0}})

/* No space in front, spaces stay and are spaces: pieces see a text unchanged. */
#define AS_IT_IS FLAGS({3, 0}, {4, 0}, {5, 0})

static char model_path[256];

static inline void write_file(const char *path, const char *data, size_t n)
{
    remove(path); // some file systems wait for the disk when a file is overwritten
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n);
    CHECK(f && fclose(f) == 0);
}

/* Writes the model to a file of this process; returns its path. */
static inline const char *write_model(const model *m)
{
    snprintf(model_path, sizeof model_path, "/tmp/moonreel-token-%ld.model", (long)getpid());
    write_file(model_path, m->data, m->n);
    return model_path;
}

static inline mr_tokenizer *open_model(const model *m)
{
    mr_tokenizer *t = NULL;
    CHECK_OK(mr_tokenizer_open(write_model(m), &t));
    remove(model_path);
    return t;
}

/* The ids of a text as "3 1 4", or its normal form; lent until the next call. */
static inline const char *ids_of(const mr_tokenizer *t, const char *text, size_t n)
{
    static char out[4096];
    int32_t *ids;
    size_t count, used = 0;
    *out = 0;
    if (!CHECK_OK(mr_tokenizer_encode(t, text, n, &ids, &count)))
        return out;
    for (size_t i = 0; i < count && used < sizeof out - 16; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, i ? " %d" : "%d", ids[i]);
    mr_free(ids);
    return out;
}

static inline const char *normal_of(const mr_tokenizer *t, const char *text)
{
    static char out[4096];
    char *s;
    size_t n;
    *out = 0;
    if (CHECK_OK(mr_tokenizer_normal(t, text, strlen(text), &s, &n)))
        snprintf(out, sizeof out, "%s", s);
    mr_free(s);
    return out;
}
#endif
