/* ckpt: the zips that torch writes: stored entries, read at their places. Licence: Apache-2.0 */
#include "ckpt/room.h"

#ifdef MR_HAVE_MINIZIP
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unzip.h>

enum { ENTRIES_MAX = 200000 };

static voidpf zip_open(voidpf user, const void *name, int mode)
{
    (void)name;
    return mode & ZLIB_FILEFUNC_MODE_WRITE ? NULL : user;
}

static uLong zip_read(voidpf user, voidpf stream, void *buf, uLong n)
{
    (void)user;
    mr_zip *s = stream;
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

static ZPOS64_T zip_tell(voidpf user, voidpf stream)
{
    (void)user;
    return (ZPOS64_T)((mr_zip *)stream)->at;
}

static long zip_seek(voidpf user, voidpf stream, ZPOS64_T offset, int origin)
{
    (void)user;
    mr_zip *s = stream;
    int64_t from = origin == ZLIB_FILEFUNC_SEEK_CUR   ? s->at
                   : origin == ZLIB_FILEFUNC_SEEK_END ? s->size
                                                      : 0,
            to;
    if (__builtin_add_overflow(from, (int64_t)offset, &to) || to < 0 || to > s->size)
        return -1;
    s->at = to;
    return 0;
}

static int zip_nothing(voidpf user, voidpf stream)
{
    (void)user, (void)stream;
    return 0;
}

static int entry_by_name(const void *a, const void *b)
{
    return strcmp(((const mr_zip_entry *)a)->name, ((const mr_zip_entry *)b)->name);
}

/* The entries, sorted by name: stored, plain, inside the file, no name twice. */
static mr_status list_entries(mr_zip *z)
{
    unz_global_info64 all;
    if (unzGetGlobalInfo64(z->zip, &all) != UNZ_OK || all.number_entry > ENTRIES_MAX)
        return mr_fail(MR_E_FORMAT, "%s: not a readable zip, or more than %d entries", z->path,
                       ENTRIES_MAX);
    if (!(z->entries = mr_calloc((size_t)all.number_entry + 1, sizeof *z->entries)))
        return mr_fail_memory(sizeof *z->entries);
    int err = unzGoToFirstFile(z->zip);
    for (ZPOS64_T i = 0; i < all.number_entry; i++, err = unzGoToNextFile(z->zip)) {
        unz_file_info64 info;
        char name[MR_ZIP_NAME];
        if (err != UNZ_OK ||
            unzGetCurrentFileInfo64(z->zip, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK)
            return mr_fail(MR_E_FORMAT, "%s: damaged list of entries", z->path);
        if (info.size_filename >= MR_ZIP_NAME || strlen(name) != info.size_filename)
            return mr_fail(MR_E_FORMAT, "%s: an entry name is longer than %d bytes or holds a zero",
                           z->path, MR_ZIP_NAME - 1);
        if (info.compression_method != 0 || info.flag & 1 ||
            info.compressed_size != info.uncompressed_size)
            return mr_fail(MR_E_FORMAT,
                           "%s: entry '%s' is compressed or encrypted; expected stored data",
                           z->path, name);
        // opening compares the entry's own header with the list
        if (unzOpenCurrentFile(z->zip) != UNZ_OK)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s': its two headers differ", z->path, name);
        mr_zip_entry *e = &z->entries[z->n];
        e->at = (int64_t)unzGetCurrentFileZStreamPos64(z->zip),
        e->bytes = (int64_t)info.uncompressed_size;
        unzCloseCurrentFile(z->zip);
        if (e->at <= 0 || e->bytes < 0 || e->bytes > z->size - e->at)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s' reaches past the end of the file", z->path,
                           name);
        if (!(e->name = mr_strdup(name)))
            return mr_fail_memory(sizeof name);
        z->n++;
    }
    qsort(z->entries, (size_t)z->n, sizeof *z->entries, entry_by_name);
    for (int i = 1; i < z->n; i++)
        if (strcmp(z->entries[i - 1].name, z->entries[i].name) == 0)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s' comes twice", z->path, z->entries[i].name);
    return MR_OK;
}

mr_status mr_zip_open(mr_zip *z, const char *path)
{
    *z = (mr_zip){.fd = mr_io_table()->open(path, O_RDONLY | O_NONBLOCK, 0), .path = path};
    struct stat s;
    if (z->fd < 0 || fstat(z->fd, &s))
        return mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return mr_fail(MR_E_USAGE, "%s: not a file", path);
    z->size = s.st_size;
    zlib_filefunc64_def functions = {.zopen64_file = zip_open,
                                     .zread_file = zip_read,
                                     .ztell64_file = zip_tell,
                                     .zseek64_file = zip_seek,
                                     .zclose_file = zip_nothing,
                                     .zerror_file = zip_nothing,
                                     .opaque = z};
    if (!(z->zip = unzOpen2_64(path, &functions)))
        return mr_fail(MR_E_FORMAT,
                       "%s: not a zip of torch; older files of torch.save are not read, try: save "
                       "it again with a newer torch",
                       path);
    return list_entries(z);
}

const mr_zip_entry *mr_zip_find(const mr_zip *z, const char *name)
{
    mr_zip_entry key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, z->entries, (size_t)z->n, sizeof key, entry_by_name);
}

mr_status mr_zip_read(mr_zip *z, const mr_zip_entry *e, void *dst)
{
    size_t got = 0, bytes = (size_t)e->bytes;
    if (unzLocateFile(z->zip, e->name, 1) != UNZ_OK || unzOpenCurrentFile(z->zip) != UNZ_OK)
        return mr_fail(MR_E_FORMAT, "%s: no entry '%s'", z->path, e->name);
    int n = 1;
    while (got < bytes && n > 0) {
        n = unzReadCurrentFile(z->zip, (char *)dst + got,
                               (unsigned)MR_MIN(bytes - got, (size_t)1 << 20));
        if (n > 0)
            got += (size_t)n;
    }
    int end = unzCloseCurrentFile(z->zip);
    MR_TRY(mr_interrupt_check());
    return got == bytes && end == UNZ_OK
               ? MR_OK
               : mr_fail(MR_E_FORMAT, "%s: entry '%s' is damaged: its CRC differs or it is cut off",
                         z->path, e->name);
}

void mr_zip_close(mr_zip *z)
{
    if (z->zip)
        unzClose(z->zip);
    if (z->fd >= 0)
        mr_io_table()->close(z->fd);
    for (int i = 0; i < z->n; i++)
        mr_free(z->entries[i].name);
    mr_free(z->entries);
}
#endif
