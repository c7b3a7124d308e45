//! What watches devices, and reads their counters.

use super::scenario::Scenario;
use crate::packages::Tool;

const EXPORTER: &str = include_str!("scenarios/node_exporter.py");

/// All of them.
pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        group: "Monitors",
        packages: &[Tool {
            program: "prometheus-node-exporter",
            package: "prometheus-node-exporter",
            steps: &[],
        }],
        ..Scenario::new("the node exporter and `ib_write_bw`", EXPORTER, "")
            .sysfs()
            .because("the exporter leaves out a device without the files `rate` and `hca_type`")
    }]
}
