"""image_report - the page and the picture of bench/images.py: tables, gates, where we lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Cell = dict[str, Any]
TITLES = {
    "W1": "W1: JPEG of about 114 KB, 500 x 375, quality 96, 4:4:4",
    "W2": "W2: JPEG of about 2 megapixels, quality 90, 4:2:0",
    "W9": "W9: 40,000 files of 10 KB in 256 folders, warm, as bytes, batches of 256",
    "W12": "W12: a folder of 1.28 million pictures, opened again",
    "W14": "W14: a device that wants 75 % of the limit; own Python on native decode",
}
LEAST_LIMIT, LEAST_FILES, LEAST_BUSY, LEAST_DROP_IN = 0.92, 0.85, 0.99, 1.8
LEAST_PSNR, MOST_START_S, MOST_CALLS = 40.0, 0.5, 50
EXACT, FAST = "millhead, exact", "millhead, fast"


def title_of(name: str) -> str:
    """The heading of a cell."""
    workload, _, threads = name.partition(":")
    suffix = f"; {threads} thread{'s' * (threads != '1')} or workers" if threads else ""
    return TITLES[workload] + suffix


def row_of(cell: Cell, arm: str) -> dict[str, Any] | None:
    return next((row for row in cell.get("rows", []) if row["arm"] == arm), None)


# --- gates


def at_least(what: str, found: list[float], least: float) -> tuple[str, str, str, str]:
    """A gate on a ratio: what is asked for, found, its interval, the verdict."""
    verdict = "met" if found[0] >= least else "missed"
    if found[1] < least <= found[2]:
        verdict += ", and the interval straddles it"
    return f"{what} >= {least:g}", f"{found[0]:.2f}", f"{found[1]:.2f} to {found[2]:.2f}", verdict


def gates_of(name: str, cell: Cell) -> list[tuple[str, str, str, str]]:
    """All that is asked of a cell."""
    workload, _, threads = name.partition(":")
    at = f"{workload}, {threads} threads: " if threads else f"{workload}: "
    found = []
    exact, fast, plain = row_of(cell, EXACT), row_of(cell, FAST), row_of(cell, "millhead")
    if exact:
        found.append(at_least(f"{at}exact to the limit", exact["ratio"], LEAST_LIMIT))
    if fast and workload == "W2":
        what = f"{at}fast to the limit that scales as far as 40 dB allow"
        found.append(at_least(what, fast["ratio"], LEAST_LIMIT))
        what = f"{at}fast to the limit that scales further"
        found.append(at_least(what, fast["ratio_to_scaled"], LEAST_LIMIT))
    if plain:
        found.append(at_least(f"{at}to the limit", plain["ratio"], LEAST_FILES))
    for row, title in ((exact, "exact"), (fast if workload == "W2" else None, "fast")):
        for peer, ratio in (row["ratio_to_peers"] if row else {}).items():
            found.append(at_least(f"{at}{title} to {peer}", ratio, 1))
    if "psnr_db" in cell:
        least, median = cell["psnr_db"]
        verdict = "met" if least >= LEAST_PSNR else "missed"
        found.append(
            (
                f"{at}fast beside exact, PSNR >= 40 dB",
                f"{least:.1f}",
                f"median {median:.1f}",
                verdict,
            )
        )
    if workload == "W12":
        found += start_gates(at, cell)
    if workload == "W14":
        found.append(at_least(f"{at}share of time the device is busy", cell["busy"], LEAST_BUSY))
        opened = row_of(cell, "millhead.open in drop-in workers")
        if opened:
            ratio = opened["ratio_to_peers"]["Pillow in drop-in workers"]
            found.append(at_least(f"{at}millhead.open to Pillow, 2 workers", ratio, LEAST_DROP_IN))
    return found


def start_gates(at: str, cell: Cell) -> list[tuple[str, str, str, str]]:
    """Seconds and system calls."""
    median, low, high = cell["second_open_s"]
    extra = cell["calls"] - cell["directories"]
    return [
        (
            f"{at}process start to first batch <= {MOST_START_S} s", f"{median:.2f} s",
            f"{low:.2f} to {high:.2f}", "met" if median <= MOST_START_S else "missed",
        ),
        (
            f"{at}system calls of inspect <= directories + {MOST_CALLS}",
            f"directories + {extra}", "-", "met" if extra <= MOST_CALLS else "missed",
        ),
    ]  # fmt: skip


# --- the page


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows)]


def arms_table(cell: Cell) -> list[str]:
    rows = [
        (
            row["arm"],
            f"{row['rate']:,.0f}",
            f"{row['ratio'][0]:.2f}",
            row["ratio_to"],
            f"{row['ratio'][1]:.2f} to {row['ratio'][2]:.2f}",
            f"{row['cpu_us_per_sample']:,.0f}",
        )
        for row in cell["rows"]
    ]
    return table(("arm", "per second", "ratio", "to", "95 %", "CPU µs per sample"), rows)


def section(name: str, cell: Cell) -> list[str]:
    """One cell's heading, table and noise."""
    lines = ["", f"## {title_of(name)}", "", f"Measured {cell['measured']}."]
    if name == "W12":
        median, low, high = cell["second_open_s"]
        lines += ["", *table(
            ("from the start of the process to", "seconds"),
            [
                ("the first batch, first opening: everything is listed", f"{cell['first_open_s']:.2f}"),
                ("the first batch, opened again", f"{median:.2f} ({low:.2f} to {high:.2f})"),
                ("64 pictures, with os.walk and Pillow", f"{cell['walk_s']:.2f}"),
            ],
        )]  # fmt: skip
        return lines
    if name == "W14":
        busy, demand = cell["busy"], cell["demand"]
        lines[-1] += (
            f" Fed by 2 threads the device is busy {busy[0]:.1%} of the time ({busy[1]:.1%} to "
            f"{busy[2]:.1%}), at {demand[0]:.0%} of the limit measured before and after "
            f"({demand[1]:.0%} to {demand[2]:.0%}); {cell['busy_cpu_us_per_sample']:,.0f} µs of "
            "processor time for each picture."
        )
    lines[-1] += (
        f" Rounds: {cell['rounds']}, {cell['seconds']:g} s for each arm. The limit against itself "
        f"(A/A): {cell['aa_spread']:.1%}; steal {cell['steal']:.1%}."
    )
    return [*lines, "", *arms_table(cell)]


