/* cuda/rt, inside: what the files of the runtime share.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_CUDA_RT_ROOM_H
#define MOONREEL_CUDA_RT_ROOM_H

#include "cuda/comm/ranks.h"
#include "cuda/kernels/row.h"
#include "cuda/rt/driver.h"
#include "moonreel/exec.h"

/* A copy whose time is asked for: events around it. */
typedef struct timed {
    struct timed *next;
    void *event[2];
    mr_step_clock *clock;
} timed;

/* One allocation: `at` is aligned, `base` is what the driver gave. */
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
    void *stream[MR_QUEUE_COUNT]; /* the first is MR_LANE_RUN */
    void *lane[MR_LANE_COUNT];
    void *begun; /* event: what was enqueued before this run is over */
    void *end;   /* event: what is waited for */
    /* A moment that clocks of the device count from, and when that was. Drivers tell milliseconds
     * in f32, coarse after a while, so `later`, the begin of the newest timed run, takes its place.
     */
    void *zero, *later;
    double zero_s;
    bool moves;           /* it has not yet */
    struct timed *copies; /* whose clocks were not read yet */
    block *blocks;
    mr_cuda_speaker speaker;
    bool each; /* MOONREEL_SYNC: wait after each step, so that blame lands on the right one */
    struct prepared *waiting; /* runs whose values were not checked yet */
    mr_status failed;         /* of the first that failed and was not reported */
    mr_error *story;
} rt;

/* A step that no kernel takes: its arguments come to the host, the naive row runs there, its
 * outputs go back. */
typedef struct host_step {
    const mr_step *step;
    rt *rt;
    void *at[MR_MAX_IN + MR_MAX_OUT]; /* in pinned memory */
    void *workspace;
    void *memory; /* all of it */
} host_step;

/* What the runtime keeps for steps that run together. */
typedef struct prepared {
    struct prepared *next; /* in rt.waiting */
    bool waits;
    const mr_step *steps;
    int n;
    bool has_events;
    void **event;    /* of steps that others wait for, else NULL */
    void **clock[2]; /* timing: before and behind each step; NULL until it is timed */
    void *end[MR_QUEUE_COUNT];
    bool used[MR_QUEUE_COUNT];
    host_step **host; /* of steps without a kernel, else NULL */
    bool checks;      /* some step has values to check */
    int runs;         /* since addresses changed */
    void *graph;      /* captured; NULL: not yet */
    unsigned left;    /* communicators, when that was */
    bool timed;       /* the last run left clocks to read */
} prepared;

/* The story of a driver's error, with what to try; MR_OK for 0. */
mr_status cuda_fail(int error, const char *doing);
#define CUDA_TRY(call, doing) MR_TRY(cuda_fail((call), (doing)))

mr_status host_step_new(rt *rt, const mr_step *step, host_step **out);
void host_step_free(host_step *h);
mr_status host_step_enqueue(host_step *h, void *stream);

mr_status prepared_new(rt *rt, mr_step *steps, int n, prepared **out);
/* Nothing of it is under way, and no one waits for its values. */
void prepared_free(prepared *p, mr_step *steps);
/* Addresses are new: what was captured with the old ones goes. */
void prepared_moved(prepared *p);
/* Enqueue the steps on the streams, captured from the second time on. */
mr_status prepared_run(rt *rt, prepared *p, const mr_step *steps);
/* What kernels and clocks of its last run say, when it is over. */
mr_status prepared_check(rt *rt, prepared *p);
/* A timed run begins. */
mr_status clocks_begin(rt *rt);
/* The time between two events that came by, the second as the newest timed run did. */
mr_status read_clock(rt *rt, void *from, void *to, mr_step_clock *clock);

/* op, node and origin of a step into the newest error */
mr_status blame(const mr_step *step, mr_status st);
/* Wait for a stream, and for the last record of an event; the ranks that speak with this one are
 * looked after meanwhile. */
mr_status rt_wait(rt *rt, void *stream);
mr_status rt_wait_event(rt *rt, void *event);
/* A wait failed: without ranks that wait for this one, and the other way round, the rest runs out.
 */
mr_status rt_run_out(rt *rt, mr_status st);
/* The first failure since the last report, if there is one, in words; MR_OK: there is none. */
mr_status rt_story(rt *rt);
void rt_failed(rt *rt, mr_status st);

#endif
