/* data: quarantine.jsonl. Ref: dataplane 5. Events differ by key, epoch and attempt: a run
 * that repeats a part of an epoch after a restart adds nothing new. Licence: Apache-2.0 */
#include "base/json_fields.h"
#include "data/room.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// keys from a checkpoint, ascending
typedef struct key_list {
    uint64_t *keys, n;
} key_list;

enum { LIST_MAX = 1 << 30 };

struct quarantine {
    quarantine_event *events;
    uint64_t n, cap;
    // from the checkpoint: samples excluded from its epoch, and further ones from the next epoch on
    key_list in_force, coming;
    uint64_t taken_epoch;
    bool taken;
    int fd;
    bool torn; // the file ends within a line
    char *path, *source, order[33], host[64];
};

// events are ordered by key, then epoch, then attempt
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

// *added is false if the event is known
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
    const char *source = json_string_value(json_object_get(o, "source"));
    json_t *epoch = json_object_get(o, "epoch"), *attempt = json_object_get(o, "attempt");
    mr_status st = MR_OK;
    // skip lines of other lists, and a line torn by a power cut
    if (key && strlen(key) == 32 && class && order && strcmp(order, q->order) == 0 &&
        strcmp(source ? source : "", q->source) == 0 && json_is_integer(epoch) &&
        json_is_integer(attempt)) {
        quarantine_event e = {.key_lo = strtoull(key + 16, NULL, 16),
                              .epoch = (uint64_t)json_integer_value(epoch),
                              .attempt = (int32_t)json_integer_value(attempt),
                              .sent = true};
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
    MR_TRY(mr_file_read_small(q->path, LIST_MAX, &text, &n));
    mr_status st = MR_OK;
    for (char *p = text; *p && st == MR_OK;) {
        size_t len = strcspn(p, "\n");
        st = read_line(q, p, len);
        p += len + (p[len] == '\n');
    }
    q->torn = n && text[n - 1] != '\n';
    mr_free(text);
    // sort the list and remove duplicate events
    if (q->n)
        qsort(q->events, q->n, sizeof *q->events, compare);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < q->n; i++)
        if (!i || compare(&q->events[i], &q->events[i - 1]))
            q->events[kept++] = q->events[i];
    q->n = kept;
    return st;
}

mr_status quarantine_open(const char *path, mr_hash128 fp_order, const char *source,
                          quarantine **out)
{
    quarantine *q;
    if (!MR_NEW(q))
        return mr_fail_memory(sizeof *q);
    q->fd = -1;
    mr_hash128_hex(fp_order, q->order);
    if (gethostname(q->host, sizeof q->host - 1))
        q->host[0] = 0;
    mr_status st = (q->source = mr_strdup(source)) ? MR_OK : mr_fail_memory(0);
    if (path && st == MR_OK)
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
    mr_free(q->in_force.keys);
    mr_free(q->coming.keys);
    mr_free(q->path);
    mr_free(q->source);
    mr_free(q);
}

