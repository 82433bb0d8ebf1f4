"""serving/page.html in a real browser: what a person types and sees, for every form."""

import contextlib
import functools

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from serving.nearest import NearestTexts
from serving.predictor import Predictor
from serving.search import index
from tests import exports, tiers
from tests.serving.clients import serving

pytestmark = pytest.mark.slow


class Page:
    def __init__(self, browser, url):
        self.browser, self.url = browser, url
        browser.get(url)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        """What is to be read in them, at one moment."""
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((found) => found.innerText.trim())",
            selector,
        )

    def type(self, *keys, part=None):
        """Types into a part, or into what has the focus."""
        if part:
            field = self.browser.find_element(By.ID, f"part-{part}")
            field.clear()
        else:
            field = self.browser.switch_to.active_element
        if all(max(key) <= "\uffff" for key in keys):
            field.send_keys(*keys)
            return
        for key in keys:  # newer drivers have keys for the first plane of Unicode alone
            if max(key) <= "\uffff":
                field.send_keys(key)
            else:
                insert = "document.execCommand('insertText', false, arguments[0])"
                self.browser.execute_script(insert, key)

    def wait(self):
        """Until the answer or the error is there."""
        WebDriverWait(self.browser, 20, 0.02).until(
            lambda _: self.all("#send:enabled") and any(self.texts("#result, #error"))
        )


@pytest.fixture(scope="module")
def predictor_of(tmp_path_factory):
    """Maps a form, and what else its description says, to its toy model."""

    @functools.cache
    def made(form, **more):
        return Predictor(exports.write(tmp_path_factory.mktemp(form), form, **more))

    return made


@pytest.fixture
def opened(browser, predictor_of):
    """Opens the page of a form's toy model; at the end, the console has to be empty."""
    with contextlib.ExitStack() as servers:

        def call(form, **more):
            port = servers.enter_context(serving(predictor_of(form, **more)))
            return Page(browser, f"http://127.0.0.1:{port}/")

        yield call
        assert browser.get_log("browser") == []


def test_label(opened):
    page = opened("label")
    page.type("a good 🐈", Keys.ENTER)  # the field has the focus
    page.wait()
    assert page.texts("h2") == ["positive"]
    assert page.texts(".bar") == ["positive\n90.0%", "negative\n10.0%"]
    assert page.texts(".bar.best") == ["positive\n90.0%"]
    long, short = (bar.size["width"] for bar in page.all(".track > div"))
    assert long == pytest.approx(9 * short, rel=0.02)
    page.type("bad", Keys.ENTER, part="text_a")
    WebDriverWait(page.browser, 20).until(lambda _: page.texts("h2") == ["negative"])


def test_labels(opened):
    page = opened("labels")
    page.type("money and sport", Keys.ENTER)
    page.wait()
    assert page.texts("h2") == ["sport, money"]
    assert len(page.all(".bar.best")) == 2
    page.type("weather", Keys.ENTER, part="text_a")
    WebDriverWait(page.browser, 20).until(lambda _: not page.all(".bar.best"))
    assert page.texts("h2") == ["No labels"]


def test_number(opened):
    page = opened("number")
    page.type(
        "two", Keys.SHIFT, Keys.ENTER, Keys.NULL, "lines", Keys.CONTROL, Keys.ENTER
    )
    page.wait()
    assert page.texts("h2") == ["9"]


def test_choice(opened):
    page = opened("choice")
    page.type("It", part="context")
    page.type("is", Keys.ENTER, "was so.", Keys.ENTER, part="endings")
    assert page.texts("#result") == [""]  # here Enter begins the next ending
    page.type(Keys.CONTROL, Keys.ENTER)
    page.wait()
    assert page.texts("h2") == ["was so."]
    assert page.texts(".bar") == ["is\n22.2%", "was so.\n77.8%"]
    assert page.texts(".bar.best") == ["was so.\n77.8%"]


def test_span(opened):
    page = opened("span")
    page.type("Zoë", part="question")
    page.browser.execute_script(
        "document.getElementById('part-context').value = '🐈🐈 a  cat, and Zoë.\\nZoë!'"
    )
    page.type(Keys.ENTER)
    page.wait()
    assert page.texts("h2") == ["Zoë"]
    (passage,) = page.all(".passage")
    assert passage.get_property("textContent") == "🐈🐈 a  cat, and Zoë.\nZoë!"
    (mark,) = page.all("mark")
    before = page.browser.execute_script(
        "return arguments[0].previousSibling.textContent", mark
    )
    assert (before, mark.text) == ("🐈🐈 a  cat, and ", "Zoë")
    assert page.texts("#result > p") == [
        "probability 80.0% · log odds of no answer -3.00"
    ]
    page.type("dog", Keys.ENTER, part="question")
    WebDriverWait(page.browser, 20).until(lambda _: not page.all("mark"))
    assert page.texts("h2") == ["No answer in this text"]


