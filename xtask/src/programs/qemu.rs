// SPDX-License-Identifier: MIT OR Apache-2.0

//! Virtual machines that move by RDMA.

use super::scenario::Scenario;
use crate::packages::Tool;

const SCRIPT: &str = include_str!("scenarios/qemu_migration.py");
const PACKAGES: &[Tool] =
    &[Tool { program: "qemu-system-x86_64", package: "qemu-system-x86", steps: &[] }];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let migration = |what, argument| Scenario {
        group: "QEMU",
        packages: PACKAGES,
        ..Scenario::new(what, SCRIPT, argument)
    };
    let precopy = migration("`migrate rdma:` of a guest that writes (precopy)", "precopy");
    let cancel = migration("`migrate_cancel` in the middle, then to another target", "cancel");
    let killed = migration("the target is killed in the middle, then to another target", "killed");
    vec![
        precopy.clone().always(),
        precopy.roce().always(),
        migration("the same with `rdma-pin-all`", "pin-all"),
        migration("the same with `rdma-pin-all`", "pin-all").roce().always(),
        cancel.clone(),
        cancel.roce(),
        killed.clone(),
        killed.roce(),
        migration("a stopped guest of 768 MiB, `rdma-pin-all`", "speed").roce().within(600),
    ]
}
