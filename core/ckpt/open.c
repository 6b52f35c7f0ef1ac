/* ckpt: opens a checkpoint directory or released weights, and reads tensors or slices of tensors in
 * the order of the files. Licence: Apache-2.0 */
#include "base/json_fields.h"
#include "ckpt/blocks.h"
#include "ckpt/save.h"
#include "ckpt/torch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One file of released weights. */
typedef struct part {
    char *path;
    mr_safetensors *plain;
    mr_torch *torch;
    int first; // number of its first tensor among all
} part;

struct mr_ckpt {
    char *path;
    mr_manifest manifest; // of a checkpoint; its facts are NULL for released weights
    mr_blocks *blocks;    // its files
    part *parts;          // the files of released weights
    int n_parts, n;
    mr_st_tensor *plain; // tensors of all parts
    const mr_st_tensor **tensors, **by_name;
};

static int by_name(const void *pa, const void *pb)
{
    return strcmp((*(const mr_st_tensor *const *)pa)->name,
                  (*(const mr_st_tensor *const *)pb)->name);
}

/* ---- open ---- */

static mr_status index_names(mr_ckpt *c)
{
    memcpy(c->by_name, c->tensors, sizeof *c->tensors * (size_t)c->n);
    qsort(c->by_name, (size_t)c->n, sizeof *c->by_name, by_name);
    for (int i = 1; i < c->n; i++)
        if (strcmp(c->by_name[i - 1]->name, c->by_name[i]->name) == 0)
            return mr_fail(MR_E_FORMAT, "%s: tensor '%s' occurs twice", c->path,
                           c->by_name[i]->name);
    return MR_OK;
}

static mr_status room_for_parts(mr_ckpt *c, int n)
{
    if (!(c->parts = mr_calloc((size_t)n, sizeof *c->parts)))
        return mr_fail_memory(sizeof *c->parts);
    c->n_parts = n;
    return MR_OK;
}

static mr_status room_for_tensors(mr_ckpt *c, int n)
{
    c->tensors = mr_calloc((size_t)n + 1, sizeof *c->tensors);
    c->by_name = mr_calloc((size_t)n + 1, sizeof *c->by_name);
    c->n = n;
    return c->tensors && c->by_name ? MR_OK : mr_fail_memory(sizeof *c->tensors * (size_t)n);
}

static char *join(const char *dir, const char *name)
{
    size_t cap = strlen(dir) + strlen(name) + 2;
    char *path = mr_alloc(cap);
    if (path)
        snprintf(path, cap, "%s/%s", dir, name);
    return path;
}

