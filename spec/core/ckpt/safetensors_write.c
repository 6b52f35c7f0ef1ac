/* ckpt/safetensors_write: a written file is read back; invalid lists are refused; no partial file
 * remains. */
#include "ckptcase.h"

static char path[600];

static const mr_st_tensor *named(const mr_safetensors *st, const char *name)
{
    int i = 0;
    while (i < mr_safetensors_count(st) && strcmp(mr_safetensors_at(st, i)->name, name) != 0)
        i++;
    CHECK(i < mr_safetensors_count(st));
    return mr_safetensors_at(st, i);
}

static void round_trip(void)
{
    mr_ckpt_item items[CASE_ITEMS];
    mr_st_pair meta[] = {{"format", "pt"}, {"note", "a \"quoted\" one"}};
    case_fill(5);
    case_items(items);
    CHECK_OK(mr_safetensors_write(path, items, CASE_ITEMS, meta, 2));
    mr_safetensors *st;
    CHECK_OK(mr_safetensors_open(path, 0, &st));
    const char *key, *value;
    mr_safetensors_meta_at(st, 1, &key, &value);
    CHECK_STR(key, "note");
    CHECK_STR(value, "a \"quoted\" one");
    static float a[CASE_A];
    const mr_st_tensor *t = named(st, "x.weight");
    CHECK_INT(t->rank, 2);
    CHECK_INT(t->shape[1], CASE_A / 1000);
    CHECK_INT(t->offset % 8, 0);
    CHECK_OK(mr_safetensors_read(st, t, a, 0, t->bytes));
    CHECK(memcmp(a, case_a, sizeof a) == 0);
    CHECK_INT(named(st, "empty")->bytes, 0);
    mr_safetensors_close(st);
}

static void header(void)
{
    char *text;
    int64_t bytes, total, offsets[CASE_ITEMS];
    mr_ckpt_item items[CASE_ITEMS];
    case_items(items);
    CHECK_OK(mr_safetensors_header(items, CASE_ITEMS, NULL, 0, &text, &bytes, offsets, &total));
    CHECK_INT(bytes % 8, 0);
    CHECK_INT(offsets[0], bytes);
    CHECK_INT(offsets[1], bytes + CASE_A * 4);
    CHECK_INT(offsets[2], offsets[3]);
    CHECK_INT(total, bytes + CASE_A * 4 + CASE_B * 4 + 8);
    mr_free(text);
    // the same list gives the same bytes
    char *again;
    int64_t bytes_again;
    CHECK_OK(mr_safetensors_header(items, CASE_ITEMS, NULL, 0, &text, &bytes, NULL, &total));
    CHECK_OK(mr_safetensors_header(items, CASE_ITEMS, NULL, 0, &again, &bytes_again, NULL, &total));
    CHECK(bytes == bytes_again && memcmp(text, again, (size_t)bytes) == 0);
    mr_free(text);
    mr_free(again);
}

static void refused(const char *name, const char *part)
{
    mr_ckpt_item items[2] = {
        {.name = name, .dtype = MR_ST_U8, .rank = 1, .shape = {1}, .data = "x"},
        {.name = "other", .dtype = MR_ST_U8, .rank = 1, .shape = {1}, .data = "x"}};
    char *text;
    int64_t bytes, total;
    CHECK_FAILS(mr_safetensors_header(items, 2, NULL, 0, &text, &bytes, NULL, &total), MR_E_USAGE,
                part);
}

static void bad_lists(void)
{
    refused("", "expected 1 to 512 bytes");
    refused("__metadata__", "expected 1 to 512 bytes");
    refused("other", "tensor 'other' occurs twice");
    refused("\xff", "tensor 0: its name is not UTF-8");
    refused("\xc0\x80", "not UTF-8");
    refused("\xed\xa0\x80", "not UTF-8");
    refused("\xe2\x82", "not UTF-8");
    mr_ckpt_item item = {.name = "a", .dtype = MR_ST_F32, .rank = 2, .shape = {INT64_MAX, 2}};
    char *text;
    int64_t bytes, total;
    CHECK_FAILS(mr_safetensors_header(&item, 1, NULL, 0, &text, &bytes, NULL, &total), MR_E_FORMAT,
                "tensor 'a'");
    item.rank = 9;
    CHECK_FAILS(mr_safetensors_header(&item, 1, NULL, 0, &text, &bytes, NULL, &total), MR_E_USAGE,
                "out of range");
}

static mr_status no_copy(void *user, void *dst, int64_t offset, int64_t n)
{
    (void)user, (void)dst, (void)offset, (void)n;
    return mr_fail(MR_E_NODE, "the device is gone");
}

static void failures(void)
{
    mr_ckpt_item items[CASE_ITEMS];
    case_fill(6);
    case_items(items);
    mr_safetensors *st;
    fault_install();
    CHECK_OK(mr_safetensors_write(path, items, CASE_ITEMS, NULL, 0));
    long n = fault_operations();
    case_fill(7);
    for (long i = 1; i <= n; i++) {
        fault_at(i, FAULT_ERRNO, EIO);
        mr_status got = mr_safetensors_write(path, items, CASE_ITEMS, NULL, 0);
        fault_clear();
        CHECK_INT(got, i < n ? MR_E_IO : MR_OK); // the last one only closes the synced directory
        // the old file or the new one, whole
        CHECK_OK(mr_safetensors_open(path, 0, &st));
        mr_safetensors_close(st);
    }
    // create; header, a tensor in two pieces, two small ones; sync, close, rename; directory
    CHECK_INT(n, 1 + 5 + 3 + 3);
    items[0].copy = no_copy;
    CHECK_FAILS(mr_safetensors_write(path, items, CASE_ITEMS, NULL, 0), MR_E_NODE,
                "the device is gone");
    char **names;
    int count;
    char dir[600];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    CHECK_OK(mr_dir_list(dir, &names, &count));
    CHECK_INT(count, 1);
    mr_dir_list_free(names, count);
}

int main(void)
{
    snprintf(path, sizeof path, "%s/out.safetensors", case_dir("st-write"));
    round_trip();
    header();
    bad_lists();
    failures();
    mr_dir_remove(case_dir("st-write"));
    return check_done();
}
