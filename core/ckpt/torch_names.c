/* ckpt: names the tensors of a pickle: the keys of nested dictionaries are joined with dots, and
 * modules name their tensors as state_dict() does. Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <string.h>

/* A dictionary may be in many others, so there can be far more paths than values in the pickle.
 * PASSED_MAX limits the number of visited entries. */
enum { DEPTH_MAX = 64, PASSED_MAX = 1000000 };

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

typedef struct walk {
    const char *path;
    mr_torch_found *found;
    void *user;
    char name[MR_ST_NAME_MAX + 1];
    int depth, passed;
} walk;

static mr_status name_value(walk *w, mr_pickled *x, size_t used, bool *any);

static bool is_in(const mr_pickled *list, const mr_pickled *text)
{
    for (int i = 0; list && i < list->n; i++)
        if (list->items[i]->kind == MR_P_TEXT && list->items[i]->n == text->n &&
            memcmp(list->items[i]->text, text->text, (size_t)text->n) == 0)
            return true;
    return false;
}

/* Names the values of a dictionary that have text keys, except the keys in `without`. The first
 * `used` bytes of the name are its prefix. *any: the dictionary contains a tensor. */
static mr_status name_entries(walk *w, mr_pickled *dict, const mr_pickled *without, size_t used,
                              bool *any)
{
    for (int i = 0; i + 1 < dict->n; i += 2) {
        const mr_pickled *key = dict->items[i];
        w->passed += 1 + (without ? without->n : 0);
        if (w->passed > PASSED_MAX)
            return BAD("%s: pickle: more than %d entries on all paths through its dictionaries",
                       w->path, PASSED_MAX);
        if (key->kind != MR_P_TEXT || is_in(without, key))
            continue;
        size_t dot = used > 0, n = (size_t)key->n;
        if (used + dot + n > MR_ST_NAME_MAX)
            return BAD("%s: a tensor name has more than %d bytes", w->path, MR_ST_NAME_MAX);
        if (dot)
            w->name[used] = '.';
        memcpy(w->name + used + dot, key->text, n);
        w->name[used + dot + n] = 0;
        MR_TRY(name_value(w, dict->items[i + 1], used + dot + n, any));
    }
    return MR_OK;
}

static mr_status name_module(walk *w, const mr_torch_module *m, size_t used, bool *any)
{
    MR_TRY(name_entries(w, m->parameters, NULL, used, any));
    MR_TRY(name_entries(w, m->buffers, m->unsaved, used, any));
    return name_entries(w, m->modules, NULL, used, any);
}

static mr_status name_value(walk *w, mr_pickled *x, size_t used, bool *any)
{
    if (x->kind == MR_P_TENSOR) {
        *any = true;
        return w->found(w->user, w->name, x->tensor);
    }
    // a value without tensors is visited only once
    if ((x->kind != MR_P_DICT && x->kind != MR_P_MODULE) || x->barren)
        return MR_OK;
    if (w->depth == DEPTH_MAX || x->open)
        return BAD("%s: pickle: dictionaries nested deeper than %d, or cyclic", w->path, DEPTH_MAX);
    bool here = false;
    x->open = true, w->depth++;
    MR_TRY(x->kind == MR_P_DICT ? name_entries(w, x, NULL, used, &here)
                                : name_module(w, x->module, used, &here));
    x->open = false, w->depth--;
    x->barren = !here;
    *any = *any || here;
    return MR_OK;
}

mr_status mr_torch_names(const char *path, mr_pickled *root, mr_torch_found *found, void *user)
{
    walk w = {.path = path, .found = found, .user = user};
    bool any = false;
    if (root->kind != MR_P_DICT && root->kind != MR_P_MODULE)
        return BAD("%s: no dictionary of tensors", path);
    return name_value(&w, root, 0, &any);
}