// Write a line in one call; after a torn line, start a new one.
static mr_status append(quarantine *q, const char *line)
{
    size_t n = strlen(line), from = !q->torn;
    char *whole = mr_alloc(n + 3);
    if (!whole)
        return mr_fail_memory(n);
    snprintf(whole, n + 3, "\n%s\n", line);
    const mr_io *io = mr_io_table();
    if (q->fd < 0)
        q->fd = io->open(q->path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    ssize_t bytes = (ssize_t)(n + 2 - from),
            put = q->fd < 0 ? -1 : io->write(q->fd, whole + from, (size_t)bytes);
    // continue without the line: the event is in memory, and checkpoints contain it
    if (put != bytes)
        mr_log(MR_LOG_WARN, "%s: cannot write: %s", q->path, strerror(put < 0 ? errno : ENOSPC));
    if (put >= 0)
        q->torn = put < bytes;
    mr_free(whole);
    return MR_OK;
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
    json_object_set_new(o, "path", mr_json_text(row->path));
    if (*q->source)
        json_object_set_new(o, "source", json_string(q->source));
    json_object_set_new(o, "detail", mr_json_text(detail));
    char *line = o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    if (!line)
        return mr_fail_memory(0);
    mr_status st = append(q, line);
    free(line);
    return st;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

mr_status quarantine_excluded(const quarantine *q, uint64_t epoch, uint64_t **keys, uint64_t *n)
{
    uint64_t most = q->in_force.n + q->coming.n + q->n;
    bool later = !q->taken || epoch > q->taken_epoch;
    *keys = mr_alloc(sizeof **keys * MR_MAX(most, 1));
    if (!*keys)
        return mr_fail_memory(sizeof **keys * most);
    if (q->in_force.n)
        memcpy(*keys, q->in_force.keys, sizeof **keys * q->in_force.n);
    *n = q->in_force.n;
    if (!later)
        return MR_OK;
    if (q->coming.n)
        memcpy(*keys + *n, q->coming.keys, sizeof **keys * q->coming.n);
    *n += q->coming.n;
    // events of a key are adjacent
    for (uint64_t i = 0, end; i < q->n; i = end) {
        int attempts = 0;
        for (end = i; end < q->n && q->events[end].key_lo == q->events[i].key_lo; end++)
            attempts += q->events[end].epoch < epoch && q->events[end].fault != MR_FAULT_IO;
        if (attempts >= 2)
            (*keys)[(*n)++] = q->events[i].key_lo;
    }
    qsort(*keys, *n, sizeof **keys, compare_keys);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < *n; i++)
        if (!i || (*keys)[i] != (*keys)[i - 1])
            (*keys)[kept++] = (*keys)[i];
    *n = kept;
    return MR_OK;
}

/* Between ranks: a line "key epoch attempt class" for each event. */

mr_status quarantine_tell(quarantine *q, char **text)
{
    enum { LINE_MAX_BYTES = 96 };
    uint64_t n = 0;
    for (uint64_t i = 0; i < q->n; i++)
        n += !q->events[i].sent;
    char *out = *text = mr_calloc(n + 1, LINE_MAX_BYTES);
    if (!out)
        return mr_fail_memory(n * LINE_MAX_BYTES);
    for (uint64_t i = 0; i < q->n; i++) {
        quarantine_event *e = &q->events[i];
        if (!e->sent)
            out +=
                snprintf(out, LINE_MAX_BYTES, "%016llx %llu %d %s\n", (unsigned long long)e->key_lo,
                         (unsigned long long)e->epoch, e->attempt, mr_fault_name(e->fault));
        e->sent = true;
    }
    return MR_OK;
}

mr_status quarantine_hear(quarantine *q, const char *text)
{
    for (const char *p = text; *p;) {
        unsigned long long key, epoch;
        int attempt, n = 0;
        char class[32];
        bool added;
        quarantine_event e = {.sent = true};
        if (sscanf(p, "%16llx %llu %d %31s%n", &key, &epoch, &attempt, class, &n) == 4)
            while (e.fault < MR_FAULT_COUNT && strcmp(mr_fault_name(e.fault), class) != 0)
                e.fault++;
        if (!n || p[n] != '\n' || e.fault == MR_FAULT_COUNT)
            return mr_fail(MR_E_FORMAT, "failures of another rank: '%.60s' is no line of them", p);
        e.key_lo = key, e.epoch = epoch, e.attempt = attempt;
        MR_TRY(remember(q, &e, &added));
        p += n + 1;
    }
    return MR_OK;
}

/* The text: keys of 16 hexadecimal digits, ascending, separated by spaces; "+" precedes those
 * excluded from the next epoch on. */

mr_status quarantine_text(const quarantine *q, uint64_t epoch, char **text)
{
    uint64_t *now, *all = NULL, n_now, n_all = 0;
    enum { KEY_BYTES = 18 };
    MR_TRY(quarantine_excluded(q, epoch, &now, &n_now));
    // failures of the next epoch, in batches decoded ahead, will occur again
    mr_status st = quarantine_excluded(q, epoch + 1, &all, &n_all);
    char *out = *text = st == MR_OK ? mr_calloc(n_all + 1, KEY_BYTES) : NULL;
    if (st == MR_OK && !out)
        st = mr_fail_memory(n_all * KEY_BYTES);
    // both lists are ascending, and the excluded ones are a subset of all
    for (uint64_t i = 0, at = 0; out && i < n_all; i++) {
        bool in_force = at < n_now && now[at] == all[i];
        at += in_force;
        out += snprintf(out, KEY_BYTES + 1, "%s%s%016llx", i ? " " : "", in_force ? "" : "+",
                        (unsigned long long)all[i]);
    }
    mr_free(now);
    mr_free(all);
    return st;
}

mr_status quarantine_take(quarantine *q, uint64_t epoch, const char *text)
{
    size_t most = strlen(text) / 16;
    q->in_force.keys = mr_alloc(sizeof *q->in_force.keys * (most + 1));
    q->coming.keys = mr_alloc(sizeof *q->coming.keys * (most + 1));
    if (!q->in_force.keys || !q->coming.keys)
        return mr_fail_memory(most * sizeof *q->in_force.keys);
    // further lines belong to other sources
    for (const char *p = text; *p && *p != '\n';) {
        key_list *to = *p == '+' ? &q->coming : &q->in_force;
        p += *p == '+';
        size_t digits = strspn(p, "0123456789abcdef");
        uint64_t key = strtoull(p, NULL, 16);
        p += digits;
        if (digits != 16 || (*p && !strchr(" \n", *p)) || (to->n && key <= to->keys[to->n - 1]))
            return mr_fail(MR_E_FORMAT,
                           "the list of samples left out is damaged at byte %td; try: "
                           "an older checkpoint, or --start-from-scratch",
                           p - text);
        to->keys[to->n++] = key;
        p += *p == ' ';
    }
    q->taken_epoch = epoch, q->taken = true;
    return MR_OK;
}

mr_status mr_quarantine_excluded(const char *path, mr_hash128 fp_order, const char *source,
                                 uint64_t epoch, uint64_t **keys, uint64_t *n)
{
    quarantine *q;
    MR_TRY(quarantine_open(path, fp_order, source, &q));
    mr_status st = quarantine_excluded(q, epoch, keys, n);
    quarantine_close(q);
    return st;
}

mr_status mr_quarantine_keys(const char *text, uint64_t **keys, uint64_t *n)
{
    quarantine *q;
    MR_TRY(quarantine_open(NULL, (mr_hash128){0}, "", &q));
    mr_status st = quarantine_take(q, 0, text);
    if (st == MR_OK)
        st = quarantine_excluded(q, 0, keys, n);
    quarantine_close(q);
    return st;
}
