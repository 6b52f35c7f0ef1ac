/* A substitute for NCCL that plays a scene: MOONREEL_NCCL names it, NCCL_SCENE holds words. It
 * writes its calls, one a line, to the file NCCL_LOG.
 *   version=N   its number (22809)       joins=N   the first N queries find a communicator joining
 *   fails=N     from the N-th query on communicators fail
 *   wrong=NAME  the last word: the function of that line accepts no call
 * Licence: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAID __attribute__((visibility("default")))
enum { OK = 0, REMOTE = 6, USAGE = 5, IN_PROGRESS = 7 };

typedef struct unique_id {
    char bytes[128];
} unique_id;
typedef struct config {
    size_t size;
    unsigned magic, version;
    int blocking;
} config;

static long looks;

static long word(const char *name, long otherwise)
{
    const char *words = getenv("NCCL_SCENE"), *at = words ? strstr(words, name) : NULL;
    return at ? strtol(at + strlen(name), NULL, 0) : otherwise;
}

__attribute__((format(printf, 1, 2))) static int log_call(const char *form, ...)
{
    FILE *f = fopen(getenv("NCCL_LOG"), "a");
    va_list args;
    va_start(args, form);
    vfprintf(f, form, args);
    va_end(args);
    fputc('\n', f);
    fclose(f);
    return OK;
}

static int answer(const char *name, int otherwise)
{
    const char *words = getenv("NCCL_SCENE"), *at = words ? strstr(words, "wrong=") : NULL;
    return at && strcmp(at + strlen("wrong="), name) == 0 ? USAGE : otherwise;
}

SAID int ncclGetVersion(int *version)
{
    *version = (int)word("version=", 22809);
    return OK;
}
SAID int ncclGetUniqueId(unique_id *id)
{
    memset(id->bytes, 'x', sizeof id->bytes);
    log_call("id");
    return answer("id", OK);
}
SAID int ncclCommInitRankConfig(void **comm, int size, unique_id id, int rank, config *c)
{
    static char here;
    *comm = &here;
    looks = 0;
    log_call("join %d of %d by %.3s, blocking %d, magic %x, %u", rank, size, id.bytes, c->blocking,
             c->magic, c->version);
    return answer("join", IN_PROGRESS);
}
SAID int ncclCommGetAsyncError(void *comm, int *code)
{
    (void)comm;
    looks++;
    *code = looks <= word("joins=", 0)                             ? IN_PROGRESS
            : word("fails=", -1) >= 0 && looks > word("fails=", 0) ? REMOTE
                                                                   : OK;
    return answer("state", OK);
}
SAID int ncclCommFinalize(void *comm)
{
    (void)comm;
    log_call("finalize");
    return answer("finalize", OK);
}
SAID int ncclCommDestroy(void *comm)
{
    (void)comm;
    return log_call("destroy");
}
SAID int ncclCommAbort(void *comm)
{
    (void)comm;
    return log_call("abort");
}
SAID int ncclGroupStart(void)
{
    log_call("{");
    return answer("{", OK);
}
SAID int ncclGroupEnd(void)
{
    log_call("}");
    return answer("}", OK);
}
SAID int ncclSend(const void *x, size_t count, int dtype, int peer, void *comm, void *stream)
{
    (void)x, (void)comm, (void)stream;
    log_call("send %zu of %d to %d", count, dtype, peer);
    return answer("send", OK);
}
SAID int ncclRecv(void *x, size_t count, int dtype, int peer, void *comm, void *stream)
{
    (void)x, (void)comm, (void)stream;
    log_call("receive %zu of %d from %d", count, dtype, peer);
    return answer("receive", OK);
}
SAID int ncclAllGather(const void *in, void *out, size_t count, int dtype, void *comm, void *stream)
{
    (void)comm, (void)stream;
    log_call("gather %zu of %d, own at %ld", count, dtype, (long)((const char *)in - (char *)out));
    return answer("gather", OK);
}
SAID const char *ncclGetErrorString(int code)
{
    return code == REMOTE  ? "remote process exited or there was a network error"
           : code == USAGE ? "invalid usage"
                           : "no error";
}
SAID const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "NET/Socket : peer has closed";
}
