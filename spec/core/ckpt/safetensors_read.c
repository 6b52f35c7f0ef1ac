/* ckpt/safetensors_read: hostile and damaged files are refused with file and key, and never read
 * past their end. */
#include "ckptcase.h"
#include "peak.h"

#include <sys/stat.h>

static char path[600];

static void put(const char *header, size_t length, const void *data, size_t bytes)
{
    // a new file each time: some file systems wait for the disk when one is overwritten
    remove(path);
    FILE *f = fopen(path, "wb");
    uint64_t word = length;
    fwrite(&word, 8, 1, f);
    fwrite(header, 1, strlen(header), f);
    if (bytes)
        fwrite(data, 1, bytes, f);
    fclose(f);
}

/* Opening the header with `bytes` zero bytes of data after it fails with a text that contains
 * `part`. */
static void refused(const char *header, size_t bytes, const char *part)
{
    static const char zeros[4096];
    mr_safetensors *st = NULL;
    put(header, strlen(header), zeros, bytes);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT, part);
    CHECK(check_tries());
    if (mr_error_last())
        CHECK(strstr(mr_error_last()->text, "probe.safetensors") || mr_error_last()->cause);
    CHECK(!st);
}

static void hostile(void)
{
    refused("[]", 0, "not a JSON object");
    refused("{", 0, "not a JSON object");
    refused("{\"", 0, "safetensors: damaged JSON: byte 2");
    refused("{} x", 0, "safetensors: damaged JSON: byte 3");
    refused("{\"a\": 1}", 0, "tensor 'a': expected exactly dtype, shape and data_offsets");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4], \"more\": 1}}",
            4, "expected exactly");
    refused("{\"a\": {\"dtype\": \"F31\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4,
            "unknown dtype 'F31'");
    refused("{\"a\": {\"dtype\": \"f32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4,
            "unknown dtype");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1.0], \"data_offsets\": [0, 4]}}", 4,
            "not a natural number");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [-1], \"data_offsets\": [0, 4]}}", 4,
            "not a natural number");
    refused(
        "{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,1,1,1,1,1], \"data_offsets\": [0, 4]}}",
        4, "at most 8");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 4]}}", 4,
            "its shape needs 8 bytes");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 8]}}", 8,
            "its shape needs 4 bytes, data_offsets give 8");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [4, 0]}}", 4,
            "not [begin, end]");
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4, 8]}}", 4,
            "not [begin, end]");
    // products that overflow
    refused("{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], \"data_offsets\": "
            "[0, 0]}}",
            0, "overflows");
    refused(
        "{\"a\": {\"dtype\": \"F64\", \"shape\": [4611686018427387904], \"data_offsets\": [0, 0]}}",
        0, "overflows");
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [9223372036854775807], \"data_offsets\": [0, "
            "9223372036854775807]}}",
            4, "the file has 4");
    refused(
        "{\"a\": {\"dtype\": \"U8\", \"shape\": [9223372036854775808], \"data_offsets\": [0, 4]}}",
        4, "safetensors: damaged JSON: byte 51: too big integer");
    // gaps, overlaps, uncovered data, data missing
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [4, 8]}}", 8,
            "starts at byte 4 of the data, expected 0");
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}, \"b\": "
            "{\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [2, 6]}}",
            6, "tensor 'b' starts at byte 2 of the data, expected 4");
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}, \"b\": "
            "{\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}}",
            4, "starts at byte 0");
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}}", 5,
            "but the data of the file has 5");
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [4], \"data_offsets\": [0, 4]}}", 3,
            "but the data of the file has 3");
    // names
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}, \"a\": "
            "{\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [1, 2]}}",
            2, "tensor 'a' occurs twice");
    refused("{\"\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}", 1,
            "expected 1 to 512 bytes");
    refused("{\"\xff\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}", 1,
            "safetensors: damaged JSON: byte 2");
    refused("{\"a\\u0000b\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}", 1,
            "safetensors: damaged JSON: byte 11");
    refused("{\"__metadata__\": {\"a\": 1}}", 0, "'a' is not text");
    refused("{\"__metadata__\": []}", 0, "not an object");
    refused("{\"__metadata__\": {}, \"__metadata__\": {}}", 0, "__metadata__ occurs twice");
    refused("{\"__metadata__\": {\"k\": \"1\", \"\\u006b\": \"2\"}}", 0, "'k' occurs twice");
    // names that are equal only after their escapes are decoded
    refused("{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}, "
            "\"\\u0061\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [1, 2]}}",
            2, "tensor 'a' occurs twice");
    char deep[3000];
    size_t n = 0;
    n += (size_t)snprintf(deep, sizeof deep, "{\"a\": ");
    for (int i = 0; i < 1000; i++)
        deep[n++] = '[';
    deep[n] = 0;
    refused(deep, 0, "nested deeper than 4 at byte 9");
    char named[1200] = "{\"";
    memset(named + 2, 'n', 513);
    strcpy(named + 515, "\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}");
    refused(named, 1, "expected 1 to 512 bytes");
}

