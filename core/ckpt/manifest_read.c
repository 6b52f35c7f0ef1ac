/* ckpt: reads MANIFEST.json, of schema 2 and of schema 1 (whole tensors, one file). It compares the
 * self hash first and then reads one member at a time, so memory use is a few times the size of the
 * text.
 * Licence: Apache-2.0 */
#include "base/text.h"
#include "base/json_fields.h"
#include "ckpt/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A manifest holds 32 bytes per MiB of a checkpoint and some 40 per slice: this is enough for
 * 500 GB in 400,000 slices. jansson itself reads nothing that is nested deeper. */
enum { TEXT_MAX = 32 << 20, DEPTH = 2048 };
enum { SELF_BYTES = sizeof MR_SELF_HEAD - 1 + 32 + sizeof MR_SELF_TAIL - 1 };

typedef struct reader {
    const char *path;
    mr_manifest *m;
    bool part;
    json_t *seen;                // members of the manifest, as a set
    mr_json_part files, tensors; // .at is NULL: not there
    mr_text facts;
} reader;

static mr_status parse_hash(const char *s, mr_hash128 *out)
{
    char hi[17] = "", lo[17] = "";
    if (strspn(s, "0123456789abcdef") < 32)
        return MR_E_CKPT;
    memcpy(hi, s, 16), memcpy(lo, s + 16, 16);
    out->hi = strtoull(hi, NULL, 16), out->lo = strtoull(lo, NULL, 16);
    return MR_OK;
}

static bool natural(const json_t *v, int64_t *out)
{
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

/* ---- files ---- */

/* An entry of the list; the block hashes stay text. */
typedef struct entry {
    reader *r;
    json_t *rest; // the small members
    mr_json_part blocks, pieces;
    mr_ckpt_cut cut;
} entry;

static mr_status take_file_member(void *user, const char *key, mr_json_part value)
{
    entry *e = user;
    json_t *v;
    if (strcmp(key, "blocks") == 0 && *value.at == '[') {
        e->blocks = value;
        return MR_OK;
    }
    MR_TRY(mr_json_parse(value, &v));
    return json_object_set_new(e->rest, key, v) ? mr_fail_memory(64) : MR_OK;
}

/* Block hashes of schema 1: a list of strings. */
typedef struct hashes {
    mr_ckpt_file *file;
    int64_t n;
} hashes;

static mr_status take_hash(void *user, mr_json_part value)
{
    hashes *h = user;
    if (value.end - value.at != 34 || h->n == mr_ckpt_blocks(h->file->bytes) ||
        parse_hash(value.at + 1, &h->file->blocks[h->n++]) != MR_OK)
        return mr_fail(MR_E_CKPT, "%s: files: '%s': the hash of block %lld is missing or malformed",
                       value.path, h->file->name, (long long)h->n);
    return MR_OK;
}

/* In schema 2 the block hashes are one string; the hash of the string is the hash of the file. */
static mr_status read_hashes(entry *e, mr_ckpt_file *f)
{
    hashes h = {.file = f};
    const json_t *text = json_object_get(e->rest, "blocks");
    const char *s = json_string_value(text), *want;
    if (e->r->m->schema == 1 && e->blocks.at) {
        MR_TRY(mr_json_items(e->blocks, take_hash, &h));
        s = NULL;
    }
    for (size_t n = s ? json_string_length(text) : 0; n >= 32 && h.n < mr_ckpt_blocks(f->bytes);
         n -= 32, s += 32, h.n++)
        if (parse_hash(s, &f->blocks[h.n]) != MR_OK)
            break;
    if (h.n != mr_ckpt_blocks(f->bytes) || (s && *s))
        return mr_fail(MR_E_CKPT, "%s: files: '%s': the hash of block %lld is missing or malformed",
                       e->r->path, f->name, (long long)h.n);
    if (e->r->m->schema == 1)
        return MR_OK;
    char *joined, hex[33];
    mr_hash128 whole = mr_ckpt_file_hash(f, &joined);
    if (!joined)
        return mr_fail_memory((size_t)h.n * 32);
    mr_free(joined);
    mr_hash128_hex(whole, hex);
    want = json_string_value(json_object_get(e->rest, "xxh3_128"));
    if (!want || strcmp(want, hex))
        return mr_fail(MR_E_CKPT,
                       "%s: files: '%s': its hash does not match the hashes of its blocks",
                       e->r->path, f->name);
    return MR_OK;
}

static mr_status read_file(entry *e)
{
    const json_t *v = e->rest;
    const char *name = json_string_value(json_object_get(v, "name"));
    int64_t bytes, block;
    reader *r = e->r;
    if (!name || !*name || *name == '.' || strchr(name, '/') ||
        !natural(json_object_get(v, "bytes"), &bytes) ||
        !natural(json_object_get(v, "block_bytes"), &block) || block != MR_CKPT_BLOCK)
        return mr_fail(MR_E_CKPT, "%s: files[%d] is not a file entry", r->path, r->m->n_files);
    // allocate no more hashes than the text can contain
    size_t text = e->blocks.at ? (size_t)(e->blocks.end - e->blocks.at)
                               : json_string_length(json_object_get(v, "blocks"));
    if (bytes > INT64_MAX - MR_CKPT_BLOCK || mr_ckpt_blocks(bytes) > (int64_t)(text / 32))
        return mr_fail(MR_E_CKPT,
                       "%s: files: '%s': its %lld bytes need more block hashes than are listed",
                       r->path, name, (long long)bytes);
    mr_ckpt_file *f = mr_manifest_add_file(r->m, name, bytes);
    return f ? read_hashes(e, f) : mr_fail_memory(4096);
}

static mr_status take_entry(reader *r, mr_json_part value, mr_json_member *member,
                            mr_status (*read)(entry *))
{
    entry e = {.r = r, .rest = json_object()};
    mr_status st = e.rest ? mr_json_fields(value, member, &e) : mr_fail_memory(64);
    if (st == MR_OK)
        st = read(&e);
    json_decref(e.rest);
    return st;
}

static mr_status take_file(void *user, mr_json_part value)
{
    return take_entry(user, value, take_file_member, read_file);
}

/* ---- tensors ---- */

static mr_status take_tensor_member(void *user, const char *key, mr_json_part value)
{
    entry *e = user;
    json_t *v;
    bool boxes = strcmp(key, "boxes") == 0;
    if (boxes || strcmp(key, "ranges") == 0) {
        if (e->pieces.at)
            return mr_fail(MR_E_CKPT, "%s: tensors[%d] has two lists of pieces", value.path,
                           e->r->m->n_tensors);
        e->pieces = value, e->cut = boxes ? MR_CKPT_BOX : MR_CKPT_RANGE;
        return MR_OK;
    }
    MR_TRY(mr_json_parse(value, &v));
    return json_object_set_new(e->rest, key, v) ? mr_fail_memory(64) : MR_OK;
}

static mr_status check_place(const reader *r, const mr_st_tensor *t, int64_t bytes, int64_t offset,
                             int64_t file)
{
    if (file >= r->m->n_files)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s' refers to file %lld; expected less than %d",
                       r->path, t->name, (long long)file, r->m->n_files);
    const mr_ckpt_file *f = &r->m->files[file];
    if (bytes > f->bytes || offset > f->bytes - bytes)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s' ends beyond its file %s", r->path, t->name,
                       f->name);
    return MR_OK;
}

