/* Promise: an acknowledged checkpoint survives a power cut at any moment (reference: reliability 8,
 * power cut). A save with retention is logged call by call. For each prefix of the log legal disks
 * are built: any subset of unsynced writes in pieces of 512 bytes, and any subset of unsynced
 * changes of names. The newest checkpoint is opened from each of them. */
#define _DEFAULT_SOURCE
#include "ckptcase.h"

#include <sys/stat.h>

enum { N = 50000, NODES = 400, OPS = 4000, ENTRIES = 64, SECTOR = 512 };

/* ---- the log ---- */

typedef enum op_kind {
    OP_OPEN,
    OP_WRITE,
    OP_SIZE,
    OP_SYNC,
    OP_CLOSE,
    OP_RENAME,
    OP_EXCHANGE,
    OP_UNLINK,
    OP_MKDIR
} op_kind;
typedef struct op {
    op_kind kind;
    int fd;
    bool trunc, create;
    int64_t at;
    size_t n;
    char *data, a[300], b[300];
} op;
static op ops[OPS];
static _Atomic int n_ops;
static int64_t at_of[1024];
static mr_io real;
static char dir[300], copy_dir[400];

static op *log_op(op_kind kind, int fd, const char *a, const char *b)
{
    if (n_ops == OPS)
        abort();
    op *o = &ops[n_ops++];
    *o = (op){.kind = kind, .fd = fd};
    snprintf(o->a, sizeof o->a, "%s", a ? a : "");
    snprintf(o->b, sizeof o->b, "%s", b ? b : "");
    return o;
}
static int l_open(const char *p, int flags, int mode)
{
    int fd = real.open(p, flags, mode);
    if (fd >= 0) {
        op *o = log_op(OP_OPEN, fd, p, NULL);
        o->trunc = flags & O_TRUNC, o->create = flags & O_CREAT;
        at_of[fd] = 0;
    }
    return fd;
}
static void log_write(int fd, const void *data, size_t n, int64_t at)
{
    op *o = log_op(OP_WRITE, fd, NULL, NULL);
    o->at = at, o->n = n, o->data = malloc(n);
    memcpy(o->data, data, n);
}
static ssize_t l_write(int fd, const void *data, size_t n)
{
    ssize_t done = real.write(fd, data, n);
    if (done > 0)
        log_write(fd, data, (size_t)done, at_of[fd]), at_of[fd] += done;
    return done;
}
static ssize_t l_pwrite(int fd, const void *data, size_t n, int64_t at)
{
    ssize_t done = real.pwrite(fd, data, n, at);
    if (done > 0)
        log_write(fd, data, (size_t)done, at);
    return done;
}
static int l_fallocate(int fd, int64_t n)
{
    log_op(OP_SIZE, fd, NULL, NULL)->at = n;
    return real.fallocate(fd, n);
}
static int l_fsync(int fd)
{
    log_op(OP_SYNC, fd, NULL, NULL);
    return 0;
}
static int l_close(int fd)
{
    log_op(OP_CLOSE, fd, NULL, NULL);
    return real.close(fd);
}
static int l_rename(const char *a, const char *b)
{
    int r = real.rename(a, b);
    if (!r)
        log_op(OP_RENAME, -1, a, b);
    return r;
}
static int l_exchange(const char *a, const char *b)
{
    int r = real.exchange(a, b);
    if (!r)
        log_op(OP_EXCHANGE, -1, a, b);
    return r;
}
static int l_unlink(const char *p)
{
    int r = real.unlink(p);
    if (!r)
        log_op(OP_UNLINK, -1, p, NULL);
    return r;
}
static int l_rmdir(const char *p)
{
    int r = real.rmdir(p);
    if (!r)
        log_op(OP_UNLINK, -1, p, NULL);
    return r;
}
static int l_mkdir(const char *p, int mode)
{
    int r = real.mkdir(p, mode);
    if (!r)
        log_op(OP_MKDIR, -1, p, NULL);
    return r;
}

/* ---- a disk: what is durable, and what is only in memory ---- */

