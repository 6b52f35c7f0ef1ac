/* index: chooses where to map an index. A map over a network hangs or crashes the program when the
 * server fails, so a local copy is mapped instead. Ref: dataplane 2.3. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

// Copies an index to memory of this process.
static mr_status in_memory(const char *dir, const char *file, uint64_t bytes, const char *network,
                           int *copy)
{
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if ((double)bytes > memory * 0.05)
        return mr_fail(
            MR_E_DATA,
            "%s: %.1f GB on a network file system (%s), where an open index may hang; %s; too "
            "large to hold in memory (5%% of it are %.1f GB); try: MOONREEL_COPIES=DIR on a local "
            "disk, or MOONREEL_INDEX=direct",
            file, (double)bytes / 1e9, network, mr_error_last()->text, memory * 0.05 / 1e9);
    if ((*copy = memfd_create("moonreel-index", MFD_CLOEXEC)) < 0)
        return mr_fail(MR_E_IO, "%s: no room for a copy in memory: %s", file, strerror(errno));
    mr_status st = index_sum_check(dir, true, *copy, "a copy in memory");
    if (st != MR_OK) {
        close(*copy);
        *copy = -1;
    }
    return st;
}

mr_status index_place(const char *dir, const char *file, bool verify, index_spot *out)
{
    const char *wish = getenv("MOONREEL_INDEX"), *network = index_network(file);
    struct stat about;
    *out = (index_spot){.copy = -1};
    if (network && wish && strcmp(wish, "direct") == 0) {
        mr_log(MR_LOG_WARN,
               "%s: mapped on a network file system (%s), because MOONREEL_INDEX=direct: it may "
               "hang, or end the program when the server does",
               file, network);
        out->ahead = true;
    } else if (network && stat(file, &about) == 0) {
        if (verify)
            MR_TRY(index_sum_check(dir, true, -1, NULL));
        mr_status st = index_local_copy(dir, &out->copy);
        return st == MR_E_UNSUPPORTED
                   ? in_memory(dir, file, (uint64_t)about.st_size, network, &out->copy)
                   : st;
    }
    return index_sum_check(dir, verify, -1, NULL);
}
