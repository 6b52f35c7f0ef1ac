/* ckpt: reads the zip archives that torch writes. minizip lists the entries, which are stored
 * uncompressed and read at their offsets.
 * Licence: Apache-2.0 */
#include "ckpt/torch.h"

#ifdef MR_HAVE_MINIZIP
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unzip.h>
#include <zlib.h>

enum { ENTRIES_MAX = 200000, PIECE = 1 << 20 };

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

/* ---- file functions for minizip ---- */

typedef struct stream {
    int fd;
    int64_t at, size;
} stream;

static voidpf stream_open(voidpf user, const void *name, int mode)
{
    (void)name;
    return mode & ZLIB_FILEFUNC_MODE_WRITE ? NULL : user;
}

static uLong stream_read(voidpf user, voidpf handle, void *buf, uLong n)
{
    (void)user;
    stream *s = handle;
    uLong got = 0;
    while (got < n && !mr_interrupt_get()) {
        ssize_t k = mr_io_table()->pread(s->fd, (char *)buf + got, n - got, s->at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        got += (uLong)k, s->at += k;
    }
    return got;
}

static ZPOS64_T stream_tell(voidpf user, voidpf handle)
{
    (void)user;
    return (ZPOS64_T)((stream *)handle)->at;
}

static long stream_seek(voidpf user, voidpf handle, ZPOS64_T offset, int origin)
{
    (void)user;
    stream *s = handle;
    int64_t from = origin == ZLIB_FILEFUNC_SEEK_CUR   ? s->at
                   : origin == ZLIB_FILEFUNC_SEEK_END ? s->size
                                                      : 0,
            to;
    if (__builtin_add_overflow(from, (int64_t)offset, &to) || to < 0 || to > s->size)
        return -1;
    s->at = to;
    return 0;
}

static int stream_nothing(voidpf user, voidpf handle)
{
    (void)user, (void)handle;
    return 0;
}

/* ---- the list ---- */

/* Reads the current entry of minizip. */
static mr_status read_entry(const char *path, unzFile zip, int64_t size, mr_entry *e)
{
    unz_file_info64 info;
    char name[MR_ENTRY_NAME];
    if (unzGetCurrentFileInfo64(zip, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK)
        return BAD("%s: its list of entries is damaged", path);
    if (info.size_filename >= MR_ENTRY_NAME || strlen(name) != info.size_filename)
        return BAD("%s: an entry name is longer than %d bytes or holds a zero", path,
                   MR_ENTRY_NAME - 1);
    if (info.compression_method != 0 || info.flag & 1 ||
        info.compressed_size != info.uncompressed_size)
        return BAD("%s: entry '%s' is compressed or encrypted; expected stored data", path, name);
    // opening compares the header of the entry with the list
    if (unzOpenCurrentFile(zip) != UNZ_OK)
        return BAD("%s: entry '%s': its two headers differ", path, name);
    *e = (mr_entry){.at = (int64_t)unzGetCurrentFileZStreamPos64(zip),
                    .bytes = (int64_t)info.uncompressed_size,
                    .crc = (uint32_t)info.crc,
                    // torch can omit checksums; it then writes zero
                    .has_sum = info.crc != 0};
    unzCloseCurrentFile(zip);
    if (e->at <= 0 || e->at > size || e->bytes < 0 || e->bytes > size - e->at)
        return BAD("%s: entry '%s' reaches past the end of the file", path, name);
    e->name = mr_strdup(name);
    return e->name ? MR_OK : mr_fail_memory(sizeof name);
}

static mr_status list_entries(const char *path, unzFile zip, int64_t size, mr_entries *out)
{
    unz_global_info64 all;
    if (unzGetGlobalInfo64(zip, &all) != UNZ_OK || all.number_entry > ENTRIES_MAX)
        return BAD("%s: not a readable zip, or more than %d entries", path, ENTRIES_MAX);
    if (!(out->list = mr_calloc((size_t)all.number_entry + 1, sizeof *out->list)))
        return mr_fail_memory(sizeof *out->list * (size_t)all.number_entry);
    int err = unzGoToFirstFile(zip);
    for (ZPOS64_T i = 0; i < all.number_entry; i++, err = unzGoToNextFile(zip)) {
        MR_TRY(mr_interrupt_check());
        if (err != UNZ_OK)
            return BAD("%s: its list of entries is damaged", path);
        MR_TRY(read_entry(path, zip, size, &out->list[out->n]));
        out->n++;
    }
    return mr_entries_sort(path, out);
}

mr_status mr_zip_list(const char *path, int fd, int64_t size, mr_entries *out)
{
    stream s = {.fd = fd, .size = size};
    zlib_filefunc64_def functions = {.zopen64_file = stream_open,
                                     .zread_file = stream_read,
                                     .ztell64_file = stream_tell,
                                     .zseek64_file = stream_seek,
                                     .zclose_file = stream_nothing,
                                     .zerror_file = stream_nothing,
                                     .opaque = &s};
    unzFile zip = unzOpen2_64(path, &functions);
    MR_TRY(mr_interrupt_check());
    if (!zip)
        return BAD("%s: a damaged zip: its list of entries is not found", path);
    mr_status st = list_entries(path, zip, size, out);
    unzClose(zip);
    return st;
}

/* ---- sums ---- */

static mr_status compare(const char *path, mr_entry *e, uint32_t crc)
{
    if (crc != e->crc)
        return BAD("%s: entry '%s' is damaged: its CRC is %08x, expected %08x; try: " MR_CKPT_AGAIN,
                   path, e->name, (unsigned)crc, (unsigned)e->crc);
    e->proven = true;
    return MR_OK;
}

mr_status mr_entry_read(const char *path, int fd, mr_entry *e, void *dst)
{
    MR_TRY(mr_file_read_at(fd, dst, (size_t)e->bytes, e->at, path));
    return e->proven || !e->has_sum ? MR_OK
                                    : compare(path, e, (uint32_t)crc32_z(0, dst, (size_t)e->bytes));
}

mr_status mr_entry_check(const char *path, int fd, mr_entry *e)
{
    if (!e->has_sum)
        return MR_OK;
    unsigned char *piece = mr_alloc(PIECE);
    uLong crc = crc32_z(0, NULL, 0);
    mr_status st = piece ? MR_OK : mr_fail_memory(PIECE);
    for (int64_t at = 0; at < e->bytes && st == MR_OK; at += PIECE) {
        size_t n = (size_t)MR_MIN(e->bytes - at, (int64_t)PIECE);
        st = mr_file_read_at(fd, piece, n, e->at + at, path);
        if (st == MR_OK)
            crc = crc32_z(crc, piece, n);
    }
    mr_free(piece);
    return st == MR_OK ? compare(path, e, (uint32_t)crc) : st;
}

#else

mr_status mr_zip_list(const char *path, int fd, int64_t size, mr_entries *out)
{
    (void)fd, (void)size, (void)out;
    return mr_fail(MR_E_UNSUPPORTED,
                   "%s: this build cannot read zips of torch; try: install libminizip-dev and "
                   "build again, or convert the file to safetensors",
                   path);
}

/* In a build without zip support, only older files are read; their entries have no checksums. */
mr_status mr_entry_read(const char *path, int fd, mr_entry *e, void *dst)
{
    return mr_file_read_at(fd, dst, (size_t)e->bytes, e->at, path);
}

mr_status mr_entry_check(const char *path, int fd, mr_entry *e)
{
    (void)path, (void)fd, (void)e;
    return MR_OK;
}
#endif
