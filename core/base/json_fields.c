/* base: reads JSON objects and lists of untrusted files, one member at a time. To parse a whole
 * header, jansson would need forty times its size. Here it parses one small value at a time.
 * Licence: Apache-2.0 */
#include "base/json_fields.h"
#include "base/text.h"

#include <string.h>

enum { CONTAINER_MAX = 64 << 10 };

/* Reads an object. */
typedef struct reader {
    mr_json_part all;
    const char *at;
} reader;

static mr_status damaged(const reader *r, const char *expected)
{
    return mr_fail(MR_E_FORMAT, "%s: damaged JSON: byte %lld: expected %s", r->all.path,
                   (long long)(r->at - r->all.whole), expected);
}

static void skip_space(reader *r)
{
    while (r->at < r->all.end &&
           (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool stands(const reader *r, char c)
{
    return r->at < r->all.end && *r->at == c;
}

static mr_status expect(reader *r, char c, const char *name)
{
    skip_space(r);
    if (!stands(r, c))
        return damaged(r, name);
    r->at++;
    return MR_OK;
}

/* Skips a string without checking its contents; mr_json_parse checks them. */
static mr_status skip_text(reader *r)
{
    for (r->at++; r->at < r->all.end; r->at++) {
        if (*r->at == '\\' && r->at + 1 < r->all.end)
            r->at++;
        else if (*r->at == '"') {
            r->at++;
            return MR_OK;
        }
    }
    return damaged(r, "the end of a text");
}

/* Skips an array or object up to its closing bracket. */
static mr_status skip_container(reader *r)
{
    // the object being read is level 1
    int depth = 1;
    while (r->at < r->all.end) {
        switch (*r->at) {
        case '"': MR_TRY(skip_text(r)); continue;
        case '[':
        case '{':
            if (++depth > r->all.depth)
                return mr_fail(MR_E_FORMAT, "%s: JSON nested deeper than %d at byte %lld",
                               r->all.path, r->all.depth, (long long)(r->at - r->all.whole));
            break;
        case ']':
        case '}': depth--; break;
        }
        r->at++;
        if (depth == 1)
            return MR_OK;
    }
    return damaged(r, "a closing bracket");
}

static mr_status skip_value(reader *r)
{
    if (stands(r, '"'))
        return skip_text(r);
    if (stands(r, '{') || stands(r, '['))
        return skip_container(r);
    const char *from = r->at;
    while (r->at < r->all.end && !memchr(",]} \t\r\n", *r->at, 7))
        r->at++;
    return r->at > from ? MR_OK : damaged(r, "a value");
}

static mr_json_part part_from(const reader *r, const char *from)
{
    return (mr_json_part){r->all.path, r->all.whole, from, r->at, r->all.depth};
}

/* Reads the items between two brackets, separated by commas. */
static mr_status read_list(mr_json_part all, const char *brackets, const char *what,
                           mr_status (*read_one)(reader *r, void *list), void *list)
{
    reader r = {all, all.at};
    MR_TRY(expect(&r, brackets[0], what));
    skip_space(&r);
    bool more = !stands(&r, brackets[1]);
    while (more) {
        skip_space(&r);
        MR_TRY(read_one(&r, list));
        skip_space(&r);
        more = stands(&r, ',');
        r.at += more;
    }
    MR_TRY(expect(&r, brackets[1], brackets[1] == '}' ? "',' or '}'" : "',' or ']'"));
    skip_space(&r);
    return r.at == r.all.end ? MR_OK : damaged(&r, "nothing more");
}

typedef struct members {
    mr_json_member *each;
    void *user;
} members;

static mr_status read_member(reader *r, void *list)
{
    const members *m = list;
    const char *from = r->at;
    if (!stands(r, '"'))
        return damaged(r, "a name in quotes");
    MR_TRY(skip_text(r));
    json_t *key = NULL;
    MR_TRY(mr_json_parse(part_from(r, from), &key));
    mr_status st = expect(r, ':', "':'");
    if (st == MR_OK) {
        skip_space(r);
        from = r->at;
        st = skip_value(r);
    }
    if (st == MR_OK)
        st = m->each(m->user, json_string_value(key), part_from(r, from));
    json_decref(key);
    return st;
}

mr_status mr_json_fields(mr_json_part object, mr_json_member *each, void *user)
{
    return read_list(object, "{}", "an object", read_member, &(members){each, user});
}

typedef struct items {
    mr_json_item *each;
    void *user;
} items;

static mr_status read_item(reader *r, void *list)
{
    const items *l = list;
    const char *from = r->at;
    MR_TRY(skip_value(r));
    return l->each(l->user, part_from(r, from));
}

mr_status mr_json_items(mr_json_part array, mr_json_item *each, void *user)
{
    return read_list(array, "[]", "a list", read_item, &(items){each, user});
}

mr_status mr_json_parse(mr_json_part part, json_t **out)
{
    size_t bytes = (size_t)(part.end - part.at);
    json_error_t err;
    if (*part.at != '"' && bytes > CONTAINER_MAX)
        return mr_fail(MR_E_FORMAT, "%s: the value at byte %lld has %zu bytes; at most %d",
                       part.path, (long long)(part.at - part.whole), bytes, CONTAINER_MAX);
    *out = json_loadb(part.at, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err);
    if (*out)
        return MR_OK;
    MR_TRY(mr_json_check_memory(&err));
    return mr_fail(MR_E_FORMAT, "%s: damaged JSON: byte %lld: %s", part.path,
                   (long long)(part.at - part.whole) + err.position, err.text);
}

mr_status mr_json_check_memory(const json_error_t *err)
{
    // without memory, jansson often sets no text
    bool memory = json_error_code(err) == json_error_out_of_memory || !err->text[0];
    return memory ? mr_fail_memory(4096) : MR_OK;
}

mr_status mr_json_fail(mr_status code, const char *path, const json_error_t *err)
{
    MR_TRY(mr_json_check_memory(err));
    return mr_fail(code, "%s: line %d, column %d: %s", path, err->line, err->column, err->text);
}

json_t *mr_json_text(const char *text)
{
    json_t *whole = json_string(text);
    if (whole)
        return whole;
    // each byte that is not UTF-8 is written as \xHH
    mr_text out = {0};
    for (size_t left = strlen(text); left;) {
        uint32_t code;
        size_t n = mr_utf8(text, left, &code);
        if (n)
            mr_text_put(&out, text, n);
        else
            mr_text_add(&out, "\\x%02X", (unsigned char)*text);
        n = n ? n : 1;
        text += n, left -= n;
    }
    if (!out.failed)
        whole = json_stringn(out.data, out.used);
    mr_free(out.data);
    return whole;
}
