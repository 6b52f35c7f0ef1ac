/* exec/eager: programs are kept by shape and replaced by new ones; errors; failing allocations, on
 * both devices. (All ops over all cases: exec/ops.) */
#include "check.h"
#include "moonreel/exec.h"

static float first_of(mr_tensor *t)
{
    return ((float *)mr_tensor_view(t)->data)[0];
}

static void kept_programs(mr_device *dev, int run_allocations)
{
    mr_tensor *x = NULL, *y[MR_MAX_OUT];
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){4}, &x));
    ((float *)mr_tensor_view(x)->data)[0] = 3;
    // another scale is another program, whichever was used last
    for (int round = 0; round < 3; round++) {
        for (int scale = 1; scale <= 2; scale++) {
            CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = scale}), &x, 1, y));
            CHECK(first_of(y[0]) == (float)(3 * scale));
            mr_tensor_unref(y[0]);
        }
    }
    // the second call of a shape allocates only its result
    CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 2}), &x, 1, y));
    int64_t before = mr_alloc_count();
    mr_tensor_unref(y[0]);
    CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 2}), &x, 1, y));
    int64_t one_tensor = mr_alloc_count();
    mr_tensor *same = NULL;
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){4}, &same));
    CHECK_INT(one_tensor - before, mr_alloc_count() - one_tensor + run_allocations);
    mr_tensor_unref(same), mr_tensor_unref(y[0]);
    // many shapes: old ones are replaced, and results stay right
    for (int64_t n = 1; n <= 150; n++) {
        mr_tensor *v = NULL;
        CHECK_OK(mr_tensor_new(MR_F32, 1, &n, &v));
        for (int64_t i = 0; i < n; i++)
            ((float *)mr_tensor_view(v)->data)[i] = (float)n;
        CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"shift", .f = 1}), &v, 1, y));
        CHECK(first_of(y[0]) == (float)(n + 1));
        mr_tensor_unref(y[0]), mr_tensor_unref(v);
    }
    mr_tensor_unref(x);
}

static void refusals(mr_device *dev)
{
    mr_tensor *x = NULL, *z = NULL, *y[MR_MAX_OUT];
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){4}, &x));
    CHECK_OK(mr_tensor_new(MR_F32, 1, (int64_t[]){5}, &z));
    CHECK_FAILS(mr_eager(dev, "afine", MR_NO_ATTRS, &x, 1, y), MR_E_USAGE, "did you mean 'affine'");
    CHECK_FAILS(mr_eager(dev, "affine", MR_ATTRS({"scal", .f = 2}), &x, 1, y), MR_E_USAGE, "scal");
    CHECK_FAILS(mr_eager(dev, "add", MR_NO_ATTRS, (mr_tensor *[]){x, z}, 2, y), MR_E_SHAPE,
                "[5] f32");
    // each allocation of a first call fails once; the device is usable afterwards
    int failures = 0;
    for (int64_t n = 1; n < 200; n++) {
        mr_alloc_fail_at(n);
        mr_status st = mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 100 + (double)n}), &x, 1, y);
        mr_alloc_fail_at(0);
        if (st == MR_OK) {
            mr_tensor_unref(y[0]);
            break;
        }
        CHECK_INT(st, MR_E_MEMORY);
        failures++;
    }
    CHECK(failures > 5 && failures < 199);
    CHECK_OK(mr_eager(dev, "affine", MR_ATTRS({"scale", .f = 2}), &x, 1, y));
    mr_tensor_unref(y[0]), mr_tensor_unref(x), mr_tensor_unref(z);
}

int main(void)
{
    mr_device *cpu, *shadow;
    if (mr_device_open("cpu", 2, &cpu) != MR_OK || mr_device_open("shadow", 2, &shadow) != MR_OK)
        return 1;
    kept_programs(cpu, 0);
    kept_programs(shadow, 7); // what it enqueues: a run, copies and events of its input
    refusals(cpu);
    refusals(shadow);
    mr_device_close(cpu);
    mr_device_close(shadow);
    return check_done();
}
