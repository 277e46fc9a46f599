"""What a kernel or a model wrote does nothing to the terminal that it is shown in."""

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamsearch.cli.clean import CleanText, clean

HOSTILE = (
    "<b>[red]\x1b[31;1mred\x1b[0m[/red] \x1b[2J\x1b[H\x1b]0;title\x07\x1b[?1049l\x9b5A\x08\x08\r\n"
    "\u202eright to left\u202c ze\u200bro Z\u0351\u0352\u0353\u0354\u0355\u0356alg\u0361o "
    "宽字符 👩‍👩‍👧 \ue000 \x00\x7f\u2028\ufeff\tend"
)
"""HTML, markup, colours, a cleared screen, a title, two ways to move the cursor, directions,
characters of no width, of two columns, of nobody knows how many."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.5 ms — ~1.5× the floor", "0.5 ms — ~1.5× the floor"),
        ("[red]<i>as it is</i>[/red]", "[red]<i>as it is</i>[/red]"),
        ("\x1b[31mred\x1b[0m and \x9b1mbold", "red and bold"),
        ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", "abc"),
        ("\x1bP1$r\x1b\\a\x1b(0b\x1bcc", "abc"),
        ("one\ntwo\r\nthree\tfour", "one two  three four"),
        ("a\x08\x00b", "a\ufffd\ufffdb"),
        ("\u202eabc\u2066\u200b\ufeff", "abc"),
        ("e\u0301 Z" + "\u0351" * 9, "é Z\u0351\u0351"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("unfinished \x1b[", "unfinished "),
    ],
)
def test_text_stays_and_what_moves_the_terminal_goes(text, shown):
    assert clean(text) == shown


def test_lines_stay_where_lines_are_meant():
    assert clean("one\ntwo\x07", lines=True) == "one\ntwo\ufffd"


@given(st.text(st.characters()))
def test_nothing_that_controls_a_terminal_is_left(text):
    left = clean(text)
    assert not {unicodedata.category(c) for c in left} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert clean(left) == left


def test_a_terminals_stream_lets_styles_through_and_ends_them():
    buffer = io.BytesIO()
    stream = CleanText(buffer, "utf-8", newline="\n")
    stream.write("\x1b[32m\x1b[1mok\x1b[0m fine\n")
    stream.write(f"\x1b[31mleft red {HOSTILE}\n")
    stream.flush()
    first, second, _ = buffer.getvalue().decode().split("\n", 2)
    assert first == "\x1b[32m\x1b[1mok\x1b[0m fine"
    assert buffer.getvalue().endswith(b"\x1b[0m")
    assert not re.search(r"\x1b(?!\[(?:[01]|3[0-7])m)", second)
