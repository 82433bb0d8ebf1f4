"""What benchmarks/gpu.py has measured so far, as JSON and as a Markdown page."""

import json
import os
import statistics
import time

from files import local

JSON, PAGE = "gpu.json", "gpu.md"
PRODUCT = "A large bfloat16 product"
OURS = "ours, XLA"  # whose bare updates a run from records is held to

_COLUMNS = (
    "setting",
    "system",
    "ms an update",
    "lowest to highest",
    "examples/s",
    "of the product's rate",
    "peak GB",
    "s to the first update, cold",
    "with its cache",
)


class Report:
    """Figures of steps by name; written whenever one is added.

    Args:
        folder: where gpu.json and gpu.md go.
        content: what was measured, and on what; becomes part of the JSON.
    """

    def __init__(self, folder: str, content: dict):
        self._folder = folder
        self._content = content | {"steps": {}}
        self._began = time.monotonic()
        self.steps: dict[str, dict] = self._content["steps"]

    def note(self, step: str, **figures) -> None:
        """Adds figures of a step, and writes both files."""
        self.steps.setdefault(step, {}).update(figures)
        self._add_shares()
        self._content["seconds"] = round(time.monotonic() - self._began, 1)
        self._write(JSON, json.dumps(self._content, indent=1) + "\n")
        self._write(PAGE, self.page())

    def _write(self, name, text):
        with local.replacing(os.path.join(self._folder, name)) as file:
            file.write(text.encode())

    def bare(self, setting: str) -> float | None:
        """Examples a second of our bare update there, if it was measured."""
        return self.steps.get(update_name(setting, OURS), {}).get("examples_per_second")

    def _add_shares(self):
        """What depends on two steps."""
        rate = self.steps.get(PRODUCT, {}).get("flop_per_second")
        for figures in self.steps.values():
            if rate and "ms" in figures:
                speed = figures["flop"] / figures["ms"] * 1000
                figures["share_of_product"] = speed / rate
            if "records_setting" in figures and "examples_per_second" in figures:
                if bare := self.bare(figures["records_setting"]):
                    share = figures["examples_per_second"] / bare
                    figures["share_of_bare_update"] = share

    def page(self) -> str:
        """The Markdown page."""
        about = ", ".join(f"{k} {v}" for k, v in self._content["machine"].items() if v)
        lines = [
            "# What this GPU gives",
            "",
            f"{self._content['date']}, {self._content['seconds']:.0f} s. {about}.",
            "",
            f"| {' | '.join(_COLUMNS)} |",
            "|---" * len(_COLUMNS) + "|",
        ]
        updates = {k: v for k, v in self.steps.items() if "system" in v}
        for setting in self._content["settings"]:
            rows = [v for v in updates.values() if v["setting"] == setting]
            lines += [f"| {' | '.join(_cells(figures))} |" for figures in rows]
        lines.append("")
        for name, figures in self.steps.items():
            if name not in updates:
                lines.append(f"* {name}: {_in_words(figures)}")
        return "\n".join(lines) + "\n"


def update_name(setting: str, system: str) -> str:
    """The step that times a system's update."""
    return f"{setting}: {system}"


def spread(values: list[float]) -> dict[str, float]:
    """The middle and the ends of some milliseconds."""
    return {
        "ms": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
    }


def _cells(figures):
    reason = figures.get("reason", "")
    cells = [figures["setting"], figures["system"], *[""] * 7]
    if "ms" in figures:
        cells[2] = f"{figures['ms']:.1f}"
        cells[3] = f"{figures['lowest']:.1f} to {figures['highest']:.1f}"
        cells[4] = f"{figures['examples_per_second']:,.0f}"
        if share := figures.get("share_of_product"):
            cells[5] = f"{share:.0%}"
        cells[6] = f"{figures['bytes'] / 1e9:.2f}"
    elif reason:
        cells[2] = reason
    for column, key in ((7, "first_update"), (8, "first_update_cached")):
        if key in figures:
            cells[column] = f"{figures[key]:.1f}"
    if "ms" in figures and reason:
        cells[8] = reason
    return cells


def _in_words(figures):
    words = []
    if rate := figures.get("flop_per_second"):
        words.append(f"{rate / 1e12:.3g} TFLOP/s")
    if speed := figures.get("examples_per_second"):
        lowest, highest = figures["slowest"], figures["fastest"]
        intervals = f"intervals from {lowest:,.0f} to {highest:,.0f}"
        words.append(f"{speed:,.0f} examples/s ({intervals})")
    if share := figures.get("share_of_bare_update"):
        words.append(f"{share:.1%} of the bare update's")
    if said := figures.get("result"):
        words.append(said)
    if reason := figures.get("reason"):
        words.append(reason)
    if seconds := figures.get("seconds"):
        words.append(f"{seconds:.0f} s in all")
    return "; ".join(words)
