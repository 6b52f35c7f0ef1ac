/* Three ranks that share no memory, as threads of one process. */
#ifndef MR_TCPCASE_H
#define MR_TCPCASE_H

#include "comm/room.h"
#include "rankcase.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N = 3 };
static const char *secret = "spec";

static inline mr_tcp_place place_of(int rank, int port)
{
    return (mr_tcp_place){.rank = rank,
                          .size = N,
                          .host = "localhost",
                          .port = port,
                          .listener = -1,
                          .run = 7,
                          .fence = 1,
                          .secret = secret,
                          .deadline_s = 60};
}

typedef struct good_rank {
    mr_tcp_place place;
    mr_status st;
    char text[1024];
} good_rank;

/* A message that needs several records, and ends within one. */
static inline mr_status add_up(mr_comm *world)
{
    enum { COUNT = 300007 };
    float *x = malloc(COUNT * sizeof *x);
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(mr_comm_rank(world) + i % 97);
    mr_status st = mr_comm_all_reduce(world, MR_COMM_SUM, MR_F32, x, COUNT);
    int wrong = 0;
    for (int i = 0; i < COUNT && st == MR_OK; i++)
        wrong += x[i] != (float)(N * (N - 1) / 2 + N * (i % 97));
    CHECK_INT(wrong, 0);
    free(x);
    return st;
}

static inline void *run_good_rank(void *arg)
{
    good_rank *g = arg;
    const mr_comm_options options = {.deadline_s = 60};
    mr_transport *transport;
    mr_comm *world = NULL;
    g->st = mr_tcp_transport(&g->place, NULL, &transport);
    if (g->st == MR_OK)
        g->st = mr_comm_world(transport, &options, &world);
    if (g->st == MR_OK)
        g->st = mr_comm_barrier(world, 0);
    if (g->st == MR_OK)
        g->st = add_up(world);
    if (g->st != MR_OK)
        snprintf(g->text, sizeof g->text, "%s", mr_error_last()->text);
    mr_comm_free(world);
    return NULL;
}

static inline int call(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* All ranks on one host name; `more` changes one of them. */
static inline void rendezvous(good_rank *good, int listener, int port, void (*more)(mr_tcp_place *))
{
    pthread_t threads[N];
    for (int r = 0; r < N; r++) {
        good[r] = (good_rank){.place = place_of(r, port)};
        good[r].place.listener = r ? -1 : listener;
        if (more)
            more(&good[r].place);
        pthread_create(&threads[r], NULL, run_good_rank, &good[r]);
    }
    for (int r = 0; r < N; r++)
        pthread_join(threads[r], NULL);
}

static inline void all_well(const good_rank good[N])
{
    for (int r = 0; r < N; r++)
        if (!CHECK_INT(good[r].st, MR_OK))
            printf("rank %d: %s\n", r, good[r].text);
}

#endif
