/* ckpt: weights saved by torch (.pth, .bin, .pt), read as data: a zip of raw storages and one pickle that names them.
 *
 * The pickle is walked by a closed list of opcodes and a closed list of names, each mapped to a number; nothing is looked
 * up, built or called. What is not a tensor, a text, a number or a container of these is refused by name. Limits
 * (reference reliability, section 6): 1e6 opcodes, stack 1e5, memo 1e6, depth 64, pickle 8 MiB: together below 80 MiB.
 * Licence: Apache-2.0 */
#include "torch.h"

#ifdef MR_HAVE_MINIZIP
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unzip.h>

enum { OPS_MAX = 1000000, STACK_MAX = 100000, MEMO_MAX = 1000000, DEPTH_MAX = 64, ENTRIES_MAX = 200000, PICKLE_MAX = 8 << 20, ENTRY_NAME = 256 };

/* ---- the zip ------------------------------------------------------------------------------------- */

typedef struct entry { char *name; int64_t at, bytes; } entry;

typedef struct source { int fd; int64_t at, size; } source;

static voidpf zip_open(voidpf user, const void *name, int mode)
{
    (void)name;
    return mode & ZLIB_FILEFUNC_MODE_WRITE ? NULL : user;
}

static uLong zip_read(voidpf user, voidpf stream, void *buf, uLong n)
{
    (void)user;
    source *s = stream;
    uLong got = 0;
    while (got < n && !mr_interrupt_get()) {
        ssize_t k = mr_io_table()->pread(s->fd, (char *)buf + got, n - got, s->at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        got += (uLong)k, s->at += k;
    }
    return got;
}

static ZPOS64_T zip_tell(voidpf user, voidpf stream)
{
    (void)user;
    return (ZPOS64_T)((source *)stream)->at;
}

static long zip_seek(voidpf user, voidpf stream, ZPOS64_T offset, int origin)
{
    (void)user;
    source *s = stream;
    int64_t from = origin == ZLIB_FILEFUNC_SEEK_CUR ? s->at : origin == ZLIB_FILEFUNC_SEEK_END ? s->size : 0, to;
    if (__builtin_add_overflow(from, (int64_t)offset, &to) || to < 0 || to > s->size) return -1;
    s->at = to;
    return 0;
}

static int zip_nothing(voidpf user, voidpf stream)
{
    (void)user, (void)stream;
    return 0;
}

static int entry_by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->name, ((const entry *)b)->name); }

struct mr_torch {
    char *path;
    source source;
    entry *entries;
    int n_entries;
    mr_arena arena;             /* names of tensors */
    mr_st_tensor *tensors;
    int n, cap;
};

/* The entries, sorted by name: stored, plain, inside the file, no name twice. */
static mr_status list_entries(mr_torch *t, unzFile zip)
{
    unz_global_info64 all;
    if (unzGetGlobalInfo64(zip, &all) != UNZ_OK || all.number_entry > ENTRIES_MAX)
        return mr_fail(MR_E_FORMAT, "%s: not a readable zip, or more than %d entries", t->path, ENTRIES_MAX);
    if (!(t->entries = mr_calloc((size_t)all.number_entry + 1, sizeof *t->entries))) return mr_fail_memory(sizeof *t->entries);
    int err = unzGoToFirstFile(zip);
    for (ZPOS64_T i = 0; i < all.number_entry; i++, err = unzGoToNextFile(zip)) {
        unz_file_info64 info;
        char name[ENTRY_NAME];
        if (err != UNZ_OK || unzGetCurrentFileInfo64(zip, &info, name, sizeof name, NULL, 0, NULL, 0) != UNZ_OK)
            return mr_fail(MR_E_FORMAT, "%s: damaged list of entries", t->path);
        if (info.size_filename >= ENTRY_NAME || strlen(name) != info.size_filename)
            return mr_fail(MR_E_FORMAT, "%s: an entry name is longer than %d bytes or holds a zero", t->path, ENTRY_NAME - 1);
        if (info.compression_method != 0 || info.flag & 1 || info.compressed_size != info.uncompressed_size)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s' is compressed or encrypted; expected stored data", t->path, name);
        // opening compares the entry's own header with the list
        if (unzOpenCurrentFile(zip) != UNZ_OK) return mr_fail(MR_E_FORMAT, "%s: entry '%s': its two headers differ", t->path, name);
        entry *e = &t->entries[t->n_entries];
        e->at = (int64_t)unzGetCurrentFileZStreamPos64(zip), e->bytes = (int64_t)info.uncompressed_size;
        unzCloseCurrentFile(zip);
        if (e->at <= 0 || e->bytes < 0 || e->bytes > t->source.size - e->at)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s' reaches past the end of the file", t->path, name);
        if (!(e->name = mr_strdup(name))) return mr_fail_memory(sizeof name);
        t->n_entries++;
    }
    qsort(t->entries, (size_t)t->n_entries, sizeof *t->entries, entry_by_name);
    for (int i = 1; i < t->n_entries; i++)
        if (strcmp(t->entries[i - 1].name, t->entries[i].name) == 0)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s' comes twice", t->path, t->entries[i].name);
    return MR_OK;
}

