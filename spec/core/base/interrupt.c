/* The flag by which a user stops running work. */
#include "check.h"
#include "moonreel/base.h"

#include <stdlib.h>
#include <unistd.h>

// bytes are copied in pieces, also forwards and backwards within a buffer, and not after Ctrl-C
static void copies(void)
{
    enum { N = (40 << 20) + 3 };
    unsigned char *room = malloc(N + 7);
    for (size_t shift = 0; shift < 2; shift++) {
        for (size_t i = 0; i < N + 7; i++)
            room[i] = (unsigned char)(i * 31 + i / 251);
        unsigned char *to = room + (shift ? 7 : 0), *from = room + (shift ? 0 : 7);
        CHECK_OK(mr_interrupt_copy(to, from, N));
        size_t wrong = 0;
        for (size_t i = 0, k; i < N; i++)
            k = i + (shift ? 0 : 7), wrong += to[i] != (unsigned char)(k * 31 + k / 251);
        CHECK_INT(wrong, 0);
    }
    memset(room, 0, N);
    mr_interrupt_set(true);
    CHECK_FAILS(mr_interrupt_copy(room, room + 7, N), MR_E_STOPPED, "stopped by Ctrl-C");
    mr_interrupt_set(false);
    free(room);
}

static void twice(void)
{
    CHECK(mr_stop_again(15, 15, 0));
    CHECK(mr_stop_again(2, 2, 0.19));
    CHECK(!mr_stop_again(2, 2, 0.21)); // the user presses Ctrl-C again
    CHECK(!mr_stop_again(2, 15, 0));
    CHECK(!mr_stop_again(0, 15, 0)); // the first of all
}

int main(void)
{
    copies();
    twice();
    CHECK_OK(mr_interrupt_check());
    mr_interrupt_set(true);
    CHECK(mr_interrupt_get());
    CHECK_FAILS(mr_interrupt_check(), MR_E_STOPPED, "stopped by Ctrl-C");
    // a file is read no further
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
