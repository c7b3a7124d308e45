// SPDX-License-Identifier: MIT OR Apache-2.0

//! Storage over RDMA.

use super::scenario::Scenario;
use super::table::Topology;
use crate::packages::Tool;

const ISER: &str = include_str!("scenarios/iser.py");
const ISER_PACKAGES: &[Tool] = &[
    Tool { program: "tgtd", package: "tgt", steps: &[] },
    Tool { program: "iscsi-inq", package: "libiscsi-bin", steps: &[] },
];
const CEPH: &str = include_str!("scenarios/ceph.py");
const CEPH_PACKAGES: &[Tool] = &[
    Tool { program: "ceph-mon", package: "ceph-mon", steps: &[] },
    Tool { program: "ceph-osd", package: "ceph-osd", steps: &[] },
    Tool { program: "rados", package: "ceph-common", steps: &[] },
];
const DAPL: &str = include_str!("scenarios/dapl.py");
const DAPL_PACKAGES: &[Tool] = &[Tool { program: "dtest", package: "dapl2-utils", steps: &[] }];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let iser = |what, argument| Scenario {
        group: "iSER",
        packages: ISER_PACKAGES,
        ..Scenario::new(what, ISER, argument)
    };
    let ceph = Scenario {
        group: "Ceph",
        packages: CEPH_PACKAGES,
        ..Scenario::new("`ms_type = async+rdma`: `rados put`, `get` and `bench`", CEPH, "")
    };
    // It refuses an identifier without a device, and one that is bound to a loopback address has
    // none.
    let dapl = Scenario {
        group: "uDAPL",
        packages: DAPL_PACKAGES,
        ..Scenario::new("`dtest`", DAPL, "").only(&[Topology::Network])
    };
    let copy = iser("libiscsi writes and reads a disk of `tgtd`'s", "copy");
    vec![
        copy.clone().always(),
        copy.roce().always(),
        iser("libiscsi's own test suite (`iscsi-test-cu --test SCSI`)", "suite").within(600),
        ceph.roce().within(900),
        dapl.clone().always(),
        dapl.roce().always(),
    ]
}
