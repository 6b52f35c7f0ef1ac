/* ckpt: the lock of a run directory: one writer, known by host, boot, process and start time, with
 * a fencing number that grows with each launch (reference: reliability 3.4). Licence: Apache-2.0
 *
 * The file <run>/lock is JSON padded with spaces to one fixed size, so that one positional write
 * replaces it whole. flock on it guards only the moment of reading and writing: a forked child that
 * outlives the trainer must not keep the run locked. */
#define _DEFAULT_SOURCE
#include "moonreel/run.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { FILE_BYTES = 512 };
static const double guard_wait_s = 5;

struct mr_run_lock {
    mr_run_owner me;
    char *dir;
    _Atomic int refs;
};

/* ---- facts about processes ---- */

static void read_word(const char *path, char *out, size_t cap)
{
    char *text;
    size_t n;
    out[0] = 0;
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return;
    }
    snprintf(out, cap, "%.*s", (int)strcspn(text, " \n\r\t\"\\"), text);
    mr_free(text);
}

/* Start time of a process in clock ticks since boot; 0 when there is none or it is a zombie. */
static int64_t process_start(int64_t pid)
{
    char path[64], *text;
    size_t n;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    if (mr_file_read_all(path, &text, &n) != MR_OK) {
        mr_error_clear();
        return 0;
    }
    // the name in parentheses may hold anything; fields count from its end
    char *p = strrchr(text, ')');
    int64_t start = 0;
    if (p && p[1] == ' ' && p[2] != 'Z' && p[2] != 'X') {
        int field = 2;
        for (p++; *p && field < 22; p++)
            if (*p == ' ' && ++field == 22)
                start = strtoll(p + 1, NULL, 10);
    }
    mr_free(text);
    return start;
}

static void describe_self(mr_run_owner *o)
{
    *o = (mr_run_owner){.owned = true, .pid = getpid()};
    if (gethostname(o->host, sizeof o->host - 1))
        snprintf(o->host, sizeof o->host, "unknown");
    o->host[strcspn(o->host, "\"\\ \n")] = 0;
    read_word("/etc/machine-id", o->machine, sizeof o->machine);
    read_word("/proc/sys/kernel/random/boot_id", o->boot, sizeof o->boot);
    ssize_t n = readlink("/proc/self/ns/pid", o->pidns, sizeof o->pidns - 1);
    o->pidns[n > 0 ? n : 0] = 0;
    o->start = process_start(o->pid);
}

/* Death is proven on the same boot and process-id namespace by the missing process, and on the same
 * machine by an older boot. Anything else proves nothing. */
static bool provably_dead(const mr_run_owner *o, const mr_run_owner *me)
{
    if (me->boot[0] && strcmp(o->boot, me->boot) == 0)
        return me->start && strcmp(o->pidns, me->pidns) == 0 && process_start(o->pid) != o->start;
    return me->boot[0] && o->boot[0] && me->machine[0] && strcmp(o->machine, me->machine) == 0 &&
           strcmp(o->host, me->host) == 0;
}

/* ---- the file ---- */

static void copy_field(json_t *from, const char *key, char *out, size_t cap)
{
    const char *s = json_string_value(json_object_get(from, key));
    snprintf(out, cap, "%s", s ? s : "");
}

static mr_status read_record(int fd, const char *path, mr_run_owner *o)
{
    char text[FILE_BYTES + 1];
    ssize_t n;
    *o = (mr_run_owner){0};
    do
        n = mr_io_table()->pread(fd, text, FILE_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return mr_fail(MR_E_IO, "%s: cannot read: %s", path, strerror(errno));
    if (n == 0)
        return MR_OK;
    json_error_t err;
    json_t *v = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &err);
    json_t *fence = json_object_get(v, "fence"), *owner = json_object_get(v, "owner");
    const char *run = json_string_value(json_object_get(v, "run"));
    if (!v || !run || !*run || strlen(run) >= sizeof o->run || !json_is_integer(fence) ||
        json_integer_value(fence) < 1) {
        json_decref(v);
        return mr_fail(MR_E_LOCK,
                       "%s: the lock file is damaged; try: make sure that no other trainer uses "
                       "this run, then "
                       "remove the file",
                       path);
    }
    snprintf(o->run, sizeof o->run, "%s", run);
    o->fence = json_integer_value(fence);
    if (json_is_object(owner)) {
        o->owned = true;
        copy_field(owner, "host", o->host, sizeof o->host);
        copy_field(owner, "machine", o->machine, sizeof o->machine);
        copy_field(owner, "boot", o->boot, sizeof o->boot);
        copy_field(owner, "pidns", o->pidns, sizeof o->pidns);
        o->pid = json_integer_value(json_object_get(owner, "pid"));
        o->start = json_integer_value(json_object_get(owner, "start"));
    }
    json_decref(v);
    return MR_OK;
}