static mr_status open_committed(mr_ckpt *c, const char *dir)
{
    char path[MR_SAVE_PATH];
    mr_status st;
    int pauses = 0;
    mr_save_path(path, "%s/" MR_CKPT_MANIFEST, dir);
    do
        errno = 0, st = mr_manifest_read(path, false, &c->manifest);
    while (st == MR_E_IO && mr_ckpt_again(errno, &pauses));
    MR_TRY(st);
    MR_TRY(mr_blocks_open(dir, &c->manifest, &c->blocks));
    MR_TRY(room_for_tensors(c, c->manifest.n_tensors));
    for (int i = 0; i < c->n; i++)
        c->tensors[i] = &c->manifest.tensors[i].is;
    return index_names(c);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

static bool is_torch(const char *path)
{
    return ends_with(path, ".pth") || ends_with(path, ".bin") || ends_with(path, ".pt") ||
           ends_with(path, ".ckpt");
}

static int count_of(const part *p)
{
    return p->torch ? mr_torch_count(p->torch) : p->plain ? mr_safetensors_count(p->plain) : 0;
}
static const mr_st_tensor *tensor_of(const part *p, int i)
{
    return p->torch ? mr_torch_at(p->torch, i) : mr_safetensors_at(p->plain, i);
}

static const char *file_name(const part *p)
{
    const char *slash = strrchr(p->path, '/');
    return slash ? slash + 1 : p->path;
}

/* Takes the tensors of plain files in order. Leaves out a tensor that `where` ({tensor: file} of an
 * index, or NULL) assigns to another file. */
static mr_status take_tensors(mr_ckpt *c, const json_t *where)
{
    int n = 0, at = 0, taken = 0;
    for (int i = 0; i < c->n_parts; i++)
        n += count_of(&c->parts[i]);
    MR_TRY(room_for_tensors(c, n));
    if (!(c->plain = mr_calloc((size_t)n + 1, sizeof *c->plain)))
        return mr_fail_memory(sizeof *c->plain * (size_t)n);
    for (int i = 0; i < c->n_parts; i++) {
        c->parts[i].first = at;
        for (int k = 0; k < count_of(&c->parts[i]); k++, at++) {
            c->plain[at] = *tensor_of(&c->parts[i], k);
            c->plain[at].file = i;
            const char *file = json_string_value(json_object_get(where, c->plain[at].name));
            if (!file || strcmp(file, file_name(&c->parts[i])) == 0)
                c->tensors[taken++] = &c->plain[at];
        }
    }
    c->n = taken;
    return index_names(c);
}

static mr_status open_part(part *p, char *path)
{
    if (!path)
        return mr_fail_memory(64);
    p->path = path;
    return is_torch(path) ? mr_torch_open(path, &p->torch)
                          : mr_safetensors_open(path, 0, &p->plain);
}

static mr_status open_plain(mr_ckpt *c, const char *path)
{
    MR_TRY(room_for_parts(c, 1));
    MR_TRY(open_part(&c->parts[0], mr_strdup(path)));
    return take_tensors(c, NULL);
}

/* ---- index files ---- */

/* model.safetensors.index.json: {"metadata": {...}, "weight_map": {tensor: file}}; the files are
 * next to it. */
typedef struct index_file {
    mr_ckpt *ckpt;
    char *text;
    mr_json_part map; // the weight_map; .at is NULL if it is missing
    json_t *files;    // an object used as a set
    json_t *where;    // {tensor: file}
} index_file;

static mr_status take_map(void *user, const char *key, mr_json_part value)
{
    index_file *x = user;
    if (strcmp(key, "weight_map") == 0) {
        if (x->map.at || *value.at != '{')
            return mr_fail(MR_E_FORMAT, "%s: weight_map: expected one object", value.path);
        x->map = value;
        return MR_OK;
    }
    // other members are not used, but must be JSON
    json_t *v;
    MR_TRY(mr_json_parse(value, &v));
    json_decref(v);
    return MR_OK;
}

static mr_status note_file(void *user, const char *name, mr_json_part value)
{
    index_file *x = user;
    json_t *v;
    MR_TRY(mr_json_parse(value, &v));
    const char *file = json_string_value(v);
    mr_status st = MR_OK;
    if (!file || !*file || *file == '.' || strchr(file, '/'))
        st = mr_fail(MR_E_FORMAT, "%s: tensor '%.100s': its file is not a plain name", value.path,
                     name);
    else if (json_object_set_new(x->files, file, json_true()) ||
             (!json_object_get(x->where, name) && json_object_set(x->where, name, v)))
        st = mr_fail_memory(64);
    json_decref(v);
    return st;
}

static mr_status check_place(void *user, const char *name, mr_json_part value)
{
    const index_file *x = user;
    json_t *v;
    MR_TRY(mr_json_parse(value, &v));
    const mr_st_tensor *t = mr_ckpt_find(x->ckpt, name);
    mr_status st = MR_OK;
    if (!t || strcmp(file_name(&x->ckpt->parts[t->file]), json_string_value(v)))
        st = mr_fail(MR_E_FORMAT, "%s: tensor '%.100s' is not in %s", value.path, name,
                     json_string_value(v));
    json_decref(v);
    return st;
}

static mr_status open_files(mr_ckpt *c, const char *index_path, json_t *files, const json_t *where)
{
    char dir[MR_SAVE_PATH];
    mr_save_path(dir, "%s", index_path);
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = 0;
    MR_TRY(room_for_parts(c, (int)json_object_size(files)));
    int i = 0;
    const char *file;
    json_t *v;
    json_object_foreach(files, file,
                        v) if (open_part(&c->parts[i++], join(slash ? dir : ".", file)) !=
                               MR_OK) return mr_fail_note("%s: cannot open %s, which it names",
                                                          index_path, file);
    return take_tensors(c, where);
}

static mr_status read_index(index_file *x, const char *path)
{
    size_t bytes;
    MR_TRY(mr_file_read_small(path, MR_ST_HEADER_MAX, &x->text, &bytes));
    MR_TRY(mr_json_fields((mr_json_part){path, x->text, x->text, x->text + bytes, MR_JSON_DEPTH},
                          take_map, x));
    if (!x->map.at)
        return mr_fail(MR_E_FORMAT, "%s: no weight_map in it", path);
    if (!(x->files = json_object()) || !(x->where = json_object()))
        return mr_fail_memory(64);
    MR_TRY(mr_json_fields(x->map, note_file, x));
    MR_TRY(open_files(x->ckpt, path, x->files, x->where));
    return mr_json_fields(x->map, check_place, x);
}

static mr_status open_index(mr_ckpt *c, const char *path)
{
    index_file x = {.ckpt = c};
    mr_status st = mr_fail_try(read_index(&x, path), MR_CKPT_AGAIN);
    json_decref(x.files);
    json_decref(x.where);
    mr_free(x.text);
    return st;
}

/* ---- opening a path ---- */

/* Opens a folder without a manifest: its index file, its only safetensors file, the contents of its
 * folder model/ (as in checkpoints of the reference), or its only torch file. */
static mr_status open_folder(mr_ckpt *c, const char *dir)
{
    char path[MR_SAVE_PATH], inner[MR_SAVE_PATH], **names;
    struct stat s;
    int n, single = -1, index = -1, singles = 0, torch = -1, torches = 0;
    MR_TRY(mr_dir_list(dir, &names, &n));
    mr_save_path(inner, "%s/model", dir);
    for (int i = 0; i < n; i++) {
        if (ends_with(names[i], ".safetensors.index.json"))
            index = i;
        if (index < 0 && ends_with(names[i], ".bin.index.json"))
            index = i;
        if (ends_with(names[i], ".safetensors"))
            single = i, singles++;
        if (is_torch(names[i]))
            torch = i, torches++;
    }
    if (index < 0 && !singles && (stat(inner, &s) || !S_ISDIR(s.st_mode)))
        single = torch, singles = torches;
    if (index >= 0 || singles == 1)
        mr_save_path(path, "%s/%s", dir, names[index >= 0 ? index : single]);
    mr_dir_list_free(names, n);
    if (index >= 0)
        return open_index(c, path);
    if (singles == 1)
        return open_plain(c, path);
    if (!singles && strlen(inner) < MR_RUN_DIR_MAX && !stat(inner, &s) && S_ISDIR(s.st_mode))
        return open_folder(c, inner);
    return mr_fail(
        MR_E_USAGE,
        "%s: no " MR_CKPT_MANIFEST
        " in it, no index file, and %s file of weights; try: name a checkpoint or a file",
        dir, singles ? "more than one" : "no");
}

mr_status mr_ckpt_open(const char *path, mr_ckpt **out)
{
    *out = NULL;
    struct stat s;
    char aside[MR_SAVE_PATH];
    if (strlen(path) > MR_RUN_DIR_MAX)
        return mr_fail(MR_E_USAGE, "%.80s...: path is longer than %d bytes", path, MR_RUN_DIR_MAX);
    path = mr_save_find(path, aside);
    if (stat(path, &s))
        return mr_fail(errno == ENOENT ? MR_E_USAGE : MR_E_IO, "%s: cannot open: %s", path,
                       strerror(errno));
    mr_ckpt *c;
    if (!MR_NEW(c))
        return mr_fail_memory(sizeof *c);
    char manifest[MR_SAVE_PATH];
    mr_save_path(manifest, "%s/" MR_CKPT_MANIFEST, path);
    mr_manifest_init(&c->manifest);
    mr_status st = (c->path = mr_strdup(path)) ? MR_OK : mr_fail_memory(strlen(path));
    if (st == MR_OK)
        st = !S_ISDIR(s.st_mode)
                 ? (ends_with(path, ".index.json") ? open_index(c, path) : open_plain(c, path))
             : mr_path_exists(manifest) ? open_committed(c, path)
                                        : open_folder(c, path);
    if (st != MR_OK)
        mr_ckpt_close(c);
    else
        *out = c;
    return st;
}

void mr_ckpt_close(mr_ckpt *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->n_parts; i++) {
        mr_safetensors_close(c->parts[i].plain);
        mr_torch_close(c->parts[i].torch);
        mr_free(c->parts[i].path);
    }
    mr_blocks_close(c->blocks);
    mr_manifest_fini(&c->manifest);
    mr_free(c->parts);
    mr_free(c->plain);
    mr_free(c->tensors);
    mr_free(c->by_name);
    mr_free(c->path);
    mr_free(c);
}

