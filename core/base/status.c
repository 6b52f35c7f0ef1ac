/* base: status codes and the per-thread error record. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int exit;
} rows[] = {
#define MR_STATUS(name, text, exit) {"MR_" #name, exit},
#include "moonreel/status.def"
#undef MR_STATUS
};

const char *mr_status_name(mr_status code)
{
    return code < MR_STATUS_COUNT ? rows[code].name : "MR_?";
}
int mr_status_exit(mr_status code)
{
    return code < MR_STATUS_COUNT ? rows[code].exit : 1;
}

mr_status mr_status_from_name(const char *name)
{
    for (int i = 0; i < MR_STATUS_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (mr_status)i;
    return MR_STATUS_COUNT;
}

/* Each thread keeps its records in a small ring, so a failure needs no allocation. If a chain is
 * longer than the ring, its deepest causes are lost. */
#define DEPTH 8
static _Thread_local mr_error ring[DEPTH];
static _Thread_local int newest = -1, depth = 0;

static mr_error *push(mr_status code, const char *file, int line, bool chain)
{
    mr_error *below = chain && newest >= 0 ? &ring[newest] : NULL;
    depth = below ? MR_MIN(depth + 1, DEPTH) : 1;
    newest = (newest + 1) % DEPTH;
    mr_error *e = &ring[newest];
    *e = (mr_error){.code = code, .file = file, .line = line, .cause = below};
    // cut the chain where it reaches the record that was just overwritten
    int i = 1;
    for (mr_error *p = e; p; p = p->cause, i++)
        if (i >= depth) {
            p->cause = NULL;
            break;
        }
    return e;
}

/* A text may contain names and captions from files. Their control characters must not reach a
 * terminal. */
static void set_text(mr_error *e, const char *text)
{
    size_t n = 0;
    for (; text[n]; n++)
        e->text[n] =
            ((unsigned char)text[n] < 32 && text[n] != '\n') || text[n] == 127 ? '?' : text[n];
    e->text[n] = 0;
}

mr_status mr_fail_at(mr_status code, const char *file, int line, const char *fmt, ...)
{
    char text[sizeof ring[0].text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap); // before push: arguments may point into the old record
    va_end(ap);
    set_text(push(code, file, line, false), text);
    return code;
}

mr_status mr_fail_note_at(const char *file, int line, const char *fmt, ...)
{
    char text[sizeof ring[0].text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr_status code = newest >= 0 ? ring[newest].code : MR_E_INTERNAL;
    set_text(push(code, file, line, true), text);
    return code;
}

mr_status mr_fail_try(mr_status code, const char *hint)
{
    if (newest < 0 ||
        (code != MR_E_FORMAT && code != MR_E_DATA && code != MR_E_CKPT && code != MR_E_DECODE))
        return code;
    mr_error *last = &ring[newest];
    while (!strstr(last->text, "try: ") && last->cause)
        last = last->cause;
    size_t n = strlen(last->text);
    if (!strstr(last->text, "try: "))
        snprintf(last->text + n, sizeof last->text - n, "; try: %s", hint);
    return code;
}

void mr_fail_where(const char *op, const char *node, const char *origin)
{
    if (newest < 0)
        return;
    mr_error *e = &ring[newest];
    if (op && !e->op[0])
        snprintf(e->op, sizeof e->op, "%s", op);
    if (node && !e->node[0])
        snprintf(e->node, sizeof e->node, "%s", node);
    if (origin && !e->origin[0])
        snprintf(e->origin, sizeof e->origin, "%s", origin);
}

const mr_error *mr_error_last(void)
{
    return newest >= 0 ? &ring[newest] : NULL;
}
void mr_error_clear(void)
{
    newest = -1, depth = 0;
}

size_t mr_error_format(const mr_error *err, char *buf, size_t cap)
{
    size_t n = 0;
#define PUT(...) n += (size_t)snprintf(n < cap ? buf + n : NULL, n < cap ? cap - n : 0, __VA_ARGS__)
    if (cap)
        buf[0] = 0;
    int indent = 0;
    for (; err; err = err->cause, indent += 2) {
        if (indent)
            PUT("\n%*s", indent, "");
        if (err->origin[0])
            PUT("%s: ", err->origin);
        if (err->op[0])
            PUT("%s%s", err->op, err->node[0] ? " " : ": ");
        if (err->node[0])
            PUT("'%s': ", err->node);
        PUT("%s", err->text);
    }
#undef PUT
    return n;
}

mr_error *mr_error_copy(const mr_error *err)
{
    if (!err)
        return NULL;
    mr_error *copy = mr_alloc(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *err;
    copy->cause = mr_error_copy(err->cause);
    return copy;
}

void mr_error_free(mr_error *err)
{
    while (err) {
        mr_error *below = err->cause;
        mr_free(err);
        err = below;
    }
}

mr_status mr_error_adopt(const mr_error *err)
{
    if (!err)
        return mr_fail(MR_E_MEMORY, "an error happened on another thread and its record was lost");
    // causes first, so that the newest record becomes the last
    if (err->cause)
        mr_error_adopt(err->cause);
    mr_error *e = push(err->code, err->file, err->line, err->cause != NULL);
    mr_error *below = e->cause;
    *e = *err;
    e->cause = below;
    return err->code;
}
