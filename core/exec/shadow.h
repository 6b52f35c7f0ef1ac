/* exec, inside: the memory of the shadow device and the checks around each step. Licence:
 * Apache-2.0 */
#ifndef MR_EXEC_SHADOW_H
#define MR_EXEC_SHADOW_H

#include "exec/room.h"

/* One allocation: real memory between guard pages, and as many bytes of addresses that fault. */
typedef struct shadow_block {
    mr_dptr at; /* device address */
    unsigned char *real;
    size_t bytes, room, mapped; /* room: whole pages; mapped: everything reserved */
    void *base;
    uint64_t *written; /* one bit per byte */
    mr_guard guard;
} shadow_block;

typedef struct shadow_memory {
    shadow_block **block; /* by address */
    int n, cap;
} shadow_memory;

mr_status shadow_alloc(shadow_memory *m, size_t bytes, mr_dptr *out);
void shadow_free(shadow_memory *m, mr_dptr at);
void shadow_fini(shadow_memory *m);
/* The block that holds [at, at + bytes), or MR_E_INTERNAL saying who asked for what. */
mr_status shadow_find(const shadow_memory *m, mr_dptr at, size_t bytes, const char *who,
                      shadow_block **out);
/* Bytes become written, or poisoned and unwritten. */
void shadow_mark(shadow_block *b, mr_dptr at, size_t bytes);
void shadow_poison(shadow_block *b, mr_dptr at, size_t bytes, int byte);
/* Bytes before the first unwritten one of the range; `bytes` when all are written. */
size_t shadow_unwritten(const shadow_block *b, mr_dptr at, size_t bytes);
/* Nothing was written between the block's end and its last page's end. */
bool shadow_intact(const shadow_block *b);
/* Run one step on real addresses with all checks. A failure carries op, node and origin. */
mr_status shadow_step(const shadow_memory *m, const mr_step *step);

#endif
