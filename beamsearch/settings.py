"""What a run is asked to do."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from beamsearch.errors import UsageError

LIMITS = (
    "rounds",
    "patience",
    "target_speedup",
    "floor_margin",
    "max_candidates",
    "time_limit_s",
    "max_cost",
    "max_tokens",
    "max_calls",
    "answer_timeout_s",
    "answer_deadline_s",
)
"""Settings that may differ when a run is resumed: they bound the work, they do not shape it."""
PLACES = ("device", "gpus", "ray", "lanes")
"""Settings that may differ too: they say where the work is done. A run's GPUs are of one kind, in
whatever number."""
OF_MODELS = ("model", "max_cost", "max_tokens", "max_calls")
"""Settings that mean nothing where no model is asked."""

SWEPT = 12
"""Configurations of a sweep where none are asked for: the nearest warps and sizes of two blocks; on
an H200 they took the lane a second and a half."""


Precision = Literal["reference", "strict"]
"""How imprecise products of float32 may be; see `problem/precision.py`."""


THINKERS = ("auto", "openai", "playbook", "batch")
"""Who comes along; `replay:RUN` and the proposers of installed packages are others."""


class Thinker(BaseModel):
    """Who thinks, as `--llm` and a run's record put it: `playbook`, `replay:RUN`, or the name of a
    proposer that another package brings."""

    model_config = ConfigDict(frozen=True)

    kind: str
    run: Path | None = None
    """Folder of the run whose recorded replies answer; of a replay only."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        kind, _, folder = value.partition(":")
        if kind == "replay" and folder:
            return {"kind": kind, "run": str(Path(folder).resolve())}  # found from anywhere
        if not re.fullmatch(r"[A-Za-z]\w*", value) or value == "replay":
            raise ValueError(f"give {', '.join(THINKERS)}, replay:RUN or a proposer's name")
        return {"kind": kind}

    @model_serializer
    def __str__(self) -> str:
        return self.kind if self.run is None else f"{self.kind}:{self.run}"

    @property
    def asks_a_model(self) -> bool:
        """Whether a model may be asked and paid."""
        return self.kind in ("auto", "openai", "batch")

    @property
    def is_brought(self) -> bool:
        """Whether another package brings it."""
        return self.kind not in (*THINKERS, "replay")


