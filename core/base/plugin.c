/* base: shared objects that are opened when first needed. Licence: Apache-2.0 */
#include "base/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// the folder of the running program, without a final slash
static void program_dir(char out[4096])
{
    ssize_t n = readlink("/proc/self/exe", out, 4095);
    out[n < 0 ? 0 : n] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = 0;
    else
        snprintf(out, 4096, ".");
}

static mr_status open_at(const char *path, const char *name, uint32_t version, const void **table)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return mr_fail(MR_E_UNSUPPORTED, "%s: %s", path, dlerror());
    char symbol[64];
    snprintf(symbol, sizeof symbol, "mr_%s_entry", name);
    // ISO C has no cast from object to function pointer; POSIX gives dlsym this meaning
    const void *(*entry)(void);
    void *at = dlsym(so, symbol);
    memcpy(&entry, &at, sizeof entry);
    const uint32_t *t = at ? entry() : NULL;
    if (!t || *t != version) {
        dlclose(so);
        return mr_fail(
            MR_E_UNSUPPORTED,
            "%s: is of another version of moonreel; try: install program and plug-in together",
            path);
    }
    // the object stays open for the life of the process
    *table = t;
    return MR_OK;
}

mr_status mr_plugin_open(const char *name, uint32_t version, const void **table)
{
    char dir[4096], path[3][4200];
    int n = 0;
    const char *set = getenv("MOONREEL_PLUGINS");
    program_dir(dir);
    if (set && *set)
        snprintf(path[n++], sizeof path[0], "%s/libmoonreel_%s.so", set, name);
    snprintf(path[n++], sizeof path[0], "%s/libmoonreel_%s.so", dir, name);
    snprintf(path[n++], sizeof path[0], "%s/../lib/moonreel/libmoonreel_%s.so", dir, name);
    for (int i = 0; i < n; i++)
        if (mr_path_exists(path[i]))
            return open_at(path[i], name, version, table);
    return mr_fail(MR_E_UNSUPPORTED,
                   "the %s plug-in libmoonreel_%s.so is not in %s, nor in %s/../lib/moonreel; "
                   "try: MOONREEL_PLUGINS=DIR",
                   name, name, set && *set ? set : dir, dir);
}