def test_tags(opened):
    page = opened("tags")
    page.type("Ada (not Bob) left U.S.  Hamburg.", Keys.ENTER)
    page.wait()
    assert page.texts(".legend mark") == ["LOC: 1", "PER: 3"]
    assert page.texts(".passage mark") == ["AdaPER", "BobPER", "U.S.PER", "HamburgLOC"]
    assert page.texts(".passage") == ["AdaPER (not BobPER) left U.S.PER  HamburgLOC."]
    colours = [
        mark.value_of_css_property("background-color")
        for mark in page.all(".legend mark, .passage mark")
    ]
    place, person = colours[:2]
    assert place != person
    assert colours[2:] == [person, person, person, place]


def test_word_tags(opened):
    page = opened("word_tags")
    page.type("Ada left  it.", Keys.ENTER)
    page.wait()
    assert page.texts(".passage mark") == ["AdaPROPN", "leftNOUN", "itNOUN", ".NOUN"]
    assert page.texts(".passage") == ["AdaPROPN leftNOUN  itNOUN.NOUN"]
    colours = [
        mark.value_of_css_property("background-color") for mark in page.all("mark")
    ]
    assert colours[0] != colours[1] == colours[2]


def test_tags_of_characters(opened):
    """A space is a token that is sent and not shown as one."""
    page = opened("word_tags", characters=True)
    page.type(" Ab  서울 ", Keys.ENTER)
    page.wait()
    assert page.texts(".passage") == ["APROPNbNOUN 서NOUN울NOUN"]
    sent = page.browser.execute_script("return value('words', ' Ab  서울 ')")
    assert sent == ["A", "b", " ", "서", "울"]


def test_masks(opened):
    page = opened("masks")
    page.type("From [MASK] to [MASK].", Keys.ENTER)
    page.wait()
    assert page.texts(".passage") == ["From Paris to Paris."]
    assert page.texts("mark") == ["Paris", "Paris"]
    assert page.texts(".bar") == ["Paris\n60.0%", "Rome\n30.0%"] * 2
    page.type("none", Keys.ENTER, part="text")
    WebDriverWait(page.browser, 20).until(lambda _: not page.all("mark"))
    assert page.texts("h2") == ["The text has no [MASK]"]


@tiers.of_family("gpt")
def test_next_tokens(opened):
    page = opened("next")
    page.type("from", Keys.ENTER)
    page.wait()
    assert page.texts("h2") == ["Paris"]
    assert page.texts(".bar") == ["Paris\n60.0%"]


@tiers.of_family("electra")
def test_replaced_tokens(opened):
    page = opened("replaced")
    page.type("the 😀 Rome fell", Keys.ENTER)
    page.wait()
    assert page.texts("h2") == ["1 token looks replaced"]
    assert page.texts(".passage") == ["the 😀 Rome fell"]
    assert page.texts("mark") == ["Rome"]
    assert page.texts(".bar")[0] == "Rome\n90.0%"


@tiers.of_family("t5")
def test_written_texts(opened):
    page = opened("text")
    page.type("so be it", Keys.ENTER)
    page.wait()
    assert page.texts("h2") == ["SO BE IT"]
    page.type("nothing", Keys.ENTER, part="text_a")
    page.wait()
    assert page.texts("h2") == ["An empty text"]


def test_an_empty_part_with_a_default_has_its_default(opened, predictor_of):
    page, predictor = opened("prompted"), predictor_of("prompted")
    for typed in ({"text": "dig"}, {"text": "dig", "prompt": "aa"}):
        for part, text in typed.items():
            page.type(text, part=part)
        page.type(Keys.ENTER)
        page.wait()
        [answer] = predictor.predict([typed])
        assert page.texts(".passage") == [", ".join(map(str, answer["vector"]))]


def test_neighbors(browser, predictor_of, tmp_path):
    predictor = predictor_of("vector", similarity="cosine")
    rows = [{"id": 1, "text": "a bee"}, {"id": 2, "text": MARKUP}]
    described = index.IndexDescription(predictor.digest, "toy", 2, 16, "float32")
    folder = str(tmp_path / "index")

    def vectors_of(rows):
        return predictor.vectors([{"text": row["text"]} for row in rows])

    index.write(folder, described, iter(rows), vectors_of, 8)
    nearest = NearestTexts(predictor, index.Index(folder), 2)
    with serving(nearest) as port:
        page = Page(browser, f"http://127.0.0.1:{port}/")
        page.type("be a", Keys.ENTER)
        page.wait()
        assert page.texts(".passage") == ["a bee", MARKUP]
        assert page.texts(".neighbor p")[0].endswith(" · id 1")
        assert page.all("#result img, #result b") == []
    assert browser.get_log("browser") == []


MARKUP = "<img src=x onerror=document.title='!'><b>Bold</b>&amp;</script>"


@pytest.mark.parametrize(
    ("form", "part", "shown"),
    [
        ("span", "context", ".passage"),
        ("masks", "text", ".passage"),
        pytest.param(
            *("replaced", "text", ".passage"), marks=tiers.of_family("electra")
        ),
        ("tags", "words", ""),
        ("word_tags", "words", ""),
    ],
)
def test_markup_is_text(opened, form, part, shown):
    page = opened(form)
    for other in page.all("textarea"):
        other.send_keys("Bold")
    page.type(MARKUP + ("[MASK]" if form == "masks" else ""), Keys.ENTER, part=part)
    page.wait()
    assert MARKUP[:30].split()[0] in page.all("#result")[0].text
    assert page.all("#result img, #result b:not(mark b), #result script") == []
    (title,) = page.texts("h1")
    assert page.browser.title == title and title.startswith(form)


