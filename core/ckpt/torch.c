/* ckpt: reads weights saved by torch (.pth, .bin, .pt, .ckpt) as data: one pickle that names
 * tensors, and raw storages. Since torch 1.6 such a file is a zip archive; legacy.c reads the older
 * format.
 * Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* OVERLAP_MAX limits tensors whose elements overlap: an expanded tensor may have any shape over few
 * bytes. */
enum { PICKLE_MAX = 8 << 20, NAMES_MAX = 16 << 20, OVERLAP_MAX = 64 << 20 };

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

/* A tensor with its place; at.offset is the file offset of its first element. */
typedef struct placed {
    mr_st_tensor at;
    int64_t stride[MR_ST_RANK_MAX];
    int64_t span; // bytes from the first element to the end of the last one in storage
    mr_entry *storage;
    bool dense;
} placed;

struct mr_torch {
    char *path;
    int fd;
    int64_t size;
    bool is_zip;
    char folder[MR_ENTRY_NAME]; // folder of the entries of a zip
    mr_entries entries;
    mr_arena arena; // names
    placed *tensors;
    mr_st_refused *refused;
    int n, cap, n_refused, cap_refused;
    size_t names; // bytes of names and records so far
    char *span;   // bytes of the storage that the strided tensor `span_of` needs
    int span_of;
};

/* ---- tensors and their places ---- */

static mr_entry *find(const mr_torch *t, const char *name)
{
    char full[2 * MR_ENTRY_NAME + 2];
    snprintf(full, sizeof full, "%s/%s", t->folder, name);
    return mr_entries_find(&t->entries, full);
}

static mr_entry *find_storage(const mr_torch *t, const mr_pickled *key)
{
    char name[MR_ENTRY_NAME];
    if (key->n >= MR_ENTRY_NAME - 8)
        return NULL;
    snprintf(name, sizeof name, "%s%.*s", t->is_zip ? "data/" : "", key->n, key->text);
    return t->is_zip ? find(t, name) : mr_entries_find(&t->entries, name);
}

static bool is_dense(const mr_torch_tensor *x)
{
    int64_t dense = 1;
    for (int i = x->at.rank - 1; i >= 0 && x->at.bytes; i--) {
        if (x->at.shape[i] > 1 && x->stride[i] != dense)
            return false;
        dense *= x->at.shape[i];
    }
    return true;
}

/* Counts the storage elements from the first to the last one of the tensor, inclusive; false:
 * overflow. */
static bool reach_of(const mr_torch_tensor *x, int64_t *reach)
{
    *reach = x->at.bytes > 0;
    for (int i = 0; i < x->at.rank && x->at.bytes; i++) {
        int64_t steps;
        if (__builtin_mul_overflow(x->at.shape[i] - 1, x->stride[i], &steps) ||
            __builtin_add_overflow(*reach, steps, reach))
            return false;
    }
    return true;
}

/* Finds the place of a tensor in the file and checks all bounds. */
static mr_status place(const mr_torch *t, const char *name, const mr_torch_tensor *x, placed *out)
{
    const mr_torch_storage *s = x->storage;
    int64_t size = (int64_t)mr_st_dtype_bytes(x->at.dtype), reach;
    mr_entry *e = find_storage(t, s->key);
    if (!e)
        return BAD("%s: tensor '%.100s': its storage '%.*s' is not in the file", t->path, name,
                   MR_MIN(s->key->n, 40), s->key->text);
    if (e->bytes != s->bytes)
        return BAD("%s: tensor '%.100s': its storage '%.*s' has %lld bytes, expected %lld", t->path,
                   name, MR_MIN(s->key->n, 40), s->key->text, (long long)e->bytes,
                   (long long)s->bytes);
    // in elements of the tensor, because the storage may consist of bytes
    int64_t window = s->window * s->size / size;
    if (!reach_of(x, &reach) || reach > window || x->first > window - reach)
        return BAD("%s: tensor '%.100s' reaches past its storage", t->path, name);
    *out = (placed){.at = x->at, .storage = e, .span = reach * size, .dense = is_dense(x)};
    out->at.offset = e->at + s->first * s->size + x->first * size;
    memcpy(out->stride, x->stride, sizeof out->stride);
    return MR_OK;
}

static mr_status keep_name(mr_torch *t, const char *name, const char **out)
{
    t->names += strlen(name) + sizeof(placed);
    if (t->names > NAMES_MAX)
        return BAD("%s: its tensor names take more than %d MiB", t->path, NAMES_MAX >> 20);
    *out = mr_arena_strdup(&t->arena, name);
    return *out ? MR_OK : mr_fail_memory(strlen(name));
}

