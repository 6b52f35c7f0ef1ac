/* base: opens plug-ins (shared objects) at their first use. Licence: Apache-2.0 */
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
            "%s: belongs to another version of moonreel; try: install program and plug-in together",
            path);
    }
    // the object stays open for the life of the process
    *table = t;
    return MR_OK;
}

mr_status mr_plugin_find(const char *name, char path[MR_PLUGIN_PATH])
{
    char dir[4096];
    const char *set = getenv("MOONREEL_PLUGINS");
    program_dir(dir);
    const char *folders[] = {set && *set ? set : dir, dir, dir},
               *below[] = {"", "", "/../lib/moonreel"};
    for (size_t i = 0; i < MR_COUNT(folders); i++) {
        snprintf(path, MR_PLUGIN_PATH, "%s%s/libmoonreel_%s.so", folders[i], below[i], name);
        if (mr_path_exists(path))
            return MR_OK;
    }
    return mr_fail(MR_E_UNSUPPORTED,
                   "the %s plug-in libmoonreel_%s.so is not in %s, nor in %s/../lib/moonreel; "
                   "try: MOONREEL_PLUGINS=DIR",
                   name, name, folders[0], dir);
}

mr_status mr_plugin_open(const char *name, uint32_t version, const void **table)
{
    char path[MR_PLUGIN_PATH];
    MR_TRY(mr_plugin_find(name, path));
    return open_at(path, name, version, table);
}
