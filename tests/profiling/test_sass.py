"""What one machine instruction does."""

import pytest

from kernel_profiling.compiler.sass import matrix_operations


@pytest.mark.parametrize(
    ("sass", "flops"),
    [
        ("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16].tnspA, R24, !UP1", 2 * 64 * 128 * 16 / 4),
        ("@P0 HGMMA.64x64x8.F32.TF32 R24, R4, gdesc[UR4], R24", 2 * 64 * 64 * 8 / 4),
        ("HMMA.16816.F32.BF16 R4, R8, R12, R4", 2 * 16 * 8 * 16),
        ("HMMA.1684.F32.TF32 R4, R8, R12, R4", 2 * 16 * 8 * 4),
        ("DMMA.884 R4, R8, R12, R4", 2 * 8 * 8 * 4),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4", 2 * 16 * 8 * 32),
        ("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]", 0),  # its shape is in a descriptor
        ("HFMA2.MMA R4, -RZ, RZ, 0, 0", 0),
        ("FFMA R4, R5, R6, R4", 0),
    ],
)
def test_multiplications_and_additions_of_a_warp(sass: str, flops: float) -> None:
    assert matrix_operations(sass) == flops
