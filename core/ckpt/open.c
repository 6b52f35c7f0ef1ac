/* ckpt: open a checkpoint directory or released weights, and read tensors; bytes of a checkpoint
 * are handed out only after their block matched its hash. Licence: Apache-2.0 */
#include "ckpt/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* One file of a checkpoint: hashed blocks read by descriptor, or a plain safetensors file. */
typedef struct part {
    int fd;
    char *path;
    int64_t bytes;
    const mr_ckpt_file *hashes; // NULL: plain
    mr_safetensors *plain;
    mr_torch *torch;
    int first; // of a plain file: which of all tensors is its first
} part;

struct mr_ckpt {
    char *path;
    mr_manifest manifest; // text is NULL for plain files
    part *parts;
    int n_parts, n;
    mr_st_tensor *plain; // of plain files: the tensors of all of them
    const mr_st_tensor **tensors, **by_name;
    char *block; // the block read last, verified
    int block_part;
    int64_t block_at; // its first byte, -1: none
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
            return mr_fail(MR_E_FORMAT, "%s: tensor '%s' comes twice", c->path,
                           c->by_name[i]->name);
    return MR_OK;
}

static mr_status room_for_parts(mr_ckpt *c, int n)
{
    if (!(c->parts = mr_calloc((size_t)n, sizeof *c->parts)))
        return mr_fail_memory(sizeof *c->parts);
    for (int i = 0; i < n; i++)
        c->parts[i].fd = -1;
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
    MR_TRY(mr_manifest_read(dir, &c->manifest));
    MR_TRY(room_for_parts(c, c->manifest.n_files));
    MR_TRY(room_for_tensors(c, c->manifest.n_tensors));
    for (int i = 0; i < c->n_parts; i++) {
        part *p = &c->parts[i];
        struct stat s;
        p->hashes = &c->manifest.files[i];
        p->bytes = p->hashes->bytes;
        if (!(p->path = join(dir, p->hashes->name)))
            return mr_fail_memory(strlen(dir));
        p->fd = mr_io_table()->open(p->path, O_RDONLY | O_NONBLOCK, 0);
        if (p->fd < 0 && errno == ENOENT)
            return mr_fail(MR_E_FORMAT, "%s: missing", p->path);
        if (p->fd < 0 || fstat(p->fd, &s))
            return mr_fail(MR_E_IO, "%s: cannot open: %s", p->path, strerror(errno));
        if (!S_ISREG(s.st_mode) || s.st_size != p->bytes)
            return mr_fail(MR_E_FORMAT, "%s: has %lld bytes, the manifest says %lld", p->path,
                           (long long)s.st_size, (long long)p->bytes);
    }
    for (int i = 0; i < c->n; i++)
        c->tensors[i] = &c->manifest.tensors[i];
    c->block_at = -1;
    if (!(c->block = mr_alloc(MR_CKPT_BLOCK)))
        return mr_fail_memory(MR_CKPT_BLOCK);
    return index_names(c);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

static bool is_torch(const char *path)
{
    return ends_with(path, ".pth") || ends_with(path, ".bin") || ends_with(path, ".pt");
}

static int count_of(const part *p)
{
    return p->torch ? mr_torch_count(p->torch) : p->plain ? mr_safetensors_count(p->plain) : 0;
}
static const mr_st_tensor *tensor_of(const part *p, int i)
{
    return p->torch ? mr_torch_at(p->torch, i) : mr_safetensors_at(p->plain, i);
}

/* Plain files: every tensor of each, in order. */
static mr_status take_tensors(mr_ckpt *c)
{
    int n = 0, at = 0;
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
            c->tensors[at] = &c->plain[at];
        }
    }
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
    return take_tensors(c);
}

/* ---- index files ---- */

/* model.safetensors.index.json: {"metadata": {...}, "weight_map": {tensor: file}}; the files stand
 * beside it. */
typedef struct index_file {
    mr_ckpt *ckpt;
    char *text;
    mr_json_part map; // the weight_map; .at is NULL when there is none
    json_t *files;    // an object used as a set
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
    // the rest is of no use here, but it has to be JSON
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
    else if (json_object_set_new(x->files, file, json_true()))
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
    const char *at = t ? strrchr(x->ckpt->parts[t->file].path, '/') + 1 : NULL;
    mr_status st = MR_OK;
    if (!t || strcmp(at, json_string_value(v)))
        st = mr_fail(MR_E_FORMAT, "%s: tensor '%.100s' is not in %s", value.path, name,
                     json_string_value(v));
    json_decref(v);
    return st;
}

static mr_status open_files(mr_ckpt *c, const char *index_path, json_t *files)
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
    json_object_foreach(files, file, v)
        MR_TRY(open_part(&c->parts[i++], join(slash ? dir : ".", file)));
    return take_tensors(c);
}

static mr_status read_index(index_file *x, const char *path)
{
    size_t bytes;
    MR_TRY(mr_file_read_small(path, MR_ST_HEADER_MAX, &x->text, &bytes));
    MR_TRY(mr_json_members((mr_json_part){path, x->text, x->text, x->text + bytes}, take_map, x));
    if (!x->map.at)
        return mr_fail(MR_E_FORMAT, "%s: no weight_map in it", path);
    if (!(x->files = json_object()))
        return mr_fail_memory(64);
    MR_TRY(mr_json_members(x->map, note_file, x));
    MR_TRY(open_files(x->ckpt, path, x->files));
    return mr_json_members(x->map, check_place, x);
}

static mr_status open_index(mr_ckpt *c, const char *path)
{
    index_file x = {.ckpt = c};
    mr_status st = read_index(&x, path);
    json_decref(x.files);
    mr_free(x.text);
    return st;
}

