"""Reads documents from a wiki's dump: the XML of pages-articles, plain or packed.

Where a page begins and ends is found in the bytes, as MediaWiki writes them: within a page,
< is an entity. So a span is any part of the file, and its reader takes the pages that begin
in it. Of a .bz2 of many streams (pages-articles-multistream), spans are streams, which are
found by how they begin, without the index. All else that is packed, one process unpacks.
"""

import dataclasses
import functools
import io
import re
import sys
from collections.abc import Iterator
from xml.etree import ElementTree

import options
from errors import UserError
from files import compression, inputs, sources
from text.corpus import text_format
from text.corpus.sentences import split_sentences
from text.corpus.text_format import PARAGRAPH_END, FileSpan, TextFormat

_CHUNK = 1 << 18
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_BEGIN = 10  # bytes of it
_LONGEST_STREAM = 16 << 20  # of a multistream; 100 pages are about one megabyte
_BEGIN, _END, _LAST = b"<page>", b"</page>", b"</mediawiki>"
_LONGEST_HEAD = 1 << 20
_TAIL = 128  # bytes that contain the last tag, and spaces
_SITE = re.compile(rb"<siteinfo>.*?</siteinfo>", re.DOTALL)
_LEFT_OUT = {  # in reports
    "pages_of_other_namespaces": "of other namespaces",
    "redirect_pages": "redirects",
    "disambiguation_pages": "disambiguations",
    "pages_of_other_models": "not wikitext",
    "pages_without_text": "without text",
    "broken_pages": "that cannot be parsed (named above)",
}


@dataclasses.dataclass(frozen=True)
class WikipediaOptions(inputs.LineOptions):
    """Input files. Dumps of wikis."""

    keep_lists: bool = options.field(
        False,
        help="Keep the items of lists, each as a paragraph.",
        only_for={"input_format": "wikipedia"},
    )
    keep_headings: bool = options.field(
        False,
        help="Keep headings, each as a paragraph.",
        only_for={"input_format": "wikipedia"},
    )


class Wikipedia(TextFormat):
    """Each article is a document, each of its paragraphs ends a sentence."""

    reads_slowly = True
    unit_end = _END
    help = (
        "a wiki's pages-articles dump, XML, each article a document without markup, "
        "templates, tables, references and files (needs requirements/corpus.txt)"
    )

    def spans(self, path, size, total):
        _wikitext(path)
        _site(path, sources.status(path))
        if not compression.is_packed(path):
            # The end of the file stays together.
            starts = range(0, max(size - _TAIL, 1), text_format.PIECE_BYTES)
            yield from _cut(path, starts, size)
        elif size <= text_format.PIECE_BYTES // 4:
            yield FileSpan(path, 0, None, size)
        elif not self.is_sequential(path, size):
            yield from _cut(path, _streams(path, size), size)
        else:
            _say_once(
                f"{path}: one process unpacks it; all cores share a plain file, or a "
                "-multistream.xml.bz2"
            )
            yield from _unpack(path, size)

    def is_sequential(self, path, size):
        """See `TextFormat`: whether it is packed, and not of many streams."""
        if not compression.is_packed(path):
            return False
        if not path.endswith(".bz2"):
            return True
        with sources.open_file(path) as file:
            return _next_stream(file, 1, _LONGEST_STREAM) is None

    def whole_documents(self, span, size):
        start, stop = span.start, span.stop
        end = size if stop is None else stop
        if not compression.is_packed(span.path):
            last = size - _TAIL  # the end of the file stays together
            if start and start > last:
                return None
            stop = None if end > last else stop
            return FileSpan(span.path, start, stop, end - start)
        with sources.open_file(span.path) as file:
            if start:
                start = _next_stream(file, start, end - start + _STREAM_BEGIN)
            if start is None or start >= end:
                return None
            if stop is not None:
                stop = _next_stream(file, stop, size)
        return FileSpan(span.path, start, stop, (stop or size) - start)

    def windows(self, path, places, size, chosen):
        """See `TextFormat`. Pages that begin there, or whole streams."""
        _site(path, sources.status(path))
        end = 0
        for start, stop in places:
            if start and compression.is_packed(path):
                with sources.open_file(path) as file:
                    start = _next_stream(file, max(start, end), size)
            if start is None:
                yield None
                continue
            stop = max(stop, start + 1)  # a stream may be longer than a window
            span = FileSpan(path, start, None if stop >= size else stop, size)
            document_span = self.whole_documents(span, size)
            end = (document_span.stop or size) if document_span else end
            yield document_span

    def read(self, span, chosen, counts):
        """See `TextFormat`.

        Raises UserError if the file ends within a page, is damaged, or is of revisions. A
        page that the parser does not understand is named, counted and left out.
        """
        wikitext = _wikitext(span.path)
        site = _site(span.path, span.status or sources.status(span.path))
        for page in _pages(span, chosen.max_line_mb * inputs.MB):
            title, markup = _article(span.path, page, counts)
            if markup is None:
                continue
            if wikitext.is_disambiguation(markup):
                counts["disambiguation_pages"] += 1
                continue
            try:
                paragraphs = wikitext.paragraphs(
                    markup,
                    site,
                    chosen.keep_lists,
                    chosen.keep_headings,
                    counts,
                )
            except wikitext.FAILURES as error:
                counts["broken_pages"] += 1
                problem = str(error) or type(error).__name__
                _say_once(
                    f"warning: {span.path}: page {title!r} cannot be parsed "
                    f"({problem:.80}); left out"
                )
                continue
            counts["pages_without_text"] += not paragraphs
            for paragraph in paragraphs:
                yield from split_sentences(paragraph)
                yield PARAGRAPH_END
            yield None

    def report(self, counts):
        left_out = [
            f"{counts[key]:,} {name}" for key, name in _LEFT_OUT.items() if counts[key]
        ]
        yield f"Wiki: {counts['pages']:,} pages; left out: {', '.join(left_out) or 'none'}"
        removed = [
            f"{number:,} {key.removeprefix('removed_').replace('_', ' ')}"
            for key, number in counts.items()
            if key.startswith("removed_") and number
        ]
        yield f"Removed from the others: {', '.join(removed) or 'nothing'}"


