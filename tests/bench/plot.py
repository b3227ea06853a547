"""The figure of `bench scaling`."""

import importlib.util
import math
from pathlib import Path
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.files import atomic_path

OURS, FLOOR, INK, PALE = "#1f5fa8", "#c8ccd2", "#22262b", "#6b727b"
TITLES = {
    "hidden": "hidden units n",
    "vocabulary": "vocabulary, words per side",
    "length": "words per sentence",
    "batch": "sentences per batch",
    "processes": "processes (complete updates)",
}


def check_plot(path: Path) -> None:
    """Raises UsageError if no figure could be written to `path` at the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot: matplotlib is not installed; install nmtalign[plot]")
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot {path}: give a name that ends in .png, .svg or .pdf")


def draw_scaling(results: dict[str, Any], path: Path) -> None:
    """Draws one panel per axis: the words/s of training, the floor of the products above it, and their ratio."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    axes = list(results["axes"].items())
    columns = min(3, len(axes))
    rows = math.ceil(len(axes) / columns)
    plt.rcParams.update({"font.size": 8.5, "axes.edgecolor": PALE, "text.color": INK, "axes.labelcolor": INK})
    figure, panels = plt.subplots(rows, columns, figsize=(3.7 * columns, 2.9 * rows + 0.9), squeeze=False)
    flat = list(panels.flat)
    for panel, (axis, points) in zip(flat, axes, strict=False):
        _draw_panel(panel, axis, points, results["base"].get(axis))
    for panel in flat[len(axes) :]:
        panel.set_visible(False)
    machine, base = results["machine"], results["base"]
    figure.suptitle(
        f"Training `{base['size']}` in {results['precision']}: target words per second, loss and gradients",
        x=0.01, ha="left", fontsize=12, fontweight="bold",
    )  # fmt: skip
    _draw_key(figure, machine, base)
    figure.tight_layout(rect=(0, 0.03, 1, 1 - 0.55 / figure.get_figheight()))
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=150)
    plt.close(figure)


def _draw_panel(panel: Any, axis: str, points: list[dict[str, Any]], base: int | None) -> None:
    values = [point["value"] for point in points]
    reached = [point["target_words_per_second"] for point in points]
    floors = [point["floor_words_per_second"] for point in points]
    places = list(range(len(points)))
    if all(floor is not None for floor in floors):
        panel.bar(places, floors, width=0.72, color=FLOOR, zorder=1)
    panel.bar(places, reached, width=0.72, color=OURS, zorder=2)
    top = max(floor or rate for floor, rate in zip(floors, reached, strict=True))
    for place, rate, point in zip(places, reached, points, strict=True):
        _label(panel, place, rate, point, inside=rate > 0.1 * top)
    panel.set_ylim(0, 1.12 * top)
    panel.set_xlim(-0.6, max(len(points), 4) - 0.4)
    panel.set_xticks(places, [f"{value:,}" for value in values])
    for label, value in zip(panel.get_xticklabels(), values, strict=True):
        label.set_fontweight("bold" if value == base else "normal")
    panel.set_xlabel(TITLES[axis])
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(axis="both", length=0, colors=INK)
    panel.grid(axis="y", color="#eceef0", zorder=0)
    panel.set_axisbelow(True)
    panel.yaxis.set_major_formatter(lambda value, _: _short(value))


def _label(panel: Any, place: int, rate: float, point: dict[str, Any], inside: bool) -> None:
    """Writes the rate into its bar and the share above the floor's bar; both above it if the bar is low."""
    share = "" if point["of_floor"] is None else f"{100 * point['of_floor']:.0f}%"
    above = share if inside else f"{_short(rate)}, {share}".rstrip(", ")
    height = point["floor_words_per_second"] or rate
    style = {"textcoords": "offset points", "ha": "center", "fontsize": 7.5, "zorder": 3}
    panel.annotate(above, (place, height), xytext=(0, 3), color=PALE, **style)
    if inside:
        panel.annotate(_short(rate), (place, rate), xytext=(0, -10), color="white", **style)


def _draw_key(figure: Any, machine: dict[str, Any], base: dict[str, Any]) -> None:
    """Draws the legend: the meaning of the colours, and the machine."""
    x, y = 0.012, 0.985 - 0.42 / figure.get_figheight()
    pieces = [
        *(("■ ", OURS), ("reached   ", INK)),
        *(("■ ", FLOOR), ("the floor: only the matrix products, and the share reached   ", INK)),
        ("bold: the value used in the other panels", INK),
    ]
    for text, colour in pieces:
        drawn = figure.text(x, y, text, color=colour, fontsize=9)
        figure.canvas.draw()
        x = drawn.get_window_extent().transformed(figure.transFigure.inverted()).x1
    described = f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}, {machine['revision']}"
    figure.text(0.012, 0.012, f"{described}, {machine['date'][:10]}", color=PALE, fontsize=7.5)


def _short(value: float) -> str:
    """Writes 4,200 as 4.2k."""
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.0f}"
