"""What holds a kernel back, and where? From Nsight Compute on a GPU, else from the compiler."""

from pathlib import Path

from beamsearch import profile

profiled = profile(Path(__file__).with_name("leaky_relu"))
print(profiled)
print(profiled.annotated_source)

for finding in profiled.findings:
    print(f"{finding.kind}: up to {finding.gain_bound:.2f} times faster, lines {finding.lines}")
for launch in profiled.profile.launches:
    print(f"{launch.name}: {launch.registers} registers, {launch.threads} threads a block")
