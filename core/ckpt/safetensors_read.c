/* ckpt: read safetensors files under strict rules (reference: reliability 6). The file: u64 length
 * of the header, JSON header, data; everything is checked before the first tensor is handed out.
 * Licence: Apache-2.0 */
#include "ckpt/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct mr_safetensors {
    int fd;
    char *path;
    mr_arena names;
    mr_st_tensor *tensors; // in the order of their data
    const mr_st_tensor **by_name;
    int n;
    mr_st_pair *meta; // sorted by key
    int n_meta;
};

/* Data order; empty tensors stand before what starts at the same byte, then by name. */
static int by_offset(const void *pa, const void *pb)
{
    const mr_st_tensor *a = pa, *b = pb;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int by_name(const void *pa, const void *pb)
{
    return strcmp((*(const mr_st_tensor *const *)pa)->name,
                  (*(const mr_st_tensor *const *)pb)->name);
}

static int by_key(const void *pa, const void *pb)
{
    return strcmp(((const mr_st_pair *)pa)->key, ((const mr_st_pair *)pb)->key);
}

static bool read_i64(const json_t *v, int64_t *out)
{
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

/* One entry {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} into *t, offsets still
 * relative to the data. */
static mr_status read_entry(const char *path, const char *name, json_t *v, mr_st_tensor *t)
{
    const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"),
                 *offsets = json_object_get(v, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_object_size(v) != 3)
        return mr_fail(MR_E_FORMAT,
                       "%s: tensor '%s': expected exactly dtype, shape and data_offsets", path,
                       name);
    t->dtype = mr_st_dtype_from_name(json_string_value(dtype));
    if (t->dtype == MR_ST_DTYPE_COUNT ||
        strcmp(mr_st_dtype_file_name(t->dtype), json_string_value(dtype)))
        return mr_fail(MR_E_FORMAT, "%s: tensor '%s': unknown dtype '%.40s'", path, name,
                       json_string_value(dtype));
    if (json_array_size(shape) > MR_ST_RANK_MAX)
        return mr_fail(MR_E_FORMAT, "%s: tensor '%s': %zu dimensions; at most %d", path, name,
                       json_array_size(shape), MR_ST_RANK_MAX);
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++)
        if (!read_i64(json_array_get(shape, (size_t)i), &t->shape[i]))
            return mr_fail(MR_E_FORMAT, "%s: tensor '%s': dimension %d is not a natural number",
                           path, name, i);
    int64_t end, want;
    if (json_array_size(offsets) != 2 || !read_i64(json_array_get(offsets, 0), &t->offset) ||
        !read_i64(json_array_get(offsets, 1), &end) || end < t->offset)
        return mr_fail(MR_E_FORMAT, "%s: tensor '%s': data_offsets is not [begin, end]", path,
                       name);
    t->bytes = end - t->offset;
    if (mr_st_shape_bytes(t->dtype, t->rank, t->shape, &want) != MR_OK)
        return mr_fail_note("%s: tensor '%s'", path, name);
    if (want != t->bytes)
        return mr_fail(MR_E_FORMAT,
                       "%s: tensor '%s': its shape needs %lld bytes, data_offsets hold %lld", path,
                       name, (long long)want, (long long)t->bytes);
    return MR_OK;
}

static mr_status read_meta(mr_safetensors *st, json_t *v)
{
    const char *key;
    json_t *text;
    if (!json_is_object(v))
        return mr_fail(MR_E_FORMAT, "%s: __metadata__ is not an object", st->path);
    st->meta = mr_calloc(json_object_size(v), sizeof *st->meta);
    if (!st->meta)
        return mr_fail_memory(json_object_size(v) * sizeof *st->meta);
    json_object_foreach(v, key, text)
    {
        if (!json_is_string(text))
            return mr_fail(MR_E_FORMAT, "%s: __metadata__ '%.100s' is not text", st->path, key);
        mr_st_pair *p = &st->meta[st->n_meta];
        p->key = mr_arena_strdup(&st->names, key);
        p->value = mr_arena_strdup(&st->names, json_string_value(text));
        if (!p->key || !p->value)
            return mr_fail_memory(json_string_length(text));
        st->n_meta++;
    }
    qsort(st->meta, (size_t)st->n_meta, sizeof *st->meta, by_key);
    return MR_OK;
}

static mr_status read_entries(mr_safetensors *st, json_t *root, int64_t data_at, int64_t data_bytes)
{
    size_t cap = json_object_size(root);
    const char *name;
    json_t *v;
    st->tensors = mr_calloc(cap, sizeof *st->tensors);
    st->by_name = mr_calloc(cap, sizeof *st->by_name);
    if (!st->tensors || !st->by_name)
        return mr_fail_memory(cap * sizeof *st->tensors);
    json_object_foreach(root, name, v)
    {
        if (strcmp(name, "__metadata__") == 0) {
            MR_TRY(read_meta(st, v));
            continue;
        }
        if (!*name || strlen(name) > MR_ST_NAME_MAX)
            return mr_fail(MR_E_FORMAT, "%s: tensor name '%.80s': expected 1 to %d bytes", st->path,
                           name, MR_ST_NAME_MAX);
        mr_st_tensor *t = &st->tensors[st->n];
        MR_TRY(read_entry(st->path, name, v, t));
        if (!(t->name = mr_arena_strdup(&st->names, name)))
            return mr_fail_memory(strlen(name));
        st->n++;
    }
    // the data is covered without gap or overlap
    qsort(st->tensors, (size_t)st->n, sizeof *st->tensors, by_offset);
    int64_t at = 0;
    for (int i = 0; i < st->n; i++) {
        mr_st_tensor *t = &st->tensors[i];
        if (t->offset != at)
            return mr_fail(MR_E_FORMAT,
                           "%s: tensor '%s' starts at byte %lld of the data, expected %lld",
                           st->path, t->name, (long long)t->offset, (long long)at);
        // no overflow: checked against the data below, and each end was a natural number
        at += t->bytes;
        t->offset += data_at;
        st->by_name[i] = t;
    }
    if (at != data_bytes)
        return mr_fail(MR_E_FORMAT, "%s: the tensors hold %lld bytes, the file has %lld for them",
                       st->path, (long long)at, (long long)data_bytes);
    qsort(st->by_name, (size_t)st->n, sizeof *st->by_name, by_name);
    return MR_OK;
}

static mr_status read_header(mr_safetensors *st, int64_t header_max, int64_t size)
{
    unsigned char word[8];
    if (size < 8)
        return mr_fail(MR_E_FORMAT, "%s: %lld bytes: too short for a safetensors file", st->path,
                       (long long)size);
    MR_TRY(mr_file_read_at(st->fd, word, 8, 0, st->path));
    uint64_t length;
    memcpy(&length, word, 8);
    if (length > (uint64_t)header_max)
        return mr_fail(MR_E_FORMAT, "%s: a header of %llu bytes; at most %lld", st->path,
                       (unsigned long long)length, (long long)header_max);
    if ((int64_t)length > size - 8)
        return mr_fail(MR_E_FORMAT, "%s: the header ends at byte %llu, the file at %lld", st->path,
                       (unsigned long long)length + 8, (long long)size);
    char *text = mr_alloc((size_t)length);
    if (!text)
        return mr_fail_memory(length);
    mr_status status = mr_file_read_at(st->fd, text, (size_t)length, 8, st->path);
    json_t *root = NULL;
    json_error_t err;
    if (status == MR_OK && (length < 2 || text[0] != '{'))
        status = mr_fail(MR_E_FORMAT, "%s: the header is not a JSON object", st->path);
    if (status == MR_OK && !(root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &err)))
        status = mr_json_fail(MR_E_FORMAT, st->path, &err);
    mr_free(text);
    if (status == MR_OK)
        status = read_entries(st, root, 8 + (int64_t)length, size - 8 - (int64_t)length);
    json_decref(root);
    return status;
}

