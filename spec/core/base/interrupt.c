/* The flag by which a person stops what runs. */
#include "check.h"
#include "moonreel/base.h"

#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    CHECK_OK(mr_interrupt_check());
    mr_interrupt_set(true);
    CHECK(mr_interrupt_get());
    CHECK_FAILS(mr_interrupt_check(), MR_E_STOPPED, "stopped by Ctrl-C");
    // a file is not read on
    char byte, name[] = "/tmp/moonreel-interrupt-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1);
    CHECK_FAILS(mr_file_read_at(fd, &byte, 1, 0, name), MR_E_STOPPED, "stopped");
    mr_interrupt_set(false);
    CHECK_OK(mr_file_read_at(fd, &byte, 1, 0, name));
    CHECK_INT(byte, 'x');
    close(fd);
    unlink(name);
    return check_done();
}
