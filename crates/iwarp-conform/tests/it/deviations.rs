// SPDX-License-Identifier: MIT OR Apache-2.0

//! Peers that are wrong in one thing: each is found, by the case that is about it.

use std::net::TcpListener;
use std::time::Duration;

use iwarp_conform::case::{Case, Need, Role};
use iwarp_conform::catalog;
use iwarp_conform::peer::Peer;
use iwarp_conform::run::{Settings, connect, listen};
use iwarp_conform::verdict::{Outcome, Verdict};

use crate::peer;

/// The deviation of a server, and the case that finds it.
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
    ("answers the longest Read last", "reads-in-order"),
    ("stays with the RDMAC", "rdmac-request"),
    ("takes the RDMAC's versions", "rdmac-versions-send"),
    ("is permissive, but for markers", "rdmac-permissive"),
    ("is permissive, but for RDMAP", "rdmac-permissive"),
    ("leaves a stream at rest", "silence-at-rest"),
    ("wants the first FPDU at once", "silence-before-the-first-fpdu"),
    ("wants an FPDU at once", "silence-inside-an-fpdu"),
    ("wants a message at once", "silence-inside-a-message"),
    ("serves one at a time", "flood-of-connections"),
];

/// The deviation of a peer that reads, writes and sends by itself, and the case that finds it.
const INITIATORS: &[(&str, &str)] = &[
    ("asks by a Send", "initiator-read"),
    ("asks for a byte too few", "initiator-read"),
    ("asks for another place", "initiator-read-far-place"),
    ("asks for other memory", "initiator-read-far-place"),
    ("asks in a header that is too long", "initiator-read"),
    ("asks for too many at a time", "initiator-reads-within-the-depth"),
    ("numbers all Reads alike", "initiator-reads"),
    ("works in reverse", "initiator-reads"),
    ("places no answers", "initiator-read"),
    ("is done with the first segment", "initiator-read-in-segments"),
    ("takes answers to any STag", "initiator-response-stag"),
    ("takes answers to any place", "initiator-response-place"),
    ("takes answers of any length", "initiator-response-beyond-the-memory"),
    ("takes answers that nobody asked for", "initiator-response-twice"),
    ("wants an answer at once", "initiator-response-late"),
    ("stays when its Read is refused", "initiator-read-refused"),
    ("stays when its Read fails", "initiator-read-closed"),
    ("writes each segment to the same place", "initiator-write"),
    ("changes the STag inside a Write", "initiator-write"),
    ("says last in each segment", "initiator-write"),
    ("sends inside a Write", "initiator-write"),
    ("is done before it begins", "initiator-writes"),
    ("sends no more than a segment", "initiator-send-64k"),
    ("counts no MO", "initiator-send"),
    ("counts MSNs by segments", "initiator-send"),
    ("numbers all Sends alike", "initiator-sends"),
    ("forgets to solicit", "initiator-send-solicited"),
    ("forgets to solicit an invalidation", "initiator-send-solicited-invalidate"),
    ("names nothing to invalidate", "initiator-send-invalidate"),
    ("always names an STag", "initiator-send-solicited"),
    ("asks for Atomics on the queue of Sends", "initiator-fetch-add"),
    ("leaves the Compare Mask out", "initiator-fetch-add"),
    ("fills reserved bits of Atomics", "initiator-fetch-add"),
    ("adds one more", "initiator-fetch-add"),
    ("compares nothing in a FetchAdd", "initiator-fetch-add"),
    ("places no values", "initiator-fetch-add"),
    ("asks for an Atomic that it cannot do", "initiator-fetch-add"),
    ("asks for Atomics elsewhere", "initiator-fetch-add-far-place"),
    ("adds in one field", "initiator-fetch-add-mask"),
    ("asks for FetchAdd in the place of CmpSwap", "initiator-compare-swap"),
    ("swaps in what it compares", "initiator-compare-swap"),
    ("compares all bits", "initiator-compare-swap-mask"),
    ("numbers no Atomics", "initiator-atomics-and-reads"),
    ("counts no Atomics", "initiator-atomics-within-the-depth"),
    ("is done when it has asked", "initiator-atomic-response-late"),
    ("checks reserved bits of DDP", "initiator-atomic-response-reserved-bits"),
    ("ignores MSNs", "initiator-atomic-response-msn-skipped"),
    ("takes any queue", "initiator-atomic-response-queue-1"),
    ("takes any DDP version", "initiator-atomic-response-ddp-version"),
    ("takes any RDMAP version", "initiator-atomic-response-rdmap-version"),
    ("checks no CRC", "initiator-atomic-response-bad-crc"),
    ("takes Atomic Responses that nobody asked for", "initiator-atomic-response-too-early"),
    ("takes Atomic Responses that are too long", "initiator-atomic-response-13-bytes"),
    ("takes Atomic Responses that are too short", "initiator-atomic-response-11-bytes"),
    ("takes Atomic Responses for Reads", "initiator-read-atomic-response"),
    ("takes Read Responses for Atomics", "initiator-atomic-read-response"),
    ("stays when its Atomic is refused", "initiator-atomic-refused"),
    ("sends four bytes of Immediate Data", "initiator-immediate"),
    ("forgets to solicit Immediate Data", "initiator-immediate-solicited"),
    ("numbers no Immediate Data", "initiator-immediates-and-sends"),
    ("sends Immediate Data in front of their Write", "initiator-write-immediate"),
];

