"""Train five kinds of SentencePiece models and write what the library makes of strings.

    python3 make.py train OUT              five .model files and NAME.json beside each
    python3 make.py cases OUT COUNT SEED   NAME.json anew, of COUNT strings for all models together

Needs the sentencepiece package; the committed files were made with 0.2.3 and `train .`.
Strings that are no UTF-8, or hold a zero, stand as hexadecimal bytes.
"""
import glob
import json
import os
import random
import sys
import unicodedata

import sentencepiece

WORDS = """a the of and red green blue yellow white black circle square triangle star moves turns grows slowly
quickly left right up down across behind under over bright dark forest river mountain city street people walking
camera pans zooms shot close aerial view sunset night rain snow wind light water fire glass metal paper dancing
running jumping swimming flying sitting young old woman man child dog cat horse bird fish tree flower house car
train boat plane cinematic detailed realistic 4k 24 60 fps high quality slow motion""".split()
FOREIGN = ["über die Straße", "l'été à la plage", "niño pequeño", "кошка сидит на окне", "日本の桜が咲く",
           "一只红色的狐狸", "빨간 자동차가 달린다", "قطة سوداء", "חתול לבן", "ภาพถนนในเมือง", "γάτα στον ήλιο",
           "काली बिल्ली", "ﬁne ﬂow ①②③", "Ａｂｃ１２３", "x² + y² = z²", "№ 5 ½ ㎏ ㍿"]
USER = ["<cam>", "<pan left>", "4k", "fps 24", "▁tie"]
MODELS = {
    "t5": dict(normalization_rule_name="nmt_nfkc", vocab_size=420, pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "bytes": dict(normalization_rule_name="identity", vocab_size=700, byte_fallback=True, split_digits=True,
                  user_defined_symbols=USER, control_symbols=["<sep>"]),
    "raw": dict(normalization_rule_name="identity", vocab_size=260, add_dummy_prefix=False,
                remove_extra_whitespaces=False, user_defined_symbols=["  ", "a b"]),
    "suffix": dict(normalization_rule_tsv="rules.tsv", vocab_size=240, treat_whitespace_as_suffix=True,
                   denormalization_rule_tsv="back.tsv", unk_surface="(?)"),
    "plain": dict(normalization_rule_tsv="rules.tsv", vocab_size=200, remove_extra_whitespaces=False,
                  max_sentencepiece_length=4, character_coverage=0.98),
}
# own maps of characters: longer ones before shorter, one that vanishes, one that becomes a space
RULES = [("A", "a"), ("B", "b"), ("AB", "alpha beta"), ("ABC", "x"), ("\u00e9", "e"), ("e\u0301", "e"),
         ("\u0301", ""), ("\t", " "), ("\n", " "), ("\u3000", "  "), ("\u2581", " "), ("\u00df", "ss")]
BACK = [("a", "A"), ("  ", " "), ("ss", "\u00df")]


def corpus(rng):
    for i in range(3000):
        line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 18)))
        if i % 5 == 0:
            line += " " + rng.choice(FOREIGN)
        if i % 7 == 0:
            line = line.capitalize() + "."
        yield line


def write_rules(path, rules):
    with open(path, "w") as f:
        for a, b in rules:
            f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")


def train(out):
    os.makedirs(out, exist_ok=True)
    os.chdir(out)
    write_rules("rules.tsv", RULES)
    write_rules("back.tsv", BACK)
    for name, options in MODELS.items():
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus(random.Random(7)), model_prefix=name,
                                                 model_type="unigram", hard_vocab_limit=False, num_threads=1,
                                                 minloglevel=2, **options)
        os.remove(name + ".vocab")
    os.remove("rules.tsv")
    os.remove("back.tsv")


def characters(rng, k):
    """Neighbours of one place of Unicode, so that every block comes."""
    base = rng.choice([0, 0x80, 0x250, 0x300, 0x370, 0x2000, 0x2100, 0x2580, 0x3000, 0xfb00, 0xfe00, 0xff00, 0x1f300,
                       rng.randrange(0x10000), rng.randrange(0x110000)])
    text = "".join(chr(min(base + rng.randrange(64), 0x10ffff)) for _ in range(k))
    return "".join(c for c in text if not 0xd800 <= ord(c) < 0xe000)


