/* ckpt: MANIFEST.json: what a checkpoint holds and the hashes that prove it (reference: reliability
 * 3.1). The last member, "self", is the hash of all bytes before it. Licence: Apache-2.0 */
#include "ckpt/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char self_head[] = ",\n \"self\": \"", self_tail[] = "\"\n}\n";
enum { SELF_BYTES = sizeof self_head - 1 + 32 + sizeof self_tail - 1 };

/* ---- build ---- */

mr_status mr_manifest_check_meta(const json_t *meta)
{
    static const struct {
        const char *name;
        json_type type;
        const char *kind;
    } needed[] = {{"recipe_hash", JSON_STRING, "text"},
                  {"dataset_fingerprint", JSON_STRING, "text"},
                  {"sampler", JSON_STRING, "text"},
                  {"seed", JSON_INTEGER, "an integer"},
                  {"machine", JSON_OBJECT, "an object (isa, threads, libraries)"}};
    static const char *const ours[] = {"schema",  "kind",  "run",   "fence",   "step",
                                       "written", "world", "files", "tensors", "self"};
    if (!json_is_object(meta))
        return mr_fail(MR_E_USAGE, "checkpoint meta: expected an object");
    for (size_t i = 0; i < MR_COUNT(needed); i++) {
        json_t *v = json_object_get(meta, needed[i].name);
        if (!v || json_typeof(v) != needed[i].type)
            return mr_fail(MR_E_USAGE, "checkpoint meta: %s: expected %s, got %s", needed[i].name,
                           needed[i].kind, v ? "another kind" : "nothing");
    }
    for (size_t i = 0; i < MR_COUNT(ours); i++)
        if (json_object_get(meta, ours[i]))
            return mr_fail(MR_E_USAGE, "checkpoint meta: %s is written by the saver itself",
                           ours[i]);
    return MR_OK;
}

static json_t *hex(mr_hash128 h)
{
    char text[33];
    mr_hash128_hex(h, text);
    return json_string(text);
}

static json_t *file_entry(const mr_ckpt_file *f)
{
    json_t *blocks = json_array();
    for (int64_t i = 0; blocks && i < mr_ckpt_blocks(f->bytes); i++)
        if (json_array_append_new(blocks, hex(f->blocks[i]))) {
            json_decref(blocks);
            blocks = NULL;
        }
    return blocks ? json_pack("{s:s, s:I, s:o, s:i, s:o}", "name", f->name, "bytes",
                              (json_int_t)f->bytes, "xxh3_128", hex(f->whole), "block_bytes",
                              MR_CKPT_BLOCK, "blocks", blocks)
                  : NULL;
}

static json_t *slice_entry(const mr_ckpt_item *item, int64_t offset)
{
    json_t *shape = json_array(), *box = json_array();
    bool bad = !shape || !box;
    for (int i = 0; i < item->rank && !bad; i++)
        bad = json_array_append_new(shape, json_integer(item->shape[i])) ||
              json_array_append_new(box, json_pack("[i, I]", 0, (json_int_t)item->shape[i]));
    if (bad) {
        json_decref(shape);
        json_decref(box);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:o, s:i, s:I}", "name", item->name, "dtype",
                     mr_st_dtype_name(item->dtype), "shape", shape, "box", box, "file", 0, "offset",
                     (json_int_t)offset);
}

typedef struct growing {
    char *text;
    size_t used, cap;
} growing;

static int print_to(const char *data, size_t n, void *user)
{
    growing *out = user;
    if (out->used + n > out->cap) {
        size_t cap = MR_MAX(out->cap * 2, out->used + n + 4096);
        char *more = mr_realloc(out->text, cap);
        if (!more)
            return -1;
        out->text = more, out->cap = cap;
    }
    memcpy(out->text + out->used, data, n);
    out->used += n;
    return 0;
}

