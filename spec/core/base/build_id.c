/* base/build_id: a copy is the same build, stripped or not; another text of the linker is another
 * one, and without one the whole file speaks. The program runs changed copies of itself. */
#define _GNU_SOURCE
#include "base/build_id.h"
#include "check.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/build_id.XXXXXX", path[64];

static void own(char hex[33])
{
    mr_hash128 id = {0, 0};
    CHECK_OK(mr_build_id(&id));
    mr_hash128_hex(id, hex);
}

// what a copy of this program with these bytes says of itself
static void of_copy(const char *bytes, size_t n, char hex[33])
{
    char command[80];
    CHECK_OK(mr_file_replace(path, bytes, n));
    chmod(path, 0700);
    snprintf(command, sizeof command, "%s id", path);
    FILE *pipe = popen(command, "r");
    if (!CHECK(pipe && fgets(hex, 33, pipe)))
        hex[0] = 0;
    if (pipe)
        CHECK_INT(pclose(pipe), 0);
}

static void of_bytes(const char *bytes, size_t n, char hex[33])
{
    mr_hash128_hex(mr_hash128_of(bytes, n), hex);
}

// the words of the note: bytes of its name, of its text, its kind; then "GNU" and the text
static char *find_note(char *bytes, size_t n)
{
    for (size_t i = 0; i + 16 < n; i += 4) {
        uint32_t word[3];
        memcpy(word, bytes + i, sizeof word);
        if (word[0] == 4 && word[1] > 0 && word[1] <= 64 && word[2] == 3 &&
            memcmp(bytes + i + 12, "GNU", 4) == 0)
            return bytes + i;
    }
    return NULL;
}

// the segment that begins with the note: some linkers align all notes to 8 bytes
static void align_segment(char *bytes, const char *note, int align)
{
    ElfW(Ehdr) file;
    memcpy(&file, bytes, sizeof file);
    for (int i = 0; i < file.e_phnum; i++) {
        char *at = bytes + file.e_phoff + (size_t)i * sizeof(ElfW(Phdr));
        ElfW(Phdr) segment;
        memcpy(&segment, at, sizeof segment);
        if (segment.p_type != PT_NOTE || bytes + segment.p_offset != note)
            continue;
        segment.p_align = (ElfW(Xword))align;
        memcpy(at, &segment, sizeof segment);
    }
}

int main(int argc, char **argv)
{
    char *bytes, here[33], there[33], whole[33];
    size_t n;
    if (argc == 2 && strcmp(argv[1], "id") == 0) {
        own(here);
        printf("%s", here);
        return check_failed;
    }
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof path, "%s/copy", dir);
    CHECK_OK(mr_file_read_all("/proc/self/exe", &bytes, &n));
    own(here);
    of_copy(bytes, n, there);
    CHECK_STR(there, here);

    char *note = find_note(bytes, n);
    if (note) {
        // what a strip drops does not count
        of_copy(bytes, n - 1, there);
        CHECK_STR(there, here);
        align_segment(bytes, note, 8);
        of_copy(bytes, n, there);
        CHECK_STR(there, here);
        align_segment(bytes, note, 4);
        note[16]++;
        of_copy(bytes, n, there);
        CHECK(strcmp(there, here) != 0);
        // one that holds no text, and one whose text has no end
        for (int i = 0; i < 2; i++) {
            uint32_t word[3], odd[3];
            memcpy(word, note, sizeof word);
            memcpy(odd, word, sizeof odd);
            odd[1 + i] = i ? 4 : 0xfffffff0u;
            memcpy(note, odd, sizeof odd);
            of_copy(bytes, n, there);
            of_bytes(bytes, n, whole);
            CHECK_STR(there, whole);
            memcpy(note, word, sizeof word);
        }
    } else {
        of_bytes(bytes, n, whole);
        CHECK_STR(here, whole);
    }
    mr_free(bytes);
    CHECK_OK(mr_dir_remove(dir));
    return check_done();
}
