/* op/shapes: facts that ops derive from shapes alone, before anything is computed: errors of
 * arguments that do not match; shapes of results; operations; bytes of a workspace.
 * Covers: core/op/linear.c core/op/linear.h core/op/linear_f8.c core/op/quantise_f8.c
 * core/op/conv3d.c core/op/attention.c */
#include "cpu/cpu.h"
#include "op/linear.h"
#include "opcase.h"

/* A call of descs alone. */
typedef struct shapes {
    op_case c;
    mr_call call;
    _Alignas(16) unsigned char attr[MR_ATTR_BYTES];
} shapes;

static mr_status shapes_of(const char *name, const char *text, shapes *s)
{
    const mr_op *op = mr_op_find(name);
    *s = (shapes){0};
    CHECK(case_parse(op, text, &s->c));
    CHECK_OK(mr_op_attrs(op, s->c.attr, s->c.n_attr, s->attr));
    mr_infer ctx = {.n_in = mr_op_n_in(op), .attr = s->attr};
    s->call = (mr_call){.n_in = ctx.n_in, .n_out = mr_op_n_out(op), .attr = s->attr, .threads = 1};
    for (int i = 0; i < MR_MAX_IN; i++) {
        s->call.in[i].desc.rank = -1;
        if (s->c.in[i].given)
            s->call.in[i].desc = s->c.in[i].desc, ctx.in[i] = &s->c.in[i].desc;
    }
    for (int k = 0; k < MR_MAX_OUT; k++)
        ctx.out[k].rank = -1;
    MR_TRY(mr_op_check_dtypes(op, &ctx));
    MR_TRY(op->infer(&ctx));
    for (int k = 0; k < MR_MAX_OUT; k++)
        s->call.out[k].desc = ctx.out[k];
    return MR_OK;
}

/* Operands of 8 bits, with their scales. */
#define X_W_SCALED(x, w)                                                                           \
    "x=[3,32] f8_e4m3 x_scale=[" #x "] f32 w=[48,32] f8_e4m3 w_scale=[" #w "] f32 "
#define DY_X_SCALED(dy, x)                                                                         \
    "dy_t=[48,32] f8_e5m2 dy_scale=[" #dy "] f32 x_t=[16,32] f8_e4m3 x_scale=[" #x "] f32 "
#define X_W   X_W_SCALED(1, 1)
#define DY_X  DY_X_SCALED(1, 1)
#define DY_X2 "dy=[2,3,20] f32 x=[2,3,33] f32 "

/* The inputs of attention's gradient, except lse. */
#define ATTENDED                                                                                   \
    "q=[2,3,5,4,16] f32 k=[2,3,7,4,16] f32 v=[2,3,7,4,16] f32 o=[2,3,5,4,16] f32 "                 \
    "do=[2,3,5,4,16] f32 "

