"""Patches in replies: applied by their text, refused with a reason."""

import pytest

from beamsearch.proposer.questions import Diagnosis
from beamsearch.proposer.replies import (
    DoesNotApply,
    UnreadableReply,
    apply_patch,
    json_schema,
    read_review,
    read_variants,
)

KERNEL = """\
import torch


def helper(x):
    return x


def kernel_function(x):
    y = x + 1
    return y
"""


def test_a_diff_with_wrong_line_numbers_and_no_blank_before_empty_lines_applies():
    patch = """\
--- a
+++ b
@@ -90,4 +90,5 @@
     return x


 def kernel_function(x):
-    y = x + 1
+    y = x + 2
+    y = y * 2
"""
    changed = apply_patch(patch, KERNEL)
    assert changed == KERNEL.replace("    y = x + 1\n", "    y = x + 2\n    y = y * 2\n")


def test_blocks_replace_lines_that_occur_once():
    patch = (
        "<<<<<<< SEARCH\n    y = x + 1\n=======\n    y = x + 3\n>>>>>>> REPLACE\n"
        "<<<<<<< SEARCH\nimport torch\n=======\nimport torch\nimport triton\n>>>>>>> REPLACE\n"
    )
    wanted = KERNEL.replace("x + 1", "x + 3").replace("torch\n", "torch\nimport triton\n", 1)
    assert apply_patch(patch, KERNEL) == wanted


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (
            "<<<<<<< SEARCH\n    y = x - 1\n=======\n>>>>>>> REPLACE\n",
            "no such lines, from `y = x - 1",
        ),
        ("<<<<<<< SEARCH\n\n\n=======\n>>>>>>> REPLACE\n", "2 times"),
        ("@@\n+import os\n", "names no line"),
    ],
)
def test_a_patch_that_does_not_fit_says_where(patch, says):
    with pytest.raises(DoesNotApply, match=says.replace("(", r"\(")):
        apply_patch(patch, KERNEL)


def test_every_kernel_of_a_reply_is_used_whole_files_and_patches_alike_and_copies_once():
    whole = KERNEL.replace("+ 1", "+ 4")
    reply = (
        f"First.\n```python\n{whole}```\n"
        f"Second.\n```diff\n@@ -9 +9 @@\n-    y = x + 1\n+    y = x\n```\n"
        f"The first again.\n```python\n{whole}```\n"
        "Third.\n```text\n<<<<<<< SEARCH\nno line\n=======\n\n>>>>>>> REPLACE\n```\n"
        "An aside.\n```python\nprint('no kernel')\n```\n"
    )
    first, second, third = read_variants(reply, KERNEL)
    assert (first.description, first.source) == ("First.", whole)
    assert second.source == KERNEL.replace("x + 1", "x")
    assert third.source is None and "no line" in third.patch and "does not apply" in third.fault


def test_a_reply_without_a_kernel_is_told_by_what_it_says():
    with pytest.raises(UnreadableReply, match="no patch of the kernel: I can't do that[.]$"):
        read_variants("I can't do that.\n", KERNEL)
    for nothing in ("", "```python\nprint()\n```\n"):
        with pytest.raises(UnreadableReply, match="no patch of the kernel$"):
            read_variants(nothing, KERNEL)


def test_a_review_speaks_of_kernels_that_are_there():
    concern = '{"variant": %d, "fails": true, "kind": "memory", "reason": "line 3"}'
    assert read_review(f'{{"concerns": [{concern % 1}]}}', 2).concerns[0].fails
    for bad in (f"[{concern % 2}]", f"[{concern % 0}, {concern % 0}]"):
        with pytest.raises(UnreadableReply, match="there are 2"):
            read_review(f'{{"concerns": {bad}}}', 2)


def test_a_schema_for_structured_outputs_requires_every_property():
    schema = json_schema(Diagnosis)["schema"]
    assert schema["required"] == list(Diagnosis.model_fields)
    assert schema["additionalProperties"] is False
    assert "default" not in str(schema)
