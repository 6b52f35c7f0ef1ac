/* data/resize: sizes, positions of the crop and edges of both methods; spec/golden compares with
 * the references. */
#include "check.h"
#include "moonreel/data.h"

enum { SIDE = 64 };
static uint8_t in[3 * SIDE * SIDE], bytes[3 * SIDE * SIDE];
static float frame[3 * SIDE * SIDE];

// each plane and position has a value of its own, as far as bytes allow
static void ramp(int height, int width)
{
    for (int i = 0; i < 3 * height * width; i++)
        in[i] = (uint8_t)(i % 251);
}

static uint8_t picture_at(int height, int width, int plane, int y, int x)
{
    return in[(plane * height + y) * width + x];
}

// a picture that is only cropped keeps its values; the positions differ when the rest is odd
static void cut(int height, int width, int to_height, int to_width, int y, int picture_x,
                int frame_x)
{
    ramp(height, width);
    CHECK_OK(mr_resize_picture(in, height, width, to_height, to_width, bytes));
    mr_resize_frame(in, height, width, to_height, to_width, frame);
    for (int plane = 0; plane < 3; plane++)
        for (int r = 0; r < to_height; r++)
            for (int c = 0; c < to_width; c++) {
                int at = (plane * to_height + r) * to_width + c;
                CHECK_INT(bytes[at], picture_at(height, width, plane, r + y, c + picture_x));
                CHECK_NEAR(frame[at],
                           picture_at(height, width, plane, r + y, c + frame_x) / 127.5 - 1, 1e-6);
            }
}

int main(void)
{
    cut(5, 5, 5, 5, 0, 0, 0);
    cut(4, 7, 4, 4, 0, 2, 1);
    cut(4, 9, 4, 4, 0, 2, 2);
    cut(4, 5, 4, 4, 0, 0, 0);

    // a plain picture stays plain at any scale
    for (int i = 0; i < 3 * SIDE * SIDE; i++)
        in[i] = 201;
    static const int sizes[][2] = {{1, 1}, {7, 3}, {64, 64}, {63, 31}};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        int h = sizes[i][0], w = sizes[i][1];
        CHECK_OK(mr_resize_picture(in, 40, 23, h, w, bytes));
        mr_resize_frame(in, 40, 23, h, w, frame);
        for (int k = 0; k < 3 * h * w; k++) {
            CHECK_INT(bytes[k], 201);
            CHECK_NEAR(frame[k], 201 / 127.5 - 1, 1e-5);
        }
    }

    // an edge between black and white: the cubic filter overshoots both and is clamped; at half
    // size, a frame is the mean of two, a picture reads eight
    for (int i = 0; i < 3 * 8 * 8; i++)
        in[i] = i % 8 < 4 ? 0 : 255;
    CHECK_OK(mr_resize_picture(in, 8, 8, 16, 16, bytes));
    CHECK_INT(bytes[0], 0);
    CHECK_INT(bytes[6], 0);
    CHECK(bytes[7] > 0 && bytes[7] < 127 && bytes[8] > 127 && bytes[8] < 255);
    CHECK_INT(bytes[9], 255);
    for (int i = 0; i < 3 * 8 * 8; i++)
        in[i] = i % 8 == 3 ? 255 : 0;
    mr_resize_frame(in, 8, 8, 4, 4, frame);
    CHECK_NEAR(frame[1], 0, 1e-6);
    CHECK_NEAR(frame[2], -1, 1e-6);
    CHECK_OK(mr_resize_picture(in, 8, 8, 4, 4, bytes));
    CHECK(bytes[1] > 64 && bytes[1] < 127 && bytes[2] > 0 && bytes[2] < 64);

    // no memory
    mr_alloc_fail_at(2);
    CHECK_FAILS(mr_resize_picture(in, 8, 8, 4, 4, bytes), MR_E_MEMORY, "");
    mr_alloc_fail_at(0);
    return check_done();
}
