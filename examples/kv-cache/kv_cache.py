"""Moves a KV cache from a prefill process to a decode process, as disaggregated serving does, and compares every byte.

usage: kv_cache.py ENGINE TRANSPORT [LAYERS] [TOKENS]

ENGINE is nixl or mooncake, TRANSPORT is rdma or tcp. The prefill process "computes" the keys and values of a prompt layer by
layer, and writes each layer into blocks of the decode process as soon as it is complete. The decode process has chosen the blocks:
those that are free in its cache, in any order. Nothing but block numbers and digests is sent any other way.

With TRANSPORT rdma, run it as `ferroce run -- python3 kv_cache.py ...`.
"""

import hashlib
import os
import random
import subprocess
import sys
import time

import numpy as np

# The shape of a small model: 8 heads of 128 values of 2 bytes, for keys and for values.
TOKEN = 8 * 128 * 2 * 2
BLOCK_TOKENS = 16
BLOCK = TOKEN * BLOCK_TOKENS


class Nixl:
    """NIXL over UCX, which chooses among the transports that are allowed."""

    def __init__(self, name, transport):
        os.environ["UCX_TLS"] = "ib" if transport == "rdma" else "tcp"
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))

    def register(self, array):
        self.agent.register_memory([(array.ctypes.data, array.nbytes, 0, "")], mem_type="DRAM")

    def contact(self):
        return self.agent.get_agent_metadata().hex()

    def connect(self, contact):
        self.peer = self.agent.add_remote_agent(bytes.fromhex(contact))

    def write(self, pairs):
        """Writes from local to remote addresses, a block each."""
        ours = self.agent.get_xfer_descs([(here, BLOCK, 0) for here, _ in pairs], mem_type="DRAM")
        theirs = self.agent.get_xfer_descs([(there, BLOCK, 0) for _, there in pairs], mem_type="DRAM")
        handle = self.agent.initialize_xfer("WRITE", ours, theirs, self.peer)
        state = self.agent.transfer(handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(handle)
        if state != "DONE":
            sys.exit(f"the transfer ended with {state}")
        self.agent.release_xfer_handle(handle)


class Mooncake:
    """Mooncake's transfer engine; the two processes exchange what it needs by themselves."""

    def __init__(self, name, transport):
        from mooncake.engine import TransferEngine

        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", transport, "") != 0:
            sys.exit("the engine does not start")

    def register(self, array):
        if self.engine.register_memory(array.ctypes.data, array.nbytes) != 0:
            sys.exit("the memory cannot be registered")

    def contact(self):
        return f"127.0.0.1:{self.engine.get_rpc_port()}"

    def connect(self, contact):
        self.peer = contact

    def write(self, pairs):
        here, there = ([pair[index] for pair in pairs] for index in (0, 1))
        lengths = [BLOCK] * len(pairs)
        if self.engine.batch_transfer_sync_write(self.peer, here, there, lengths) != 0:
            sys.exit("the transfer failed")


ENGINES = {"nixl": Nixl, "mooncake": Mooncake}


def layer_of(layer, blocks):
    """What the model would compute: different for each layer and block, and known to both processes."""
    return np.random.default_rng(layer).integers(0, 256, blocks * BLOCK, dtype=np.uint8)


def decode(engine, layers, blocks):
    """Has the cache, and checks each layer in it when it is said to be complete."""
    cache = np.zeros(2 * layers * blocks * BLOCK, dtype=np.uint8)
    engine.register(cache)
    free = list(range(2 * layers * blocks))
    random.Random(1).shuffle(free)
    chosen = [free[layer * blocks : (layer + 1) * blocks] for layer in range(layers)]
    print("cache", engine.contact(), cache.ctypes.data, *sum(chosen, []), flush=True)
    for line in sys.stdin:
        numbers = chosen[int(line)]
        digest = hashlib.sha256()
        for number in numbers:
            digest.update(cache[number * BLOCK : (number + 1) * BLOCK])
        print("layer", digest.hexdigest(), flush=True)


def prefill(engine, layers, blocks, child):
    def answer(word):
        # The engines log to the standard output, too.
        for line in child.stdout:
            if line.split()[:1] == [word]:
                return line.split()[1:]
        sys.exit("the decode process has ended")

    computed = [layer_of(layer, blocks) for layer in range(layers)]
    for array in computed:
        engine.register(array)
    contact, base, *numbers = answer("cache")
    engine.connect(contact)
    there = [int(base) + int(number) * BLOCK for number in numbers]
    elapsed = 0.0
    for layer, array in enumerate(computed):
        here = [array.ctypes.data + index * BLOCK for index in range(blocks)]
        start = time.perf_counter()
        engine.write(list(zip(here, there[layer * blocks : (layer + 1) * blocks])))
        # The first transfer sets the connection up.
        elapsed += time.perf_counter() - start if layer > 0 else 0.0
        child.stdin.write(f"{layer}\n")
        child.stdin.flush()
        if answer("layer") != [hashlib.sha256(array).hexdigest()]:
            sys.exit(f"layer {layer}: other bytes arrived")
    total = layers * blocks * BLOCK
    rate = (layers - 1) * blocks * BLOCK / elapsed / 1e9
    print(f"{layers} layers in {layers * blocks} blocks, {total} bytes, all of them right: {rate:.2f} GB/s")


def main():
    name, transport, layers, tokens, *role = sys.argv[1:3] + (sys.argv[3:] or ["16", "2048"])
    layers, blocks = int(layers), int(tokens) // BLOCK_TOKENS
    if role == ["decode"]:
        return decode(ENGINES[name]("decode", transport), layers, blocks)
    command = [sys.executable, __file__, name, transport, str(layers), tokens, "decode"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:
        prefill(ENGINES[name]("prefill", transport), layers, blocks, child)
        # All bytes are compared, so how it ends does not matter: NIXL 1.5.1 crashes there if UCX has only TCP.
        child.stdin.close()


if __name__ == "__main__":
    main()
