# SPDX-License-Identifier: MIT OR Apache-2.0
"""A Ceph cluster of one monitor and one storage daemon, whose messages go by RDMA."""

import os
import re
import tempfile
import uuid

from lab import (
    DEVICE, SERVER, Program, check, compared, digest, idle_and_busy, main, package, random_file, run,
    times_tcp, touch,
)

MIB = 1 << 20
OBJECTS = 8
SECONDS = 3
# Bytes that one `bench` writes at most, all of them into memory.
MOST = 2 << 30


class Cluster:
    """In a directory of its own; `how` is what Ceph calls the type of its messenger."""

    def __init__(self, how):
        self.directory = tempfile.mkdtemp(dir=os.getcwd())
        os.chmod(self.directory, 0o777)
        self.iwarp = "rdma" in how
        os.mkdir(f"{self.directory}/osd")
        os.chmod(f"{self.directory}/osd", 0o777)
        self.conf = f"{self.directory}/ceph.conf"
        # Each process has a thread that by default spins for 1 ms after each completion, while data
        # flow without end: three such threads take all of two processors.
        fsid, osd = uuid.uuid4(), uuid.uuid4()
        with open(self.conf, "w") as conf:
            conf.write(f"""
[global]
fsid = {fsid}
mon_host = [v2:{SERVER}:3300/0]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_allow_insecure_global_id_reclaim = true
public_addr = {SERVER}
cluster_addr = {SERVER}
ms_bind_msgr1 = false
ms_type = {how}
ms_cluster_type = {how}
ms_public_type = {how}
ms_async_rdma_device_name = {DEVICE}
ms_async_rdma_type = {"iwarp" if DEVICE == "iwarp0" else "ib"}
ms_async_rdma_cm = {"true" if DEVICE == "iwarp0" else "false"}
ms_async_rdma_receive_buffers = 4096
ms_async_rdma_receive_queue_len = 1024
ms_async_rdma_polling_us = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
osd_objectstore = memstore
memstore_device_bytes = 4294967296
osd_crush_chooseleaf_type = 0
run_dir = {self.directory}
log_file =
admin_socket = {self.directory}/$name.asok
mon_data = {self.directory}/mon
osd_data = {self.directory}/osd
crash_dir = {self.directory}
""")
        os.chmod(self.conf, 0o644)
        monmap = f"{self.directory}/monmap"
        self.tool(f"monmaptool --create --fsid {fsid} --addv a [v2:{SERVER}:3300] {monmap}")
        self.tool(f"ceph-mon --mkfs -i a --monmap {monmap}")
        self.mon = self.start("ceph-mon -f -i a").listens(3300)
        self.ceph("osd new", osd)
        self.tool(f"ceph-osd --mkfs -i 0 --osd-uuid {osd}")
        self.osd = self.start("ceph-osd -f -i 0")
        self.osd.until(lambda: "1 up" in self.ceph("osd stat"), "is up", 60)
        self.ceph("osd pool create pool 8")

    def start(self, command, side="server"):
        return Program(side, f"{command} -c {self.conf}", iwarp=self.iwarp)

    def tool(self, command):
        return run("server", f"{command} -c {self.conf}", 60, iwarp=self.iwarp)

    def ceph(self, command, *more):
        words = ["ceph", "-c", self.conf, "--connect-timeout", "30", *command.split(), *more]
        return run("server", words, 60, iwarp=self.iwarp)

    def rados(self, command, seconds=90):
        words = f"rados -c {self.conf} -p pool {command}"
        return run("client", words, seconds, iwarp=self.iwarp)

    def stop(self):
        self.osd.kill()
        self.mon.kill()


def bench(way):
    cluster = Cluster({"rdma": "async+rdma", "tcp": "async+posix"}[way])
    touch(MOST)
    wrote = cluster.rados(f"bench {SECONDS} write -t 8 --no-cleanup")
    read = cluster.rados(f"bench {SECONDS} rand -t 8")
    rates = [re.search(r"Bandwidth \(MB/sec\): +([0-9.]+)", said) for said in (wrote, read)]
    check(all(rates), "rados bench says no bandwidth")
    cluster.stop()
    return dict(zip(("writing", "reading"), (float(rate[1]) for rate in rates)))


def scenario():
    package("ceph-osd")
    cluster = Cluster("async+rdma")
    for number in range(OBJECTS):
        path = random_file(f"{os.getcwd()}/object{number}", (1 + 3 * number) * MIB // 2 + number)
        cluster.rados(f"put object{number} {path}")
    os.mkdir("back")
    os.chmod("back", 0o777)
    for number in range(OBJECTS):
        cluster.rados(f"get object{number} {os.getcwd()}/back/{number}")
        check(digest(f"object{number}") == digest(f"back/{number}"), f"object{number} differs")
    compared(f"{OBJECTS} objects of up to 11 MiB, put and got; `rados bench` checks what it reads")
    cluster.stop()
    idle_and_busy(lambda: f"{times_tcp(bench, '{:.0f} MB/s')}, `rados bench -t 8`")


main(scenario)
