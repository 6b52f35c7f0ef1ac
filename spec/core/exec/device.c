/* exec/device: opening by name, facts, memory, the compute dtype and its only warning (also of
 * cpu.c).
 * Covers: core/exec/cpu.c */
#include "check.h"
#include "moonreel/exec.h"

#include <fcntl.h>
#include <stdlib.h>

static int warnings;
static char warning[256];
static void listen(void *user, mr_log_level level, const char *line)
{
    (void)user;
    if (level == MR_LOG_WARN)
        warnings++, snprintf(warning, sizeof warning, "%s", line);
}

static void memory(mr_device *dev)
{
    const mr_device_ops *ops = dev->ops;
    static const size_t sizes[] = {1, 64, 4095, 4096, 4097, 1 << 20};
    for (size_t i = 0; i < MR_COUNT(sizes); i++) {
        mr_dptr p = 0;
        size_t n = sizes[i];
        unsigned char *host = mr_alloc(n), *back = mr_calloc(1, n);
        CHECK_OK(ops->alloc(dev, n, i % 2 ? MR_SPACE_PINNED : MR_SPACE_DEVICE, &p));
        CHECK_INT(p % 4096, 0);
        CHECK_OK(ops->copy_out(dev, host, p, n));
        CHECK(memcmp(host, back, n) == 0); // cleared
        for (size_t k = 0; k < n; k++)
            host[k] = (unsigned char)(k * 7 + i);
        CHECK_OK(ops->copy_in(dev, p, host, n));
        CHECK_OK(ops->copy_out(dev, back, p, n));
        CHECK(memcmp(host, back, n) == 0);
        CHECK_OK(ops->fill(dev, p, 9, n));
        CHECK_OK(ops->copy_out(dev, back, p + n - 1, 1));
        CHECK_INT(back[0], 9);
        ops->free(dev, p, n, i % 2 ? MR_SPACE_PINNED : MR_SPACE_DEVICE);
        mr_free(host), mr_free(back);
    }
    mr_dptr p = 0;
    mr_alloc_fail_at(1);
    CHECK_FAILS(ops->alloc(dev, 1 << 20, MR_SPACE_DEVICE, &p), MR_E_MEMORY, "cannot allocate");
    mr_alloc_fail_at(0);
    CHECK_FAILS(ops->alloc(dev, SIZE_MAX / 2, MR_SPACE_DEVICE, &p), MR_E_MEMORY, "cannot allocate");
}

/* Devices of a plug-in. */
static void plugin(void)
{
    mr_device *dev = NULL;
    size_t free_bytes = 0, total = 0;
    setenv("MOONREEL_PLUGINS", "/nowhere", 1);
    CHECK_FAILS(mr_device_open("cuda", 1, &dev), MR_E_UNSUPPORTED,
                "libmoonreel_cuda.so is not in /nowhere");
    setenv("MOONREEL_PLUGINS", SPEC_PLUGINS, 1);
    CHECK_OK(mr_device_open("cuda:3", 4, &dev));
    CHECK_INT(dev->ordinal, 3);
    CHECK_STR(dev->facts.device, "cuda");
    CHECK_OK(mr_device_memory(dev, &free_bytes, &total));
    CHECK_INT(free_bytes, 34); // of this device: ordinal and threads were passed on
    CHECK_INT(total, 1000);
    mr_device_close(dev);
    CHECK_OK(mr_device_open("cuda", 4, &dev));
    CHECK_INT(dev->ordinal, 0);
    mr_device_close(dev);
}

static const char *meminfo;

static int open_meminfo(const char *path, int flags, int mode)
{
    return open(strcmp(path, "/proc/meminfo") ? path : meminfo, flags, mode);
}

/* Memory that the page cache could free is free; without such a line unused memory is. */
static void free_memory(void)
{
    char path[] = "/tmp/mr_meminfo_XXXXXX";
    size_t free_bytes = 0, total = 0;
    mr_device *dev = NULL;
    FILE *f = fdopen(mkstemp(path), "w");
    fprintf(f, "MemTotal: 99 kB\nMemFree: 5 kB\nMemAvailable:      7654321 kB\nBuffers: 3 kB\n");
    fclose(f);
    mr_io io = *mr_io_table();
    io.open = open_meminfo, meminfo = path;
    CHECK_OK(mr_device_open("cpu", 1, &dev));
    mr_io_replace(&io);
    CHECK_OK(mr_device_memory(dev, &free_bytes, &total));
    CHECK_INT(free_bytes, 7654321LL << 10);
    meminfo = "/nowhere/meminfo";
    CHECK_OK(mr_device_memory(dev, &free_bytes, &total));
    CHECK(free_bytes > 0 && free_bytes <= total);
    mr_io_replace(NULL);
    mr_device_close(dev);
    remove(path);
}

int main(void)
{
    free_memory();
    static const char *const names[] = {"cpu", "shadow"};
    for (int i = 0; i < 2; i++) {
        mr_device *dev = NULL;
        CHECK_OK(mr_device_open(names[i], 3, &dev));
        CHECK_STR(dev->facts.device, names[i]);
        CHECK_STR(dev->facts.isa, mr_isa_name(mr_isa()));
        CHECK_INT(dev->facts.threads, 3);
        memory(dev);
        size_t free_bytes = 0, total = 0;
        CHECK_OK(mr_device_memory(dev, &free_bytes, &total));
        CHECK(free_bytes > 0 && free_bytes <= total);
        CHECK_INT(dev->ordinal, 0);
        mr_device_close(dev);
        CHECK_OK(mr_device_open(names[i], 0, &dev));
        CHECK(dev->facts.threads >= 1);
        mr_device_close(dev);
    }
    mr_device_close(NULL);
    mr_device *none = NULL;
    CHECK_FAILS(mr_device_open("tpu", 1, &none), MR_E_USAGE,
                "unknown device 'tpu'; expected cpu, shadow or cuda");
    CHECK_FAILS(mr_device_open("cpu", -1, &none), MR_E_USAGE,
                "device 'cpu': -1 threads; expected 1");
    CHECK_FAILS(mr_device_open("shadow", MR_MOST_THREADS + 1, &none), MR_E_USAGE,
                "4097 threads; expected 1 to 4096, or 0 for all");
    CHECK_FAILS(mr_device_open("cpu:1", 1, &none), MR_E_USAGE, "there is one cpu");
    CHECK_FAILS(mr_device_open("cuda:x", 1, &none), MR_E_USAGE, "as in cuda:1");
    CHECK_FAILS(mr_device_open("cuda:", 1, &none), MR_E_USAGE, "as in cuda:1");
    CHECK_FAILS(mr_device_open("cud", 1, &none), MR_E_USAGE, "unknown device 'cud'");
    plugin();

    mr_device plain = {.facts = {.isa = "avx2"}}, fast = {.facts = {.isa = "avx512", .bf16 = true}};
    mr_log_set_sink(listen, NULL);
    CHECK_INT(mr_device_compute(&fast, MR_BF16), MR_BF16);
    CHECK_INT(mr_device_compute(&plain, MR_F32), MR_F32);
    CHECK_INT(warnings, 0);
    for (int i = 0; i < 3; i++)
        CHECK_INT(mr_device_compute(&plain, MR_BF16), MR_F32);
    CHECK_INT(warnings, 1);
    CHECK(strstr(warning, "avx2") && strstr(warning, "computing in f32"));
    mr_log_set_sink(NULL, NULL);
    return check_done();
}