static const struct {
    const char *op, *text, *message;
} refused[] = {
    {"attention_grad", ATTENDED "lse=[2,3,5,4] f32",
     "lse of q is [2, 3, 4, 5] f32, lse is [2, 3, 5, 4] f32"},
    {"attention_grad", ATTENDED "lse=[2,3,4] f32", "lse is [2, 3, 4] f32"},
    {"attention_grad", ATTENDED "lse=[2,3,4,5] f32 dlse=[2,3,4,1] f32", "dlse is [2, 3, 4, 1]"},
    {"linear", "x=[3,5] f32 w=[4,6] f32", "x is [3, 5] f32, w is [4, 6] f32; expected the last"},
    {"linear", "x=[3,5] f32 w=[5] f32", "w is [5] f32"},
    {"linear", "x=[3,5] f32 w=[4,5] bf16", "w is [4, 5] bf16"},
    {"linear", "x=[3,5] f32 w=[4,5] f32 b=[5] f32", "b is [5] f32, expected [4] f32"},
    {"linear", "x=[3,5] f32 w=[4,5] f32 b=[1,4] f32", "b is [1, 4] f32, expected [4] f32"},
    {"linear", "x=[3,5] f32 w=[4,5] f32 b=[4] bf16", "b is [4] bf16"},
    {"linear_dx", "dy=[3,5] f32 w=[4,5] f32", "last dimension of dy to be dimension 0 of w"},
    {"linear_dw", "dy=[2,3,20] f32 x=[3,3,33] f32 acc=[20,33] f32", "expected [..., N], [..., K]"},
    {"linear_dw", "dy=[2,4,20] f32 x=[2,3,33] f32 acc=[20,33] f32", "expected [..., N], [..., K]"},
    {"linear_dw", "dy=[6,20] f32 x=[2,3,33] f32 acc=[20,33] f32", "dy is [6, 20] f32"},
    {"linear_dw", DY_X2 "acc=[33,20] f32", "acc is [33, 20] f32"},
    {"linear_dw", DY_X2 "acc=[20,32] f32", "acc is [20, 32] f32"},
    {"linear_dw", DY_X2 "acc=[20,33] f32 db=[33] f32", "db is [33] f32; expected [..., N] and [N]"},
    {"linear_db", "dy=[3,5] f32 acc=[3] f32", "acc is [3] f32; expected [..., N] and [N]"},
    {"linear_db", "dy=[3,5] f32 acc=[5,1] f32", "acc is [5, 1] f32"},

    {"linear_f8", "x=[3,24] f8_e4m3 x_scale=[1] f32 w=[48,24] f8_e4m3 w_scale=[1] f32",
     "x is [3, 24] f8_e4m3, w is [48, 24] f8_e4m3; expected K and N to be multiples of 16"},
    {"linear_f8", "x=[3,32] f8_e4m3 x_scale=[1] f32 w=[40,32] f8_e4m3 w_scale=[1] f32",
     "w is [40, 32] f8_e4m3; expected K and N to be multiples of 16"},
    {"linear_f8", "x=[3,16] f8_e4m3 x_scale=[1] f32 w=[48,32] f8_e4m3 w_scale=[1] f32",
     "expected [..., K] and [N, K]"},
    {"linear_f8", "x=[3,32] f8_e4m3 x_scale=[1] f32 w=[1,48,32] f8_e4m3 w_scale=[1] f32",
     "expected [..., K] and [N, K]"},
    {"linear_f8", X_W_SCALED(2, 1), "x_scale is [2] f32, expected [1] f32"},
    {"linear_f8", X_W_SCALED(1, 48), "w_scale is [48] f32, expected [1] f32"},
    {"linear_f8", X_W "dtype=f64", "dtype is f64, expected f32 or bf16"},
    {"linear_f8", X_W "b=[32] bf16", "b is [32] bf16, expected [48] bf16"},
    {"linear_f8", X_W "b=[48,1] bf16", "b is [48, 1] bf16, expected [48] bf16"},
    {"linear_f8", X_W "x_of=[32,3] bf16", "x_of is [32, 3] bf16"},
    {"linear_f8", X_W "w_of=[32,48] f32", "w_of is [32, 48] f32"},
    {"linear_dw_f8",
     "dy_t=[40,32] f8_e5m2 dy_scale=[1] f32 x_t=[16,32] f8_e4m3 x_scale=[1] f32 "
     "acc=[40,16] f32",
     "acc is [40, 16] f32, expected [40, 16] f32, multiples of 16"},
    {"linear_dw_f8", DY_X "acc=[16,48] f32", "acc is [16, 48] f32, expected [48, 16] f32"},
    {"linear_dw_f8", DY_X "acc=[48,32] f32", "acc is [48, 32] f32, expected [48, 16] f32"},
    {"linear_dw_f8", DY_X "acc=[48,16,1] f32", "acc is [48, 16, 1] f32"},
    {"linear_dw_f8",
     "dy_t=[2,16,32] f8_e5m2 dy_scale=[1] f32 x_t=[16,32] f8_e4m3 x_scale=[1] f32 "
     "acc=[16,16] f32",
     "dy_t is [2, 16, 32] f8_e5m2"},
    {"linear_dw_f8", DY_X_SCALED(3, 1) "acc=[48,16] f32", "dy_scale is [3] f32"},
    {"linear_dw_f8", DY_X_SCALED(1, 2) "acc=[48,16] f32", "x_scale is [2] f32"},
    {"quantise_f8", "x=[3,4] f32 dtype=bf16", "dtype is bf16, expected f8_e4m3 or f8_e5m2"},
    {"quantise_f8", "x=[] f32", "x is a scalar, expected [..., C]"},
};

