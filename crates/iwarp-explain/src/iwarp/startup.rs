// SPDX-License-Identifier: MIT OR Apache-2.0

//! MPA start-up (RFC 5044 §7, RFC 6581): the terms of a connection.

use iwarp_proto::mpa::wire::{EnhancedData, Frame, FrameKind, ULP_NEGOTIATES};

use crate::findings::{Findings, Moment};
use crate::report::Fact;
use crate::words::bytes;

use super::names::Names;

/// Bytes of the key that begins each start-up frame.
pub(super) const KEY: usize = 16;
/// The highest revision of MPA there is.
const REVISION: u8 = 2;

/// A start-up frame that was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) kind: FrameKind,
    pub(super) markers: bool,
    pub(super) crc: bool,
    pub(super) rejected: bool,
    pub(super) rev: u8,
    pub(super) enhanced: Option<EnhancedData>,
    pub(super) private_data: usize,
    /// It is of queue pairs of this project that meet without the connection manager. Both ends may
    /// begin; one of the two connections is left.
    pub(super) meets: bool,
    pub(super) when: Moment,
}

/// Their private data begins so.
const MEETS: &[u8] = b"iwarp qp";

/// A look at the front of a stream.
#[derive(Debug)]
pub(super) enum Look {
    /// It may become a start-up frame.
    Short,
    /// It is one, of so many bytes.
    Frame(Seen, usize),
    /// It has the key of one, and the rest is wrong.
    Wrong(String),
    /// It is none.
    Foreign,
}

pub(super) fn look(bytes: &[u8], when: Moment) -> Look {
    let mut short = false;
    for kind in [FrameKind::Request, FrameKind::Reply] {
        match Frame::parse(kind, u8::MAX, bytes) {
            Ok(Some((frame, used))) => {
                let Frame { kind, markers, crc, rejected, rev, enhanced, private_data } = frame;
                let meets = private_data.starts_with(MEETS);
                let private_data = private_data.len();
                let seen =
                    Seen { kind, markers, crc, rejected, rev, enhanced, private_data, meets, when };
                return Look::Frame(seen, used);
            }
            Ok(None) => short = true,
            Err(iwarp_proto::mpa::error::StartupError::Key) => {}
            Err(error) if bytes.len() > KEY => return Look::Wrong(error.to_string()),
            Err(_) => short = true,
        }
    }
    if short { Look::Short } else { Look::Foreign }
}

/// The remark on one of two connections of queue pairs that meet.
pub(super) fn left_over(end: &str, what: &str) -> String {
    format!(
        "{end} {what}: queue pairs that meet without the connection manager may both begin, and \
         use one of the two connections"
    )
}

/// Complains of frames that do not fit together.
pub(super) fn check(frames: [Option<Seen>; 2], names: Names, findings: &mut Findings) {
    for (end, frame) in frames.iter().enumerate() {
        let Some(frame) = frame else { continue };
        if frame.rev > REVISION {
            let text = format!("{} asked for MPA revision {}", names.of(end), frame.rev);
            findings.fault(frame.when, "mpa-revision", end, text, "Revisions 1 and 2 exist.");
        }
        if frame.rejected && frame.meets {
            findings.remark(frame.when, "rejected", end, left_over(names.of(end), "refused it"));
        } else if frame.rejected {
            let text = format!(
                "{} refused the connection (MPA Reply with R set, {} of private data)",
                names.of(end),
                bytes(frame.private_data as u64)
            );
            let advice = "The program at that end called rdma_reject, or its stack could not take \
                          the terms; the private data may say why.";
            findings.fault(frame.when, "rejected", end, text, advice);
        }
    }
    if let [Some(one), Some(other)] = frames
        && one.kind == other.kind
    {
        let kind = match one.kind {
            FrameKind::Request => "Request",
            FrameKind::Reply => "Reply",
        };
        let when = if one.when.packet > other.when.packet { one.when } else { other.when };
        let text = format!("both ends sent an MPA {kind}");
        let advice = "One end must be the initiator and the other the responder.";
        findings.fault(when, "two-of-a-kind", None, text, advice);
    }
}

const IRD: [&str; 2] = ["initiator_ird", "responder_ird"];
const ORD: [&str; 2] = ["initiator_ord", "responder_ord"];
const PRIVATE: [&str; 2] = ["initiator_private_data", "responder_private_data"];
const PEER: [&str; 2] = ["initiator_peer_to_peer", "responder_peer_to_peer"];
const MARKERS: [&str; 2] = ["markers_to_initiator", "markers_to_responder"];

/// The terms as facts; the ends in the order of the report.
pub(super) fn facts(frames: [Option<Seen>; 2], names: Names, order: [usize; 2]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let revision = frames.iter().flatten().map(|frame| frame.rev).min();
    if let Some(revision) = revision {
        facts.push(Fact::new(
            "mpa_revision",
            u64::from(revision),
            format!("MPA revision {revision}"),
        ));
    }
    if let [Some(one), Some(other)] = frames {
        let crc = one.crc || other.crc;
        facts.push(Fact::new("crc", crc, if crc { "CRC on" } else { "CRC off" }));
        let rejected = one.rejected || other.rejected;
        facts.push(Fact::new("rejected", rejected, if rejected { "refused" } else { "accepted" }));
    }
    for (place, end) in order.into_iter().enumerate() {
        let Some(frame) = frames[end] else { continue };
        let name = names.role(end);
        if frame.markers {
            facts.push(Fact::new(MARKERS[place], true, format!("markers to the {name}")));
        }
        if let Some(word) = frame.enhanced {
            let depth = |depth: u16| match depth {
                ULP_NEGOTIATES => "up to the program".to_owned(),
                depth => depth.to_string(),
            };
            let text = format!("{name}: IRD {}, ORD {}", depth(word.ird), depth(word.ord));
            facts.push(Fact::new(IRD[place], u64::from(word.ird), text));
            facts.push(Fact::new(ORD[place], u64::from(word.ord), String::new()));
            if word.peer_to_peer {
                let kinds =
                    [(word.rtr.send, "Send"), (word.rtr.write, "Write"), (word.rtr.read, "Read")];
                let kinds: Vec<&str> =
                    kinds.iter().filter(|(has, _)| *has).map(|(_, kind)| *kind).collect();
                let text = format!("{name}: peer to peer, first frame {}", kinds.join(" or "));
                facts.push(Fact::new(PEER[place], true, text));
            }
        }
        if frame.private_data > 0 {
            let text = format!("{name}: {} of private data", bytes(frame.private_data as u64));
            facts.push(Fact::new(PRIVATE[place], frame.private_data as u64, text));
        }
    }
    if frames.iter().all(Option::is_none) {
        facts.push(Fact::new(
            "start_up_seen",
            false,
            "the capture begins after the start-up; the framing was found by trying",
        ));
    } else if frames.iter().any(Option::is_none) {
        facts.push(Fact::new("start_up_seen", false, "only one start-up frame was seen"));
    }
    facts
}
