/* ckpt: journal.jsonl, append-only lines that survive a kill at any moment. Licence: Apache-2.0 */
#include "moonreel/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct mr_journal {
    int fd;
    int64_t bytes; // length of whole lines
    char *path;
};

/* Length of the file up to and with its last line break. */
static mr_status whole_lines(int fd, const char *path, int64_t size, int64_t *out)
{
    char block[4096];
    for (int64_t end = size; end > 0;) {
        int64_t from = MR_MAX(end - (int64_t)sizeof block, 0);
        MR_TRY(mr_file_read_at(fd, block, (size_t)(end - from), from, path));
        for (int64_t i = end - from - 1; i >= 0; i--)
            if (block[i] == '\n') {
                *out = from + i + 1;
                return MR_OK;
            }
        end = from;
    }
    *out = 0;
    return MR_OK;
}

/* The name of a new file is durable only when its directory is. */
static mr_status sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mr_dir_sync(".");
    char *dir = mr_strdup(path);
    if (!dir)
        return mr_fail_memory(strlen(path));
    dir[slash == path ? 1 : slash - path] = 0;
    mr_status st = mr_dir_sync(dir);
    mr_free(dir);
    return st;
}

mr_status mr_journal_open(const char *path, mr_journal **out)
{
    const mr_io *io = mr_io_table();
    *out = NULL;
    mr_journal *j;
    if (!MR_NEW(j))
        return mr_fail_memory(sizeof *j);
    j->fd = -1;
    mr_status st = MR_OK;
    if (!(j->path = mr_strdup(path)))
        MR_TRY_GOTO(mr_fail_memory(strlen(path)));
    do
        j->fd = io->open(path, O_RDWR | O_CREAT | O_APPEND, 0644);
    while (j->fd < 0 && errno == EINTR);
    struct stat s;
    if (j->fd < 0 || fstat(j->fd, &s))
        MR_TRY_GOTO(mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno)));
    MR_TRY_GOTO(whole_lines(j->fd, path, s.st_size, &j->bytes));
    if (j->bytes != s.st_size && io->ftruncate(j->fd, j->bytes))
        MR_TRY_GOTO(mr_fail(MR_E_IO, "%s: cannot cut off the unfinished last line: %s", path,
                            strerror(errno)));
    if (!s.st_size)
        MR_TRY_GOTO(sync_parent(path));
    *out = j;
    return MR_OK;
out:
    mr_journal_close(j);
    return st;
}

mr_status mr_journal_append(mr_journal *j, const char *line, size_t n)
{
    const mr_io *io = mr_io_table();
    if (n >= MR_JOURNAL_LINE_MAX)
        return mr_fail(MR_E_USAGE, "%s: a line of %zu bytes; at most %d", j->path, n,
                       MR_JOURNAL_LINE_MAX - 1);
    if (memchr(line, '\n', n))
        return mr_fail(MR_E_USAGE, "%s: a line break inside a line", j->path);
    char small[4096], *text = n < sizeof small ? small : mr_alloc(n + 1);
    if (!text)
        return mr_fail_memory(n + 1);
    memcpy(text, line, n);
    text[n] = '\n';
    mr_status st = mr_file_write_full(j->fd, text, n + 1, j->path);
    if (text != small)
        mr_free(text);
    if (st == MR_OK) {
        j->bytes += (int64_t)n + 1;
        return MR_OK;
    }
    // whatever part of the line is there goes, so that the next line starts on its own
    if (io->ftruncate(j->fd, j->bytes))
        return mr_fail_note("and its unfinished line cannot be cut off: %s", strerror(errno));
    return st;
}

mr_status mr_journal_sync(mr_journal *j)
{
    if (mr_io_table()->fsync(j->fd))
        return mr_fail(MR_E_IO, "%s: cannot sync: %s", j->path, strerror(errno));
    return MR_OK;
}

void mr_journal_close(mr_journal *j)
{
    if (!j)
        return;
    if (j->fd >= 0)
        mr_io_table()->close(j->fd);
    mr_free(j->path);
    mr_free(j);
}

/* ---- reading ---- */

struct mr_journal_reader {
    int fd;
    char *path;
    char *buf; // bytes [used from, end) are read and not yet given
    size_t from, end, cap;
};

mr_status mr_journal_read_open(const char *path, mr_journal_reader **out)
{
    *out = NULL;
    mr_journal_reader *r;
    if (!MR_NEW(r))
        return mr_fail_memory(sizeof *r);
    r->fd = mr_io_table()->open(path, O_RDONLY, 0);
    mr_status st =
        r->fd < 0 ? mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno)) : MR_OK;
    r->cap = 65536;
    if (st == MR_OK && (!(r->path = mr_strdup(path)) || !(r->buf = mr_alloc(r->cap))))
        st = mr_fail_memory(r->cap);
    if (st != MR_OK)
        mr_journal_read_close(r);
    else
        *out = r;
    return st;
}

mr_status mr_journal_read_next(mr_journal_reader *r, const char **line, size_t *n)
{
    *line = NULL, *n = 0;
    for (size_t seen = r->from;;) {
        char *stop = memchr(r->buf + seen, '\n', r->end - seen);
        if (stop) {
            *stop = 0;
            *line = r->buf + r->from, *n = (size_t)(stop - *line);
            r->from += *n + 1;
            return MR_OK;
        }
        if (r->end - r->from >= MR_JOURNAL_LINE_MAX)
            return mr_fail(MR_E_FORMAT, "%s: a line longer than %d bytes", r->path,
                           MR_JOURNAL_LINE_MAX);
        // keep the unfinished line at the front and read on
        memmove(r->buf, r->buf + r->from, r->end - r->from);
        r->end -= r->from, r->from = 0, seen = r->end;
        if (r->end == r->cap) {
            char *more = mr_realloc(r->buf, r->cap * 2);
            if (!more)
                return mr_fail_memory(r->cap * 2);
            r->buf = more, r->cap *= 2;
        }
        ssize_t got;
        do
            got = mr_io_table()->read(r->fd, r->buf + r->end, r->cap - r->end);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            return mr_fail(MR_E_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (got == 0)
            return MR_OK;
        r->end += (size_t)got;
    }
}

void mr_journal_read_close(mr_journal_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        mr_io_table()->close(r->fd);
    mr_free(r->path);
    mr_free(r->buf);
    mr_free(r);
}
