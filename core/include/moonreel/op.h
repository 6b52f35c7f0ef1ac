/* op: self-describing op definitions, the source of graph, eager calls, help, cost and contract
 * specs.
 *
 * One file core/op/NAME.c has everything about an op: its definition (MR_OP), its backward ops, its
 * naive f64 reference and its CPU kernels (MR_KERNEL, compiled once per instruction set). The
 * linker gathers the definitions; no list is edited.
 *
 * Threads: definitions are constant and may be read by any; a kernel runs on the caller's team, and
 * one prepared state serves one call at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_OP_H
#define MOONREEL_OP_H

#include "moonreel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_IN     12
#define MR_MAX_OUT    6
#define MR_MAX_ATTR   8
#define MR_ATTR_BYTES 256

typedef int32_t mr_ref; /* a value of a graph; MR_NONE = absent */
#define MR_NONE ((mr_ref)-1)
struct mr_graph;

/* ---- attributes ---- */

typedef enum mr_attr_kind { MR_ATTR_F64, MR_ATTR_I64, MR_ATTR_BOOL, MR_ATTR_INTS } mr_attr_kind;
typedef struct mr_ints {
    int64_t n, v[MR_MAX_RANK];
} mr_ints; /* a short list of integers */
/* One attribute of an op: stored in the op's plain struct at `at` as double, int64_t, bool,
 * mr_ints. */
typedef struct mr_attr_def {
    const char *name;
    mr_attr_kind kind;
    size_t at;
    double def, min, max; /* min == max == 0: no limits; INTS defaults to an empty list */
    bool required;
    const char *doc;
} mr_attr_def;
/* How callers name attributes: MR_ATTRS({"eps", .f = 1e-6}, {"axis", .i = 1}). */
typedef struct mr_attr {
    const char *name;
    double f;
    int64_t i;
    const mr_ints *ints;
} mr_attr;
#define MR_ATTRS(...)                                                                              \
    (const mr_attr[]){__VA_ARGS__}, (int)MR_COUNT(((const mr_attr[]){__VA_ARGS__}))
#define MR_NO_ATTRS NULL, 0

/* ---- calls ---- */

/* The flat argument of a kernel. A kernel allocates nothing, looks nothing up, reads nothing else.
 * An absent optional input has data == NULL and desc.rank == -1. */
typedef struct mr_call {
    mr_view in[MR_MAX_IN], out[MR_MAX_OUT];
    int n_in, n_out;
    const void *attr; /* the op's plain struct */
    void *workspace;  /* workspace() bytes, 64-byte aligned, contents undefined */
    void *state;      /* result of prepare(), or NULL */
    void *stream;     /* of the device, on which its kernels are launched; NULL on the CPU */
    int threads;      /* team size; 1 <= threads */
} mr_call;

typedef mr_status mr_kernel_fn(const mr_call *call);
typedef struct mr_cost {
    double flop, bytes;
} mr_cost;

/* The largest team: thread libraries keep a part of each member on the stack. */
enum { MR_MOST_THREADS = 4096 };

/* Facts of a device for planning; no device is needed to fill them. */
typedef struct mr_facts {
    char device[16]; /* "cpu", "shadow", "cuda" */
    char isa[16];    /* "base", "avx2", "avx512"; compute capability on CUDA */
    int threads;
    bool bf16; /* bf16 products are fast here */
    bool amx;  /* own kernels may use AMX tiles for bf16 */
    /* its instructions for bf16 are slower than those for f32, so products of bf16 use f32 */
    bool bf16_by_f32;
    /* a step that its kernels do not support is an error, not run on the host */
    bool host_refused;
} mr_facts;

/* Kernels of one device. `run` has one function per instruction set: base, avx2, avx512 of a CPU;
 * sm_80, sm_90a of a GPU. `workspace` depends only on shapes, attributes and facts, so that
 * planning needs no device: the largest workspace of a run, or MR_NO_KERNEL if these kernels do not
 * support the call and the naive kernel runs. `way` depends on the same: a word for the variant of
 * a call, if an op has several with different speeds, so that rates of one are not used for
 * another; NULL: the usual one. `prepare` is called once per compiled node with shapes and no data,
 * and may create primitives; their memory must fit into the result of `workspace`. */
