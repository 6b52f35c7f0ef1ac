/* index: finds out whether a path is on a network file system. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "index/store.h"

#include <sys/vfs.h>

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