static const entry *find_entry(const mr_torch *t, const char *folder, const char *name)
{
    char full[2 * ENTRY_NAME];
    snprintf(full, sizeof full, "%s/%s", folder, name);
    entry key = {.name = full};
    return bsearch(&key, t->entries, (size_t)t->n_entries, sizeof key, entry_by_name);
}

/* ---- the pickle ----------------------------------------------------------------------------------- */

typedef enum kind { NOTHING, NUMBER, TEXT, TUPLE, LIST, DICT, NAME, STORAGE, TENSOR, MARK } kind;
typedef enum name_id { ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER, STORAGE_TYPE } name_id;

typedef struct item {
    kind kind;
    int64_t number;             /* NUMBER; of STORAGE its elements; of NAME a name_id */
    mr_st_dtype dtype;          /* STORAGE, NAME of a storage */
    const char *text;           /* TEXT; key of STORAGE and TENSOR */
    struct item **items;        /* TUPLE, LIST; DICT: key, value, key, value */
    mr_st_tensor *tensor;       /* TENSOR: shape, bytes; offset inside its storage */
    int n, cap;
    bool walking;
} item;

static const struct { const char *module, *name; name_id id; mr_st_dtype dtype; } allowed[] = {
    {"collections", "OrderedDict", ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, 0},
    {"torch", "DoubleStorage", STORAGE_TYPE, MR_ST_F64}, {"torch", "FloatStorage", STORAGE_TYPE, MR_ST_F32},
    {"torch", "HalfStorage", STORAGE_TYPE, MR_ST_F16}, {"torch", "BFloat16Storage", STORAGE_TYPE, MR_ST_BF16},
    {"torch", "LongStorage", STORAGE_TYPE, MR_ST_I64}, {"torch", "IntStorage", STORAGE_TYPE, MR_ST_I32},
    {"torch", "ShortStorage", STORAGE_TYPE, MR_ST_I16}, {"torch", "CharStorage", STORAGE_TYPE, MR_ST_I8},
    {"torch", "ByteStorage", STORAGE_TYPE, MR_ST_U8}, {"torch", "BoolStorage", STORAGE_TYPE, MR_ST_BOOL},
};

typedef struct walker {
    const mr_torch *torch;
    const unsigned char *p, *end;
    mr_arena arena;             /* items and texts; dies with the walk */
    item **stack, **memo;
    int n_stack, n_memo;
} walker;

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)
#define PATH(w) ((w)->torch->path)

static item *new_item(walker *w, kind k)
{
    item *x = mr_arena_alloc(&w->arena, sizeof *x);
    if (x) x->kind = k;
    return x;
}

static mr_status push(walker *w, item *x)
{
    if (!x) return mr_fail_memory(sizeof *x);
    if (w->n_stack == STACK_MAX) return BAD("%s: pickle: stack deeper than %d", PATH(w), STACK_MAX);
    w->stack[w->n_stack++] = x;
    return MR_OK;
}

static mr_status push_number(walker *w, int64_t number)
{
    item *x = new_item(w, NUMBER);
    if (x) x->number = number;
    return push(w, x);
}

static mr_status pop(walker *w, item **out)
{
    if (w->n_stack == 0 || w->stack[w->n_stack - 1]->kind == MARK) return BAD("%s: pickle: a value is missing", PATH(w));
    *out = w->stack[--w->n_stack];
    return MR_OK;
}

