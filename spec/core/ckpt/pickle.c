/* ckpt/pickle: pickles are walked as data. Opcodes that weights do not need are refused by name,
 * and time and memory stay within limits for any pickle.
 * Covers: core/ckpt/rebuild.c core/ckpt/pickled.c core/ckpt/torch_names.c */
#include "check.h"
#include "ckpt/torch.h"
#include "peak.h"
#include "torchcase.h"

static char report[2000];
static int tensors;

static mr_status note(void *user, const char *name, const mr_torch_tensor *x)
{
    (void)user;
    size_t n = strlen(report);
    tensors++;
    if (n < sizeof report - 100)
        snprintf(report + n, sizeof report - n, "%s%s%s;", name, x->why ? ": " : "",
                 x->why ? x->why : "");
    return MR_OK;
}

/* Walks a pickle in memory of exactly its size and lists its tensors. */
static mr_status walk(const blob *b)
{
    mr_pickle p;
    mr_pickled *root = NULL;
    char *exact = malloc(b->n + 1);
    memcpy(exact, b->data, b->n);
    report[0] = 0, tensors = 0;
    mr_status st = mr_pickle_open(&p, "f", exact, b->n);
    if (st == MR_OK)
        st = mr_pickle_next(&p, &root);
    if (st == MR_OK)
        st = mr_torch_names("f", root, note, NULL);
    mr_pickle_close(&p);
    free(exact);
    return st;
}

/* ---- one value in a dictionary ---- */

static void dict_start(blob *b)
{
    *b = (blob){0};
    pickle_start(b);
    puts_to(b, "}(");
    put_text(b, "x");
}
static void dict_end(blob *b)
{
    puts_to(b, "u.");
}

static mr_status walk_value(const char *code, size_t n)
{
    blob b;
    dict_start(&b);
    put(&b, code, n);
    dict_end(&b);
    mr_status st = walk(&b);
    blob_free(&b);
    return st;
}

#define CODE(text)                                                                                 \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

static void names(void)
{
    static const struct {
        const char *code;
        size_t bytes;
    } refused[] = {
        CODE("cos\nsystem\n(X\1\0\0\0atR"),
        CODE("c__builtin__\neval\n)R"),
        CODE("ctorch\nload\n)R"),
        // never called, never filled as a module, or filled as something else
        CODE("cos\nsystem\n"),
        CODE("cos\nsystem\n)\x81"),
        CODE("cos\nsystem\n)\x81}b"),
        CODE("cos\nsystem\n)\x81}(X\13\0\0\0_parameters}ub"),
    };
    for (size_t i = 0; i < MR_COUNT(refused); i++)
        CHECK_FAILS(walk_value(refused[i].code, refused[i].bytes), MR_E_FORMAT,
                    "is not on the list of names that weights need; nothing was run");
    CHECK_FAILS(walk_value("ctorch\nuint16\n)R", 16), MR_E_FORMAT, "a call of a type");
    CHECK_FAILS(walk_value("K\1)\x81", 4), MR_E_FORMAT, "an instance of a class that is not");
    CHECK_FAILS(walk_value("K\1}b", 4), MR_E_FORMAT, "state for a value that is neither");
    for (int op = 0; op < 256; op++) {
        char code = (char)op;
        mr_status st = walk_value(&code, 1);
        if (st == MR_OK) // none, a number or an empty container as the value
            CHECK(strchr("N)]}\x88\x89\x8f", op) && op);
    }
    CHECK_FAILS(walk_value("i", 1), MR_E_FORMAT, "opcode 0x69 is not one that weights need");
}

static void integers(void)
{
    CHECK_OK(walk_value("\x8a\xff"
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde",
                        257));
    CHECK_OK(walk_value("\x8a\0", 2));
    CHECK_FAILS(walk_value("\x8a\xff", 2), MR_E_FORMAT, "cut off");
}

/* ---- tensors ---- */

static void tensor_value(const tensor_case *t, mr_status code, const char *part)
{
    blob b;
    dict_start(&b);
    put_tensor(&b, t, false);
    dict_end(&b);
    if (code == MR_OK) {
        CHECK_OK(walk(&b));
        CHECK_STR(report, part);
    } else {
        CHECK_FAILS(walk(&b), code, part);
    }
    blob_free(&b);
}

#define FLOATS .type = "torch\nFloatStorage", .key = "0", .elements = 6
#define BYTES  .type = "torch.storage\nUntypedStorage", .key = "0", .elements = 6