typedef struct names {
    int n;
    char name[ENTRIES][64];
    int node[ENTRIES];
} names;
typedef struct change {
    char from[64], to[64];
    int node;
    bool swap;
} change; /* from "" = added, to "" = removed; swap: the two names change places */
typedef struct node {
    bool is_dir;
    char *now, *kept; /* file: bytes */
    size_t n_now, n_kept;
    names cur, dur; /* directory */
    change pending[ENTRIES];
    int n_pending;
} node;
static node nodes[NODES];
static int n_nodes, node_of[1024];

static int find(const names *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->name[i], name) == 0)
            return i;
    return -1;
}
static void set(names *l, const char *name, int id)
{
    int i = find(l, name);
    if (i < 0)
        i = l->n++;
    if (l->n > ENTRIES)
        abort();
    snprintf(l->name[i], sizeof l->name[i], "%s", name);
    l->node[i] = id;
}
static void drop(names *l, const char *name)
{
    int i = find(l, name);
    if (i < 0)
        return;
    l->n--;
    memmove(l->name[i], l->name[l->n], sizeof l->name[i]);
    l->node[i] = l->node[l->n];
}
static void apply(names *l, const change *c)
{
    // a rename whose source does not exist (its creation was lost) does nothing
    if (c->from[0] && find(l, c->from) < 0)
        return;
    if (c->swap) {
        int i = find(l, c->from), k = find(l, c->to);
        if (k >= 0)
            l->node[i] ^= l->node[k], l->node[k] ^= l->node[i], l->node[i] ^= l->node[k];
        return;
    }
    if (c->from[0])
        drop(l, c->from);
    if (c->to[0])
        set(l, c->to, c->node);
}

/* The directory node of a path below `dir` and its last name; -1 outside. */
static int locate(const char *path, char last[64])
{
    size_t n = strlen(dir);
    if (strncmp(path, dir, n) || (path[n] && path[n] != '/'))
        return -1;
    int at = 0;
    char rest[300], *part = rest;
    snprintf(rest, sizeof rest, "%s", path + n + (path[n] == '/'));
    for (char *slash; (slash = strchr(part, '/')); part = slash + 1) {
        *slash = 0;
        int i = find(&nodes[at].cur, part);
        if (i < 0)
            return -1;
        at = nodes[at].cur.node[i];
    }
    snprintf(last, 64, "%.63s", part);
    return at;
}
static int lookup(const char *path)
{
    char last[64];
    int at = locate(path, last);
    if (at < 0 || !last[0])
        return at;
    int i = find(&nodes[at].cur, last);
    return i < 0 ? -1 : nodes[at].cur.node[i];
}
static void alter(int at, const char *from, const char *to, int id, bool swap)
{
    change c = {.node = id, .swap = swap};
    snprintf(c.from, sizeof c.from, "%s", from);
    snprintf(c.to, sizeof c.to, "%s", to);
    apply(&nodes[at].cur, &c);
    if (nodes[at].n_pending == ENTRIES)
        abort();
    nodes[at].pending[nodes[at].n_pending++] = c;
}
static int new_node(bool is_dir)
{
    if (n_nodes == NODES)
        abort();
    nodes[n_nodes].is_dir = is_dir;
    return n_nodes++;
}
static void resize(node *f, size_t n)
{
    if (n <= f->n_now)
        return;
    f->now = realloc(f->now, n);
    memset(f->now + f->n_now, 0, n - f->n_now);
    f->n_now = n;
}
static void keep(node *f)
{
    if (f->is_dir) {
        f->dur = f->cur, f->n_pending = 0;
        return;
    }
    f->kept = realloc(f->kept, f->n_now + 1);
    if (f->n_now)
        memcpy(f->kept, f->now, f->n_now);
    f->n_kept = f->n_now;
}

/* The real disk's contents before the log starts are durable. */
static int load_tree(const char *path)
{
    struct stat s;
    stat(path, &s);
    int id = new_node(S_ISDIR(s.st_mode));
    if (nodes[id].is_dir) {
        char **list, child[600];
        int n;
        mr_dir_list(path, &list, &n);
        for (int i = 0; i < n; i++) {
            snprintf(child, sizeof child, "%.400s/%.100s", path, list[i]);
            set(&nodes[id].cur, list[i], load_tree(child));
        }
        mr_dir_list_free(list, n);
    } else {
        char *data;
        size_t n;
        mr_file_read_all(path, &data, &n);
        resize(&nodes[id], n);
        if (n)
            memcpy(nodes[id].now, data, n);
        mr_free(data);
    }
    keep(&nodes[id]);
    return id;
}

