"""An MPI program that exercises collectives, messages and one-sided operations, and checks every result.

    ferroce run -- mpirun -n 4 python3 examples/mpi/ranks.py [kill]

With `kill`, the last rank kills itself during the run: the others must not wait for it forever.
"""

import os
import signal
import sys
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
right, left = (rank + 1) % size, (rank - 1) % size


def check(what, good):
    if not good:
        print(f"rank {rank}: {what}: wrong result", flush=True)
        world.Abort(1)


def pattern(seed, length):
    """Returns bytes that depend on their offset and on the sender and receiver."""
    page = bytes((seed * 31 + at * 7 + (at >> 8)) & 255 for at in range(min(length, 8192) + 1))
    return (page * (length // len(page) + 1))[:length]


def numbers(memory):
    return memoryview(memory).cast("q")


def allreduce():
    total = array("q", [0] * 1000)
    world.Allreduce(array("q", [rank * 1000 + at for at in range(1000)]), total, MPI.SUM)
    check("allreduce", list(total) == [size * (size - 1) // 2 * 1000 + at * size for at in range(1000)])


def alltoall():
    for length in (1, 1000, 50_000):
        sent = b"".join(pattern(rank * size + to, length) for to in range(size))
        got = bytearray(length * size)
        world.Alltoall(sent, got)
        wanted = b"".join(pattern(origin * size + rank, length) for origin in range(size))
        check(f"alltoall of {length} bytes", got == wanted)


def send_and_receive():
    for length in (0, 1, 5000, 4_000_001):
        got = bytearray(length)
        world.Sendrecv(pattern(rank, length), right, 7, got, left, 7)
        check(f"send and receive {length} bytes", got == pattern(left, length))


def one_sided():
    mine = bytearray(8 * 100_000)
    window = MPI.Win.Create(mine, 8, comm=world)
    window.Fence()
    # MPI may read the origin buffers until the fence, so they must stay alive.
    few, many = array("q", [rank] * 8), array("q", range(rank, rank + 90_000))
    window.Put(few, right, target=(8, 8))
    window.Put(many, right, target=(100, 90_000))
    window.Fence()
    check("put", list(numbers(mine)[8:16]) == [left] * 8)
    check("put much", list(numbers(mine)[100:90_100]) == list(range(left, left + 90_000)))
    got, much = array("q", [0] * 8), array("q", [0] * 90_000)
    window.Get(got, right, target=(8, 8))
    window.Get(much, right, target=(100, 90_000))
    window.Fence()
    check("get", list(got) == [rank] * 8 and list(much) == list(range(rank, rank + 90_000)))
    more = array("q", [rank + 1])
    for target in range(size):
        window.Accumulate(more, target, target=(0, 1), op=MPI.SUM)
    window.Fence()
    check("accumulate", numbers(mine)[0] == size * (size + 1) // 2)
    window.Lock_all()
    seen, one = [], array("q", [1])
    for _ in range(10):
        before = array("q", [0])
        window.Fetch_and_op(one, before, 0, 20, MPI.SUM)
        window.Flush(0)
        seen.append(before[0])
    window.Unlock_all()
    # Each rank has read different counter values; together they have read every value once.
    everyone = sorted(value for values in world.allgather(seen) for value in values)
    check("fetch and add", everyone == list(range(10 * size)))
    window.Free()


if __name__ == "__main__":
    rounds = 1
    if sys.argv[1:] == ["kill"]:
        # Practically endless: the job must end because the killed rank ends it.
        rounds = 1_000_000
    for turn in range(rounds):
        allreduce()
        alltoall()
        send_and_receive()
        one_sided()
        if rounds > 1 and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    world.Barrier()
    if rank == 0:
        print(f"{size} ranks: all results correct", flush=True)
