/* ckpt: interprets the stack machine of pickles as data.
 *
 * A closed list of opcodes; nothing is looked up, built or called. Texts, numbers and containers
 * become values here, what the names of torch mean is decided in rebuild.c. Anything else is
 * refused by name. Limits (reference reliability, section 6): 1e6 opcodes, a stack of 1e5, a memo
 * of 1e6, and 48 MiB for all values of a pickle of at most 8 MiB: together below 80 MiB.
 * Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <string.h>

enum { OPS_MAX = 1000000, STACK_MAX = 100000, MEMO_MAX = 1000000 };

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

/* ---- values ---- */

/* The status of a value; NULL: mr_pickle_alloc has failed and set the error. */
static mr_status made(const mr_pickled *x)
{
    return x ? MR_OK : mr_error_last()->code;
}

static mr_status push(mr_pickle *p, mr_pickled *x)
{
    MR_TRY(made(x));
    if (p->n_stack == STACK_MAX)
        return BAD("%s: pickle: stack deeper than %d", p->path, STACK_MAX);
    p->stack[p->n_stack++] = x;
    return MR_OK;
}

/* Pushes a value without contents. Each kind of them exists once. */
static mr_status push_bare(mr_pickle *p, mr_pickled_kind kind)
{
    if (!p->bare[kind])
        p->bare[kind] = mr_pickle_new(p, kind);
    return push(p, p->bare[kind]);
}

static mr_status push_number(mr_pickle *p, int64_t number)
{
    mr_pickled *x = mr_pickle_new(p, MR_P_NUMBER);
    if (x)
        x->number = number;
    return push(p, x);
}

static mr_status pop(mr_pickle *p, mr_pickled **out)
{
    if (p->n_stack == 0 || p->stack[p->n_stack - 1]->kind == MR_P_MARK)
        return BAD("%s: pickle: a value is missing", p->path);
    *out = p->stack[--p->n_stack];
    return MR_OK;
}

/* Appends to a list or dictionary. The capacity doubles when the length is a power of two. */
static mr_status append(mr_pickle *p, mr_pickled *to, mr_pickled *x)
{
    bool full = to->n == 0 || (to->n >= 4 && (to->n & (to->n - 1)) == 0);
    if (full) {
        size_t cap = to->n ? 2 * (size_t)to->n : 4;
        mr_pickled **grown = mr_pickle_alloc(p, sizeof *grown * cap);
        if (!grown)
            return mr_error_last()->code;
        if (to->n)
            memcpy(grown, to->items, sizeof *grown * (size_t)to->n);
        to->items = grown;
    }
    to->items[to->n++] = x;
    return MR_OK;
}

/* ---- the text of the pickle ---- */

static mr_status take(mr_pickle *p, size_t n, const unsigned char **out)
{
    if ((size_t)(p->end - p->at) < n)
        return BAD("%s: pickle: cut off", p->path);
    *out = p->at, p->at += n;
    return MR_OK;
}

static mr_status take_number(mr_pickle *p, int bytes, int64_t *out)
{
    const unsigned char *from = NULL;
    uint64_t x = 0;
    MR_TRY(take(p, (size_t)bytes, &from));
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)from[i] << (8 * i);
    *out = (int64_t)x;
    return MR_OK;
}

/* Pushes a value that stays in the pickle: a text, or an integer too large for 8 bytes. */
static mr_status push_bytes(mr_pickle *p, mr_pickled_kind kind, size_t n)
{
    const unsigned char *from = NULL;
    MR_TRY(take(p, n, &from));
    mr_pickled *x = mr_pickle_new(p, kind);
    if (x)
        x->text = (const char *)from, x->n = (int)n;
    return push(p, x);
}

/* Pushes a text; its length of `bytes` bytes comes first. */
static mr_status push_text(mr_pickle *p, int bytes)
{
    int64_t n = 0;
    MR_TRY(take_number(p, bytes, &n));
    if (n < 0 || n > p->end - p->at)
        return BAD("%s: pickle: cut off", p->path);
    if (memchr(p->at, 0, (size_t)n))
        return BAD("%s: pickle: a text contains a zero byte", p->path);
    return push_bytes(p, MR_P_TEXT, (size_t)n);
}

/* Pushes an integer; its length of one byte comes first. */
static mr_status push_integer(mr_pickle *p)
{
    int64_t bytes = 0, x = 0;
    MR_TRY(take_number(p, 1, &bytes));
    if (bytes > 8)
        return push_bytes(p, MR_P_BIG, (size_t)bytes);
    MR_TRY(take_number(p, (int)bytes, &x));
    if (bytes > 0 && bytes < 8 && x >> (8 * bytes - 1))
        x -= (int64_t)1 << (8 * bytes);
    return push_number(p, x);
}

/* ---- names ---- */

static mr_status push_name(mr_pickle *p, const char *module, const char *name)
{
    mr_pickled *x = NULL;
    MR_TRY(mr_torch_name(p, module, name, &x));
    return push(p, x);
}

