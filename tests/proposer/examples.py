"""Every prompt of the five problems, from what runs on an H200 really had: profiles, measurements,
attempts and verdicts, kept in `tests/data/h200/*.json`.

`python -m tests.proposer.examples` writes them to `docs/prompts`, with a table of their tokens.
"""

from __future__ import annotations

import json
from pathlib import Path

from beamsearch.llm.types import approximate_tokens
from beamsearch.problem.kernel import fingerprint
from beamsearch.problem.problem import find_problem
from beamsearch.proposer.prompts.problem_card import make_card
from beamsearch.proposer.prompts.render import BUDGET, render
from beamsearch.proposer.questions import (
    Diagnosis,
    DiagnosisQuestion,
    FirstQuestion,
    Question,
    ReflectionQuestion,
    RepairQuestion,
    ReviewQuestion,
    Situation,
    Trial,
    VariantsQuestion,
)
from beamsearch.records.candidate import Candidate
from beamsearch.records.proposal import Proposal
from beamsearch.records.verdict import Verdict

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "h200"
FOLDER = ROOT / "docs" / "prompts"
HEAD = """# Prompts as a run asks them

Rendered from runs on an NVIDIA H200: what is asked of a model about the five problems, purpose by
purpose. `diagnosis` is the question after a whole run (43, 77, 82: of its winner, with everything
that was tried) or in its first round (04, 36); `variants`, `review` and `reflection` are those of
the worker that found the winner; `repair` is about a kernel with a mistake people make, with the
judge's verdict on it; `first` is asked where a problem comes without a kernel.

`python -m tests.proposer.examples` writes this folder anew, and a test fails where it differs from
what the templates give. Tokens are estimated, at three characters each.

"""


def questions(path: Path) -> dict[str, Question | FirstQuestion]:
    """Purpose -> question of one problem's file."""
    kept = json.loads(path.read_text())
    card = make_card(find_problem(path.stem), "2.11.0", "3.6.0")
    this, later = (Situation(**kept[which], problem=card) for which in ("this", "later"))
    diagnosis = Diagnosis(**kept["diagnosis"])
    trials = [Trial(**trial) for trial in kept["trials"]]
    for n, trial in enumerate(trials):
        own, after = trial.candidate.measurement, trial.candidate.name == later.parent
        update = {
            "over_parent": this.parent_time.time_ms / own.time_ms if own else None,
            "profile_after": later.profile if after else None,
        }
        trials[n] = trial.model_copy(update=update)
    variants = [Proposal(**variant) for variant in kept["variants"]]
    broken = kept["broken"]
    failed = Candidate(
        name=broken["name"],
        parent=this.parent,
        round=this.round,
        worker=this.worker,
        direction=this.direction,
        description=broken["description"],
        author="an example",
        fingerprint=fingerprint(broken["source"]),
        verdict=Verdict(**broken["verdict"]),
    )
    known = dict(this)
    return {
        "first": FirstQuestion(problem=this.problem, gpu=this.gpu, floor=this.floor),
        "diagnosis": DiagnosisQuestion(**dict(later)),
        "variants": VariantsQuestion(**known, diagnosis=diagnosis, variants=2),
        "review": ReviewQuestion(**known, variants=variants),
        "repair": RepairQuestion(
            **known,
            diagnosis=diagnosis,
            failed=failed,
            failed_source=broken["source"],
            name=f"{broken['name']}-f1",
        ),
        "reflection": ReflectionQuestion(**known, diagnosis=diagnosis, trials=trials),
    }


def examples() -> dict[str, str]:
    """File name -> text of every example, and of their table."""
    texts: dict[str, str] = {}
    purposes = ("first", "diagnosis", "variants", "review", "repair", "reflection")
    rows = [
        "| problem | " + " | ".join(purposes) + " |",
        "|---|" + "---:|" * len(purposes),
    ]
    for path in sorted(DATA.glob("*.json")):
        asked = questions(path)
        cells = []
        for purpose in purposes:
            name = f"{path.stem}-{purpose}.txt"
            texts[name] = render(asked[purpose])
            cells.append(f"[{approximate_tokens(texts[name]):,}]({name})")
        rows.append(f"| {asked['first'].problem.name[:24]} | " + " | ".join(cells) + " |")
    rows.append("| budget | " + " | ".join(f"{BUDGET[purpose]:,}" for purpose in purposes) + " |")
    texts["README.md"] = HEAD + "\n".join(rows) + "\n"
    return texts


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in examples().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