static mr_status write_record(int fd, const char *path, const mr_run_owner *o)
{
    char text[FILE_BYTES + 1], owner[400] = "null";
    if (o->owned)
        snprintf(owner, sizeof owner,
                 "{\"host\": \"%s\", \"machine\": \"%s\", \"boot\": \"%s\", \"pidns\": \"%s\", "
                 "\"pid\": %lld, \"start\": %lld}",
                 o->host, o->machine, o->boot, o->pidns, (long long)o->pid, (long long)o->start);
    int n = snprintf(text, sizeof text, "{\"run\": \"%s\", \"fence\": %lld, \"owner\": %s}", o->run,
                     (long long)o->fence, owner);
    memset(text + n, ' ', (size_t)(FILE_BYTES - n));
    text[FILE_BYTES - 1] = '\n';
    const mr_io *io = mr_io_table();
    for (int done = 0; done < FILE_BYTES;) {
        ssize_t k = io->pwrite(fd, text + done, (size_t)(FILE_BYTES - done), done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return mr_fail(MR_E_IO, "%s: cannot write: %s", path, strerror(errno));
        done += (int)k;
    }
    if (io->fsync(fd))
        return mr_fail(MR_E_IO, "%s: cannot sync: %s", path, strerror(errno));
    return MR_OK;
}

/* Open the lock file and take the guard. -1 with *st set when that fails; ENOENT without `create`
 * gives -1 and MR_OK. */
static int open_guarded(const char *path, bool create, mr_status *st)
{
    const mr_io *io = mr_io_table();
    int fd;
    *st = MR_OK;
    do
        fd = io->open(path, O_RDWR | (create ? O_CREAT : 0), 0644);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        if (errno != ENOENT || create)
            *st = mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
        return -1;
    }
    double limit = mr_now_s() + guard_wait_s;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || mr_now_s() > limit) {
            *st = mr_fail(MR_E_LOCK, "%s: cannot guard the lock file: %s", path, strerror(errno));
            io->close(fd);
            return -1;
        }
        mr_clock_table()->sleep_ns(10000000);
    }
    return fd;
}

static char *lock_path(const char *dir)
{
    size_t cap = strlen(dir) + 8;
    char *path = mr_alloc(cap);
    if (path)
        snprintf(path, cap, "%s/lock", dir);
    return path;
}

/* ---- taking ---- */

/* Without a lock file, checkpoints that are there tell the run id and the fencing numbers in
 * use. */
static mr_status learn_from_checkpoints(const char *dir, mr_run_owner *o)
{
    char path[4096], **names;
    int n;
    snprintf(path, sizeof path, "%s/ckpt", dir);
    if (!mr_path_exists(path))
        return MR_OK;
    MR_TRY(mr_dir_list(path, &names, &n));
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/ckpt/%s/MANIFEST.json", dir, names[i]);
        json_t *v = strncmp(names[i], "step-", 5) == 0 ? json_load_file(path, 0, NULL) : NULL;
        int64_t fence = json_integer_value(json_object_get(v, "fence"));
        if (fence > o->fence && fence < INT64_MAX / 2) {
            o->fence = fence;
            copy_field(v, "run", o->run, sizeof o->run);
        }
        json_decref(v);
    }
    mr_dir_list_free(names, n);
    return MR_OK;
}

static mr_status new_run_id(char run[40])
{
    uint64_t words[2] = {0};
    int fd = mr_io_table()->open("/dev/urandom", O_RDONLY, 0);
    if (fd < 0)
        return mr_fail(MR_E_IO, "/dev/urandom: cannot open: %s", strerror(errno));
    mr_status st = mr_file_read_at(fd, words, sizeof words, 0, "/dev/urandom");
    mr_io_table()->close(fd);
    snprintf(run, 40, "%016llx", (unsigned long long)mr_mix(words, 2));
    return st;
}

