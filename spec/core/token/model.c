/* token/model: models that open, and files that must not: each error names the file and what is
 * wrong with it. */
#include "tokencase.h"

static const char *path;

static void refuse(const model *m, const char *part)
{
    mr_tokenizer *t = (mr_tokenizer *)m;
    path = write_model(m);
    CHECK_FAILS(mr_tokenizer_open(path, &t), MR_E_FORMAT, part);
    CHECK(!t && strstr(mr_error_last()->text, path) && check_tries());
    remove(path);
}

/* A model that is valid except for the bytes after it. */
static model good(void)
{
    model m = {0};
    put_piece(&m, "<unk>", 0, MR_PIECE_UNKNOWN);
    put_piece(&m, "a", -1, MR_PIECE_NORMAL);
    return m;
}

static void of_type(uint64_t type, const char *part)
{
    model m = good();
    put_flags(&m, 2, FLAGS({3, type}));
    refuse(&m, part);
}

static void pieces_that_are_wrong(void)
{
    model m = good();
    put_piece(&m, "", 0, MR_PIECE_NORMAL);
    refuse(&m, "piece 2 has 0 bytes");
    m = good();
    put_text(&m, 1, "\x0a\x02\0z", 4);
    refuse(&m, "or contains a zero byte");
    m = good();
    put_piece(&m, "a", -2, MR_PIECE_NORMAL);
    refuse(&m, "the piece 'a' comes twice");
    m = good();
    put_piece(&m, "</s>", 0, MR_PIECE_CONTROL);
    put_piece(&m, "</s>", 0, MR_PIECE_CONTROL);
    refuse(&m, "the piece '</s>' comes twice");
    m = good();
    put_piece(&m, "b", NAN, MR_PIECE_NORMAL);
    refuse(&m, "the score of piece 2 is not finite");
    m = good();
    put_piece(&m, "b", -INFINITY, MR_PIECE_NORMAL);
    refuse(&m, "is not finite");
    m = good();
    put_piece(&m, "b", 0, 7);
    refuse(&m, "piece 2 is of kind 7; expected 1 to 6");
    m = good();
    put_piece(&m, "<u>", 0, MR_PIECE_UNKNOWN);
    refuse(&m, "pieces 0 and 2 are both the unknown piece");
    m = good();
    put_text(&m, 1, "\x10\x01", 2); // a score that is an integer
    refuse(&m, "cannot read piece 2");
    m = (model){0};
    put_piece(&m, "a", 0, MR_PIECE_NORMAL);
    refuse(&m, "none of its 1 pieces is the unknown piece");
}

static void bytes_that_are_wrong(void)
{
    model m = good();
    put_piece(&m, "<0xG0>", 0, MR_PIECE_BYTE);
    refuse(&m, "byte piece 2 has no byte as text");
    m = good();
    for (int i = 0; i < 255; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", i);
        put_piece(&m, name, 0, MR_PIECE_BYTE);
    }
    put_flags(&m, 2, FLAGS({35, 1}));
    refuse(&m, "the piece <0xFF> is missing");
    put_piece(&m, "<0xFF>", 0, MR_PIECE_BYTE);
    mr_tokenizer *t = open_model(&m);
    CHECK(t && t->by_bytes && t->bytes[255] == 257 && t->bytes[0] == 2);
    mr_tokenizer_close(t);
}

int main(void)
{
    model m = good();
    // unknown fields belong to later versions
    put_int(&m, 200, 5);
    put_flags(&m, 2, FLAGS({3, 1}, {24, 1}, {99, 7}));
    put_flags(&m, 3, FLAGS({3, 0}, {4, 1}, {5, 0}, {99, 7}));
    mr_tokenizer *t = open_model(&m);
    CHECK(t && t->space_after && !t->normal.prefix && t->normal.remove_extra && !t->normal.escape);
    CHECK(t && !t->denormalizes && !t->by_bytes && t->worst == -1);
    CHECK_STR(mr_tokenizer_path(t), model_path);
    mr_tokenizer_close(t);
    mr_tokenizer_close(NULL);
    // missing fields have the defaults of the format
    m = good();
    t = open_model(&m);
    CHECK(t && !t->space_after && t->normal.prefix && t->normal.remove_extra && t->normal.escape);
    mr_tokenizer_close(t);

    of_type(2, "of type BPE; expected a SentencePiece unigram model (spiece.model)");
    of_type(3, "of type word");
    of_type(4, "of type char");
    of_type(9, "the model type 9 is unknown");
    pieces_that_are_wrong();
    bytes_that_are_wrong();

    m = (model){0};
    refuse(&m, "no pieces");
    put(&m, "{\"model\": {}}", 13);
    refuse(&m,
           "it is JSON, the tokenizer of another library; expected a SentencePiece unigram model");
    m = (model){0};
    put(&m, "neither this nor that", 21);
    refuse(&m, "damaged, or another format");
    m = good();
    m.n--;
    refuse(&m, "damaged");
    m = good();
    put_text(&m, 3, "\x12\x03xyz", 5);
    refuse(&m, "its map of characters is truncated");
    m = good();
    put_text(&m, 3, "\x10\x03", 2);
    refuse(&m, "its map of characters is not a byte string");
    m = good();
    put_text(&m, 3, "\x1a\x00", 2);
    refuse(&m, "cannot read its normalizer_spec");
    m = good();
    put_text(&m, 2, "\x1a\x00", 2);
    refuse(&m, "cannot read its trainer_spec");

    CHECK_FAILS(mr_tokenizer_open("/tmp/there/is/no/spiece.model", &t), MR_E_IO,
                "/tmp/there/is/no/spiece.model");
    CHECK(strstr(mr_error_last()->text, "expected a SentencePiece unigram model"));
    CHECK_FAILS(mr_tokenizer_open("/tmp", &t), MR_E_IO, "/tmp");

    // each allocation may fail
    m = good();
    path = write_model(&m);
    mr_status st = MR_E_MEMORY;
    for (int64_t at = 1; st == MR_E_MEMORY && at < 50; at++) {
        mr_alloc_fail_at(at);
        st = mr_tokenizer_open(path, &t);
        mr_alloc_fail_at(0);
        CHECK(st == MR_OK || (st == MR_E_MEMORY && !t));
    }
    CHECK_INT(st, MR_OK);
    mr_tokenizer_close(t);
    remove(path);
    return check_done();
}