@functools.cache  # build_vocab.py reads a dump more than once
def _say_once(line):
    print(line, file=sys.stderr)


def _wikitext(path):
    """The module that parses markup, whose package is optional."""
    try:
        from text.corpus import wikitext
    except ModuleNotFoundError as error:
        raise UserError(
            f"{path}: --input_format=wikipedia needs the package mwparserfromhell, which "
            "is not installed; run pip install -r requirements/corpus.txt"
        ) from error
    return wikitext


@functools.lru_cache(maxsize=8)
def _site(path, status):
    """The namespaces of a dump, from its beginning.

    Raises UserError if the file does not begin like one.
    """
    del status  # a file that changes is read again
    with sources.open_file(path) as packed, compression.unpack(path, packed) as file:
        try:
            head = file.read(_LONGEST_HEAD)
        except EOFError:  # a small file that was cut off
            head = None
        except compression.DAMAGE as error:
            raise _damage_error(path, error) from error
    if head is None:
        raise _damage_error(path, "it ends too early")
    match = _SITE.search(head)
    if not match or b"<mediawiki" not in head[: match.start()]:
        raise UserError(
            f"{path}: does not begin like a wiki's dump (<mediawiki ...><siteinfo>); name "
            "only pages-articles files, without their index"
        )
    try:
        names = ElementTree.fromstring(match[0]).iter("namespace")
        named = [(name.text or "", int(name.get("key", "0"))) for name in names]
    except (ElementTree.ParseError, ValueError) as error:
        raise UserError(f"{path}: its <siteinfo> is damaged ({error})") from error
    return _wikitext(path).Site.of(named)


def _damage_error(path, error):
    return UserError(
        f"{path}: the compressed data is damaged ({error}); compress or copy the file again"
    )


# --- Spans -----------------------------------------------------------------------------


def _cut(path, starts, size):
    for start, stop in zip(starts, [*starts[1:], None], strict=True):
        yield FileSpan(path, start, stop, (size if stop is None else stop) - start)


