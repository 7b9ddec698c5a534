"""The allreduce of `ferroce workload allreduce` by MPI, on the same data: prints its checksum and its times.

    ferroce run -- mpirun -n 4 python3 examples/mpi/allreduce.py SEED ROUNDS SIZE
"""

import sys
import time
from array import array

from mpi4py import MPI

WORD = (1 << 64) - 1


def mixed(number):
    """The finalizer of SplitMix64."""
    number = (number + 0x9E3779B97F4A7C15) & WORD
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & WORD
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & WORD
    return number ^ number >> 31


def main():
    seed, rounds, size = (int(argument) for argument in sys.argv[1:])
    world = MPI.COMM_WORLD
    sizes = sorted({max(size // part, 8) // 8 * 8 for part in (256, 16, 1)})
    checksum = 0
    for length in sizes:
        times = []
        for number in range(rounds):
            base = seed ^ world.rank << 56 ^ number << 32
            own = array("Q", (mixed(base ^ index) for index in range(length // 8)))
            total = array("Q", bytes(length))
            world.Barrier()
            start = time.perf_counter()
            world.Allreduce([own, MPI.UINT64_T], [total, MPI.UINT64_T], MPI.SUM)
            times.append(time.perf_counter() - start)
            for value in total:
                checksum = mixed(checksum ^ value)
        if world.rank == 0:
            median = sorted(times)[len(times) // 2]
            print(f"{length} bytes: {median * 1e6:.1f} us", flush=True)
    if world.rank == 0:
        print(f"checksum {checksum:016x}", flush=True)


main()
