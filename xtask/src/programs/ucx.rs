// SPDX-License-Identifier: MIT OR Apache-2.0

//! UCX beside its own TCP. That its tests work at all, rows of the other table show.

use super::scenario::Scenario;
use super::table::Topology;
use crate::packages::Tool;

const SCRIPT: &str = include_str!("scenarios/ucx.py");
const PACKAGES: &[Tool] = &[Tool { program: "ucx_perftest", package: "ucx-utils", steps: &[] }];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let speed = Scenario {
        // Not the group of those rows, so that `--only` can mean it alone.
        group: "UCX speed",
        packages: PACKAGES,
        ..Scenario::new("UCX's perf test, all that the device has", SCRIPT, "")
    };
    vec![speed.only(&[Topology::Loopback]).sysfs().roce().within(200)]
}
