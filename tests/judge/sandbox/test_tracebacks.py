"""What a candidate's process prints of an exception."""

from __future__ import annotations

import json

from beamsearch.judge.sandbox.harness import describe_error


def test_a_traceback_holds_the_kernels_lines_and_where_it_ended(capsys):
    source = "def outer():\n    return inner()\ndef inner():\n    return json.loads('{')\n"
    made: dict = {"json": json}
    exec(compile(source, "kernel.py", "exec"), made)
    try:
        made["outer"]()
    except ValueError as error:
        told = describe_error(error, "kernel.py")
    lines = capsys.readouterr().err.splitlines()
    frames = [line.split(",")[0:2] for line in lines if line.lstrip().startswith("File ")]
    own = [line for _, line in frames[:-1]]
    assert own == [" line 2", " line 4"] and "raw_decode" in "\n".join(lines)
    assert len(frames) == 3 and lines[-1].startswith("json.decoder.JSONDecodeError")
    assert told["type"] == "JSONDecodeError"
