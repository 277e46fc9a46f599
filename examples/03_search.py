"""Make the kernel fast, and see what happens meanwhile. The built-in playbook thinks: no key is
needed. With a model: `llm="openai", max_cost=5`."""

from pathlib import Path

from beamsearch import optimize
from beamsearch.records.event import Event, Judged, RoundEnded


def on_event(event: Event) -> None:
    if isinstance(event, Judged | RoundEnded):
        print(event)


run = optimize(
    Path(__file__).with_name("leaky_relu"),
    on_event=on_event,
    output="runs/leaky_relu",
    llm="playbook",
    rounds=1,
    workers=2,
    variants=1,
)
print(run)
print(run.source())
