/* base, for rooms: what /proc tells of a process. Licence: Apache-2.0 */
#ifndef MR_BASE_PROCESS_H
#define MR_BASE_PROCESS_H

#include "moonreel/base.h"

typedef struct mr_process {
    int64_t pid, parent;
    int64_t start; /* in clock ticks since boot: with the number it names a process for good */
    char state;    /* R, S, D: it lives; T, t: stopped; Z, X: it has ended */
} mr_process;

/* pid 0: this process. False when /proc does not tell, for whatever reason. Threads: any. */
bool mr_process_read(int64_t pid, mr_process *out);

#endif
