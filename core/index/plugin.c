/* index: open the media plug-in on first use. Licence: Apache-2.0 */
#include "moonreel/media.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *mr_fault_name(mr_fault fault)
{
    static const char *const names[MR_FAULT_COUNT] = {"none",    "open",   "codec", "short",
                                                      "corrupt", "no_pts", "seek",  "stall",
                                                      "io",      "stale",  "hdr",   "geometry"};
    return (unsigned)fault < MR_FAULT_COUNT ? names[fault] : "?";
}

void mr_clip_info_fini(mr_clip_info *info)
{
    mr_free(info->key_pts);
    info->key_pts = NULL, info->n_keys = 0;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const mr_media *table;

// tells the folder of the running program, without a final slash
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

static mr_status open_at(const char *path)
{
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return mr_fail(MR_E_UNSUPPORTED, "%s: %s", path, dlerror());
    // ISO C has no cast from object to function pointer; POSIX gives dlsym this meaning
    mr_media_entry_fn *entry;
    void *symbol = dlsym(so, "mr_media_entry");
    memcpy(&entry, &symbol, sizeof entry);
    const mr_media *t = symbol ? entry() : NULL;
    if (!t || t->version != MR_MEDIA_VERSION) {
        dlclose(so);
        return mr_fail(
            MR_E_UNSUPPORTED,
            "%s: is of another version of moonreel; try: install program and plug-in together",
            path);
    }
    // the object stays open for the life of the process
    table = t;
    return MR_OK;
}

static mr_status find(void)
{
    char dir[4096], path[3][4200];
    int n = 0;
    const char *set = getenv("MOONREEL_PLUGINS");
    program_dir(dir);
    if (set && *set)
        snprintf(path[n++], sizeof path[0], "%s/libmoonreel_media.so", set);
    snprintf(path[n++], sizeof path[0], "%s/libmoonreel_media.so", dir);
    snprintf(path[n++], sizeof path[0], "%s/../lib/moonreel/libmoonreel_media.so", dir);
    for (int i = 0; i < n; i++)
        if (mr_path_exists(path[i]))
            return open_at(path[i]);
    return mr_fail(
        MR_E_UNSUPPORTED,
        "the media plug-in libmoonreel_media.so is not in %s, nor in %s/../lib/moonreel; "
        "try: MOONREEL_PLUGINS=DIR",
        set && *set ? set : dir, dir);
}

mr_status mr_media_get(const mr_media **out)
{
    pthread_mutex_lock(&lock);
    mr_status st = table ? MR_OK : find();
    *out = table;
    pthread_mutex_unlock(&lock);
    return st;
}
