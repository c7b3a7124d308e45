// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frameworks for machine learning.

use super::scenario::Scenario;
use super::table::Topology;
use crate::packages::Tool;

const PYTORCH: &str = include_str!("scenarios/pytorch.py");
const PACKAGES: &[Tool] = &[Tool {
    program: "/usr/lib/python3/dist-packages/torch/__init__.py",
    package: "python3-torch",
    steps: &[],
}];

const GLOO: &str = include_str!("scenarios/gloo.py");
const RING: (&str, &str) = ("gloo_ring.cc", include_str!("scenarios/gloo_ring.cc"));
const HEADERS: &[Tool] = &[
    Tool { program: "g++", package: "g++", steps: &[] },
    Tool { program: "/usr/include/gloo/config.h", package: "libgloo-dev", steps: &[] },
    Tool { program: "/usr/include/infiniband/verbs.h", package: "libibverbs-dev", steps: &[] },
];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let rpc = Scenario {
        group: "PyTorch",
        packages: PACKAGES,
        limit: 300,
        ..Scenario::new("RPC over TensorPipe's `ibv` transport", PYTORCH, "")
    };
    // The package has no program.
    let gloo = |what, argument| Scenario {
        group: "gloo",
        packages: HEADERS,
        files: &[RING],
        ..Scenario::new(what, GLOO, argument)
    };
    let reduce = gloo("4 processes of our own: allreduce over `ibverbs`", "reduce").always();
    let speed = gloo("2 processes: allreduce of 4 KiB and 4 MiB", "speed");
    let speed = speed.only(&[Topology::Loopback]);
    vec![rpc.clone(), rpc.roce(), reduce.clone(), reduce.roce(), speed.roce()]
}