SPACES = " \t\n\r\u00a0\u2003\u200b\u3000\u2581\ufeff\u0085\u00ad"


def some(rng):
    kind = rng.randrange(12)
    words = [rng.choice(WORDS + FOREIGN + USER) for _ in range(rng.randint(1, 12))]
    if kind < 3:
        return " ".join(words)
    if kind == 3:
        return "".join(w + rng.choice(SPACES) * rng.randrange(4) for w in words)
    if kind == 4:
        return characters(rng, rng.randint(1, 24))
    if kind == 5:
        return " ".join(rng.choice(WORDS) + characters(rng, 2) for _ in range(rng.randint(1, 8)))
    if kind == 6:
        return "".join(rng.choice("abcABCe\u0301\u00e9\u00df ") for _ in range(rng.randint(1, 30)))
    if kind == 7:
        return "".join(chr(rng.randrange(0, 0xa0)) for _ in range(rng.randint(1, 20)))
    if kind == 8:
        return unicodedata.normalize("NFD", rng.choice(FOREIGN)) + rng.choice(["\u0300", "\u20dd", "\u0489", ""])
    if kind == 9:
        return rng.choice(["</s>", "<pad>", "<unk>", "<s>", "<extra_id_0>", "<0x41>", "<sep>", *USER]) + " ".join(words)
    if kind == 10:
        return rng.choice(["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f",
                           "\U0001f1e9\U0001f1ea"]) * rng.randint(1, 3) + rng.choice(words)
    raw = " ".join(words).encode()
    at = rng.randrange(len(raw))
    return raw[:at] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 4))) + raw[at + rng.randint(0, 2):]


def always():
    yield from ["", "a", " ", "  ", "\t", "\u2581", " a", "a ", "a  b", "aaaaaaaaaaaaaaaa", "A", "AB", "ABC", "ABCABAB",
                "e\u0301", "  \u3000 x", "<cam>4k fps 24", "fps  24", "a b a  b", "\u2581tie tie", b"\xff", b"a\xc3", b"\xc3(",
                b"\xe2\x96", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\0b"]


def record(sp, text):
    ids = sp.encode(text)
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        row = {"text": raw.decode()}
    except UnicodeDecodeError:
        row = {"hex": raw.hex()}
    if 0 in raw:
        row = {"hex": raw.hex()}
    row["ids"] = ids
    norm = sp.normalize(text)
    row["norm"] = norm.decode("utf-8", "replace") if isinstance(norm, bytes) else norm
    row["back"] = sp.decode(ids)
    if "\0" in row["norm"] + row["back"]:
        del row["norm"], row["back"]
    return row


def cases(out, count, seed):
    rng = random.Random(seed)
    names = sorted(glob.glob(os.path.join(out, "*.model")))
    texts = list(always()) + [some(rng) for _ in range(count // len(names))]
    if count > 5000:
        texts += ["x" * 10000, " ".join(rng.choice(WORDS + FOREIGN) for _ in range(1500)), "\u65e5" * 3400]
        texts += ["".join(chr(c) for c in range(a, a + 16) if not 0xd800 <= c < 0xe000) for a in range(0, 0x110000, 1024)]
    for name in names:
        sp = sentencepiece.SentencePieceProcessor(model_file=name)
        rows = [record(sp, text) for text in texts]
        with open(name[:-6] + ".json", "w") as f:
            f.write('{"model": %s, "sentencepiece": "%s", "cases": [\n' % (json.dumps(os.path.basename(name)),
                                                                        sentencepiece.__version__))
            f.write(",\n".join(json.dumps(row, ensure_ascii=True) for row in rows))
            f.write("\n]}\n")


if sys.argv[1] == "train":
    train(sys.argv[2])
    cases(".", 900, 1)
else:
    cases(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