mr_status mr_safetensors_open(const char *path, int64_t header_max, mr_safetensors **out)
{
    *out = NULL;
    mr_safetensors *st;
    if (!MR_NEW(st))
        return mr_fail_memory(sizeof *st);
    st->fd = -1;
    mr_arena_init(&st->names);
    mr_status status = MR_OK;
    struct stat s;
    if (!(st->path = mr_strdup(path)))
        status = mr_fail_memory(strlen(path));
    // no wait on a pipe that somebody put in the place of a file
    else if ((st->fd = mr_io_table()->open(path, O_RDONLY | O_NONBLOCK, 0)) < 0 ||
             fstat(st->fd, &s))
        status = mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode))
        status = mr_fail(MR_E_FORMAT, "%s: not a regular file", path);
    else
        status = read_header(
            st, header_max > 0 ? MR_MIN(header_max, MR_ST_HEADER_MAX_LARGE) : MR_ST_HEADER_MAX,
            s.st_size);
    if (status != MR_OK)
        mr_safetensors_close(st);
    else
        *out = st;
    return status;
}

void mr_safetensors_close(mr_safetensors *st)
{
    if (!st)
        return;
    if (st->fd >= 0)
        mr_io_table()->close(st->fd);
    mr_arena_fini(&st->names);
    mr_free(st->tensors);
    mr_free(st->by_name);
    mr_free(st->meta);
    mr_free(st->path);
    mr_free(st);
}

int mr_safetensors_count(const mr_safetensors *st)
{
    return st->n;
}
const mr_st_tensor *mr_safetensors_at(const mr_safetensors *st, int i)
{
    return &st->tensors[i];
}

const mr_st_tensor *mr_safetensors_find(const mr_safetensors *st, const char *name)
{
    for (int lo = 0, hi = st->n; lo < hi;) {
        int mid = lo + (hi - lo) / 2, order = strcmp(name, st->by_name[mid]->name);
        if (order == 0)
            return st->by_name[mid];
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const char *mr_safetensors_meta(const mr_safetensors *st, const char *key)
{
    for (int i = 0; i < st->n_meta; i++)
        if (strcmp(st->meta[i].key, key) == 0)
            return st->meta[i].value;
    return NULL;
}

int mr_safetensors_meta_count(const mr_safetensors *st)
{
    return st->n_meta;
}

void mr_safetensors_meta_at(const mr_safetensors *st, int i, const char **key, const char **value)
{
    *key = st->meta[i].key, *value = st->meta[i].value;
}

mr_status mr_safetensors_read(const mr_safetensors *st, const mr_st_tensor *t, void *dst,
                              int64_t offset, int64_t n)
{
    if (offset < 0 || n < 0 || n > t->bytes || offset > t->bytes - n)
        return mr_fail(MR_E_RANGE, "%s: tensor '%s': %lld bytes from byte %lld on; it has %lld",
                       st->path, t->name, (long long)n, (long long)offset, (long long)t->bytes);
    return mr_file_read_at(st->fd, dst, (size_t)n, t->offset + offset, st->path);
}
