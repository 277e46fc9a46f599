"""Questions as a run asks them: a real problem, its real first kernel, and figures of one profile.

The figures are those of an H200's profile of the first kernel of `43_Max_Pooling_3D`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from beamsearch.problem.least_work import LeastWork, least_work
from beamsearch.problem.problem import find_problem
from beamsearch.proposer.prompts.problem_card import make_card
from beamsearch.proposer.questions import (
    Attempt,
    Diagnosis,
    DiagnosisQuestion,
    FirstQuestion,
    Memory,
    Prediction,
    ProblemCard,
    ReflectionQuestion,
    RepairQuestion,
    ReviewQuestion,
    Shown,
    Trial,
    VariantsQuestion,
)
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.proposal import Proposal
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from kernel_profiling.ncu.line_counters import annotate
from kernel_profiling.profile import Finding, FindingKind, Floor, Launch, LineCounters, Profile

MEASURED = Measurement(
    source="measured",
    time_ms=2.897,
    p20_ms=2.896,
    p80_ms=2.898,
    count=100,
    gpu="NVIDIA H200",
    gpu_uuid="GPU-5f0c",
    visit="v1",
)
MODELLED = Measurement(source="modelled", time_ms=3.117, gpu="NVIDIA H200")
NCU = Profile(
    source="ncu",
    gpu="NVIDIA H200",
    launches=[
        Launch(
            name="max_pool3d_kernel",
            triton=True,
            grid=(119164, 1, 1),
            threads=128,
            duration_us=2893.888,
            share=1.0,
            registers=124,
            spill_bytes=0,
            shared_bytes=0,
            occupancy=0.25,
            occupancy_limiter="registers",
            load_bits=16,
            store_bits=128,
            matrix_instructions=0,
            metrics={"alu_busy": 76.7718, "l1_hit_rate": 96.5507},
            lines=[
                LineCounters(
                    line=31,
                    text='x = tl.load(x_ptr + offset, mask=valid & inside, other=float("-inf"))',
                    stall_share=0.447,
                    instruction_share=0.361,
                    sectors_per_request=31.5,
                    load_bits=16,
                )
            ],
        )
    ],
    traffic={"dram": 2323254016.0, "l1": 103981391872.0, "l2": 3586661632.0},
)
COMPILER = Profile(
    source="compiler",
    gpu="NVIDIA H200",
    launches=[NCU.launches[0].model_copy(update={"duration_us": None, "share": None})],
    note="No GPU on this machine.",
    modelled_ms=3.117,
    traffic={"dram": 2.4e9},
)
FINDINGS = [
    Finding(
        kind=FindingKind.INTEGER_OVERHEAD,
        title="Most executed instructions compute addresses and masks",
        evidence=["73% of executed instructions are integer", "7 divisions on lines 16 to 19"],
        lines=[17, 18, 30],
        gain_bound=3.1,
        advice="make sizes constexpr, split the index once a program",
    ),
    Finding(
        kind=FindingKind.NARROW_ACCESS,
        title="Loads fetch 16 bits a thread where 128 are possible",
        evidence=["widest load 16 bits"],
        lines=[31],
        gain_bound=2.2,
        advice="let a thread own neighbouring outputs",
    ),
    Finding(
        kind=FindingKind.EXCESS_TRAFFIC,
        title="L1 serves 43 times the least bytes",
        evidence=["L1 moved 104 GB"],
        gain_bound=1.6,
        advice="reuse what neighbouring windows share",
    ),
    Finding(
        kind=FindingKind.OCCUPANCY,
        title="Registers hold a quarter of the warps",
        evidence=["124 registers a thread"],
        gain_bound=1.2,
        advice="smaller blocks",
    ),
]
DIAGNOSIS = Diagnosis(
    bottleneck="integer_overhead",
    cause="every lane divides its index by run-time sizes",
    evidence=["73% of executed instructions are integer"],
    plan="make the sizes constexpr",
    expected_speedup=1.8,
    predicted=[Prediction(finding="integer_overhead", bound_after=1.1)],
)


@cache
def looked_at(problem: str) -> tuple[str, LeastWork, ProblemCard]:
    """A problem's first kernel, least work and card: seconds for the large ones."""
    found = find_problem(problem)
    card = make_card(found, "2.11.0", "3.6.0")
    return found.input_kernel.read_text(), least_work(found), card


def fields(problem: str = "43", modelled: bool = False, **changes: Any) -> dict[str, Any]:
    """Fields every question has, for the first round of a problem, measured or modelled."""
    source, work, card = looked_at(problem)
    profile = COMPILER if modelled else NCU
    floor = Floor(
        least_bytes=work.least_bytes,
        flops=work.flops,
        bandwidth_gb_s=4800 if modelled else 4600,
        flops_rate_tflop_s=989.4 if modelled else 718,
        bandwidth_source="datasheet" if modelled else "measured",
        gpu="NVIDIA H200",
    )
    return {
        "round": 1,
        "worker": 0,
        "seed": 7,
        "problem": card,
        "gpu": "NVIDIA H200",
        "parent": "r0-s0",
        "parent_source": source,
        "parent_time": MODELLED if modelled else MEASURED,
        "floor": floor,
        "profile": profile,
        "findings": FINDINGS,
        "annotated_source": annotate(profile, source),
        "direction": Direction(finding="integer_overhead"),
        "memory": Memory(),
    } | changes