static void replay(const op *o)
{
    char last[64], to[64];
    int id, at;
    switch (o->kind) {
    case OP_OPEN:
        id = lookup(o->a);
        if (id < 0 && o->create && (at = locate(o->a, last)) >= 0)
            alter(at, "", last, id = new_node(false), false);
        else if (id >= 0 && o->trunc)
            nodes[id].n_now = 0;
        node_of[o->fd] = id;
        return;
    case OP_WRITE:
        if ((id = node_of[o->fd]) < 0)
            return;
        resize(&nodes[id], (size_t)o->at + o->n);
        memcpy(nodes[id].now + o->at, o->data, o->n);
        return;
    case OP_SIZE:
        if ((id = node_of[o->fd]) >= 0)
            resize(&nodes[id], (size_t)o->at);
        return;
    case OP_SYNC:
        if ((id = node_of[o->fd]) >= 0)
            keep(&nodes[id]);
        return;
    case OP_CLOSE: node_of[o->fd] = -1; return;
    case OP_RENAME:
    case OP_EXCHANGE:
        id = lookup(o->a), at = locate(o->a, last);
        if (locate(o->b, to) != at || id < 0)
            abort(); // all of ours stay in their directory
        alter(at, last, to, id, o->kind == OP_EXCHANGE);
        return;
    case OP_UNLINK:
        if ((at = locate(o->a, last)) >= 0)
            alter(at, last, "", -1, false);
        return;
    case OP_MKDIR:
        if ((at = locate(o->a, last)) >= 0)
            alter(at, "", last, new_node(true), false);
        return;
    }
}

/* ---- disks after the cut ---- */

static unsigned seed;
static unsigned draw(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 10) % n;
}

/* mode 0: only what was synced; 1: everything; 2: random subsets. */
static void put_node(int id, const char *path, int mode)
{
    node *f = &nodes[id];
    if (!f->is_dir) {
        size_t n = mode == 0 ? f->n_kept : mode == 1 || draw(2) ? f->n_now : f->n_kept;
        char *bytes = calloc(1, n + 1);
        for (size_t at = 0; at < n; at += SECTOR) {
            const char *from = mode == 0 ? f->kept : mode == 1 || draw(2) ? f->now : f->kept;
            size_t have = from == f->now ? f->n_now : f->n_kept,
                   want = MR_MIN(n - at, (size_t)SECTOR);
            if (at < have)
                memcpy(bytes + at, from + at, MR_MIN(want, have - at));
        }
        FILE *out = fopen(path, "wb");
        fwrite(bytes, 1, n, out);
        fclose(out);
        free(bytes);
        return;
    }
    names l = mode == 1 ? f->cur : f->dur;
    for (int i = 0; i < f->n_pending && mode == 2; i++)
        if (draw(2))
            apply(&l, &f->pending[i]);
    mkdir(path, 0755);
    for (int i = 0; i < l.n; i++) {
        char child[600];
        snprintf(child, sizeof child, "%.400s/%s", path, l.name[i]);
        put_node(l.node[i], child, mode);
    }
}

static bool exact(mr_ckpt *c)
{
    static float x[N];
    int64_t step = mr_ckpt_step(c);
    if (mr_ckpt_read(c, "w", x, 0, sizeof x))
        return false;
    for (int i = 0; i < N; i++)
        if (x[i] != case_value(step, 0, i))
            return false;
    return true;
}

