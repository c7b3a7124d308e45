// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that are wrong in one thing: each is found, by the case that is about it.

use std::time::Duration;

use iwarp_conform::case::{Case, Role};
use iwarp_conform::catalog;
use iwarp_conform::peer::Peer;
use iwarp_conform::run::{Settings, connect};
use iwarp_conform::verdict::Verdict;

use crate::peer;

/// What a peer does wrong, and the case that finds it.
const DEVIATIONS: &[(&str, &str)] = &[
    ("takes any key", "startup-key-last-byte"),
    ("takes any revision", "startup-revision-3"),
    ("takes any length", "startup-length-513"),
    ("takes bytes behind the Request", "startup-bytes-behind-request"),
    ("wants the Request at once", "startup-no-reply-to-half"),
    ("checks reserved bits", "startup-reserved-04"),
    ("sets reserved bits", "startup-revision-2"),
    ("answers with the wrong key", "startup-revision-2"),
    ("always answers enhanced", "startup-revision-1"),
    ("always answers revision 2", "startup-revision-1"),
    ("speaks first", "startup-responder-waits"),
    ("sends no CRC", "startup-crc-asked"),
    ("sends wrong CRCs", "startup-crc-asked"),
    ("sends no markers", "startup-markers-asked"),
    ("points elsewhere", "framing-markers-from-the-peer"),
    ("pads with ones", "framing-pad-1"),
    ("checks no CRC", "framing-bad-crc"),
    ("knows no unsaid depths", "enhanced-ird-unsaid"),
    ("wants too many Reads", "enhanced-depths"),
    ("mixes up the models", "enhanced-client-server-flags"),
    ("sends no Terminate", "framing-bad-crc"),
    ("says another code", "ddp-stag-unknown"),
    ("quotes nothing", "ddp-stag-unknown"),
    ("quotes something else", "ddp-stag-unknown"),
    ("goes on after its Terminate", "endings-nothing-after-terminate"),
    ("stays after its Terminate", "endings-terminate-by-fin"),
    ("resets after its Terminate", "endings-terminate-by-fin"),
    ("answers Terminates", "endings-terminate-is-not-answered"),
    ("never says last", "reads-of-nothing"),
    ("sends DDP version 2", "reads-of-nothing"),
    ("takes any DDP version", "ddp-version-2-untagged"),
    ("checks reserved bits of DDP", "ddp-reserved-bits"),
    ("takes any RDMAP version", "rdmap-version-2"),
    ("checks reserved bits of RDMAP", "rdmap-reserved-bits"),
    ("skips unknown opcodes", "rdmap-opcode-f"),
    ("takes any queue", "ddp-queue-4"),
    ("ignores MSNs", "ddp-msn-again"),
    ("numbers from 0", "rdmap-send"),
    ("answers on another queue", "rdmap-send"),
    ("drops what it has no receive for", "ddp-no-receive"),
    ("cuts what is too long", "ddp-send-too-long"),
    ("delivers segments", "ddp-send-in-segments"),
    ("checks Writes of nothing", "ddp-write-of-nothing"),
    ("ignores rights", "ddp-stag-not-writable"),
    ("ignores protection domains", "ddp-stag-of-others"),
    ("knows no wrap", "ddp-write-wraps"),
    ("takes a byte too many", "ddp-write-beyond-the-end"),
    ("invalidates nothing", "rdmap-invalidate-unknown"),
    ("checks the field of Invalidate", "rdmap-send-invalidate-field"),
    ("checks Reads of nothing", "reads-of-nothing"),
    ("answers to another place", "reads-of-nothing"),
    ("reads a byte too few", "reads-everything"),
    ("ignores the mask", "atomics-fetch-add-mask"),
    ("tells the sum", "atomics-fetch-add"),
    ("always swaps", "atomics-compare-swap"),
    ("takes any address", "atomics-unaligned"),
    ("knows more Atomics", "atomics-reserved-operation"),
    ("takes any Immediate Data", "immediate-7-bytes"),
];

fn settings(patience: u64) -> Settings {
    let patience = Duration::from_millis(patience);
    Settings { peer: Peer::Ours, patience, ..Settings::default() }
}

fn cases() -> Vec<Case> {
    catalog::embedded().expect("they are right")
}

/// What is planted is all that is wrong with that peer.
#[test]
fn the_peer_without_deviations_conforms_in_every_case() {
    let settings = settings(10_000);
    for wrong in ["", "asks for markers"] {
        let addr = peer::start(wrong);
        for case in cases().iter().filter(|case| case.role.has(Role::Connect)) {
            let verdict = connect(addr, case, &settings).verdict;
            let is_good = match &verdict {
                Verdict::Conforms => true,
                Verdict::NotSeen { .. } => {
                    !case.name.starts_with("framing-marker") || wrong.is_empty()
                }
                Verdict::Deviates(_) => false,
            };
            assert!(is_good, "{}: {verdict:?}", case.name);
        }
    }
}

#[test]
fn every_deviation_is_found_by_its_case() {
    let cases = cases();
    let mut missed = Vec::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = DEVIATIONS
            .iter()
            .map(|(wrong, name)| {
                let case = cases.iter().find(|case| case.name == *name).expect(name);
                (wrong, name, scope.spawn(|| connect(peer::start(wrong), case, &settings(1000))))
            })
            .collect();
        for (wrong, name, run) in runs {
            let verdict = run.join().expect("it runs").verdict;
            if !matches!(verdict, Verdict::Deviates(_)) {
                missed.push(format!("{wrong}: {name}: {verdict:?}"));
            }
        }
    });
    assert!(missed.is_empty(), "{missed:#?}");
    let mut names: Vec<&str> = DEVIATIONS.iter().map(|(wrong, _)| *wrong).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == DEVIATIONS.len() && names.len() >= 20);
}
