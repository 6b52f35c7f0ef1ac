/* base, for rooms: facts about a process from /proc, and its standard streams.
 * Licence: Apache-2.0 */
#ifndef MR_BASE_PROCESS_H
#define MR_BASE_PROCESS_H

#include "moonreel/base.h"

typedef struct mr_process {
    int64_t pid, parent;
    int64_t start; /* in clock ticks since boot; pid and start identify a process uniquely */
    char state;    /* R, S, D: alive; T, t: stopped; Z, X: ended */
} mr_process;

/* pid 0: this process. False if /proc cannot be read, for any reason. Threads: any. */
bool mr_process_read(int64_t pid, mr_process *out);

/* Has this process ended? A zombie counts as ended. Threads: any. */
bool mr_process_gone(int64_t pid);

/* The file of this program, to start it again. Started as /proc/self/exe it would appear as "exe"
 * in ps, top and pgrep. If the file was removed or replaced, /proc/self/exe. Threads: any; also
 * between fork and exec. */
void mr_program_file(char out[4096]);

/* Set the process name in ps, top and pgrep: "moonreel", or "moonreel-PART" with at most six
 * letters; NULL: no part. Threads: any; threads that start later inherit the name. */
void mr_process_name(const char *part);

/* Open /dev/null for each standard stream that is closed. Otherwise a file opened later would get
 * its number: messages would be written into that file, and a child could lose its end of a pipe.
 * Call it first in a program; children inherit these streams.
 * Threads: before there are others. */
void mr_streams_hold(void);

#endif
