//! Frameworks for machine learning.

use super::scenario::Scenario;
use crate::packages::Tool;

const PYTORCH: &str = include_str!("scenarios/pytorch.py");
const PACKAGES: &[Tool] = &[Tool {
    program: "/usr/lib/python3/dist-packages/torch/__init__.py",
    package: "python3-torch",
    steps: &[],
}];

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let rpc = Scenario {
        group: "PyTorch",
        packages: PACKAGES,
        ..Scenario::new("RPC over TensorPipe's `ibv` transport", PYTORCH, "")
    };
    vec![rpc.clone(), rpc.roce()]
}
