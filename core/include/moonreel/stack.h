/* stack: frames of threads of another process; the interface between the plug-in
 * libmoonreel_stack.so and core/life.
 *
 * Threads: one call at a time.
 * Licence: Apache-2.0 */
#ifndef MOONREEL_STACK_H
#define MOONREEL_STACK_H

#include "moonreel/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MR_STACK_FRAMES = 64, MR_STACK_THREADS = 4096 };

/* One frame of a thread, the innermost first. `text` is lent: "mr_loader_next" or
 * "libc.so.6+0x2724a". */
typedef void mr_stack_sink(void *user, int64_t tid, const char *text);

/* The plug-in exports "mr_stack_entry". */
#define MR_STACK_VERSION 1
typedef struct mr_stack {
    uint32_t version; /* MR_STACK_VERSION */
    /* Frames of all threads. Each thread is stopped for an instant; a stopped process stays
     * stopped. Threads that cannot be read give no frames. Errors: MR_E_IO not allowed, or it has
     * ended */
    mr_status (*read)(int64_t pid, mr_stack_sink *sink, void *user);
} mr_stack;
typedef const mr_stack *mr_stack_entry_fn(void);

#ifdef __cplusplus
}
#endif
#endif
