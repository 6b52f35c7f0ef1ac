/* ckpt: read safetensors files under strict rules (reference: reliability 6).
 *
 * The file: a length word of 8 bytes, a header in JSON, the data of all tensors. The header is one
 * object with a member for each tensor, {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
 * where offsets count from the start of the data, and a member __metadata__ with texts. Everything
 * is checked before the first tensor is returned.
 * Licence: Apache-2.0 */
#include "moonreel/ckpt.h"
#include "base/json_fields.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct mr_safetensors {
    int fd;
    char *path;
    mr_arena names;
    mr_st_tensor *tensors; // in the order of their data
    int n, cap;
    mr_st_pair *meta; // sorted by key
    int n_meta, cap_meta;
    bool has_meta;
};

/* Orders tensors by their data. An empty tensor is before the one that starts at the same byte.
 * Empty ones at the same byte are ordered by name. */
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

/* ---- one member of the header ---- */

/* Grows the list for one more element after the n present ones, and may move it. NULL: no memory;
 * the list is unchanged. */
static void *with_room(void *list, int n, int *cap, size_t bytes)
{
    if (n < *cap)
        return list;
    int more = *cap ? 2 * *cap : 64;
    void *grown = mr_realloc(list, bytes * (size_t)more);
    if (grown)
        *cap = more;
    else
        mr_fail_memory(bytes * (size_t)more);
    return grown;
}

static bool read_i64(const json_t *v, int64_t *out)
{
    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= 0;
}

static mr_status read_dtype(const char *path, const char *name, const json_t *v, mr_st_tensor *t)
{
    const char *text = json_string_value(v);
    t->dtype = mr_st_dtype_from_name(text);
    // our own name "f32" is not valid in a file
    if (t->dtype == MR_ST_DTYPE_COUNT || strcmp(mr_st_dtype_file_name(t->dtype), text))
        return mr_fail(MR_E_FORMAT, "%s: tensor '%s': unknown dtype '%.40s'", path, name, text);
    return MR_OK;
}

static mr_status read_shape(const char *path, const char *name, const json_t *v, mr_st_tensor *t)
{
    if (json_array_size(v) > MR_ST_RANK_MAX)
        return mr_fail(MR_E_FORMAT, "%s: tensor '%s': %zu dimensions; at most %d", path, name,
                       json_array_size(v), MR_ST_RANK_MAX);
    t->rank = (int)json_array_size(v);
    for (int i = 0; i < t->rank; i++)
        if (!read_i64(json_array_get(v, (size_t)i), &t->shape[i]))
            return mr_fail(MR_E_FORMAT, "%s: tensor '%s': dimension %d is not a natural number",
                           path, name, i);
    return MR_OK;
}

static mr_status read_offsets(const char *path, const char *name, const json_t *v, mr_st_tensor *t)
{
    int64_t end, want;
    if (json_array_size(v) != 2 || !read_i64(json_array_get(v, 0), &t->offset) ||
        !read_i64(json_array_get(v, 1), &end) || end < t->offset)
        return mr_fail(MR_E_FORMAT, "%s: tensor '%s': data_offsets is not [begin, end]", path,
                       name);
    t->bytes = end - t->offset;
    if (mr_st_shape_bytes(t->dtype, t->rank, t->shape, &want) != MR_OK)
        return mr_fail_note("%s: tensor '%s'", path, name);
    if (want != t->bytes)
        return mr_fail(MR_E_FORMAT,
                       "%s: tensor '%s': its shape needs %lld bytes, data_offsets give %lld", path,
                       name, (long long)want, (long long)t->bytes);
    return MR_OK;
}

/* Reads the description of one tensor into *t. The offset is still relative to the data. */
static mr_status read_tensor(const char *path, const char *name, const json_t *v, mr_st_tensor *t)
{
    const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"),
                 *offsets = json_object_get(v, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_object_size(v) != 3)
        return mr_fail(MR_E_FORMAT,
                       "%s: tensor '%s': expected exactly dtype, shape and data_offsets", path,
                       name);
    MR_TRY(read_dtype(path, name, dtype, t));
    MR_TRY(read_shape(path, name, shape, t));
    return read_offsets(path, name, offsets, t);
}

