/* ckpt: weights saved by torch (.pth, .bin, .pt), read as data: a zip of raw storages and one
 * pickle that names them.
 * Licence: Apache-2.0 */
#include "ckpt/room.h"

#ifdef MR_HAVE_MINIZIP

#include <stdio.h>
#include <string.h>

enum { PICKLE_MAX = 8 << 20 };

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

struct mr_torch {
    char *path;
    mr_zip zip;
    char folder[MR_ZIP_NAME]; /* of the entries */
    mr_arena arena;           /* names of tensors */
    mr_st_tensor *tensors;
    int n, cap;
};

static const mr_zip_entry *find(const mr_torch *t, const char *name)
{
    char full[2 * MR_ZIP_NAME];
    snprintf(full, sizeof full, "%s/%s", t->folder, name);
    return mr_zip_find(&t->zip, full);
}

static mr_status add_tensor(void *user, const char *name, const char *key, const mr_st_tensor *x)
{
    mr_torch *t = user;
    char file[MR_ZIP_NAME];
    snprintf(file, sizeof file, "data/%s", key);
    const mr_zip_entry *e = strlen(key) < 100 ? find(t, file) : NULL;
    if (!e)
        return BAD("%s: tensor '%.100s': its storage '%.40s' is not in the file", t->path, name,
                   key);
    if (x->offset > e->bytes || x->bytes > e->bytes - x->offset)
        return BAD("%s: tensor '%.100s' reaches past its storage", t->path, name);
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 256;
        mr_st_tensor *grown = mr_realloc(t->tensors, sizeof *grown * (size_t)cap);
        if (!grown)
            return mr_fail_memory(sizeof *grown * (size_t)cap);
        t->tensors = grown, t->cap = cap;
    }
    mr_st_tensor *out = &t->tensors[t->n];
    *out = *x;
    out->name = mr_arena_strdup(&t->arena, name), out->offset += e->at;
    if (!out->name)
        return mr_fail_memory(strlen(name));
    t->n++;
    return MR_OK;
}

// FOLDER/data.pkl, which names the folder of all others
static mr_status find_folder(mr_torch *t)
{
    for (int i = 0; i < t->zip.n; i++) {
        const char *name = t->zip.entries[i].name;
        size_t n = strlen(name);
        if (n < 9 || strcmp(name + n - 9, "/data.pkl") || memchr(name, '/', n - 9))
            continue;
        snprintf(t->folder, sizeof t->folder, "%.*s", (int)(n - 9), name);
    }
    return *t->folder ? MR_OK : BAD("%s: no data.pkl in it", t->path);
}

static mr_status open_zip(mr_torch *t)
{
    MR_TRY(mr_zip_open(&t->zip, t->path));
    MR_TRY(find_folder(t));
    const mr_zip_entry *index = find(t, "data.pkl"), *order = find(t, "byteorder");
    if (index->bytes > PICKLE_MAX)
        return BAD("%s: data.pkl has %lld bytes, at most %d", t->path, (long long)index->bytes,
                   PICKLE_MAX);
    char ending[16] = "";
    if (order && order->bytes < (int64_t)sizeof ending) {
        MR_TRY(mr_zip_read(&t->zip, order, ending));
        if (strcmp(ending, "little"))
            return BAD("%s: byte order '%s'; expected little", t->path, ending);
    }
    void *pickle = mr_alloc((size_t)index->bytes + 1);
    if (!pickle)
        return mr_fail_memory((size_t)index->bytes);
    mr_status st = mr_zip_read(&t->zip, index, pickle);
    if (st == MR_OK)
        st = mr_pickle_walk(t->path, pickle, (size_t)index->bytes, add_tensor, t);
    mr_free(pickle);
    return st;
}

mr_status mr_torch_open(const char *path, mr_torch **out)
{
    mr_torch *t;
    *out = NULL;
    if (!MR_NEW(t))
        return mr_fail_memory(sizeof *t);
    mr_arena_init(&t->arena);
    t->zip.fd = -1;
    mr_status st = (t->path = mr_strdup(path)) ? open_zip(t) : mr_fail_memory(strlen(path));
    if (st != MR_OK)
        mr_torch_close(t);
    else
        *out = t;
    return st;
}

void mr_torch_close(mr_torch *t)
{
    if (!t)
        return;
    mr_zip_close(&t->zip);
    mr_free(t->tensors);
    mr_arena_fini(&t->arena);
    mr_free(t->path);
    mr_free(t);
}

int mr_torch_count(const mr_torch *t)
{
    return t->n;
}
const mr_st_tensor *mr_torch_at(const mr_torch *t, int i)
{
    return &t->tensors[i];
}

mr_status mr_torch_read(const mr_torch *t, const mr_st_tensor *x, void *dst, int64_t offset,
                        int64_t n)
{
    return mr_file_read_at(t->zip.fd, dst, (size_t)n, x->offset + offset, t->path);
}
#else
mr_status mr_torch_open(const char *path, mr_torch **out)
{
    *out = NULL;
    return mr_fail(
        MR_E_UNSUPPORTED,
        "%s: this build cannot read files of torch; try: libminizip-dev, or convert to safetensors",
        path);
}
void mr_torch_close(mr_torch *t)
{
    (void)t;
}
int mr_torch_count(const mr_torch *t)
{
    return (void)t, 0;
}
const mr_st_tensor *mr_torch_at(const mr_torch *t, int i)
{
    return (void)t, (void)i, NULL;
}
mr_status mr_torch_read(const mr_torch *t, const mr_st_tensor *x, void *dst, int64_t offset,
                        int64_t n)
{
    (void)t, (void)x, (void)dst, (void)offset, (void)n;
    return mr_fail(MR_E_UNSUPPORTED, "this build cannot read files of torch");
}
#endif
