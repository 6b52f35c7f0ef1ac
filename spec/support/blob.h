/* A growing buffer for building files. Use: blob b = {0}; puts_to(&b, "{}"); ... blob_free(&b); */
#ifndef MR_BLOB_H
#define MR_BLOB_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct blob {
    char *data;
    size_t n, cap;
} blob;

static inline void put(blob *b, const void *data, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = 2 * (b->n + n);
        b->data = realloc(b->data, b->cap);
    }
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}
static inline void puts_to(blob *b, const char *text)
{
    put(b, text, strlen(text));
}
static inline void put_int(blob *b, uint64_t value, int bytes)
{
    put(b, &value, (size_t)bytes);
}
static inline void blob_free(blob *b)
{
    free(b->data);
    *b = (blob){0};
}
/* Replaces `drop` bytes at `at` by n others. */
static inline void splice(blob *b, size_t at, size_t drop, const void *data, size_t n)
{
    blob out = {0};
    put(&out, b->data, at);
    put(&out, data, n);
    put(&out, b->data + at + drop, b->n - at - drop);
    blob_free(b);
    *b = out;
}
static inline void write_blob(const char *path, const blob *b)
{
    // a new file each time: some file systems wait for the disk when one is overwritten
    remove(path);
    FILE *f = fopen(path, "wb");
    if (b->n)
        fwrite(b->data, 1, b->n, f);
    fclose(f);
}

#endif