#define MR_NO_KERNEL SIZE_MAX
typedef struct mr_kernel {
    mr_kernel_fn *run[3]; /* NULL: use the previous one */
    mr_status (*prepare)(const mr_call *call, const mr_facts *facts, void **state);
    void (*release)(void *state);
    size_t (*workspace)(const mr_call *call, const mr_facts *facts);
    const char *(*way)(const mr_call *call, const mr_facts *facts);
} mr_kernel;

/* ---- op definitions ---- */

/* strides an argument may have */
typedef enum mr_access { MR_CONTIG, MR_ROWS, MR_ANY } mr_access;
enum { MR_OPTIONAL = 1, MR_NO_GRAD = 2 };

typedef struct mr_arg_def {
    const char *name;
    /* "[..., C] f32|bf16", "[N] like x", "[...] any dtype": for users, and its dtypes are enforced
     */
    const char *type;
    mr_access access;
    unsigned flags;
} mr_arg_def;

typedef struct mr_out_def {
    const char *name;
    const char *type;
    /* Output may use the memory of an input: index + 1, 0 = never. With `must` it always does:
     * accumulators ("acc" in, "acc" out) and in-place updates of persistent regions. */
    int inplace;
    bool must;
    /* strides that the kernel can write; concat uses it to place producers */
    mr_access access;
} mr_out_def;

/* infer: fill out[].dtype, rank, dim (dense strides are set for you; set stride[] only when the
 * output keeps a permuted order). Fail with mr_fail(MR_E_SHAPE, ...): op, node and origin are
 * added. */
typedef struct mr_infer {
    const mr_desc *in[MR_MAX_IN]; /* NULL = absent */
    int n_in;
    const void *attr;
    mr_desc out[MR_MAX_OUT];
} mr_infer;

/* grad: add nodes that compute din[] from dout[] with mr_grad_op. See graph.h for helpers. */
typedef struct mr_grad {
    struct mr_graph *graph;
    const void *attr;
    int n_in, n_out;
    mr_ref in[MR_MAX_IN], out[MR_MAX_OUT];
    mr_ref dout[MR_MAX_OUT]; /* MR_NONE: no gradient flows back here */
    bool need[MR_MAX_IN];    /* a gradient of this input is wanted */
    mr_ref din[MR_MAX_IN];   /* fill; MR_NONE = zero */
} mr_grad;

/* Fusion. If input `in` of an op is the result of a node of the op `with`, a finished graph has one
 * node of the op `to` instead: its inputs are those of `with`, then the others of this op; its
 * output is that of this op. A second output of `to` is the result of `with`, for its other
 * readers; then `to` has an attribute "keep", true if there are any. Neither of the two ops has
 * attributes. */
typedef struct mr_fusion {
    const char *with, *to;
    int in;
} mr_fusion;

typedef struct mr_op {
    const char *name;
    const char *doc, *ref; /* one sentence; paper or reference code and version */
    mr_arg_def in[MR_MAX_IN];
    mr_out_def out[MR_MAX_OUT];
    mr_attr_def attr[MR_MAX_ATTR];
    mr_status (*infer)(mr_infer *ctx);
    /* NULL: no gradient (backward ops, integer ops) */
    mr_status (*grad)(mr_grad *ctx);
    /* NULL: 1 FLOP per output element, bytes of all arguments */
    void (*cost)(const mr_call *call, mr_cost *cost);
    /* every floating argument is f64 (dense or as given); the reference */
    mr_kernel_fn *naive;
    mr_kernel cpu;    /* other devices add kernels by name: mr_op_add_kernel */
    mr_fusion fusion; /* with NULL: none */
    /* memory-bound: a backward pass may compute it again instead of keeping its output */
    bool cheap;
    bool hidden; /* not offered at the prompt (backward and update ops) */
    /* Contract cases: "x=[2,7,64] f32 w=[64] f32 eps=1e-5 rtol=1e-5". Arguments NAME=[dims] DTYPE
     * with optional /rows or /any after the bracket (padded rows, any strides) and LO..HI after the
     * dtype (range of values, both ends included); attributes NAME=VALUE, lists as {0,2,1}; rtol=
     * overrides the tolerance; grad=elsewhere: the gradient depends on more than these inputs, and
     * another spec checks it. */
    const char *const *cases;
    /* relative L2 error allowed against naive of an output of this dtype; 0: 2e-6 and 2^-8 */
    double tol_f32, tol_bf16;
    const char *tol_reason;
} mr_op;

