/* run: appends lines to journal.jsonl and reads them. The file survives a kill at any moment and a
 * disk that is full for a while. Licence: Apache-2.0 */
#include "moonreel/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* `waiting` buffers the lines that the disk has not accepted yet. It can begin in the middle of a
 * line whose first bytes are written already: the file is always a prefix of the appended lines. */
struct mr_journal {
    int fd;
    char *path;
    char *waiting;
    size_t bytes, cap;
    int64_t lines;    // in `waiting`, including one that is partly written
    int64_t gap;      // lines dropped because the buffer was full; the journal does not say so yet
    int64_t left_out; // all lines dropped so far
    int why;          // errno of the last write that failed
};

/* The length of the file up to and including its last line break. */
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

/* A new file is durable only after its directory is synced. */
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
    int64_t whole;
    MR_TRY_GOTO(whole_lines(j->fd, path, s.st_size, &whole));
    if (whole != s.st_size && io->ftruncate(j->fd, whole))
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

/* Append a line to `waiting`. */
static mr_status keep(mr_journal *j, const char *line, size_t n)
{
    if (j->bytes + n + 1 > j->cap) {
        size_t cap = MR_MAX(2 * j->cap, MR_MAX((size_t)4096, j->bytes + n + 1));
        char *more = mr_realloc(j->waiting, cap);
        if (!more)
            return mr_fail_memory(cap);
        j->waiting = more, j->cap = cap;
    }
    memcpy(j->waiting + j->bytes, line, n);
    j->bytes += n;
    j->waiting[j->bytes++] = '\n';
    j->lines++;
    return MR_OK;
}

/* Write the waiting lines as far as the disk accepts them. True if all are written. */
static bool write_waiting(mr_journal *j)
{
    size_t done = 0;
    while (done < j->bytes) {
        ssize_t n = mr_io_table()->write(j->fd, j->waiting + done, j->bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            j->why = n < 0 ? errno : ENOSPC;
            break;
        }
        for (ssize_t i = 0; i < n; i++)
            j->lines -= j->waiting[done + (size_t)i] == '\n';
        done += (size_t)n;
    }
    j->bytes -= done;
    if (done && j->bytes)
        memmove(j->waiting, j->waiting + done, j->bytes);
    return !j->bytes;
}

/* Write the waiting lines; after them, the line that reports a gap. */
static mr_status flush(mr_journal *j)
{
    if (!write_waiting(j) || !j->gap)
        return MR_OK;
    char line[64];
    int n = snprintf(line, sizeof line, "{\"kind\":\"gap\",\"lines\":%lld}", (long long)j->gap);
    MR_TRY(keep(j, line, (size_t)n));
    j->gap = 0;
    write_waiting(j);
    return MR_OK;
}

mr_status mr_journal_append(mr_journal *j, const char *line, size_t n)
{
    if (n >= MR_JOURNAL_LINE_MAX)
        return mr_fail(MR_E_USAGE, "%s: cannot append a line of %zu bytes; expected at most %d",
                       j->path, n, MR_JOURNAL_LINE_MAX - 1);
    if (memchr(line, '\n', n))
        return mr_fail(
            MR_E_USAGE,
            "%s: cannot append a line that contains a line break; expected JSON on one line",
            j->path);
    if (j->bytes)
        MR_TRY(flush(j));
    // to keep the order, drop lines after a gap until the gap is written
    if (j->gap || j->bytes + n + 1 > MR_JOURNAL_WAIT_MAX) {
        j->gap++, j->left_out++;
        return MR_OK;
    }
    MR_TRY(keep(j, line, n));
    return flush(j);
}

int64_t mr_journal_waiting(const mr_journal *j, int64_t *left_out, const char **reason)
{
    *left_out = j->left_out;
    *reason = j->why ? strerror(j->why) : "";
    return j->lines;
}

mr_status mr_journal_sync(mr_journal *j)
{
    MR_TRY(flush(j));
    if (j->bytes)
        return mr_fail(
            MR_E_IO,
            "%s: cannot write: %s; %lld lines wait in memory; try: free some space on the disk",
            j->path, strerror(j->why), (long long)j->lines);
    if (mr_io_table()->fsync(j->fd))
        return mr_fail(MR_E_IO, "%s: cannot sync: %s", j->path, strerror(errno));
    return MR_OK;
}

void mr_journal_close(mr_journal *j)
{
    if (!j)
        return;
    if (j->fd >= 0) {
        if (flush(j) != MR_OK)
            mr_error_clear();
        mr_io_table()->close(j->fd);
    }
    mr_free(j->waiting);
    mr_free(j->path);
    mr_free(j);
}

/* ---- reading ---- */

struct mr_journal_reader {
    int fd;
    char *path;
    char *buf; // bytes [from, end) are read and not yet returned
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
            return mr_fail(MR_E_FORMAT,
                           "%s: a line is longer than %d bytes; expected a journal of moonreel",
                           r->path, MR_JOURNAL_LINE_MAX);
        // the line is incomplete: move it to the front and read on
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
