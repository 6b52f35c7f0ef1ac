/* cuda/rt, private header: types and functions that the files of the runtime share.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_RT_ROOM_H
#define MOONREEL_CUDA_RT_ROOM_H

#include "cuda/comm/ranks.h"
#include "cuda/kernels/table.h"
#include "cuda/rt/driver.h"
#include "moonreel/exec.h"

/* A timed copy: the events before and after it. */
typedef struct timed {
    struct timed *next;
    void *event[2];
    mr_step_clock *clock;
} timed;

/* One allocation: `at` is aligned, `base` is the driver's address. */
typedef struct block {
    struct block *next;
    bool pinned;
    size_t bytes;
    void *base;
    mr_dptr at;
} block;

typedef struct rt {
    mr_device dev;
    mr_cuda_facts facts;
    void *stream[MR_QUEUE_COUNT]; /* the first is also MR_LANE_RUN */
    void *lane[MR_LANE_COUNT];
    void *begun; /* event: all work before this run has completed */
    void *end;   /* event: rt_wait waits for it */
    /* zero: the event from which device clocks count; zero_s: its time on the host. The driver
     * reports milliseconds in f32, which get coarse over time, so `later`, the start of the newest
     * timed run, replaces `zero`. */
    void *zero, *later;
    double zero_s;
    bool moves;           /* `later` has not replaced `zero` yet */
    struct timed *copies; /* copies whose clocks are not read yet */
    block *blocks;
    mr_cuda_speaker speaker;
    bool each; /* MOONREEL_SYNC: wait after each step, so that an error names the right step */
    struct prepared *waiting; /* runs whose values are not checked yet */
    mr_status failed;         /* status of the first failure that is not reported yet */
    mr_error *error;
} rt;

/* A step without a kernel: its arguments are copied to the host, the host runs the naive kernel,
 * and the outputs are copied back. */
typedef struct host_step {
    const mr_step *step;
    rt *rt;
    void *at[MR_MAX_IN + MR_MAX_OUT]; /* in pinned memory */
    void *workspace;
    void *memory; /* the block that contains all of these */
} host_step;

/* State that the runtime keeps for steps that run together. */
typedef struct prepared {
    struct prepared *next; /* in rt.waiting */
    bool waits;
    const mr_step *steps;
    int n;
    bool has_events;
    void **event;    /* of steps that other steps wait for, else NULL */
    void **clock[2]; /* timing: before and after each step; NULL until the first timed run */
    void *end[MR_QUEUE_COUNT];
    bool used[MR_QUEUE_COUNT];
    host_step **host; /* of steps without a kernel, else NULL */
    bool checks;      /* some step has values to check */
    int runs;         /* since the addresses changed */
    void *graph;      /* the captured run, or NULL */
    unsigned left;    /* mr_cuda_ranks_left() at the last run */
    bool timed;       /* the last run has clocks to read */
} prepared;

/* Turn a driver error into a message with a remedy; MR_OK for 0. */
mr_status cuda_fail(int error, const char *doing);
#define CUDA_TRY(call, doing) MR_TRY(cuda_fail((call), (doing)))

mr_status host_step_new(rt *rt, const mr_step *step, host_step **out);
void host_step_free(host_step *h);
mr_status host_step_enqueue(host_step *h, void *stream);

mr_status prepared_new(rt *rt, mr_step *steps, int n, prepared **out);
/* Call only when no run of it is in flight and it is not in rt.waiting. */
void prepared_free(prepared *p, mr_step *steps);
/* The addresses changed: free the captured graph. */
void prepared_moved(prepared *p);
/* Enqueue the steps on the streams. The second run captures them, later runs launch the graph. */
mr_status prepared_run(rt *rt, prepared *p, const mr_step *steps);
/* Check values and read clocks of the last run, after it has ended. */
mr_status prepared_check(rt *rt, prepared *p);
/* Start a timed run. */
mr_status clocks_begin(rt *rt);
/* Read the time between two completed events. The newest timed run must have started too. */
mr_status read_clock(rt *rt, void *from, void *to, mr_step_clock *clock);

/* add op, node and origin of a step to the newest error */
mr_status blame(const mr_step *step, mr_status st);
/* Wait for a stream, or for the last record of an event. While waiting, serve the communicators of
 * this rank. */
mr_status rt_wait(rt *rt, void *stream);
mr_status rt_wait_event(rt *rt, void *event);
/* Call after a failed wait: leave the communicators, so that no rank waits for another, and let the
 * remaining work end. */
mr_status rt_run_out(rt *rt, mr_status st);
/* Set the error record to the first unreported failure. MR_OK: nothing failed. */
mr_status rt_report_failure(rt *rt);
void rt_failed(rt *rt, mr_status st);

#endif
