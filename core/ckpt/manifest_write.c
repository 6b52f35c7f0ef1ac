/* ckpt: writes MANIFEST.json: facts, files with the hashes of their blocks, tensors with the
 * positions of their parts (reference: reliability 3.1). The last member, "self", is the hash of
 * all bytes before it. Licence: Apache-2.0 */
#include "base/text.h"
#include "ckpt/manifest.h"

#include <string.h>
#include <time.h>

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

static int print_to(const char *data, size_t n, void *out)
{
    mr_text_add(out, "%.*s", (int)n, data);
    return 0;
}

/* Prints a value and frees it; NULL: its creation failed. */
static void print_value(mr_text *out, json_t *v, size_t flags)
{
    if (!v || json_dump_callback(v, print_to, out, flags))
        out->failed = true;
    json_decref(v);
}

static json_t *file_entry(const mr_ckpt_file *f)
{
    char *blocks, whole[33];
    mr_hash128 hash = mr_ckpt_file_hash(f, &blocks);
    mr_hash128_hex(hash, whole);
    json_t *v = blocks ? json_pack("{s:s, s:I, s:s, s:i, s:s}", "name", f->name, "bytes",
                                   (json_int_t)f->bytes, "xxh3_128", whole, "block_bytes",
                                   MR_CKPT_BLOCK, "blocks", blocks)
                       : NULL;
    mr_free(blocks);
    return v;
}

static json_t *integers(const int64_t *x, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n && list; i++)
        if (json_array_append_new(list, json_integer(x[i]))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

/* [file, offset, from, to, ...]: two bounds of a range, two per dimension of a box */
static json_t *piece_entry(const mr_manifest_tensor *t, const mr_piece *p)
{
    int64_t x[2 + 2 * MR_ST_RANK_MAX] = {p->file, p->offset};
    int n = 2 * (t->cut == MR_CKPT_BOX ? t->is.rank : 1);
    memcpy(x + 2, p->bounds, sizeof x[0] * (size_t)n);
    return integers(x, 2 + n);
}

static json_t *tensor_entry(const mr_manifest *m, const mr_manifest_tensor *t)
{
    json_t *pieces = json_array();
    for (int i = 0; i < t->n && pieces; i++)
        if (json_array_append_new(pieces, piece_entry(t, &m->pieces[t->first + i]))) {
            json_decref(pieces);
            pieces = NULL;
        }
    return json_pack("{s:s, s:s, s:o, s:o}", "name", t->is.name, "dtype",
                     mr_st_dtype_name(t->is.dtype), "shape", integers(t->is.shape, t->is.rank),
                     t->cut == MR_CKPT_BOX ? "boxes" : "ranges", pieces);
}

static json_t *facts_of(const mr_manifest *m, json_t *meta)
{
    char when[40];
    time_t now = (time_t)(mr_clock_table()->wall_ns() / 1000000000);
    struct tm utc;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:s, s:{s:I}}", "schema", MR_CKPT_SCHEMA, "kind",
                  meta ? "moonreel checkpoint" : "moonreel checkpoint part", "run", m->run, "fence",
                  (json_int_t)m->fence, "step", (json_int_t)m->step, "written", when, "world",
                  "ranks", (json_int_t)m->ranks);
    bool bad = !root;
    if (meta)
        bad = bad || json_object_update(root, meta);
    else
        bad = bad || json_object_set_new(root, "rank", json_integer(m->rank)) ||
              json_object_set_new(root, "save", json_integer(m->save)) ||
              json_object_set_new(root, "attempt", json_integer(m->attempt));
    if (!bad)
        return root;
    json_decref(root);
    return NULL;
}

mr_status mr_manifest_build(const mr_manifest *m, json_t *meta, char **text, size_t *bytes)
{
    mr_text out = {0};
    char self[33];
    print_value(&out, facts_of(m, meta), JSON_INDENT(1));
    if (!out.failed)
        out.used -= 2; // the "\n}" at its end: files and tensors follow
    mr_text_add(&out, ",\n \"files\": [");
    for (int i = 0; i < m->n_files && !out.failed; i++) {
        mr_text_add(&out, i ? ",\n  " : "\n  ");
        print_value(&out, file_entry(&m->files[i]), 0);
    }
    mr_text_add(&out, "],\n \"tensors\": [");
    for (int i = 0; i < m->n_tensors && !out.failed; i++) {
        mr_text_add(&out, i ? ",\n  " : "\n  ");
        print_value(&out, tensor_entry(m, &m->tensors[i]), 0);
    }
    mr_text_add(&out, "]");
    if (!out.failed) {
        mr_hash128_hex(mr_hash128_of(out.data, out.used), self);
        mr_text_add(&out, "%s%s%s", MR_SELF_HEAD, self, MR_SELF_TAIL);
    }
    *bytes = out.used;
    return mr_text_end(&out, text);
}
