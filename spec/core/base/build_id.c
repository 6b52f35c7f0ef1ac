/* base/build_id: a copy of the program is the same build, stripped or not; any changed byte that is
 * loaded makes another build. The program runs changed copies of itself. */
#define _GNU_SOURCE
#include "base/build_id.h"
#include "check.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/build_id.XXXXXX", path[64];
// bytes to find in the file: among the constants, and among the initial values of variables
static const char constant[] = "a constant of spec/core/base/build_id";
static char variable[] = "a variable of spec/core/base/build_id";

static void own(char hex[33])
{
    mr_hash128 id = {0, 0};
    CHECK_OK(mr_build_id(&id));
    mr_hash128_hex(id, hex);
}

// what a copy of this program with these bytes reports as its build
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

static void another_byte(char *bytes, size_t n, const char *text, size_t length, const char *here)
{
    char there[33], *at = memmem(bytes, n, text, length);
    if (!CHECK(at != NULL))
        return;
    at[3]++;
    of_copy(bytes, n, there);
    CHECK(strcmp(there, here) != 0);
    at[3]--;
}

int main(int argc, char **argv)
{
    char *bytes, here[33], there[33], command[200];
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
    another_byte(bytes, n, constant, sizeof constant, here);
    another_byte(bytes, n, variable, sizeof variable, here);
    // the table of sections, which only debuggers read, is not loaded
    ElfW(Ehdr) *head = (ElfW(Ehdr) *)bytes;
    head->e_shnum = 0;
    of_copy(bytes, n - 1, there);
    CHECK_STR(there, here);
    // strip rounds the size of thread-local storage
    ElfW(Phdr) *segments = (ElfW(Phdr) *)(bytes + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++)
        segments[i].p_memsz += segments[i].p_type == PT_TLS;
    of_copy(bytes, n - 1, there);
    CHECK_STR(there, here);
    // a real strip, if one is installed
    snprintf(command, sizeof command, "strip -o %s/stripped /proc/%d/exe 2>/dev/null", dir,
             (int)getpid());
    if (system(command) == 0) {
        char *stripped;
        snprintf(command, sizeof command, "%s/stripped", dir);
        CHECK_OK(mr_file_read_all(command, &stripped, &n));
        of_copy(stripped, n, there);
        CHECK_STR(there, here);
        mr_free(stripped);
    }
    mr_free(bytes);
    CHECK_OK(mr_dir_remove(dir));
    return check_done();
}
