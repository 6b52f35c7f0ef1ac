/* mr_bench_forget_file: written bytes stay, and a file that cannot be opened is reported. Licence:
 * Apache-2.0 */
#include "moonreel/bench.h"
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    char path[] = "/tmp/mr-cache-XXXXXX", read[8] = "";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "frames", 6) == 6);
    CHECK(mr_bench_forget_file(path) == MR_OK);
    CHECK(pread(fd, read, 6, 0) == 6);
    CHECK_STR(read, "frames");
    close(fd), unlink(path);
    CHECK(mr_bench_forget_file(path) == MR_E_IO);
    return check_done();
}
