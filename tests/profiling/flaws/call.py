"""One call of a planted flaw between the profiler's start and stop: `python call.py FILE`.

Prints the time of a call in milliseconds, by events, L2 not emptied, and fails where it is wrong.
"""

import importlib.util
import sys

import torch


def main(path: str) -> None:
    """Check, time and profile."""
    spec = importlib.util.spec_from_file_location("flaw", path)
    assert spec is not None and spec.loader is not None
    flaw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(flaw)
    inputs = flaw.make_inputs("cuda")
    result, expected = flaw.kernel_function(*inputs), flaw.reference(*inputs)
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2 * float(expected.abs().max()))
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        flaw.kernel_function(*inputs)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    print(f"time_ms {sorted(times)[5]:.5f}", flush=True)
    torch.cuda.profiler.start()
    flaw.kernel_function(*inputs)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1])