/* Pushes a name: module and name are on two lines. */
static mr_status line_name(mr_pickle *p)
{
    char text[2][MR_TORCH_NAME];
    for (int i = 0; i < 2; i++) {
        const unsigned char *stop = memchr(p->at, '\n', (size_t)(p->end - p->at));
        if (!stop || stop - p->at >= MR_TORCH_NAME)
            return BAD("%s: pickle: a name is cut off or too long", p->path);
        memcpy(text[i], p->at, (size_t)(stop - p->at));
        text[i][stop - p->at] = 0;
        p->at = stop + 1;
    }
    return push_name(p, text[0], text[1]);
}

/* Pushes a name: module and name are the top two values. */
static mr_status stack_name(mr_pickle *p)
{
    char text[2][MR_TORCH_NAME];
    for (int i = 1; i >= 0; i--) {
        mr_pickled *x = NULL;
        MR_TRY(pop(p, &x));
        if (x->kind != MR_P_TEXT || x->n >= MR_TORCH_NAME)
            return BAD("%s: pickle: a name is not a text, or too long", p->path);
        memcpy(text[i], x->text, (size_t)x->n);
        text[i][x->n] = 0;
    }
    return push_name(p, text[0], text[1]);
}

/* ---- containers ---- */

/* Finds the first value above the newest mark. */
static mr_status above_mark(const mr_pickle *p, int *from)
{
    int at = p->n_stack;
    while (at > 0 && p->stack[at - 1]->kind != MR_P_MARK)
        at--;
    if (at == 0)
        return BAD("%s: pickle: a mark is missing", p->path);
    *from = at;
    return MR_OK;
}

/* Makes the values from `from` on one tuple, and cuts the stack at `keep`. */
static mr_status collect(mr_pickle *p, int from, int keep)
{
    int n = p->n_stack - from;
    mr_pickled *x = mr_pickle_new(p, MR_P_TUPLE);
    MR_TRY(made(x));
    if (n && !(x->items = mr_pickle_alloc(p, sizeof *x->items * (size_t)n)))
        return mr_error_last()->code;
    for (int i = 0; i < n; i++) {
        if (p->stack[from + i]->kind == MR_P_MARK)
            return BAD("%s: pickle: a mark inside a tuple", p->path);
        x->items[x->n++] = p->stack[from + i];
    }
    p->n_stack = keep;
    return push(p, x);
}

static mr_status marked_tuple(mr_pickle *p)
{
    int from = 0;
    MR_TRY(above_mark(p, &from));
    return collect(p, from, from - 1);
}

static mr_status counted_tuple(mr_pickle *p, int n)
{
    if (p->n_stack < n)
        return BAD("%s: pickle: a value is missing", p->path);
    return collect(p, p->n_stack - n, p->n_stack - n);
}

/* Moves the values from `from` on into the container below `keep`, and cuts the stack at `keep`. */
static mr_status fill(mr_pickle *p, mr_pickled_kind into, int from, int keep)
{
    int n = p->n_stack - from;
    if (keep <= 0 || p->stack[keep - 1]->kind != into || (into == MR_P_DICT && n % 2))
        return BAD("%s: pickle: items for a value that is not a container", p->path);
    mr_pickled *to = p->stack[keep - 1];
    for (int i = 0; i < n; i++) {
        if (p->stack[from + i]->kind == MR_P_MARK)
            return BAD("%s: pickle: a mark inside a container", p->path);
        MR_TRY(append(p, to, p->stack[from + i]));
    }
    p->n_stack = keep;
    return MR_OK;
}

static mr_status fill_marked(mr_pickle *p, mr_pickled_kind into)
{
    int from = 0;
    MR_TRY(above_mark(p, &from));
    return fill(p, into, from, from - 1);
}

static mr_status fill_counted(mr_pickle *p, mr_pickled_kind into, int n)
{
    return fill(p, into, p->n_stack - n, p->n_stack - n);
}

/* ---- the memo ---- */

static mr_status remember(mr_pickle *p, int64_t at)
{
    if (p->n_stack == 0 || at < 0 || at >= MEMO_MAX)
        return BAD("%s: pickle: memo %lld; expected less than %d", p->path, (long long)at,
                   MEMO_MAX);
    while (p->n_memo <= at)
        p->memo[p->n_memo++] = NULL;
    p->memo[at] = p->stack[p->n_stack - 1];
    return MR_OK;
}

static mr_status recall(mr_pickle *p, int64_t at)
{
    if (at < 0 || at >= p->n_memo || !p->memo[at])
        return BAD("%s: pickle: memo %lld is empty", p->path, (long long)at);
    return push(p, p->memo[at]);
}

/* ---- opcodes ---- */

