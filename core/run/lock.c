/* run: the lock of a run directory, which allows one writer. It records the writer's host, boot,
 * process and start time, and a fencing number that grows with each launch (reference: reliability
 * 3.4). Licence: Apache-2.0
 *
 * The file <run>/lock contains JSON, padded with spaces to a fixed size, so that one positional
 * write replaces it. Two bytes far behind its end carry locks of open file descriptions. The guard
 * is locked while a process reads and writes the record. The owner holds the other lock as long as
 * it lives. If that lock is free and the boot is the same, the owner is dead, in whatever process
 * namespace it ran. If the lock is taken, the owner can still be dead: a child that it forked may
 * live longer. */
#define _GNU_SOURCE
#include "moonreel/run.h"
#include "base/json_fields.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { FILE_BYTES = 512, GUARD_BYTE = 1 << 20, HOLD_BYTE };
static const double guard_wait_s = 5;

struct mr_run_lock {
    mr_run_owner me;
    char *dir;
    int fd; // open as long as we own the run: it locks HOLD_BYTE
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
    // the /proc of another process namespace numbers processes differently: ignore it
    mr_process self;
    if (mr_process_read(0, &self) && self.pid == o->pid)
        o->start = self.start;
}

static bool same_boot(const mr_run_owner *o, const mr_run_owner *me)
{
    return me->boot[0] && strcmp(o->boot, me->boot) == 0;
}

static bool same_numbers(const mr_run_owner *o, const mr_run_owner *me)
{
    return same_boot(o, me) && me->pidns[0] && strcmp(o->pidns, me->pidns) == 0;
}

/* True if the owner, a process of our process namespace, has ended: its id does not exist, it is a
 * zombie, or its id now belongs to a process with another start time. A failure to read /proc
 * proves nothing. */
static bool process_gone(const mr_run_owner *o, const mr_run_owner *me)
{
    mr_process now;
    if (!me->start || !mr_process_read(o->pid, &now))
        return kill((pid_t)o->pid, 0) && errno == ESRCH;
    return now.state == 'Z' || now.state == 'X' || (o->start && now.start != o->start);
}

/* True if no process locks `byte` of an open lock file. False also if the file system does not
 * support such locks. */
static bool is_free(int fd, int byte)
{
    struct flock f = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &f) == 0 && f.l_type == F_UNLCK;
}

static bool set_lock(int fd, int byte, short type)
{
    struct flock f = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &f) == 0;
}

/* Lock the guard. A kernel without locks of open file descriptions has flock. */
static bool guard(int fd)
{
    return set_lock(fd, GUARD_BYTE, F_WRLCK) || (errno == EINVAL && !flock(fd, LOCK_EX | LOCK_NB));
}

static void unguard(int fd)
{
    if (!set_lock(fd, GUARD_BYTE, F_UNLCK))
        flock(fd, LOCK_UN);
}

/* True if the recorded owner is certainly dead. Either it had this boot, and its byte is free or
 * its process is gone; or it had an older boot of this machine. Anything else proves nothing. `fd`
 * is the lock file. */
static bool provably_dead(const mr_run_owner *o, const mr_run_owner *me, int fd)
{
    if (same_boot(o, me))
        return (o->holds && is_free(fd, HOLD_BYTE)) || (same_numbers(o, me) && process_gone(o, me));
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
        o->holds = json_is_true(json_object_get(owner, "holds"));
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
                 "\"pid\": %lld, \"start\": %lld, \"holds\": %s}",
                 o->host, o->machine, o->boot, o->pidns, (long long)o->pid, (long long)o->start,
                 o->holds ? "true" : "false");
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

