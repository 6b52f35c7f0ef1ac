/* data: quarantine.jsonl. Ref: dataplane 5. An event is told apart by key, epoch and attempt: a run
 * that repeats a part of an epoch after a restart adds nothing new. Licence: Apache-2.0 */
#include "data/room.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct quarantine {
    quarantine_event *events;
    uint64_t n, cap;
    int fd;
    char *path, order[33], host[64];
};

// by key, then epoch, then attempt
static int compare(const void *a, const void *b)
{
    const quarantine_event *x = a, *y = b;
    if (x->key_lo != y->key_lo)
        return x->key_lo < y->key_lo ? -1 : 1;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return (x->attempt > y->attempt) - (x->attempt < y->attempt);
}

static mr_status insert(quarantine *q, uint64_t at, const quarantine_event *e)
{
    if (q->n == q->cap) {
        uint64_t cap = MR_MAX(q->cap * 2, 64);
        quarantine_event *more = mr_realloc(q->events, cap * sizeof *more);
        if (!more)
            return mr_fail_memory(cap * sizeof *more);
        q->events = more, q->cap = cap;
    }
    memmove(q->events + at + 1, q->events + at, (q->n - at) * sizeof *e);
    q->events[at] = *e;
    q->n++;
    return MR_OK;
}

// false: the event is known
static mr_status remember(quarantine *q, const quarantine_event *e, bool *added)
{
    uint64_t lo = 0, hi = q->n;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (compare(&q->events[mid], e) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *added = lo == q->n || compare(&q->events[lo], e) != 0;
    return *added ? insert(q, lo, e) : MR_OK;
}

static mr_status read_line(quarantine *q, const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *key = json_string_value(json_object_get(o, "key")),
               *class = json_string_value(json_object_get(o, "class"));
    const char *order = json_string_value(json_object_get(o, "fp_order"));
    json_t *epoch = json_object_get(o, "epoch"), *attempt = json_object_get(o, "attempt");
    mr_status st = MR_OK;
    // other lists' lines, and one torn by a power cut, are passed over
    if (key && strlen(key) == 32 && class && order && strcmp(order, q->order) == 0 &&
        json_is_integer(epoch) && json_is_integer(attempt)) {
        quarantine_event e = {.key_lo = strtoull(key + 16, NULL, 16),
                              .epoch = (uint64_t)json_integer_value(epoch),
                              .attempt = (int32_t)json_integer_value(attempt)};
        while (e.fault < MR_FAULT_COUNT && strcmp(mr_fault_name(e.fault), class))
            e.fault++;
        if (e.fault < MR_FAULT_COUNT)
            st = insert(q, q->n, &e);
    }
    json_decref(o);
    return st;
}

static mr_status read_all(quarantine *q)
{
    char *text;
    size_t n;
    if (!mr_path_exists(q->path))
        return MR_OK;
    MR_TRY(mr_file_read_all(q->path, &text, &n));
    mr_status st = MR_OK;
    for (char *p = text; *p && st == MR_OK;) {
        size_t len = strcspn(p, "\n");
        st = read_line(q, p, len);
        p += len + (p[len] == '\n');
    }
    mr_free(text);
    // sorted, each event once
    if (q->n)
        qsort(q->events, q->n, sizeof *q->events, compare);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < q->n; i++)
        if (!i || compare(&q->events[i], &q->events[i - 1]))
            q->events[kept++] = q->events[i];
    q->n = kept;
    return st;
}

mr_status quarantine_open(const char *path, mr_hash128 fp_order, quarantine **out)
{
    quarantine *q;
    if (!MR_NEW(q))
        return mr_fail_memory(sizeof *q);
    q->fd = -1;
    mr_hash128_hex(fp_order, q->order);
    if (gethostname(q->host, sizeof q->host - 1))
        q->host[0] = 0;
    mr_status st = MR_OK;
    if (path)
        st = (q->path = mr_strdup(path)) ? read_all(q) : mr_fail_memory(strlen(path));
    if (st == MR_OK)
        *out = q;
    else
        quarantine_close(q);
    return st;
}

void quarantine_close(quarantine *q)
{
    if (!q)
        return;
    if (q->fd >= 0)
        mr_io_table()->close(q->fd);
    mr_free(q->events);
    mr_free(q->path);
    mr_free(q);
}

mr_status quarantine_add(quarantine *q, const quarantine_event *e, const mr_row *row,
                         const char *detail)
{
    bool added;
    MR_TRY(remember(q, e, &added));
    if (!q->path || !added)
        return MR_OK;
    char key[33];
    mr_hash128_hex(row->key, key);
    json_t *o = json_pack("{s:s, s:I, s:s, s:f, s:s, s:i, s:I, s:s}", "key", key, "row",
                          (json_int_t)row->id, "class", mr_fault_name(e->fault), "time",
                          (double)mr_clock_table()->wall_ns() * 1e-9, "host", q->host, "attempt",
                          e->attempt, "epoch", (json_int_t)e->epoch, "fp_order", q->order);
    // a path that is not UTF-8 makes no JSON text and is left out
    json_object_set_new(o, "path", json_string(row->path));
    json_object_set_new(o, "detail", json_string(detail));
    char *line = o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    if (!line)
        return mr_fail_memory(0);
    size_t n = strlen(line);
    line[n++] = '\n'; // over the final zero: the length is known
    const mr_io *io = mr_io_table();
    if (q->fd < 0)
        q->fd = io->open(q->path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    // the run goes on without the line: the event is remembered
    if (q->fd < 0 || io->write(q->fd, line, n) != (ssize_t)n)
        mr_log(MR_LOG_WARN, "%s: cannot write: %s", q->path, strerror(errno));
    free(line);
    return MR_OK;
}

mr_status quarantine_excluded(const quarantine *q, uint64_t epoch, uint64_t **keys, uint64_t *n)
{
    *keys = mr_alloc(sizeof **keys * MR_MAX(q->n, 1));
    if (!*keys)
        return mr_fail_memory(sizeof **keys * q->n);
    *n = 0;
    // events of a key lie together
    for (uint64_t i = 0, end; i < q->n; i = end) {
        int attempts = 0;
        for (end = i; end < q->n && q->events[end].key_lo == q->events[i].key_lo; end++)
            attempts += q->events[end].epoch < epoch && q->events[end].fault != MR_FAULT_IO;
        if (attempts >= 2)
            (*keys)[(*n)++] = q->events[i].key_lo;
    }
    return MR_OK;
}
