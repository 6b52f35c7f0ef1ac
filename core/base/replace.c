/* base: replaces a small file atomically: a reader sees the old file or the new one, never a part.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

static void parent_of(const char *path, char out[4096])
{
    snprintf(out, 4096, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash)
        snprintf(out, 4096, ".");
    else
        slash[slash == out ? 1 : 0] = 0;
}

mr_status mr_file_replace(const char *path, const void *data, size_t bytes)
{
    const mr_io *io = mr_io_table();
    char tmp[4096], dir[4096];
    MR_TRY(mr_temporary_path(path, tmp, sizeof tmp));
    // an error names the final path, not the temporary one
    int fd = io->open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return mr_fail_io("create", path);
    mr_temporary_hold(fd);
    mr_status st = mr_file_write_full(fd, data, bytes, path);
    if (st == MR_OK && io->fsync(fd))
        st = mr_fail_io("sync", path);
    if (io->close(fd) && st == MR_OK)
        st = mr_fail_io("close", path);
    if (st == MR_OK && io->rename(tmp, path))
        st = mr_fail_io("rename to", path);
    if (st != MR_OK) {
        io->unlink(tmp);
        return st;
    }
    parent_of(path, dir);
    return mr_dir_sync(dir);
}
