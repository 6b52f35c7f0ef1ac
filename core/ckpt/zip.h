/* ckpt: the zips that torch writes: stored entries, read at their places. Licence: Apache-2.0 */
#ifndef MR_CKPT_ZIP_H
#define MR_CKPT_ZIP_H

#include "moonreel/base.h"

enum { MR_ZIP_NAME = 256 }; /* room for an entry's name */

/* at: in the file */
typedef struct mr_zip_entry {
    char *name;
    int64_t at, bytes;
} mr_zip_entry;

typedef struct mr_zip {
    const char *path;
    int fd;
    int64_t at, size;
    void *zip;
    mr_zip_entry *entries; /* sorted by name */
    int n;
} mr_zip;

/* List the entries: stored, plain, inside the file, no name twice. Borrows path until the close,
 * which is due after a failure too. Errors: MR_E_IO, MR_E_USAGE no file, MR_E_FORMAT,
 * MR_E_MEMORY */
mr_status mr_zip_open(mr_zip *z, const char *path);
void mr_zip_close(mr_zip *z);
const mr_zip_entry *mr_zip_find(const mr_zip *z, const char *name); /* lent; NULL: none */
/* The whole of an entry into dst [bytes], its CRC compared. Errors: MR_E_FORMAT damaged */
mr_status mr_zip_read(mr_zip *z, const mr_zip_entry *e, void *dst);

#endif