static mr_status add_piece(reader *r, int64_t file, int64_t offset, const int64_t *bounds, int n)
{
    mr_manifest *m = r->m;
    mr_manifest_tensor *t = &m->tensors[m->n_tensors - 1];
    mr_piece *p = mr_manifest_add_piece(m, n);
    if (!p)
        return mr_fail_memory(4096);
    memcpy((int64_t *)p->bounds, bounds, sizeof bounds[0] * (size_t)n);
    p->file = (int)file, p->offset = offset;
    mr_ckpt_slice slice = mr_piece_slice(t, p);
    mr_span span;
    if (mr_span_of(&t->is, &slice, &span) != MR_OK)
        return mr_fail(MR_E_CKPT, "%s: %s", r->path, mr_error_last()->text);
    MR_TRY(check_place(r, &t->is, mr_span_bytes(&span), offset, file));
    if (t->n == 1)
        t->is.file = p->file, t->is.offset = offset;
    return MR_OK;
}

/* [file, offset, from, to, ...] */
static mr_status take_piece(void *user, mr_json_part value)
{
    reader *r = user;
    const mr_manifest_tensor *t = &r->m->tensors[r->m->n_tensors - 1];
    int64_t x[2 + 2 * MR_ST_RANK_MAX] = {0};
    int n = t->cut == MR_CKPT_BOX ? 2 * t->is.rank : 2, i = 0;
    json_t *v;
    MR_TRY(mr_json_parse(value, &v));
    bool good = (int)json_array_size(v) == 2 + n;
    for (; i < 2 + n && good; i++)
        good = natural(json_array_get(v, (size_t)i), &x[i]);
    json_decref(v);
    if (!good)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s': a piece is not [file, offset, from, to, ...]",
                       r->path, t->is.name);
    return add_piece(r, x[0], x[1], x + 2, n);
}

