/* media: the table of functions that the program calls in the plug-in. Licence: Apache-2.0 */
#include "media/room.h"

MR_API mr_media_entry_fn mr_media_entry;

const mr_media *mr_media_entry(void)
{
    static const mr_media table = {
        .version = MR_MEDIA_VERSION,
        .worker_new = media_worker_new,
        .worker_free = media_worker_free,
        .worker_log = media_worker_log,
        .scan = media_scan,
        .read = media_read,
        .watch = media_watch,
        .encoder_open = media_encoder_open,
        .encoder_frame = media_encoder_frame,
        .encoder_finish = media_encoder_finish,
        .encoder_free = media_encoder_free,
    };
    media_log_install();
    return &table;
}
