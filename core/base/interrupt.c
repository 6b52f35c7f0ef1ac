/* base: the flag by which a person at the prompt stops what runs. Licence: Apache-2.0 */
#include "moonreel/base.h"

#include <stdatomic.h>

static atomic_bool asked; // lock-free, so a signal handler may set it

void mr_interrupt_set(bool on)
{
    atomic_store_explicit(&asked, on, memory_order_relaxed);
}
bool mr_interrupt_get(void)
{
    return atomic_load_explicit(&asked, memory_order_relaxed);
}

mr_status mr_interrupt_check(void)
{
    return mr_interrupt_get() ? mr_fail(MR_E_STOPPED, "stopped by Ctrl-C") : MR_OK;
}