/* Replaces the top two values by the result of a call or an instance. */
static mr_status apply(mr_pickle *p, mr_torch_made *make)
{
    mr_pickled *args = NULL, *what = NULL, *x = NULL;
    MR_TRY(pop(p, &args));
    MR_TRY(pop(p, &what));
    MR_TRY(make(p, what, args, &x));
    return push(p, x);
}

static mr_status reference(mr_pickle *p)
{
    mr_pickled *id = NULL, *x = NULL;
    MR_TRY(pop(p, &id));
    MR_TRY(mr_torch_reference(p, id, &x));
    return push(p, x);
}

static mr_status build(mr_pickle *p)
{
    mr_pickled *state = NULL;
    MR_TRY(pop(p, &state));
    if (p->n_stack == 0)
        return BAD("%s: pickle: a value is missing", p->path);
    return mr_torch_build(p, p->stack[p->n_stack - 1], state);
}

static mr_status step(mr_pickle *p, int op)
{
    int64_t x = 0;
    const unsigned char *passed = NULL;
    switch (op) {
    // protocol and frame: not needed
    case 0x80: return take(p, 1, &passed);
    case 0x95: return take(p, 8, &passed);
    // constants and numbers; the value of a float is not used
    case 'N': return push_bare(p, MR_P_NOTHING);
    case 0x88: return push_number(p, 1);
    case 0x89: return push_number(p, 0);
    case 'K': MR_TRY(take_number(p, 1, &x)); return push_number(p, x);
    case 'M': MR_TRY(take_number(p, 2, &x)); return push_number(p, x);
    case 'J': MR_TRY(take_number(p, 4, &x)); return push_number(p, (int32_t)x);
    case 'G': MR_TRY(take(p, 8, &passed)); return push_bare(p, MR_P_NOTHING);
    case 0x8a: return push_integer(p);
    // texts
    case 'X': return push_text(p, 4);
    case 0x8c: return push_text(p, 1);
    // containers; a set is a list here
    case '(': return push_bare(p, MR_P_MARK);
    case ')': return counted_tuple(p, 0);
    case ']':
    case 0x8f: return push(p, mr_pickle_new(p, MR_P_LIST));
    case '}': return push(p, mr_pickle_new(p, MR_P_DICT));
    case 't': return marked_tuple(p);
    case 0x85: return counted_tuple(p, 1);
    case 0x86: return counted_tuple(p, 2);
    case 0x87: return counted_tuple(p, 3);
    case 's': return fill_counted(p, MR_P_DICT, 2);
    case 'u': return fill_marked(p, MR_P_DICT);
    case 'a': return fill_counted(p, MR_P_LIST, 1);
    case 'e':
    case 0x90: return fill_marked(p, MR_P_LIST);
    // the memo
    case 'q': MR_TRY(take_number(p, 1, &x)); return remember(p, x);
    case 'r': MR_TRY(take_number(p, 4, &x)); return remember(p, x);
    case 0x94: return remember(p, p->n_memo);
    case 'h': MR_TRY(take_number(p, 1, &x)); return recall(p, x);
    case 'j': MR_TRY(take_number(p, 4, &x)); return recall(p, x);
    // names, calls and storages, for rebuild.c
    case 'c': return line_name(p);
    case 0x93: return stack_name(p);
    case 'Q': return reference(p);
    case 'R': return apply(p, mr_torch_call);
    case 0x81: return apply(p, mr_torch_instance);
    case 'b': return build(p);
    default:
        return BAD("%s: pickle: opcode 0x%02x is not one that weights need; nothing was run",
                   p->path, (unsigned)op);
    }
}

mr_status mr_pickle_open(mr_pickle *p, const char *path, const void *text, size_t bytes)
{
    *p = (mr_pickle){.path = path, .at = text, .end = (const unsigned char *)text + bytes};
    mr_arena_init(&p->arena);
    p->stack = mr_alloc(sizeof *p->stack * STACK_MAX);
    p->memo = mr_alloc(sizeof *p->memo * MEMO_MAX);
    return p->stack && p->memo ? MR_OK : mr_fail_memory(sizeof *p->memo * MEMO_MAX);
}

mr_status mr_pickle_next(mr_pickle *p, mr_pickled **out)
{
    p->n_stack = p->n_memo = 0;
    while (true) {
        if (p->n_ops++ >= OPS_MAX)
            return BAD("%s: pickle: more than %d opcodes", p->path, OPS_MAX);
        const unsigned char *op = NULL;
        MR_TRY(take(p, 1, &op));
        if (*op == '.')
            break;
        MR_TRY(step(p, *op));
    }
    MR_TRY(mr_torch_check_classes(p));
    if (p->n_stack != 1 || p->stack[0]->kind == MR_P_MARK)
        return BAD("%s: pickle: %d values at its end, expected one", p->path, p->n_stack);
    *out = p->stack[0];
    return MR_OK;
}

void mr_pickle_close(mr_pickle *p)
{
    mr_arena_fini(&p->arena);
    mr_free(p->stack);
    mr_free(p->memo);
    *p = (mr_pickle){0};
}
