/* base: which build of the program runs. Licence: Apache-2.0 */
#define _GNU_SOURCE
#include "base/build_id.h"

#include <elf.h>
#include <link.h>
#include <string.h>

typedef struct note {
    const unsigned char *id; // NULL: none found
    size_t bytes;
} note;

static uint64_t round_up(uint64_t n, uint64_t align)
{
    return (n + align - 1) / align * align;
}

// the linker's note among the notes of one segment
static note find_in(const unsigned char *p, size_t left, size_t align)
{
    while (left >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) head;
        memcpy(&head, p, sizeof head);
        // a name, then a text, each up to a multiple of `align`; damaged lengths end the search
        const uint64_t at = round_up(sizeof head + (uint64_t)head.n_namesz, align);
        const uint64_t end = round_up(at + head.n_descsz, align);
        if (at + head.n_descsz > left)
            break;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == sizeof ELF_NOTE_GNU &&
            head.n_descsz > 0 && memcmp(p + sizeof head, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0)
            return (note){p + at, head.n_descsz};
        if (end >= left)
            break;
        p += end, left -= (size_t)end;
    }
    return (note){NULL, 0};
}

// of the first object, which is the program; the libraries behind it are not asked
static int look(struct dl_phdr_info *object, size_t size, void *out)
{
    (void)size;
    note *found = out;
    for (int i = 0; i < object->dlpi_phnum && !found->id; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            *found = find_in((const unsigned char *)(object->dlpi_addr + segment->p_vaddr),
                             segment->p_memsz, segment->p_align == 8 ? 8 : 4);
    }
    return 1;
}

mr_status mr_build_id(mr_hash128 *out)
{
    note found = {NULL, 0};
    dl_iterate_phdr(look, &found);
    if (found.id)
        return *out = mr_hash128_of(found.id, found.bytes), MR_OK;
    char *bytes;
    size_t n;
    MR_TRY(mr_file_read_all("/proc/self/exe", &bytes, &n));
    *out = mr_hash128_of(bytes, n);
    mr_free(bytes);
    return MR_OK;
}
