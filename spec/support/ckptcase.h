/* A small run directory with checkpoints whose content is a function of the step, for the specs of
 * core/ckpt. */
#ifndef MR_CKPTCASE_H
#define MR_CKPTCASE_H
#include "check.h"
#include "fault.h"
#include "moonreel/ckpt.h"
#include <dirent.h>

/* f32 elements: more than one block, less than one */
enum { CASE_A = 300000, CASE_B = 77, CASE_ITEMS = 4 };
#define CASE_META                                                                                  \
    "{\"recipe_hash\": \"r\", \"dataset_fingerprint\": \"d\", \"sampler\": \"s\", \"seed\": 1, "   \
    "\"machine\": {\"isa\": \"x\"}}"

static float case_a[CASE_A], case_b[CASE_B];
static int64_t case_step;

/* The value of element i of tensor `which` at a step. */
static inline float case_value(int64_t step, int which, int64_t i)
{
    return (float)(step * 1000003 % 8191 + which * 17 + i % 1021);
}

static inline void case_fill(int64_t step)
{
    case_step = step;
    for (int i = 0; i < CASE_A; i++)
        case_a[i] = case_value(step, 0, i);
    for (int i = 0; i < CASE_B; i++)
        case_b[i] = case_value(step, 1, i);
}

/* A device's part: copies a range of its bytes. */
static mr_status case_copy(void *user, void *dst, int64_t offset, int64_t n)
{
    memcpy(dst, (const char *)user + offset, (size_t)n);
    return MR_OK;
}

static inline void case_items(mr_ckpt_item items[CASE_ITEMS])
{
    items[0] = (mr_ckpt_item){.name = "x.weight",
                              .dtype = MR_ST_F32,
                              .rank = 2,
                              .shape = {1000, CASE_A / 1000},
                              .copy = case_copy,
                              .user = case_a};
    items[1] = (mr_ckpt_item){.name = "master.x.weight",
                              .dtype = MR_ST_F32,
                              .rank = 1,
                              .shape = {CASE_B},
                              .data = case_b};
    items[2] = (mr_ckpt_item){.name = "empty", .dtype = MR_ST_BF16, .rank = 2, .shape = {0, 4}};
    items[3] = (mr_ckpt_item){.name = "step", .dtype = MR_ST_I64, .rank = 0, .data = &case_step};
}

/* Saves a step and waits for its end. */
static inline mr_status case_save(mr_saver *saver, int64_t step)
{
    mr_ckpt_item items[CASE_ITEMS];
    bool taken;
    case_fill(step);
    case_items(items);
    MR_TRY(mr_saver_save(saver, step, items, CASE_ITEMS, CASE_META, true, &taken));
    return mr_saver_wait(saver, 30);
}

/* Damages the shard of a step below the run `dir`. */
static inline void case_flip_last_byte(const char *dir, int64_t step)
{
    char path[800], base[700];
    snprintf(path, sizeof path, "%s/r00000-of-00001.safetensors",
             mr_ckpt_dir(dir, step, base, sizeof base));
    FILE *f = fopen(path, "r+b");
    fseek(f, -1, SEEK_END);
    int c = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
}

/* Does the checkpoint hold exactly what case_fill(its step) makes? */
static inline bool case_exact(mr_ckpt *c)
{
    static float a[CASE_A], b[CASE_B];
    int64_t step = mr_ckpt_step(c), report = -1;
    if (mr_ckpt_read(c, "x.weight", a, 0, sizeof a) ||
        mr_ckpt_read(c, "master.x.weight", b, 0, sizeof b) ||
        mr_ckpt_read(c, "step", &report, 0, 8) || mr_ckpt_read(c, "empty", a, 0, 0))
        return false;
    bool same = report == step;
    for (int64_t i = 0; i < CASE_A; i++)
        same = same && a[i] == case_value(step, 0, i);
    for (int64_t i = 0; i < CASE_B; i++)
        same = same && b[i] == case_value(step, 1, i);
    return same;
}

/* A clock whose pauses take no time: their sum, and events during them. */
static int64_t case_slept_ns;
static void (*case_meanwhile)(void);
static void case_sleep(int64_t ns)
{
    case_slept_ns += ns;
    if (case_meanwhile)
        case_meanwhile();
}
static inline void case_clock(void)
{
    static mr_clock clock;
    clock = *mr_clock_table();
    clock.sleep_ns = case_sleep;
    mr_clock_replace(&clock);
}

/* A new empty run directory; lent. */
static inline const char *case_dir(const char *name)
{
    static char dir[512];
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/moonreel-%s-%ld", tmp && *tmp ? tmp : "/tmp", name,
             (long)getpid());
    mr_dir_remove(dir);
    mr_dir_make(dir);
    return dir;
}

/* Names in <dir>/ckpt that start with or contain `part`. */
static inline int case_count(const char *dir, const char *part)
{
    char path[4200], **names;
    int n, count = 0;
    snprintf(path, sizeof path, "%s/ckpt", dir);
    if (mr_dir_list(path, &names, &n) != MR_OK)
        return 0;
    for (int i = 0; i < n; i++)
        count += strstr(names[i], part) != NULL;
    mr_dir_list_free(names, n);
    return count;
}
#endif