/* ---- queries ---- */

int mr_ckpt_count(const mr_ckpt *c)
{
    return c->n;
}
const mr_st_tensor *mr_ckpt_at(const mr_ckpt *c, int i)
{
    return c->tensors[i];
}
const char *mr_ckpt_path(const mr_ckpt *c)
{
    return c->path;
}
const char *mr_ckpt_manifest(const mr_ckpt *c)
{
    return c->manifest.facts;
}
int64_t mr_ckpt_step(const mr_ckpt *c)
{
    return c->blocks ? c->manifest.step : -1;
}

int64_t mr_ckpt_bytes(const mr_ckpt *c)
{
    int64_t total = 0;
    for (int i = 0; i < c->manifest.n_files; i++)
        total += c->manifest.files[i].bytes;
    for (int i = 0; i < c->n_parts; i++) {
        for (int k = 0; k < count_of(&c->parts[i]); k++)
            total += tensor_of(&c->parts[i], k)->bytes;
    }
    return total;
}

int mr_ckpt_meta_count(const mr_ckpt *c)
{
    return c->n_parts && c->parts[0].plain ? mr_safetensors_meta_count(c->parts[0].plain) : 0;
}

void mr_ckpt_meta_at(const mr_ckpt *c, int i, const char **key, const char **value)
{
    mr_safetensors_meta_at(c->parts[0].plain, i, key, value);
}