class Settings(BaseModel):
    """A run's settings. Strict: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    strategy: Literal["beam", "greedy", "best-of-n", "tree"] = "beam"
    """Whose children come next and what is kept: beam, greedy, best-of-n or tree."""
    rounds: int = Field(8, ge=1)
    """Rounds in all."""
    workers: int = Field(4, ge=1)
    """Parallel workers a round."""
    beam: int = Field(2, ge=1)
    """Kernels kept after a round, by the strategy of that name."""
    variants: int = Field(2, ge=1)
    """Candidates each worker makes a round."""
    repairs: int = Field(2, ge=0)
    """Repairs of a candidate that fails, where a model thinks."""
    tune: int | None = Field(None, ge=0)
    """Launch parameters and block sizes tried after a variant's win, with no model. 0: none.
    Default: 12, and none without a GPU, where modelled times hardly tell neighbours apart."""
    review: bool = False
    """Let the model look for errors before candidates are judged."""
    strict_nan: bool = False
    """Refuse kernels that do not pass NaN on as the reference does; else it is only reported."""
    quick: bool = False
    """A first look: no max-autotune baseline, and no tuning."""
    overlap: int = Field(0, ge=0)
    """Rounds that are begun beside the one before them, whose results they then cannot see: for
    models that take minutes to answer while kernels wait to be judged, and for several GPUs.
    Default: 0, each waits for the one before."""
    dtype: Literal["float32", "float16", "bfloat16", "float64"] | None = None
    """float32, float16, bfloat16 or float64. Default: the problem's own."""
    precision: Precision = "reference"
    """reference: float32 as imprecise as the reference's by PyTorch's defaults; strict: no TF32 in
    baselines, kernels and floor."""
    backward: bool = False
    """Judge and time gradients too: of kernels that define a backward_function."""
    seed: int | None = None
    """Draw everything from this seed. Default: proposals from 0, the judge's inputs from a secret
    that the run keeps, so that no kernel can be made for them."""
    target: str = "h200"
    """GPU compiled for where none is present: h200, h100, a100, …"""
    llm: Thinker = Thinker(kind="auto")
    """Who thinks: auto (the endpoint where one is configured, else the playbook), openai, playbook,
    batch (a model through batch files), replay:RUN (the replies recorded in that folder), or a
    proposer that an installed package brings, by its name."""
    model: tuple[str, ...] = ()
    """Model of the endpoint; several share, each as NAME@WEIGHT."""
    model_choice: Literal["weights", "bandit"] = "weights"
    """Which of several models is asked: by weights, or bandit (those whose kernels won before, more
    often)."""
    temperature: dict[str, float] = {}
    """By purpose (`variants = 1.0`); the model's own where there is none."""
    effort: dict[str, str] = {}
    """Reasoning effort by purpose; the model's own where there is none."""
    answer_timeout_s: float = Field(600.0, gt=0)
    """One try of a model call; a long answer of a reasoning model takes minutes."""
    answer_deadline_s: float = Field(1800.0, gt=0)
    """All tries of one call, and the waits between them."""
    learn_from: tuple[str, ...] = ()
    """Folder of an earlier run to learn from; may be repeated."""
    prices: str | None = None
    """A price list of one's own, which goes before the one that comes along."""
    max_cost: float | None = Field(None, gt=0)
    """Stop before model calls cost more, in US dollars."""
    max_tokens: int | None = Field(None, gt=0)
    """Stop before more tokens, in and out."""
    max_calls: int | None = Field(None, gt=0)
    """Stop before more model calls."""
    patience: int = Field(4, ge=1)
    """Stop after so many rounds without a confirmed win."""
    target_speedup: float | None = Field(None, gt=1)
    """Stop when so many times as fast as the first kernel, confirmed."""
    floor_margin: float = Field(0.05, ge=0)
    """Stop when at most this share above the floor, confirmed: what is left is within the error of
    the floor's own measured ceilings. 0: never."""
    max_candidates: int | None = Field(None, ge=1)
    """Start no worker whose candidates would be more. Default: none, for tree 300."""
    time_limit_s: float | None = Field(None, gt=0)
    """Stop after this long: 90s, 20m, 1.5h."""
    device: int | None = Field(None, ge=0)
    """CUDA device. Default: the first."""
    gpus: str | None = None
    """Several GPUs of one kind at once: all, or numbers as 0,2. Default: --device alone."""
    ray: str | None = None
    """On a cluster through Ray: auto (the one that this machine is in), or its address; none: on
    this machine after all."""
    lanes: int | None = Field(None, ge=1)
    """Lanes on the cluster. Default: one for each GPU of one kind, else for each 4 cores."""
    profiler: Literal["auto", "compiler"] = "auto"
    """auto: Nsight Compute where it can be used; compiler: the compiler's profile alone."""

    @field_validator("gpus", mode="before")
    @classmethod
    def _all_or_numbers(cls, value: object) -> object:
        if value is None:
            return None
        text = str(value).replace(" ", "")
        numbers = text.split(",")
        if text in ("all", "mixed"):
            return text
        if not all(re.fullmatch(r"\d+", number) for number in numbers):
            raise ValueError("give all, or numbers of GPUs such as 0,2")
        if len(set(map(int, numbers))) < len(numbers):
            raise ValueError("the same GPU twice: a lane is one GPU")
        return text

    @field_validator("ray")
    @classmethod
    def _none_is_here(cls, value: str | None) -> str | None:
        return None if value == "none" else value

    @model_validator(mode="after")
    def _one_place(self) -> Settings:
        if self.gpus is not None and self.device is not None:
            raise ValueError(
                "--device and --gpus both say where to run; give one: --gpus for several GPUs"
            )
        if self.ray is not None and (self.gpus is not None or self.device is not None):
            raise ValueError(
                "--ray and --device or --gpus all say where to run: on a cluster Ray deals out the "
                "GPUs; give --ray alone, with --lanes for how many"
            )
        if self.lanes is not None and self.ray is None:
            raise ValueError("--lanes is for a cluster; give --ray too, or --gpus for this machine")
        return self

    @field_validator("model", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else value

    @field_validator("learn_from")
    @classmethod
    def _runs_found_from_anywhere(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(Path(folder).resolve()) for folder in value)

    def configurations(self, measures: bool) -> int:
        """What a sweep tries, where times are measured or not."""
        return self.tune if self.tune is not None else SWEPT * (measures and not self.quick)

    def thought_by(self, who: str) -> Settings:
        """The same settings with another thinker."""
        return Settings.model_validate(self.model_dump() | {"llm": who})


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `20m`, `1.5h`, `30d`; a number without a unit may mean any. Raises
    UsageError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if not match or float(match[1]) <= 0:
        raise UsageError(f"cannot read the duration {text!r}; write for example 90s, 20m or 1.5h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def read_settings(config: Path | None, flags: dict[str, Any]) -> Settings:
    """Settings from a TOML file and flags; a flag that is not None wins. Raises UsageError."""
    values: dict[str, Any] = {}
    if config is not None:
        try:
            values = tomllib.loads(config.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot read the settings in {config}: {error}") from error
    values |= {key: value for key, value in flags.items() if value is not None}
    if "time_limit" in values:
        values["time_limit_s"] = str(values.pop("time_limit"))
    if isinstance(values.get("time_limit_s"), str):
        values["time_limit_s"] = parse_duration(values["time_limit_s"])
    try:
        settings = Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        told = first["msg"].removeprefix("Value error, ")
        if not key:
            raise UsageError(told) from error
        if first["type"] == "extra_forbidden":
            known = ", ".join(Settings.model_fields)
            raise UsageError(f"unknown setting {key!r}; known: {known}") from error
        raise UsageError(f"setting {key!r}: {told}") from error
    check_means_something(settings)
    if settings.overlap and settings.model_choice == "bandit":
        raise UsageError(
            "--overlap begins rounds while the one before them goes on, and --model-choice bandit "
            "chooses by what that won; leave one of them out"
        )
    if settings.max_candidates is not None and settings.max_candidates < settings.variants:
        raise UsageError(
            f"max_candidates is {settings.max_candidates}, and one worker makes "
            f"{settings.variants}: none could start; give at least that, or fewer --variants"
        )
    return settings


def check_means_something(settings: Settings, names: Collection[str] = OF_MODELS) -> None:
    """Raise UsageError for settings of models among these where no model is asked."""
    idle = [name for name in OF_MODELS if name in names and getattr(settings, name)]
    if idle and not settings.llm.asks_a_model:
        raise UsageError(
            f"with --llm {settings.llm} no model is asked, so {', '.join(idle)} would say nothing; "
            "leave it out, or choose another --llm"
        )


def differences(recorded: Settings, asked: Settings) -> list[str]:
    """What differs between two settings, limits and places aside, as `name: recorded, asked`."""
    return [
        f"{name}: {getattr(recorded, name)} there, {getattr(asked, name)} asked"
        for name in Settings.model_fields
        if name not in (*LIMITS, *PLACES) and getattr(recorded, name) != getattr(asked, name)
    ]