/* Open the lock file and lock the guard. Returns -1 with *st set if that fails, and -1 with MR_OK
 * if the file does not exist and `create` is false. */
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
    while (!guard(fd)) {
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || mr_now_s() > limit) {
            *st = mr_fail(MR_E_LOCK,
                          "%s: cannot lock the file: %s; try: put the run directory on a file "
                          "system that supports file locks",
                          path, strerror(errno));
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

/* Reads run and fencing number from a manifest. A missing one stays empty. */
static mr_status take_claim(void *user, const char *key, mr_json_part value)
{
    mr_run_owner *claim = user;
    bool fence = strcmp(key, "fence") == 0;
    json_t *v;
    if (!fence && strcmp(key, "run"))
        return MR_OK;
    MR_TRY(mr_json_parse(value, &v));
    const char *run = json_string_value(v);
    if (fence)
        claim->fence = json_integer_value(v);
    else
        snprintf(claim->run, sizeof claim->run, "%s", run ? run : "");
    json_decref(v);
    return MR_OK;
}

/* Read run and fencing number of a manifest; empty if the file is not a valid manifest. Errors:
 * MR_E_MEMORY */
static mr_status read_claim(const char *path, mr_run_owner *claim)
{
    enum { MANIFEST_MAX = 32 << 20, DEPTH = 2048 };
    char *text = NULL;
    size_t n;
    *claim = (mr_run_owner){0};
    mr_status st = mr_file_read_small(path, MANIFEST_MAX, &text, &n);
    if (st == MR_OK)
        st = mr_json_fields((mr_json_part){path, text, text, text + n, DEPTH}, take_claim, claim);
    mr_free(text);
    if (st == MR_OK || st == MR_E_MEMORY)
        return st;
    mr_error_clear();
    *claim = (mr_run_owner){0};
    return MR_OK;
}

/* If the lock file is lost, the checkpoints of the run contain its id and the fencing numbers used
 * so far. */
static mr_status learn_from_checkpoints(const char *dir, mr_run_owner *o)
{
    char path[4096], **names;
    int n;
    snprintf(path, sizeof path, "%s/ckpt", dir);
    if (!mr_path_exists(path))
        return MR_OK;
    MR_TRY(mr_dir_list(path, &names, &n));
    mr_status st = MR_OK;
    for (int i = 0; i < n && st == MR_OK; i++) {
        if (strncmp(names[i], "step-", 5))
            continue;
        mr_run_owner claim;
        snprintf(path, sizeof path, "%s/ckpt/%s/MANIFEST.json", dir, names[i]);
        st = read_claim(path, &claim);
        if (st == MR_OK && claim.fence > o->fence && claim.fence < INT64_MAX / 2)
            *o = claim;
    }
    mr_dir_list_free(names, n);
    return st;
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

/* The error: who owns the run, and what to try. */
static mr_status refuse(const char *run_dir, const char *path, const mr_run_owner *o,
                        const mr_run_owner *me, int fd)
{
    bool self = same_numbers(o, me) && o->pid == me->pid;
    char what[64], remedy[4200];
    snprintf(what, sizeof what, self ? "this very process, %lld" : "process %lld",
             (long long)o->pid);
    if (self)
        snprintf(remedy, sizeof remedy,
                 "close the run or the trainer that this program opened before");
    else if (same_numbers(o, me))
        snprintf(remedy, sizeof remedy, "stop that one first: kill %lld", (long long)o->pid);
    else if (same_boot(o, me) && o->holds && !is_free(fd, HOLD_BYTE))
        snprintf(remedy, sizeof remedy,
                 "stop that one first, in its container (another process namespace of this host)");
    else
        snprintf(remedy, sizeof remedy,
                 "stop that one first, or, if %s is gone for good, remove %s",
                 same_boot(o, me) ? "its container" : "that host", path);
    return mr_fail(MR_E_LOCK,
                   "%s: this run is being written by %s on host %s (launch %lld); try: %s", run_dir,
                   what, o->host, (long long)o->fence, remedy);
}

mr_status mr_run_lock_take(const char *run_dir, mr_run_lock **out)
{
    *out = NULL;
    if (strlen(run_dir) > MR_RUN_DIR_MAX)
        return mr_fail(
            MR_E_USAGE,
            "%.80s...: the path of a run directory is longer than %d bytes; try: a shorter path",
            run_dir, MR_RUN_DIR_MAX);
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
    if (before.owned && !provably_dead(&before, &me, fd))
        MR_TRY_GOTO(refuse(run_dir, path, &before, &me, fd));
    if (!before.fence)
        MR_TRY_GOTO(learn_from_checkpoints(run_dir, &before));
    if (before.run[0])
        snprintf(me.run, sizeof me.run, "%s", before.run);
    else
        MR_TRY_GOTO(new_run_id(me.run));
    me.fence = before.fence + 1;
    // if a child of the dead owner still locks the byte, only our process proves that we live
    me.holds = set_lock(fd, HOLD_BYTE, F_WRLCK);
    MR_TRY_GOTO(write_record(fd, path, &me));
    MR_TRY_GOTO(mr_dir_sync(run_dir));
    unguard(fd);
    lock->me = me;
    lock->fd = fd;
    *out = lock;
out:
    if (fd >= 0 && st != MR_OK)
        mr_io_table()->close(fd);
    mr_free(path);
    if (st != MR_OK) {
        mr_free(lock->dir);
        mr_free(lock);
    }
    return st;
}

/* Read the current record and compare it with ours. If it is still ours, *fd is the open file. */
static mr_status still_ours(const mr_run_lock *lock, const char *path, int *fd)
{
    mr_status st;
    mr_run_owner now;
    *fd = open_guarded(path, false, &st);
    if (*fd < 0)
        return st != MR_OK ? st
                           : mr_fail(MR_E_LOCK,
                                     "%s: the lock file is gone; this launch stops writing; try: "
                                     "resume the run",
                                     path);
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
    // a forked child that exits must not release its parent's lock
    if (path && lock->me.pid == getpid() && still_ours(lock, path, &fd) == MR_OK) {
        mr_run_owner left = {.fence = lock->me.fence};
        snprintf(left.run, sizeof left.run, "%s", lock->me.run);
        write_record(fd, path, &left);
        mr_io_table()->close(fd);
    }
    mr_io_table()->close(lock->fd);
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
    if (fd < 0 && errno != ENOENT)
        st = mr_fail(MR_E_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fd >= 0)
        st = read_record(fd, path, out);
    if (fd >= 0 && st == MR_OK && out->owned) {
        describe_self(&me);
        out->dead = provably_dead(out, &me, fd);
    }
    if (fd >= 0)
        mr_io_table()->close(fd);
    mr_free(path);
    return st;
}