static void judge(int ops_done, int mode, int64_t least)
{
    mr_ckpt *c = NULL;
    mr_dir_remove(copy_dir);
    put_node(0, copy_dir, mode);
    mr_status st = mr_ckpt_open_newest(copy_dir, NULL, NULL, NULL, &c);
    bool good = st == MR_OK && mr_ckpt_step(c) >= least && exact(c);
    if (!good)
        printf("after %d operations, mode %d: step %lld, expected at least %lld\n", ops_done, mode,
               c ? (long long)mr_ckpt_step(c) : -1, (long long)least);
    CHECK(good);
    mr_ckpt_close(c);
    // one that retention was about to remove is whole or invisible
    int64_t *steps;
    int n = 0;
    char path[600];
    c = NULL;
    CHECK_OK(mr_ckpt_steps(copy_dir, &steps, &n));
    good = n > 0 &&
           mr_ckpt_open(mr_ckpt_dir(copy_dir, steps[n - 1], path, sizeof path), &c) == MR_OK &&
           exact(c);
    if (!good)
        printf("after %d operations, mode %d: the oldest is not whole\n", ops_done, mode);
    CHECK(good);
    mr_free(steps);
    mr_ckpt_close(c);
}

static void save(mr_saver *saver, int64_t step)
{
    static float x[N];
    for (int i = 0; i < N; i++)
        x[i] = case_value(step, 0, i);
    mr_ckpt_item item = {.name = "w", .dtype = MR_ST_F32, .rank = 1, .shape = {N}, .data = x};
    bool taken;
    CHECK_OK(mr_saver_save(saver, step, &item, 1, CASE_META, true, &taken));
    CHECK_OK(mr_saver_wait(saver, 30));
}

/* Neither a log nor a disk. */
static void forget(void)
{
    for (int i = 0; i < n_ops; i++)
        free(ops[i].data);
    for (int i = 0; i < n_nodes; i++)
        free(nodes[i].now), free(nodes[i].kept);
    memset(nodes, 0, sizeof nodes);
    n_ops = n_nodes = 0;
}

/* Saves `step` with the log on, then cuts the power after each operation of it. A step that exists
 * already exists at each moment. */
static void cut_everywhere(mr_run_lock *lock, int64_t step, int random_disks)
{
    mr_saver *saver;
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock, .keep = 2}, &saver));
    forget();
    load_tree(dir);
    char final[400];
    snprintf(final, sizeof final, "%s/ckpt/step-%012lld", dir, (long long)step);
    for (int i = 0; i < 1024; i++)
        node_of[i] = -1;
    real = *mr_io_table();
    mr_io table = real;
    table.open = l_open, table.write = l_write, table.pwrite = l_pwrite,
    table.fallocate = l_fallocate, table.fsync = l_fsync;
    table.close = l_close, table.rename = l_rename, table.exchange = l_exchange;
    table.unlink = l_unlink, table.rmdir = l_rmdir, table.mkdir = l_mkdir;
    bool replaced = mr_path_exists(final);
    mr_io_replace(&table);
    save(saver, step);
    mr_saver_close(saver);
    mr_io_replace(NULL);
    printf("%d operations, seed %u\n", n_ops, seed);
    // the commit is reported after the sync that follows the rename to the final name, not before
    bool renamed = false;
    int64_t least = replaced ? step : step - 1;
    for (int i = 0; i < n_ops; i++) {
        replay(&ops[i]);
        renamed = renamed || (ops[i].kind == OP_RENAME && strcmp(ops[i].b, final) == 0);
        if (renamed && ops[i].kind == OP_SYNC)
            least = step;
        for (int mode = 0; mode < 2 + random_disks; mode++)
            judge(i + 1, MR_MIN(mode, 2), least);
    }
    CHECK_INT(least, step);
}

int main(void)
{
    mr_run_lock *lock;
    mr_saver *saver;
    seed = 4711;
    snprintf(dir, sizeof dir, "%.299s", case_dir("powercut"));
    snprintf(copy_dir, sizeof copy_dir, "%s-after", dir);
    CHECK_OK(mr_run_lock_take(dir, &lock));
    CHECK_OK(mr_saver_open(&(mr_saver_options){.lock = lock, .keep = 2}, &saver));
    save(saver, 1);
    save(saver, 2);
    mr_saver_close(saver);
    cut_everywhere(lock, 3, 10);
    cut_everywhere(lock, 3, 10);
    mr_run_lock_release(lock);
    forget();
    mr_dir_remove(dir);
    mr_dir_remove(copy_dir);
    return check_done();
}
