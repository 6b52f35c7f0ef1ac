/* base: the flag that Ctrl-C at the prompt sets to stop the running call. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <stdatomic.h>
#include <string.h>

static atomic_bool asked; // lock-free, so a signal handler may set it

void mr_interrupt_set(bool on)
{
    atomic_store_explicit(&asked, on, memory_order_relaxed);
}
bool mr_interrupt_get(void)
{
    return atomic_load_explicit(&asked, memory_order_relaxed);
}

mr_status mr_interrupt_copy(void *dst, const void *src, size_t bytes)
{
    enum { PIECE = 16 << 20 };
    if (bytes <= PIECE) {
        memmove(dst, src, bytes);
        return MR_OK;
    }
    // if the ranges overlap, start at the end that keeps unread source bytes intact
    bool backwards = (char *)dst > (const char *)src;
    for (size_t done = 0; done < bytes; done += PIECE) {
        size_t n = MR_MIN(bytes - done, (size_t)PIECE), at = backwards ? bytes - done - n : done;
        MR_TRY(mr_interrupt_check());
        memmove((char *)dst + at, (const char *)src + at, n);
    }
    return MR_OK;
}

mr_status mr_interrupt_check(void)
{
    return mr_interrupt_get() ? mr_fail(MR_E_STOPPED, "stopped by Ctrl-C") : MR_OK;
}

bool mr_stop_again(int before, int number, double after_s)
{
    return number == before && after_s < 0.2;
}
