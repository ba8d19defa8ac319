# SPDX-License-Identifier: GPL-2.0-or-later
"""Pictures: small SVG files that are the same for the same figures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from report import Failure, Section

SETTINGS = {
    'svg.hashsalt': 'ram-reset',
    'svg.fonttype': 'none',         # text as text, not as outlines
    'font.family': 'sans-serif',
    'font.sans-serif': ['DejaVu Sans', 'sans-serif'],
    'font.size': 9,
    'axes.grid': True,
    'axes.grid.which': 'major',
    'grid.alpha': 0.3,
    'lines.markersize': 4,
    'legend.fontsize': 8,
    'path.simplify': True,
    'path.simplify_threshold': 0.5,
}


def draw(section: Section, output: Path) -> None:
    if not section.plots:
        return
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as e:
        raise Failure('matplotlib is missing, so nothing can be drawn; run '
                      './bench, which installs it') from e
    for name, plot in section.plots:
        with matplotlib.rc_context(SETTINGS):
            figure = Figure(figsize=(9, 4), layout='constrained')
            plot(figure)
            figure.savefig(output / name, format='svg',
                           metadata=dict.fromkeys(('Date', 'Creator', 'Format',
                                                   'Type')))


def panels(figure: Any, titles: Sequence[str], xlabel: str, ylabel: str,
           sharey: bool = True) -> list[Any]:
    """Axes side by side, with @ylabel at the first."""
    axes = list(figure.subplots(1, len(titles), sharey=sharey,
                                squeeze=False)[0])
    for ax, title in zip(axes, titles):
        ax.set_title(title)
        ax.set_xlabel(xlabel)
    axes[0].set_ylabel(ylabel)
    return axes


def plain_numbers(axis: Any, ticks: Sequence[float]) -> None:
    """On a logarithmic axis, these numbers as they are and no others."""
    from matplotlib.ticker import NullLocator
    limits = axis.get_view_interval()
    axis.set_ticks(ticks, labels=[f'{t:g}' for t in ticks])
    axis.set_minor_locator(NullLocator())
    # ticks outside are not to widen the axis
    axis.set_view_interval(*limits, ignore=True)


def legend_below(figure: Any, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside lower center', ncols=4,
                  handlelength=3)


def bars(ax: Any, groups: Sequence[str], series: dict[str, Sequence[float]],
         label: Callable[[float], str]) -> None:
    """Horizontal, with figures beside; a group has a bar of each series."""
    height = 0.8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        places = [g + i * height for g in range(len(groups))]
        drawn = ax.barh(places, values, height, label=name)
        ax.bar_label(drawn, [label(v) for v in values], padding=2, fontsize=7)
    middle = (len(series) - 1) * height / 2
    ax.set_yticks([g + middle for g in range(len(groups))], groups)
    ax.invert_yaxis()
    ax.margins(x=0.15)
