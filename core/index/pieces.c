/* index: reads an untrusted text file in chunks, because it may be larger than memory. The text
 * comes from a file, or from a child process that prints Parquet as JSON lines.
 * Licence: Apache-2.0 */
#include "index/table.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { PIECE = 1 << 20, FIELD_MAX = 16 << 20 };

static mr_status open_file(const char *file, index_pieces *t)
{
    struct stat about;
    *t = (index_pieces){.file = file, .line = 1};
    // without O_NONBLOCK, opening a pipe that has no writer would wait forever
    t->fd = mr_io_table()->open(file, O_RDONLY | O_NONBLOCK, 0);
    if (t->fd < 0)
        return mr_fail(MR_E_DATA, "%s: cannot open: %s; expected a .csv or .jsonl file", file,
                       strerror(errno));
    if (fstat(t->fd, &about) || !S_ISREG(about.st_mode))
        return mr_fail(MR_E_DATA, "%s: is not a regular file; expected a .csv or .jsonl file",
                       file);
    return (t->buf = mr_alloc(PIECE)) ? MR_OK : mr_fail_memory(PIECE);
}

static mr_status open_child(const char *file, index_pieces *t)
{
    *t = (index_pieces){.file = file, .line = 1, .fd = -1};
    MR_TRY(index_child_open(&t->child, file));
    t->fd = t->child.fd;
    return (t->buf = mr_alloc(PIECE)) ? MR_OK : mr_fail_memory(PIECE);
}

mr_status index_pieces_open(index_pieces *t, const char *file, bool parquet)
{
    return parquet ? open_child(file, t) : open_file(file, t);
}

mr_status index_pieces_close(index_pieces *t, mr_status st)
{
    mr_free(t->buf);
    if (t->fd < 0)
        return st;
    if (!t->child.file) {
        mr_io_table()->close(t->fd);
        return st;
    }
    // the error of the child explains more than the early end of its output
    mr_status end = index_child_close(&t->child, t->ended);
    return end == MR_OK ? st : end;
}

// reads more bytes after the present ones; *more is false at the end
static mr_status fill(index_pieces *t, bool *more)
{
    MR_TRY(mr_interrupt_check());
    if (t->child.file)
        MR_TRY(index_child_wait(&t->child));
    ssize_t n;
    do
        n = mr_io_table()->read(t->fd, t->buf + t->n, PIECE - t->n);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return mr_fail(MR_E_IO, "%s: cannot read: %s", t->file, strerror(errno));
    t->n += (size_t)n, *more = n > 0;
    return MR_OK;
}

// does the file begin with these bytes? Reads as many as needed
static mr_status begins_with(index_pieces *t, const char *mark, size_t n, bool *yes)
{
    bool more = true;
    while (more && t->n < n && memcmp(t->buf, mark, t->n) == 0)
        MR_TRY(fill(t, &more));
    *yes = t->n >= n && memcmp(t->buf, mark, n) == 0;
    return MR_OK;
}

// skips the byte order mark of UTF-8. Marks of other encodings are not valid UTF-8
static mr_status take_mark(index_pieces *t)
{
    bool is_32, is_8;
    MR_TRY(begins_with(t, "\xff\xfe\0\0", 4, &is_32));
    if (t->n && (unsigned char)*t->buf >= 0xfe) {
        int bits = is_32 ? 32 : 16;
        return mr_fail(MR_E_DATA,
                       "%s: is UTF-%d; expected UTF-8; try: iconv -f UTF-%d -t UTF-8 '%s' >NEW",
                       t->file, bits, bits, t->file);
    }
    MR_TRY(begins_with(t, "\xef\xbb\xbf", 3, &is_8));
    t->at = is_8 ? 3 : 0;
    return MR_OK;
}

mr_status index_pieces_need(index_pieces *t)
{
    if (t->at < t->n || t->ended)
        return MR_OK;
    bool more, first = !t->before && !t->n;
    t->before += t->n, t->at = t->n = 0;
    MR_TRY(fill(t, &more));
    if (first)
        MR_TRY(take_mark(t));
    t->ended = t->n == 0;
    const char *zero = t->n ? memchr(t->buf, 0, t->n) : NULL;
    if (!zero)
        // the mark may be the whole file
        return t->at < t->n || t->ended ? MR_OK : index_pieces_need(t);
    uint64_t line = t->line;
    for (const char *p = t->buf; p < zero; p++)
        line += *p == '\n';
    return mr_fail(MR_E_DATA,
                   "%s:%llu: a zero byte, at %llu of the file; expected text in UTF-8; try: is it "
                   "UTF-16 or UTF-32?",
                   t->file, (unsigned long long)line,
                   (unsigned long long)(t->before + (uint64_t)(zero - t->buf)));
}

mr_status index_pieces_take(index_pieces *t, index_pack *to, size_t n, uint64_t began)
{
    index_put(to, t->buf + t->at, n);
    t->at += n;
    if (to->failed)
        return mr_fail_memory(to->cap * 2);
    return to->n <= FIELD_MAX ? MR_OK
                              : mr_fail(MR_E_DATA,
                                        "%s:%llu: a field does not end within %d bytes; try: is a "
                                        "quoted field left open there?",
                                        t->file, (unsigned long long)began, FIELD_MAX);
}
