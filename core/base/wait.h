/* base, for rooms: a wait of at most 50 ms, after which the caller checks for interrupts.
 * Licence: Apache-2.0 */
#ifndef MR_BASE_WAIT_H
#define MR_BASE_WAIT_H

#include <pthread.h>
#include <time.h>

/* Wait for a condition, at most 50 ms. Neither an interrupt nor the caller's timeout signals the
 * condition, so the caller checks both afterwards. The caller holds `lock`. */
static inline void mr_wait_briefly(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 50000000;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(cond, lock, &until);
}

#endif
