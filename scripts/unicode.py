"""Write the tables of lua/moonreel/caption/unicode_tables.lua: what Python takes for letters and digits, decimal
digits and white space, its small letters, and the names of characters in HTML 4.

Usage: python3 scripts/unicode.py > lua/moonreel/caption/unicode_tables.lua   (made with Python 3.11, Unicode 14)
"""
import html.entities
import textwrap


def characters():
    return [c for c in range(0x80, 0x110000) if not 0xd800 <= c < 0xe000]


def ranges(is_one):
    """First codes of ranges and their lengths less one, the first as a distance from the range before."""
    out, before, first, last = [], 0, None, None
    for c in characters() + [None]:
        if c is not None and is_one(chr(c)):
            if first is None:
                first = c
            last = c
        elif first is not None:
            out.append("%x" % (first - before) + ("-%x" % (last - first) if last > first else ""))
            before, first = last, None
    return " ".join(out)


def small_letters():
    """Rows first-last-step-distance of capitals whose small letter is one character."""
    pairs = [(c, ord(chr(c).lower()) - c) for c in characters() if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
    rows, i = [], 0
    while i < len(pairs):
        best, step_of_best = i, 1
        for step in (1, 2):
            j = i
            while j + 1 < len(pairs) and pairs[j + 1] == (pairs[j][0] + step, pairs[i][1]):
                j += 1
            if j > best:
                best, step_of_best = j, step
        rows.append("%d-%d-%d/%d" % (pairs[i][0], pairs[best][0], step_of_best, pairs[i][1]))
        i = best + 1
    return " ".join(rows)


def text(name, value):
    lines = textwrap.wrap(value, 96, break_long_words=False)
    return "  %s = [[\n%s\n]],\n" % (name, "\n".join(lines))


print("--- Classes of characters, small letters, names in HTML, by scripts/unicode.py.")
print("-- @module moonreel.caption.unicode_tables")
print("return {")
print(text("word", ranges(str.isalnum)), end="")
print(text("digit", ranges(str.isdecimal)), end="")
print(text("space", ranges(str.isspace)), end="")
print(text("small", small_letters()), end="")
# two of HTML 4's became others in HTML 5
names = dict(html.entities.name2codepoint, lang=0x27e8, rang=0x27e9)
print(text("names", " ".join("%s=%d" % pair for pair in sorted(names.items()))), end="")
print("}")
