/* base, for rooms: facts about a process from /proc, and its standard streams.
 * Licence: Apache-2.0 */
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

/* Is there no such process here any more, or only its exit status? Threads: any. */
bool mr_process_gone(int64_t pid);

/* The file of this program, to start it again: under /proc/self/exe that would be called "exe" by
 * ps, top and pgrep. Where the file is gone or replaced, /proc/self/exe. Threads: any; also between
 * fork and exec. */
void mr_program_file(char out[4096]);

/* What ps, top and pgrep call this process: "moonreel", and behind a dash which part of it, at most
 * six letters; NULL: none. Threads: any; those that are started later take it over. */
void mr_process_name(const char *part);

/* Open /dev/null in the place of each standard stream that is closed, so that nothing opened later
 * takes its place: words to the user would be written into it, and a child would lose its end of a
 * pipe there. A program calls it first of all; children inherit what it opens.
 * Threads: before there are others. */
void mr_streams_hold(void);

#endif
