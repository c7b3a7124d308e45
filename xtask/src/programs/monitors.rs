// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that watch devices and read their counters.

use super::scenario::Scenario;
use super::table::Topology;
use crate::packages::Tool;

const EXPORTER: &str = include_str!("scenarios/node_exporter.py");
const RDMATOP: &str = include_str!("scenarios/rdmatop.py");
const PCP: &str = include_str!("scenarios/pcp.py");
const AGENT: &[Tool] = &[Tool {
    program: "/usr/lib/pcp/pmdas/infiniband/pmdaib",
    package: "pcp-pmda-infiniband",
    steps: &[],
}];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let exporter = Scenario {
        group: "Monitors",
        packages: &[Tool {
            program: "prometheus-node-exporter",
            package: "prometheus-node-exporter",
            steps: &[],
        }],
        ..Scenario::new("the node exporter and `ib_write_bw`", EXPORTER, "").sysfs().because(
            "it shows the device, its state and its rate, but a program without libc's calls (Go) finds \
             zeros in the files of the counters",
        )
    };
    let pcp = Scenario {
        group: "Monitors",
        packages: AGENT,
        ..Scenario::new("Performance Co-Pilot's `pmdaib`", PCP, "")
            .roce()
            .sysfs()
            .only(&[Topology::Loopback])
            .because(
                "it finds the device, and then asks for counters by InfiniBand's management datagrams \
                 (libibumad), which no iWARP device has; the same counters are in \
                 `/sys/class/infiniband`",
            )
    };
    // Not PyTorch, which it names for a profiler beside it.
    let rdmatop = Scenario {
        group: "Monitors",
        wheels: &["--no-deps rdmatop==0.1.33"],
        ..Scenario::new("rdmatop (PyPI) and `ib_write_bw`", RDMATOP, "").sysfs()
    };
    vec![exporter, pcp, rdmatop.clone(), rdmatop.roce()]
}
