"""What one machine instruction (SASS) is: its class, its width, whether it is index arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_PREDICATE = re.compile(r"^@!?U?P\d+\s+|^@!?U?PT\s+")
_MATRIX = re.compile(r"^(H|HG|I|IG|Q|QG|O|D|B|BG)MMA$|^UTC\w*MMA$")

_CLASSES: dict[str, str] = {
    opcode: name
    for name, opcodes in {
        "global_load": "LDG LD LDGSTS UTMALDG UBLKCP",
        "global_store": "STG ST UTMASTG",
        "local": "LDL STL",
        "shared": "LDS STS LDSM STSM",
        "constant": "LDC ULDC LDCU",
        "atomic": "ATOM ATOMG ATOMS RED REDG REDAS UTMAREDG",
        "float": "FADD FADD2 FFMA FFMA2 FMUL FMUL2 FMNMX FMNMX3 FSEL FSETP FSET FCHK HADD2 HFMA2 "
        "HMUL2 HMNMX2 HSETP2 HSET2 DADD DFMA DMUL DSETP DMNMX",
        "special": "MUFU",
        "conversion": "F2F F2I I2F I2FP F2FP F2IP FRND PRMT",
        "integer": "IADD3 IADD VIADD VIADDMNMX IMAD IABS ISETP LEA LOP3 LOP SHF SHL SHR SEL POPC "
        "FLO BMSK BREV VIMNMX VIMNMX3 IMNMX IDP ISCADD SGXT IMUL IADD64",
        "uniform": "UIADD3 UIADD UIMAD ULEA USHF ULOP3 UISETP USEL UIABS UPOPC UFLO UBMSK USGXT "
        "UPRMT UVIADD UVIMNMX",
        "predicate": "PLOP3 P2R R2P UPLOP3 UP2UR UR2UP",
        "movement": "MOV UMOV CS2R S2R S2UR R2UR CS2UR UMOV64 MOV64 VOTE VOTEU",
        "shuffle": "SHFL REDUX",
        "control": "BRA EXIT BSSY BSYNC CALL RET BRX JMP WARPSYNC NOP YIELD BREAK BMOV NANOSLEEP "
        "ELECT ACQBULK",
        "barrier": "BAR DEPBAR MEMBAR SYNCS LDGDEPBAR WARPGROUP ERRBAR CCTL UCGABAR_ARV "
        "UCGABAR_WAIT WARPGROUPSET FENCE ARRIVES UTMACMDFLUSH B2R",
    }.items()
    for opcode in opcodes.split()
}

INDEX_CLASSES = frozenset({"integer", "uniform", "predicate"})
"""Classes that compute addresses, indices and masks in a kernel whose data are floats."""

WARPS_A_GROUP = 4
_FLOPS = {
    **dict.fromkeys(("FADD", "FMUL", "DADD", "DMUL"), 1),
    **dict.fromkeys(("FFMA", "DFMA", "HADD2", "HMUL2", "FADD2", "FMUL2"), 2),
    **dict.fromkeys(("HFMA2", "FFMA2"), 4),
}

MEMORY_CLASSES = frozenset({"global_load", "global_store", "atomic"})


def operation(sass: str) -> str:
    """The opcode with its modifiers and without its predicate: `LDG.E.U16`."""
    words = _PREDICATE.sub("", sass.strip()).split(None, 1)
    return words[0].rstrip(";") if words else ""


def instruction_class(sass: str) -> str:
    """The class of one instruction: a key of a launch's `instruction_mix`.

    Widening bfloat16 to float32 is a shift, a mask or a byte permutation, and a move may be
    spelled as a multiply-add with zero: both would pass for index arithmetic by opcode alone.
    """
    name = operation(sass)
    opcode, _, modifiers = name.partition(".")
    if _MATRIX.match(opcode):
        return "matrix"
    if (opcode == "IMAD" and modifiers.startswith("MOV")) or "-RZ, RZ," in sass:
        return "movement"
    if opcode in {"IMAD", "SHF", "LOP3"} and re.search(r"0x10000\b|0xffff0000\b|, 0x10, ", sass):
        return "conversion"
    return _CLASSES.get(opcode, "other")


def access_bits(sass: str) -> int | None:
    """Bits one lane moves with this memory instruction; None where it is no load or store."""
    if instruction_class(sass) not in {"global_load", "global_store", "local", "shared"}:
        return None
    _, *modifiers = operation(sass).split(".")
    if is_bulk_copy(sass):
        return None
    widths = {"256": 256, "128": 128, "64": 64, "U8": 8, "S8": 8, "U16": 16, "S16": 16}
    return next((widths[word] for word in widths if word in modifiers), 32)


def is_bulk_copy(sass: str) -> bool:
    """Whether this copies a block of memory, which no lane has a part of."""
    return operation(sass).startswith(("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP"))


def widest(instructions: Iterable[str], kind: str) -> int | None:
    """Bits of the widest access of this class (`global_load`, `global_store`); None without."""
    of_kind = (i for i in instructions if instruction_class(i) == kind)
    return max((access_bits(i) or 0 for i in of_kind), default=None)


def is_wide_address(sass: str) -> bool:
    """Whether this is one half of 64-bit address arithmetic."""
    name = operation(sass)
    return bool(re.match(r"U?(IMAD\.WIDE|IMAD\.X|LEA\.HI\.X|IADD3\.X|IADD\.64|IADD64)", name))


def is_division(sass: str) -> bool:
    """Whether this begins an integer division by a value the compiler did not know.

    Such a division starts from a float reciprocal of the divisor, rounded up.
    """
    name = operation(sass)
    return name.startswith(("I2F", "UI2F")) and ".RP" in name


def float_operations(sass: str) -> int:
    """Float additions and multiplications one lane does with this instruction; 0 for others."""
    name = operation(sass)
    count = _FLOPS.get(name.partition(".")[0], 0)
    return 0 if name.startswith(("HFMA2.MMA", "HFMA2.BF16_V2")) and "-RZ, RZ" in sass else count


def matrix_operations(sass: str) -> int:
    """Multiplications and additions that one warp's share of a matrix instruction is; 0 for others,
    and for one whose shape is not told.

    `HGMMA.64x128x16` is of four warps, `HMMA.16816` (16 x 8 x 16) of one.
    """
    name = operation(sass)
    group = re.match(r"[A-Z]GMMA\.(?:SP\.)?(\d+)x(\d+)x(\d+)", name)
    if group:
        return math.prod(map(int, group.groups())) * 2 // WARPS_A_GROUP
    warp = re.match(r"[A-Z]MMA\.(?:SP\.)?(16|8)(8)(\d+)\b", name)
    return math.prod(map(int, warp.groups())) * 2 if warp else 0


def pipe(sass: str) -> str | None:
    """`alu` or `fma` where one of these two executes the instruction (Ampere to Blackwell)."""
    opcode = operation(sass).partition(".")[0]
    if opcode in {"IMAD", "FFMA", "FMUL", "FADD", "HFMA2", "HADD2", "HMUL2", "IDP"}:
        return "fma"
    kind = _CLASSES.get(opcode)
    alu_float = {"FMNMX", "FSEL", "FSETP", "FSET", "HMNMX2", "HSETP2"}
    if kind == "integer" or opcode in alu_float | {"PRMT", "F2FP", "PLOP3", "P2R", "R2P"}:
        return "alu"
    return None