mr_status mr_manifest_build(const char *run, int64_t fence, int64_t step, json_t *meta,
                            const mr_ckpt_file *file, const mr_ckpt_item *items,
                            const int64_t *offsets, int n, char **text, size_t *bytes)
{
    char when[40];
    time_t now = (time_t)(mr_clock_table()->wall_ns() / 1000000000);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:s, s:{s:i, s:s}}", "schema", MR_CKPT_SCHEMA, "kind",
                  "moonreel checkpoint", "run", run, "fence", (json_int_t)fence, "step",
                  (json_int_t)step, "written", when, "world", "ranks", 1, "layout", "whole");
    json_t *tensors = json_array();
    bool bad = !root || json_object_update(root, meta);
    bad = bad || json_object_set_new(root, "files", json_pack("[o]", file_entry(file)));
    for (int i = 0; i < n && !bad; i++)
        bad = json_array_append_new(tensors, slice_entry(&items[i], offsets[i])) != 0;
    if (bad)
        json_decref(tensors);
    else
        bad = json_object_set_new(root, "tensors", tensors) != 0;

    growing out = {0};
    bad = bad || json_dump_callback(root, print_to, &out, JSON_INDENT(1));
    json_decref(root);
    // the closing "\n}" gives way to the self hash
    char self[33];
    if (!bad) {
        out.used -= 2;
        mr_hash128_hex(mr_hash128_of(out.text, out.used), self);
        bad = print_to(self_head, sizeof self_head - 1, &out) || print_to(self, 32, &out) ||
              print_to(self_tail, sizeof self_tail, &out);
    }
    if (bad) {
        mr_free(out.text);
        return mr_fail_memory(out.cap + 4096);
    }
    *text = out.text, *bytes = out.used - 1;
    return MR_OK;
}

mr_status mr_json_check_memory(const json_error_t *err)
{
    // where jansson runs out of memory it often leaves no text at all
    bool memory = json_error_code(err) == json_error_out_of_memory || !err->text[0];
    return memory ? mr_fail_memory(4096) : MR_OK;
}

mr_status mr_json_fail(mr_status code, const char *path, const json_error_t *err)
{
    MR_TRY(mr_json_check_memory(err));
    return mr_fail(code, "%s: line %d, column %d: %s", path, err->line, err->column, err->text);
}

/* ---- read ---- */

static bool parse_hash(const json_t *v, mr_hash128 *out)
{
    const char *s = json_string_value(v);
    if (!s || json_string_length(v) != 32 || strspn(s, "0123456789abcdef") != 32)
        return false;
    char hi[17] = "";
    memcpy(hi, s, 16);
    out->hi = strtoull(hi, NULL, 16), out->lo = strtoull(s + 16, NULL, 16);
    return true;
}

