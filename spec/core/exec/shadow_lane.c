/* exec/shadow_lane: copies between runs on lanes of their own. They run in the order of the list
 * when lanes wait for events; a missing wait is detected at once, as are early reads and writes of
 * pinned memory, whatever lane runs first. On the CPU device the same calls give the same bytes.
 * Covers: core/exec/shadow_copy.c */
#include "specops.h"
#include "check.h"
#include "exec/room.h"

#include <math.h>

enum { N = 24, BYTES = N * 4, ORDERS = 12 };

/* ---- a device with lanes in and out ---- */

typedef struct road {
    mr_device *dev;
    const mr_device_ops *ops;
    mr_dptr staged, landing, slot, takeoff, ring;
    float *in, *out; /* staged and ring, as the host sees them */
    mr_event *sent, *taken, *left, *back;
} road;

static mr_dptr block(mr_device *dev, mr_space space)
{
    mr_dptr p = 0;
    CHECK_OK(dev->ops->alloc(dev, BYTES, space, &p));
    return p;
}

static road road_on(mr_device *dev)
{
    road r = {.dev = dev, .ops = dev->ops};
    r.staged = block(dev, MR_SPACE_PINNED), r.ring = block(dev, MR_SPACE_PINNED);
    r.landing = block(dev, MR_SPACE_DEVICE), r.slot = block(dev, MR_SPACE_DEVICE);
    r.takeoff = block(dev, MR_SPACE_DEVICE);
    r.in = r.ops->host(dev, r.staged), r.out = r.ops->host(dev, r.ring);
    mr_event **all[] = {&r.sent, &r.taken, &r.left, &r.back};
    for (int i = 0; i < 4; i++)
        CHECK_OK(r.ops->event(dev, all[i]));
    return r;
}

static void close_road(road *r)
{
    mr_event *all[] = {r->sent, r->taken, r->left, r->back};
    r->ops->free(r->dev, r->staged, BYTES, MR_SPACE_PINNED);
    r->ops->free(r->dev, r->ring, BYTES, MR_SPACE_PINNED);
    r->ops->free(r->dev, r->landing, BYTES, MR_SPACE_DEVICE);
    r->ops->free(r->dev, r->slot, BYTES, MR_SPACE_DEVICE);
    r->ops->free(r->dev, r->takeoff, BYTES, MR_SPACE_DEVICE);
    for (int i = 0; i < 4; i++)
        r->ops->event_free(r->dev, all[i]);
}

static mr_status copy(road *r, mr_lane lane, mr_dptr to, mr_dptr from)
{
    return r->ops->copy(r->dev, lane, &(mr_copy){to, from, BYTES, "road", NULL});
}

/* y = op(x) or, of two inputs, y = op(y, x); one at a time. */
static mr_step step_of(mr_device *dev, const char *op, mr_dptr x, mr_dptr y)
{
    static mr_arg args[3];
    static mr_desc desc;
    int64_t n = N;
    void *prepared = NULL;
    desc = mr_desc_dense(MR_F32, 1, &n);
    mr_step s = {.op = mr_op_find(op), .arg = args, .n_out = 1};
    s.n_in = mr_op_n_in(s.op);
    for (int i = 0; i <= s.n_in; i++)
        args[i] = (mr_arg){&desc, y};
    args[s.n_in - 1].at = x;
    CHECK_OK(mr_step_choose(&s, &dev->facts));
    CHECK_OK(dev->ops->prepare(dev, &s, 1, &prepared));
    return s;
}

/* The wait that one pass leaves out. */
typedef enum gap {
    WHOLE,
    RUN_AWAITS_SENT,  /* the run reads an input that has not arrived */
    IN_AWAITS_TAKEN,  /* the staging buffer is overwritten too early */
    HOST_AWAITS_SENT, /* the staging is */
    OUT_AWAITS_LEFT,  /* the result to copy is not there yet */
    HOST_AWAITS_BACK  /* the copied result is read too early */
} gap;

/* Three values are copied in one after another and added up, and their sum is copied back; the host
 * waits only where it must. */
