// SPDX-License-Identifier: MIT OR Apache-2.0

//! Python packages, as PyPI has them.

use super::scenario::Scenario;
use crate::packages::Tool;

const MOONCAKE: &str = include_str!("scenarios/mooncake.py");
const VERBS: &str = include_str!("scenarios/python_verbs.py");
const PEERCACHE: &str = include_str!("scenarios/peercache.py");
const INFINISTORE: &str = include_str!("scenarios/infinistore.py");
const NVMEOF: &str = include_str!("scenarios/nvmeof.py");
const PYVERBS: &[Tool] = &[Tool {
    program: "/usr/lib/python3/dist-packages/pyverbs/__init__.py",
    package: "python3-pyverbs",
    steps: &[],
}];
const HEADERS: &[Tool] = &[
    Tool { program: "cmake", package: "cmake", steps: &[] },
    Tool { program: "/usr/include/libnl3/netlink/netlink.h", package: "libnl-3-dev", steps: &[] },
    Tool {
        program: "/usr/include/libnl3/netlink/route/link.h",
        package: "libnl-route-3-dev",
        steps: &[],
    },
    Tool { program: "/usr/include/libudev.h", package: "libudev-dev", steps: &[] },
];
const NIXL: &str = include_str!("scenarios/nixl.py");

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let mooncake = |what, argument| Scenario {
        group: "Mooncake (PyPI)",
        wheels: &["mooncake-transfer-engine-non-cuda==0.3.13.post1"],
        ..Scenario::new(what, MOONCAKE, argument).sysfs()
    };
    let verbs = Scenario {
        group: "ibverbs (PyPI)",
        wheels: &["ibverbs==2026.10.22"],
        ..Scenario::new("two Python processes", VERBS, "")
    };
    let peercache = Scenario {
        group: "PeerCache (PyPI)",
        wheels: &["peercache==0.8.4"],
        ..Scenario::new("its transfer engine in two processes", PEERCACHE, "")
    };
    let store = mooncake("the store: a master and two clients", "store");
    let infinistore = Scenario {
        group: "InfiniStore (PyPI)",
        // Not all that it names: its client and server do without PyTorch and CUDA.
        // It shares a loop with libuv of its own, which must be as old as uvloop's.
        wheels: &["--no-deps infinistore==0.2.35", "fastapi uvicorn uvloop==0.21.0 numpy"],
        ..Scenario::new("a server, and a client with memory of the host", INFINISTORE, "").sysfs()
    };
    let nvmeof = Scenario {
        group: "nvmeof (PyPI)",
        packages: PYVERBS,
        wheels: &["nvmeof==2026.10.22 ibverbs==2026.10.22"],
        ..Scenario::new("an initiator, and a target of a few lines", NVMEOF, "debian")
    };
    // Compiled here: all of rdma-core, some minutes.
    let pyverbs = Scenario {
        group: "pyverbs (PyPI)",
        packages: HEADERS,
        wheels: &["nvmeof==2026.10.22 ibverbs==2026.10.22", "pyverbs==59.0"],
        ..Scenario::new("the same target on it, and nvmeof's initiator", NVMEOF, "pypi")
    };
    // Not PyTorch, which it names but does without.
    let nixl = Scenario {
        group: "NIXL (PyPI)",
        wheels: &["--no-deps nixl-cu12==1.5.1", "numpy==2.3.4"],
        limit: 300,
        ..Scenario::new("two agents, memory of the host, UCX of the wheel's own", NIXL, "")
    };
    vec![
        mooncake("`TransferEngine` of Python", "api"),
        mooncake("`TransferEngine` of Python", "api").roce(),
        store.clone(),
        store.roce(),
        mooncake("`transfer_engine_bench`", "bench").roce().within(300),
        verbs.clone().always(),
        verbs.roce().always(),
        peercache.clone().always(),
        peercache.roce().always(),
        infinistore.roce(),
        nvmeof.clone().always(),
        nvmeof.roce().always(),
        pyverbs.clone(),
        pyverbs.roce(),
        nixl.roce(),
    ]
}