def _streams(path, size):
    """Where to cut a file of many streams."""
    least, starts = max(text_format.PIECE_BYTES // 4, 1), [0]
    with sources.open_file(path) as file:
        while starts[-1] + least < size:
            start = _next_stream(file, starts[-1] + least, size)
            if start is None:
                break
            starts.append(start)
    return starts


def _next_stream(file, position, most):
    """Where the first stream begins that does from a byte on, within so many bytes."""
    file.seek(position)
    tail, read = b"", 0
    while read < most and (chunk := file.read(_CHUNK)):
        if match := _STREAM.search(tail + chunk):
            return position + read - len(tail) + match.start()
        read += len(chunk)
        tail = (tail + chunk)[1 - _STREAM_BEGIN :]
    return None


def _unpack(path, size):
    """Spans with their text, each of whole pages."""
    start = read = 0
    rest = b""
    with sources.open_file(path) as packed, compression.unpack(path, packed) as file:
        try:
            while chunk := file.read(text_format.PIECE_BYTES):
                block = rest + chunk
                cut = block.rfind(_END) + len(_END)
                if cut < len(_END):  # it is within a long page
                    rest = block
                    _refuse_long_page(path, len(rest), inputs.MAX_LINE_MB * inputs.MB)
                    continue
                now_read = packed.tell()
                yield FileSpan(path, start, start + cut, now_read - read, block[:cut])
                start, read, rest = start + cut, now_read, block[cut:]
        except compression.DAMAGE as error:
            raise _damage_error(path, error) from error
    yield FileSpan(path, start, None, size - read, rest)


def _refuse_long_page(path, length, most):
    if length > most:
        raise UserError(
            f"{path}: a page is longer than {most // inputs.MB} MB; name a dump of "
            "articles (pages-articles), not one of all revisions"
        )


# --- Pages -----------------------------------------------------------------------------


def _chunks(span) -> Iterator[tuple[bytes, bool]]:
    """Yields the text of a span, then that of what follows it in the file.

    With each, whether it is the span's.
    """
    if span.block is not None:
        yield span.block, True
        return
    with sources.open_file(span.path) as packed:
        packed.seek(span.start)
        if not compression.is_packed(span.path):
            left = sys.maxsize if span.stop is None else span.stop - span.start
            while chunk := packed.read(min(left, _CHUNK) or _CHUNK):
                yield chunk, left > 0
                left = max(left - len(chunk), 0)
            return
        try:
            if span.stop is not None:
                streams = packed.read(span.stop - span.start)
                with compression.unpack(span.path, io.BytesIO(streams)) as file:
                    while chunk := file.read(_CHUNK):
                        yield chunk, True
            with compression.unpack(span.path, packed) as file:
                while chunk := file.read(_CHUNK):
                    yield chunk, span.stop is None
        except compression.DAMAGE as error:
            raise _damage_error(span.path, error) from error


def _pages(span, most) -> Iterator[bytes]:
    """Yields the pages that begin in a span, as XML.

    Args:
        most: the length of a page in bytes.
    """
    chunks = _chunks(span)
    is_last = span.stop is None
    # Of its bytes, so many from the beginning are the span's.
    text, own = bytearray(), 0

    def fill():
        nonlocal own
        chunk, is_own = next(chunks, (b"", False))
        text.extend(chunk)
        own += len(chunk) * is_own
        return bool(chunk)

    while own > 0 or (fill() and own > 0):
        begin = text.find(_BEGIN)
        if begin < 0:  # what may be a part of this tag, or of the last one, stays
            cut = max(len(text) - (_TAIL if is_last else len(_BEGIN) - 1), 0)
            del text[:cut]
            own -= cut
            if own > 0 and not fill():
                break
            continue
        if begin >= own:
            return
        searched = begin
        while (end := text.find(_END, searched)) < 0:
            searched = max(begin, len(text) - len(_END))
            _refuse_long_page(span.path, len(text), most)
            if not fill():
                raise _cut_off(span.path, "ends within a page")
        end += len(_END)
        yield bytes(text[begin:end])
        del text[:end]
        own -= end
    if is_last and _LAST not in text:
        rest = text.strip()
        if not (span.start and rest and _LAST.endswith(rest)):
            raise _cut_off(span.path, "ends without </mediawiki>")


def _cut_off(path, how):
    return UserError(f"{path}: {how}, so it was cut off; download or copy it again")


def _article(path, page, counts):
    """The title and markup of a page; None as its markup if it is left out."""
    try:
        element = ElementTree.fromstring(page)
    except ElementTree.ParseError as error:
        shown = page[:80].decode(errors="replace")
        raise UserError(
            f"{path}: a page is not XML ({error}): {' '.join(shown.split())}; download or "
            "copy the file again"
        ) from error
    title = element.findtext("title", "")
    revisions = element.findall("revision")
    if len(revisions) > 1:
        raise UserError(
            f"{path}: page {title!r} has {len(revisions)} revisions; name a dump of "
            "articles (pages-articles), not one of all revisions"
        )
    counts["pages"] += 1
    text = revisions[0].findtext("text", "") if revisions else ""
    reason = None
    if element.findtext("ns", "0").strip() != "0":
        reason = "pages_of_other_namespaces"
    elif element.find("redirect") is not None:
        reason = "redirect_pages"
    elif revisions and revisions[0].findtext("model", "wikitext") != "wikitext":
        reason = "pages_of_other_models"
    elif not text.strip():
        reason = "pages_without_text"
    if reason:
        counts[reason] += 1
        return title, None
    return title, text
