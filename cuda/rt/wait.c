/* cuda/rt: wait for a stream or an event, and meanwhile serve the communicators of this rank.
 * Licence: Apache-2.0 */
#include "room.h"

#include <time.h>

static void drain_streams(rt *rt)
{
    for (int q = 1; q < MR_QUEUE_COUNT; q++)
        mr_cuda.stream_sync(rt->stream[q]);
    for (int i = 0; i < MR_LANE_COUNT; i++)
        mr_cuda.stream_sync(rt->lane[i]);
}

mr_status rt_run_out(rt *rt, mr_status st)
{
    mr_cuda_ranks_give_up(st);
    mr_error *first = mr_error_copy(mr_error_last());
    drain_streams(rt);
    mr_error_adopt(first);
    mr_error_free(first);
    return st;
}

mr_status rt_wait_event(rt *rt, void *event)
{
    enum { PATIENCE = 2000 }; // polls before this thread sleeps between polls
    const struct timespec moment = {0, 50000};
    mr_status st = MR_OK;
    bool over = false;
    if (!mr_cuda_ranks_open())
        return cuda_fail(mr_cuda.event_reached(event, true, &over), "the GPU");
    for (int looks = 0; st == MR_OK; looks++) {
        st = cuda_fail(mr_cuda.event_reached(event, false, &over), "the GPU");
        if (over || st != MR_OK)
            break;
        st = mr_cuda_ranks_look();
        if (looks > PATIENCE)
            nanosleep(&moment, NULL);
    }
    return st == MR_OK ? MR_OK : rt_run_out(rt, st);
}

mr_status rt_wait(rt *rt, void *stream)
{
    if (!mr_cuda_ranks_open())
        return cuda_fail(mr_cuda.stream_sync(stream), "the GPU");
    CUDA_TRY(mr_cuda.event_record(rt->end, stream), "an event");
    return rt_wait_event(rt, rt->end);
}
