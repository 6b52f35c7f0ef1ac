/* index: tables of an index file - their names and errors, values that a builder writes.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/builder.h"

#include <errno.h>
#include <string.h>

const char *const index_table_names[] = {"meta", "hot", "row", "keymap", "refused"};

unsigned index_table_flags(int table)
{
    return table == DATA_META ? 0 : MDB_INTEGERKEY;
}

mr_status index_fail_mdb(const char *path, const char *verb, int err)
{
    if (err == ENOMEM)
        return mr_fail_memory(0);
    // LMDB reports EIO for a write that a full disk cut short
    bool full = err == ENOSPC || err == EDQUOT || err == EFBIG || err == EIO;
    return mr_fail(full || err == EACCES || err == EROFS ? MR_E_IO : MR_E_DATA,
                   "%s: cannot %s: %s%s", path, verb, mdb_strerror(err),
                   full ? "; try: free space on the disk, or use another disk" : "");
}

mr_status index_builder_put(mr_index_builder *b, MDB_dbi table, const void *key, size_t key_bytes,
                            const void *value, size_t bytes, unsigned flags)
{
    MDB_val k = {key_bytes, (void *)(uintptr_t)key}, v = {bytes, (void *)(uintptr_t)value};
    int err = mdb_put(b->txn, table, &k, &v, flags);
    // a small value shares a page and has a header; a large one takes whole pages
    b->used_bytes += bytes > 1024 ? (bytes + 8191) / 4096 * 4096 : bytes * 2 + 64;
    return err ? index_fail_mdb(b->path, "write", err) : MR_OK;
}

mr_status mr_index_builder_meta(mr_index_builder *b, const char *name, const char *text)
{
    return index_builder_put(b, b->tables[DATA_META], name, strlen(name), text, strlen(text), 0);
}
