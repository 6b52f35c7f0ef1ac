/* token: reads a model file: pieces, flags of the trainer, rules of the normal form.
 * Ref: sentencepiece_model.proto of the library. Licence: Apache-2.0 */
#include "token/room.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 256 << 20, PIECE_MAX = 1 << 16, PIECES_MAX = 1 << 24 };

#define BAD(t, ...)     bad((t)->path, __VA_ARGS__)
#define NO_UNIGRAM      "expected a SentencePiece unigram model (spiece.model)"
#define UNKNOWN_DECODES " \xe2\x81\x87 "

MR_PRINTF(2, 3) static mr_status bad(const char *path, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return mr_fail(MR_E_FORMAT, "%s: %s", path, text);
}

/* ---- pieces ---- */

static mr_status check_piece(const mr_tokenizer *t, const mr_piece *p)
{
    if (!p->bytes || p->bytes > PIECE_MAX || memchr(p->text, 0, p->bytes))
        return BAD(t,
                   "damaged: piece %d has %u bytes or contains a zero byte; expected 1 to %d bytes "
                   "without zero",
                   t->n, p->bytes, PIECE_MAX);
    if (p->kind < MR_PIECE_NORMAL || p->kind > MR_PIECE_BYTE)
        return BAD(t, "damaged: piece %d is of kind %d; expected 1 to %d", t->n, (int)p->kind,
                   MR_PIECE_BYTE);
    if (!isfinite(p->score))
        return BAD(
            t,
            "damaged: the score of piece %d is not finite; expected a logarithm of a probability",
            t->n);
    return MR_OK;
}

static mr_status add_piece(mr_tokenizer *t, mr_lent rest)
{
    mr_piece p = {.kind = MR_PIECE_NORMAL};
    bool damaged = false;
    for (mr_field f; mr_field_next(&rest, &f, &damaged);) {
        if (f.number == 1 && f.wire_type == MR_WIRE_TEXT)
            p.text = f.text.at, p.bytes = (uint32_t)MR_MIN(f.text.n, UINT32_MAX);
        else if (f.number == 2 && f.wire_type == MR_WIRE_4)
            p.score = mr_field_float(&f);
        else if (f.number == 3 && f.wire_type == MR_WIRE_INT)
            p.kind = (mr_piece_kind)MR_MIN(f.value, 99);
        else if (f.number <= 3)
            damaged = true;
    }
    if (damaged)
        return BAD(t, "damaged: cannot read piece %d; " NO_UNIGRAM, t->n);
    MR_TRY(check_piece(t, &p));
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 1024;
        if (cap > PIECES_MAX)
            return BAD(t, "damaged: it has more than %d pieces; expected fewer", PIECES_MAX / 2);
        mr_piece *grown = mr_realloc(t->pieces, sizeof *grown * (size_t)cap);
        if (!grown)
            return mr_fail_memory(sizeof *grown * (size_t)cap);
        t->pieces = grown, t->cap = cap;
    }
    t->pieces[t->n++] = p;
    return MR_OK;
}

/* The byte that a piece such as <0x0A> represents; -1 if it is not such a piece. */
static int byte_of(const mr_piece *p)
{
    static const char digits[] = "0123456789ABCDEF";
    if (p->bytes != 6 || memcmp(p->text, "<0x", 3) || p->text[5] != '>')
        return -1;
    const char *high = strchr(digits, p->text[3]), *low = strchr(digits, p->text[4]);
    return high && low ? (int)(16 * (high - digits) + (low - digits)) : -1;
}

/* Collect facts about all pieces, and check that the required ones exist. */
static mr_status look_through(mr_tokenizer *t)
{
    t->unknown = -1;
    t->worst = FLT_MAX;
    memset(t->bytes, -1, sizeof t->bytes);
    for (int i = 0; i < t->n; i++) {
        const mr_piece *p = &t->pieces[i];
        if (p->kind == MR_PIECE_NORMAL) {
            t->worst = fminf(t->worst, p->score);
        } else if (p->kind == MR_PIECE_USER) {
            t->has_user = true;
        } else if (p->kind == MR_PIECE_UNKNOWN) {
            if (t->unknown >= 0)
                return BAD(t, "damaged: pieces %d and %d are both the unknown piece; expected one",
                           t->unknown, i);
            t->unknown = i;
        } else if (p->kind == MR_PIECE_BYTE) {
            int byte = byte_of(p);
            if (byte < 0)
                return BAD(
                    t, "damaged: byte piece %d has no byte as text; expected <0x00> to <0xFF>", i);
            t->bytes[byte] = i;
        }
    }
    if (t->unknown < 0)
        return BAD(t, "none of its %d pieces is the unknown piece; " NO_UNIGRAM, t->n);
    for (int byte = 0; byte < 256 && t->by_bytes; byte++)
        if (t->bytes[byte] < 0)
            return BAD(t,
                       "damaged: its byte fallback is on, but the piece <0x%02X> is missing; "
                       "expected <0x00> to <0xFF>",
                       byte);
    return MR_OK;
}

/* ---- rules ---- */

