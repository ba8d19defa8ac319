# SPDX-License-Identifier: GPL-2.0-or-later
"""The plots of ram-reset report, as SVG."""

import io
from typing import Any, Dict, List, Sequence

from ram_reset.errors import UsageError

MANY = 5000             # points; more are an image in the SVG
SETTINGS: Any = {'svg.hashsalt': 'ram-reset', 'svg.fonttype': 'none',
                 'font.family': 'sans-serif', 'font.size': 9,
                 'axes.grid': True, 'grid.alpha': 0.3}
Load = Dict[str, Any]


def draw(loads: Sequence[Load]) -> str:
    """An <svg> element with all plots of the loads."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as e:
        raise UsageError('matplotlib is missing, which makes the plots; run '
                         "pip install 'ram-reset[report]', or install "
                         "Debian's python3-matplotlib") from e
    plots = [_over_time, _share]
    if any(load['dirty-pages'] for load in loads):
        plots.append(_over_pages)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(9, 3.2 * len(plots)), layout='constrained')
        for axes, plot in zip(figure.subplots(len(plots), squeeze=False)[:, 0],
                              plots):
            plot(axes, loads)
        out = io.StringIO()
        figure.savefig(out, format='svg', metadata=dict.fromkeys(
            ('Date', 'Creator', 'Format', 'Type')))
    text = out.getvalue()
    return text[text.index('<svg'):]


def _milliseconds(loads: Sequence[Load]) -> List[float]:
    return [load['seconds'] * 1000 for load in loads]


def _dots(axes: Any, loads: Sequence[Load], x: Sequence[float]) -> None:
    """Rewinds and other loads in two colours."""
    y = _milliseconds(loads)
    for rewound, label in ((True, 'rewinds'), (False, 'other loads')):
        chosen = [i for i, load in enumerate(loads)
                  if load['rewound'] == rewound]
        if chosen:
            axes.plot([x[i] for i in chosen], [y[i] for i in chosen], '.',
                      markersize=3, label=label, rasterized=len(y) > MANY)
    axes.set_ylabel('time of the load, ms')
    axes.set_ylim(bottom=0)
    axes.legend(loc='best' if len(loads) <= MANY else 'upper right')


def _over_time(axes: Any, loads: Sequence[Load]) -> None:
    axes.set_title('Each load')
    axes.set_xlabel('number of the load')
    _dots(axes, loads, range(1, len(loads) + 1))


def _share(axes: Any, loads: Sequence[Load]) -> None:
    axes.set_title('Share of loads that took at most a time')
    y = [100 * (i + 1) / len(loads) for i in range(len(loads))]
    axes.step(sorted(_milliseconds(loads)), y, where='post', label='load')
    wholes = sorted(load['iteration-seconds'] * 1000 for load in loads
                    if load['iteration-seconds'])
    if wholes:
        axes.step(wholes, [100 * (i + 1) / len(wholes)
                           for i in range(len(wholes))],
                  where='post', label='iteration')
    axes.set_xscale('log')
    axes.xaxis.set_major_formatter('{x:g}')
    axes.xaxis.set_minor_formatter('{x:g}')
    axes.set_xlabel('ms')
    axes.set_ylabel('% of the loads')
    axes.legend(loc='best' if len(loads) <= MANY else 'upper right')


def _over_pages(axes: Any, loads: Sequence[Load]) -> None:
    axes.set_title('Loads by pages that the guest had changed')
    axes.set_xlabel('pages')
    known = [load for load in loads if load['dirty-pages'] is not None]
    _dots(axes, known, [load['dirty-pages'] for load in known])
