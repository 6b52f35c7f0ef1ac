/* bench: times the first write to fresh memory in default kernel pages. It is the baseline for code
 * that prepares memory in advance. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "moonreel/bench.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS_MAX = 256, TOUCHERS = 8 };

typedef struct part {
    uint8_t *at;
    size_t bytes;
    pthread_t thread;
} part;

static void *write_once(void *user)
{
    part *p = user;
    memset(p->at, 1, p->bytes);
    return NULL;
}

mr_status mr_bench_touch(int64_t bytes, int threads, double *seconds)
{
    part parts[THREADS_MAX];
    long processors = MR_MAX(MR_MIN(sysconf(_SC_NPROCESSORS_ONLN), TOUCHERS), 1);
    size_t n = threads > 0 ? (size_t)MR_MIN(threads, THREADS_MAX) : (size_t)processors,
           each = (size_t)bytes / n + 1;
    uint8_t *at = mmap(NULL, n * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return mr_fail_memory(n * each);
    double from = mr_now_s();
    size_t begun = 0;
    for (; begun + 1 < n; begun++) {
        parts[begun] = (part){.at = at + begun * each, .bytes = each};
        if (pthread_create(&parts[begun].thread, NULL, write_once, &parts[begun]))
            break;
    }
    // this thread writes the rest
    write_once(&(part){.at = at + begun * each, .bytes = (n - begun) * each});
    while (begun)
        pthread_join(parts[--begun].thread, NULL);
    *seconds = mr_now_s() - from;
    munmap(at, n * each);
    return MR_OK;
}