static mr_status read_trainer(mr_tokenizer *t, mr_lent rest)
{
    static const char *const types[] = {"unigram", "BPE", "word", "char"};
    bool damaged = false;
    uint64_t type = 1;
    for (mr_field f; mr_field_next(&rest, &f, &damaged);) {
        bool whole = f.wire_type == MR_WIRE_INT;
        switch (f.number) {
        case 3: type = f.value, damaged |= !whole; break;
        case 24: t->space_after = f.value != 0, damaged |= !whole; break;
        case 35: t->by_bytes = f.value != 0, damaged |= !whole; break;
        case 44: t->unknown_text = f.text, damaged |= f.wire_type != MR_WIRE_TEXT; break;
        default: break; // options of the training
        }
    }
    if (damaged)
        return BAD(t, "damaged: cannot read its trainer_spec; " NO_UNIGRAM);
    if (type < 1 || type > MR_COUNT(types))
        return BAD(t, "the model type %llu is unknown; " NO_UNIGRAM, (unsigned long long)type);
    if (type != 1)
        return BAD(t, "it is a SentencePiece model of type %s; " NO_UNIGRAM, types[type - 1]);
    return MR_OK;
}

static mr_status read_rules(mr_tokenizer *t, mr_lent rest, mr_normal_rules *out)
{
    bool damaged = false;
    *out = (mr_normal_rules){.prefix = true, .remove_extra = true, .escape = true};
    for (mr_field f; mr_field_next(&rest, &f, &damaged);) {
        bool *const flags[] = {&out->prefix, &out->remove_extra, &out->escape};
        if (f.number == 2) {
            const char *wrong = f.wire_type == MR_WIRE_TEXT ? mr_charmap_open(f.text, &out->map)
                                                            : "is not a byte string";
            if (wrong)
                return BAD(t, "damaged: its map of characters %s", wrong);
        } else if (f.number >= 3 && f.number <= 5) {
            *flags[f.number - 3] = f.value != 0;
            damaged |= f.wire_type != MR_WIRE_INT;
        }
    }
    return damaged ? BAD(t, "damaged: cannot read its normalizer_spec; " NO_UNIGRAM) : MR_OK;
}

static mr_status read_part(mr_tokenizer *t, const mr_field *f)
{
    switch (f->number) {
    case 1: return add_piece(t, f->text);
    case 2: return read_trainer(t, f->text);
    case 3: return read_rules(t, f->text, &t->normal);
    case 5: t->denormalizes = true; return read_rules(t, f->text, &t->denormal);
    default: return MR_OK; // tests of the trainer, fields of later versions
    }
}

/* ---- open ---- */

static mr_status read_model(mr_tokenizer *t, mr_lent rest)
{
    bool damaged = false;
    // a file can omit fields that have the default
    t->normal = (mr_normal_rules){.prefix = true, .remove_extra = true, .escape = true};
    t->unknown_text = (mr_lent){UNKNOWN_DECODES, sizeof UNKNOWN_DECODES - 1};
    if (rest.n && *rest.at == '{')
        return BAD(t, "it is JSON, the tokenizer of another library; " NO_UNIGRAM);
    for (mr_field f; mr_field_next(&rest, &f, &damaged);) {
        if (f.number <= 5 && f.wire_type != MR_WIRE_TEXT)
            return BAD(t, "damaged, or another format; " NO_UNIGRAM);
        MR_TRY(read_part(t, &f));
    }
    if (damaged || !t->n)
        return BAD(t, "%s; " NO_UNIGRAM, damaged ? "damaged, or another format" : "no pieces");
    return MR_OK;
}

static mr_status open_file(mr_tokenizer *t)
{
    size_t bytes;
    if (mr_file_read_small(t->path, FILE_MAX, &t->file, &bytes) != MR_OK)
        return mr_fail_note("%s: " NO_UNIGRAM, t->path);
    MR_TRY(read_model(t, (mr_lent){t->file, bytes}));
    MR_TRY(look_through(t));
    // each list is large enough for all pieces; mr_pieces_sort uses the rest of `others` to merge
    t->sorted = mr_calloc((size_t)t->n, sizeof *t->sorted);
    t->others = mr_calloc((size_t)t->n * 2, sizeof *t->others);
    if (!t->sorted || !t->others)
        return mr_fail_memory(sizeof *t->sorted * (size_t)t->n);
    const mr_piece *twice = mr_pieces_sort(t);
    return twice ? BAD(t, "damaged: the piece '%.*s' comes twice", (int)MR_MIN(twice->bytes, 40),
                       twice->text)
                 : MR_OK;
}

mr_status mr_tokenizer_open(const char *path, mr_tokenizer **out)
{
    mr_tokenizer *t;
    *out = NULL;
    if (!MR_NEW(t))
        return mr_fail_memory(sizeof *t);
    mr_status st = (t->path = mr_strdup(path)) ? open_file(t) : mr_fail_memory(strlen(path));
    mr_fail_try(st, "copy or download the spiece.model of this text encoder again");
    if (st != MR_OK)
        mr_tokenizer_close(t);
    else
        *out = t;
    return st;
}

void mr_tokenizer_close(mr_tokenizer *t)
{
    if (!t)
        return;
    mr_free(t->sorted);
    mr_free(t->others);
    mr_free(t->pieces);
    mr_free(t->file);
    mr_free(t->path);
    mr_free(t);
}

const char *mr_tokenizer_path(const mr_tokenizer *t)
{
    return t->path;
}
int mr_tokenizer_count(const mr_tokenizer *t)
{
    return t->n;
}
int mr_tokenizer_unknown(const mr_tokenizer *t)
{
    return t->unknown;
}
const mr_piece *mr_tokenizer_piece(const mr_tokenizer *t, int64_t id)
{
    return id >= 0 && id < t->n ? &t->pieces[id] : NULL;
}
