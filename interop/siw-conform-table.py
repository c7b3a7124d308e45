# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes the table of siw-conform.sh: which cases siw deviates in, from the tester's JSON.

usage: siw-conform-table.py FOLDER KERNEL
"""

import json
import pathlib
import sys

RUNS = [(crc, role) for crc in ("on", "off") for role in ("server", "client")]


def cell(case):
    """What a table says of a case: "expected: came" where it deviates."""
    if case is None:
        return ""
    if case["verdict"] != "deviates":
        return case["verdict"].replace("-", " ")
    # Of bytes the first ones say enough.
    return f"{case['expected']}: {case['came'][:40]}".replace("|", "or")


def main(folder, kernel):
    runs = {}
    for crc, role in RUNS:
        text = (folder / f"{crc}-{role}" / "json").read_text()
        runs[crc, role] = {case["case"]: case for case in json.loads(text)["cases"]}
    print("# Linux siw under `iwarp conform`\n")
    print(f"Written by `TABLE=interop/siw.md interop/siw-conform.sh`; siw of Linux {kernel}.\n")
    print("| siw as | CRC | conforms | deviates | not seen |\n|---|---|---|---|---|")
    for (crc, role), cases in runs.items():
        verdicts = [case["verdict"] for case in cases.values()]
        counts = [verdicts.count(verdict) for verdict in ("conforms", "deviates", "not-seen")]
        print(f"| {role} | {crc} |", " | ".join(map(str, counts)), "|")
    print("\nWhere siw deviates with CRCs, what was expected, and what came:\n")
    print("| Case | siw as server | siw as client |\n|---|---|---|")
    server, client = runs["on", "server"], runs["on", "client"]
    for name in dict.fromkeys([*server, *client]):
        pair = [server.get(name), client.get(name)]
        if any(case and case["verdict"] == "deviates" for case in pair):
            print(f"| `{name}` |", " | ".join(map(cell, pair)), "|")


main(pathlib.Path(sys.argv[1]), sys.argv[2])
