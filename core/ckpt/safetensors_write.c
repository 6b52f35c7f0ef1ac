/* ckpt: writes safetensors files: the header from a list of items, then their bytes in order.
 * Licence: Apache-2.0 */
#include "moonreel/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_utf8(const char *text)
{
    size_t left = strlen(text), n;
    uint32_t code;
    while (left && (n = mr_utf8(text, left, &code)))
        text += n, left -= n;
    return !left;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static mr_status check_names(const mr_ckpt_item *items, int n)
{
    const char **names = mr_alloc(sizeof *names * (size_t)n);
    if (!names)
        return mr_fail_memory(sizeof *names * (size_t)n);
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++) {
        names[i] = items[i].name;
        size_t len = strlen(names[i]);
        if (!len || len > MR_ST_NAME_MAX || strcmp(names[i], "__metadata__") == 0)
            st =
                mr_fail(MR_E_USAGE, "tensor name '%.80s': expected 1 to %d bytes, not __metadata__",
                        names[i], MR_ST_NAME_MAX);
        else if (!is_utf8(names[i]))
            st = mr_fail(MR_E_USAGE, "tensor %d: its name is not UTF-8", i);
    }
    if (st == MR_OK) {
        qsort(names, (size_t)n, sizeof *names, by_text);
        for (int i = 1; i < n && st == MR_OK; i++)
            if (strcmp(names[i], names[i - 1]) == 0)
                st = mr_fail(MR_E_USAGE, "tensor '%s' occurs twice", names[i]);
    }
    mr_free(names);
    return st;
}

static json_t *entry(const mr_ckpt_item *item, int64_t begin, int64_t end)
{
    json_t *shape = json_array();
    bool bad = !shape;
    for (int i = 0; i < item->rank && !bad; i++)
        bad = json_array_append_new(shape, json_integer(item->shape[i])) != 0;
    if (bad) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", mr_st_dtype_file_name(item->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static mr_status build(json_t *root, const mr_ckpt_item *items, int n, const mr_st_pair *meta,
                       int n_meta, int64_t *offsets, int64_t *data)
{
    if (n_meta) {
        json_t *pairs = json_object();
        if (json_object_set_new(root, "__metadata__", pairs))
            return mr_fail_memory(64);
        for (int i = 0; i < n_meta; i++) {
            if (!is_utf8(meta[i].key) || !is_utf8(meta[i].value))
                return mr_fail(MR_E_USAGE, "metadata %d is not UTF-8", i);
            if (json_object_set_new(pairs, meta[i].key, json_string(meta[i].value)))
                return mr_fail_memory(64);
        }
    }
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        if (items[i].slice.cut != MR_CKPT_ALL)
            return mr_fail(MR_E_USAGE, "tensor '%s': got a part of it; expected the whole tensor",
                           items[i].name);
        if (items[i].rank < 0 || items[i].rank > MR_ST_RANK_MAX ||
            (unsigned)items[i].dtype >= MR_ST_DTYPE_COUNT)
            return mr_fail(MR_E_USAGE, "tensor '%s': rank %d or dtype is out of range",
                           items[i].name, items[i].rank);
        if (mr_st_shape_bytes(items[i].dtype, items[i].rank, items[i].shape, &bytes) != MR_OK)
            return mr_fail_note("tensor '%s'", items[i].name);
        if (offsets)
            offsets[i] = *data;
        if (bytes > INT64_MAX / 2 - *data)
            return mr_fail(MR_E_USAGE, "tensor '%s': the file gets too large", items[i].name);
        if (json_object_set_new(root, items[i].name, entry(&items[i], *data, *data + bytes)))
            return mr_fail_memory(256);
        *data += bytes;
    }
    return MR_OK;
}