const mr_st_tensor *mr_ckpt_find(const mr_ckpt *c, const char *name)
{
    for (int lo = 0, hi = c->n; lo < hi;) {
        int mid = lo + (hi - lo) / 2, order = strcmp(name, c->by_name[mid]->name);
        if (order == 0)
            return c->by_name[mid];
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

int mr_ckpt_refused_count(const mr_ckpt *c)
{
    int n = 0;
    for (int i = 0; i < c->n_parts; i++)
        n += c->parts[i].torch ? mr_torch_refused_count(c->parts[i].torch) : 0;
    return n;
}

const mr_st_refused *mr_ckpt_refused_at(const mr_ckpt *c, int i)
{
    const part *p = c->parts;
    for (;; p++) {
        int n = p->torch ? mr_torch_refused_count(p->torch) : 0;
        if (i < n)
            return mr_torch_refused_at(p->torch, i);
        i -= n;
    }
}

mr_status mr_ckpt_missing(const mr_ckpt *c, const char *name)
{
    for (int i = 0; i < mr_ckpt_refused_count(c); i++) {
        const mr_st_refused *r = mr_ckpt_refused_at(c, i);
        if (strcmp(r->name, name) == 0)
            return mr_fail(MR_E_UNSUPPORTED, "%s: tensor '%s' cannot be read: %s", c->path, name,
                           r->why);
    }
    return mr_fail(MR_E_RANGE, "%s: no tensor '%s' in it", c->path, name);
}

/* ---- read ---- */

/* The requested bytes of one tensor, and their destination. */
typedef struct wish {
    const mr_st_tensor *tensor;
    mr_span span;
    char *dst;
} wish;

/* A piece that contains bytes of a wish. */
typedef struct fetch {
    mr_ckpt *ckpt;
    const wish *wish;
    mr_span piece;
    int file;
    int64_t offset;
} fetch;

/* The list of fetches; if `list` is NULL, it is only counted. */
typedef struct fetches {
    fetch *list;
    int n;
} fetches;

static int by_place(const void *pa, const void *pb)
{
    const fetch *a = pa, *b = pb;
    if (a->file != b->file)
        return a->file - b->file;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->wish > b->wish) - (a->wish < b->wish);
}

static mr_status fetch_bytes(void *user, int64_t at_wish, int64_t at_piece, int64_t n)
{
    const fetch *f = user;
    const mr_ckpt *c = f->ckpt;
    char *dst = f->wish->dst + at_wish;
    if (c->blocks)
        return mr_blocks_read(c->blocks, f->file, f->offset + at_piece, dst, n);
    const part *p = &c->parts[f->file];
    const mr_st_tensor *t = f->wish->tensor;
    return p->plain ? mr_safetensors_read(p->plain, t, dst, at_piece, n)
                    : mr_torch_read(p->torch, (int)(t - c->plain) - p->first, dst, at_piece, n);
}

static void add_fetch(fetches *to, fetch f)
{
    const mr_span *a = &f.wish->span, *b = &f.piece;
    if (a->first >= b->end || b->first >= a->end)
        return;
    if (to->list)
        to->list[to->n] = f;
    to->n++;
}

static void add_wish(mr_ckpt *c, const wish *w, fetches *to)
{
    const mr_st_tensor *t = w->tensor;
    if (!c->blocks) {
        add_fetch(to, (fetch){c, w, mr_span_stretch(0, t->bytes), t->file, t->offset});
        return;
    }
    // a tensor of a manifest is the first member of mr_manifest_tensor
    const mr_manifest_tensor *row = (const mr_manifest_tensor *)t;
    for (int i = 0; i < row->n; i++) {
        const mr_piece *p = &c->manifest.pieces[row->first + i];
        add_fetch(to, (fetch){c, w, mr_piece_span(row, p), p->file, p->offset});
    }
}

static mr_status grant(mr_ckpt *c, const wish *wishes, int n)
{
    fetches all = {0};
    for (int i = 0; i < n; i++)
        add_wish(c, &wishes[i], &all);
    if (!(all.list = mr_alloc(sizeof *all.list * (size_t)(all.n + 1))))
        return mr_fail_memory(sizeof *all.list * (size_t)all.n);
    all.n = 0;
    for (int i = 0; i < n; i++)
        add_wish(c, &wishes[i], &all);
    qsort(all.list, (size_t)all.n, sizeof *all.list, by_place);
    mr_status st = MR_OK;
    for (int i = 0; i < all.n && st == MR_OK; i++) {
        fetch *f = &all.list[i];
        st = mr_span_intersect(&f->wish->span, &f->piece, fetch_bytes, f);
    }
    mr_free(all.list);
    return st;
}

mr_status mr_ckpt_read(mr_ckpt *c, const char *name, void *dst, int64_t offset, int64_t n)
{
    const mr_st_tensor *t = mr_ckpt_find(c, name);
    if (!t)
        return mr_ckpt_missing(c, name);
    if (offset < 0 || n < 0 || n > t->bytes || offset > t->bytes - n)
        return mr_fail(
            MR_E_RANGE,
            "%s: tensor '%s': %lld bytes from byte %lld on; expected a range in its %lld", c->path,
            name, (long long)n, (long long)offset, (long long)t->bytes);
    wish w = {t, mr_span_stretch(offset, n), dst};
    return grant(c, &w, 1);
}

static mr_status take_want(mr_ckpt *c, const mr_ckpt_want *want, wish *out)
{
    const mr_st_tensor *t = mr_ckpt_find(c, want->name);
    if (!t)
        return mr_ckpt_missing(c, want->name);
    *out = (wish){.tensor = t, .dst = want->dst};
    if (mr_span_of(t, &want->slice, &out->span) != MR_OK)
        return mr_fail_note("%s", c->path);
    if (mr_span_bytes(&out->span) == want->bytes)
        return MR_OK;
    return mr_fail(MR_E_SHAPE, "%s: tensor '%s': the slice has %lld bytes, its destination %lld",
                   c->path, want->name, (long long)mr_span_bytes(&out->span),
                   (long long)want->bytes);
}

mr_status mr_ckpt_read_slices(mr_ckpt *c, const mr_ckpt_want *wants, int n)
{
    wish *wishes = mr_alloc(sizeof *wishes * (size_t)(n + 1));
    mr_status st = wishes ? MR_OK : mr_fail_memory(sizeof *wishes * (size_t)n);
    for (int i = 0; i < n && st == MR_OK; i++)
        st = take_want(c, &wants[i], &wishes[i]);
    if (st == MR_OK)
        st = grant(c, wishes, n);
    mr_free(wishes);
    return st;
}

int64_t mr_ckpt_bytes_read(const mr_ckpt *c)
{
    return c->blocks ? mr_blocks_bytes_read(c->blocks) : 0;
}

mr_status mr_ckpt_verify(mr_ckpt *c)
{
    if (c->blocks)
        return mr_blocks_check(c->blocks, (mr_ckpt_share){0, 1}, true);
    for (int i = 0; i < c->n_parts; i++) {
        const part *p = &c->parts[i];
        if (p->plain)
            return mr_fail(MR_E_USAGE, "%s: a plain file has no hashes to verify", p->path);
        MR_TRY(mr_torch_verify(p->torch));
    }
    return MR_OK;
}

static mr_status needs_blocks(const mr_ckpt *c, const char *what)
{
    return c->blocks ? MR_OK
                     : mr_fail(MR_E_USAGE, "%s: %s: expected a checkpoint, this is a plain file",
                               c->path, what);
}

mr_status mr_ckpt_verify_share(mr_ckpt *c, mr_ckpt_share share)
{
    MR_TRY(needs_blocks(c, "a part of it to verify"));
    if (share.parts < 1 || share.parts > 1 << 20 || share.part < 0 || share.part >= share.parts)
        return mr_fail(MR_E_USAGE,
                       "%s: part %d of %d: expected 0 or more, and less than the number of parts",
                       c->path, share.part, share.parts);
    return mr_blocks_check(c->blocks, share, true);
}

mr_status mr_ckpt_touch(mr_ckpt *c)
{
    MR_TRY(needs_blocks(c, "reading without comparing"));
    return mr_blocks_check(c->blocks, (mr_ckpt_share){0, 1}, false);
}

mr_status mr_save_open(const char *dir, mr_ckpt **out)
{
    char path[MR_SAVE_PATH], aside[MR_SAVE_PATH];
    struct stat s;
    int pauses = 0, missing;
    *out = NULL;
    do
        missing = stat(mr_save_path(path, "%s/" MR_CKPT_MANIFEST, mr_save_find(dir, aside)), &s);
    while (missing && mr_ckpt_again(errno, &pauses));
    if (missing)
        return mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    return mr_ckpt_open(dir, out);
}
