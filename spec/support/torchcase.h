/* Files in the format of torch.save, built byte by byte: pickles, zips of stored entries, and the
 * form before 1.6. Use: blob p = {0}; pickle_start(&p); ... pickle_end(&p); */
#ifndef MR_TORCHCASE_H
#define MR_TORCHCASE_H
#include "blob.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- pickles ---- */

static inline void pickle_start(blob *b)
{
    puts_to(b, "\x80\x02");
}
static inline void pickle_end(blob *b)
{
    puts_to(b, ".");
}
static inline void put_text(blob *b, const char *text)
{
    puts_to(b, "X");
    put_int(b, strlen(text), 4);
    puts_to(b, text);
}
static inline void put_number(blob *b, int64_t value)
{
    puts_to(b, "\x8a\x08");
    put_int(b, (uint64_t)value, 8);
}
static inline void put_numbers(blob *b, int n, const int64_t *values)
{
    puts_to(b, "(");
    for (int i = 0; i < n; i++)
        put_number(b, values[i]);
    puts_to(b, "t");
}

/* A tensor over elements of a storage; more: arguments after the first six, or NULL. */
typedef struct tensor_case {
    const char *type; /* of the storage: "torch\nFloatStorage" */
    const char *key;
    int64_t elements, first;
    int rank;
    int64_t shape[9], stride[9];
    const char *more;
} tensor_case;

static inline void put_storage(blob *b, const tensor_case *t, bool legacy)
{
    puts_to(b, "(");
    put_text(b, "storage");
    puts_to(b, "c");
    puts_to(b, t->type);
    puts_to(b, "\n");
    put_text(b, t->key);
    put_text(b, "cpu");
    put_number(b, t->elements);
    puts_to(b, legacy ? "NtQ" : "tQ");
}
static inline void put_tensor(blob *b, const tensor_case *t, bool legacy)
{
    bool typed = strcmp(t->type, "torch.storage\nUntypedStorage") != 0;
    puts_to(b, typed ? "ctorch._utils\n_rebuild_tensor_v2\n("
                     : "ctorch._utils\n_rebuild_tensor_v3\n(");
    put_storage(b, t, legacy);
    put_number(b, t->first);
    put_numbers(b, t->rank, t->shape);
    put_numbers(b, t->rank, t->stride);
    puts_to(b, "\x89"
               "ccollections\nOrderedDict\n)R");
    puts_to(b, t->more ? t->more : "");
    puts_to(b, "tR");
}

/* ---- zips ---- */

static inline uint32_t crc_of(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    }
    return ~c;
}

typedef struct zip_case {
    blob body, list;
    int n;
} zip_case;

static inline void zip_facts(blob *b, uint32_t crc, size_t n, size_t name)
{
    put_int(b, 20, 2), put_int(b, 0, 2), put_int(b, 0, 2), put_int(b, 0, 2), put_int(b, 33, 2);
    put_int(b, crc, 4), put_int(b, n, 4), put_int(b, n, 4), put_int(b, name, 2);
}
/* An entry with a given checksum. */
static inline void zip_add_sum(zip_case *z, const char *name, const void *data, size_t n,
                               uint32_t crc)
{
    size_t at = z->body.n;
    puts_to(&z->body, "PK\3\4");
    zip_facts(&z->body, crc, n, strlen(name));
    put_int(&z->body, 0, 2);
    puts_to(&z->body, name);
    put(&z->body, data, n);
    puts_to(&z->list, "PK\1\2");
    put_int(&z->list, 20, 2);
    zip_facts(&z->list, crc, n, strlen(name));
    put_int(&z->list, 0, 8), put_int(&z->list, 0, 4);
    put_int(&z->list, at, 4);
    puts_to(&z->list, name);
    z->n++;
}
static inline void zip_add(zip_case *z, const char *name, const void *data, size_t n)
{
    zip_add_sum(z, name, data, n, crc_of(data, n));
}
/* The whole file; body holds it afterwards. */
static inline void zip_end(zip_case *z)
{
    size_t at = z->body.n;
    put(&z->body, z->list.data, z->list.n);
    puts_to(&z->body, "PK\5\6");
    put_int(&z->body, 0, 4);
    put_int(&z->body, (uint64_t)z->n, 2), put_int(&z->body, (uint64_t)z->n, 2);
    put_int(&z->body, z->list.n, 4), put_int(&z->body, at, 4), put_int(&z->body, 0, 2);
    blob_free(&z->list);
}

/* ---- files before 1.6 ---- */

static inline void legacy_start(blob *b)
{
    put(b, "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.", 21);
    puts_to(b, "\x80\2}");
    put_text(b, "little_endian");
    puts_to(b, "\x88s.");
}
/* The list of keys after the value that was saved; the storages follow. */
static inline void legacy_keys(blob *b, int n, const char *const *keys)
{
    puts_to(b, "\x80\2](");
    for (int i = 0; i < n; i++)
        put_text(b, keys[i]);
    puts_to(b, "e.");
}
static inline void legacy_storage(blob *b, int64_t elements, const void *data, size_t bytes)
{
    put_int(b, (uint64_t)elements, 8);
    put(b, data, bytes);
}

#endif