/* Schema 1: one box, which covers the whole tensor. */
static mr_status take_whole(entry *e, const mr_st_tensor *t)
{
    const json_t *box = json_object_get(e->rest, "box");
    int64_t file = 0, offset = 0, from = 0, to = 0;
    bool good = (int)json_array_size(box) == t->rank &&
                natural(json_object_get(e->rest, "file"), &file) &&
                natural(json_object_get(e->rest, "offset"), &offset);
    for (int d = 0; d < t->rank && good; d++) {
        const json_t *range = json_array_get(box, (size_t)d);
        good = natural(json_array_get(range, 0), &from) && from == 0 &&
               natural(json_array_get(range, 1), &to) && to == t->shape[d];
    }
    if (!good)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s': its box does not cover the whole tensor",
                       e->r->path, t->name);
    int64_t all = t->bytes / (int64_t)mr_st_dtype_bytes(t->dtype);
    return add_piece(e->r, file, offset, (int64_t[]){0, all}, 2);
}

static mr_status read_tensor(entry *e)
{
    reader *r = e->r;
    const json_t *v = e->rest, *shape = json_object_get(v, "shape");
    const char *name = json_string_value(json_object_get(v, "name")),
               *dtype = json_string_value(json_object_get(v, "dtype"));
    bool v1 = r->m->schema == 1;
    mr_st_tensor t = {.name = name, .rank = (int)json_array_size(shape)};
    t.dtype = dtype ? mr_st_dtype_from_name(dtype) : MR_ST_DTYPE_COUNT;
    bool good = name && *name && t.dtype != MR_ST_DTYPE_COUNT && json_is_array(shape) &&
                t.rank <= MR_ST_RANK_MAX && v1 == !e->pieces.at;
    for (int d = 0; d < t.rank && good; d++)
        good = natural(json_array_get(shape, (size_t)d), &t.shape[d]);
    if (!good)
        return mr_fail(MR_E_CKPT, "%s: tensors[%d] is not a tensor entry", r->path,
                       r->m->n_tensors);
    if (mr_st_shape_bytes(t.dtype, t.rank, t.shape, &t.bytes) != MR_OK)
        return mr_fail(MR_E_CKPT,
                       "%s: tensor '%s': its shape has too many elements; expected less than 2^63",
                       r->path, name);
    if (!mr_manifest_add_tensor(r->m, &t, v1 ? MR_CKPT_RANGE : e->cut))
        return mr_fail_memory(4096);
    return v1 ? take_whole(e, &t) : mr_json_items(e->pieces, take_piece, r);
}

static mr_status take_tensor(void *user, mr_json_part value)
{
    return take_entry(user, value, take_tensor_member, read_tensor);
}

/* ---- the whole ---- */

static mr_status add_fact(reader *r, const char *key, mr_json_part value)
{
    char name[1024];
    json_t *text = json_string(key);
    size_t length = text ? json_dumpb(text, name, sizeof name, JSON_ENCODE_ANY) : 0;
    json_decref(text);
    if (!length)
        return mr_fail_memory(64);
    if (length > sizeof name)
        return mr_fail(MR_E_CKPT, "%s: a name of %zu bytes; expected at most %zu", r->path, length,
                       sizeof name);
    mr_text_add(&r->facts, "%s\n %.*s: %.*s", r->facts.used ? "," : "{", (int)length, name,
                (int)(value.end - value.at), value.at);
    return MR_OK;
}

static mr_status read_fact(reader *r, const char *key, mr_json_part value)
{
    mr_manifest *m = r->m;
    const struct {
        const char *name;
        int64_t *at;
    } numbers[] = {{"schema", &m->schema}, {"step", &m->step},       {"fence", &m->fence},
                   {"save", &m->save},     {"attempt", &m->attempt}, {"rank", &m->rank}};
    json_t *v;
    bool good = true;
    for (size_t i = 0; i < MR_COUNT(numbers); i++)
        if (strcmp(key, numbers[i].name) == 0) {
            MR_TRY(mr_json_parse(value, &v));
            good = natural(v, numbers[i].at);
            json_decref(v);
        }
    if (strcmp(key, "run") == 0) {
        MR_TRY(mr_json_parse(value, &v));
        good = json_is_string(v) && json_string_length(v) < sizeof m->run;
        if (good)
            snprintf(m->run, sizeof m->run, "%s", json_string_value(v));
        json_decref(v);
    }
    if (strcmp(key, "world") == 0) {
        MR_TRY(mr_json_parse(value, &v));
        good = natural(json_object_get(v, "ranks"), &m->ranks);
        json_decref(v);
    }
    return good ? MR_OK
                : mr_fail(MR_E_CKPT, "%s: '%s' has the wrong type or an invalid value", r->path,
                          key);
}