/* Kernel definition: MR_KERNEL(rms_norm) { ... uses call ... return MR_OK; } in every instruction
 * set; MR_KERNELS(rms_norm) declares it for a definition in another file. */
#define MR_CAT3_(a, b, c) a##b##c
#define MR_CAT3(a, b, c)  MR_CAT3_(a, b, c)
#define MR_KERNELS(id)    mr_kernel_fn mr_k_##id##_base, mr_k_##id##_avx2, mr_k_##id##_avx512
#define MR_KERNEL(id)                                                                              \
    MR_KERNELS(id);                                                                                \
    mr_status MR_CAT3(mr_k_##id, _, MR_ISA)(const mr_call *call)
#define MR_CPU(id)                                                                                 \
    {                                                                                              \
        mr_k_##id##_base, mr_k_##id##_avx2, mr_k_##id##_avx512                                     \
    }

/* MR_OP(rms_norm) = { .doc = ..., }; added to the table once, from the base build of the file. */
#ifdef MR_ISA_base
#define MR_OP(id)                                                                                  \
    static const mr_op mr_op_##id;                                                                 \
    static const mr_op *const mr_op_ptr_##id __attribute__((used, section("mr_ops"))) =            \
        &mr_op_##id;                                                                               \
    static const mr_op mr_op_##id
#else
#define MR_OP(id) __attribute__((unused)) static const mr_op mr_op_##id
#endif
#define MR_CASES(...)                                                                              \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- the table ---- */

MR_API const mr_op *mr_op_find(const char *name); /* NULL when unknown */
MR_API int mr_op_count(void);
MR_API const mr_op *mr_op_at(int i);                /* sorted by name */
MR_API const char *mr_op_nearest(const char *name); /* for "did you mean" */
MR_API int mr_op_n_in(const mr_op *op);
MR_API int mr_op_n_out(const mr_op *op);
/* Defaults, then `attrs`, into the plain struct `dst` (MR_ATTR_BYTES). Errors: MR_E_USAGE naming
 * the attribute: unknown (with the nearest), missing, out of range. */
MR_API mr_status mr_op_attrs(const mr_op *op, const mr_attr *attrs, int n, void *dst);
/* The dtypes that an argument's type allows, one bit each (1 << MR_F32); 0: op_dtype.c cannot read
 * the type. */
MR_API unsigned mr_op_dtypes(const mr_op *op, const char *type);
/* Inputs of other dtypes than declared fail with MR_E_SHAPE; f64 passes for a declared float, for
 * the naive kernel. Called before infer, which therefore gets no others. */
MR_API mr_status mr_op_check_dtypes(const mr_op *op, const mr_infer *ctx);
/* Whether all dtypes are as declared, without that exception. If not, the naive kernel runs. */
MR_API bool mr_op_kernel_fits(const mr_op *op, const mr_call *call);
/* Cost by the definition or the default. */
MR_API mr_cost mr_op_cost(const mr_op *op, const mr_call *call);
/* The kernels of an op on a device: those of a plug-in, or, on devices of the host's processor
 * ("cpu", "shadow"), those of the definition. NULL: none. */
MR_API const mr_kernel *mr_op_kernel(const mr_op *op, const char *device);
/* Add the kernels of a plug-in's device to the op of that name, when the plug-in is opened.
 * `device` and `kernel` are borrowed forever. Errors: MR_E_USAGE for an unknown op (with the
 * nearest name), for kernels without run[0], and for a second call. Threads: any. */
MR_API mr_status mr_op_add_kernel(const char *device, const char *op, const mr_kernel *kernel);
/* The function of a kernel for the best instruction set up to index `isa`; isa -1: the device has
 * no such instruction sets. NULL: no such function. */
MR_API mr_kernel_fn *mr_kernel_run(const mr_kernel *kernel, int isa);
/* Best instruction set of this processor, or MOONREEL_ISA=base|avx2|avx512 (an unavailable one is
 * reported once by mr_log at first use, and lowered). */
MR_API int mr_isa(void);
MR_API const char *mr_isa_name(int isa);
/* Run the naive kernel on arguments of any dtype: floats are widened to f64 in `workspace`
 * (mr_op_naive_workspace bytes), outputs rounded back. The portable fallback of every device. */
MR_API size_t mr_op_naive_workspace(const mr_op *op, const mr_call *call);
MR_API mr_status mr_op_run_naive(const mr_op *op, const mr_call *call);

#ifdef __cplusplus
}
#endif
#endif
