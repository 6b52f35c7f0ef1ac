/* index: opens the media plug-in at its first use. Licence: Apache-2.0 */
#include "moonreel/media.h"
#include "base/plugin.h"

#include <pthread.h>

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

mr_status mr_media_get(const mr_media **out)
{
    const void *opened = NULL;
    pthread_mutex_lock(&lock);
    mr_status st = table ? MR_OK : mr_plugin_open("media", MR_MEDIA_VERSION, &opened);
    if (st == MR_OK && !table)
        table = opened;
    *out = table;
    pthread_mutex_unlock(&lock);
    return st;
}
