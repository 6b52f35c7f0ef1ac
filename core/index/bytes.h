/* index, inside: growing output, checked input in little endian, and absolute paths.
 * Licence: Apache-2.0 */
#ifndef MR_INDEX_BYTES_H
#define MR_INDEX_BYTES_H

#include "moonreel/index.h"

/* ---- bytes.c: growing output, checked input, little endian ---- */

typedef struct index_pack {
    uint8_t *bytes;
    size_t n, cap;
    bool failed;
} index_pack; /* growing output */
typedef struct index_view {
    const uint8_t *at, *end;
    bool failed;
} index_view; /* checked input */

void index_put(index_pack *p, const void *bytes, size_t n);
void index_put_int(index_pack *p, uint64_t value, int bytes);
void index_put_varint(index_pack *p, uint64_t value);
uint64_t index_get_int(index_view *v, int bytes);
uint64_t index_get_varint(index_view *v);
const uint8_t *index_get(index_view *v, size_t n);
/* Append a line to notes. */
void index_note(index_pack *notes, const char *line);
static inline uint64_t index_zigzag(int64_t v)
{
    return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t index_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* ---- path.c: "." and ".." resolved by name ---- */

/* Errors: MR_E_IO too long, no working directory */
mr_status index_path_absolute(const char *path, char out[4096]);

#endif
