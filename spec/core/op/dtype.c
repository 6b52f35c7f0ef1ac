/* op/dtype: the dtypes that ops declare are binding. For each argument of each case, each dtype
 * that its text does not name is refused before infer sees it, and no kernel is chosen for f64 that
 * it does not declare: a new dtype in the list of dtypes reaches a kernel only by name.
 * Covers: core/cpu/op_dtype.c, core/graph/store.c */
#include "opcase.h"
#include "moonreel/graph.h"

/* The input that the text says it is like, -1 for none. */
static int like_of(const mr_op *op, const char *type)
{
    for (int i = 0; i < mr_op_n_in(op); i++) {
        char like[64];
        snprintf(like, sizeof like, "like %s", op->in[i].name);
        const char *at = strstr(type, like);
        if (at && strchr(" ,", at[strlen(like)]))
            return i;
    }
    return -1;
}

/* The text with the list, as a person would read it. */
static const char *named(const mr_op *op, const char *type)
{
    int like = like_of(op, type);
    return like < 0 ? type : named(op, op->in[like].type);
}

static bool says(const mr_op *op, const char *type, mr_dtype dtype)
{
    const char *text = named(op, type);
    return strstr(text, "any dtype") || strstr(text, "asked dtype") ||
           strstr(text, mr_dtype_name(dtype)) ||
           (dtype == MR_F64 && (strstr(text, "f32") || strstr(text, "bf16")));
}

/* Must another given argument have the dtype of argument i? */
static bool tied(const op_case *c, int i)
{
    const char *type = c->op->in[i].type;
    if (named(c->op, type) != type)
        return true;
    for (int k = 0; k < mr_op_n_in(c->op); k++)
        if (k != i && c->in[k].given && c->op->in[k].type != type &&
            named(c->op, c->op->in[k].type) == type && strstr(c->op->in[k].type, "like "))
            return true;
    return false;
}

static mr_status ask(const op_case *c, int changed, mr_dtype dtype)
{
    mr_desc desc[MR_MAX_IN];
    mr_infer ctx = {.n_in = mr_op_n_in(c->op)};
    for (int i = 0; i < ctx.n_in; i++) {
        desc[i] = c->in[i].desc;
        if (i == changed)
            desc[i].dtype = dtype;
        ctx.in[i] = c->in[i].given ? &desc[i] : NULL;
    }
    return mr_op_check_dtypes(c->op, &ctx);
}

static int refused;

static void every_dtype(const op_case *c)
{
    CHECK_OK(ask(c, -1, MR_F32));
    for (int i = 0; i < mr_op_n_in(c->op); i++) {
        if (!c->in[i].given)
            continue;
        for (int t = 0; t < MR_DTYPE_COUNT; t++) {
            mr_dtype dtype = (mr_dtype)t;
            if (dtype == c->in[i].desc.dtype)
                continue;
            if (says(c->op, c->op->in[i].type, dtype) && !tied(c, i)) {
                CHECK_OK(ask(c, i, dtype));
                continue;
            }
            refused++;
            if (!CHECK_FAILS(ask(c, i, dtype), MR_E_SHAPE, "expected "))
                printf("%s \"%s\": %s as %s\n", c->op->name, c->text, c->op->in[i].name,
                       mr_dtype_name(dtype));
        }
    }
}

/* The case's own dtypes run on the kernel; with all floats as f64, only kernels that declare f64
 * run. */
static void kernels(const op_case *c)
{
    mr_call call = {.n_in = mr_op_n_in(c->op)};
    bool changed = false;
    for (int i = 0; i < call.n_in; i++) {
        call.in[i].desc = c->in[i].desc;
        if (!c->in[i].given)
            call.in[i].desc.rank = -1;
    }
    CHECK(mr_op_kernel_fits(c->op, &call));
    for (int i = 0; i < call.n_in; i++) {
        mr_desc *d = &call.in[i].desc;
        const char *text = named(c->op, c->op->in[i].type);
        if (!c->in[i].given || !mr_dtype_is_float(d->dtype))
            continue;
        d->dtype = MR_F64;
        changed |= !strstr(text, "f64") && !strstr(text, "any dtype");
    }
    CHECK_INT(mr_op_kernel_fits(c->op, &call), !changed);
    // an output of another dtype is not accepted by the kernel either
    const char *first = c->op->out[0].type;
    if (!strstr(named(c->op, first), " dtype")) {
        call.n_out = 1;
        for (int i = 0; i < call.n_in; i++)
            call.in[i].desc = c->in[i].given ? c->in[i].desc : (mr_desc){.rank = -1};
        call.out[0].desc =
            mr_desc_dense(strstr(named(c->op, first), "u8") ? MR_I64 : MR_U8, 0, NULL);
        CHECK(!mr_op_kernel_fits(c->op, &call));
    }
}

static void texts(const mr_op *op)
{
    for (int i = 0; i < mr_op_n_in(op) + mr_op_n_out(op); i++) {
        int out = i - mr_op_n_in(op);
        const char *type = out < 0 ? op->in[i].type : op->out[out].type;
        if (!CHECK(mr_op_dtypes(op, type) != 0))
            printf("%s: \"%s\" names no dtypes\n", op->name, type);
        // an argument that another one is like is always given
        int like = like_of(op, type);
        CHECK(like < 0 || !(op->in[like].flags & MR_OPTIONAL));
    }
}

/* In a graph: the argument, the shapes and the op are named, and f64 uses the naive op. */
static void in_graph(void)
{
    mr_graph *g;
    mr_ref x, w, y;
    CHECK_OK(mr_graph_new(NULL, NULL, &g));
    CHECK_OK(mr_graph_input(g, "x", MR_BF16, 2, (int64_t[]){2, 4}, &x));
    CHECK_OK(mr_graph_input(g, "w", MR_F32, 2, (int64_t[]){3, 4}, &w));
    CHECK_FAILS(mr_graph_add(g, "linear", MR_NO_ATTRS, (mr_ref[]){x, w}, 2, &y), MR_E_SHAPE,
                "linear 'linear#0': w is [3, 4] f32, expected [N, K] like x; x is [2, 4] bf16");
    CHECK_OK(mr_graph_input(g, "i", MR_I32, 2, (int64_t[]){2, 4}, &x));
    CHECK_FAILS(mr_graph_add(g, "silu", MR_NO_ATTRS, &x, 1, &y), MR_E_SHAPE,
                "x is [2, 4] i32, expected [...] f32|bf16");
    mr_graph_free(g);
}

int main(void)
{
    int cases = 0;
    for (int i = 0; i < mr_op_count(); i++) {
        const mr_op *op = mr_op_at(i);
        texts(op);
        for (int k = 0; op->cases && op->cases[k]; k++, cases++) {
            op_case c;
            case_seed = mr_name_word(op->cases[k]);
            CHECK(case_parse(op, op->cases[k], &c));
            every_dtype(&c);
            kernels(&c);
        }
    }
    CHECK(refused > 3 * cases);
    in_graph();
    return check_done();
}
