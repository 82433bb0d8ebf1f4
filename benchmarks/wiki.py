"""Makes a wiki's dump, and measures how create_pretraining_data.py reads it.

    python -m benchmarks.wiki --dump=/tmp/dump.xml --megabytes=200
    python -m benchmarks.wiki --dump=/tmp/dump-multistream.xml.bz2 --megabytes=200

The pages are English, Korean and Arabic, with templates, tables, references, files, lists
and links, and among them redirects, disambiguations and other namespaces. The same
--megabytes give the same bytes. A dump that exists is not made again; with --num_workers=0,
nothing is measured.
"""

import bz2
import dataclasses
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from xml.sax.saxutils import escape

import command_line
import options
from files import local

_SCRIPT = pathlib.Path(__file__).parent.parent / "create_pretraining_data.py"
_STREAM_PAGES = 100  # as Wikimedia's
_WORDS = {
    "en": (
        "the of and in to was is for as on with by that from at his it an were which are "
        "city river century people world states university company government war film "
        "music national century family system history village school population"
    ).split(),
    "ko": (
        "있다 이다 그 이 수 등 한다 그리고 또한 대한 위해 통해 도시 강 세기 사람 세계 "
        "나라 대학교 회사 정부 전쟁 영화 음악 국가 가족 "
        "체계 역사 마을 학교 인구 지역 문화 사회 연구"
    ).split(),
    "ar": (
        "في من على إلى عن مع هذا هذه التي الذي كان كانت مدينة نهر قرن شعب عالم دولة جامعة "
        "شركة حكومة حرب فيلم موسيقى وطني عائلة نظام تاريخ قرية مدرسة سكان منطقة ثقافة"
    ).split(),
}
_NAMES = {"en": ("File", "Category"), "ko": ("파일", "분류"), "ar": ("ملف", "تصنيف")}
_HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n'
    "  <siteinfo>\n    <sitename>Made</sitename>\n"
    "    <base>https://example.org/wiki/Main_Page</base>\n    <namespaces>\n"
    '      <namespace key="0" />\n'
    '      <namespace key="6">파일</namespace>\n'
    '      <namespace key="6">ملف</namespace>\n'
    '      <namespace key="10">Template</namespace>\n'
    '      <namespace key="14">분류</namespace>\n'
    '      <namespace key="14">تصنيف</namespace>\n'
    "    </namespaces>\n  </siteinfo>\n"
)


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    dump: str = options.field(help="The dump: NAME.xml, or NAME.xml.bz2, multistream.")
    megabytes: int = options.field(
        200, help="Its size, before it is packed.", at_least=1
    )
    vocab_file: str = options.field("vocab/vocab.txt", help="The vocabulary.")
    num_workers: list[int] = options.field([1, 2], help="Processes, one run for each.")


class _Pages:
    """Random pages, always the same ones."""

    def __init__(self):
        self._rng = random.Random(0)

    def _sentence(self, words, links=0.15):
        chosen = self._rng.choices(words, k=self._rng.randint(6, 24))
        for place, word in enumerate(chosen):
            draw = self._rng.random()
            if draw < links / 2:
                chosen[place] = f"[[{word}]]"
            elif draw < links:
                chosen[place] = f"[[{word} {self._rng.choice(words)}|{word}]]"
        text = " ".join(chosen)
        if self._rng.random() < 0.3:
            text += (
                f"<ref>{{{{cite web|url=http://example.org|title={chosen[0]}}}}}</ref>"
            )
        return f"{text[:1].upper()}{text[1:]}."

    def _article(self, language):
        rng, words = self._rng, _WORDS[language]
        file, category = _NAMES[language]
        fields = "\n".join(f"| {w} = [[{w}]] {rng.random()}" for w in words[:8])
        yield f"{{{{Infobox\n{fields}\n}}}}"
        yield f"[[{file}:{words[3]}.jpg|thumb|{self._sentence(words)}]]"
        for _ in range(rng.randint(1, 6)):
            for _ in range(rng.randint(1, 4)):
                yield " ".join(self._sentence(words) for _ in range(rng.randint(2, 7)))
            yield f"== {rng.choice(words)} ==\n" + "\n".join(
                f"* {self._sentence(words)}" for _ in range(rng.randint(0, 4))
            )
        rows = "\n|-\n".join(f"| {w} || {rng.random()}" for w in words[:6])
        yield f'{{| class="wikitable"\n{rows}\n|}}'
        yield f"[[{category}:{words[5]}]]"

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            number += 1
            language, redirect = self._rng.choice(tuple(_WORDS)), ""
            kind = self._rng.random()
            if kind < 0.2:
                redirect = '    <redirect title="Another" />\n'
                text = "#REDIRECT [[Another]]"
            elif kind < 0.22:
                text = "* [[One]]\n* [[Other]]\n{{disambiguation}}"
            else:
                text = "\n\n".join(self._article(language))
            yield (
                f"  <page>\n    <title>Page {number}</title>\n"
                f"    <ns>{1 if 0.22 <= kind < 0.25 else 0}</ns>\n    <id>{number}</id>\n"
                f"{redirect}    <revision>\n      <id>{number}</id>\n"
                f"      <model>wikitext</model>\n"
                f'      <text xml:space="preserve">{escape(text)}</text>\n'
                "    </revision>\n  </page>\n"
            )


def write(path: str, megabytes: float) -> int:
    """Writes a dump of about this size; returns the number of its pages."""
    pages, count, size = iter(_Pages()), 0, 0
    with local.replacing(path) as file:

        def add(text):
            content = text.encode()
            file.write(bz2.compress(content) if path.endswith(".bz2") else content)
            return len(content)

        add(_HEAD)
        while size < megabytes * 1e6:
            size += add("".join(next(pages) for _ in range(_STREAM_PAGES)))
            count += _STREAM_PAGES
        add("</mediawiki>\n")
    return count


def _measure(chosen: Options, num_workers: int) -> str:
    """Runs the script; returns seconds, and the peak of its largest process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, str(_SCRIPT), f"--input_file={chosen.dump}"),
            "--input_format=wikipedia",
            f"--vocab_file={chosen.vocab_file}",
            f"--output_file={folder}/records",
            "--dupe_factor=1",
            f"--num_workers={num_workers}",
        ]
        begun = time.monotonic()
        process = subprocess.Popen(command)
        peaks = [0]
        while process.poll() is None:
            peaks += map(_peak, _family(process.pid))
            time.sleep(0.2)
        if process.returncode:
            raise SystemExit(process.returncode)
    seconds = time.monotonic() - begun
    return f"{num_workers} worker(s): {seconds:.1f} s, peak {max(peaks) / 1024:.0f} MB"


def _family(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *map(int, children.read_text().split())] if children.exists() else []


def _peak(pid):
    """In KiB."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+)", status)
    return int(match[1]) if match else 0


def main(chosen: Options) -> None:
    if not os.path.exists(chosen.dump):
        print(f"{chosen.dump}: {write(chosen.dump, chosen.megabytes):,} pages")
    print(f"{os.path.getsize(chosen.dump) / 1e6:.0f} MB on disk")
    for num_workers in filter(None, chosen.num_workers):
        print(_measure(chosen, num_workers), flush=True)


if __name__ == "__main__":
    command_line.run(main, Options)
