"""Whether a float32 result was computed as precisely as is asked, told from its errors alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamsearch.judge.verification.tolerance import Scale, mean_and_spread

if TYPE_CHECKING:
    import torch

SHARE = 2.0**-14
"""Rms error, as a share of the output's spread, that float32 arithmetic stays well below: sums of
thousands of terms in any order err by 1e-6. Operands rounded to TF32 or float16 (10 bits) give 3e-4
and more, to bfloat16 2e-3. Winograd's transforms for 3 x 3 windows stay below 3e-5."""
NOISE_SHARE = 8
"""Times PyTorch's own rms error, for outputs so small beside their terms that float32 shows."""
TF32_SHARE = 2
"""The same where PyTorch's own products are in TF32: the noise is that of operands cut to TF32, at
least. Of standard normal ones, rounded to TF32 give 0.4 times that, rounded to bfloat16 3 times."""
ROUNDINGS = 4
"""Roundings of the output itself, for outputs whose mean is far above their spread."""
ADVICE = {
    False: "keep values in float32, and give tl.dot input_precision='ieee' or 'tf32x3' (its "
    "default is TF32)",
    True: "the reference's convolutions are in TF32, and products may be (tl.dot's default), but "
    "keep operands and sums in float32",
}


def lower_precision(
    result: torch.Tensor, relative_rms: float, oracle: torch.Tensor, scale: Scale
) -> str | None:
    """Why a float32 result that is within the tolerances is less precise than is asked, or none.

    `relative_rms` is its rms error over the output's spread. Meant for inputs of moderate size:
    on large ones a correct kernel may lose digits that PyTorch's order of operations keeps.
    """
    import torch

    if result.dtype != torch.float32 or not scale.spread:
        return None
    rms = relative_rms * scale.spread
    limit = SHARE * scale.spread + (TF32_SHARE if scale.tf32 else NOISE_SHARE) * scale.noise
    if rms <= limit:
        return None
    mean, spread = mean_and_spread(oracle)
    limit += ROUNDINGS * torch.finfo(torch.float32).eps / 2 * (mean**2 + spread**2) ** 0.5
    if rms <= limit:
        return None
    asked = "TF32" if scale.tf32 else "float32"
    return (
        f"errors of lower precision than {asked}: rms {relative_rms:.2g} of the output's spread, "
        f"where {limit / scale.spread:.2g} is the most for {asked} arithmetic; {ADVICE[scale.tf32]}"
    )
