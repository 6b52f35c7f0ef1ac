/* comm/shared: the memory that ranks share, and descriptors of something else. */
#include "rankcase.h"

#include <fcntl.h>
#include <unistd.h>

static void segments(void)
{
    mr_segment *m, *none;
    mr_transport *transport;
    CHECK_FAILS(mr_segment_new(0, &none), MR_E_USAGE, "0 ranks on one host: expected 1 to 1024");
    CHECK_FAILS(mr_segment_new(1025, &none), MR_E_USAGE, "1025 ranks");
    CHECK_OK(mr_segment_new(3, &m));
    CHECK_FAILS(mr_segment_transport(m, 3, &transport), MR_E_USAGE,
                "rank 3 of 3 ranks: expected 0 to 2");
    CHECK_FAILS(mr_segment_join(mr_segment_fd(m), 3, 3, &transport), MR_E_USAGE,
                "rank 3 of 3 ranks");
    CHECK_FAILS(mr_segment_join(mr_segment_fd(m), 0, 4, &transport), MR_E_NODE,
                "not the shared memory of 4 ranks");
    CHECK_FAILS(mr_segment_join(mr_segment_fd(m), 0, 2, &transport), MR_E_NODE,
                "not the shared memory of 2 ranks");
    // what one mapping writes the other reads
    char text[64];
    CHECK_OK(mr_segment_join(mr_segment_fd(m), 0, 3, &transport));
    CHECK(!transport->ops->left(transport, 2) &&
          !transport->ops->aborted(transport, text, sizeof text));
    CHECK_INT(mr_segment_left(m, 2), 0);
    mr_segment_mark_left(m, 2);
    mr_segment_abort(m, "rank 2 ended with exit code 3");
    mr_segment_abort(m, "a later reason");
    CHECK(transport->ops->left(transport, 2) &&
          transport->ops->aborted(transport, text, sizeof text));
    CHECK_STR(text, "rank 2 ended with exit code 3");
    transport->ops->close(transport, true);
    mr_segment_mark_left(m, 2);
    CHECK_INT(mr_segment_left(m, 2), 1);
    CHECK_INT(mr_segment_left(m, 0), 2);
    mr_segment_free(m);
}

static void strangers(void)
{
    mr_transport *transport;
    mr_segment *cut;
    // memory that is shorter than its head says
    CHECK_OK(mr_segment_new(2, &cut));
    CHECK_INT(ftruncate(mr_segment_fd(cut), 1 << 16), 0);
    CHECK_FAILS(mr_segment_join(mr_segment_fd(cut), 0, 2, &transport), MR_E_NODE,
                "is not the shared memory");
    mr_segment_free(cut);
    int fd = open("/dev/null", O_RDONLY);
    CHECK_FAILS(mr_segment_join(fd, 0, 2, &transport), MR_E_NODE,
                "is not the shared memory of 2 ranks");
    close(fd);
    CHECK_FAILS(mr_segment_join(-1, 0, 2, &transport), MR_E_NODE, "descriptor -1");
    fd = open("README.md", O_RDONLY);
    CHECK_FAILS(mr_segment_join(fd, 0, 2, &transport), MR_E_NODE, "moonreel -n 2");
    close(fd);
}

int main(void)
{
    segments();
    strangers();
    return check_done();
}
