"""Moves bytes between two processes with Mooncake's transfer engine, from DRAM to DRAM, and compares all of them.

usage: mooncake_pair.py BYTES HOST

This process writes to memory of its child, which reports what it received, and reads it back.
"""

import ctypes
import hashlib
import os
import subprocess
import sys

from mooncake.engine import TransferEngine

INVERTED = bytes(byte ^ 0xFF for byte in range(256))


def engine(host):
    """On all devices that there are."""
    made = TransferEngine()
    if made.initialize(host, "P2PHANDSHAKE", "rdma", "") != 0:
        sys.exit("the engine does not start")
    return made


def memory(made, size):
    room = ctypes.create_string_buffer(size)
    if made.register_memory(ctypes.addressof(room), size) != 0:
        sys.exit("the memory is not registered")
    return room


def target(size, host):
    """Has memory, and says what is in it when it is asked."""
    made = engine(host)
    room = memory(made, size)
    print(f"ready {host}:{made.get_rpc_port()} {ctypes.addressof(room)}", flush=True)
    for question in sys.stdin:
        if question == "sum\n":
            print("sum", hashlib.sha256(room).hexdigest(), flush=True)
        elif question == "change\n":
            room[:] = room.raw.translate(INVERTED)
            print("changed", flush=True)


def initiator(size, host):
    command = [sys.executable, __file__, str(size), host, "target"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:

        def answer(word):
            """The engine writes its log to the standard output, too."""
            for line in child.stdout:
                if line.split()[:1] == [word]:
                    return line.split()[1:]
            sys.exit("the target has ended")

        def ask(question, word):
            child.stdin.write(question + "\n")
            child.stdin.flush()
            return answer(word)

        made = engine(host)
        room = memory(made, size)
        session, address = answer("ready")

        sent = os.urandom(size)
        room[:] = sent
        if made.transfer_sync_write(session, ctypes.addressof(room), int(address), size) != 0:
            sys.exit("WRITE failed")
        if ask("sum", "sum") != [hashlib.sha256(sent).hexdigest()]:
            sys.exit("WRITE: other bytes arrived")
        ask("change", "changed")
        if made.transfer_sync_read(session, ctypes.addressof(room), int(address), size) != 0:
            sys.exit("READ failed")
        if room.raw != sent.translate(INVERTED):
            sys.exit("READ: other bytes arrived")
        child.stdin.close()
        if child.wait() != 0:
            sys.exit("the target failed")
    print(f"{size} bytes written and read, all of them right", flush=True)


if __name__ == "__main__":
    run = target if sys.argv[3:] == ["target"] else initiator
    run(int(sys.argv[1]), sys.argv[2])