static bool natural(const json_t *v, int64_t *out)
{
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

static mr_status parse_files(const char *path, const json_t *list, mr_manifest *m)
{
    m->n_files = (int)json_array_size(list);
    if (!json_is_array(list) || m->n_files < 1)
        return mr_fail(MR_E_CKPT, "%s: files: expected a list", path);
    m->files = mr_arena_alloc(&m->arena, sizeof *m->files * (size_t)m->n_files);
    if (!m->files)
        return mr_fail_memory(sizeof *m->files * (size_t)m->n_files);
    for (int i = 0; i < m->n_files; i++) {
        const json_t *v = json_array_get(list, (size_t)i), *blocks = json_object_get(v, "blocks");
        const char *name = json_string_value(json_object_get(v, "name"));
        mr_ckpt_file *f = &m->files[i];
        int64_t block;
        if (!name || !*name || *name == '.' || strchr(name, '/') ||
            !natural(json_object_get(v, "bytes"), &f->bytes) ||
            !natural(json_object_get(v, "block_bytes"), &block) || block != MR_CKPT_BLOCK ||
            !parse_hash(json_object_get(v, "xxh3_128"), &f->whole) ||
            (int64_t)json_array_size(blocks) != mr_ckpt_blocks(f->bytes))
            return mr_fail(MR_E_CKPT, "%s: files[%d] is not a file entry", path, i);
        f->name = mr_arena_strdup(&m->arena, name);
        f->blocks = mr_arena_alloc(&m->arena, sizeof *f->blocks * (json_array_size(blocks) + 1));
        if (!f->name || !f->blocks)
            return mr_fail_memory(sizeof *f->blocks * json_array_size(blocks));
        for (size_t b = 0; b < json_array_size(blocks); b++)
            if (!parse_hash(json_array_get(blocks, b), &f->blocks[b]))
                return mr_fail(MR_E_CKPT, "%s: files[%d].blocks[%zu] is not a hash", path, i, b);
    }
    return MR_OK;
}

static mr_status parse_slice(const char *path, const json_t *v, int i, mr_manifest *m,
                             mr_st_tensor *t)
{
    const char *name = json_string_value(json_object_get(v, "name")),
               *dtype = json_string_value(json_object_get(v, "dtype"));
    const json_t *shape = json_object_get(v, "shape"), *box = json_object_get(v, "box");
    int64_t file;
    t->dtype = dtype ? mr_st_dtype_from_name(dtype) : MR_ST_DTYPE_COUNT;
    t->rank = (int)json_array_size(shape);
    if (!name || !*name || t->dtype == MR_ST_DTYPE_COUNT || !json_is_array(shape) ||
        t->rank > MR_ST_RANK_MAX || (int)json_array_size(box) != t->rank ||
        !natural(json_object_get(v, "file"), &file) || file >= m->n_files ||
        !natural(json_object_get(v, "offset"), &t->offset))
        return mr_fail(MR_E_CKPT, "%s: tensors[%d] is not a slice entry", path, i);
    t->file = (int)file;
    for (int d = 0; d < t->rank; d++) {
        const json_t *range = json_array_get(box, (size_t)d);
        int64_t from, to;
        if (!natural(json_array_get(shape, (size_t)d), &t->shape[d]) ||
            !natural(json_array_get(range, 0), &from) || !natural(json_array_get(range, 1), &to))
            return mr_fail(MR_E_CKPT, "%s: tensor '%s': shape and box do not fit", path, name);
        if (from != 0 || to != t->shape[d])
            return mr_fail(MR_E_UNSUPPORTED,
                           "%s: tensor '%s' is cut over several ranks' files; this version reads "
                           "whole tensors only",
                           path, name);
    }
    if (mr_st_shape_bytes(t->dtype, t->rank, t->shape, &t->bytes) != MR_OK)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s': its shape overflows", path, name);
    if (t->bytes > m->files[file].bytes || t->offset > m->files[file].bytes - t->bytes)
        return mr_fail(MR_E_CKPT, "%s: tensor '%s' does not lie inside its file", path, name);
    t->name = mr_arena_strdup(&m->arena, name);
    return t->name ? MR_OK : mr_fail_memory(strlen(name));
}

static mr_status parse(const char *path, const json_t *root, mr_manifest *m)
{
    int64_t schema;
    const char *run = json_string_value(json_object_get(root, "run"));
    if (!natural(json_object_get(root, "schema"), &schema))
        return mr_fail(MR_E_CKPT, "%s: no schema version", path);
    if (schema != MR_CKPT_SCHEMA)
        return mr_fail(MR_E_UNSUPPORTED, "%s: schema version %lld; this moonreel reads version %d",
                       path, (long long)schema, MR_CKPT_SCHEMA);
    if (!run || strlen(run) >= sizeof m->run || !natural(json_object_get(root, "step"), &m->step) ||
        !natural(json_object_get(root, "fence"), &m->fence))
        return mr_fail(MR_E_CKPT, "%s: run, step or fence is missing", path);
    snprintf(m->run, sizeof m->run, "%s", run);
    MR_TRY(parse_files(path, json_object_get(root, "files"), m));
    const json_t *list = json_object_get(root, "tensors");
    if (!json_is_array(list))
        return mr_fail(MR_E_CKPT, "%s: tensors: expected a list", path);
    m->n_tensors = (int)json_array_size(list);
    m->tensors = mr_arena_alloc(&m->arena, sizeof *m->tensors * (size_t)(m->n_tensors + 1));
    if (!m->tensors)
        return mr_fail_memory(sizeof *m->tensors * (size_t)m->n_tensors);
    for (int i = 0; i < m->n_tensors; i++)
        MR_TRY(parse_slice(path, json_array_get(list, (size_t)i), i, m, &m->tensors[i]));
    return MR_OK;
}

mr_status mr_manifest_read(const char *dir, mr_manifest *m)
{
    char path[4096], want[33];
    *m = (mr_manifest){0};
    mr_arena_init(&m->arena);
    snprintf(path, sizeof path, "%s/" MR_CKPT_MANIFEST, dir);
    MR_TRY(mr_file_read_small(path, MR_CKPT_MANIFEST_MAX, &m->text, &m->text_bytes));
    const char *end = m->text + m->text_bytes;
    if (m->text_bytes < SELF_BYTES || memcmp(end - SELF_BYTES, self_head, sizeof self_head - 1) ||
        memcmp(end - 4, self_tail, 4))
        return mr_fail(MR_E_FORMAT, "%s: no self hash at its end: cut or edited", path);
    mr_hash128_hex(mr_hash128_of(m->text, m->text_bytes - SELF_BYTES), want);
    if (memcmp(end - 4 - 32, want, 32))
        return mr_fail(MR_E_FORMAT, "%s: its self hash differs: damaged or edited", path);
    json_error_t err;
    json_t *root = json_loadb(m->text, m->text_bytes, JSON_REJECT_DUPLICATES, &err);
    // its bytes are as they were written, so this is no damage: memory, or another program wrote it
    if (!root)
        return mr_json_fail(MR_E_CKPT, path, &err);
    mr_status st = parse(path, root, m);
    json_decref(root);
    return st;
}

void mr_manifest_fini(mr_manifest *m)
{
    mr_arena_fini(&m->arena);
    mr_free(m->text);
    *m = (mr_manifest){0};
}