mr_status mr_safetensors_header(const mr_ckpt_item *items, int n, const mr_st_pair *meta,
                                int n_meta, char **header, int64_t *header_bytes, int64_t *offsets,
                                int64_t *total)
{
    *header = NULL;
    MR_TRY(check_names(items, n));
    json_t *root = json_object();
    if (!root)
        return mr_fail_memory(64);
    int64_t data = 0;
    mr_status st = build(root, items, n, meta, n_meta, offsets, &data);
    char *text = NULL;
    size_t size = 0;
    if (st == MR_OK) {
        size = json_dumpb(root, NULL, 0, JSON_COMPACT);
        size_t padded = (size + 7) / 8 * 8;
        if (size > MR_ST_HEADER_MAX_LARGE - 8)
            st = mr_fail(MR_E_USAGE, "a header of %zu bytes; expected at most %d", size,
                         MR_ST_HEADER_MAX_LARGE);
        else if (!size || !(text = mr_alloc(8 + padded)))
            st = mr_fail_memory(8 + padded);
        else {
            memset(text + 8 + size, ' ', padded - size);
            if (json_dumpb(root, text + 8, size, JSON_COMPACT) != size)
                st = mr_fail_memory(size);
            uint64_t length = padded;
            memcpy(text, &length, 8);
            size = 8 + padded;
        }
    }
    json_decref(root);
    if (st != MR_OK) {
        mr_free(text);
        return st;
    }
    for (int i = 0; offsets && i < n; i++)
        offsets[i] += (int64_t)size;
    *header = text, *header_bytes = (int64_t)size, *total = (int64_t)size + data;
    return MR_OK;
}

static mr_status write_item(int fd, const char *path, const mr_ckpt_item *item, char *scratch,
                            int64_t cap)
{
    int64_t bytes;
    MR_TRY(mr_st_shape_bytes(item->dtype, item->rank, item->shape, &bytes));
    if (!item->copy)
        return mr_file_write_full(fd, item->data, (size_t)bytes, path);
    for (int64_t at = 0; at < bytes; at += cap) {
        int64_t n = MR_MIN(cap, bytes - at);
        MR_TRY(item->copy(item->user, scratch, at, n));
        MR_TRY(mr_file_write_full(fd, scratch, (size_t)n, path));
    }
    return MR_OK;
}

mr_status mr_safetensors_write(const char *path, const mr_ckpt_item *items, int n,
                               const mr_st_pair *meta, int n_meta)
{
    enum { SCRATCH = 1 << 20 };
    const mr_io *io = mr_io_table();
    char tmp[4096], dir[4096], *header, *scratch = mr_alloc(SCRATCH);
    if (!scratch)
        return mr_fail_memory(SCRATCH);
    int64_t header_bytes, total;
    mr_status st =
        mr_safetensors_header(items, n, meta, n_meta, &header, &header_bytes, NULL, &total);
    if (st != MR_OK) {
        mr_free(scratch);
        return st;
    }
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    snprintf(slash ? slash + (slash == dir) : dir, 2, "%s", slash ? "" : ".");
    int fd = -1;
    st = mr_temporary_path(path, tmp, sizeof tmp);
    // an error names the final path, not the temporary one
    if (st == MR_OK && (fd = io->open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0)
        st = mr_fail(MR_E_IO, "%s: cannot create: %s", path, strerror(errno));
    if (st == MR_OK) {
        mr_temporary_hold(fd);
        st = mr_file_write_full(fd, header, (size_t)header_bytes, path);
        for (int i = 0; i < n && st == MR_OK; i++)
            st = write_item(fd, path, &items[i], scratch, SCRATCH);
        if (st == MR_OK && io->fsync(fd))
            st = mr_fail(MR_E_IO, "%s: cannot sync: %s", path, strerror(errno));
        if (io->close(fd) && st == MR_OK)
            st = mr_fail(MR_E_IO, "%s: cannot close: %s", path, strerror(errno));
        if (st == MR_OK && io->rename(tmp, path))
            st = mr_fail(MR_E_IO, "%s: cannot rename to: %s", path, strerror(errno));
        if (st != MR_OK)
            io->unlink(tmp);
        else
            st = mr_dir_sync(dir);
    }
    mr_free(header);
    mr_free(scratch);
    return st;
}