static mr_status add_refused(mr_torch *t, const char *name, const char *why)
{
    if (t->n_refused == t->cap_refused) {
        int cap = t->cap_refused ? 2 * t->cap_refused : 16;
        mr_st_refused *grown = mr_realloc(t->refused, sizeof *grown * (size_t)cap);
        if (!grown)
            return mr_fail_memory(sizeof *grown * (size_t)cap);
        t->refused = grown, t->cap_refused = cap;
    }
    t->refused[t->n_refused++] = (mr_st_refused){name, why};
    return MR_OK;
}

static mr_status add_tensor(void *user, const char *name, const mr_torch_tensor *x)
{
    mr_torch *t = user;
    const char *kept = NULL;
    placed at;
    MR_TRY(keep_name(t, name, &kept));
    if (x->why)
        return add_refused(t, kept, x->why);
    MR_TRY(place(t, name, x, &at));
    if (at.at.bytes > OVERLAP_MAX && at.at.bytes > at.span)
        return add_refused(t, kept, "its elements overlap and would take over 64 MiB");
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 64;
        placed *grown = mr_realloc(t->tensors, sizeof *grown * (size_t)cap);
        if (!grown)
            return mr_fail_memory(sizeof *grown * (size_t)cap);
        t->tensors = grown, t->cap = cap;
    }
    at.at.name = kept;
    t->tensors[t->n++] = at;
    return MR_OK;
}

/* ---- the two forms of file ---- */

/* Exactly one entry is named FOLDER/data.pkl; FOLDER is the folder of all others. */
static mr_status find_folder(mr_torch *t)
{
    static const char tail[] = "/data.pkl";
    size_t k = sizeof tail - 1;
    for (int i = 0; i < t->entries.n; i++) {
        const char *name = t->entries.list[i].name;
        size_t n = strlen(name);
        if (n <= k || strcmp(name + n - k, tail) || memchr(name, '/', n - k))
            continue;
        if (*t->folder)
            return BAD("%s: two pickles, '%s/data.pkl' and '%s'; expected one", t->path, t->folder,
                       name);
        snprintf(t->folder, sizeof t->folder, "%.*s", (int)(n - k), name);
    }
    return *t->folder ? MR_OK : BAD("%s: no data.pkl in it", t->path);
}

static mr_status check_byte_order(mr_torch *t)
{
    char order[16] = "";
    mr_entry *e = find(t, "byteorder");
    if (!e)
        return MR_OK; // older versions did not write this entry; their files are little-endian
    if (e->bytes < (int64_t)sizeof order)
        MR_TRY(mr_entry_read(t->path, t->fd, e, order));
    return strcmp(order, "little") == 0
               ? MR_OK
               : BAD("%s: byte order '%s'; expected little", t->path, order);
}

/* Reads the first bytes of a file, which may contain pickles, or the single pickle of a zip. */
static mr_status read_pickles(mr_torch *t, mr_entry *e, char **text, size_t *bytes)
{
    int64_t n = e ? e->bytes : MR_MIN(t->size, (int64_t)PICKLE_MAX);
    if (n > PICKLE_MAX)
        return BAD("%s: data.pkl has %lld bytes; expected at most %d", t->path, (long long)n,
                   PICKLE_MAX);
    if (!(*text = mr_alloc((size_t)n + 1)))
        return mr_fail_memory((size_t)n);
    *bytes = (size_t)n;
    return e ? mr_entry_read(t->path, t->fd, e, *text)
             : mr_file_read_at(t->fd, *text, (size_t)n, 0, t->path);
}

static mr_status read_tensors(mr_torch *t, const char *text, size_t bytes)
{
    mr_pickle p;
    mr_pickled *root = NULL;
    mr_status st = mr_pickle_open(&p, t->path, text, bytes);
    if (st == MR_OK)
        st = t->is_zip ? mr_pickle_next(&p, &root)
                       : mr_legacy_read(&p, t->fd, t->size, &root, &t->entries);
    if (st == MR_OK)
        st = mr_torch_names(t->path, root, add_tensor, t);
    mr_pickle_close(&p);
    return st;
}

