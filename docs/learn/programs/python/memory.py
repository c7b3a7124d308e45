"""Memory is registered; what a peer may do with it depends on the key."""

import mmap

import pyverbs.enums as e
from learn import open_device
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError

device = open_device()
pd = PD(device)
everybody = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE

# The same bytes twice: once for everybody, once for this program alone.
open_ = MR(pd, 4096, everybody)
shut = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE, address=open_.buf)
print(f"registered {open_.length} bytes, and again {shut.length} bytes")
print("the keys are", "equal" if open_.rkey == shut.rkey else "different")

# It is still ordinary memory.
open_.write("as ever", 7)
print("the program writes and reads it", shut.read(7, 0).decode())

# What peers may write, this end must be allowed to write.
try:
    MR(pd, 4096, e.IBV_ACCESS_REMOTE_WRITE)
    outcome = "registered"
except PyverbsRDMAError:
    outcome = "refused"
print("for peers to write, but not for us:", outcome)

# From now on the keys open nothing.
shut.close()
open_.close()
print("deregistered")