static void tensor_kinds(void)
{
    tensor_value(&(tensor_case){FLOATS, .rank = 2, .shape = {2, 3}, .stride = {1, 2}}, MR_OK, "x;");
    tensor_value(
        &(tensor_case){BYTES, .rank = 1, .shape = {3}, .stride = {1}, .more = "ctorch\nuint16\n"},
        MR_OK, "x;");
    tensor_value(&(tensor_case){BYTES, .rank = 1, .shape = {3}, .stride = {1},
                                .more = "ctorch\nfloat8_e8m0fnu\n"},
                 MR_OK, "x: its elements are float8_e8m0fnu;");
    tensor_value(&(tensor_case){.type = "torch\nComplexFloatStorage", .key = "0", .elements = 6},
                 MR_OK, "x: its elements are complex64;");
    tensor_value(&(tensor_case){FLOATS, .rank = 9}, MR_OK, "x: it has more than 8 dimensions;");
    tensor_value(&(tensor_case){FLOATS, .more = "}"}, MR_OK, "x;");
    tensor_value(&(tensor_case){FLOATS, .more = "}X\3\0\0"}, MR_E_FORMAT, "pickle: ");
    // a marker of torch: the stored elements are not the values
    tensor_value(&(tensor_case){FLOATS, .more = "}N\x88s"}, MR_OK,
                 "x: its elements are conjugated or negated when torch reads them;");
    tensor_value(&(tensor_case){BYTES}, MR_E_FORMAT, "invalid arguments");
    tensor_value(&(tensor_case){BYTES, .more = "ctorch\nFloatStorage\n"}, MR_E_FORMAT,
                 "invalid dtype");
    tensor_value(&(tensor_case){FLOATS, .rank = 1, .shape = {-1}, .stride = {1}}, MR_E_FORMAT,
                 "invalid arguments");
    tensor_value(&(tensor_case){FLOATS, .rank = 1, .shape = {1}, .stride = {-1}}, MR_E_FORMAT,
                 "invalid arguments");
    tensor_value(&(tensor_case){FLOATS, .first = -1}, MR_E_FORMAT, "invalid arguments");
    tensor_value(&(tensor_case){.type = "torch\nFloatStorage", .key = "0", .elements = INT64_MAX},
                 MR_E_FORMAT, "a storage of 9223372036854775807 elements");
    tensor_value(&(tensor_case){FLOATS, .rank = 3, .shape = {1L << 31, 1L << 31, 1L << 31}},
                 MR_E_FORMAT, "overflows");
}

static void members(blob *b, const char *name, const char *values, bool tensor)
{
    static const tensor_case one = {FLOATS, .rank = 1, .shape = {6}, .stride = {1}};
    put_text(b, name);
    puts_to(b, "}");
    for (const char *v = values; *v; v++) {
        char text[2] = {*v};
        put_text(b, text);
        if (tensor)
            put_tensor(b, &one, false);
        else
            puts_to(b, "N");
        puts_to(b, "s");
    }
}

/* A whole module: parameters, buffers without those that are not saved, and submodules. */
static void modules(void)
{
    blob b = {0};
    pickle_start(&b);
    puts_to(&b, "c__main__\nNet\nq\1)\x81}(");
    members(&b, "_parameters", "w", true);
    members(&b, "_buffers", "ab", true);
    put_text(&b, "_non_persistent_buffers_set");
    puts_to(&b, "c__builtin__\nset\n](");
    put_text(&b, "a");
    puts_to(&b, "e\x85R");
    put_text(&b, "_modules");
    puts_to(&b, "}");
    put_text(&b, "m");
    puts_to(&b, "h\1)\x81}(");
    members(&b, "_parameters", "v", true);
    members(&b, "_buffers", "", true);
    members(&b, "_modules", "n", false);
    puts_to(&b, "ubsub.");
    CHECK_OK(walk(&b));
    CHECK_STR(report, "w;b;m.v;");
    blob_free(&b);
}

/* Before 1.6 a reference holds a class together with its source, which is not needed. */
static void module_with_source(void)
{
    blob b = {0};
    pickle_start(&b);
    puts_to(&b, "(");
    put_text(&b, "module");
    puts_to(&b, "cnet\nNet\n");
    put_text(&b, "net.py");
    put_text(&b, "class Net");
    puts_to(&b, "tQ)\x81}(");
    members(&b, "_parameters", "w", true);
    members(&b, "_buffers", "", true);
    members(&b, "_modules", "", true);
    puts_to(&b, "ub.");
    CHECK_OK(walk(&b));
    CHECK_STR(report, "w;");
    blob_free(&b);
}

/* ---- limits ---- */

