/* media: implements AVIO over moonreel's I/O table, so that tests can inject faults and FFmpeg's
 * protocols are unreachable.
 * Licence: Apache-2.0 */
#include "media/room.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 128 << 10 };

bool media_file_over(media_file *f)
{
    f->stopped |= mr_interrupt_get();
    return f->stopped || (f->deadline_ns && mr_clock_table()->monotonic_ns() > f->deadline_ns);
}

static int file_read(void *user, uint8_t *buf, int n)
{
    media_file *f = user;
    ssize_t got;
    if (media_file_over(f))
        return AVERROR_EXIT;
    do
        got = mr_io_table()->pread(f->fd, buf, (size_t)n, f->at);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        f->err = errno;
        return AVERROR(errno);
    }
    f->at += got;
    return got ? (int)got : AVERROR_EOF;
}

// FFmpeg 7 made the buffer const
#if LIBAVFORMAT_VERSION_MAJOR >= 61
static int file_write(void *user, const uint8_t *buf, int n)
#else
static int file_write(void *user, uint8_t *buf, int n)
#endif
{
    media_file *f = user;
    for (int done = 0; done < n;) {
        ssize_t put = mr_io_table()->pwrite(f->fd, buf + done, (size_t)(n - done), f->at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            f->err = put ? errno : ENOSPC;
            return AVERROR(f->err);
        }
        done += (int)put, f->at += put;
    }
    if (f->at > f->size)
        f->size = f->at;
    return n;
}

static int64_t file_seek(void *user, int64_t offset, int whence)
{
    media_file *f = user;
    switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE: return f->size;
    case SEEK_SET: break;
    case SEEK_CUR: offset += f->at; break;
    case SEEK_END: offset += f->size; break;
    default: return AVERROR(EINVAL);
    }
    if (offset < 0)
        return AVERROR(EINVAL);
    return f->at = offset;
}

mr_status media_file_open(media_file *f, const char *path, bool writes, AVIOContext **io)
{
    // O_NONBLOCK: opening a pipe without a writer would block forever
    int flags = writes ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY | O_NONBLOCK;
    *f = (media_file){.fd = mr_io_table()->open(path, flags, 0644), .writes = writes};
    if (f->fd < 0) {
        f->err = errno;
        return mr_fail(MR_E_IO, "%s: cannot %s: %s", path, writes ? "create" : "open",
                       strerror(f->err));
    }
    struct stat about;
    if (!writes && (fstat(f->fd, &about) || !S_ISREG(about.st_mode))) {
        f->err = EINVAL;
        mr_io_table()->close(f->fd);
        f->fd = -1;
        return mr_fail(MR_E_IO, "%s: cannot open: it is not a regular file", path);
    }
    if (!writes)
        f->size = about.st_size;
    uint8_t *buf = av_malloc(BUFFER_BYTES);
    *io = buf ? avio_alloc_context(buf, BUFFER_BYTES, writes, f, writes ? NULL : file_read,
                                   writes ? file_write : NULL, file_seek)
              : NULL;
    if (*io)
        return MR_OK;
    av_free(buf);
    mr_io_table()->close(f->fd);
    f->fd = -1;
    return mr_fail_memory(BUFFER_BYTES);
}

int media_file_close(media_file *f, AVIOContext **io)
{
    if (*io) {
        if (f->writes)
            avio_flush(*io);
        av_freep(&(*io)->buffer);
        avio_context_free(io);
    }
    if (f->fd >= 0 && mr_io_table()->close(f->fd) && !f->err)
        f->err = errno;
    f->fd = -1;
    return f->err;
}