static mr_status open_file(mr_torch *t)
{
    struct stat s;
    char head[4], *text = NULL;
    size_t bytes = 0;
    // without O_NONBLOCK, opening a pipe would wait forever
    t->fd = mr_io_table()->open(t->path, O_RDONLY | O_NONBLOCK, 0);
    if (t->fd < 0 || fstat(t->fd, &s))
        return mr_fail(MR_E_IO, "%s: cannot open: %s", t->path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return BAD("%s: not a regular file", t->path);
    t->size = s.st_size;
    if (t->size < (int64_t)sizeof head)
        return BAD("%s: %lld bytes: too short for a file of torch", t->path, (long long)t->size);
    MR_TRY(mr_file_read_at(t->fd, head, sizeof head, 0, t->path));
    t->is_zip = memcmp(head, "PK\3\4", 4) == 0;
    if (!t->is_zip && head[0] != '\x80')
        return BAD("%s: neither a zip nor a pickle of torch.save", t->path);
    if (t->is_zip) {
        MR_TRY(mr_zip_list(t->path, t->fd, t->size, &t->entries));
        MR_TRY(find_folder(t));
        MR_TRY(check_byte_order(t));
    }
    mr_status st = read_pickles(t, t->is_zip ? find(t, "data.pkl") : NULL, &text, &bytes);
    if (st == MR_OK)
        st = read_tensors(t, text, bytes);
    mr_free(text);
    return st;
}

mr_status mr_torch_open(const char *path, mr_torch **out)
{
    mr_torch *t;
    *out = NULL;
    if (!MR_NEW(t))
        return mr_fail_memory(sizeof *t);
    mr_arena_init(&t->arena);
    t->fd = -1;
    mr_status st = (t->path = mr_strdup(path)) ? open_file(t) : mr_fail_memory(strlen(path));
    mr_fail_try(st, MR_CKPT_AGAIN ", or save its weights as safetensors");
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
    if (t->fd >= 0)
        mr_io_table()->close(t->fd);
    mr_entries_free(&t->entries);
    mr_free(t->tensors);
    mr_free(t->refused);
    mr_free(t->span);
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
    return &t->tensors[i].at;
}
int mr_torch_refused_count(const mr_torch *t)
{
    return t->n_refused;
}
const mr_st_refused *mr_torch_refused_at(const mr_torch *t, int i)
{
    return &t->refused[i];
}

/* ---- reading ---- */

static mr_status prove(const mr_torch *t, mr_entry *e)
{
    return e->proven ? MR_OK : mr_entry_check(t->path, t->fd, e);
}

static void drop_span(mr_torch *t)
{
    mr_free(t->span);
    t->span = NULL;
}

/* Reads the storage range of the strided tensor i, once. */
static mr_status hold_span(mr_torch *t, int i)
{
    const placed *x = &t->tensors[i];
    if (t->span && t->span_of == i)
        return MR_OK;
    drop_span(t);
    MR_TRY(prove(t, x->storage));
    if (!(t->span = mr_alloc((size_t)x->span)))
        return mr_fail_memory((size_t)x->span);
    t->span_of = i;
    mr_status st = mr_file_read_at(t->fd, t->span, (size_t)x->span, x->at.offset, t->path);
    if (st != MR_OK)
        drop_span(t);
    return st;
}

static mr_status gather(const placed *x, const char *span, char *dst, int64_t offset, int64_t n)
{
    size_t size = mr_st_dtype_bytes(x->at.dtype);
    int64_t from = offset / (int64_t)size, skip = offset % (int64_t)size;
    int64_t elements = (skip + n + (int64_t)size - 1) / (int64_t)size;
    if (skip == 0 && n % (int64_t)size == 0) {
        mr_strided_gather(span, size, x->at.rank, x->at.shape, x->stride, from, elements, dst);
        return MR_OK;
    }
    // the range begins or ends inside an element
    char *whole = mr_alloc((size_t)elements * size);
    if (!whole)
        return mr_fail_memory((size_t)elements * size);
    mr_strided_gather(span, size, x->at.rank, x->at.shape, x->stride, from, elements, whole);
    memcpy(dst, whole + skip, (size_t)n);
    mr_free(whole);
    return MR_OK;
}

mr_status mr_torch_read(mr_torch *t, int i, void *dst, int64_t offset, int64_t n)
{
    const placed *x = &t->tensors[i];
    if (n == 0)
        return MR_OK;
    if (!x->dense) {
        MR_TRY(hold_span(t, i));
        mr_status st = gather(x, t->span, dst, offset, n);
        if (offset + n == x->at.bytes)
            drop_span(t);
        return st;
    }
    // if the whole storage is requested, read and compare it at once
    if (n == x->storage->bytes)
        return mr_entry_read(t->path, t->fd, x->storage, dst);
    MR_TRY(prove(t, x->storage));
    return mr_file_read_at(t->fd, dst, (size_t)n, x->at.offset + offset, t->path);
}

mr_status mr_torch_verify(mr_torch *t)
{
    int sums = 0;
    for (int i = 0; i < t->entries.n; i++) {
        sums += t->entries.list[i].has_sum;
        MR_TRY(mr_entry_check(t->path, t->fd, &t->entries.list[i]));
    }
    return sums ? MR_OK
                : mr_fail(MR_E_USAGE, "%s: this torch file has no checksums to verify", t->path);
}