static mr_status append(walker *w, item *to, item *x)
{
    if (to->n == to->cap) {
        int cap = to->cap ? 2 * to->cap : 4;
        item **grown = mr_arena_alloc(&w->arena, sizeof *grown * (size_t)cap);
        if (!grown) return mr_fail_memory(sizeof *grown * (size_t)cap);
        if (to->n) memcpy(grown, to->items, sizeof *grown * (size_t)to->n);
        to->items = grown, to->cap = cap;
    }
    to->items[to->n++] = x;
    return MR_OK;
}

static mr_status take(walker *w, size_t n, const unsigned char **out)
{
    if ((size_t)(w->end - w->p) < n) return BAD("%s: pickle: cut off", PATH(w));
    *out = w->p, w->p += n;
    return MR_OK;
}

static mr_status take_number(walker *w, int bytes, int64_t *out)
{
    const unsigned char *p = NULL;
    uint64_t x = 0;
    MR_TRY(take(w, (size_t)bytes, &p));
    for (int i = 0; i < bytes; i++) x |= (uint64_t)p[i] << (8 * i);
    *out = (int64_t)x;
    return MR_OK;
}

static mr_status push_text(walker *w, const unsigned char *from, size_t n)
{
    if (memchr(from, 0, n)) return BAD("%s: pickle: a text holds a zero", PATH(w));
    item *x = new_item(w, TEXT);
    char *copy = mr_arena_alloc(&w->arena, n + 1);
    if (!x || !copy) return mr_fail_memory(n);
    memcpy(copy, from, n);
    x->text = copy;
    return push(w, x);
}

static mr_status counted_text(walker *w, int bytes)
{
    int64_t n = 0;
    const unsigned char *p = NULL;
    MR_TRY(take_number(w, bytes, &n));
    if (n < 0 || n > w->end - w->p) return BAD("%s: pickle: cut off", PATH(w));
    MR_TRY(take(w, (size_t)n, &p));
    return push_text(w, p, (size_t)n);
}

static mr_status push_name(walker *w, const char *module, const char *name)
{
    for (size_t i = 0; i < MR_COUNT(allowed); i++) {
        if (strcmp(allowed[i].module, module) || strcmp(allowed[i].name, name)) continue;
        item *x = new_item(w, NAME);
        if (x) x->number = allowed[i].id, x->dtype = allowed[i].dtype;
        return push(w, x);
    }
    return BAD("%s: pickle: '%.60s.%.60s' is not on the list of names that weights need; nothing was run", PATH(w), module, name);
}

static mr_status line_name(walker *w)
{
    char text[2][128];
    for (int i = 0; i < 2; i++) {
        const unsigned char *stop = memchr(w->p, '\n', (size_t)(w->end - w->p));
        if (!stop || stop - w->p >= 128) return BAD("%s: pickle: a name is cut off or too long", PATH(w));
        memcpy(text[i], w->p, (size_t)(stop - w->p));
        text[i][stop - w->p] = 0;
        w->p = stop + 1;
    }
    return push_name(w, text[0], text[1]);
}

static mr_status stack_name(walker *w)
{
    item *name = NULL, *module = NULL;
    MR_TRY(pop(w, &name));
    MR_TRY(pop(w, &module));
    if (name->kind != TEXT || module->kind != TEXT) return BAD("%s: pickle: a name that is no text", PATH(w));
    return push_name(w, module->text, name->text);
}

/* The newest `n` values, or those above the mark (n < 0), as a tuple. */
static mr_status collect(walker *w, int n, kind k)
{
    int from = w->n_stack - n;
    if (n < 0) {
        from = w->n_stack - 1;
        while (from >= 0 && w->stack[from]->kind != MARK) from--;
        if (from++ < 0) return BAD("%s: pickle: no mark", PATH(w));
    }
    if (from < 0) return BAD("%s: pickle: a value is missing", PATH(w));
    item *x = new_item(w, k);
    if (!x) return mr_fail_memory(sizeof *x);
    for (int i = from; i < w->n_stack; i++) {
        if (w->stack[i]->kind == MARK) return BAD("%s: pickle: a mark inside a tuple", PATH(w));
        MR_TRY(append(w, x, w->stack[i]));
    }
    w->n_stack = n < 0 ? from - 1 : from;
    return push(w, x);
}

