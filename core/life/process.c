/* life: sends signals to processes that are identified by pid and start time.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "moonreel/life.h"
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool belongs_to(int64_t pid, uint32_t uid)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%lld", (long long)pid);
    return stat(path, &st) == 0 && st.st_uid == uid;
}

mr_status mr_life_signal(int64_t pid, int64_t start, uint32_t uid, int number)
{
    mr_process now;
    // open a pidfd before the checks: they then see the process that gets the signal
    int held = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (held < 0)
        return mr_fail(MR_E_NODE, "process %lld: %s", (long long)pid, strerror(errno));
    mr_status st = MR_OK;
    if (!mr_process_read(pid, &now) || now.start != start || now.state == 'Z' ||
        !belongs_to(pid, uid))
        st = mr_fail(MR_E_NODE, "process %lld has ended, and another process has its number",
                     (long long)pid);
    else if (syscall(SYS_pidfd_send_signal, held, number, NULL, 0) != 0)
        st = mr_fail(errno == ESRCH ? MR_E_NODE : MR_E_IO, "signal %d to process %lld: %s", number,
                     (long long)pid, strerror(errno));
    close(held);
    return st;
}

/* ---- processes of a launch ---- */

/* Does the initial environment of a process contain `entry`? */
static bool began_with(int64_t pid, const char *entry)
{
    char path[64], *text;
    size_t n, at = 0;
    snprintf(path, sizeof path, "/proc/%lld/environ", (long long)pid);
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return false;
    }
    // mr_file_read_all adds a zero after the last byte
    while (at < n && strcmp(text + at, entry) != 0)
        at += strlen(text + at) + 1;
    mr_free(text);
    return at < n;
}

int mr_life_processes(const char *token, uint32_t uid, mr_life_process *out, int most)
{
    char entry[64];
    int n = 0;
    DIR *all = token[0] ? opendir("/proc") : NULL;
    if (!all)
        return 0;
    snprintf(entry, sizeof entry, "MOONREEL_LAUNCH=%s", token);
    for (const struct dirent *d; n < most && (d = readdir(all));) {
        const int64_t pid = strtoll(d->d_name, NULL, 10);
        mr_process p;
        if (pid <= 0 || !belongs_to(pid, uid) || !mr_process_read(pid, &p) || p.state == 'Z' ||
            !began_with(pid, entry))
            continue;
        out[n++] = (mr_life_process){.pid = p.pid, .start = p.start, .state = p.state};
    }
    closedir(all);
    return n;
}

int mr_life_signal_all(const char *token, uint32_t uid, int number)
{
    enum { MOST = 4096 };
    mr_life_process *found = mr_calloc(MOST, sizeof *found);
    int n = found ? mr_life_processes(token, uid, found, MOST) : 0, reached = 0;
    for (int i = 0; i < n; i++)
        reached += mr_life_signal(found[i].pid, found[i].start, uid, number) == MR_OK;
    mr_free(found);
    mr_error_clear();
    return reached;
}

bool mr_life_process_state(int64_t pid, int64_t start, char *state)
{
    mr_process p;
    bool there = mr_process_read(pid, &p) && p.start == start && p.state != 'Z';
    *state = there ? p.state : 0;
    return there;
}

/* ---- activity of processes ---- */

/* Fields 12 and 14 to 17 of a stat line: major page faults, then user and system ticks of this
 * process and of its ended children. */
static bool read_stat(int64_t pid, double *faults, double *ticks)
{
    char path[64], *text;
    size_t n;
    long long f[6];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return false;
    }
    const char *p = strrchr(text, ')');
    bool good =
        p && sscanf(p, ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %lld %lld %lld %lld %lld %lld", &f[0],
                    &f[1], &f[2], &f[3], &f[4], &f[5]) == 6;
    mr_free(text);
    if (good)
        *faults = (double)f[0], *ticks = (double)(f[2] + f[3] + f[4] + f[5]);
    return good;
}

static double read_io(int64_t pid)
{
    char path[64], *text;
    size_t n;
    unsigned long long in = 0, out = 0;
    snprintf(path, sizeof path, "/proc/%lld/io", (long long)pid);
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return 0;
    }
    sscanf(text, "rchar: %llu wchar: %llu", &in, &out);
    mr_free(text);
    return (double)in + (double)out;
}

/* Finds a process and all its descendants. Returns their number, at most `most`. */
static int family(int64_t pid, int64_t *out, int most)
{
    int n = 1, before;
    out[0] = pid;
    // a child may be listed before its parent
    do {
        before = n;
        DIR *all = opendir("/proc");
        for (const struct dirent *d; all && n < most && (d = readdir(all));) {
            mr_process p;
            bool known = false, ours = false;
            if (strtoll(d->d_name, NULL, 10) <= 0 ||
                !mr_process_read(strtoll(d->d_name, NULL, 10), &p))
                continue;
            for (int i = 0; i < n; i++)
                known = known || out[i] == p.pid, ours = ours || out[i] == p.parent;
            if (ours && !known)
                out[n++] = p.pid;
        }
        if (all)
            closedir(all);
    } while (n > before);
    return n;
}

bool mr_life_work_of(int64_t pid, mr_life_work *out)
{
    enum { MOST = 256 };
    const double page = (double)sysconf(_SC_PAGESIZE), tick = (double)sysconf(_SC_CLK_TCK);
    int64_t all[MOST];
    double faults, ticks;
    *out = (mr_life_work){0};
    if (!read_stat(pid, &faults, &ticks))
        return false;
    for (int i = 0, n = family(pid, all, MOST); i < n; i++)
        if (read_stat(all[i], &faults, &ticks))
            out->cpu_s += ticks / tick, out->bytes += faults * page + read_io(all[i]);
    return true;
}