/// The deviation of a client, and the case that finds it.
const CLIENTS: &[(&str, &str)] = &[
    ("asks with the wrong key", "startup-request-as-it-should-be"),
    ("asks with R", "startup-request-as-it-should-be"),
    ("asks with reserved bits", "startup-request-as-it-should-be"),
    ("asks for revision 3", "startup-request-as-it-should-be"),
    ("asks for revision 0", "startup-request-as-it-should-be"),
    ("asks for depths in revision 1", "startup-request-as-it-should-be"),
    ("asks with too great a length", "startup-request-as-it-should-be"),
    ("has no room for its depths", "startup-request-as-it-should-be"),
    ("names frames to begin with", "enhanced-plain-reply-to-plain"),
    ("speaks before the Reply", "startup-initiator-waits"),
    ("takes any Reply's key", "startup-reply-key"),
    ("takes a Request for a Reply", "startup-two-initiators"),
    ("takes revision 0", "startup-reply-revision-0"),
    ("goes on when it is rejected", "startup-rejected"),
    ("takes any Reply's length", "startup-reply-length-513"),
    ("checks a Reply's reserved bits", "startup-reply-reserved"),
    ("has no room for private data", "startup-reply-private-data-512"),
    ("wants the Reply at once", "startup-byte-by-byte"),
    ("stays when a Reply ends inside", "startup-reply-end-inside"),
    ("wants depths", "enhanced-reply-unsaid"),
    ("takes any ORD", "enhanced-ord-too-great"),
    ("says another code for the depth", "enhanced-ord-too-great"),
    ("forgets the Reply's IRD", "initiator-reads-within-the-depth"),
    ("sends no markers to a server", "startup-markers-asked"),
    ("sends no CRC to a server", "startup-crc-asked"),
    ("resets on revision 0", "rdmac-reply"),
    ("is permissive, but for RDMAP", "rdmac-permissive-initiator"),
];

/// A deviation that was missed is looked for by itself so many times.
const AGAIN: usize = 5;

/// Peers with nothing wrong in them.
const GOOD: [&str; 3] = ["", "asks for markers", "is permissive"];

fn settings(patience: u64) -> Settings {
    let patience = Duration::from_millis(patience);
    Settings { peer: Peer::Ours, patience, ..Settings::default() }
}

fn cases() -> Vec<Case> {
    catalog::embedded().expect("they are right")
}

/// The planted deviation is all that is wrong with that peer.
#[test]
fn the_peer_without_deviations_conforms_in_every_case() {
    let (settings, cases) = (settings(10_000), cases());
    std::thread::scope(|scope| {
        for wrong in GOOD {
            for role in [Role::Connect, Role::Listen] {
                let (settings, cases) = (&settings, &cases);
                scope.spawn(move || conforms(wrong, role, cases, settings));
            }
        }
    });
}

