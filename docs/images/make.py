# ruff: noqa: INP001 - a program beside its pictures, no package
"""Draw the picture of the README: a real plan, drawn by the package, as SVG.

    .venv/bin/python docs/images/make.py

Machine, ports and run are given, so that the same file comes out everywhere.
"""

from __future__ import annotations

import re
import shlex
import sys
from html import escape
from pathlib import Path

from tfjob_magic import commands, drawing, grammar
from tfjob_magic.core import job, node, plan

PICTURE = Path(__file__).resolve().parent / "plan.svg"
COMMAND = "tfjob plan train.py --nodes 2 --flavor v100x8 -- --epochs 5"
LAPTOP = node.Machine(cores=tuple(range(16)), memory_mib=32 * 1024, devices=(), nics=())
PORTS = (5180, 9073, 7441, 6626)

COLUMNS = 100
CHARACTER, LINE = 8.4, 19  # pixels
MARGIN = 20
FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
STYLE = """
  rect { fill: #fbfbfa; stroke: #d0d0cc } text { fill: #24292f }
  path { fill: none; stroke: #8a94a0 } .task { fill: #0b6bcb; font-weight: bold }
  .lead { font-weight: bold }
  @media (prefers-color-scheme: dark) {
    rect { fill: #16191d; stroke: #3a4048 } text { fill: #d8dee6 }
    path { stroke: #77818c } .task { fill: #6cb6ff }
  }
"""
# Where the lines of a frame go from the middle of a character: left, right, up, down.
FRAME = {
    "─": "lr",
    "━": "lr",
    "│": "ud",
    "╭": "rd",
    "╮": "ld",
    "╰": "ru",
    "╯": "lu",
    "┬": "lrd",
    "┴": "lru",
    "┷": "lru",
}
PIECES = re.compile(
    rf"(?P<lead>^\$.*)|(?P<frame>[{''.join(FRAME)}]+)|(?P<task>\b(?:ps|worker)-\d+\b)"
    rf"|(?P<words>[^ {''.join(FRAME)}]+(?: [^ {''.join(FRAME)}]+)*)"
)


def drawn() -> str:
    """Draw what the command prints on a laptop of 16 cores and 32 GB."""
    command = grammar.arguments(shlex.split(COMMAND)[1:])
    asked = job.parse(commands.submission(command, sys.executable, {}).job, {})
    nodes = node.carve(LAPTOP, asked)
    planned = plan.plan(asked, nodes, PORTS, f"{asked.name}-1a2b3", log_dir="logs")
    return drawing.draw(planned, COLUMNS)


def words(text: str, kind: str, x: float, y: float) -> str:
    """Place a piece of text, stretched to whole columns whatever the font."""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y + 14:g}" textLength="{len(text) * CHARACTER:.1f}"'
        f' lengthAdjust="spacingAndGlyphs">{escape(text, quote=False)}</text>'
    )


def frame(text: str, x: float, y: float) -> str:
    """Draw a piece of a frame as lines, which meet where a font's characters may not."""
    middle = y + LINE / 2
    strokes = []
    if "l" in FRAME[text[-1]] or "r" in FRAME[text[0]]:
        left = x + (0 if "l" in FRAME[text[0]] else CHARACTER / 2)
        right = x + len(text) * CHARACTER - (0 if "r" in FRAME[text[-1]] else CHARACTER / 2)
        strokes.append(f"M{left:.1f} {middle:g}H{right:.1f}")
    for number, character in enumerate(text):
        across = x + (number + 0.5) * CHARACTER
        if "u" in FRAME[character]:
            strokes.append(f"M{across:.1f} {y:g}V{middle:g}")
        if "d" in FRAME[character]:
            strokes.append(f"M{across:.1f} {middle:g}V{y + LINE:g}")
    heavy = ' stroke-width="3"' if "━" in text else ""
    return f'<path d="{"".join(strokes)}"{heavy} />'


def pieces(line: str, y: float) -> list[str]:
    """Place every piece of a line at its own column, so that no font can move it."""
    placed = []
    for found in PIECES.finditer(line):
        x, kind = MARGIN + found.start() * CHARACTER, found.lastgroup or ""
        placed.append(frame(found[0], x, y) if kind == "frame" else words(found[0], kind, x, y))
    return placed


def svg(command: str, text: str) -> str:
    """Show a command and what it prints."""
    lines = [f"$ {command}", "", *text.splitlines()]
    width, height = MARGIN * 2 + COLUMNS * CHARACTER, MARGIN * 2 + len(lines) * LINE
    rows = [piece for n, line in enumerate(lines) for piece in pieces(line, MARGIN + n * LINE)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img">',
            f"<title>{escape(command)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{width:g}" height="{height}" rx="8" />',
            f'<g font-family="{FONT}" font-size="14">',
            *rows,
            "</g>",
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(svg(COMMAND, drawn()), encoding="utf-8")
