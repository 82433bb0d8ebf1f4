"""The page of mistakes, as a person sees it in a wide and in a narrow window."""

import re

import pytest

from training.finetuning import mistakes
from training.finetuning.task import Judgement

_ANSWER = (
    "함장의 능란한 조함 능력과 냉정한 지휘만이 기록되어 있다. 함포 사격으로 성을 공격"
)
_JUDGEMENTS = {
    "questions": Judgement(
        f"함장의 이름은 무엇인가?\n6507797-1-0\n{_ANSWER * 20}",
        "마쓰오카 바키치",
        _ANSWER,
        0.9,
        {_ANSWER: 0.9, f"{_ANSWER} {_ANSWER}": 0.05, "마쓰오카 바키치": 0.01},
    ),
    "long words": Judgement("a" * 900, "b" * 300, "c" * 300, 0.5, {"c" * 300: 0.5}),
    "right to left": Judgement("من كتب الرواية؟", "جين أوستن", "كاساندرا", 0.5),
}


@pytest.fixture(params=[1280, 400])
def page(browser, tmp_path, request):
    path = tmp_path / "mistakes.html"
    judgements = list(_JUDGEMENTS.values())
    content = mistakes.render([mistakes.Page("dev", {}, judgements, False)], "dev")
    path.write_text(content, encoding="utf-8")
    browser.get("about:blank")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": request.param, "height": 900, "deviceScaleFactor": 1, "mobile": True},
    )
    browser.get(path.as_uri())
    return browser


@pytest.mark.parametrize(
    ("wrong", "right", "title"),
    [
        (1, 0, "1 mistake in 1 answer"),
        (0, 2, "0 mistakes in 2 answers"),
        (2, 1, "All 2 mistakes in 3 answers, the worst first"),
        (101, 0, "The 100 worst of 101 mistakes in 101 answers, the worst first"),
    ],
)
def test_the_number_of_mistakes_is_said(wrong, right, title):
    judgements = [Judgement("text", "a", "b", 0.5, {})] * wrong
    judgements += [Judgement("text", "a", "a", 0.5, {})] * right
    assert f"<h3>{title}</h3>" in mistakes.render(
        [mistakes.Page("dev", {}, judgements)], "dev"
    )


def test_parts_of_an_answer_are_in_the_matrix_and_the_whole_in_the_list():
    parts = [("N", "N"), ("N", "V"), ("N", "V"), ("V", "V")]
    judgements = [
        Judgement("flies [a] [b]", "a/N b/N", "a/V b/V", 0.5, pairs=parts),
        Judgement("all right", "", "", 0.1, pairs=[("V", "V")]),
    ]
    page = mistakes.render([mistakes.Page("dev", {}, judgements)], "dev")
    assert "<h3>1 wrong sentence in 2 sentences</h3>" in page
    rows = re.findall("<tr><th>([NV])</th>(.*?)</tr>", page)
    assert [(name, re.findall(">([0-9]+)<", row)) for name, row in rows] == [
        ("N", ["1", "2"]),
        ("V", ["0", "2"]),
    ]


def test_texts_and_answers_have_room_in_any_window(page):
    of = "[...document.querySelectorAll('.text')].map((x) => x.clientWidth)"
    window = page.execute_script("return document.documentElement.clientWidth")
    widths = page.execute_script(f"return {of}")
    assert len(widths) == len(_JUDGEMENTS)
    assert min(widths) > min(500, 0.75 * window)
    # Nothing is cut off, and only a table may be wider than the window.
    assert page.execute_script("return document.documentElement.scrollWidth") == window
    answers = "[...document.querySelectorAll('.answers')]"
    fits = f"return {answers}.every((x) => x.scrollWidth <= x.clientWidth)"
    assert page.execute_script(fits)


def test_a_text_begins_on_the_side_of_its_script(page):
    direction = "(x) => getComputedStyle(x).direction"
    of = f"return [...document.querySelectorAll('.text')].map({direction})"
    assert sorted(page.execute_script(of)) == ["ltr", "ltr", "rtl"]
