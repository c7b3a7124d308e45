# SPDX-License-Identifier: MIT OR Apache-2.0
"""PyTorch's RPC over TensorPipe's transport for InfiniBand: one process keeps tensors for another."""

import hashlib
import sys
import time

from lab import PLACE, SERVER, check, compared, idle_and_busy, main, package, part, times_tcp

SIZE, ROUNDS = 16 << 20, 8
TRANSPORTS = {"rdma": "ibv", "tcp": "uv"}
kept = {}


def keep(name, tensor):
    """Runs at the keeper."""
    kept[name] = tensor


def give(name):
    """As well."""
    return kept[name]


def describe(name):
    return digest(kept[name])


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def work(transport, rank):
    import torch
    from torch.distributed import rpc
    # TensorPipe would split what is large off, for shared memory or TCP, but not with this one.
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=4, rpc_timeout=30, init_method=f"tcp://{SERVER}:29511",
        _transports=[transport], _channels=["basic"])
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank:
        tensors = [torch.randint(0, 256, (SIZE,), dtype=torch.uint8) for _ in range(ROUNDS)]
        start = time.monotonic()
        for number, tensor in enumerate(tensors):
            rpc.rpc_sync("process0", keep, (number, tensor))
        returned = [rpc.rpc_sync("process0", give, (number,)) for number in range(ROUNDS)]
        seconds = time.monotonic() - start
        for number, (tensor, back) in enumerate(zip(tensors, returned)):
            there = rpc.rpc_sync("process0", describe, (number,))
            check(there == digest(tensor), "what the keeper has differs")
            check(torch.equal(tensor, back), "what comes back differs")
        print(f"all the same in {seconds} s", flush=True)
    rpc.shutdown()


def rate(way):
    transport = TRANSPORTS[way]
    interface = "lo" if PLACE == "loopback" else "eth0"
    env = {"TP_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface,
           "TP_VERBOSE_LOGGING": "1"}
    keeper, user = [
        part(side, transport, rank, name=name, env=env)
        for rank, (side, name) in enumerate((("server", "keeper"), ("client", "user")))]
    said = user.ends(60)
    keeper.ends(30)
    check("all the same" in said, "nothing was compared")
    check(f"transport {transport}" in said, f"it does not say that it uses {transport}")
    seconds = float(said.split("all the same in ")[1].split()[0])
    return {"16 MiB there and back": (2 * ROUNDS * SIZE >> 20) / seconds}


def scenario():
    if sys.argv[1:]:
        return work(sys.argv[1], int(sys.argv[2]))
    package("python3-torch")
    package("libtensorpipe0")
    idle_and_busy(lambda: times_tcp(rate, "{:.0f} MiB/s"))
    compared(f"{ROUNDS * SIZE >> 20} MiB of tensors at the other process, and as they come back")


main(scenario)
