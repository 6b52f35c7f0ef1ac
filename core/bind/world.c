/* bind: comm.world of moonreel.core.comm - connects a process to the other ranks of its run, by the
 * options that its launcher has passed. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/build_id.h"
#include "bind/room.h"
#include "moonreel/comm.h"

#include <string.h>
#include <unistd.h>

typedef struct world_options {
    int rank, size, segment, port, ports, listener, secret_fd, first, n_local;
    int64_t fence;
    const char *host, *run, *secret, *listen;
    double deadline_s, lost_after_s;
    bool check, encrypt;
} world_options;

const mr_bind_field mr_bind_world_fields[] = {
    MR_BIND_INT("rank", world_options, rank, 0, 0, "Rank of this process."),
    MR_BIND_INT("size", world_options, size, 1, 1, "Ranks of the run; 1 needs no transport."),
    MR_BIND_INT("segment", world_options, segment, -1, -1,
                "Descriptor of the segment that ranks of this host share; -1: none, MPI or TCP."),
    MR_BIND_STR("host", world_options, host, "Host of rank 0, for TCP; nil: no TCP."),
    MR_BIND_INT("port", world_options, port, 0, 0, "Port at which rank 0 listens."),
    MR_BIND_INT("ports", world_options, ports, 1, 1, "The number of ports tried, from `port` on."),
    MR_BIND_INT("listener", world_options, listener, -1, -1,
                "For rank 0: descriptor of a socket that listens there."),
    MR_BIND_STR("listen", world_options, listen,
                "Interface or address at which this rank listens; nil: rank 0 listens at all."),
    MR_BIND_STR("run", world_options, run, "Id of the run; equal on all ranks."),
    MR_BIND_INT("fence", world_options, fence, 0, 0, "Number of the launch of the run, from 0."),
    MR_BIND_STR("secret", world_options, secret, "Secret that only ranks of the run know."),
    MR_BIND_INT("secret_fd", world_options, secret_fd, -1, -1,
                "Descriptor of a file with the secret, instead of `secret`."),
    MR_BIND_BOOL("encrypt", world_options, encrypt,
                 "Messages between ranks are encrypted; needs a secret."),
    MR_BIND_INT("first", world_options, first, 0, 0, "First rank of this host."),
    MR_BIND_INT("n_local", world_options, n_local, 0, 0,
                "Number of ranks that share `segment`, with TCP."),
    MR_BIND_NUM("lost_after_s", world_options, lost_after_s, 10,
                "Seconds without an answer after which a host is lost, with TCP."),
    MR_BIND_NUM("deadline_s", world_options, deadline_s, 600, "Most seconds that a call waits."),
    MR_BIND_BOOL("check", world_options, check,
                 "Compare the calls of all ranks before each collective."),
    MR_BIND_END};

enum { SECRET_BYTES = 256 };

/* The secret of the run: from the descriptor, else the text. */
static mr_status secret_of(const world_options *o, char text[SECRET_BYTES], const char **secret)
{
    *secret = o->secret;
    if (o->secret_fd < 0)
        return MR_OK;
    const ssize_t n = pread(o->secret_fd, text, SECRET_BYTES - 1, 0);
    text[MR_MAX(n, 0)] = 0;
    *secret = text;
    return *text ? MR_OK
                 : mr_fail(MR_E_NODE, "file descriptor %d does not contain the secret of a run",
                           o->secret_fd);
}

static mr_status open_tcp(const world_options *o, mr_transport **transport)
{
    mr_tcp_place p = {.rank = o->rank,
                      .size = o->size,
                      .host = o->host,
                      .port = o->port,
                      .ports = o->ports,
                      .listener = o->listener,
                      .listen = o->listen,
                      .hides = o->encrypt,
                      .run = mr_hash64(o->run ? o->run : "", strlen(o->run ? o->run : "")),
                      .fence = (uint64_t)o->fence,
                      .deadline_s = o->deadline_s,
                      .first = o->first,
                      .n_local = o->n_local,
                      .lost_after_s = o->lost_after_s};
    mr_transport *shared = NULL;
    char text[SECRET_BYTES];
    MR_TRY(secret_of(o, text, &p.secret));
    if (o->segment >= 0)
        MR_TRY(mr_segment_join(o->segment, o->rank - o->first, o->n_local, &shared));
    return mr_tcp_transport(&p, shared, transport);
}

static mr_status open_transport(const world_options *o, mr_transport **transport)
{
    *transport = NULL;
    if (o->size == 1)
        return MR_OK;
    if (o->host)
        return open_tcp(o, transport);
    return o->segment < 0 ? mr_mpi_transport(o->rank, o->size, o->deadline_s, transport)
                          : mr_segment_join(o->segment, o->rank, o->size, transport);
}

int mr_bind_world(lua_State *L)
{
    world_options o;
    mr_transport *transport;
    mr_bind_options(L, 1, "comm.world", mr_bind_world_fields, &o);
    if (o.rank >= o.size)
        return mr_bind_raise(L, MR_E_USAGE, "rank %d of %d ranks: expected 0 to %d", o.rank, o.size,
                             o.size - 1);
    if (!(o.deadline_s >= 0))
        return mr_bind_raise(L, MR_E_USAGE, "comm.world: deadline_s is %g: expected seconds",
                             o.deadline_s);
    mr_hash128 build = {0, 0};
    if (o.size > 1)
        mr_bind_check(L, mr_build_id(&build));
    mr_comm_options options = {.deadline_s = o.deadline_s, .program = build.lo, .check = o.check};
    mr_comm **c = (mr_comm **)mr_bind_box(L, mr_bind_comm_type);
    mr_bind_check(L, open_transport(&o, &transport));
    mr_bind_check(L, mr_comm_world(transport, &options, c));
    return 1;
}