static mr_status take_member(void *user, const char *key, mr_json_part value)
{
    reader *r = user;
    bool files = strcmp(key, "files") == 0, tensors = strcmp(key, "tensors") == 0;
    if (json_object_get(r->seen, key))
        return mr_fail(MR_E_CKPT, "%s: %.80s occurs twice", r->path, key);
    if (json_object_set_new(r->seen, key, json_true()))
        return mr_fail_memory(64);
    if (files)
        r->files = value;
    else if (tensors)
        r->tensors = value;
    else if (strcmp(key, "self")) {
        MR_TRY(read_fact(r, key, value));
        return add_fact(r, key, value);
    }
    return MR_OK;
}

static mr_status read_all(reader *r, const char *text, size_t n)
{
    mr_manifest *m = r->m;
    m->schema = m->step = m->fence = m->rank = m->ranks = -1;
    MR_TRY(mr_json_fields((mr_json_part){r->path, text, text, text + n, DEPTH}, take_member, r));
    if (m->schema < 0)
        return mr_fail(MR_E_CKPT, "%s: no schema version; expected 1 to %d", r->path,
                       MR_CKPT_SCHEMA);
    if (m->schema < 1 || m->schema > MR_CKPT_SCHEMA)
        return mr_fail(MR_E_UNSUPPORTED,
                       "%s: schema version %lld; this moonreel reads versions 1 to %d", r->path,
                       (long long)m->schema, MR_CKPT_SCHEMA);
    if (!*m->run || m->step < 0 || m->fence < 0 || m->ranks < 0)
        return mr_fail(MR_E_CKPT, "%s: run, step, fence or world is missing", r->path);
    if (r->part != (m->rank >= 0))
        return mr_fail(MR_E_CKPT, "%s: expected %s", r->path,
                       r->part ? "the part of one rank" : "no part of one rank");
    if (!r->files.at || !r->tensors.at)
        return mr_fail(MR_E_CKPT, "%s: files or tensors are missing", r->path);
    MR_TRY(mr_json_items(r->files, take_file, r));
    if (m->n_files != (r->part ? 1 : (int)m->ranks))
        return mr_fail(MR_E_CKPT, "%s: %d files for %lld ranks; expected one for each", r->path,
                       m->n_files, (long long)m->ranks);
    MR_TRY(mr_json_items(r->tensors, take_tensor, r));
    return r->part ? MR_OK : mr_manifest_check(r->path, m);
}

static mr_status check_self(const char *path, const char *text, size_t n)
{
    char want[33];
    const char *end = text + n;
    if (n < SELF_BYTES || memcmp(end - SELF_BYTES, MR_SELF_HEAD, sizeof MR_SELF_HEAD - 1) ||
        memcmp(end - 4, MR_SELF_TAIL, 4))
        return mr_fail(MR_E_FORMAT, "%s: no self hash at its end: cut or edited", path);
    mr_hash128_hex(mr_hash128_of(text, n - SELF_BYTES), want);
    if (memcmp(end - 4 - 32, want, 32))
        return mr_fail(MR_E_FORMAT, "%s: its self hash differs: damaged or edited", path);
    return MR_OK;
}

mr_status mr_manifest_read(const char *path, bool part, mr_manifest *m)
{
    char *text;
    size_t n;
    mr_manifest_init(m);
    MR_TRY(mr_file_read_small(path, TEXT_MAX, &text, &n));
    reader r = {.path = path, .m = m, .part = part};
    mr_status st = check_self(path, text, n);
    if (st == MR_OK) {
        r.seen = json_object();
        st = r.seen ? read_all(&r, text, n) : mr_fail_memory(64);
        // the self hash matches, so the file is not damaged: another program wrote it
        if (st == MR_E_FORMAT)
            st = mr_fail(MR_E_CKPT, "%s", mr_error_last()->text);
    }
    json_decref(r.seen);
    mr_free(text);
    mr_text_add(&r.facts, "\n}");
    mr_status facts = mr_text_end(&r.facts, &m->facts);
    return st != MR_OK ? st : facts;
}
