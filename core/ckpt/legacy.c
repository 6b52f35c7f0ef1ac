/* ckpt: files of torch.save before 1.6.
 *
 * Five pickles in a row: a magic number, the version of the protocol, facts about the machine, the
 * value that was saved, and the list of keys of its storages. Then the storages follow in the order
 * of that list, each after its element count (8 bytes). There are no checksums.
 * Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD(...) mr_fail(MR_E_FORMAT, __VA_ARGS__)

static bool is_little(const mr_pickled *facts)
{
    for (int i = 0; i + 1 < facts->n; i += 2)
        if (mr_pickled_is(facts->items[i], "little_endian"))
            return facts->items[i + 1]->kind == MR_P_NUMBER && facts->items[i + 1]->number == 1;
    return false;
}

static mr_status read_preface(mr_pickle *p)
{
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    mr_pickled *x = NULL;
    MR_TRY(mr_pickle_next(p, &x));
    if (x->kind != MR_P_BIG || x->n != sizeof magic - 1 || memcmp(x->text, magic, sizeof magic - 1))
        return BAD("%s: a pickle that torch.save did not write", p->path);
    MR_TRY(mr_pickle_next(p, &x));
    if (x->kind != MR_P_NUMBER || x->number != 1001)
        return BAD("%s: its version is not 1001, the only one that torch wrote", p->path);
    MR_TRY(mr_pickle_next(p, &x));
    if (x->kind != MR_P_DICT || !is_little(x))
        return BAD("%s: its byte order is not little-endian", p->path);
    return MR_OK;
}

/* ---- storages ---- */

static int by_key(const void *pa, const void *pb)
{
    const mr_pickled *a = (*(mr_torch_storage *const *)pa)->key,
                     *b = (*(mr_torch_storage *const *)pb)->key;
    int order = memcmp(a->text, b->text, (size_t)MR_MIN(a->n, b->n));
    return order ? order : a->n - b->n;
}

/* Collects the storages that the pickle names, sorted by key. A storage may occur many times. */
static mr_status sort_storages(mr_pickle *p, mr_torch_storage ***out, int *n)
{
    int count = 0;
    for (mr_torch_storage *s = p->storages; s; s = s->next)
        count++;
    mr_torch_storage **list = mr_pickle_alloc(p, sizeof *list * (size_t)(count + 1));
    if (!list)
        return mr_error_last()->code;
    int i = 0;
    for (mr_torch_storage *s = p->storages; s; s = s->next)
        list[i++] = s;
    qsort(list, (size_t)count, sizeof *list, by_key);
    *out = list, *n = count;
    return MR_OK;
}

static mr_status add_storage(const char *path, int fd, int64_t size, const mr_torch_storage *s,
                             int64_t *at, mr_entries *out)
{
    int64_t elements;
    const mr_pickled *key = s->key;
    MR_TRY(mr_file_read_at(fd, &elements, sizeof elements, *at, path));
    *at += (int64_t)sizeof elements;
    if (elements != s->elements)
        return BAD("%s: storage '%.*s' has %lld elements, its tensors expect %lld", path,
                   MR_MIN(key->n, 40), key->text, (long long)elements, (long long)s->elements);
    if (s->bytes > size - *at)
        return BAD("%s: storage '%.*s' reaches past the end of the file", path, MR_MIN(key->n, 40),
                   key->text);
    mr_entry *e = &out->list[out->n];
    *e = (mr_entry){.at = *at, .bytes = s->bytes};
    if (key->n >= MR_ENTRY_NAME || !(e->name = mr_alloc((size_t)key->n + 1)))
        return key->n >= MR_ENTRY_NAME ? BAD("%s: the key of a storage is too long", path)
                                       : mr_fail_memory((size_t)key->n);
    snprintf(e->name, (size_t)key->n + 1, "%.*s", key->n, key->text);
    out->n++;
    *at += s->bytes;
    return MR_OK;
}

static mr_status read_storages(mr_pickle *p, const mr_pickled *keys, int fd, int64_t at,
                               int64_t size, mr_entries *out)
{
    mr_torch_storage **known = NULL;
    int n_known = 0;
    if (keys->kind != MR_P_LIST)
        return BAD("%s: the list of storages is missing", p->path);
    MR_TRY(sort_storages(p, &known, &n_known));
    if (!(out->list = mr_calloc((size_t)keys->n + 1, sizeof *out->list)))
        return mr_fail_memory(sizeof *out->list * (size_t)keys->n);
    for (int i = 0; i < keys->n; i++) {
        mr_torch_storage wanted = {.key = keys->items[i]}, *key = &wanted;
        mr_torch_storage **s =
            keys->items[i]->kind == MR_P_TEXT
                ? bsearch(&key, known, (size_t)n_known, sizeof(mr_torch_storage *), by_key)
                : NULL;
        if (!s)
            return BAD("%s: storage %d belongs to no tensor", p->path, i);
        MR_TRY(add_storage(p->path, fd, size, *s, &at, out));
    }
    if (at != size)
        return BAD("%s: %lld bytes after the last storage", p->path, (long long)(size - at));
    return mr_entries_sort(p->path, out);
}

mr_status mr_legacy_read(mr_pickle *p, int fd, int64_t size, mr_pickled **root, mr_entries *out)
{
    const unsigned char *start = p->at;
    mr_pickled *keys = NULL;
    MR_TRY(read_preface(p));
    MR_TRY(mr_pickle_next(p, root));
    MR_TRY(mr_pickle_next(p, &keys));
    return read_storages(p, keys, fd, p->at - start, size, out);
}