/* ---- what a path means ---- */

/* A folder without a manifest: its index file, or its only safetensors file. */
static mr_status open_folder(mr_ckpt *c, const char *dir)
{
    char path[MR_SAVE_PATH], **names;
    int n, single = -1, index = -1, singles = 0;
    MR_TRY(mr_dir_list(dir, &names, &n));
    for (int i = 0; i < n; i++) {
        if (ends_with(names[i], ".safetensors.index.json"))
            index = i;
        if (index < 0 && ends_with(names[i], ".bin.index.json"))
            index = i;
        if (ends_with(names[i], ".safetensors"))
            single = i, singles++;
    }
    if (index >= 0 || singles == 1)
        mr_save_path(path, "%s/%s", dir, names[index >= 0 ? index : single]);
    mr_dir_list_free(names, n);
    if (index >= 0)
        return open_index(c, path);
    if (singles == 1)
        return open_plain(c, path);
    return mr_fail(
        MR_E_USAGE,
        "%s: no " MR_CKPT_MANIFEST
        " in it, no index file, and %s safetensors file; try: name a checkpoint or a file",
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
        if (c->parts[i].fd >= 0)
            mr_io_table()->close(c->parts[i].fd);
        mr_safetensors_close(c->parts[i].plain);
        mr_torch_close(c->parts[i].torch);
        mr_free(c->parts[i].path);
    }
    mr_manifest_fini(&c->manifest);
    mr_free(c->parts);
    mr_free(c->plain);
    mr_free(c->tensors);
    mr_free(c->by_name);
    mr_free(c->block);
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
    return c->manifest.text;
}
int64_t mr_ckpt_step(const mr_ckpt *c)
{
    return c->manifest.text ? c->manifest.step : -1;
}

int64_t mr_ckpt_bytes(const mr_ckpt *c)
{
    int64_t total = 0;
    for (int i = 0; i < c->n_parts; i++) {
        total += c->parts[i].bytes;
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

/* Read one whole block of a hashed file to dst and compare. */
static mr_status read_block(const part *p, int64_t at, void *dst)
{
    size_t n = (size_t)MR_MIN(p->bytes - at, (int64_t)MR_CKPT_BLOCK);
    MR_TRY(mr_file_read_at(p->fd, dst, n, at, p->path));
    mr_hash128 h = mr_hash128_of(dst, n), want = p->hashes->blocks[at / MR_CKPT_BLOCK];
    if (h.lo == want.lo && h.hi == want.hi)
        return MR_OK;
    return mr_fail(MR_E_FORMAT, "%s: damaged: bytes %lld to %lld do not match their hash", p->path,
                   (long long)at, (long long)at + (long long)n);
}

mr_status mr_ckpt_read(mr_ckpt *c, const char *name, void *dst, int64_t offset, int64_t n)
{
    const mr_st_tensor *t = mr_ckpt_find(c, name);
    if (!t)
        return mr_ckpt_missing(c, name);
    if (offset < 0 || n < 0 || n > t->bytes || offset > t->bytes - n)
        return mr_fail(MR_E_RANGE, "%s: tensor '%s': %lld bytes from byte %lld on; it has %lld",
                       c->path, name, (long long)n, (long long)offset, (long long)t->bytes);
    const part *p = &c->parts[t->file];
    if (p->plain)
        return mr_safetensors_read(p->plain, t, dst, offset, n);
    if (p->torch)
        return mr_torch_read(p->torch, (int)(t - c->plain) - p->first, dst, offset, n);
    char *out = dst;
    for (int64_t at = t->offset + offset, end = at + n; at < end;) {
        int64_t first = at / MR_CKPT_BLOCK * MR_CKPT_BLOCK;
        int64_t take = MR_MIN(first + MR_CKPT_BLOCK, end) - at;
        if (take == MR_CKPT_BLOCK) {
            // a whole block goes straight to where it is wanted
            MR_TRY(read_block(p, first, out));
        } else {
            if (c->block_part != t->file || c->block_at != first) {
                c->block_at = -1;
                MR_TRY(read_block(p, first, c->block));
                c->block_part = t->file, c->block_at = first;
            }
            memcpy(out, c->block + (at - first), (size_t)take);
        }
        out += take, at += take;
    }
    return MR_OK;
}

static mr_status verify_committed(mr_ckpt *c, const part *p)
{
    mr_hasher *whole = mr_hasher_new();
    mr_status st = whole ? MR_OK : mr_fail_memory(64);
    for (int64_t at = 0; at < p->bytes && st == MR_OK; at += MR_CKPT_BLOCK) {
        st = read_block(p, at, c->block);
        if (st == MR_OK)
            mr_hasher_add(whole, c->block, (size_t)MR_MIN(p->bytes - at, (int64_t)MR_CKPT_BLOCK));
    }
    mr_hash128 h = st == MR_OK ? mr_hasher_digest(whole) : (mr_hash128){0};
    mr_hasher_free(whole);
    MR_TRY(st);
    if (h.lo != p->hashes->whole.lo || h.hi != p->hashes->whole.hi)
        return mr_fail(MR_E_FORMAT, "%s: damaged: the file does not match its hash", p->path);
    return MR_OK;
}

mr_status mr_ckpt_verify(mr_ckpt *c)
{
    c->block_at = -1;
    for (int i = 0; i < c->n_parts; i++) {
        const part *p = &c->parts[i];
        if (p->plain)
            return mr_fail(MR_E_USAGE, "%s: a plain file has no hashes to verify", p->path);
        MR_TRY(p->torch ? mr_torch_verify(p->torch) : verify_committed(c, p));
    }
    return MR_OK;
}
