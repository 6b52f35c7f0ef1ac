/* ckpt: gives the names in a torch pickle their meaning.
 *
 * A closed list of names, each with a fixed meaning; nothing is looked up or called. Names of
 * classes are passed only where an instance is filled with the members of a torch module: such a
 * module is then a dictionary of its tensors. A tensor that this program does not support becomes a
 * value with the reason, so the other tensors of the file stay readable. Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <string.h>

/* Most dimensions of a torch tensor. */
enum { DIMENSIONS_MAX = 64 };

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

typedef enum meaning {
    DICTIONARY,        /* a call returns an empty dictionary */
    SET,               /* a call returns its only argument, a list */
    PLAIN,             /* a call returns an unused value; the name may also occur alone */
    REBUILD_TENSOR,    /* (storage, offset, size, stride, requires_grad, hooks, [metadata]) */
    REBUILD_TENSOR_V3, /* the same with the dtype before the metadata */
    REBUILD_PARAMETER, /* (tensor, requires_grad, hooks) */
    REBUILD_OTHER,     /* a tensor of an unsupported kind; `why` names it */
    STORAGE_TYPE,      /* type of a typed storage */
    UNTYPED_STORAGE,   /* type of a storage of bytes; the tensor has the dtype */
    ELEMENT_TYPE,      /* a dtype */
} meaning;

#define NO_DTYPE(bytes, why) MR_ST_DTYPE_COUNT, (bytes), (why)

struct mr_torch_entry {
    const char *module, *name;
    meaning meaning;
    mr_st_dtype dtype;
    int bytes;       /* per element, if dtype does not give it */
    const char *why; /* reason why such a tensor is not read */
};

static const mr_torch_entry rows[] = {
    {"collections", "OrderedDict", DICTIONARY, 0, 0, NULL},
    {"__builtin__", "set", SET, 0, 0, NULL},
    {"builtins", "set", SET, 0, 0, NULL},
    {"_codecs", "encode", PLAIN, 0, 0, NULL},
    {"torch", "Size", PLAIN, 0, 0, NULL},
    {"torch", "device", PLAIN, 0, 0, NULL},
    {"torch", "per_tensor_affine", PLAIN, 0, 0, NULL},
    {"torch", "per_channel_affine", PLAIN, 0, 0, NULL},
    {"torch.serialization", "_get_layout", PLAIN, 0, 0, NULL},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_TENSOR, 0, 0, NULL},
    {"torch._utils", "_rebuild_tensor_v3", REBUILD_TENSOR_V3, 0, 0, NULL},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, 0, 0, NULL},
    {"torch._utils", "_rebuild_qtensor", REBUILD_OTHER, NO_DTYPE(0, "it is quantised")},
    {"torch._utils", "_rebuild_sparse_tensor", REBUILD_OTHER, NO_DTYPE(0, "it is sparse")},
    {"torch", "DoubleStorage", STORAGE_TYPE, MR_ST_F64, 0, NULL},
    {"torch", "FloatStorage", STORAGE_TYPE, MR_ST_F32, 0, NULL},
    {"torch", "HalfStorage", STORAGE_TYPE, MR_ST_F16, 0, NULL},
    {"torch", "BFloat16Storage", STORAGE_TYPE, MR_ST_BF16, 0, NULL},
    {"torch", "LongStorage", STORAGE_TYPE, MR_ST_I64, 0, NULL},
    {"torch", "IntStorage", STORAGE_TYPE, MR_ST_I32, 0, NULL},
    {"torch", "ShortStorage", STORAGE_TYPE, MR_ST_I16, 0, NULL},
    {"torch", "CharStorage", STORAGE_TYPE, MR_ST_I8, 0, NULL},
    {"torch", "ByteStorage", STORAGE_TYPE, MR_ST_U8, 0, NULL},
    {"torch", "BoolStorage", STORAGE_TYPE, MR_ST_BOOL, 0, NULL},
    {"torch", "ComplexFloatStorage", STORAGE_TYPE, NO_DTYPE(8, "its elements are complex64")},
    {"torch", "ComplexDoubleStorage", STORAGE_TYPE, NO_DTYPE(16, "its elements are complex128")},
    {"torch", "QInt8Storage", STORAGE_TYPE, NO_DTYPE(1, "it is quantised")},
    {"torch", "QUInt8Storage", STORAGE_TYPE, NO_DTYPE(1, "it is quantised")},
    {"torch", "QInt32Storage", STORAGE_TYPE, NO_DTYPE(4, "it is quantised")},
    {"torch", "UntypedStorage", UNTYPED_STORAGE, MR_ST_U8, 0, NULL},
    {"torch.storage", "UntypedStorage", UNTYPED_STORAGE, MR_ST_U8, 0, NULL},
    {"torch", "float8_e4m3fn", ELEMENT_TYPE, MR_ST_F8_E4M3, 0, NULL},
    {"torch", "float8_e5m2", ELEMENT_TYPE, MR_ST_F8_E5M2, 0, NULL},
    {"torch", "uint16", ELEMENT_TYPE, MR_ST_U16, 0, NULL},
    {"torch", "uint32", ELEMENT_TYPE, MR_ST_U32, 0, NULL},
    {"torch", "uint64", ELEMENT_TYPE, MR_ST_U64, 0, NULL},
    {"torch", "float8_e4m3fnuz", ELEMENT_TYPE, NO_DTYPE(1, "its elements are float8_e4m3fnuz")},
    {"torch", "float8_e5m2fnuz", ELEMENT_TYPE, NO_DTYPE(1, "its elements are float8_e5m2fnuz")},
    {"torch", "float8_e8m0fnu", ELEMENT_TYPE, NO_DTYPE(1, "its elements are float8_e8m0fnu")},
    {"torch", "complex32", ELEMENT_TYPE, NO_DTYPE(4, "its elements are complex32")},
};

