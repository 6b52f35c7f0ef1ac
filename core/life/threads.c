/* life: lists the threads of another process with facts from the kernel, and their stack frames if
 * the libdw plug-in is present. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "moonreel/life.h"
#include "base/plugin.h"
#include "moonreel/stack.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the first word of a thread's file in /proc; "" if it has none. */
static void read_fact(int64_t pid, int64_t tid, const char *name, char *out, size_t cap)
{
    char path[96], *text;
    size_t n;
    out[0] = 0;
    snprintf(path, sizeof path, "/proc/%lld/task/%lld/%s", (long long)pid, (long long)tid, name);
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return;
    }
    snprintf(out, cap, "%.*s", (int)strcspn(text, "\n"), text);
    mr_free(text);
}

static void describe(int64_t pid, int64_t tid, mr_life_thread *t)
{
    char line[512];
    *t = (mr_life_thread){.tid = tid};
    read_fact(pid, tid, "comm", t->name, sizeof t->name);
    read_fact(pid, tid, "wchan", t->waits, sizeof t->waits);
    read_fact(pid, tid, "stat", line, sizeof line);
    const char *end = strrchr(line, ')');
    t->state = end && end[1] == ' ' ? end[2] : 0;
    // the kernel writes "0" if the thread does not wait
    if (strcmp(t->waits, "0") == 0)
        t->waits[0] = 0;
}

int mr_life_threads(int64_t pid, mr_life_thread *out, int most)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%lld/task", (long long)pid);
    DIR *all = opendir(path);
    for (const struct dirent *d; all && n < most && (d = readdir(all));)
        if (strtoll(d->d_name, NULL, 10) > 0)
            describe(pid, strtoll(d->d_name, NULL, 10), &out[n++]);
    if (all)
        closedir(all);
    return n;
}

mr_status mr_life_frames_of(int64_t pid, mr_life_sink *sink, void *user)
{
    const void *table;
    MR_TRY(mr_plugin_open("stack", MR_STACK_VERSION, &table));
    return ((const mr_stack *)table)->read(pid, sink, user);
}
