/* Shared by the contracts of CPU and CUDA kernels: how a failure is reported, and the
 * tolerances. */
#ifndef MR_OPCONTRACT_H
#define MR_OPCONTRACT_H
#include "opcase.h"

// the op and case at hand
static const char *where = "";
#define EXPECT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!check_note((cond) != 0)) {                                                            \
            printf("%s: ", where);                                                                 \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
        }                                                                                          \
    } while (0)

static const char *last_error(void)
{
    static char text[4096];
    mr_error_format(mr_error_last(), text, sizeof text);
    return text;
}

/* Relative L2 error allowed of one output, by its own dtype.
 *
 * bf16: a stored value has an error of at most 2^-9 of itself, and the operands of a product inside
 * the kernel may have been rounded once more: 2^-8. f32: sums of f32 in another order than naive's.
 * Inputs of bf16 do not count: naive gets the same rounded values. An op may allow more with its
 * reason (tol_reason), a case with rtol=. */
static double tolerance(const op_case *c, const mr_desc *out)
{
    if (c->rtol > 0)
        return c->rtol;
    if (out->dtype == MR_BF16)
        return c->op->tol_bf16 > 0 ? c->op->tol_bf16 : 1.0 / 256;
    return c->op->tol_f32 > 0 ? c->op->tol_f32 : 2e-6;
}

#endif
