/* bench: removes files from the page cache, so that the next read comes from the disk.
 * Licence: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include "moonreel/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

mr_status mr_bench_forget_file(const char *path)
{
    const mr_io *io = mr_io_table();
    int fd = io->open(path, O_RDONLY, 0);
    if (fd < 0)
        return mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    // the kernel does not drop dirty pages, so write them back first
    int bad = io->fsync(fd) ? errno : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    io->close(fd);
    return bad ? mr_fail(MR_E_IO, "%s: cannot drop it from the page cache: %s", path, strerror(bad))
               : MR_OK;
}
