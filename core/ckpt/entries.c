/* ckpt: ranges of a file by name, each with its checksum. Licence: Apache-2.0 */
#include "ckpt/torch.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return strcmp(((const mr_entry *)a)->name, ((const mr_entry *)b)->name);
}

mr_status mr_entries_sort(const char *path, mr_entries *entries)
{
    if (entries->n)
        qsort(entries->list, (size_t)entries->n, sizeof *entries->list, by_name);
    for (int i = 1; i < entries->n; i++)
        if (strcmp(entries->list[i - 1].name, entries->list[i].name) == 0)
            return mr_fail(MR_E_FORMAT, "%s: entry '%s' occurs twice", path, entries->list[i].name);
    return MR_OK;
}

mr_entry *mr_entries_find(const mr_entries *entries, const char *name)
{
    mr_entry key = {.name = (char *)(uintptr_t)name};
    return entries->n ? bsearch(&key, entries->list, (size_t)entries->n, sizeof key, by_name)
                      : NULL;
}

void mr_entries_free(mr_entries *entries)
{
    for (int i = 0; i < entries->n; i++)
        mr_free(entries->list[i].name);
    mr_free(entries->list);
    *entries = (mr_entries){0};
}
