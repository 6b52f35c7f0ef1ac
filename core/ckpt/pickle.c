/* ckpt: the pickle that names the tensors of a torch file, walked as data.
 *
 * A closed list of opcodes and a closed list of names, each mapped to a number; nothing is looked
 * up, built or called. What is not a tensor, a text, a number or a container of these is refused by
 * name. Limits (reference reliability, section 6): 1e6 opcodes, stack 1e5, memo 1e6, depth 64, with
 * 8 MiB of pickle: together below 80 MiB.
 * Licence: Apache-2.0 */
#include "ckpt/room.h"

#include <string.h>

enum { OPS_MAX = 1000000, STACK_MAX = 100000, MEMO_MAX = 1000000, DEPTH_MAX = 64 };

typedef enum kind { NOTHING, NUMBER, TEXT, TUPLE, LIST, DICT, NAME, STORAGE, TENSOR, MARK } kind;
typedef enum name_id { ORDERED_DICT, REBUILD_TENSOR, REBUILD_PARAMETER, STORAGE_TYPE } name_id;

typedef struct item {
    kind kind;
    int64_t number;       /* NUMBER; of STORAGE its elements; of NAME a name_id */
    mr_st_dtype dtype;    /* STORAGE, NAME of a storage */
    const char *text;     /* TEXT; key of STORAGE and TENSOR */
    struct item **items;  /* TUPLE, LIST; DICT: key, value, key, value */
    mr_st_tensor *tensor; /* TENSOR: shape, bytes; offset inside its storage */
    int n, cap;
    bool walking;
} item;

static const struct {
    const char *module, *name;
    name_id id;
    mr_st_dtype dtype;
} allowed[] = {
    {"collections", "OrderedDict", ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR, 0},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, 0},
    {"torch", "DoubleStorage", STORAGE_TYPE, MR_ST_F64},
    {"torch", "FloatStorage", STORAGE_TYPE, MR_ST_F32},
    {"torch", "HalfStorage", STORAGE_TYPE, MR_ST_F16},
    {"torch", "BFloat16Storage", STORAGE_TYPE, MR_ST_BF16},
    {"torch", "LongStorage", STORAGE_TYPE, MR_ST_I64},
    {"torch", "IntStorage", STORAGE_TYPE, MR_ST_I32},
    {"torch", "ShortStorage", STORAGE_TYPE, MR_ST_I16},
    {"torch", "CharStorage", STORAGE_TYPE, MR_ST_I8},
    {"torch", "ByteStorage", STORAGE_TYPE, MR_ST_U8},
    {"torch", "BoolStorage", STORAGE_TYPE, MR_ST_BOOL},
};

typedef struct walker {
    const char *path;
    mr_pickle_found *found;
    void *user;
    const unsigned char *p, *end;
    mr_arena arena; /* items and texts; dies with the walk */
    item **stack, **memo;
    int n_stack, n_memo;
} walker;

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

static item *new_item(walker *w, kind k)
{
    item *x = mr_arena_alloc(&w->arena, sizeof *x);
    if (x)
        x->kind = k;
    return x;
}

static mr_status push(walker *w, item *x)
{
    if (!x)
        return mr_fail_memory(sizeof *x);
    if (w->n_stack == STACK_MAX)
        return BAD("%s: pickle: stack deeper than %d", w->path, STACK_MAX);
    w->stack[w->n_stack++] = x;
    return MR_OK;
}

static mr_status push_number(walker *w, int64_t number)
{
    item *x = new_item(w, NUMBER);
    if (x)
        x->number = number;
    return push(w, x);
}

static mr_status pop(walker *w, item **out)
{
    if (w->n_stack == 0 || w->stack[w->n_stack - 1]->kind == MARK)
        return BAD("%s: pickle: a value is missing", w->path);
    *out = w->stack[--w->n_stack];
    return MR_OK;
}

static mr_status append(walker *w, item *to, item *x)
{
    if (to->n == to->cap) {
        int cap = to->cap ? 2 * to->cap : 4;
        item **grown = mr_arena_alloc(&w->arena, sizeof *grown * (size_t)cap);
        if (!grown)
            return mr_fail_memory(sizeof *grown * (size_t)cap);
        if (to->n)
            memcpy(grown, to->items, sizeof *grown * (size_t)to->n);
        to->items = grown, to->cap = cap;
    }
    to->items[to->n++] = x;
    return MR_OK;
}

