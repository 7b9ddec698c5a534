"""Moves bytes between two processes with NIXL, from DRAM to DRAM, and compares all of them.

usage: nixl_pair.py BYTES

This process writes to memory of its child, which reports what it received, and reads it back.
"""

import hashlib
import os
import subprocess
import sys

import numpy as np
from nixl_cu12._api import nixl_agent, nixl_agent_config


def memory(agent, size):
    """Registered memory: the array, and what describes it."""
    array = np.zeros(size, dtype=np.uint8)
    regions = [(array.ctypes.data, size, 0, "")]
    agent.register_memory(regions, mem_type="DRAM")
    return array, agent.get_xfer_descs([(array.ctypes.data, size, 0)], mem_type="DRAM")


def target(size):
    """Has memory, and says what is in it when it is asked."""
    agent = nixl_agent("target", nixl_agent_config(backends=["UCX"]))
    array, _ = memory(agent, size)
    print("ready", agent.get_agent_metadata().hex(), array.ctypes.data, flush=True)
    for question in sys.stdin:
        if question == "sum\n":
            print("sum", hashlib.sha256(array).hexdigest(), flush=True)
        elif question == "change\n":
            np.bitwise_xor(array, 0xFF, out=array)
            print("changed", flush=True)


def transfer(agent, operation, ours, theirs):
    handle = agent.initialize_xfer(operation, ours, theirs, "target")
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    if state != "DONE":
        sys.exit(f"{operation}: {state}")
    agent.release_xfer_handle(handle)


def initiator(size):
    command = [sys.executable, __file__, str(size), "target"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:

        def answer(word):
            """NIXL writes its log to the standard output, too."""
            for line in child.stdout:
                if line.split()[:1] == [word]:
                    return line.split()[1:]
            sys.exit("the target has ended")

        def ask(question, word):
            child.stdin.write(question + "\n")
            child.stdin.flush()
            return answer(word)

        agent = nixl_agent("initiator", nixl_agent_config(backends=["UCX"]))
        array, ours = memory(agent, size)
        metadata, address = answer("ready")
        agent.add_remote_agent(bytes.fromhex(metadata))
        theirs = agent.get_xfer_descs([(int(address), size, 0)], mem_type="DRAM")

        sent = np.frombuffer(os.urandom(size), dtype=np.uint8)
        np.copyto(array, sent)
        transfer(agent, "WRITE", ours, theirs)
        if ask("sum", "sum") != [hashlib.sha256(sent).hexdigest()]:
            sys.exit("WRITE: other bytes arrived")
        ask("change", "changed")
        transfer(agent, "READ", ours, theirs)
        if not np.array_equal(array, np.bitwise_xor(sent, 0xFF)):
            sys.exit("READ: other bytes arrived")
        child.stdin.close()
        if child.wait() != 0:
            sys.exit("the target failed")
    print(f"{size} bytes written and read, all of them right")


if __name__ == "__main__":
    (target if sys.argv[2:] == ["target"] else initiator)(int(sys.argv[1]))