/* ---- names ---- */

static mr_status not_listed(const mr_pickle *p, const mr_torch_class *c)
{
    return BAD(
        "%s: pickle: '%.60s.%.60s' is not on the list of names that weights need; nothing was run",
        p->path, c->module, c->name);
}

/* A name that is not on the list may be the class of a module. */
static mr_status new_class(mr_pickle *p, const char *module, const char *name, mr_pickled **out)
{
    mr_torch_class *c = mr_pickle_alloc(p, sizeof *c);
    mr_pickled *x = c ? mr_pickle_new(p, MR_P_CLASS) : NULL;
    if (!x)
        return mr_error_last()->code;
    memcpy(c->module, module, strlen(module) + 1);
    memcpy(c->name, name, strlen(name) + 1);
    c->next = p->classes;
    p->classes = x->class = c;
    *out = x;
    return MR_OK;
}

mr_status mr_torch_name(mr_pickle *p, const char *module, const char *name, mr_pickled **out)
{
    for (size_t i = 0; i < MR_COUNT(rows); i++) {
        if (strcmp(rows[i].module, module) || strcmp(rows[i].name, name))
            continue;
        if ((*out = mr_pickle_new(p, MR_P_NAME)))
            (*out)->row = &rows[i];
        return *out ? MR_OK : mr_error_last()->code;
    }
    return new_class(p, module, name, out);
}

mr_status mr_torch_check_classes(const mr_pickle *p)
{
    for (const mr_torch_class *c = p->classes; c; c = c->next)
        if (!c->is_module || c->unfilled)
            return not_listed(p, c);
    return MR_OK;
}

static bool means(const mr_pickled *x, meaning m)
{
    return x->kind == MR_P_NAME && x->row->meaning == m;
}

/* ---- storages ---- */

static bool is_natural(const mr_pickled *x)
{
    return x->kind == MR_P_NUMBER && x->number >= 0;
}

/* None, or (key of the view, its first element, its elements) in files of old versions. */
static bool read_window(const mr_pickled *x, mr_torch_storage *s)
{
    if (x->kind == MR_P_NOTHING)
        return true;
    if (x->kind != MR_P_TUPLE || x->n != 3 || !is_natural(x->items[1]) || !is_natural(x->items[2]))
        return false;
    s->first = x->items[1]->number, s->window = x->items[2]->number;
    return s->window <= s->elements && s->first <= s->elements - s->window;
}

