/* base: the identifier of the running build. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/build_id.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

static const char SELF[] = "/proc/self/exe";
enum { SEGMENTS = 64 }; // more than linkers create

/* Hashes one loaded segment without its first `skipped` bytes. */
static mr_status hash_segment(int fd, const ElfW(Phdr) * segment, uint64_t skipped, mr_hash128 *out)
{
    if (segment->p_filesz < skipped)
        return mr_fail(MR_E_FORMAT, "%s: a segment has %llu bytes, expected at least %llu of heads",
                       SELF, (unsigned long long)segment->p_filesz, (unsigned long long)skipped);
    const size_t n = (size_t)(segment->p_filesz - skipped);
    char *bytes = mr_alloc(n + 1);
    if (!bytes)
        return mr_fail_memory(n + 1);
    mr_status st = mr_file_read_at(fd, bytes, n, (int64_t)(segment->p_offset + skipped), SELF);
    if (st == MR_OK)
        *out = mr_hash128_of(bytes, n);
    mr_free(bytes);
    return st;
}

static mr_status hash_program(int fd, mr_hash128 *out)
{
    ElfW(Ehdr) head;
    ElfW(Phdr) table[SEGMENTS];
    mr_hash128 hashes[SEGMENTS] = {{0, 0}};
    int n = 0;
    MR_TRY(mr_file_read_at(fd, &head, sizeof head, 0, SELF));
    if (head.e_phnum > SEGMENTS || head.e_phentsize != sizeof table[0])
        return mr_fail(MR_E_FORMAT, "%s: %d segments of %d bytes each", SELF, head.e_phnum,
                       head.e_phentsize);
    MR_TRY(mr_file_read_at(fd, table, head.e_phnum * sizeof table[0], (int64_t)head.e_phoff, SELF));
    // the ELF header and the table of segments behind it do not count: the header contains the
    // position of the section table, which strip moves, and strip rounds sizes in the table
    const uint64_t heads = head.e_phoff + head.e_phnum * sizeof table[0];
    for (int i = 0; i < head.e_phnum; i++)
        if (table[i].p_type == PT_LOAD)
            MR_TRY(hash_segment(fd, &table[i], table[i].p_offset ? 0 : heads, &hashes[n++]));
    *out = mr_hash128_of(hashes, (size_t)n * sizeof hashes[0]);
    return MR_OK;
}

mr_status mr_build_id(mr_hash128 *out)
{
    int fd = open(SELF, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mr_fail(MR_E_IO, "%s: cannot open: %s", SELF, strerror(errno));
    mr_status st = hash_program(fd, out);
    close(fd);
    return st;
}