static mr_status take(walker *w, size_t n, const unsigned char **out)
{
    if ((size_t)(w->end - w->p) < n)
        return BAD("%s: pickle: cut off", w->path);
    *out = w->p, w->p += n;
    return MR_OK;
}

static mr_status take_number(walker *w, int bytes, int64_t *out)
{
    const unsigned char *p = NULL;
    uint64_t x = 0;
    MR_TRY(take(w, (size_t)bytes, &p));
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << (8 * i);
    *out = (int64_t)x;
    return MR_OK;
}

static mr_status push_text(walker *w, const unsigned char *from, size_t n)
{
    if (memchr(from, 0, n))
        return BAD("%s: pickle: a text holds a zero", w->path);
    item *x = new_item(w, TEXT);
    char *copy = mr_arena_alloc(&w->arena, n + 1);
    if (!x || !copy)
        return mr_fail_memory(n);
    memcpy(copy, from, n);
    x->text = copy;
    return push(w, x);
}

static mr_status counted_text(walker *w, int bytes)
{
    int64_t n = 0;
    const unsigned char *p = NULL;
    MR_TRY(take_number(w, bytes, &n));
    if (n < 0 || n > w->end - w->p)
        return BAD("%s: pickle: cut off", w->path);
    MR_TRY(take(w, (size_t)n, &p));
    return push_text(w, p, (size_t)n);
}

static mr_status push_name(walker *w, const char *module, const char *name)
{
    for (size_t i = 0; i < MR_COUNT(allowed); i++) {
        if (strcmp(allowed[i].module, module) || strcmp(allowed[i].name, name))
            continue;
        item *x = new_item(w, NAME);
        if (x)
            x->number = allowed[i].id, x->dtype = allowed[i].dtype;
        return push(w, x);
    }
    return BAD(
        "%s: pickle: '%.60s.%.60s' is not on the list of names that weights need; nothing was run",
        w->path, module, name);
}