static mr_status add_tensor(mr_safetensors *st, const char *name, mr_json_part value)
{
    if (!*name || strlen(name) > MR_ST_NAME_MAX)
        return mr_fail(MR_E_FORMAT, "%s: tensor name '%.80s': expected 1 to %d bytes", st->path,
                       name, MR_ST_NAME_MAX);
    mr_st_tensor *list = with_room(st->tensors, st->n, &st->cap, sizeof *list);
    if (!list)
        return MR_E_MEMORY;
    st->tensors = list;
    mr_st_tensor *t = &list[st->n];
    json_t *v;
    *t = (mr_st_tensor){.name = mr_arena_strdup(&st->names, name)};
    if (!t->name)
        return mr_fail_memory(strlen(name));
    MR_TRY(mr_json_parse(value, &v));
    mr_status status = read_tensor(st->path, name, v, t);
    json_decref(v);
    st->n += status == MR_OK;
    return status;
}

/* Stores key and text in one allocation, because there may be millions of short ones. */
static mr_status keep_pair(mr_safetensors *st, mr_st_pair *p, const char *key, const char *text)
{
    size_t key_bytes = strlen(key) + 1, text_bytes = strlen(text) + 1;
    char *copy = mr_arena_alloc(&st->names, key_bytes + text_bytes);
    if (!copy)
        return mr_fail_memory(key_bytes + text_bytes);
    p->key = memcpy(copy, key, key_bytes);
    p->value = memcpy(copy + key_bytes, text, text_bytes);
    st->n_meta++;
    return MR_OK;
}

static mr_status add_pair(void *user, const char *key, mr_json_part value)
{
    mr_safetensors *st = user;
    mr_st_pair *list = with_room(st->meta, st->n_meta, &st->cap_meta, sizeof *list);
    if (!list)
        return MR_E_MEMORY;
    st->meta = list;
    json_t *v;
    MR_TRY(mr_json_parse(value, &v));
    mr_status status =
        json_is_string(v)
            ? keep_pair(st, &list[st->n_meta], key, json_string_value(v))
            : mr_fail(MR_E_FORMAT, "%s: __metadata__ '%.100s' is not text", st->path, key);
    json_decref(v);
    return status;
}

static mr_status add_member(void *user, const char *key, mr_json_part value)
{
    mr_safetensors *st = user;
    if (strcmp(key, "__metadata__"))
        return add_tensor(st, key, value);
    if (st->has_meta)
        return mr_fail(MR_E_FORMAT, "%s: __metadata__ occurs twice", st->path);
    if (*value.at != '{')
        return mr_fail(MR_E_FORMAT, "%s: __metadata__ is not an object", st->path);
    st->has_meta = true;
    return mr_json_fields(value, add_pair, st);
}

/* ---- the header as a whole ---- */

static mr_status sort_meta(mr_safetensors *st)
{
    if (st->n_meta)
        qsort(st->meta, (size_t)st->n_meta, sizeof *st->meta, by_key);
    for (int i = 1; i < st->n_meta; i++)
        if (strcmp(st->meta[i - 1].key, st->meta[i].key) == 0)
            return mr_fail(MR_E_FORMAT, "%s: __metadata__ '%.100s' occurs twice", st->path,
                           st->meta[i].key);
    return MR_OK;
}

/* Checks that no two tensors have the same name. */
static mr_status check_names(const mr_safetensors *st)
{
    const mr_st_tensor **list = mr_calloc((size_t)st->n + 1, sizeof *list);
    if (!list)
        return mr_fail_memory(sizeof *list * (size_t)st->n);
    for (int i = 0; i < st->n; i++)
        list[i] = &st->tensors[i];
    qsort(list, (size_t)st->n, sizeof *list, by_name);
    mr_status result = MR_OK;
    for (int i = 1; i < st->n && result == MR_OK; i++)
        if (strcmp(list[i - 1]->name, list[i]->name) == 0)
            result = mr_fail(MR_E_FORMAT, "%s: tensor '%s' occurs twice", st->path, list[i]->name);
    mr_free(list);
    return result;
}