/* Pairs or values above the mark (all) or the newest one, into the container beneath them. */
static mr_status fill(walker *w, kind into, bool all)
{
    MR_TRY(collect(w, all ? -1 : into == DICT ? 2 : 1, TUPLE));
    item *values = NULL, *to;
    MR_TRY(pop(w, &values));
    if (w->n_stack == 0) return BAD("%s: pickle: nothing to fill", PATH(w));
    to = w->stack[w->n_stack - 1];
    if (to->kind != into || (into == DICT && values->n % 2)) return BAD("%s: pickle: filling something else than a container", PATH(w));
    for (int i = 0; i < values->n; i++) MR_TRY(append(w, to, values->items[i]));
    return MR_OK;
}

/* ('storage', type, key, place, elements) */
static mr_status persistent(walker *w)
{
    item *id = NULL;
    MR_TRY(pop(w, &id));
    item **v = id->items;
    if (id->kind != TUPLE || id->n != 5 || v[0]->kind != TEXT || strcmp(v[0]->text, "storage") || v[1]->kind != NAME ||
        v[1]->number != STORAGE_TYPE || v[2]->kind != TEXT || v[4]->kind != NUMBER || v[4]->number < 0)
        return BAD("%s: pickle: a reference that is no storage", PATH(w));
    item *x = new_item(w, STORAGE);
    if (x) x->dtype = v[1]->dtype, x->text = v[2]->text, x->number = v[4]->number;
    return push(w, x);
}

static bool numbers(const item *x, int most)
{
    if (x->kind != TUPLE || x->n > most) return false;
    for (int i = 0; i < x->n; i++)
        if (x->items[i]->kind != NUMBER || x->items[i]->number < 0) return false;
    return true;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks): dense tensors alone */
static mr_status rebuild_tensor(walker *w, const item *args)
{
    item **v = args->items;
    if (args->n < 4 || v[0]->kind != STORAGE || v[1]->kind != NUMBER || v[1]->number < 0 || !numbers(v[2], MR_ST_RANK_MAX) ||
        !numbers(v[3], MR_ST_RANK_MAX) || v[2]->n != v[3]->n)
        return BAD("%s: pickle: a tensor with strange arguments", PATH(w));
    item *x = new_item(w, TENSOR);
    if (!x) return mr_fail_memory(sizeof *x);
    mr_st_tensor *t = x->tensor = mr_arena_alloc(&w->arena, sizeof *t);
    if (!t) return mr_fail_memory(sizeof *t);
    x->text = v[0]->text, t->dtype = v[0]->dtype, t->rank = v[2]->n;
    if (__builtin_mul_overflow(v[1]->number, (int64_t)mr_st_dtype_bytes(t->dtype), &t->offset))
        return BAD("%s: pickle: a tensor starts too far out", PATH(w));
    for (int i = 0; i < t->rank; i++) t->shape[i] = v[2]->items[i]->number;
    MR_TRY(mr_st_shape_bytes(t->dtype, t->rank, t->shape, &t->bytes));
    int64_t dense = 1;
    for (int i = t->rank - 1; i >= 0 && t->bytes; i--) {
        if (t->shape[i] > 1 && v[3]->items[i]->number != dense)
            return mr_fail(MR_E_UNSUPPORTED, "%s: a tensor of storage '%.40s' is a strided view; expected a dense one", PATH(w), x->text);
        dense *= t->shape[i];
    }
    return push(w, x);
}

static mr_status reduce(walker *w)
{
    item *args = NULL, *name = NULL;
    MR_TRY(pop(w, &args));
    MR_TRY(pop(w, &name));
    if (name->kind != NAME || args->kind != TUPLE) return BAD("%s: pickle: a call of something that is no name", PATH(w));
    switch (name->number) {
    case REBUILD_TENSOR: return rebuild_tensor(w, args);
    case REBUILD_PARAMETER:
        if (args->n < 1 || args->items[0]->kind != TENSOR) return BAD("%s: pickle: a parameter without a tensor", PATH(w));
        return push(w, args->items[0]);
    case ORDERED_DICT:
        if (args->n) return BAD("%s: pickle: an ordered dictionary with arguments", PATH(w));
        return push(w, new_item(w, DICT));
    default: return BAD("%s: pickle: a call of a storage type", PATH(w));
    }
}

static mr_status remember(walker *w, int64_t at)
{
    if (w->n_stack == 0 || at < 0 || at >= MEMO_MAX) return BAD("%s: pickle: memo %lld; at most %d", PATH(w), (long long)at, MEMO_MAX);
    w->memo[at] = w->stack[w->n_stack - 1];
    if (at >= w->n_memo) w->n_memo = (int)at + 1;
    return MR_OK;
}