enum { SUM = 1 + 2 + 3 };
static mr_status trip(road *r, gap g, float *got)
{
    const mr_device_ops *o = r->ops;
    const float zeros[N] = {0};
    bool is = false;
    MR_TRY(o->copy_in(r->dev, r->takeoff, zeros, BYTES));
    const mr_step add = step_of(r->dev, "spec_update", r->slot, r->takeoff);
    for (int k = 1; k <= 3; k++) {
        if (k > 1 && g != HOST_AWAITS_SENT)
            MR_TRY(o->reached(r->dev, r->sent, true, &is));
        for (int i = 0; i < N; i++)
            r->in[i] = (float)k;
        if (g != IN_AWAITS_TAKEN)
            MR_TRY(o->wait(r->dev, MR_LANE_IN, r->taken));
        MR_TRY(copy(r, MR_LANE_IN, r->landing, r->staged));
        MR_TRY(o->mark(r->dev, MR_LANE_IN, r->sent));
        if (g != RUN_AWAITS_SENT)
            MR_TRY(o->wait(r->dev, MR_LANE_RUN, r->sent));
        MR_TRY(copy(r, MR_LANE_RUN, r->slot, r->landing));
        MR_TRY(o->mark(r->dev, MR_LANE_RUN, r->taken));
        MR_TRY(o->run(r->dev, &add, 1, NULL));
    }
    MR_TRY(o->mark(r->dev, MR_LANE_RUN, r->left));
    if (g != OUT_AWAITS_LEFT)
        MR_TRY(o->wait(r->dev, MR_LANE_OUT, r->left));
    MR_TRY(copy(r, MR_LANE_OUT, r->ring, r->takeoff));
    MR_TRY(o->mark(r->dev, MR_LANE_OUT, r->back));
    if (g != HOST_AWAITS_BACK)
        MR_TRY(o->reached(r->dev, r->back, true, &is));
    *got = r->out[N - 1];
    return o->sync(r->dev);
}

/* In how many of ORDERS orders is a missing wait detected? */
static int seen(mr_device *dev, gap g)
{
    int n = 0;
    for (uint64_t order = 0; order < ORDERS; order++) {
        road r = road_on(dev);
        float got = 0;
        if (dev->checks)
            mr_shadow_order(dev, order);
        mr_status st = trip(&r, g, &got);
        n += st != MR_OK || got != SUM;
        dev->ops->sync(dev);
        close_road(&r);
    }
    return n;
}

static void gaps(mr_device *dev)
{
    CHECK_INT(seen(dev, WHOLE), 0);
    if (!dev->checks)
        return;
    for (gap g = RUN_AWAITS_SENT; g <= HOST_AWAITS_BACK; g++) {
        int n = seen(dev, g);
        printf("left out %d: seen in %d of %d orders\n", (int)g, n, ORDERS);
        CHECK(n >= 3);
    }
    CHECK_INT(seen(dev, HOST_AWAITS_BACK), ORDERS); // it holds poison until the copy is done
    CHECK_INT(seen(dev, WHOLE), 0);
}

/* ---- events ---- */

static void events(mr_device *dev)
{
    road r = road_on(dev);
    const mr_device_ops *o = r.ops;
    bool is = false;
    CHECK_OK(o->reached(dev, r.sent, false, &is));
    CHECK(is); // it was not marked
    mr_step gate = step_of(dev, "spec_gate", r.slot, r.takeoff);
    atomic_store(&spec_gate_open, false);
    CHECK_OK(o->run(dev, &gate, 1, NULL));
    CHECK_OK(o->wait(dev, MR_LANE_IN, r.left)); // a later mark does not count
    CHECK_OK(o->mark(dev, MR_LANE_RUN, r.left));
    CHECK_OK(copy(&r, MR_LANE_IN, r.landing, r.staged));
    CHECK_OK(o->mark(dev, MR_LANE_IN, r.sent));
    CHECK_OK(o->wait(dev, MR_LANE_OUT, r.left));
    CHECK_OK(copy(&r, MR_LANE_OUT, r.ring, r.takeoff));
    CHECK_OK(o->mark(dev, MR_LANE_OUT, r.back));
    CHECK_OK(o->reached(dev, r.left, false, &is));
    CHECK(!is);
    CHECK_OK(o->reached(dev, r.back, false, &is));
    CHECK(!is);
    CHECK(isnan(r.out[0]) && isnan(r.out[N - 1])); // poison until it has arrived
    atomic_store(&spec_gate_open, true);
    CHECK_OK(o->reached(dev, r.sent, true, &is));
    CHECK_OK(o->reached(dev, r.back, true, &is));
    CHECK(is);
    CHECK_OK(o->reached(dev, r.left, false, &is));
    CHECK(is);
    CHECK(r.out[0] == 0);
    close_road(&r);
}