static void length_word(void)
{
    mr_safetensors *st;
    put("{}", 2, NULL, 0);
    CHECK_OK(mr_safetensors_open(path, 0, &st));
    CHECK_INT(mr_safetensors_count(st), 0);
    mr_safetensors_close(st);
    put("{}", 3, NULL, 0);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT,
                "the header ends at byte 11, the file at 10");
    put("{}", (size_t)-1, NULL, 0);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT, "at most 16777216");
    put("{}", (size_t)1 << 63, NULL, 0);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT, "at most 16777216");
    put("{}", 20000000, NULL, 0);
    CHECK_FAILS(mr_safetensors_open(path, 100000000, &st), MR_E_FORMAT, "the file at 10");
    put("{}", 200000000, NULL, 0);
    CHECK_FAILS(mr_safetensors_open(path, INT64_MAX, &st), MR_E_FORMAT, "at most 100000000");
    put("{}", 0, NULL, 0);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT, "not a JSON object");
    FILE *f = fopen(path, "wb");
    fwrite("1234567", 1, 7, f);
    fclose(f);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT, "too short");
    CHECK_FAILS(mr_safetensors_open("/nowhere/probe.safetensors", 0, &st), MR_E_IO, "No such file");
    CHECK_FAILS(mr_safetensors_open("/", 0, &st), MR_E_FORMAT, "not a regular file");
}

static void good(void)
{
    // written out of order, with an empty tensor, a scalar, padding and metadata
    static const char header[] =
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[4,12]},\"__metadata__\":{"
        "\"z\":\"1\",\"a\":\"2\"},"
        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"e\":{\"dtype\":\"F8_"
        "E4M3\",\"shape\":[0,3],\"data_offsets\":[4,4]}}   ";
    static const unsigned char data[12] = {0, 0, 0x80, 0x3f, 1, 2, 3, 4, 5, 6, 7, 8};
    mr_safetensors *st;
    put(header, strlen(header), data, sizeof data);
    CHECK_OK(mr_safetensors_open(path, 0, &st));
    CHECK_INT(mr_safetensors_count(st), 3);
    CHECK_STR(mr_safetensors_at(st, 0)->name, "s");
    CHECK_STR(mr_safetensors_at(st, 1)->name, "e");
    CHECK_STR(mr_safetensors_at(st, 2)->name, "b");
    CHECK_INT(mr_safetensors_at(st, 2)->bytes, 8);
    CHECK_INT(mr_safetensors_at(st, 0)->rank, 0);
    CHECK_INT(mr_safetensors_meta_count(st), 2);
    const char *key, *value;
    mr_safetensors_meta_at(st, 0, &key, &value);
    CHECK_STR(key, "a");
    CHECK_STR(value, "2");
    mr_safetensors_meta_at(st, 1, &key, &value);
    CHECK_STR(key, "z");
    float s;
    unsigned char b[8];
    CHECK_OK(mr_safetensors_read(st, mr_safetensors_at(st, 0), &s, 0, 4));
    CHECK(s == 1.0f);
    CHECK_OK(mr_safetensors_read(st, mr_safetensors_at(st, 2), b, 2, 6));
    CHECK(memcmp(b, data + 6, 6) == 0);
    CHECK_FAILS(mr_safetensors_read(st, mr_safetensors_at(st, 2), b, 4, 5), MR_E_RANGE,
                "5 bytes from byte 4 on; expected a range in its 8");
    CHECK_FAILS(mr_safetensors_read(st, mr_safetensors_at(st, 2), b, -1, 1), MR_E_RANGE,
                "from byte -1");
    CHECK_FAILS(mr_safetensors_read(st, mr_safetensors_at(st, 2), b, INT64_MAX, 1), MR_E_RANGE,
                "a range in its 8");
    mr_safetensors_close(st);
}

/* A changed byte in a good header: refused or read, never out of bounds (run under the
 * sanitizers). */