static mr_status recall(walker *w, int64_t at)
{
    if (at < 0 || at >= w->n_memo || !w->memo[at]) return BAD("%s: pickle: memo %lld is empty", PATH(w), (long long)at);
    return push(w, w->memo[at]);
}

static mr_status step(walker *w, int op)
{
    int64_t x = 0;
    const unsigned char *p = NULL;
    item *gone = NULL;
    switch (op) {
    case 0x80: return take(w, 1, &p);                                  // protocol
    case 0x95: return take(w, 8, &p);                                  // frame
    case '(': return push(w, new_item(w, MARK));
    case 'N': return push(w, new_item(w, NOTHING));
    case 0x88: return push_number(w, 1);
    case 0x89: return push_number(w, 0);
    case 'K': MR_TRY(take_number(w, 1, &x)); return push_number(w, x);
    case 'M': MR_TRY(take_number(w, 2, &x)); return push_number(w, x);
    case 'J': MR_TRY(take_number(w, 4, &x)); return push_number(w, (int32_t)x);
    case 'G': MR_TRY(take(w, 8, &p)); return push(w, new_item(w, NOTHING));  // a float: of no use here
    case 0x8a:                                                         // an integer of up to 8 bytes
        MR_TRY(take_number(w, 1, &x));
        if (x > 8) return BAD("%s: pickle: an integer of %lld bytes", PATH(w), (long long)x);
        int bytes = (int)x;
        MR_TRY(take_number(w, bytes, &x));
        if (bytes > 0 && bytes < 8 && x >> (8 * bytes - 1)) x -= (int64_t)1 << (8 * bytes);
        return push_number(w, x);
    case 'X': return counted_text(w, 4);
    case 0x8c: return counted_text(w, 1);
    case ')': return push(w, new_item(w, TUPLE));
    case ']': return push(w, new_item(w, LIST));
    case '}': return push(w, new_item(w, DICT));
    case 't': return collect(w, -1, TUPLE);
    case 0x85: return collect(w, 1, TUPLE);
    case 0x86: return collect(w, 2, TUPLE);
    case 0x87: return collect(w, 3, TUPLE);
    case 's': return fill(w, DICT, false);
    case 'u': return fill(w, DICT, true);
    case 'a': return fill(w, LIST, false);
    case 'e': return fill(w, LIST, true);
    case 'q': MR_TRY(take_number(w, 1, &x)); return remember(w, x);
    case 'r': MR_TRY(take_number(w, 4, &x)); return remember(w, x);
    case 0x94: return remember(w, w->n_memo);
    case 'h': MR_TRY(take_number(w, 1, &x)); return recall(w, x);
    case 'j': MR_TRY(take_number(w, 4, &x)); return recall(w, x);
    case 'c': return line_name(w);
    case 0x93: return stack_name(w);
    case 'Q': return persistent(w);
    case 'R': return reduce(w);
    case 'b':                                                          // state of a dictionary: versions of modules
        MR_TRY(pop(w, &gone));
        if (w->n_stack == 0 || w->stack[w->n_stack - 1]->kind != DICT) return BAD("%s: pickle: state for something else than a dictionary", PATH(w));
        return MR_OK;
    default: return BAD("%s: pickle: opcode 0x%02x is not one that weights need; nothing was run", PATH(w), (unsigned)op);
    }
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static mr_status add_tensor(mr_torch *t, const char *folder, const char *name, const item *x)
{
    char file[ENTRY_NAME];
    snprintf(file, sizeof file, "data/%s", x->text);
    const entry *e = strlen(x->text) < 100 ? find_entry(t, folder, file) : NULL;
    if (!e) return BAD("%s: tensor '%.100s': its storage '%.40s' is not in the file", t->path, name, x->text);
    if (x->tensor->offset > e->bytes || x->tensor->bytes > e->bytes - x->tensor->offset)
        return BAD("%s: tensor '%.100s' reaches past its storage", t->path, name);
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 256;
        mr_st_tensor *grown = mr_realloc(t->tensors, sizeof *grown * (size_t)cap);
        if (!grown) return mr_fail_memory(sizeof *grown * (size_t)cap);
        t->tensors = grown, t->cap = cap;
    }
    mr_st_tensor *out = &t->tensors[t->n];
    *out = *x->tensor;
    out->name = mr_arena_strdup(&t->arena, name), out->offset += e->at;
    if (!out->name) return mr_fail_memory(strlen(name));
    t->n++;
    return MR_OK;
}

