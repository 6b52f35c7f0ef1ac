/* data/compress: captions through a dictionary, in an index, and damaged. */
#include "check.h"
#include "index/builder.h"
#include "rows.h"

static const char *const words[] = {"a",      "red",   "blue",   "small",   "ball", "square",
                                    "rolls",  "moves", "slowly", "quickly", "to",   "the",
                                    "left",   "right", "of",     "picture", "on",   "green",
                                    "ground", "while", "camera", "stands",  "still"};

static void make_caption(uint64_t i, char *text, size_t cap)
{
    size_t n = 0;
    for (int w = 0; w < 45; w++)
        n += (size_t)snprintf(text + n, cap - n, "%s%s", w ? " " : "",
                              words[MR_MIX(i, (uint64_t)w) % MR_COUNT(words)]);
}

int main(void)
{
    enum { N = 3000 };
    static char texts[N][600];
    index_source s[2];
    size_t plain = 0;
    for (int whole = 0; whole < 2; whole++)
        CHECK_OK(index_source_init(&s[whole], clips_path("s.mrx"), "main"));
    for (uint64_t i = 0; i < N; i++) {
        make_caption(i, texts[i], sizeof texts[i]);
        for (int whole = 0; whole < 2; whole++)
            if (whole || i < 100)
                CHECK_OK(index_source_add(
                    &s[whole], &(index_input){.path = "x", .text = texts[i], .line = i}));
        plain += strlen(texts[i]);
    }
    index_pack dict = {0};
    CHECK_OK(index_dict_train(&s[0], &dict));
    CHECK_INT(dict.n, 0); // small lists stay plain
    for (int n = 1; n <= 4; n++) {
        mr_alloc_fail_at(n);
        CHECK(index_dict_train(&s[1], &dict) == MR_E_MEMORY);
        mr_alloc_fail_at(0);
    }
    CHECK_OK(index_dict_train(&s[1], &dict));
    for (int whole = 0; whole < 2; whole++)
        index_source_fini(&s[whole]);
    if (!CHECK(dict.n > 1000))
        return check_done();

    mr_index_facts facts[2];
    for (int compressed = 0; compressed < 2; compressed++) {
        mr_index_builder *b;
        uint16_t root;
        if (!CHECK_OK(mr_index_builder_new(clips_path("s.mrx"), NULL, &b)))
            return check_done();
        CHECK_OK(mr_index_builder_root(b, "/nowhere", &root));
        if (compressed)
            CHECK_OK(mr_index_builder_dictionary(b, dict.bytes, dict.n));
        for (uint64_t i = 0; i < N; i++) {
            char path[64], short_text[64];
            mr_caption caption[2];
            int64_t keys[4];
            mr_row row = rows_make(1, i, path, short_text, caption, keys);
            caption[0].text = texts[i], caption[1] = (mr_caption){"short", ""}, row.n_captions = 2;
            CHECK_OK(mr_index_builder_add(b, &row));
        }
        if (compressed)
            CHECK_FAILS(mr_index_builder_dictionary(b, dict.bytes, dict.n), MR_E_USAGE,
                        "before the first");
        CHECK_OK(mr_index_builder_finish(b));
        mr_index_builder_free(b);
        mr_index *ix;
        mr_index_reader *reader;
        mr_row row;
        if (!CHECK_OK(mr_index_open(clips_path("s.mrx"), true, &ix)) ||
            !CHECK_OK(mr_index_reader_new(ix, &reader)))
            return check_done();
        facts[compressed] = mr_index_get_facts(ix);
        for (uint64_t i = 0; i < N; i += 13) {
            if (!CHECK_OK(mr_index_row(reader, i, &row)))
                break;
            CHECK_INT(row.n_captions, 2);
            CHECK_STR(row.captions[0].text, texts[i]);
            CHECK_STR(row.captions[1].text, "");
            CHECK_STR(row.captions[1].tag, "short");
        }
        mr_index_reader_free(reader);
        mr_index_unref(ix);
    }
    // the way captions are stored does not change their hash
    CHECK(memcmp(&facts[0], &facts[1], sizeof facts[0]) == 0);

    // a value on its own: smaller, and damage within its checksum is reported
    index_compress *compress;
    index_decompress *u;
    void *context = index_decompress_context();
    CHECK_OK(index_compress_new(dict.bytes, dict.n, &compress));
    CHECK_OK(index_decompress_new(dict.bytes, dict.n, &u));
    size_t packed = 0;
    mr_arena arena;
    mr_arena_init(&arena);
    for (uint64_t i = 0; i < 200; i++) {
        index_pack p = {0};
        CHECK_OK(index_compress_put(compress, &p, texts[i]));
        packed += p.n;
        const char *text = NULL;
        index_view v = {p.bytes, p.bytes + p.n, false};
        CHECK_OK(index_decompress_get(u, context, &v, &arena, &text));
        CHECK_STR(text, texts[i]);
        v = (index_view){p.bytes, p.bytes + p.n, false};
        CHECK_FAILS(index_decompress_get(NULL, context, &v, &arena, &text), MR_E_DATA,
                    "no dictionary");
        memset(p.bytes + 4, 0xff, p.n - 4);
        v = (index_view){p.bytes, p.bytes + p.n, false};
        CHECK_INT(index_decompress_get(u, context, &v, &arena, &text), MR_E_DATA);
        mr_free(p.bytes);
    }
    printf("captions: %zu bytes plain, %zu packed\n", plain * 200 / N, packed);
    CHECK(packed * 2 < plain * 200 / N);
    mr_arena_fini(&arena);
    index_compress_free(compress);
    index_decompress_free(u);
    index_decompress_context_free(context);
    mr_free(dict.bytes);
    return check_done();
}