static void mutations(unsigned seed)
{
    static const char header[] =
        "{\"ab\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},\"c\":{\"dtype\":"
        "\"U8\",\"shape\":[3],\"data_offsets\":[16,19]}}";
    char text[sizeof header];
    printf("mutations: seed %u\n", seed);
    int refusals = 0;
    for (int round = 0; round < 2000; round++) {
        memcpy(text, header, sizeof header);
        for (int k = 0; k < 1 + round % 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            static const char likely[] = "0123456789{}[],:\"-. e";
            size_t at = (seed >> 8) % (sizeof header - 1);
            text[at] = round % 2 ? likely[(seed >> 4) % (sizeof likely - 1)]
                                 : (char)(1 + (seed >> 16) % 255);
        }
        char data[19] = {0}, out[64];
        put(text, strlen(text), data, sizeof data);
        mr_safetensors *st;
        if (mr_safetensors_open(path, 0, &st) != MR_OK) {
            refusals++;
            continue;
        }
        int64_t total = 0;
        for (int i = 0; i < mr_safetensors_count(st); i++) {
            total += mr_safetensors_at(st, i)->bytes;
            CHECK_OK(mr_safetensors_read(st, mr_safetensors_at(st, i), out, 0,
                                         mr_safetensors_at(st, i)->bytes));
        }
        CHECK_INT(total, 19);
        mr_safetensors_close(st);
    }
    CHECK(refusals > 1000);
}

/* Pipes, devices, folders and cycles of links in the place of the file are refused at once. */
static void no_file(void)
{
    mr_safetensors *st;
    remove(path);
    CHECK_INT(mkfifo(path, 0600), 0);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_FORMAT, "not a regular file");
    remove(path);
    CHECK_FAILS(mr_safetensors_open("/dev/zero", 0, &st), MR_E_FORMAT, "not a regular file");
    CHECK_INT(symlink(path, path), 0);
    CHECK_FAILS(mr_safetensors_open(path, 0, &st), MR_E_IO, "cannot open");
    remove(path);
}

/* ---- memory ---- */

/* A header close to the limit, made by repeating one piece. */
static int64_t large_header(const char *start, const char *piece, const char *end, bool numbered)
{
    FILE *f = fopen(path, "wb");
    fwrite("12345678", 1, 8, f);
    uint64_t n = (uint64_t)fprintf(f, "%s", start);
    int64_t i = 0;
    while (n < MR_ST_HEADER_MAX - 200) {
        char text[200];
        int used = numbered ? snprintf(text, sizeof text, piece, i ? "," : "", (long long)i,
                                       (long long)i, (long long)i + 1)
                            : snprintf(text, sizeof text, "%s%s", i ? "," : "", piece);
        n += fwrite(text, 1, (size_t)used, f), i++;
    }
    n += fwrite(end, 1, strlen(end), f);
    for (int64_t k = 0; numbered && k < i; k++)
        fputc(0, f);
    rewind(f);
    fwrite(&n, 8, 1, f);
    fclose(f);
    return i;
}

static bool opens(void *user)
{
    mr_ckpt *c = NULL;
    (void)user;
    bool ok = mr_ckpt_open(path, &c) == MR_OK;
    mr_ckpt_close(c);
    return ok;
}

/* The peak of opening, as a multiple of the header, stays below `most`. */
static void costs(const char *what, bool opened, double most)
{
    bool ok;
    double factor = (double)peak_of(opens, NULL, &ok) / MR_ST_HEADER_MAX;
    printf("%s: memory %.2f times the header\n", what, factor);
    CHECK_INT(ok, opened);
    CHECK(!PEAK_COUNTS || (factor > 0 && factor < most));
}

static void memory(void)
{
    int64_t n = large_header(
        "{", "%s\"%llx\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[%lld,%lld]}", "}", true);
    CHECK(n > 200000);
    costs("small tensors", true, 5);
    large_header("{\"a\":[", "[]", "]}", false);
    costs("empty arrays", false, 1.2);
    large_header("{", "\"a\":{}", "}", false);
    costs("empty objects", false, 1.2);
    large_header("{\"__metadata__\":{\"a\":\"", "xxxxxxxxxxxxxxxx", "\"}}", false);
    costs("one long text", true, 4);
    large_header("{\"__metadata__\":{", "\"a\":\"\"", "}}", false);
    costs("many small texts", false, 7);
}

int main(void)
{
    snprintf(path, sizeof path, "%s/probe.safetensors", case_dir("st-read"));
    length_word();
    hostile();
    good();
    mutations(7);
    no_file();
    memory();
    mr_dir_remove(case_dir("st-read"));
    return check_done();
}