/* Dictionaries in dictionaries join their keys with dots; what is no tensor is passed over. */
static mr_status gather(mr_torch *t, const char *folder, item *x, char *name, size_t used, int depth)
{
    if (x->kind == TENSOR) return add_tensor(t, folder, name, x);
    if (x->kind != DICT) return MR_OK;
    if (depth > DEPTH_MAX || x->walking) return BAD("%s: pickle: dictionaries nested deeper than %d, or in themselves", t->path, DEPTH_MAX);
    x->walking = true;
    for (int i = 0; i < x->n; i += 2) {
        if (x->items[i]->kind != TEXT) continue;
        const char *key = x->items[i]->text;
        size_t k = strlen(key);
        if (used + k + 2 > MR_ST_NAME_MAX) return BAD("%s: a name of more than %d bytes", t->path, MR_ST_NAME_MAX);
        if (used) name[used] = '.';
        memcpy(name + used + (used > 0), key, k + 1);
        MR_TRY(gather(t, folder, x->items[i + 1], name, used + (used > 0) + k, depth + 1));
        name[used] = 0;
    }
    x->walking = false;
    return MR_OK;
}

static mr_status walk(mr_torch *t, const char *folder, const void *pickle, size_t bytes)
{
    walker w = {.torch = t, .p = pickle, .end = (const unsigned char *)pickle + bytes};
    mr_arena_init(&w.arena);
    w.stack = mr_alloc(sizeof *w.stack * STACK_MAX);
    w.memo = mr_calloc(MEMO_MAX, sizeof *w.memo);
    mr_status st = w.stack && w.memo ? MR_OK : mr_fail_memory(sizeof *w.memo * MEMO_MAX);
    bool ended = false;
    for (int n = 0; st == MR_OK && !ended; n++) {
        if (n == OPS_MAX) st = BAD("%s: pickle: more than %d opcodes", t->path, OPS_MAX);
        else if (w.p == w.end) st = BAD("%s: pickle: cut off", t->path);
        else if (*w.p == '.') ended = true;
        else st = step(&w, *w.p++);
    }
    if (st == MR_OK && (w.n_stack != 1 || w.stack[0]->kind != DICT)) st = BAD("%s: no dictionary of tensors", t->path);
    char name[MR_ST_NAME_MAX + 2] = "";
    if (st == MR_OK) st = gather(t, folder, w.stack[0], name, 0, 0);
    mr_free(w.stack);
    mr_free(w.memo);
    mr_arena_fini(&w.arena);
    return st;
}

/* ---- open -------------------------------------------------------------------------------------------- */

static zlib_filefunc64_def functions_of(source *s)
{
    return (zlib_filefunc64_def){.zopen64_file = zip_open, .zread_file = zip_read, .ztell64_file = zip_tell, .zseek64_file = zip_seek,
                                 .zclose_file = zip_nothing, .zerror_file = zip_nothing, .opaque = s};
}

/* The whole of the entry the zip stands at, its CRC compared. */
static mr_status read_entry(const mr_torch *t, unzFile zip, const char *name, void *dst, size_t bytes)
{
    if (unzLocateFile(zip, name, 1) != UNZ_OK || unzOpenCurrentFile(zip) != UNZ_OK) return BAD("%s: no entry '%s'", t->path, name);
    size_t got = 0;
    int n = 1;
    while (got < bytes && n > 0) {
        n = unzReadCurrentFile(zip, (char *)dst + got, (unsigned)MR_MIN(bytes - got, (size_t)1 << 20));
        if (n > 0) got += (size_t)n;
    }
    int end = unzCloseCurrentFile(zip);
    MR_TRY(mr_interrupt_check());
    return got == bytes && end == UNZ_OK ? MR_OK : BAD("%s: entry '%s' is damaged: its CRC differs or it is cut off", t->path, name);
}