/* ('storage', type, key, place, elements, [window]) */
static mr_status new_storage(mr_pickle *p, const mr_pickled *id, mr_pickled **out)
{
    mr_pickled **v = id->items;
    bool good = (id->n == 5 || id->n == 6) && v[1]->kind == MR_P_NAME && v[2]->kind == MR_P_TEXT &&
                is_natural(v[4]);
    if (!good || (!means(v[1], STORAGE_TYPE) && !means(v[1], UNTYPED_STORAGE)))
        return BAD("%s: pickle: a persistent id that is not a storage", p->path);
    mr_torch_storage *s = mr_pickle_alloc(p, sizeof *s);
    mr_pickled *x = s ? mr_pickle_new(p, MR_P_STORAGE) : NULL;
    if (!x)
        return mr_error_last()->code;
    const mr_torch_entry *row = v[1]->row;
    s->row = row, s->key = v[2], s->elements = s->window = v[4]->number;
    s->size = row->dtype < MR_ST_DTYPE_COUNT ? (int)mr_st_dtype_bytes(row->dtype) : row->bytes;
    if (id->n == 6 && !read_window(v[5], s))
        return BAD("%s: pickle: a storage with an invalid view", p->path);
    if (__builtin_mul_overflow(s->elements, s->size, &s->bytes))
        return BAD("%s: pickle: a storage of %lld elements; its size overflows", p->path,
                   (long long)s->elements);
    s->next = p->storages, p->storages = x->storage = s;
    *out = x;
    return MR_OK;
}

mr_status mr_torch_reference(mr_pickle *p, mr_pickled *id, mr_pickled **out)
{
    if (id->kind == MR_P_TUPLE && id->n > 0 && mr_pickled_is(id->items[0], "storage"))
        return new_storage(p, id, out);
    // old files store a class with its source code: ('module', class, file, text)
    if (id->kind == MR_P_TUPLE && id->n == 4 && mr_pickled_is(id->items[0], "module") &&
        id->items[1]->kind == MR_P_CLASS) {
        *out = id->items[1];
        return MR_OK;
    }
    return BAD("%s: pickle: a persistent id that is not a storage", p->path);
}

/* ---- tensors ---- */

static bool all_natural(const mr_pickled *x)
{
    if (x->kind != MR_P_TUPLE || x->n > DIMENSIONS_MAX)
        return false;
    for (int i = 0; i < x->n; i++)
        if (!is_natural(x->items[i]))
            return false;
    return true;
}

static mr_status new_tensor(mr_pickle *p, mr_pickled **out)
{
    mr_pickled *x = mr_pickle_new(p, MR_P_TENSOR);
    if (!x || !(x->tensor = mr_pickle_alloc(p, sizeof *x->tensor)))
        return mr_error_last()->code;
    *out = x;
    return MR_OK;
}

/* Sets shape and strides of a tensor that can be read. */
static mr_status set_shape(const mr_pickle *p, mr_torch_tensor *t, const mr_pickled *shape,
                           const mr_pickled *stride)
{
    t->at.rank = shape->n;
    for (int i = 0; i < shape->n; i++) {
        t->at.shape[i] = shape->items[i]->number;
        t->stride[i] = stride->items[i]->number;
    }
    if (mr_st_shape_bytes(t->at.dtype, t->at.rank, t->at.shape, &t->at.bytes) != MR_OK)
        return mr_fail_note("%s: pickle: a tensor of storage '%.*s'", p->path,
                            MR_MIN(t->storage->key->n, 40), t->storage->key->text);
    return MR_OK;
}

static mr_status rebuild_tensor(mr_pickle *p, const mr_pickled *args, bool has_dtype,
                                mr_pickled **out)
{
    mr_pickled **v = args->items;
    int metadata = has_dtype ? 7 : 6;
    if (args->n < metadata || v[0]->kind != MR_P_STORAGE || !is_natural(v[1]) ||
        !all_natural(v[2]) || !all_natural(v[3]) || v[2]->n != v[3]->n)
        return BAD("%s: pickle: a tensor with invalid arguments", p->path);
    const mr_torch_entry *row = v[0]->storage->row;
    bool untyped = row->meaning == UNTYPED_STORAGE;
    if (untyped != has_dtype || (has_dtype && !means(v[6], ELEMENT_TYPE)))
        return BAD("%s: pickle: a tensor with an invalid dtype", p->path);
    if (has_dtype)
        row = v[6]->row;
    MR_TRY(new_tensor(p, out));
    mr_torch_tensor *t = (*out)->tensor;
    t->at.dtype = row->dtype, t->why = row->why;
    t->storage = v[0]->storage, t->first = v[1]->number;
    if (v[2]->n > MR_ST_RANK_MAX)
        t->why = "it has more than 8 dimensions";
    if (args->n > metadata && v[metadata]->kind == MR_P_DICT && v[metadata]->n)
        t->why = "its elements are conjugated or negated when torch reads them";
    return t->why ? MR_OK : set_shape(p, t, v[2], v[3]);
}

