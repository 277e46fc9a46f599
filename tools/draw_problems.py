"""Draw the problems of a study out of KernelBench, before anything is built for it.

`python tools/draw_problems.py` prints, for each level, the order in which problems are taken until
there are as many as `WANTED`. One is passed over where it does not load, does not fit on the GPU,
has an audit with flaws, or less headroom than `HEADROOM`: best baseline over floor, both measured.
What is taken is in float32 and bfloat16 in turn. `TAKEN` are those that this project has been tried
on, which would show nothing new.
"""

import random

SEED = 20261123
HEADROOM = 1.2
LEVELS = {1: 100, 2: 100, 3: 50}
"""Level of KernelBench -> how many problems it has."""
WANTED = {1: 4, 2: 3, 3: 1}
TAKEN = {
    1: {1, 4, 19, 23, 33, 34, 36, 40, 42, 43, 47, 50, 54, 61, 77, 82, 89, 95, 97},
    2: {1, 4, 12, 17, 21, 24, 31, 32, 40, 46, 52, 82},
    3: {1, 33, 35, 36, 39, 43},
}


def drawn(level: int, seed: int = SEED) -> list[int]:
    """Numbers of a level's problems, in the order in which they are taken."""
    left = [number for number in range(1, LEVELS[level] + 1) if number not in TAKEN[level]]
    random.Random(f"{seed}/{level}").shuffle(left)
    return left


def main() -> None:
    """Print the order, a line a level."""
    for level, wanted in WANTED.items():
        print(f"level {level}, the first {wanted} that fit:", *drawn(level)[: 6 * wanted])


if __name__ == "__main__":
    main()
