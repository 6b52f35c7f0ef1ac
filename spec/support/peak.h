/* The peak memory of a call, read from a counter of the kernel in a child process. */
#ifndef MR_PEAK_H
#define MR_PEAK_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sanitizers keep freed memory and shadows of it, so their peaks prove nothing. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { PEAK_COUNTS = 0 };
#else
enum { PEAK_COUNTS = 1 };
#endif

/* One line of /proc/self/status in KiB. */
static inline long peak_status(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtol(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return kib;
}

/* Bytes that call(user) needs beyond what the process had before it; -1 when it died. `ok` receives
 * whether it returned true. */
static inline int64_t peak_of(bool (*call)(void *user), void *user, bool *ok)
{
    struct {
        long kib;
        bool ok;
    } report = {-1, false};
    int ends[2], status;
    *ok = false;
    if (pipe(ends))
        return -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long before = peak_status("VmRSS:");
        report.ok = call(user);
        report.kib = peak_status("VmHWM:") - before;
        _exit(write(ends[1], &report, sizeof report) != sizeof report);
    }
    close(ends[1]);
    bool heard = read(ends[0], &report, sizeof report) == sizeof report;
    close(ends[0]);
    waitpid(child, &status, 0);
    *ok = heard && report.ok;
    return heard ? (int64_t)report.kib * 1024 : -1;
}
#endif
