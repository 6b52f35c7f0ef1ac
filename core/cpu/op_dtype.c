/* op: checks arguments against the dtypes that an op declares, and derives dtypes of outputs. The
 * type of an argument ends with a list ("[..., C] f32|bf16"), with "any dtype" or "of the asked
 * dtype", or with "like x": the dtype of input x. Kernels rely on the check: they distinguish only
 * the dtypes of the list.
 * Licence: Apache-2.0 */
#include "moonreel/op.h"

#include <stdio.h>
#include <string.h>

enum { ALL = (1 << MR_DTYPE_COUNT) - 1, FLOATS = 1 << MR_F64 | 1 << MR_F32 | 1 << MR_BF16 };

/* The dtypes of a list, as bits; 0 if the type has no list. */
static unsigned listed(const char *type)
{
    const char *word = strrchr(type, ' ');
    word = word ? word + 1 : type;
    if (strcmp(word, "dtype") == 0)
        return ALL;
    unsigned bits = 0;
    for (;;) {
        size_t n = strcspn(word, "|");
        char name[16];
        snprintf(name, sizeof name, "%.*s", (int)MR_MIN(n, sizeof name - 1), word);
        mr_dtype dtype = mr_dtype_from_name(name);
        if (dtype == MR_DTYPE_COUNT)
            return 0;
        bits |= 1u << dtype;
        if (!word[n])
            return bits;
        word += n + 1;
    }
}

/* The input that the type is like; -1 if the type has no "like". */
static int alike(const mr_op *op, const char *type)
{
    const char *like = strstr(type, "like ");
    if (!like)
        return -1;
    const char *name = like + strlen("like ");
    size_t n = strcspn(name, " ,");
    for (int i = 0; i < mr_op_n_in(op); i++)
        if (strlen(op->in[i].name) == n && strncmp(op->in[i].name, name, n) == 0)
            return i;
    return -1;
}

unsigned mr_op_dtypes(const mr_op *op, const char *type)
{
    // if v is like k and k is like q, the list is that of q
    for (int like, i = 0; i < MR_MAX_IN && (like = alike(op, type)) >= 0; i++)
        type = op->in[like].type;
    return listed(type);
}

static bool fits(const mr_op *op, const char *type, const mr_desc *d, const mr_desc *like,
                 bool naive)
{
    if (like && like->dtype != d->dtype)
        return false;
    unsigned bits = mr_op_dtypes(op, type);
    if (naive && bits & FLOATS)
        bits |= 1u << MR_F64;
    return bits >> d->dtype & 1;
}

mr_status mr_op_check_dtypes(const mr_op *op, const mr_infer *c)
{
    for (int i = 0; i < c->n_in; i++) {
        const char *type = op->in[i].type;
        int like = alike(op, type);
        char text[128];
        if (c->in[i] && !fits(op, type, c->in[i], like < 0 ? NULL : c->in[like], true))
            return mr_fail(MR_E_SHAPE, "%s is %s, expected %s", op->in[i].name,
                           mr_desc_text(c->in[i], text, sizeof text), type);
    }
    return MR_OK;
}

bool mr_op_kernel_fits(const mr_op *op, const mr_call *c)
{
    for (int i = 0; i < c->n_in; i++) {
        int like = alike(op, op->in[i].type);
        if (c->in[i].desc.rank >= 0 &&
            !fits(op, op->in[i].type, &c->in[i].desc, like < 0 ? NULL : &c->in[like].desc, false))
            return false;
    }
    for (int i = 0; i < c->n_out; i++) {
        int like = alike(op, op->out[i].type);
        if (c->out[i].desc.rank >= 0 &&
            !fits(op, op->out[i].type, &c->out[i].desc, like < 0 ? NULL : &c->in[like].desc, false))
            return false;
    }
    return true;
}