static void refusals(void)
{
    shapes s;
    for (size_t i = 0; i < MR_COUNT(refused); i++)
        if (!CHECK_FAILS(shapes_of(refused[i].op, refused[i].text, &s), MR_E_SHAPE,
                         refused[i].message))
            printf("%s \"%s\"\n", refused[i].op, refused[i].text);
}

/* A volume of 6 channels, and weights for 4. */
#define X     "x=[1,2,3,4,6] f32 "
#define X_W46 X "w=[4,6,1,1,1] f32 "
#define DY    "dy=[1,2,3,4,4] f32 "
#define DY_W  DY "w=[4,6,1,1,1] f32 "

static void convolutions(void)
{
    static const struct {
        const char *op, *text, *message;
        mr_status code;
    } no[] = {
        {"conv3d", X_W46 "stride={2,2}", "stride has 2 entries, expected 3: time, height, width",
         MR_E_USAGE},
        {"conv3d", X_W46 "pad={1,1,1}", "pad has 3 entries, expected 6: before and behind",
         MR_E_USAGE},
        {"conv3d", X_W46 "stride={1,0,1}", "stride: entry 1 is 0, expected 1 to 1048576",
         MR_E_USAGE},
        {"conv3d", X_W46 "pad={0,0,-1,0,0,0}", "pad: entry 2 is -1, expected 0 to", MR_E_USAGE},
        {"conv3d", X_W46 "pad={0,0,0,0,0,1048577}", "pad: entry 5 is 1048577", MR_E_USAGE},
        {"conv3d", "x=[2,3,4,6] f32 w=[4,6,1,1,1] f32", "x is [2, 3, 4, 6] f32", MR_E_SHAPE},
        {"conv3d", X "w=[4,6,1,1] f32", "w is [4, 6, 1, 1] f32", MR_E_SHAPE},
        {"conv3d", X "w=[7,3,1,1,1] f32 groups=2", "2 groups, and O a multiple of them",
         MR_E_SHAPE},
        {"conv3d", X "w=[8,2,1,1,1] f32 groups=2", "w is [8, 2, 1, 1, 1] f32", MR_E_SHAPE},
        {"conv3d", X "w=[4,6,1,4,1] f32", "no longer than the padded axis 1", MR_E_SHAPE},
        {"conv3d", X "w=[4,6,1,1,7] f32 pad={0,0,0,0,1,1}", "no longer than the padded axis 2",
         MR_E_SHAPE},
        {"conv3d", X "w=[4,6,0,1,1] f32", "no longer than the padded axis 0", MR_E_SHAPE},
        {"conv3d", X_W46 "bias=[6] f32", "bias is [6] f32, expected [4]", MR_E_SHAPE},
        {"conv3d", X_W46 "bias=[4,1] f32", "bias is [4, 1] f32, expected [4]", MR_E_SHAPE},
        {"conv3d", X_W46 "bias=[4] bf16", "bias is [4] bf16", MR_E_SHAPE},
        {"conv3d_dx", DY_W "dims={2,3}", "dims has 2 entries, expected 3", MR_E_USAGE},
        {"conv3d_dx", DY_W "dims={2,-3,4}", "dims: entry 1 is -3", MR_E_USAGE},
        {"conv3d_dx", DY_W "dims={2,3,5}", "dy is [1, 2, 3, 4, 4] f32, expected [1, 2, 3, 5, 4]",
         MR_E_SHAPE},
        {"conv3d_dx", "dy=[2,3,4,4] f32 w=[4,6,1,1,1] f32 dims={2,3,4}", "dy is [2, 3, 4, 4] f32",
         MR_E_SHAPE},
        {"conv3d_dx", DY "w=[4,6] f32 dims={2,3,4}", "w is [4, 6] f32", MR_E_SHAPE},
        {"conv3d_dw", "dy=[1,2,3,4,5] f32 " X "acc=[4,6,1,1,1] f32",
         "dy is [1, 2, 3, 4, 5] f32, expected [1, 2, 3, 4, 4]", MR_E_SHAPE},
    };
    shapes s;
    for (size_t i = 0; i < MR_COUNT(no); i++)
        if (!CHECK_FAILS(shapes_of(no[i].op, no[i].text, &s), no[i].code, no[i].message))
            printf("%s \"%s\"\n", no[i].op, no[i].text);
}

