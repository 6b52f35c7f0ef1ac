/* token, hostile files and texts: good models are changed at random. Each result is refused with
 * an error that names the file, or it encodes any bytes as ids of its pieces and decodes them
 * again. */
#include "check.h"
#include "moonreel/token.h"
#include "mutator.h"

#include <unistd.h>

static void damage(char *data, size_t n)
{
    size_t at = draw((uint32_t)n);
    // most changes are in the head and the tail, which have sizes and flags
    if (draw(3))
        at = draw(2) ? at % MR_MIN(n, (size_t)200) : n - 1 - at % MR_MIN(n, (size_t)200);
    size_t wide = 1 + draw(6);
    switch (draw(4)) {
    case 0: data[at] ^= (char)(1 << draw(8)); break;
    case 1: data[at] = (char)draw(256); break;
    case 2: memset(data + at, draw(2) ? 0xff : 0, MR_MIN(n - at, wide)); break;
    case 3: memmove(data + at, data + draw((uint32_t)(n - (n - at) / 2)), (n - at) / 2); break;
    }
}

static void use(const mr_tokenizer *t)
{
    char text[200], *s;
    size_t n = draw(sizeof text), count, bytes;
    int32_t *ids;
    const mr_piece *p = mr_tokenizer_piece(t, draw((uint32_t)mr_tokenizer_count(t)));
    for (size_t i = 0; i < n; i++)
        text[i] = draw(3) ? "ab c<>\xe2\x96\x81"[draw(9)] : (char)draw(256);
    if (p->bytes < n)
        memcpy(text, p->text, p->bytes);
    if (!CHECK_OK(mr_tokenizer_encode(t, text, n, &ids, &count)))
        return;
    for (size_t i = 0; i < count; i++)
        CHECK(mr_tokenizer_piece(t, ids[i]));
    CHECK_OK(mr_tokenizer_decode(t, ids, count, &s, &bytes));
    mr_free(s);
    CHECK_OK(mr_tokenizer_normal(t, text, n, &s, &bytes));
    mr_free(s);
    mr_free(ids);
    CHECK(mr_tokenizer_find(t, p->text, p->bytes) >= 0);
}

static bool round_of(const char *good, size_t n, const char *path)
{
    char *data = malloc(n), text[4096];
    mr_tokenizer *t;
    memcpy(data, good, n);
    for (uint32_t k = draw(6); k > 0; k--)
        damage(data, n);
    size_t kept = draw(12) ? n : draw((uint32_t)n);
    write_blob(path, &(blob){.data = data, .n = kept});
    free(data);
    mr_status st = mr_tokenizer_open(path, &t);
    if (st == MR_OK) {
        for (int i = 0; i < 4; i++)
            use(t);
        mr_tokenizer_close(t);
        return true;
    }
    mr_error_format(mr_error_last(), text, sizeof text);
    CHECK(st == MR_E_FORMAT && !t && strstr(text, path));
    return false;
}

int main(void)
{
    static const char *const names[] = {"bytes", "raw", "suffix", "plain", "t5"};
    char path[256], from[256], *good;
    size_t n;
    snprintf(path, sizeof path, "/tmp/moonreel-token-fuzz-%ld.model", (long)getpid());
    for (size_t k = 0; k < MR_COUNT(names); k++) {
        uint64_t opened = 0;
        snprintf(from, sizeof from, "spec/golden/token/%s.model", names[k]);
        if (!CHECK_OK(mr_file_read_all(from, &good, &n)))
            continue;
        fuzz_rounds r = fuzz_start(300);
        while (fuzz_next(&r, k))
            opened += round_of(good, n, path);
        printf("%s: seed %llu, %llu rounds, %llu opened\n", names[k], (unsigned long long)r.seed,
               (unsigned long long)r.n, (unsigned long long)opened);
        CHECK(opened * 10 >= r.n && opened < r.n * 9 / 10);
        mr_free(good);
    }
    remove(path);
    return check_done();
}
