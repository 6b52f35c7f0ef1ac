/* exec: the CPU device. Device memory is host memory; steps run and copies are done at once, in
 * order, on the caller's thread, so events are reached as soon as they are marked.
 * Licence: Apache-2.0 */
#define _DEFAULT_SOURCE // madvise
#include "exec/room.h"

#include "cpu/cpu.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, LARGE_PAGE = 2 << 20, MUCH = 256 << 20 };

/* Request large pages inside a block: matrix rows are pages apart, and each page costs a TLB
 * look-up. */
static void prefer_large_pages(char *at, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    uintptr_t from = ((uintptr_t)at + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE,
              to = ((uintptr_t)at + bytes) / LARGE_PAGE * LARGE_PAGE;
    if (to > from)
        madvise((void *)from, to - from, MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

static mr_status alloc(mr_device *dev, size_t bytes, mr_space space, mr_dptr *out)
{
    (void)space;
    // the system overcommits memory, and kills a process that touches too much of it
    size_t left = bytes, total;
    if (bytes >= MUCH)
        MR_TRY(mr_host_memory(dev, &left, &total));
    if (bytes > left)
        return mr_fail_memory(bytes);
    // zeroed memory from the system, whose pages are mapped at first use; the start of the block is
    // stored in front of the result
    char *block = bytes < SIZE_MAX - 2 * PAGE ? mr_calloc(1, bytes + 2 * PAGE) : NULL;
    if (!block)
        return mr_fail_memory(bytes);
    char *at = block + 2 * PAGE - (uintptr_t)block % PAGE;
    memcpy(at - sizeof block, &block, sizeof block);
    prefer_large_pages(at, bytes);
    *out = (mr_dptr)at;
    return MR_OK;
}

static void release_memory(mr_device *dev, mr_dptr p, size_t bytes, mr_space space)
{
    (void)dev, (void)bytes, (void)space;
    if (!p)
        return;
    char *block;
    memcpy(&block, (char *)p - sizeof block, sizeof block);
    mr_free(block);
}

static void *host(mr_device *dev, mr_dptr p)
{
    (void)dev;
    return (void *)p;
}

static mr_status copy_in(mr_device *dev, mr_dptr dst, const void *src, size_t bytes)
{
    (void)dev;
    return mr_interrupt_copy((void *)dst, src, bytes);
}

static mr_status copy_out(mr_device *dev, void *dst, mr_dptr src, size_t bytes)
{
    (void)dev;
    return mr_interrupt_copy(dst, (const void *)src, bytes);
}

static mr_status fill(mr_device *dev, mr_dptr dst, int byte, size_t bytes)
{
    (void)dev;
    memset((void *)dst, byte, bytes);
    return MR_OK;
}

static mr_status prepare(mr_device *dev, mr_step *steps, int n, void **prepared)
{
    (void)prepared;
    return mr_steps_prepare(steps, n, &dev->facts);
}

static void forget(mr_device *dev, mr_step *steps, int n, void *prepared)
{
    (void)prepared;
    (void)dev;
    mr_steps_forget(steps, n);
}

static mr_status run(mr_device *dev, const mr_step *steps, int n, void *prepared)
{
    (void)dev, (void)prepared;
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++) {
        mr_call call;
        mr_step_call(&steps[i], &call);
        st = mr_step_run(&steps[i], &call);
        // after an interrupt, the result of a step is incomplete
        if (st == MR_OK)
            st = mr_interrupt_check();
    }
    return st;
}

static mr_status sync(mr_device *dev)
{
    (void)dev;
    return MR_OK;
}

static mr_status copy(mr_device *dev, mr_lane lane, const mr_copy *c)
{
    (void)dev, (void)lane;
    double start = c->clock ? mr_now_s() : 0;
    mr_status st = mr_interrupt_copy((void *)c->to, (const void *)c->from, c->bytes);
    if (c->clock)
        *c->clock = (mr_step_clock){start, mr_now_s() - start};
    return st;
}

static mr_status event(mr_device *dev, mr_event **out)
{
    (void)dev;
    *out = NULL;
    return MR_OK;
}

static void event_free(mr_device *dev, mr_event *event)
{
    (void)dev, (void)event;
}

static mr_status mark_or_wait(mr_device *dev, mr_lane lane, mr_event *event)
{
    (void)dev, (void)lane, (void)event;
    return MR_OK;
}

static mr_status reached(mr_device *dev, mr_event *event, bool block, bool *out)
{
    (void)dev, (void)event, (void)block;
    *out = true;
    return MR_OK;
}

static void close_device(mr_device *dev)
{
    mr_free(dev);
}

static const mr_device_ops ops = {
    .alloc = alloc,
    .free = release_memory,
    .host = host,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .fill = fill,
    .prepare = prepare,
    .forget = forget,
    .run = run,
    .sync = sync,
    .copy = copy,
    .event = event,
    .event_free = event_free,
    .mark = mark_or_wait,
    .wait = mark_or_wait,
    .reached = reached,
    .memory = mr_host_memory,
    .close = close_device,
};

mr_status mr_cpu_open(int threads, mr_device **out)
{
    mr_device *dev;
    if (!MR_NEW(dev))
        return mr_fail_memory(sizeof *dev);
    dev->ops = &ops, dev->host = true;
    dev->facts = mr_cpu_facts("cpu", mr_isa(), threads);
    *out = dev;
    return MR_OK;
}
