"""Texts that tokenizers disagree on: all of Unicode, spaces, marks, special tokens."""

import random
import unicodedata

SPECIAL = (
    *("[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", "<s>", "</s>", "<unk>", "<mask>"),
    *("<pad>", "<cls>", "<sep>", "<eod>", "<eop>", "<extra_id_0>", "<extra_id_99>"),
)
_WORDS = (
    "the sine of a tensor computes \u00e9lan na\u00efve \u00dcber stra\u00dfe "
    "\u03a3\u038a\u03a3\u03a5\u03a6\u039f\u03a3 \u039f\u0394\u039f\u03a3 \u0130stanbul "
    "don't 3.5 1,000 12,345.67 9, a9,b U.S. e-mail co-op (x) ``quoted'' ''x '' `` \u2013 "
    "\u2014 \u00a35 \u20ac7 \uad7f \ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e \u304c "
    "\u30ac\u30c6 \u4e2d\u6587 \U00020000 \u0939\u093f\u0928\u094d\u0926\u0940 "
    "\u0e20\u0e32\u0e29\u0e32 \u05e2\u05d1 \u0627\u0644 \U0001f469\u200d\U0001f467 "
    "\U0001f44d\U0001f3fd \U0001f1f0\U0001f1f7 \u2764\ufe0f a\u0301\u0328 q\u0323\u0307 "
    "\u01c4 \u01c5 \u1e9e \u017f \u212a \ufdfa \u338f \u2460 \u2167 \u00b2 \uff8a\uff9f "
    "\uff21\uff22 \uff11\uff12 \uff0c\u3002 \u2026 \u2018\u2019 \u00ab\u00bb \u00ad "
    "\u200b \u200d \u2060 \ufeff \ud7ff \ue000 \ufffd \uffff \U00010000 \U0010ffff"
).split(" ")
_BLOCKS = (
    *((0, 0x20), (0x20, 0x7F), (0x7F, 0xA0), (0xA0, 0x250), (0x250, 0x370)),
    *((0x300, 0x370), (0x370, 0x530), (0x530, 0x900), (0x900, 0x1100)),
    *((0x1100, 0x1200), (0x1200, 0x2000), (0x2000, 0x2070), (0x2070, 0x2E80)),
    *((0x2E80, 0x3400), (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xA000, 0xAC00)),
    *((0xAC00, 0xD7A4), (0xD7A4, 0xD800), (0xE000, 0xF900), (0xF900, 0x10000)),
    *((0x10000, 0x11000), (0x11000, 0x12000), (0x12000, 0x1F000)),
    *((0x1F000, 0x20000), (0x20000, 0x32000), (0xE0000, 0xE01F0)),
    (0xF0000, 0x110000),
)
_SPACES = (
    *(" " * 8 + "\t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u3000\u200b"),
    *("  ", "\r\n", ""),
)
_FORMS = "NFC", "NFD", "NFKC", "NFKD"
_LONG = "ab", "9", "\ud55c", "-"


def _word(drawn: random.Random) -> str:
    def some(first, last, most):
        number = drawn.randrange(1, most)
        return "".join(chr(drawn.randrange(first, last)) for _ in range(number))

    block = drawn.choice(_BLOCKS)
    made = (
        lambda: drawn.choice(_WORDS),
        lambda: "".join(some(*drawn.choice(_BLOCKS), 2) for _ in range(3)),
        lambda: some(*block, 8),
        lambda: some(0x61, 0x7B, 9),
        lambda: "".join(drawn.choice("0123456789.,-:/") for _ in range(6)),
        lambda: unicodedata.normalize(
            drawn.choice(_FORMS), drawn.choice(_WORDS) + some(*block, 2)
        ),
        lambda: unicodedata.normalize(drawn.choice(_FORMS), some(0xAC00, 0xD7A4, 4)),
        lambda: drawn.choice("abc\u00e9\ud55c") + some(0x300, 0x370, 3),
        lambda: drawn.choice(SPECIAL),
        lambda: drawn.choice(_LONG) * drawn.randrange(40, 230),
        lambda: drawn.choice(_WORDS).upper() + drawn.choice(_WORDS),
    )
    (make,) = drawn.choices(made, (30, 12, 10, 10, 8, 8, 6, 6, 3, 1, 6))
    return make()


def texts(number: int, seed: int = 0) -> list[str]:
    """That many, the same ones for a seed; without surrogates, which have no UTF-8."""
    drawn = random.Random(seed)
    return [
        "".join(
            _word(drawn) + drawn.choice(_SPACES) for _ in range(drawn.randrange(1, 8))
        )
        for _ in range(number)
    ]