mr_status mr_torch_call(mr_pickle *p, mr_pickled *name, mr_pickled *args, mr_pickled **out)
{
    if (name->kind == MR_P_CLASS)
        return not_listed(p, name->class);
    if (name->kind != MR_P_NAME || args->kind != MR_P_TUPLE)
        return BAD("%s: pickle: a call of a value that is not a name", p->path);
    switch (name->row->meaning) {
    case DICTIONARY:
        if (args->n)
            return BAD("%s: pickle: an ordered dictionary with arguments", p->path);
        *out = mr_pickle_new(p, MR_P_DICT);
        return *out ? MR_OK : mr_error_last()->code;
    case SET:
        if (args->n != 1 || args->items[0]->kind != MR_P_LIST)
            return BAD("%s: pickle: a set of a value that is not a list", p->path);
        *out = args->items[0];
        return MR_OK;
    case PLAIN: *out = mr_pickle_new(p, MR_P_NOTHING); return *out ? MR_OK : mr_error_last()->code;
    case REBUILD_TENSOR: return rebuild_tensor(p, args, false, out);
    case REBUILD_TENSOR_V3: return rebuild_tensor(p, args, true, out);
    case REBUILD_PARAMETER:
        if (args->n < 1 || args->items[0]->kind != MR_P_TENSOR)
            return BAD("%s: pickle: a parameter without a tensor", p->path);
        *out = args->items[0];
        return MR_OK;
    case REBUILD_OTHER:
        MR_TRY(new_tensor(p, out));
        (*out)->tensor->why = name->row->why;
        return MR_OK;
    default: return BAD("%s: pickle: a call of a type", p->path);
    }
}

/* ---- modules ---- */

mr_status mr_torch_instance(mr_pickle *p, mr_pickled *class, mr_pickled *args, mr_pickled **out)
{
    if (class->kind != MR_P_CLASS || args->kind != MR_P_TUPLE || args->n)
        return BAD("%s: pickle: an instance of a class that is not a module", p->path);
    mr_pickled *x = mr_pickle_new(p, MR_P_MODULE);
    if (!x || !(x->module = mr_pickle_alloc(p, sizeof *x->module)))
        return mr_error_last()->code;
    x->module->class = class->class;
    class->class->unfilled++;
    *out = x;
    return MR_OK;
}

static mr_pickled *member(const mr_pickled *dict, const char *key)
{
    for (int i = 0; i + 1 < dict->n; i += 2)
        if (mr_pickled_is(dict->items[i], key))
            return dict->items[i + 1];
    return NULL;
}

/* The state of a module contains the dictionaries of its parameters, buffers and modules. */
static mr_status fill_module(mr_pickle *p, mr_torch_module *m, const mr_pickled *state)
{
    if (state->kind != MR_P_DICT || m->parameters)
        return not_listed(p, m->class);
    // many modules may share one large state, so a search in it counts as opcodes
    p->n_ops += state->n;
    m->parameters = member(state, "_parameters");
    m->buffers = member(state, "_buffers");
    m->modules = member(state, "_modules");
    m->unsaved = member(state, "_non_persistent_buffers_set");
    if (!m->parameters || m->parameters->kind != MR_P_DICT || !m->buffers ||
        m->buffers->kind != MR_P_DICT || !m->modules || m->modules->kind != MR_P_DICT ||
        (m->unsaved && m->unsaved->kind != MR_P_LIST))
        return not_listed(p, m->class);
    m->class->is_module = true, m->class->unfilled--;
    return MR_OK;
}

mr_status mr_torch_build(mr_pickle *p, mr_pickled *object, mr_pickled *state)
{
    // the state of a dictionary contains only versions of modules
    if (object->kind == MR_P_DICT)
        return MR_OK;
    if (object->kind == MR_P_MODULE)
        return fill_module(p, object->module, state);
    return BAD("%s: pickle: state for a value that is neither a dictionary nor a module", p->path);
}