static mr_status line_name(walker *w)
{
    char text[2][128];
    for (int i = 0; i < 2; i++) {
        const unsigned char *stop = memchr(w->p, '\n', (size_t)(w->end - w->p));
        if (!stop || stop - w->p >= 128)
            return BAD("%s: pickle: a name is cut off or too long", w->path);
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
    if (name->kind != TEXT || module->kind != TEXT)
        return BAD("%s: pickle: a name that is no text", w->path);
    return push_name(w, module->text, name->text);
}

/* The newest `n` values, or those above the mark (n < 0), as a tuple. */
static mr_status collect(walker *w, int n, kind k)
{
    int from = w->n_stack - n;
    if (n < 0) {
        from = w->n_stack - 1;
        while (from >= 0 && w->stack[from]->kind != MARK)
            from--;
        if (from++ < 0)
            return BAD("%s: pickle: no mark", w->path);
    }
    if (from < 0)
        return BAD("%s: pickle: a value is missing", w->path);
    item *x = new_item(w, k);
    if (!x)
        return mr_fail_memory(sizeof *x);
    for (int i = from; i < w->n_stack; i++) {
        if (w->stack[i]->kind == MARK)
            return BAD("%s: pickle: a mark inside a tuple", w->path);
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
    if (w->n_stack == 0)
        return BAD("%s: pickle: nothing to fill", w->path);
    to = w->stack[w->n_stack - 1];
    if (to->kind != into || (into == DICT && values->n % 2))
        return BAD("%s: pickle: filling something else than a container", w->path);
    for (int i = 0; i < values->n; i++)
        MR_TRY(append(w, to, values->items[i]));
    return MR_OK;
}

/* ('storage', type, key, place, elements) */
static mr_status persistent(walker *w)
{
    item *id = NULL;
    MR_TRY(pop(w, &id));
    item **v = id->items;
    if (id->kind != TUPLE || id->n != 5 || v[0]->kind != TEXT || strcmp(v[0]->text, "storage") ||
        v[1]->kind != NAME || v[1]->number != STORAGE_TYPE || v[2]->kind != TEXT ||
        v[4]->kind != NUMBER || v[4]->number < 0)
        return BAD("%s: pickle: a reference that is no storage", w->path);
    item *x = new_item(w, STORAGE);
    if (x)
        x->dtype = v[1]->dtype, x->text = v[2]->text, x->number = v[4]->number;
    return push(w, x);
}

static bool numbers(const item *x, int most)
{
    if (x->kind != TUPLE || x->n > most)
        return false;
    for (int i = 0; i < x->n; i++)
        if (x->items[i]->kind != NUMBER || x->items[i]->number < 0)
            return false;
    return true;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks): dense tensors alone */
static mr_status rebuild_tensor(walker *w, const item *args)
{
    item **v = args->items;
    if (args->n < 4 || v[0]->kind != STORAGE || v[1]->kind != NUMBER || v[1]->number < 0 ||
        !numbers(v[2], MR_ST_RANK_MAX) || !numbers(v[3], MR_ST_RANK_MAX) || v[2]->n != v[3]->n)
        return BAD("%s: pickle: a tensor with strange arguments", w->path);
    item *x = new_item(w, TENSOR);
    if (!x)
        return mr_fail_memory(sizeof *x);
    mr_st_tensor *t = x->tensor = mr_arena_alloc(&w->arena, sizeof *t);
    if (!t)
        return mr_fail_memory(sizeof *t);
    x->text = v[0]->text, t->dtype = v[0]->dtype, t->rank = v[2]->n;
    if (__builtin_mul_overflow(v[1]->number, (int64_t)mr_st_dtype_bytes(t->dtype), &t->offset))
        return BAD("%s: pickle: a tensor starts too far out", w->path);
    for (int i = 0; i < t->rank; i++)
        t->shape[i] = v[2]->items[i]->number;
    MR_TRY(mr_st_shape_bytes(t->dtype, t->rank, t->shape, &t->bytes));
    int64_t dense = 1;
    for (int i = t->rank - 1; i >= 0 && t->bytes; i--) {
        if (t->shape[i] > 1 && v[3]->items[i]->number != dense)
            return mr_fail(
                MR_E_UNSUPPORTED,
                "%s: a tensor of storage '%.40s' is a strided view; expected a dense one", w->path,
                x->text);
        dense *= t->shape[i];
    }
    return push(w, x);
}

static mr_status reduce(walker *w)
{
    item *args = NULL, *name = NULL;
    MR_TRY(pop(w, &args));
    MR_TRY(pop(w, &name));
    if (name->kind != NAME || args->kind != TUPLE)
        return BAD("%s: pickle: a call of something that is no name", w->path);
    switch (name->number) {
    case REBUILD_TENSOR: return rebuild_tensor(w, args);
    case REBUILD_PARAMETER:
        if (args->n < 1 || args->items[0]->kind != TENSOR)
            return BAD("%s: pickle: a parameter without a tensor", w->path);
        return push(w, args->items[0]);
    case ORDERED_DICT:
        if (args->n)
            return BAD("%s: pickle: an ordered dictionary with arguments", w->path);
        return push(w, new_item(w, DICT));
    default: return BAD("%s: pickle: a call of a storage type", w->path);
    }
}

static mr_status remember(walker *w, int64_t at)
{
    if (w->n_stack == 0 || at < 0 || at >= MEMO_MAX)
        return BAD("%s: pickle: memo %lld; at most %d", w->path, (long long)at, MEMO_MAX);
    w->memo[at] = w->stack[w->n_stack - 1];
    if (at >= w->n_memo)
        w->n_memo = (int)at + 1;
    return MR_OK;
}

static mr_status recall(walker *w, int64_t at)
{
    if (at < 0 || at >= w->n_memo || !w->memo[at])
        return BAD("%s: pickle: memo %lld is empty", w->path, (long long)at);
    return push(w, w->memo[at]);
}

static mr_status step(walker *w, int op)
{
    int64_t x = 0;
    const unsigned char *p = NULL;
    item *gone = NULL;
    switch (op) {
    case 0x80: return take(w, 1, &p); // protocol
    case 0x95: return take(w, 8, &p); // frame
    case '(': return push(w, new_item(w, MARK));
    case 'N': return push(w, new_item(w, NOTHING));
    case 0x88: return push_number(w, 1);
    case 0x89: return push_number(w, 0);
    case 'K': MR_TRY(take_number(w, 1, &x)); return push_number(w, x);
    case 'M': MR_TRY(take_number(w, 2, &x)); return push_number(w, x);
    case 'J': MR_TRY(take_number(w, 4, &x)); return push_number(w, (int32_t)x);
    // a float: of no use here
    case 'G': MR_TRY(take(w, 8, &p)); return push(w, new_item(w, NOTHING));
    // an integer of up to 8 bytes
    case 0x8a:
        MR_TRY(take_number(w, 1, &x));
        if (x > 8)
            return BAD("%s: pickle: an integer of %lld bytes", w->path, (long long)x);
        int bytes = (int)x;
        MR_TRY(take_number(w, bytes, &x));
        if (bytes > 0 && bytes < 8 && x >> (8 * bytes - 1))
            x -= (int64_t)1 << (8 * bytes);
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
    // state of a dictionary: versions of modules
    case 'b':
        MR_TRY(pop(w, &gone));
        if (w->n_stack == 0 || w->stack[w->n_stack - 1]->kind != DICT)
            return BAD("%s: pickle: state for something else than a dictionary", w->path);
        return MR_OK;
    default:
        return BAD("%s: pickle: opcode 0x%02x is not one that weights need; nothing was run",
                   w->path, (unsigned)op);
    }
}

/* Dictionaries in dictionaries join their keys with dots; what is no tensor is passed over. */
static mr_status gather(walker *w, item *x, char *name, size_t used, int depth)
{
    if (x->kind == TENSOR)
        return w->found(w->user, name, x->text, x->tensor);
    if (x->kind != DICT)
        return MR_OK;
    if (depth > DEPTH_MAX || x->walking)
        return BAD("%s: pickle: dictionaries nested deeper than %d, or in themselves", w->path,
                   DEPTH_MAX);
    x->walking = true;
    for (int i = 0; i < x->n; i += 2) {
        if (x->items[i]->kind != TEXT)
            continue;
        const char *key = x->items[i]->text;
        size_t k = strlen(key);
        if (used + k + 2 > MR_ST_NAME_MAX)
            return BAD("%s: a name of more than %d bytes", w->path, MR_ST_NAME_MAX);
        if (used)
            name[used] = '.';
        memcpy(name + used + (used > 0), key, k + 1);
        MR_TRY(gather(w, x->items[i + 1], name, used + (used > 0) + k, depth + 1));
        name[used] = 0;
    }
    x->walking = false;
    return MR_OK;
}

mr_status mr_pickle_walk(const char *path, const void *pickle, size_t bytes, mr_pickle_found *found,
                         void *user)
{
    walker w = {.path = path,
                .found = found,
                .user = user,
                .p = pickle,
                .end = (const unsigned char *)pickle + bytes};
    mr_arena_init(&w.arena);
    w.stack = mr_alloc(sizeof *w.stack * STACK_MAX);
    w.memo = mr_calloc(MEMO_MAX, sizeof *w.memo);
    mr_status st = w.stack && w.memo ? MR_OK : mr_fail_memory(sizeof *w.memo * MEMO_MAX);
    bool ended = false;
    for (int n = 0; st == MR_OK && !ended; n++) {
        if (n == OPS_MAX)
            st = BAD("%s: pickle: more than %d opcodes", path, OPS_MAX);
        else if (w.p == w.end)
            st = BAD("%s: pickle: cut off", path);
        else if (*w.p == '.')
            ended = true;
        else
            st = step(&w, *w.p++);
    }
    if (st == MR_OK && (w.n_stack != 1 || w.stack[0]->kind != DICT))
        st = BAD("%s: no dictionary of tensors", path);
    char name[MR_ST_NAME_MAX + 2] = "";
    if (st == MR_OK)
        st = gather(&w, w.stack[0], name, 0, 0);
    mr_free(w.stack);
    mr_free(w.memo);
    mr_arena_fini(&w.arena);
    return st;
}