/* Rows end in zeros up to a multiple of 16. */
static void transposed(void)
{
    static const int64_t rows[] = {0, 1, 16, 17, 21, 32}, columns[] = {0, 16, 16, 32, 32, 32};
    shapes s;
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        char text[64];
        snprintf(text, sizeof text, "x=[%d,5] bf16 dtype=f8_e5m2 transposed=1", (int)rows[i]);
        CHECK_OK(shapes_of("quantise_f8", text, &s));
        const mr_desc *q_t = &s.call.out[2].desc;
        CHECK_INT(q_t->rank, 2);
        CHECK_INT(q_t->dim[0], 5);
        CHECK_INT(q_t->dim[1], columns[i]);
        CHECK_INT(q_t->dtype, MR_F8_E5M2);
    }
}

/* A product of [m, k] and [k, n] takes 2 m n k operations; a sum of rows one an element. */
static const struct {
    const char *op, *text;
    double flop;
} counted[] = {
    {"linear", "x=[2,3,5] f32 w=[7,5] f32", 2 * 6 * 5 * 7},
    {"linear_dx", "dy=[2,3,7] f32 w=[7,5] f32", 2 * 6 * 5 * 7},
    {"linear_dw", "dy=[2,3,7] f32 x=[2,3,5] f32 acc=[7,5] f32", 2 * 6 * 5 * 7},
    {"linear_db", "dy=[2,3,7] f32 acc=[7] f32", 6 * 7},
    {"linear_gelu", "x=[2,3,5] f32 w=[7,5] f32", 2 * 6 * 5 * 7},
    {"linear_dx_gelu", "dy=[2,3,7] f32 w=[7,5] f32 h=[2,3,5] f32", 2 * 6 * 5 * 7},
    {"matmul", "a=[3,2,5] f32 b=[3,5,7] f32", 3 * 2 * 2 * 5 * 7},
    {"linear_f8", X_W, 2 * 3 * 32 * 48},
    {"linear_dw_f8", DY_X "acc=[48,16] f32", 2 * 48 * 16 * 32},
    {"conv3d", "x=[2,3,4,5,6] f32 w=[7,6,1,1,1] f32", 2 * 2 * 3 * 4 * 5 * 6 * 7},
    {"conv3d", "x=[2,7,4,5,6] f32 w=[4,3,2,1,3] f32 groups=2 stride={2,1,1}",
     2.0 * 2 * 3 * 4 * 3 * 4 * 3 * 6},
    {"conv3d_dx", "dy=[2,3,4,3,4] f32 w=[4,3,2,1,3] f32 groups=2 stride={2,1,1} dims={7,4,5}",
     2.0 * 2 * 3 * 4 * 3 * 4 * 3 * 6},
    {"conv3d_dw",
     "dy=[2,3,4,3,4] f32 x=[2,7,4,5,6] f32 acc=[4,3,2,1,3] f32 groups=2 stride={2,1,1}",
     2.0 * 2 * 3 * 4 * 3 * 4 * 3 * 6},
};

