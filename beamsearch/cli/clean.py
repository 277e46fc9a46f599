"""Text of kernels, models and processes, made harmless for a terminal: the one place for that."""

from __future__ import annotations

import io
import re
import sys
import unicodedata

ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, screen
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, …
    r"|\x1b[ -/]*[0-~]"  # two characters
)
"""Control sequences of ECMA-48, as terminals read them."""
MARKS = 2
"""Combining marks that may follow one character."""
STRANGE = {"Cc", "Cs", "Co", "Cn"}
"""Controls, halves of characters, private and unassigned ones: their width is anybody's guess."""
RESET = "\x1b[0m"
STYLES = re.compile(r"(\x1b\[(?:[01]|3[0-7])m)")
"""What `typer.style` makes."""
PLAIN = re.compile(r"[ -~\n]*")


def clean(text: str, *, lines: bool = False) -> str:
    """The text without control sequences, control characters, characters of no width and what
    turns the direction of writing, on one line; with `lines`, on the lines that it has."""
    if PLAIN.fullmatch(text) is None:
        text = "".join(_characters(unicodedata.normalize("NFC", ESCAPES.sub("", text))))
    return text if lines else text.replace("\n", " ")


def _characters(text: str) -> list[str]:
    kept: list[str] = []
    marks = 0
    for character in text:
        kind = unicodedata.category(character)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if character == "\n":
            kept.append(character)
        elif character in "\r\t\v\f\x85" or kind in ("Zs", "Zl", "Zp"):
            kept.append(" ")
        elif kind in STRANGE:
            kept.append("\N{REPLACEMENT CHARACTER}")
        elif kind != "Cf" and marks <= MARKS and not "\ufe00" <= character <= "\ufe0f":
            kept.append(character)
    return kept


class CleanText(io.TextIOWrapper):
    """A terminal's stream that writes clean text, bold and in colours at most, and those of one
    write do not reach into the next."""

    def write(self, text: str) -> int:
        parts = STYLES.split(text)
        parts[::2] = [clean(part, lines=True) for part in parts[::2]]
        super().write("".join(parts) + (RESET if len(parts) > 1 else ""))
        return len(text)


def clean_terminal() -> None:
    """Have all that this process prints on a terminal cleaned. What goes elsewhere is as it is."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream.isatty() and not isinstance(stream, CleanText):
            stream.flush()
            own = CleanText(
                stream.buffer, stream.encoding, "replace", line_buffering=True, newline="\n"
            )
            setattr(sys, name, own)