/* The k-th of `levels` dictionaries holds the one before it twice; all are in the first. */
static void shared(blob *b, int levels, bool tensor)
{
    static const tensor_case one = {FLOATS, .rank = 1, .shape = {6}, .stride = {1}};
    *b = (blob){0};
    pickle_start(b);
    puts_to(b, "}");
    put_text(b, "leaf");
    if (tensor)
        put_tensor(b, &one, false);
    else
        puts_to(b, "}");
    puts_to(b, "r");
    put_int(b, 0, 4);
    puts_to(b, "s");
    for (int i = 0; i < levels; i++) {
        char key[20];
        snprintf(key, sizeof key, "level%d", i);
        put_text(b, key);
        puts_to(b, "}(");
        put_text(b, "l");
        puts_to(b, "j"), put_int(b, (uint64_t)i, 4);
        put_text(b, "r");
        puts_to(b, "j"), put_int(b, (uint64_t)i, 4);
        puts_to(b, "u");
        puts_to(b, "r"), put_int(b, (uint64_t)i + 1, 4);
        puts_to(b, "s");
    }
    pickle_end(b);
}

static void sharing(void)
{
    blob b;
    // as many paths as leaves of a tree of 3 levels, for each of the levels
    shared(&b, 3, true);
    CHECK_OK(walk(&b));
    CHECK_INT(tensors, 1 + 2 + 4 + 8);
    blob_free(&b);
    // 2^40 paths to nothing are walked once
    shared(&b, 40, false);
    CHECK_OK(walk(&b));
    CHECK_INT(tensors, 0);
    blob_free(&b);
    shared(&b, 40, true);
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "more than 1000000 entries on all paths");
    CHECK(tensors <= 1000000);
    blob_free(&b);
    for (int i = 0; i < 70; i++)
        puts_to(&b, "}"), put_text(&b, "x");
    puts_to(&b, "}");
    for (int i = 0; i < 70; i++)
        puts_to(&b, "s");
    pickle_end(&b);
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "nested deeper than 64");
    blob_free(&b);
    b = (blob){0};
    puts_to(&b, "}q\1X");
    put_int(&b, 1, 4);
    puts_to(&b, "xh\1s.");
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "or cyclic");
    blob_free(&b);
}

/* Many modules may share one large state, and each searches it for its fields. */
static void shared_state(void)
{
    blob b = {0};
    pickle_start(&b);
    puts_to(&b, "c__main__\nNet\nq\1}(");
    for (int i = 0; i < 40000; i++)
        puts_to(&b, "NN");
    members(&b, "_parameters", "", false);
    members(&b, "_buffers", "", false);
    members(&b, "_modules", "", false);
    puts_to(&b, "uq\2");
    for (int i = 0; i < 1000; i++)
        puts_to(&b, "h\1)\x81h\2b");
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "more than 1000000 opcodes");
    blob_free(&b);
}

static bool walks(void *user)
{
    return walk(user) == MR_OK;
}

/* A piece repeated `count` times in one pickle of at most 8 MiB. */
static void costs(const char *what, const char *piece, size_t bytes, int count, int group)
{
    blob b = {0};
    bool ok;
    puts_to(&b, "]");
    for (int i = 0; i < count && b.n < (8 << 20) - 200; i++) {
        if (i % group == 0)
            puts_to(&b, i ? "ta(" : "(");
        put(&b, piece, bytes);
    }
    puts_to(&b, "ta.");
    int64_t peak = peak_of(walks, &b, &ok);
    printf("%s: %.1f MiB\n", what, (double)peak / (1 << 20));
    CHECK(!PEAK_COUNTS || (peak > 0 && peak < (72 << 20)));
    blob_free(&b);
}

static void limits(void)
{
    blob b = {0};
    for (int i = 0; i < 100001; i++)
        puts_to(&b, "N");
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "stack deeper than 100000");
    b.n = 0;
    puts_to(&b, "]");
    for (int i = 0; i < 1000000; i++)
        puts_to(&b, "\x85");
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "more than 1000000 opcodes");
    b.n = 0;
    puts_to(&b, "]r"), put_int(&b, 1000000, 4);
    CHECK_FAILS(walk(&b), MR_E_FORMAT, "memo 1000000; expected less than 1000000");
    blob_free(&b);
    // room of the reader in addition to the 8 MiB of the pickle itself, which the file's reader
    // holds
    costs("nothing", "N", 1, 990000, 90000);
    costs("empty texts", "\x8c", 2, 990000, 90000);
    costs("dictionaries", "}NNs", 4, 240000, 20000);
    costs("lists", "]NaNaNaNaNa", 11, 90000, 9000);
    costs("empty lists", "]", 1, 990000, 90000);
    costs("tuples", "N\x85", 2, 490000, 90000);
    costs("classes", "ca\nb\n", 5, 990000, 90000);
    costs("tensors", "ctorch._utils\n_rebuild_sparse_tensor\n)R", 39, 990000, 90000);
}

int main(void)
{
    names();
    integers();
    tensor_kinds();
    modules();
    module_with_source();
    sharing();
    shared_state();
    limits();
    return check_done();
}