/* Checks that the tensors, sorted by offset, cover the data without gap or overlap. Then makes the
 * offsets relative to the start of the file. */
static mr_status check_cover(mr_safetensors *st, int64_t data_at, int64_t data_bytes)
{
    int64_t at = 0;
    for (int i = 0; i < st->n; i++) {
        mr_st_tensor *t = &st->tensors[i];
        if (t->offset != at)
            return mr_fail(MR_E_FORMAT,
                           "%s: tensor '%s' starts at byte %lld of the data, expected %lld",
                           st->path, t->name, (long long)t->offset, (long long)at);
        // no overflow: this is the end in data_offsets
        at += t->bytes;
        if (at > data_bytes)
            break;
        t->offset += data_at;
    }
    if (at != data_bytes)
        return mr_fail(MR_E_FORMAT,
                       "%s: the tensors have %lld bytes, but the data of the file has %lld",
                       st->path, (long long)at, (long long)data_bytes);
    return MR_OK;
}

static mr_status read_header(mr_safetensors *st, const char *text, int64_t length, int64_t size)
{
    if (length < 2 || text[0] != '{')
        return mr_fail(MR_E_FORMAT, "%s: the header is not a JSON object", st->path);
    MR_TRY(mr_json_fields((mr_json_part){st->path, text, text, text + length, MR_JSON_DEPTH},
                          add_member, st));
    MR_TRY(sort_meta(st));
    if (st->n)
        qsort(st->tensors, (size_t)st->n, sizeof *st->tensors, by_offset);
    MR_TRY(check_names(st));
    return check_cover(st, 8 + length, size - 8 - length);
}

/* Reads and checks the length word and the header after it. */
static mr_status read_start(mr_safetensors *st, int64_t header_max, int64_t size)
{
    uint64_t length;
    if (size < 8)
        return mr_fail(MR_E_FORMAT, "%s: %lld bytes: too short for a safetensors file", st->path,
                       (long long)size);
    MR_TRY(mr_file_read_at(st->fd, &length, sizeof length, 0, st->path));
    if (length > (uint64_t)header_max)
        return mr_fail(
            MR_E_FORMAT,
            "%s: a header of %llu bytes; expected at most %lld; try: is it a safetensors "
            "file?",
            st->path, (unsigned long long)length, (long long)header_max);
    if ((int64_t)length > size - 8)
        return mr_fail(MR_E_FORMAT, "%s: the header ends at byte %llu, the file at %lld", st->path,
                       (unsigned long long)length + 8, (long long)size);
    char *text = mr_alloc((size_t)length + 1);
    if (!text)
        return mr_fail_memory(length);
    mr_status status = mr_file_read_at(st->fd, text, (size_t)length, 8, st->path);
    if (status == MR_OK)
        status = read_header(st, text, (int64_t)length, size);
    mr_free(text);
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
    int64_t most = header_max > 0 ? MR_MIN(header_max, MR_ST_HEADER_MAX_LARGE) : MR_ST_HEADER_MAX;
    mr_status status = MR_OK;
    struct stat s;
    if (!(st->path = mr_strdup(path)))
        status = mr_fail_memory(strlen(path));
    // without O_NONBLOCK, opening a pipe would wait forever
    else if ((st->fd = mr_io_table()->open(path, O_RDONLY | O_NONBLOCK, 0)) < 0 ||
             fstat(st->fd, &s))
        status = mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    else if (!S_ISREG(s.st_mode))
        status = mr_fail(MR_E_FORMAT, "%s: not a regular file", path);
    else
        status = mr_fail_try(read_start(st, most, s.st_size), "copy or download it again");
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
        return mr_fail(
            MR_E_RANGE,
            "%s: tensor '%s': %lld bytes from byte %lld on; expected a range in its %lld", st->path,
            t->name, (long long)n, (long long)offset, (long long)t->bytes);
    return mr_file_read_at(st->fd, dst, (size_t)n, t->offset + offset, st->path);
}
