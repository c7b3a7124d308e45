# SPDX-License-Identifier: MIT OR Apache-2.0
"""uDAPL over the connection manager: `dtest` and `dapltest`."""

import os

from lab import PLACE, SERVER, Program, check, compared, main, package, run


def scenario():
    package("dapl2-utils")
    interface = "lo" if PLACE == "loopback" else "eth0"
    with open("dat.conf", "w") as conf:
        conf.write(f'test u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "{interface} 0" ""\n')
    os.chmod("dat.conf", 0o644)
    env = {"DAT_OVERRIDE": f"{os.getcwd()}/dat.conf"}
    server = Program("server", "dtest -P test -s", env=env)
    server.until(server.ports, "listens")
    said = run("client", f"dtest -P test -h {SERVER}", 60, env=env)
    check("PASSED" in said or "DAPL Test Complete" in said, "dtest does not say that it passed")
    server.ends()
    compared("`dtest` checks what its Sends, Writes and Reads have moved")


main(scenario)