def diagnosis_question(problem: str = "43", **changes: Any) -> DiagnosisQuestion:
    return DiagnosisQuestion(**fields(problem, **changes))


def variants_question(problem: str = "43", variants: int = 2, **changes: Any) -> VariantsQuestion:
    return VariantsQuestion(
        **fields(problem, **changes), diagnosis=DIAGNOSIS, variants=variants, seen=["0" * 16]
    )


def reflection_question(problem: str = "43", **changes: Any) -> ReflectionQuestion:
    known = fields(problem, **changes)
    parent_time = known["parent_time"]
    faster = parent_time.model_copy(update={"time_ms": parent_time.time_ms / 2})
    won = Candidate(
        name="r1-w0-v0",
        parent="r0-s0",
        round=1,
        worker=0,
        direction=known["direction"],
        description="sizes are constexpr",
        author="test",
        fingerprint="1" * 16,
        verdict=Verdict(
            outcome=Outcome.CORRECT,
            checks=[Check(stage=Stage.SMOKE, name="shrunk shapes", passed=True)],
        ),
        measurement=faster,
    )
    lost = won.model_copy(
        update={
            "name": "r1-w0-v1",
            "description": "eight outputs a thread",
            "verdict": Verdict(
                outcome=Outcome.WRONG, stage=Stage.SMOKE, reason="12 of 4800 values differ by 0.31"
            ),
            "measurement": None,
        }
    )
    diff = "--- r0-s0\n+++ r1-w0-v0\n@@ -9,1 +9,1 @@\n-    D, H, W,\n+    D: tl.constexpr,"
    after = [FINDINGS[0].model_copy(update={"gain_bound": 1.3}), *FINDINGS[1:]]
    first, *others = known["profile"].launches
    chosen = first.model_copy(update={"config": "BLOCK: 64, num_warps: 8"})
    tuned = known["profile"].model_copy(update={"launches": [chosen, *others]})
    return ReflectionQuestion(
        **known,
        diagnosis=DIAGNOSIS,
        trials=[
            Trial(
                candidate=won, diff=diff, findings_after=after, profile_after=tuned, over_parent=2.0
            ),
            Trial(candidate=lost, diff=diff.replace("v0", "v1")),
        ],
    )


def repair_question(problem: str = "43", **changes: Any) -> RepairQuestion:
    won, lost = reflection_question(problem, **changes).trials
    known = fields(problem, **changes)
    misspelt = known["parent_source"].replace("tl.store(", "tl.stores(")
    reason = "does not compile: line 33: module 'triton.language' has no attribute 'stores'"
    failed = lost.candidate.model_copy(
        update={
            "name": "r1-w0-v1-f1",
            "repair_of": "r1-w0-v1",
            "verdict": Verdict(outcome=Outcome.COMPILE_ERROR, stage=Stage.COMPILE, reason=reason),
        }
    )
    return RepairQuestion(
        **known,
        diagnosis=DIAGNOSIS,
        failed=failed,
        failed_source=misspelt,
        earlier=[lost],
        name="r1-w0-v1-f2",
    )


def review_question(problem: str = "43", **changes: Any) -> ReviewQuestion:
    known = fields(problem, **changes)
    source = known["parent_source"]
    variants = [
        Proposal(description="as it was", source=source),
        Proposal(description="misspelt", source=source.replace("tl.store(", "tl.stores(")),
    ]
    return ReviewQuestion(**known, variants=variants)


def first_question(problem: str = "43", **changes: Any) -> FirstQuestion:
    known = fields(problem, **changes)
    return FirstQuestion(**{name: known[name] for name in ("problem", "gpu", "floor")})


def long_memory(attempts: int) -> Memory:
    """A memory that no budget holds."""
    return Memory(
        attempts=[
            Attempt(
                name=f"r{1 + n // 8}-w{n // 2 % 4}-v{n % 2}",
                parent="r0-s0",
                direction="integer_overhead",
                description=f"idea {n}: " + "rearranges the loops and the masks; " * 4,
                outcome="correct" if n % 3 else "wrong",
                reason="" if n % 3 else "every tenth value is off by one row",
                time="2.1 ms" if n % 3 else None,
                speedup_over_parent=1.379 if n % 3 else None,
            )
            for n in range(attempts)
        ],
        best=[
            Shown(
                name=f"r{n}-w0-v0",
                description=f"kernel {n}",
                time=f"{3 - n} ms",
                source=f"def kernel_function(x):\n    return {n}\n",
            )
            for n in range(min(attempts, 3))
        ],
        lessons=[f"lesson {n}" for n in range(3)],
        patterns_to_avoid=["float16 sums"],
    )