fn conforms(wrong: &'static str, role: Role, cases: &[Case], settings: &Settings) {
    let server = peer::start(wrong);
    let tester = TcpListener::bind("127.0.0.1:0").expect("a port");
    if role == Role::Listen {
        let addr = tester.local_addr().expect("an address");
        std::thread::spawn(move || peer::call(addr, wrong));
    }
    for case in cases.iter().filter(|case| case.role.has(role)) {
        let outcome = match role {
            Role::Connect => connect(server, case, settings),
            Role::Listen => listen(&tester, case, settings),
        };
        let is_good = match &outcome.verdict {
            Verdict::Conforms => true,
            Verdict::NotSeen { .. } => !must_be_seen(case, wrong),
            Verdict::Deviates(_) => may_deviate(case, wrong),
        };
        assert!(is_good, "{wrong:?} as {role:?}: {}: {:?}", case.name, outcome.verdict);
    }
}

/// True if a case must have something to look at in that peer.
fn must_be_seen(case: &Case, wrong: &str) -> bool {
    !case.needs.iter().any(|need| match need {
        Need::Markers => wrong != "asks for markers",
        Need::Rdmac => wrong != "is permissive",
        // Only a peer that wants no CRCs shows these, and only a run that has the time.
        Need::NoCrc | Need::Time => true,
        _ => false,
    })
}

/// True where a peer that can talk to the RDMA Consortium's does not refuse what others refuse.
fn may_deviate(case: &Case, wrong: &str) -> bool {
    let is_old = case.steps.iter().any(|step| step.text.contains("rev=0"));
    wrong == "is permissive" && is_old && !case.needs.contains(&Need::Rdmac)
}

#[test]
fn every_deviation_is_found_by_its_case() {
    let cases = cases();
    let servers = DEVIATIONS.iter().chain(INITIATORS).map(|row| (row, Role::Connect));
    let clients = CLIENTS.iter().chain(INITIATORS).map(|row| (row, Role::Listen));
    let rows: Vec<_> = servers
        .chain(clients)
        .map(|((wrong, name), role)| {
            let case = cases.iter().find(|case| case.name == *name).expect(name);
            assert!(case.role.has(role), "{name}");
            (*wrong, case, role)
        })
        .collect();
    let mut missed = Vec::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = rows.iter().map(|row| (row, scope.spawn(|| is_found(row)))).collect();
        for (row, run) in runs {
            if !run.join().expect("it runs") {
                missed.push(row);
            }
        }
    });
    // A few deviations are seen only by a tester that is in time, which so many at once may not be.
    missed.retain(|row| !(0..AGAIN).any(|_| is_found(row)));
    let missed: Vec<_> =
        missed.iter().map(|(wrong, case, role)| (wrong, &case.name, role)).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    for (table, least) in [(DEVIATIONS, 60), (INITIATORS, 60), (CLIENTS, 25)] {
        let mut names: Vec<&str> = table.iter().map(|(wrong, _)| *wrong).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() == table.len() && names.len() >= least, "{}", names.len());
    }
}

/// A target that cannot carry out an order says so, and that is no verdict on its stack.
#[test]
fn orders_that_a_target_cannot_do_are_not_seen() {
    let cases = cases();
    let case = cases.iter().find(|case| case.name == "initiator-fetch-add").expect("it is there");
    for role in [Role::Connect, Role::Listen] {
        match run("knows no Atomics", case, role).verdict {
            Verdict::NotSeen { why } => assert!(why.ends_with("no Atomics here"), "{why}"),
            other => panic!("{role:?}: {other:?}"),
        }
    }
}

/// True if the case finds the deviation of that peer.
fn is_found((wrong, case, role): &(&'static str, &Case, Role)) -> bool {
    matches!(run(wrong, case, *role).verdict, Verdict::Deviates(_))
}

/// Runs a case against such a peer.
fn run(wrong: &'static str, case: &Case, role: Role) -> Outcome {
    let settings = settings(1000);
    if role == Role::Connect {
        return connect(peer::start(wrong), case, &settings);
    }
    let tester = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = tester.local_addr().expect("an address");
    std::thread::spawn(move || peer::call(addr, wrong));
    listen(&tester, case, &settings)
}
