"""A compiled kernel's machine code: instructions with their source lines, loops, resources."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_profiling.compiler.sass import MEMORY_CLASSES, access_bits, instruction_class, operation
from kernel_profiling.errors import ProfilingError
from kernel_profiling.profile import AccessKind, CodeAccess, CodeRegion

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_LABEL = re.compile(r"^\s*(\.L_x_\d+|\$\S+):")
_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_BRANCH = re.compile(r"\bBRA\S*\s+(?:\S+,\s*)*`\((\.L_x_\d+)\)")
_REGISTER = re.compile(r"\bR(\d+)\b")
_LIBRARY = "/triton/language/"
_ASYNC_BITS = 128
"""Bits a thread copies with one asynchronous copy (LDGSTS) that names no width."""


@dataclass(frozen=True)
class Instruction:
    """One machine instruction."""

    text: str
    kind: str
    """Its class (see `sass`)."""
    line: int | None
    """Line of the kernel's file; none before the first that is named."""


@dataclass(frozen=True)
class Code:
    """The instructions of a kernel and what one block of it needs."""

    instructions: list[Instruction]
    regions: list[CodeRegion]
    registers: int
    """Registers a thread."""
    stack_bytes: int
    """Local memory a thread: spills and arrays that registers cannot index."""

    @property
    def text(self) -> str:
        """The code without addresses and source lines: equal for equal machine code."""
        return "\n".join(instruction.text for instruction in self.instructions)


def disassemble(cubin: bytes, starts: Mapping[int, int], shifted: Mapping[int, int]) -> Code:
    """The code of a compiled kernel, lines being those of the kernel's own file.

    `starts`: lines that continue a statement -> its first line. `shifted`: lines that memory
    instructions carry -> their own (see `statements.asm_lines`).

    Uses the tools that come with Triton. Raises ProfilingError where one is missing or fails.
    """
    from triton import knobs

    registers, stack = resources(cubin)
    # Without its analysis of data flow, which only names the targets of jumps through tables.
    listing = _run(knobs.nvidia.nvdisasm.path, cubin, "-c", "-g", "-ndf")
    instructions, loops = _parse_listing(listing, starts, shifted)
    return Code(instructions, _regions(instructions, loops), registers, stack)


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers a thread, and bytes of local memory: a hundred times as fast as the instructions.

    Raises ProfilingError where the tool that comes with Triton is missing or fails.
    """
    from triton import knobs

    usage = _run(knobs.nvidia.cuobjdump.path, cubin, "-res-usage")
    # Inline assembly may hold other functions; what the kernel takes must not be hidden by theirs.
    registers, stack = (
        max(map(int, re.findall(rf"\b{name}:(\d+)", usage)), default=0) for name in ("REG", "STACK")
    )
    return registers, stack


def _run(tool: str, cubin: bytes, *options: str) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            command = [tool, *options, file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ProfilingError(f"cannot run {tool}: {error}; reinstall triton") from error
    if done.returncode:
        raise ProfilingError(f"{Path(tool).name} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _parse_listing(
    text: str, starts: Mapping[int, int], shifted: Mapping[int, int]
) -> tuple[list[Instruction], list[tuple[int, int]]]:
    """Instructions of `nvdisasm -c -g`, and loops as (first, last) instruction, outermost first.

    Code inlined from Triton's own library carries the line of the kernel's file that came before
    it. Which file that is does not matter: a compiled kernel may come from the cache, under the
    path it had when it was first compiled.
    Slow paths of divisions and roots, which lie behind the kernel's end and are all but never
    entered, are left out, as is the padding behind the last branch.
    """
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    line: int | None = None
    number = 0
    slow = False
    for row in text.splitlines():
        if match := _LINE.match(row):
            number = int(match[2])
            line = line if _LIBRARY in match[1] else starts.get(number, number)
        elif match := _LABEL.match(row):
            labels[match[1]] = len(instructions)
            if match[1].startswith("$"):
                slow = "slowpath" in match[1]
        elif not slow and (match := _INSTRUCTION.match(row)):
            words = re.sub(r"\s+", " ", match[2])
            if branch := _BRANCH.search(words):
                branches.append((len(instructions), branch[1]))
            kind, own = instruction_class(words), line
            if kind in MEMORY_CLASSES and number in shifted:
                own = starts.get(shifted[number], shifted[number])
            instructions.append(Instruction(words, kind, own))
    while instructions and operation(instructions[-1].text) == "NOP":
        instructions.pop()
    return instructions, _loops((labels.get(label, last), last) for last, label in branches)


def _loops(branches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Loops closed by branches (to, from) backwards; several ways back to one head are one loop."""
    loops: dict[int, int] = {}
    for first, last in branches:
        if first < last:  # a branch to itself is the trap behind the last exit
            loops[first] = max(last, loops.get(first, last))
    return sorted(loops.items())


def _regions(instructions: list[Instruction], loops: list[tuple[int, int]]) -> list[CodeRegion]:
    """The code by loop; region 0 is what lies outside all of them."""
    owner = [0] * len(instructions)
    parents: list[int | None] = [None]
    for first, last in loops:  # outermost first, so that an inner loop writes over its outer one
        parents.append(owner[first])
        owner[first : last + 1] = [len(parents) - 1] * (last + 1 - first)
    regions = []
    for index, parent in enumerate(parents):
        body = [i for i, region in zip(instructions, owner, strict=True) if region == index]
        accesses = Counter(
            (
                i.line or 0,
                *access,
                "STRONG" in operation(i.text),
                operation(i.text).startswith("U"),
            )
            for i in body
            if (access := _access(i))
        )
        regions.append(
            CodeRegion(
                parent=parent,
                waits=_waits(body, loop=index > 0),
                mix=dict(sorted(Counter(i.kind for i in body).items())),
                lines=dict(sorted(Counter(i.line or 0 for i in body).items())),
                accesses=[
                    CodeAccess(
                        line=line, kind=kind, bits=bits, count=count, past_l1=past_l1, bulk=bulk
                    )
                    for (line, kind, bits, past_l1, bulk), count in sorted(accesses.items())
                ],
            )
        )
    return regions


def _waits(body: list[Instruction], loop: bool) -> int:
    """How often a warp stops for loads in one run of this code.

    A warp issues in order: at the first use of a loaded register it stops until the load is done,
    and loads issued before that are done by then too. A loop is read twice, since it may use what
    its last turn loaded.
    """
    pending: set[int] = set()
    waits = 0
    for _ in range(1 + loop):
        waits = 0
        for instruction in body:
            named = [int(n) for n in _REGISTER.findall(instruction.text)]
            if pending.intersection(named):
                pending.clear()
                waits += 1
            copies = operation(instruction.text).startswith("LDGSTS")  # to shared memory
            if named and instruction.kind == "global_load" and not copies:
                words = max(1, (access_bits(instruction.text) or 32) // 32)
                pending |= set(range(named[0], named[0] + words))
    return waits


def _access(instruction: Instruction) -> tuple[AccessKind, int] | None:
    """What a global memory instruction does and the bits a thread moves with it."""
    text, kind = instruction.text, instruction.kind
    if kind == "atomic":
        return "atomic", 32
    if kind not in MEMORY_CLASSES:
        return None
    bits = access_bits(text) or 32
    if operation(text).startswith("LDGSTS") and "64" not in text and bits == 32:
        words = operation(text).split(".")
        bits = _ASYNC_BITS if "BYPASS" in words or "128" in words else 32
    return ("load" if kind == "global_load" else "store"), bits
