// SPDX-License-Identifier: MIT OR Apache-2.0

//! Key-value stores and persistent memory over RDMA, built from Debian's source packages.

use super::scenario::Scenario;
use super::sources::Source;
use super::table::Topology;
use crate::packages::Tool;

const VALKEY: &str = include_str!("scenarios/valkey.py");
/// Debian builds it without RDMA.
const VALKEY_SOURCE: &Source = &Source {
    package: "valkey",
    release: "sid",
    build: "make -j2 BUILD_RDMA=yes USE_SYSTEMD=no && make -C tests/rdma",
    kept: &[
        "src/valkey-server",
        "src/valkey-cli",
        "src/valkey-benchmark",
        "tests/rdma",
        "runtest-rdma",
    ],
};
/// For `runtest-rdma`.
const VALKEY_PACKAGES: &[Tool] = &[Tool {
    program: "/usr/lib/python3/dist-packages/netifaces-0.11.0.egg-info/PKG-INFO",
    package: "python3-netifaces",
    steps: &[],
}];
const RPMA: &str = include_str!("scenarios/fio_rpma.py");
/// Debian builds it without the engines for librpma.
const FIO_SOURCE: &Source = &Source {
    package: "fio",
    release: "bookworm",
    build: "./configure --disable-native && make -j2 fio",
    kept: &["fio"],
};
const FIO_PACKAGES: &[Tool] = &[
    Tool { program: "/usr/include/librpma.h", package: "librpma-dev", steps: &[] },
    Tool { program: "/usr/include/libpmem.h", package: "libpmem-dev", steps: &[] },
    Tool {
        program: "/usr/include/protobuf-c/protobuf-c.h",
        package: "libprotobuf-c-dev",
        steps: &[],
    },
];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let valkey = |what, argument| Scenario {
        group: "Valkey",
        packages: VALKEY_PACKAGES,
        sources: &[VALKEY_SOURCE],
        ..Scenario::new(what, VALKEY, argument)
    };
    // It refuses an identifier without a device, and one that is bound to a loopback address has
    // none.
    let rpma = |what, argument| Scenario {
        group: "librpma",
        packages: FIO_PACKAGES,
        sources: &[FIO_SOURCE],
        ..Scenario::new(what, RPMA, argument).only(&[Topology::Network])
    };
    // It takes the address of the first device's interface.
    let own = valkey("its own `runtest-rdma`", "runtest").only(&[Topology::Loopback]).sysfs();
    let store =
        valkey("`rdma-test -t 4`, `valkey-cli` and `valkey-benchmark`", "store").within(200);
    let threads =
        valkey("`rdma-test -t 4` and `valkey-cli` with `--io-threads 2`", "threads").within(200);
    let appliance = rpma("fio's `librpma_apm` engines", "apm");
    let general = rpma("fio's `librpma_gpspm` engines", "gpspm");
    let all = [own, store, threads, appliance, general];
    all.into_iter().flat_map(|scenario| [scenario.clone(), scenario.roce()]).collect()
}