static mr_status open_zip(mr_torch *t)
{
    zlib_filefunc64_def functions = functions_of(&t->source);
    unzFile zip = unzOpen2_64(t->path, &functions);
    if (!zip) return BAD("%s: not a zip of torch; older files of torch.save are not read, try: save it again with a newer torch", t->path);
    void *pickle = NULL;
    char folder[ENTRY_NAME] = "";
    mr_status st = list_entries(t, zip);
    if (st != MR_OK) goto out;
    const entry *index = NULL;
    for (int i = 0; i < t->n_entries; i++) {
        size_t n = strlen(t->entries[i].name);
        if (n < 9 || strcmp(t->entries[i].name + n - 9, "/data.pkl") || memchr(t->entries[i].name, '/', n - 9)) continue;
        index = &t->entries[i];
        memcpy(folder, index->name, n - 9);
    }
    if (!index) MR_TRY_GOTO(BAD("%s: no data.pkl in it", t->path));
    if (index->bytes > PICKLE_MAX) MR_TRY_GOTO(BAD("%s: data.pkl has %lld bytes, at most %d", t->path, (long long)index->bytes, PICKLE_MAX));
    const entry *order = find_entry(t, folder, "byteorder");
    char ending[16] = "";
    if (order && order->bytes < (int64_t)sizeof ending) {
        MR_TRY_GOTO(read_entry(t, zip, order->name, ending, (size_t)order->bytes));
        if (strcmp(ending, "little")) MR_TRY_GOTO(BAD("%s: byte order '%s'; expected little", t->path, ending));
    }
    if (!(pickle = mr_alloc((size_t)index->bytes + 1))) MR_TRY_GOTO(mr_fail_memory((size_t)index->bytes));
    MR_TRY_GOTO(read_entry(t, zip, index->name, pickle, (size_t)index->bytes));
    st = walk(t, folder, pickle, (size_t)index->bytes);
out:
    mr_free(pickle);
    unzClose(zip);
    return st;
}

mr_status mr_torch_open(const char *path, mr_torch **out)
{
    mr_torch *t;
    *out = NULL;
    if (!MR_NEW(t)) return mr_fail_memory(sizeof *t);
    mr_arena_init(&t->arena);
    t->source.fd = -1;
    struct stat s;
    mr_status st = (t->path = mr_strdup(path)) ? MR_OK : mr_fail_memory(strlen(path));
    if (st == MR_OK) {
        t->source.fd = mr_io_table()->open(path, O_RDONLY | O_NONBLOCK, 0);
        if (t->source.fd < 0 || fstat(t->source.fd, &s)) st = mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
        else if (!S_ISREG(s.st_mode)) st = mr_fail(MR_E_USAGE, "%s: not a file", path);
        else t->source.size = s.st_size, st = open_zip(t);
    }
    if (st != MR_OK) mr_torch_close(t);
    else *out = t;
    return st;
}

void mr_torch_close(mr_torch *t)
{
    if (!t) return;
    if (t->source.fd >= 0) mr_io_table()->close(t->source.fd);
    for (int i = 0; i < t->n_entries; i++) mr_free(t->entries[i].name);
    mr_free(t->entries);
    mr_free(t->tensors);
    mr_arena_fini(&t->arena);
    mr_free(t->path);
    mr_free(t);
}

int mr_torch_count(const mr_torch *t) { return t->n; }
const mr_st_tensor *mr_torch_at(const mr_torch *t, int i) { return &t->tensors[i]; }

mr_status mr_torch_read(const mr_torch *t, const mr_st_tensor *x, void *dst, int64_t offset, int64_t n)
{
    return mr_file_read_at(t->source.fd, dst, (size_t)n, x->offset + offset, t->path);
}
#else
mr_status mr_torch_open(const char *path, mr_torch **out)
{
    *out = NULL;
    return mr_fail(MR_E_UNSUPPORTED, "%s: this build cannot read files of torch; try: libminizip-dev, or convert to safetensors", path);
}
void mr_torch_close(mr_torch *t) { (void)t; }
int mr_torch_count(const mr_torch *t) { return (void)t, 0; }
const mr_st_tensor *mr_torch_at(const mr_torch *t, int i) { return (void)t, (void)i, NULL; }
mr_status mr_torch_read(const mr_torch *t, const mr_st_tensor *x, void *dst, int64_t offset, int64_t n)
{
    (void)t, (void)x, (void)dst, (void)offset, (void)n;
    return mr_fail(MR_E_UNSUPPORTED, "this build cannot read files of torch");
}
#endif