def losses(cells: dict[str, Cell]) -> list[str]:
    """Peers that are faster than us, and gates that are missed."""
    found = []
    for name, cell in cells.items():
        for row in cell.get("rows", []):
            for peer, ratio in row["ratio_to_peers"].items():
                if ratio[0] < 1:
                    found.append(f"{name}, {row['arm']} beside {peer}: {ratio[0]:.2f}")
        found += [f"{gate[0]}: {gate[1]}" for gate in gates_of(name, cell) if "missed" in gate[3]]
    return list(dict.fromkeys(found))


def header(result: dict[str, Any]) -> str:
    """The machine and what was measured."""
    about = result["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return (
        f"{about['cpu']}, {about['allowed_cpus']} processors, Linux {about['kernel']}, Python "
        f"{about['python']}; {packages}."
    )


def markdown(result: dict[str, Any]) -> str:
    """The whole page."""
    cells = result["cells"]
    lines = [
        "# Pictures and small files",
        "",
        header(result),
        "",
        "Pictures: random resized crop 224, mirrored at random, uint8, batches of 64. The limit is a bare loop",
        "over libjpeg that decodes the crop alone and resizes it, its files in memory (bench/limits). A ratio is",
        "that of two arms in the same round, then the median; the interval is a bootstrap over rounds.",
        "",
        "## Gates",
        "",
        *table(
            ("what", "found", "95 %", ""),
            [g for name in cells for g in gates_of(name, cells[name])],
        ),
        "",
        "Where we lose: " + ("; ".join(losses(cells)) or "nowhere in these tables") + ".",
    ]
    for name, cell in cells.items():
        lines += section(name, cell)
    return "\n".join([*lines, ""])


def svg(result: dict[str, Any]) -> str:
    """Bars of the rates as shares of the limit, one panel for each cell."""
    parts, y = [], 24
    for name, cell in result["cells"].items():
        if "rows" not in cell:
            continue
        limit = next(row["rate"] for row in cell["rows"] if row["arm"] == "limit")
        parts.append(f'<text x="8" y="{y}" font-weight="bold">{title_of(name)}</text>')
        for row in cell["rows"]:
            y += 22
            width = 360 * row["rate"] / limit
            fill = "#2b7a4b" if row["arm"].startswith("millhead") else "#9aa5ad"
            parts.append(f'<text x="216" y="{y}" text-anchor="end">{row["arm"]}</text>')
            parts.append(
                f'<rect x="224" y="{y - 12}" width="{width:.1f}" height="16" fill="{fill}"/>'
            )
            parts.append(f'<text x="{230 + width:.1f}" y="{y}">{row["rate"]:,.0f}/s</text>')
        y += 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{y}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    )
    return head + "".join(parts) + "</svg>\n"
