/* base: temporary names for files that are being written, and removal of the files that killed
 * writers left. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BETWEEN ".tmp-"

// the last folder found without leftovers; it is not listed again for each file
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char clean[4096];

// a lock of a whole file of any length
static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

void mr_temporary_hold(int fd)
{
    struct flock f = whole_file();
    fcntl(fd, F_OFD_SETLK, &f);
}

// Is the file unlocked? A pid alone does not tell: other hosts and containers have other processes.
// Without open file description locks the answer is unknown.
static bool is_free(int dir, const char *name)
{
    struct flock f = whole_file();
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool is = fd >= 0 && fcntl(fd, F_OFD_GETLK, &f) == 0 && f.l_type == F_UNLCK;
    if (fd >= 0)
        close(fd);
    return is;
}

// the PID in NAME.tmp-PID, or 0
static long writer_of(const char *name, size_t *stem)
{
    char *end;
    const char *at = NULL;
    for (const char *p = name; (p = strstr(p, BETWEEN)); p++)
        at = p;
    if (!at || at[strlen(BETWEEN)] < '1' || at[strlen(BETWEEN)] > '9')
        return 0;
    *stem = (size_t)(at - name);
    long pid = strtol(at + strlen(BETWEEN), &end, 10);
    return *end ? 0 : pid;
}

// removes the leftovers of `name` in a folder; false: the folder has leftovers of other names
static bool sweep(DIR *dir, const char *folder, const char *name)
{
    char path[4400];
    bool others = false;
    for (struct dirent *one; (one = readdir(dir));) {
        size_t stem;
        long pid = writer_of(one->d_name, &stem);
        if (!pid || pid == (long)getpid())
            continue;
        if (strlen(name) != stem || strncmp(one->d_name, name, stem)) {
            others = true;
        } else if (mr_process_gone(pid) && is_free(dirfd(dir), one->d_name)) {
            snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
            mr_io_table()->unlink(path);
        }
    }
    return !others;
}

mr_status mr_temporary_path(const char *path, char *out, size_t size)
{
    char folder[4096];
    if ((size_t)snprintf(out, size, "%s" BETWEEN "%ld", path, (long)getpid()) >= size ||
        strlen(path) >= sizeof folder)
        return mr_fail(MR_E_IO, "%s: path is too long", path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(name - path) : 1, slash ? path : ".");
    pthread_mutex_lock(&lock);
    DIR *dir = strcmp(folder, clean) ? opendir(folder) : NULL;
    if (dir && sweep(dir, folder, name))
        snprintf(clean, sizeof clean, "%s", folder);
    if (dir)
        closedir(dir);
    pthread_mutex_unlock(&lock);
    return MR_OK;
}