def test_errors_are_a_line(opened):
    page = opened("label")
    page.browser.execute_script(
        "document.getElementById('part-text_a').value = 'x'.repeat(100001)"
    )
    page.type(Keys.ENTER)
    page.wait()
    assert page.texts("#error") == [
        "instances[0]: text_a has 100,001 characters; at most 100,000 are allowed"
    ]
    (entry,) = page.browser.get_log("browser")  # of the browser itself
    assert "413" in entry["message"]
    page.type("good", Keys.ENTER, part="text_a")
    WebDriverWait(page.browser, 20).until(lambda _: page.texts("h2"))
    assert page.texts("#error") == [""]


def test_server_that_is_gone(browser, predictor_of):
    with serving(predictor_of("label")) as port:
        page = Page(browser, f"http://127.0.0.1:{port}/")
    page.type("good", Keys.ENTER)
    page.wait()
    assert page.texts("#error") == [
        "The server does not answer; check that it is still running"
    ]
    browser.get_log("browser")


def luminance(colour):
    """Of "rgb(r, g, b)" or "rgba(r, g, b, a)". Source: WCAG 2, relative luminance."""
    parts = colour.partition("(")[2].rstrip(")").split(",")[:3]
    shares = [int(part) / 255 for part in parts]
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares
    ]
    return sum(
        x * weight for x, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True)
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_light_and_dark(opened, scheme):
    """Nothing is cut off, and everything can be read."""
    page = opened("tags")
    browser = page.browser
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    try:
        page.type(f"Ada of Hamburg, {'x' * 200}", Keys.ENTER)
        page.wait()
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= 360
        pairs = {
            "body": "body",
            "mark.kind": "mark.kind",
            ".quiet": "form",
            "button": "button",
            "textarea": "textarea",
        }
        for text, ground in pairs.items():
            colour = page.all(text)[0].value_of_css_property("color")
            behind = page.all(ground)[0].value_of_css_property("background-color")
            dark, light = sorted([luminance(colour), luminance(behind)])
            assert (light + 0.05) / (dark + 0.05) >= 4.5, text
        ground = page.all("body")[0].value_of_css_property("background-color")
        assert (luminance(ground) > 0.5) == (scheme == "light")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_nothing_comes_from_elsewhere(opened):
    page = opened("label")
    page.type("good", Keys.ENTER)
    page.wait()
    loaded = page.browser.execute_script(
        "return performance.getEntriesByType('resource').map((entry) => entry.name)"
    )
    assert loaded == [f"{page.url}v1/models/toy:predict"]


def colors(page):
    """The words that have a color: what for, and what is said of them."""
    return [
        (span.text, span.get_attribute("class"), span.get_attribute("title"))
        for span in page.all(".why span")
    ]


@pytest.fixture
def explained(browser, tmp_path):
    """Opens the page of a toy model that explains all answers in the same way."""
    with contextlib.ExitStack() as servers:

        def call(form, explanation):
            model = Predictor(exports.write(tmp_path, form))
            model.explains, model.explain = True, lambda requests, size: [explanation]
            port = servers.enter_context(serving(model))
            return Page(browser, f"http://127.0.0.1:{port}/")

        yield call
        assert browser.get_log("browser") == []


def test_words_of_a_text_are_colored_by_what_they_contribute(explained):
    words = [("good", 2, 6, 0.5), ("<b>", 7, 10, -1.0)]
    keys = ("text", "start", "end", "contribution")
    words = [dict(zip(keys, word, strict=True), part="text_a") for word in words]
    of_answer = {"logit": 1.5, "baseline_logit": 2.0, "label": "positive"}
    page = explained("label", {**of_answer, "words": words})
    page.type("🐈 good <b> .", Keys.ENTER)
    page.wait()
    assert page.texts("h3") == ["Why positive logit 1.50, without words 2.00"]
    assert page.texts(".why") == ["🐈 good <b> ."]
    assert colors(page) == [("good", "for", "0.500"), ("<b>", "against", "-1.000")]
    good, tag = page.all(".why span")
    assert "0.35)" in good.value_of_css_property("background-color")
    assert "0.7)" in tag.value_of_css_property("background-color")


@pytest.mark.exhaustive
def test_words_are_colored_for_each_tag(explained):
    each = {"logit": 1.5, "baseline_logit": 0.5, "word": 0, "label": "B-PER"}
    page = explained("tags", [{**each, "contributions": [1.5, -0.5, 0.0]}])
    page.type("Ada met.", Keys.ENTER)
    page.wait()
    assert page.texts("h3") == ["Ada: B-PER logit 1.50, without words 0.50"]
    assert colors(page) == [
        ("Ada", "for", "1.500"),
        ("met", "against", "-0.500"),
        (".", "for", "0.000"),
    ]
