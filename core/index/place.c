/* index: where an index lies. Mapped over a network it hangs, or ends the program when the server
 * does; a small one is read into memory instead. Ref: dataplane 2.3. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/room.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char *network_of(const char *path)
{
    static const struct {
        unsigned type;
        const char *name;
    } known[] = {
        {0x6969, "NFS"},        {0xFF534D42, "CIFS"},   {0xFE534D42, "SMB"}, {0x517B, "SMB"},
        {0x0BD00BD0, "Lustre"}, {0x65735546, "FUSE"},   {0x01021997, "9p"},  {0x00C36400, "Ceph"},
        {0x47504653, "GPFS"},   {0x19830326, "BeeGFS"}, {0x5346414F, "AFS"}, {0x6B414653, "AFS"},
    };
    struct statfs s;
    if (statfs(path, &s))
        return NULL;
    for (size_t i = 0; i < MR_COUNT(known); i++)
        if ((unsigned)s.f_type == known[i].type)
            return known[i].name;
    return NULL;
}

const char *(*index_network)(const char *path) = network_of;

mr_status index_place(const char *file, int *copy)
{
    struct stat about;
    const char *network = index_network(file);
    *copy = -1;
    if (!network || stat(file, &about))
        return MR_OK;
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if ((double)about.st_size > memory * 0.05)
        return mr_fail(
            MR_E_DATA,
            "%s: %.1f GB on a network file system (%s), where an open index may hang, and "
            "too large to hold in memory (5%% of it are %.1f GB); try: copy the .mrx folder "
            "to a local disk",
            file, (double)about.st_size / 1e9, network, memory * 0.05 / 1e9);
    if ((*copy = memfd_create("moonreel-index", MFD_CLOEXEC)) < 0)
        return mr_fail(MR_E_IO, "%s: no room for a copy in memory: %s", file, strerror(errno));
    return MR_OK;
}
