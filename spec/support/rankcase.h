/* Ranks as threads: each runs one function with its own communicator, and its failures are passed
 * to the spec. They share memory, or do so in groups that use TCP between them. */
#ifndef MR_RANKCASE_H
#define MR_RANKCASE_H
#include "check.h"
#include "moonreel/comm.h"

#include <pthread.h>
#include <stdlib.h>

/* Ranks that share memory, as if on one host; 0: all of them. */
static int rank_host;

typedef struct rank_case {
    mr_comm *world;
    int rank, size;
    void *user;
    mr_status st; /* of the function */
    char text[1024];
    mr_segment *segment; /* of its host */
    mr_tcp_place place;
    mr_comm_options options;
    mr_status (*run)(struct rank_case *c);
} rank_case;

static void *rank_thread(void *arg)
{
    rank_case *c = arg;
    mr_transport *transport = NULL;
    c->st = mr_segment_transport(c->segment, c->rank - c->place.first, &transport);
    if (c->st == MR_OK && rank_host)
        c->st = mr_tcp_transport(&c->place, transport, &transport);
    if (c->st == MR_OK)
        c->st = mr_comm_world(transport, &c->options, &c->world);
    if (c->st == MR_OK)
        c->st = c->run(c);
    if (c->st != MR_OK)
        snprintf(c->text, sizeof c->text, "%s", mr_error_last()->text);
    mr_comm_free(c->world);
    return NULL;
}

/* Runs on `n` ranks; options may be NULL, or one per rank. The caller reads and frees the cases. */
static rank_case *ranks_run(int n, mr_status (*run)(rank_case *c), void *user,
                            const mr_comm_options *options)
{
    const int host = rank_host ? MR_MIN(rank_host, n) : n;
    int listener = -1, port = 0;
    mr_segment **segments = calloc((size_t)n, sizeof *segments);
    rank_case *cases = calloc((size_t)n, sizeof *cases);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    pthread_attr_t small;
    for (int first = 0; first < n; first += host)
        CHECK_OK(mr_segment_new(MR_MIN(host, n - first), &segments[first]));
    if (rank_host)
        CHECK_OK(mr_tcp_listen(NULL, 0, 1, &listener, &port));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    for (int r = 0; r < n; r++) {
        const int first = r / host * host;
        cases[r] =
            (rank_case){.rank = r, .size = n, .user = user, .segment = segments[first], .run = run};
        cases[r].place = (mr_tcp_place){.rank = r,
                                        .size = n,
                                        .host = "localhost",
                                        .port = port,
                                        .listener = r ? -1 : listener,
                                        .run = 7,
                                        .fence = 1,
                                        .secret = "spec",
                                        .deadline_s = 60,
                                        .first = first,
                                        .n_local = MR_MIN(host, n - first)};
        // no spec waits longer than this for a rank that does not come
        cases[r].options = options ? options[r] : (mr_comm_options){.deadline_s = 60};
        CHECK_INT(pthread_create(&threads[r], &small, rank_thread, &cases[r]), 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    pthread_attr_destroy(&small);
    for (int r = 0; r < n; r++)
        mr_segment_free(segments[r]);
    free(threads), free(segments);
    return cases;
}

/* The same when all ranks must succeed; the first failure is printed. */
static inline void ranks_succeed(int n, mr_status (*run)(rank_case *c), void *user)
{
    rank_case *cases = ranks_run(n, run, user, NULL);
    int failed = 0;
    for (int r = 0; r < n; r++)
        if (cases[r].st != MR_OK && failed++ == 0)
            printf("rank %d of %d: %s\n", r, n, cases[r].text);
    CHECK_INT(failed, 0);
    free(cases);
}

#endif
