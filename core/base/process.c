/* base: reads facts about a process from /proc, and prepares its standard streams.
 * Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

bool mr_process_read(int64_t pid, mr_process *out)
{
    enum { PARENT = 4, START = 22 }; // fields of the line, counted from 1
    char path[64], *text;
    size_t n;
    *out = (mr_process){0};
    snprintf(path, sizeof path, pid ? "/proc/%lld/stat" : "/proc/self/stat", (long long)pid);
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return false;
    }
    // the name in parentheses may contain any characters, so count fields after its end
    char *p = strrchr(text, ')');
    if (p && p[1] == ' ') {
        out->pid = strtoll(text, NULL, 10), out->state = p[2];
        int field = 2;
        for (p++; *p && field < START; p++) {
            if (*p != ' ')
                continue;
            field++;
            if (field == PARENT)
                out->parent = strtoll(p + 1, NULL, 10);
            if (field == START)
                out->start = strtoll(p + 1, NULL, 10);
        }
    }
    mr_free(text);
    return out->start > 0;
}

bool mr_process_gone(int64_t pid)
{
    mr_process now;
    // a failure to read /proc proves nothing
    if (!mr_process_read(pid, &now))
        return kill((pid_t)pid, 0) && errno == ESRCH;
    return now.state == 'Z' || now.state == 'X';
}

void mr_program_file(char out[4096])
{
    ssize_t n = readlink("/proc/self/exe", out, 4095);
    out[n < 0 ? 0 : n] = 0;
    if (access(out, X_OK))
        strcpy(out, "/proc/self/exe");
}

void mr_process_name(const char *part)
{
    char name[16];
    snprintf(name, sizeof name, part ? "moonreel-%s" : "moonreel", part);
    prctl(PR_SET_NAME, name);
}

void mr_streams_hold(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}
