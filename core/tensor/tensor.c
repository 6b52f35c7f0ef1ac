/* tensor: tensors in host memory; views share storage by reference count. Licence: Apache-2.0 */
#include "moonreel/tensor.h"

#include <stdatomic.h>
#include <string.h>

typedef struct storage {
    _Atomic int refs;
    void (*release)(void *user);
    void *user;
    size_t bytes; /* that we allocated; 0: memory of the caller */
} storage;

static _Atomic size_t held;

struct mr_tensor {
    storage *storage;
    mr_view view;
};

static mr_tensor *tensor_over(storage *s, const mr_desc *desc, void *data)
{
    mr_tensor *t = mr_alloc(sizeof *t);
    if (!t)
        return NULL;
    t->storage = s, t->view = (mr_view){data, *desc};
    return t;
}

static void storage_unref(storage *s)
{
    if (atomic_fetch_sub(&s->refs, 1) > 1)
        return;
    if (s->release)
        s->release(s->user);
    atomic_fetch_sub(&held, s->bytes);
    mr_free(s);
}

mr_status mr_tensor_wrap(const mr_desc *desc, void *data, void (*release)(void *user), void *user,
                         mr_tensor **out)
{
    storage *s = mr_alloc(sizeof *s);
    mr_tensor *t = s ? tensor_over(s, desc, data) : NULL;
    if (!t) {
        mr_free(s);
        return mr_fail_memory(sizeof *t);
    }
    atomic_init(&s->refs, 1);
    s->release = release, s->user = user, s->bytes = 0;
    *out = t;
    return MR_OK;
}

mr_status mr_tensor_new(mr_dtype dtype, int rank, const int64_t *dim, mr_tensor **out)
{
    MR_TRY(mr_desc_check(dtype, rank, dim));
    mr_desc desc = mr_desc_dense(dtype, rank, dim);
    size_t bytes = mr_desc_span_bytes(&desc);
    // over-allocate to align; the address of the block is freed
    // large blocks come cleared from the system, which maps their pages at first use
    char *block = mr_calloc(1, bytes + 64);
    if (!block)
        return mr_fail_memory(bytes);
    char *data = (char *)(((uintptr_t)block + 63) & ~(uintptr_t)63);
    mr_status st = mr_tensor_wrap(&desc, data, mr_free, block, out);
    if (st != MR_OK) {
        mr_free(block);
        return st;
    }
    (*out)->storage->bytes = bytes;
    atomic_fetch_add(&held, bytes);
    return MR_OK;
}

size_t mr_tensor_held(void)
{
    return atomic_load(&held);
}

mr_status mr_tensor_view_new(mr_tensor *t, const mr_desc *desc, int64_t offset, mr_tensor **out)
{
    char *data = (char *)t->view.data + offset * (int64_t)mr_dtype_bytes(desc->dtype);
    mr_tensor *v = tensor_over(t->storage, desc, data);
    if (!v)
        return mr_fail_memory(sizeof *v);
    atomic_fetch_add(&t->storage->refs, 1);
    *out = v;
    return MR_OK;
}

void mr_tensor_unref(mr_tensor *t)
{
    if (!t)
        return;
    storage_unref(t->storage);
    mr_free(t);
}

const mr_view *mr_tensor_view(const mr_tensor *t)
{
    return &t->view;
}
