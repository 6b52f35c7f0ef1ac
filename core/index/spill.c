/* index: stores records on disk instead of in memory. They are in blocks of an unlinked file, which
 * the kernel removes when the process ends. Sizes and checksums of the blocks stay in memory, 16
 * bytes for 64 KiB. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/bytes.h"
#include "index/sort.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, PLACE_BITS = 20 };

// a block in the file: its end there, and its hash
typedef struct block {
    uint64_t end, hash;
} block;

struct index_spill {
    int fd;                        // -1: all records are in the open block
    char near[4096], folder[4096]; // folder of the file
    block *blocks;
    uint64_t n, cap;
    index_pack open; // the block that is being filled
};

mr_status index_spill_new(const char *near, index_spill **out)
{
    index_spill *s;
    if (!MR_NEW(s))
        return mr_fail_memory(sizeof *s);
    s->fd = -1;
    mr_status st = index_path_absolute(near, s->near);
    if (st == MR_OK)
        *out = s;
    else
        mr_free(s);
    return st;
}

void index_spill_free(index_spill *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        mr_io_table()->close(s->fd);
    mr_free(s->blocks);
    mr_free(s->open.bytes);
    mr_free(s);
}

// Opens the file in the nearest existing folder above `near`. On a file system without unnamed
// files, the file has a name for a moment.
static mr_status open_file(index_spill *s)
{
    const mr_io *io = mr_io_table();
    char name[8400];
    const char *last = strrchr(s->near, '/') + 1;
    snprintf(s->folder, sizeof s->folder, "%s", s->near);
    do {
        char *slash = strrchr(s->folder, '/');
        slash[slash == s->folder] = 0;
    } while (s->folder[1] && !mr_path_exists(s->folder));
    s->fd = io->open(s->folder, O_TMPFILE | O_RDWR, 0600);
    if (s->fd >= 0)
        return MR_OK;
    snprintf(name, sizeof name, "%s/%s.tmp-%ld%s", s->folder, last, (long)getpid(),
             INDEX_SPILL_ENDING);
    s->fd = io->open(name, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (s->fd < 0)
        return mr_fail(MR_E_IO, "%s: cannot create a temporary file there: %s", s->folder,
                       strerror(errno));
    io->unlink(name);
    return MR_OK;
}

mr_status index_spill_cut(index_spill *s, uint64_t *blocks)
{
    *blocks = s->n;
    if (!s->open.n)
        return MR_OK;
    MR_TRY(mr_interrupt_check());
    if (s->fd < 0)
        MR_TRY(open_file(s));
    if (s->n == s->cap) {
        uint64_t cap = MR_MAX(s->cap * 2, 256);
        block *more = mr_realloc(s->blocks, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        s->blocks = more, s->cap = cap;
    }
    if (mr_file_write_full(s->fd, s->open.bytes, s->open.n, s->folder) != MR_OK)
        return mr_fail(
            MR_E_IO,
            "%s, where the temporary file for rows is; try: free space on the disk, or use "
            "another disk",
            mr_error_last()->text);
    uint64_t from = s->n ? s->blocks[s->n - 1].end : 0;
    s->blocks[s->n++] = (block){from + s->open.n, mr_hash64(s->open.bytes, s->open.n)};
    s->open.n = 0;
    *blocks = s->n;
    return MR_OK;
}

mr_status index_spill_put(index_spill *s, const void *record, size_t n, uint64_t *place)
{
    uint64_t blocks;
    if (s->open.n >= BLOCK)
        MR_TRY(index_spill_cut(s, &blocks));
    *place = s->n << PLACE_BITS | s->open.n;
    index_put_int(&s->open, n, 4);
    index_put(&s->open, record, n);
    return s->open.failed ? mr_fail_memory(s->open.cap * 2) : MR_OK;
}

/* ---- reading ---- */

// loads a block into the reader; borrows the open block
static mr_status load(index_spill_reader *r)
{
    index_spill *s = r->spill;
    if (r->block == s->n) {
        r->loaded = r->block, r->bytes = s->open.bytes, r->n = s->open.n;
        return MR_OK;
    }
    const block *b = &s->blocks[r->block];
    uint64_t from = r->block ? s->blocks[r->block - 1].end : 0;
    size_t n = (size_t)(b->end - from);
    if (n > r->cap) {
        uint8_t *more = mr_realloc(r->room, n);
        if (!more)
            return mr_fail_memory(n);
        r->room = more, r->cap = n;
    }
    r->loaded = UINT64_MAX;
    mr_status st = mr_file_read_at(s->fd, r->room, n, (int64_t)from, s->folder);
    if (st == MR_E_FORMAT || (st == MR_OK && mr_hash64(r->room, n) != b->hash))
        return mr_fail(MR_E_IO,
                       "%s: rows in the temporary file there are damaged (bytes %llu to %llu); "
                       "try: check the disk, or use another disk",
                       s->folder, (unsigned long long)from, (unsigned long long)b->end);
    MR_TRY(st);
    r->loaded = r->block, r->bytes = r->room, r->n = n;
    return MR_OK;
}

index_spill_reader index_spill_read(index_spill *s, uint64_t from, uint64_t to)
{
    return (index_spill_reader){.spill = s, .block = from, .to = to, .loaded = UINT64_MAX};
}

void index_spill_seek(index_spill_reader *r, uint64_t place)
{
    r->block = place >> PLACE_BITS;
    r->at = (size_t)(place & (((uint64_t)1 << PLACE_BITS) - 1));
}

mr_status index_spill_next(index_spill_reader *r, const uint8_t **record, size_t *n,
                           uint64_t *place)
{
    *record = NULL, *n = 0;
    for (; r->block < r->to && r->block <= r->spill->n; r->block++, r->at = 0) {
        if (r->loaded != r->block)
            MR_TRY(load(r));
        if (r->at == r->n)
            continue;
        uint32_t bytes;
        memcpy(&bytes, r->bytes + r->at, 4);
        *place = r->block << PLACE_BITS | r->at;
        *record = r->bytes + r->at + 4, *n = bytes;
        r->at += bytes + 4;
        break;
    }
    return MR_OK;
}

void index_spill_reader_fini(index_spill_reader *r)
{
    mr_free(r->room);
}
