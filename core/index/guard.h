/* index, inside: decoders in separate processes: guard.c, fork_server.c, guarded.c.
 * Licence: Apache-2.0 */
#ifndef MR_INDEX_GUARD_H
#define MR_INDEX_GUARD_H

#include "moonreel/index.h"

#include <sys/socket.h>

/* Shared by a guard process and its decoder process: a request and its answer. The same shared
 * memory then contains the key frames of the clip and the decoded pixels. */
typedef enum guard_job { GUARD_SCAN, GUARD_READ, GUARD_WATCH } guard_job;
typedef struct guard_crate {
    guard_job job;
    bool wants; /* GUARD_WATCH: return the changes */
    double deadline_s;
    mr_clip_info info;
    mr_clip_request request;
    char path[4400];
    mr_status status;
    mr_fault fault;
    char text[2048], log[1024];
} guard_crate;
typedef struct guard_memory {
    int fd;
    uint8_t *at; /* NULL: not mapped yet */
    size_t bytes;
} guard_memory;
/* The environment variable that makes the program a fork server; its value is the socket. */
#define GUARD_VARIABLE "MOONREEL_MEDIA_WORKER"
/* Start a decoder process, a child of this process. It communicates through `sock` and `memory` and
 * gets copies of both descriptors.
 * Threads: any. Errors: MR_E_FAIL, MR_E_STOPPED; *pid is 0 then. */
mr_status fork_server_start(int sock, int memory, pid_t *pid);
/* The error of a process that could not be started: MR_E_FAIL, which names the limit to raise. */
mr_status fork_server_refused(int err);
/* Count the workers in use. The release of the last one ends the server. */
void fork_server_hold(void);
void fork_server_release(void);
/* Make room for n_keys key frames and `bytes` after them; both processes may call it. Errors:
 * MR_E_MEMORY */
mr_status guard_reserve(guard_memory *m, int64_t n_keys, size_t bytes);
static inline guard_crate *guard_crate_of(const guard_memory *m)
{
    return (guard_crate *)(void *)m->at;
}
/* Wait for `bytes` bytes from the other end of a socket. ENDED: the other end closed; STOPPED:
 * Ctrl-C. */
typedef enum guard_waited { GUARD_ANSWERED, GUARD_ENDED, GUARD_LATE, GUARD_STOPPED } guard_waited;
guard_waited guard_wait(int sock, double seconds, void *answer, size_t bytes);
enum {
    GUARD_START_S = 60,
    GUARD_STARTS = 8 /* of a process that is killed each time; then this is an error */
};
/* The error of a process that started and did not answer: MR_E_FAIL, or MR_E_STOPPED. */
mr_status fork_server_silent(guard_waited came);
/* A message of one byte with room for two descriptors. */
typedef struct guard_letter {
    _Alignas(size_t) char room[CMSG_SPACE(2 * sizeof(int))];
    char byte;
    struct iovec part;
    struct msghdr message;
} guard_letter;
/* Prepare it for sendmsg or recvmsg; answers its message. */
struct msghdr *guard_letter_open(guard_letter *l);
/* Seconds after its deadline at which a process is killed; specs make it short. */
extern double guard_grace_s;
int64_t *guard_keys(const guard_memory *m);
uint8_t *guard_out(const guard_memory *m, int64_t n_keys);

#endif