/* A run that fails also fails later work on any lane; no caller waits for ever, and it is reported
 * once. */
static void failures(mr_device *dev)
{
    road r = road_on(dev);
    const mr_device_ops *o = r.ops;
    bool is = false;
    uint64_t lost = dev->lost;
    mr_step bad = step_of(dev, "spec_fail", r.slot, r.takeoff);
    CHECK_OK(o->run(dev, &bad, 1, NULL));
    CHECK_OK(o->mark(dev, MR_LANE_RUN, r.left));
    CHECK_OK(o->wait(dev, MR_LANE_OUT, r.left));
    CHECK_OK(copy(&r, MR_LANE_OUT, r.ring, r.takeoff));
    CHECK_OK(o->mark(dev, MR_LANE_OUT, r.back));
    CHECK_FAILS(o->reached(dev, r.back, true, &is), MR_E_DATA, "this row always fails");
    CHECK_INT(dev->lost - lost, 1);
    CHECK_OK(o->reached(dev, r.back, true, &is));
    CHECK(is);
    float got = 0;
    CHECK_OK(trip(&r, WHOLE, &got));
    CHECK(got == SUM);
    // a host that writes the source of a later copy
    mr_step gate = step_of(dev, "spec_gate", r.slot, r.takeoff);
    atomic_store(&spec_gate_open, false);
    CHECK_OK(o->run(dev, &gate, 1, NULL));
    CHECK_OK(o->mark(dev, MR_LANE_RUN, r.left));
    CHECK_OK(o->wait(dev, MR_LANE_IN, r.left));
    CHECK_OK(copy(&r, MR_LANE_IN, r.landing, r.staged));
    r.in[N / 2] = 17;
    atomic_store(&spec_gate_open, true);
    CHECK_FAILS(o->sync(dev), MR_E_INTERNAL, "copy of 'road': the host changed its bytes");
    lost = dev->lost - 1;
    // the next call that queries gets the report, not one that only frees
    bad = step_of(dev, "spec_fail", r.slot, r.takeoff);
    mr_dptr more = block(dev, MR_SPACE_PINNED), none = 0;
    CHECK_OK(o->run(dev, &bad, 1, NULL));
    o->free(dev, more, BYTES, MR_SPACE_PINNED);
    CHECK_INT(dev->lost - lost, 1);
    CHECK_FAILS(o->alloc(dev, BYTES, MR_SPACE_DEVICE, &none), MR_E_DATA, "always fails");
    CHECK_INT(dev->lost - lost, 2);
    close_road(&r);
}

/* Pinned memory is all that the host can request. */
static void addresses(mr_device *dev)
{
    road r = road_on(dev);
    CHECK(r.in && r.out && (void *)r.in != (void *)r.out);
    CHECK(!dev->checks || !dev->ops->host(dev, r.landing));
    CHECK(!dev->checks || (mr_dptr)r.in != r.staged);
    CHECK(dev->ops->host(dev, r.staged + 8) == (char *)r.in + 8);
    if (dev->checks) {
        mr_copy far = {r.landing + 4, r.staged, BYTES, "far", NULL};
        CHECK_FAILS(dev->ops->copy(dev, MR_LANE_IN, &far), MR_E_INTERNAL, "copy of 'far'");
        CHECK_OK(dev->ops->fill(dev, r.takeoff, 0, BYTES));
        CHECK_OK(copy(&r, MR_LANE_OUT, r.ring, r.takeoff));
        CHECK_FAILS(dev->ops->sync(dev), MR_E_INTERNAL,
                    "copy of 'road': reads its byte 0, which was not written");
    }
    close_road(&r);
}

int main(void)
{
    static const char *const names[] = {"cpu", "shadow"};
    for (int i = 0; i < 2; i++) {
        mr_device *dev;
        CHECK_OK(mr_device_open(names[i], 1, &dev));
        addresses(dev);
        gaps(dev);
        if (dev->checks)
            events(dev), failures(dev);
        mr_device_close(dev);
    }
    return check_done();
}