mr_status mr_run_lock_take(const char *run_dir, mr_run_lock **out)
{
    *out = NULL;
    if (strlen(run_dir) > MR_RUN_DIR_MAX)
        return mr_fail(MR_E_USAGE, "%.80s...: path is longer than %d bytes", run_dir,
                       MR_RUN_DIR_MAX);
    mr_run_lock *lock;
    if (!MR_NEW(lock))
        return mr_fail_memory(sizeof *lock);
    lock->refs = 1;
    mr_status st = MR_OK;
    int fd = -1;
    char *path = lock_path(run_dir);
    lock->dir = mr_strdup(run_dir);
    if (!path || !lock->dir)
        MR_TRY_GOTO(mr_fail_memory(strlen(run_dir)));
    fd = open_guarded(path, true, &st);
    if (fd < 0)
        goto out;

    mr_run_owner before, me;
    MR_TRY_GOTO(read_record(fd, path, &before));
    describe_self(&me);
    if (before.owned && !provably_dead(&before, &me)) {
        bool self =
            before.pid == me.pid && before.start == me.start && !strcmp(before.boot, me.boot);
        st = mr_fail(MR_E_LOCK,
                     "%s: this run is being written by %s %lld on host %s (launch %lld); try: stop "
                     "that one first%s%s",
                     run_dir, self ? "this very process," : "process", (long long)before.pid,
                     before.host, (long long)before.fence,
                     strcmp(before.boot, me.boot) ? ", or, if that host is gone for good, remove "
                                                  : "",
                     strcmp(before.boot, me.boot) ? path : "");
        goto out;
    }
    if (!before.fence)
        MR_TRY_GOTO(learn_from_checkpoints(run_dir, &before));
    if (before.run[0])
        snprintf(me.run, sizeof me.run, "%s", before.run);
    else
        MR_TRY_GOTO(new_run_id(me.run));
    me.fence = before.fence + 1;
    MR_TRY_GOTO(write_record(fd, path, &me));
    MR_TRY_GOTO(mr_dir_sync(run_dir));
    lock->me = me;
    *out = lock;
out:
    if (fd >= 0)
        mr_io_table()->close(fd);
    mr_free(path);
    if (st != MR_OK) {
        mr_free(lock->dir);
        mr_free(lock);
    }
    return st;
}

/* Read the record in force and compare; the file stays open in *fd when it is still ours. */
static mr_status still_ours(const mr_run_lock *lock, const char *path, int *fd)
{
    mr_status st;
    mr_run_owner now;
    *fd = open_guarded(path, false, &st);
    if (*fd < 0)
        return st != MR_OK ? st
                           : mr_fail(MR_E_LOCK,
                                     "%s: the lock file is gone; this launch stops writing", path);
    st = read_record(*fd, path, &now);
    if (st == MR_OK &&
        (now.fence != lock->me.fence || strcmp(now.run, lock->me.run) || now.pid != lock->me.pid))
        st = mr_fail(MR_E_LOCK,
                     "%s: launch %lld (process %lld on host %s) has taken this run over; launch "
                     "%lld stops writing",
                     lock->dir, (long long)now.fence, (long long)now.pid, now.host,
                     (long long)lock->me.fence);
    if (st == MR_OK)
        return MR_OK;
    mr_io_table()->close(*fd);
    *fd = -1;
    return st;
}

mr_status mr_run_lock_check(const mr_run_lock *lock)
{
    char *path = lock_path(lock->dir);
    if (!path)
        return mr_fail_memory(strlen(lock->dir));
    int fd;
    mr_status st = still_ours(lock, path, &fd);
    if (fd >= 0)
        mr_io_table()->close(fd);
    mr_free(path);
    return st;
}

mr_run_lock *mr_run_lock_ref(mr_run_lock *lock)
{
    lock->refs++;
    return lock;
}

void mr_run_lock_release(mr_run_lock *lock)
{
    if (!lock || --lock->refs > 0)
        return;
    char *path = lock_path(lock->dir);
    int fd = -1;
    // a forked child that exits must not give away its parent's lock
    if (path && lock->me.pid == getpid() && still_ours(lock, path, &fd) == MR_OK) {
        mr_run_owner left = {.fence = lock->me.fence};
        snprintf(left.run, sizeof left.run, "%s", lock->me.run);
        write_record(fd, path, &left);
        mr_io_table()->close(fd);
    }
    mr_free(path);
    mr_free(lock->dir);
    mr_free(lock);
}

const char *mr_run_lock_id(const mr_run_lock *lock)
{
    return lock->me.run;
}
int64_t mr_run_lock_fence(const mr_run_lock *lock)
{
    return lock->me.fence;
}
const char *mr_run_lock_dir(const mr_run_lock *lock)
{
    return lock->dir;
}

mr_status mr_run_lock_peek(const char *run_dir, mr_run_owner *out)
{
    mr_run_owner me;
    *out = (mr_run_owner){0};
    char *path = lock_path(run_dir);
    if (!path)
        return mr_fail_memory(strlen(run_dir));
    int fd = mr_io_table()->open(path, O_RDONLY, 0);
    mr_status st = MR_OK;
    if (fd >= 0) {
        st = read_record(fd, path, out);
        mr_io_table()->close(fd);
    } else if (errno != ENOENT) {
        st = mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    }
    mr_free(path);
    if (st == MR_OK && out->owned) {
        describe_self(&me);
        out->dead = provably_dead(out, &me);
    }
    return st;
}
