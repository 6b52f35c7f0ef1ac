/* ckpt: retries for missing files. On a network file system a name can be missing, or a handle
 * stale, for a moment after another host wrote or renamed the file. Both are retried before they
 * count as errors. Licence: Apache-2.0 */
#include "ckpt/blocks.h"

#include <errno.h>

// pauses of 0.1, 0.2, ... 1.6 s: three seconds in all
enum { PAUSES = 5, FIRST_PAUSE_MS = 100 };

bool mr_ckpt_again(int err, int *pauses)
{
    if ((err != ENOENT && err != ESTALE) || *pauses == PAUSES)
        return false;
    mr_clock_table()->sleep_ns((int64_t)FIRST_PAUSE_MS * 1000000 << (*pauses)++);
    errno = err;
    return true;
}
