"""Arguments and options that several verbs take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProblemArgument = Annotated[
    str,
    typer.Argument(metavar="PROBLEM", help="Name, unique part of a name (43), folder or file."),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout; everything else on stderr.")
]
DtypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="D", help="float32, float16, bfloat16 or float64. Default: the problem's own."
    ),
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(
        metavar="P",
        help="reference (default): float32 as imprecise as the reference's by PyTorch's defaults; "
        "strict: no TF32 in baselines and kernels.",
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="GPU", help="GPU compiled for where none is present: h200 (default), h100, a100, …"
    ),
]
DeviceOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="CUDA device. Default: the first.")
]
TimeLimitOption = Annotated[
    str | None, typer.Option(metavar="T", help="Stop after this long: 90s, 20m, 1.5h.")
]
PatienceOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Stop after N rounds without a confirmed win."),
]
TargetSpeedupOption = Annotated[
    float | None,
    typer.Option(metavar="X", help="Stop when X times as fast as the first kernel, confirmed."),
]
FloorMarginOption = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0,
        help="Stop when at most this share above the floor, confirmed. Default: 0.05; 0: never.",
    ),
]
MaxCandidatesOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Stop before more candidates.")
]
SeedOption = Annotated[
    int | None,
    typer.Option(metavar="S", help="Draw everything from this seed. Default: inputs are secret."),
]
StrictNanOption = Annotated[
    bool | None,
    typer.Option(
        "--strict-nan", help="Refuse kernels that do not pass NaN on as the reference does."
    ),
]
MaxCostOption = Annotated[
    float | None,
    typer.Option(metavar="USD", help="Stop before model calls cost more, in US dollars."),
]
MaxTokensOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Stop before more tokens, in and out.")
]
MaxCallsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Stop before more model calls.")
]
