// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures of real stacks: Linux siw and rxe, and this project. Nothing is wrong in most of them,
//! and what is wrong in the others was meant to be.

use std::fs::File;
use std::path::Path;

use iwarp_explain::{Connection, Outcome, Report, Settings, explain, text};

#[track_caller]
fn read(path: &str) -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    explain(File::open(path).unwrap(), &Settings::default()).unwrap()
}

#[track_caller]
fn assert_all_fine(report: &Report, connections: usize) {
    let text = text::text(report);
    assert_eq!(report.connections.len(), connections, "{text}");
    for connection in &report.connections {
        assert_eq!(connection.verdict.outcome, Outcome::Fine, "{text}");
    }
}

/// Messages of a kind in all connections.
fn messages(report: &Report, kind: &str) -> u64 {
    let all = report.connections.iter().flat_map(|connection| &connection.operations);
    all.filter(|operation| operation.kind == kind).map(|operation| operation.messages).sum()
}

/// The counts are those of tshark 4.0.
#[test]
fn siw_is_fine() {
    let report = read("iwarp-explain/tests/data/siw.pcap");
    assert_all_fine(&report, 1);
    assert_eq!(report.other.tcp_connections, 0);
    let count = |kind| messages(&report, kind);
    assert_eq!((count("Send"), count("RDMA Write"), count("Terminate")), (17, 17, 0));
}

#[test]
fn rsockets_of_this_project_are_fine() {
    let report = read("iwarp-explain/tests/data/rsockets-own.pcap");
    assert_all_fine(&report, 1);
    assert!(messages(&report, "private Write of nothing (hello)") > 0);
}

#[test]
fn trains_of_this_project_to_rxe_are_cut_apart() {
    let report = read("iwarp-explain/tests/data/rsockets-rxe.pcap");
    let outcomes: Vec<Outcome> =
        report.connections.iter().map(|connection| connection.verdict.outcome).collect();
    // An acknowledgement of the first one took 105 ms.
    assert_eq!(outcomes, [Outcome::Troubled, Outcome::Fine], "{}", text::text(&report));
}

#[test]
fn markers_of_the_vectors_are_right() {
    for name in [
        "marker_between_fpdus",
        "marker_between_fpdus_2",
        "marker_between_pad_and_crc",
        "marker_offset4",
        "marker_pad3_marker_crc",
        "marker_three_markers",
    ] {
        assert_all_fine(&read(&format!("iwarp-proto/tests/data/pcap/{name}.pcap")), 1);
    }
    for name in ["ref_markers", "ref_nomarkers"] {
        let report = read(&format!("iwarp-proto/tests/data/pcap/{name}.pcap"));
        let [connection] = &report.connections[..] else { panic!("{}", text::text(&report)) };
        assert_eq!(connection.verdict.kind, Some("terminate"));
        assert!(connection.verdict.text.contains("invalid STag"));
    }
}

/// The capture has ends that misbehave on purpose.
#[test]
fn rxe_is_told_apart_from_its_strange_peers() {
    let report = read("iwarp-roce/tests/data/rxe.pcap");
    let kinds: Vec<Option<&str>> =
        report.connections.iter().map(|connection| connection.verdict.kind).collect();
    let found: Vec<&str> = kinds.into_iter().flatten().collect();
    let expected = [
        "cm-rejected",
        "rnr",
        "nak-remote-access",
        "nak-remote-access",
        "nak-invalid-request",
        "nak-invalid-request",
        "nak-remote-operational",
        "nak-invalid-request",
        "nak-sequence",
        "psn-lost",
    ];
    assert_eq!(found, expected, "{}", text::text(&report));
    let protocols = |wanted: &str| {
        let fits = |connection: &&Connection| connection.protocol == wanted;
        report.connections.iter().filter(fits).count()
    };
    assert!(protocols("RoCE v2 UD") >= 4 && protocols("RoCE v2 UC") >= 2);
}
