"""The table, the gates and the picture of bench/cloud.py."""

from __future__ import annotations

import statistics
from typing import Any

Row = dict[str, Any]
NAMES = {
    "earthmover": "Earthmover, as it comes",
    "earthmover_w4": "Earthmover, 4 workers",
    "earthmover_w8": "Earthmover, 8 workers",
    "torch_zarr": "torch + zarr + s3fs",
    "millhead": "millhead",
}
COLOURS = {
    "earthmover": "#8a94a6",
    "earthmover_w4": "#c396f9",
    "earthmover_w8": "#6d0edb",
    "torch_zarr": "#ff9e0d",
    "millhead": "#0b8457",
}
HEAD = (
    "| step s | arm | AU | mean wait s | samples/s | set-up s | CPU ms/sample | after set-up | requests |"
    " fetched / needed |\n|---|---|---|---|---|---|---|---|---|---|\n"
)


def line(row: Row) -> str:
    use = f"{row['au']:.3f}" if row["step_s"] else "–"
    fetched = f"{row['bytes'] / row['needed']:.2f}" if "needed" in row else "–"
    return (
        f"| {row['step_s']:g} | {NAMES[row['arm']]} | {use} | {row['mean_wait_s']:.4f} | {row['rate']:.0f}"
        f" | {row['setup_s']:.2f} | {row['cpu_per_sample'] * 1e3:.2f} | {row['cpu_per_sample_steady'] * 1e3:.2f}"
        f" | {row['requests']} | {fetched} |\n"
    )


def of_step(rows: list[Row], step_s: float) -> tuple[Row, list[Row]]:
    """Ours, and theirs in their best configurations."""
    here = [row for row in rows if row["step_s"] == step_s]
    ours = next(row for row in here if row["arm"] == "millhead")
    return ours, [row for row in here if row["arm"] not in ("millhead", "earthmover")]


def gates(found: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """What is asked, what came, whether that is enough."""
    amplification = float(found["inspect"].get("amplification", 1.0))
    lines = []
    for step_s in sorted({row["step_s"] for row in found["rows"]}):
        ours, theirs = of_step(found["rows"], step_s)
        fetched = ours["bytes"] / ours["needed"]
        lines += [
            (f"AU at {step_s:g} s ≥ 0.99", f"{ours['au']:.3f}", ours["au"] >= 0.99),
            (f"set-up at {step_s:g} s ≤ 2 s", f"{ours['setup_s']:.2f}", ours["setup_s"] <= 2),
            (
                f"fetched / needed at {step_s:g} s ≤ 1.1 × {amplification:.2f}",
                f"{fetched:.2f}",
                fetched <= 1.1 * amplification,
            ),
        ]
        if theirs:
            cpu = ours["cpu_per_sample"] / min(row["cpu_per_sample"] for row in theirs)
            best = max(row["rate"] for row in theirs)
            lines += [
                (
                    f"CPU per sample, set-up and all, at {step_s:g} s ≤ 1/3 of their best",
                    f"{cpu:.3f}",
                    cpu <= 1 / 3,
                ),
                (
                    f"samples/s at {step_s:g} s ≥ their best",
                    f"{ours['rate'] / best:.2f} ×",
                    ours["rate"] >= 0.98 * best,
                ),
            ]
    second = found["cached"][1]
    share = statistics.median(row["rate"] for row in found["cached"][1:])
    share /= statistics.median(row["rate"] for row in found["local"][1:])
    return [
        *lines,
        ("later runs, from the disk cache: ≥ 0.95 of local files", f"{share:.2f}", share >= 0.95),
        (
            "its requests for chunks: 0",
            f"{second['requests']} in all",
            second["bytes"] < 0.01 * second["needed"],
        ),
    ]


def page(found: dict[str, Any]) -> str:
    rows = sorted(found["rows"], key=lambda row: (row["step_s"], list(NAMES).index(row["arm"])))
    text = (
        "# Earthmover's loop over a link of 30 ms\n\n![accelerator use over step time](cloud.svg)\n\n"
        + HEAD
    )
    text += "".join(line(row) for row in rows)
    text += (
        "\nA whole epoch with no step: into the disk cache, then from it three times.\n\n" + HEAD
    )
    text += "".join(line(row) for row in found["cached"])
    text += "\nThe same from local files, between them.\n\n" + HEAD
    text += "".join(line(row) for row in found["local"])
    text += "\n| gate | found | |\n|---|---|---|\n"
    text += "".join(
        f"| {what} | {came} | {'yes' if good else '**no**'} |\n"
        for what, came, good in gates(found)
    )
    return text


def picture(rows: list[Row]) -> str:
    """Accelerator use of each arm over step time."""
    steps = sorted({row["step_s"] for row in rows})
    wide, high, left, top = 680, 320, 60, 40

    def x(step_s: float) -> float:
        return left + (wide - left - 230) * (steps.index(step_s) / max(len(steps) - 1, 1))

    def y(use: float) -> float:
        return top + (high - top - 50) * (1 - use)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="13">',
        f'<rect width="{wide}" height="{high}" fill="#fff"/>',
        f'<text x="{left}" y="22" font-size="15">Accelerator use, Zarr in S3 behind 30 ms</text>',
    ]
    for use in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path d="M{left} {y(use):.1f}H{x(steps[-1]):.1f}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{left - 8}" y="{y(use) + 4:.1f}" text-anchor="end">{use:.0%}</text>'
        )
    for step_s in steps:
        parts.append(
            f'<text x="{x(step_s):.1f}" y="{high - 28}" text-anchor="middle">{step_s:g} s</text>'
        )
    parts.append(f'<text x="{left}" y="{high - 8}">step time</text>')
    for number, arm in enumerate(NAMES):
        points = sorted((row["step_s"], row["au"]) for row in rows if row["arm"] == arm)
        if not points:
            continue
        path = " ".join(f"{x(step_s):.1f},{y(use):.1f}" for step_s, use in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[arm]}" stroke-width="2.5"/>'
        )
        parts += [
            f'<circle cx="{x(step_s):.1f}" cy="{y(use):.1f}" r="3.5" fill="{COLOURS[arm]}"/>'
            for step_s, use in points
        ]
        at = top + 12 + 22 * number
        parts.append(
            f'<rect x="{wide - 212}" y="{at - 10}" width="12" height="12" fill="{COLOURS[arm]}"/>'
        )
        parts.append(f'<text x="{wide - 194}" y="{at}">{NAMES[arm]}</text>')
    return "\n".join([*parts, "</svg>\n"])
