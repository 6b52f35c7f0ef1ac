/* op: finds ops in the table that the linker collects; reads their attributes and computes their
 * costs. Licence: Apache-2.0 */
#include "moonreel/op.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const mr_op *const __start_mr_ops[] __attribute__((visibility("hidden")));
extern const mr_op *const __stop_mr_ops[] __attribute__((visibility("hidden")));

enum { TABLE_CAP = 512 };
static const mr_op *table[TABLE_CAP];
static int table_n;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const mr_op *const *)a)->name, (*(const mr_op *const *)b)->name);
}

static void gather(void)
{
    for (const mr_op *const *p = __start_mr_ops; p < __stop_mr_ops && table_n < TABLE_CAP; p++)
        table[table_n++] = *p;
    qsort(table, (size_t)table_n, sizeof table[0], by_name);
}

int mr_op_count(void)
{
    pthread_once(&once, gather);
    return table_n;
}

const mr_op *mr_op_at(int i)
{
    return i >= 0 && i < mr_op_count() ? table[i] : NULL;
}

const mr_op *mr_op_find(const char *name)
{
    int lo = 0, hi = mr_op_count();
    while (lo < hi) {
        int mid = (lo + hi) / 2, order = strcmp(name, table[mid]->name);
        if (order == 0)
            return table[mid];
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const char *mr_op_nearest(const char *name)
{
    const char *best = NULL;
    int least = 1 << 20;
    for (int i = 0; i < mr_op_count(); i++) {
        int d = mr_name_distance(name, table[i]->name, least);
        if (table[i]->hidden || d >= least)
            continue;
        least = d, best = table[i]->name;
    }
    return best;
}

int mr_op_n_in(const mr_op *op)
{
    int n = 0;
    while (n < MR_MAX_IN && op->in[n].name)
        n++;
    return n;
}

int mr_op_n_out(const mr_op *op)
{
    int n = 0;
    while (n < MR_MAX_OUT && op->out[n].name)
        n++;
    return n;
}

static mr_status check_range(const mr_op *op, const mr_attr_def *def, double x)
{
    if ((def->min == 0 && def->max == 0) || (x >= def->min && x <= def->max))
        return MR_OK;
    return mr_fail(MR_E_USAGE, "%s: attribute '%s' is %g, expected %g to %g", op->name, def->name,
                   x, def->min, def->max);
}

static mr_status set_attr(const mr_op *op, const mr_attr_def *def, const mr_attr *attr, char *dst)
{
    switch (def->kind) {
    case MR_ATTR_F64: {
        double x = attr ? attr->f : def->def;
        if (attr)
            MR_TRY(check_range(op, def, x));
        memcpy(dst + def->at, &x, sizeof x);
        return MR_OK;
    }
    case MR_ATTR_I64: {
        int64_t x = attr ? attr->i : (int64_t)def->def;
        if (attr)
            MR_TRY(check_range(op, def, (double)x));
        memcpy(dst + def->at, &x, sizeof x);
        return MR_OK;
    }
    case MR_ATTR_BOOL: {
        bool x = attr ? attr->i != 0 : def->def != 0;
        memcpy(dst + def->at, &x, sizeof x);
        return MR_OK;
    }
    case MR_ATTR_INTS: {
        static const mr_ints none;
        const mr_ints *x = attr && attr->ints ? attr->ints : &none;
        if (x->n < 0 || x->n > MR_MAX_RANK)
            return mr_fail(MR_E_USAGE, "%s: attribute '%s' has %lld entries, expected at most %d",
                           op->name, def->name, (long long)x->n, MR_MAX_RANK);
        memcpy(dst + def->at, x, sizeof *x);
        return MR_OK;
    }
    }
    return mr_fail(MR_E_INTERNAL,
                   "%s: attribute '%s' has the unknown kind %d; expected a kind of mr_attr_kind",
                   op->name, def->name, (int)def->kind);
}

static mr_status unknown_attr(const mr_op *op, const char *name)
{
    const char *near = NULL;
    int least = 1 << 20;
    for (int r = 0; r < MR_MAX_ATTR && op->attr[r].name; r++) {
        int d = mr_name_distance(name, op->attr[r].name, least);
        if (d < least)
            least = d, near = op->attr[r].name;
    }
    if (!near)
        return mr_fail(MR_E_USAGE, "%s takes no attributes, got '%s'", op->name, name);
    return mr_fail(MR_E_USAGE, "%s has no attribute '%s'; did you mean '%s'?", op->name, name,
                   near);
}

mr_status mr_op_attrs(const mr_op *op, const mr_attr *attrs, int n, void *dst)
{
    memset(dst, 0, MR_ATTR_BYTES);
    for (int i = 0; i < n; i++) {
        bool known = false;
        for (int r = 0; r < MR_MAX_ATTR && op->attr[r].name; r++)
            known |= strcmp(op->attr[r].name, attrs[i].name) == 0;
        if (!known)
            return unknown_attr(op, attrs[i].name);
    }
    for (int r = 0; r < MR_MAX_ATTR && op->attr[r].name; r++) {
        const mr_attr_def *def = &op->attr[r];
        const mr_attr *given = NULL;
        for (int i = 0; i < n; i++)
            if (strcmp(def->name, attrs[i].name) == 0)
                given = &attrs[i];
        if (!given && def->required)
            return mr_fail(MR_E_USAGE, "%s: attribute '%s' is missing: %s", op->name, def->name,
                           def->doc ? def->doc : "it has no default");
        MR_TRY(set_attr(op, def, given, dst));
    }
    return MR_OK;
}

/* Bytes that an argument reads or writes: each element once, even if stride 0 repeats it. */
static double arg_bytes(const mr_desc *d)
{
    if (d->rank < 0)
        return 0;
    double n = (double)mr_dtype_bytes(d->dtype);
    for (int i = 0; i < d->rank; i++)
        if (d->stride[i] != 0 || d->dim[i] == 0)
            n *= (double)d->dim[i];
    return n;
}

mr_cost mr_op_cost(const mr_op *op, const mr_call *call)
{
    mr_cost cost = {0};
    for (int i = 0; i < call->n_in; i++)
        cost.bytes += arg_bytes(&call->in[i].desc);
    for (int i = 0; i < call->n_out; i++) {
        cost.bytes += arg_bytes(&call->out[i].desc);
        cost.flop += (double)mr_desc_count(&call->out[i].desc);
    }
    if (op->cost)
        op->cost(call, &cost);
    return cost;
}

/* ---- kernels of devices ---- */

typedef struct added {
    const char *device;
    const mr_op *op;
    const mr_kernel *kernel;
} added;
static added others[TABLE_CAP];
static int others_n;
static pthread_mutex_t others_lock = PTHREAD_MUTEX_INITIALIZER;

static const mr_kernel *find_other(const mr_op *op, const char *device)
{
    for (int i = 0; i < others_n; i++)
        if (others[i].op == op && strcmp(others[i].device, device) == 0)
            return others[i].kernel;
    return NULL;
}

const mr_kernel *mr_op_kernel(const mr_op *op, const char *device)
{
    pthread_mutex_lock(&others_lock);
    const mr_kernel *kernel = find_other(op, device);
    pthread_mutex_unlock(&others_lock);
    if (!kernel && (strcmp(device, "cpu") == 0 || strcmp(device, "shadow") == 0))
        kernel = &op->cpu;
    return kernel;
}

static mr_status add_other(const added *a)
{
    if (find_other(a->op, a->device))
        return mr_fail(
            MR_E_USAGE,
            "device '%s' already has kernels for op '%s'; expected one set of kernels per op",
            a->device, a->op->name);
    if (others_n == TABLE_CAP)
        return mr_fail(MR_E_RANGE,
                       "device '%s' has more than %d kernels; expected at most that many",
                       a->device, TABLE_CAP);
    others[others_n++] = *a;
    return MR_OK;
}

mr_status mr_op_add_kernel(const char *device, const char *name, const mr_kernel *kernel)
{
    const mr_op *op = mr_op_find(name);
    if (!op)
        return mr_fail(MR_E_USAGE,
                       "device '%s' has kernels for op '%s', which is unknown; "
                       "did you mean '%s'?",
                       device, name, mr_op_nearest(name));
    if (!kernel->run[0])
        return mr_fail(MR_E_USAGE,
                       "device '%s' has no function for op '%s'; expected run to be set", device,
                       name);
    pthread_mutex_lock(&others_lock);
    mr_status st = add_other(&(added){device, op, kernel});
    pthread_mutex_unlock(&others_lock);
    return st;
}

mr_kernel_fn *mr_kernel_run(const mr_kernel *kernel, int isa)
{
    for (int i = MR_MIN(MR_MAX(isa, 0), 2); i >= 0; i--)
        if (kernel->run[i])
            return kernel->run[i];
    return NULL;
}