static void operations(void)
{
    shapes s;
    for (size_t i = 0; i < MR_COUNT(counted); i++) {
        CHECK_OK(shapes_of(counted[i].op, counted[i].text, &s));
        if (!CHECK_NEAR(mr_op_cost(s.c.op, &s.call).flop, counted[i].flop, 0))
            printf("%s \"%s\"\n", counted[i].op, counted[i].text);
    }
    // the quantised source is not read, nor what its gradients will read
    double bytes = 3 * 32 + 4 + 48 * 32 + 4 + 2 * 48 + 2 * 3 * 48;
    CHECK_OK(shapes_of("linear_f8",
                       X_W "b=[48] bf16 x_t=[32,16] f8_e4m3 w_t=[32,48] f8_e4m3 x_of=[3,32] bf16 "
                           "w_of=[48,32] bf16",
                       &s));
    CHECK_NEAR(mr_op_cost(s.c.op, &s.call).bytes, bytes, 0);
    CHECK_OK(shapes_of("linear_dw_f8", DY_X "acc=[48,16] f32", &s));
    CHECK_NEAR(mr_op_cost(s.c.op, &s.call).bytes, 48 * 32 + 4 + 16 * 32 + 4 + 2 * 4 * 48 * 16, 0);
}

/* [..., C] as rows: one step where leading dimensions join, else rows are gathered. */
static void rows(void)
{
    static const struct {
        mr_desc d;
        product_rows want;
    } of[] = {
        {{MR_F32, 3, {2, 3, 5}, {15, 5, 1}}, {6, 5, 5, false}},
        {{MR_F32, 3, {2, 3, 5}, {24, 8, 1}}, {6, 5, 8, false}},
        {{MR_F32, 3, {2, 3, 5}, {30, 8, 1}}, {6, 5, 5, true}},
        // the step of a single row, and of a dimension of 1, has no meaning
        {{MR_F32, 2, {1, 5}, {99, 1}}, {1, 5, 5, false}},
        {{MR_F32, 3, {2, 1, 5}, {8, 99, 1}}, {2, 5, 8, false}},
        {{MR_F32, 1, {5}, {1}}, {1, 5, 5, false}},
        // one row repeated
        {{MR_F32, 2, {4, 5}, {0, 1}}, {4, 5, 5, true}},
        {{MR_F32, 2, {0, 5}, {5, 1}}, {0, 5, 5, false}},
    };
    for (size_t i = 0; i < MR_COUNT(of); i++) {
        product_rows r = product_rows_of(&of[i].d);
        CHECK_INT(r.n, of[i].want.n);
        CHECK_INT(r.c, of[i].want.c);
        CHECK_INT(r.step, of[i].want.step);
        CHECK_INT(r.split, of[i].want.split);
    }
}

static size_t workspace(const char *op, const char *text)
{
    shapes s;
    const mr_facts facts = mr_cpu_facts("cpu", mr_isa(), 1);
    CHECK_OK(shapes_of(op, text, &s));
    return s.c.op->cpu.workspace(&s.call, &facts);
}

/* Operands of 8 bits are widened in pieces: more rows need no more memory. */
static void pieces(void)
{
    CHECK_INT(workspace("linear_f8", "x=[300,32] f8_e4m3 x_scale=[1] f32 w=[48,32] f8_e4m3 "
                                     "w_scale=[1] f32"),
              workspace("linear_f8", "x=[90000,32] f8_e4m3 x_scale=[1] f32 w=[48,32] f8_e4m3 "
                                     "w_scale=[1] f32"));
    CHECK_INT(workspace("linear_dw_f8", "dy_t=[48,304] f8_e5m2 dy_scale=[1] f32 x_t=[16,304] "
                                        "f8_e4m3 x_scale=[1] f32 acc=[48,16] f32"),
              workspace("linear_dw_f8", "dy_t=[48,90000] f8_e5m2 dy_scale=[1] f32 x_t=[16,90000] "
                                        "f8_e4m3 x_scale=[1] f32 acc=[48,16] f32"));
}

int main(void)
{
    refusals();
    convolutions();
    transposed();
    operations();
    rows();
    pieces();
    return check_done();
}
