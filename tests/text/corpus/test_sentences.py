"""Sentences: where they end, that nothing is lost, that long lines take linear time."""

import hypothesis
import pytest
from hypothesis import strategies

from text.corpus.sentences import split_sentences


@pytest.mark.parametrize(
    "marked",
    [
        "It rained.| We left!| Why?| Nobody knows.",
        "Dr. Smith met Mr. J. R. Brown.| They talked.",
        "He moved to the U.S. in 1990.| It grew by 3.5 percent.",
        "They met at 5 p.m.| The shop was shut.",
        "Fruit, e.g. apples, etc. and so on.| See Fig. 3 and vol. 12 for more.",
        "Acme Inc. Holdings sold it.| He said no.| Then he left.",
        '"Stop!"| He ran (fast.)| “Why?” she said.| ‘Go.’| Yes.',
        "Wait... what?| Well…| He left…| »Ja.«| Er ging.",
        "See https://a.org/b.html?c=1 or mail a.b@c.org.| Version 2.0.1 is out.",
        "1. Take flour.| 2. Add 3 eggs.| It was 1990.| Then came 1991.",
        "Quoi ?| « Non.\u00a0»| Il est parti.",
        "他走了。|“你好吗？”|我说：好！|３．１４元。",
        "雨が降った。|「行くよ。」と彼は言った。|「はい。」|彼も来た？！|うん",
        "비가 왔다.| 그만 해.| 나는 갔어요.| 정말요?| 네!",
        "هل جاء الولد؟| نعم، جاء.| وذهب.",
        "वह आया।| वह गया।| क्या हुआ?| कुछ नहीं।",
        "nothing is capital here.| so a small letter says nothing.",
        "no stop at all",
        "A title\n\n|A paragraph on\ntwo lines.| And more.",
        "he saw it . | Then it was tokenized text .",
    ],
)
def test_sentences_end_where_marked(marked):
    expected = [" ".join(part.split()) for part in marked.split("|")]
    assert split_sentences(marked.replace("|", "")) == expected


@pytest.mark.parametrize("text", ["", " \n\t ", "\n\n\n"])
def test_white_space_holds_no_sentence(text):
    assert split_sentences(text) == []


ALPHABET = 'aB1é한。！.?!…"”)« \n\u00a0\0'


@hypothesis.given(
    strategies.text(strategies.sampled_from(ALPHABET)) | strategies.text()
)
def test_nothing_is_lost_but_white_space(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(s == " ".join(s.split()) and s for s in sentences)
    if set(text) <= set(ALPHABET) - set("。！"):
        assert " ".join(sentences) == " ".join(text.split())


@pytest.mark.parametrize("unit", [".", '."', "Mr. ", "\n ", "a", " ", "。"])
def test_a_line_of_a_megabyte_is_split_in_linear_time(unit):
    # Quadratic time would be hours here, so there is no clock to read.
    text = unit * (1_000_000 // len(unit))
    assert len("".join("".join(split_sentences(text)).split())) == sum(
        not character.isspace() for character in text
    )
