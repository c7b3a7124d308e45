# SPDX-License-Identifier: MIT OR Apache-2.0
"""fio's engines for librpma: a client writes to the persistent memory of a server.

The server's memory is a file that libpmem is told to take for persistent memory. What the client
writes carries fio's own checksums, so another fio can verify the file.
"""

import os
import re
import sys

from lab import SERVER, Program, built, check, compared, main, package, random_file, run

HOME = built("fio")
SIZE = 64 << 20
PORT = 7204
# libpmem and libpmem2 know a file on a disk from persistent memory.
ENV = {"PMEM_IS_PMEM_FORCE": "1", "PMEM2_FORCE_GRANULARITY": "CACHE_LINE"}
BLOCK = "--bs=16k --verify=sha256 --verify_fatal=1"


def fio(side, engine, options):
    line = f"{HOME}/fio --name=job --thread --create_serialize=0 --ioengine={engine} {options}"
    return Program(side, line, env=ENV)


def scenario():
    package("librpma0")
    kind = sys.argv[1]
    path = random_file(f"{os.getcwd()}/memory", SIZE)
    more = "--iodepth=4 --busy_wait_polling=1 --time_based --runtime=600" if kind == "gpspm" else ""
    server = fio("server", f"librpma_{kind}_server", f"--serverip={SERVER} --port={PORT} "
                 f"--filename={path} --size={SIZE} --kb_base=1000 --direct_write_to_pmem=1 {more}")
    server.listens(PORT)
    client = fio("client", f"librpma_{kind}_client", f"--serverip={SERVER} --port={PORT} --sync=1 "
                 f"--iodepth=4 --rw=write {BLOCK} --do_verify=0")
    check("err= 0" in client.ends(60), "the client does not say that it wrote")
    # It remembers as an error that the device takes no advice about a region, and goes on.
    failed = set(re.findall(r"func=(\w+)", server.ends(20, None)))
    check(failed <= {"rpma_mr_advise"}, f"the server fails in {', '.join(failed)}")
    run("server", f"{HOME}/fio --name=job --ioengine=psync --filename={path} --size={SIZE} "
        f"--rw=write {BLOCK} --verify_only", iwarp=False)
    compared("64 MiB written, verified in the server's file by another fio")


main(scenario)
