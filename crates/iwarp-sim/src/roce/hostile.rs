// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of a peer that keeps to no rule.

use iwarp_roce::wire::{
    Aeth, AtomicEth, AtomicKind, Bth, Deth, Header, Message, NakCode, Packet, Position, Reth,
    RnrTimer, SendTail, Syndrome, Transport,
};
use iwarp_types::{Stag, TaggedOffset};

use super::Kind;
use super::end::{Role, SLOT, SLOTS, Simulated};
use super::run::Run;
use crate::choice::Choices;

impl<C: Simulated> Run<'_, C> {
    /// End `e` gets a packet that its peer would never send.
    pub(super) fn attack(&mut self, e: usize) -> Result<(), String> {
        let peer = 1 - e.min(1);
        let (expected, own) = (self.ends[peer].psn, self.ends[e].psn);
        let near = if self.rng.one_in(3) { own } else { expected };
        let psn = match self.rng.below(8) {
            0 => near.plus(self.rng.word() as u32),
            1 => near.plus(1),
            2 => near.previous(),
            _ => near,
        };
        let rng = &mut self.rng;
        let len = match rng.below(4) {
            0 => 256,
            1 => 0,
            _ => rng.length(5000) as usize,
        };
        let transport = match (rng.one_in(20), self.kind) {
            (true, _) => rng.pick(&[Transport::Rc, Transport::Uc, Transport::Ud]),
            (_, Kind::Rc) => Transport::Rc,
            (_, Kind::Uc) => Transport::Uc,
            (_, Kind::Ud) => Transport::Ud,
        };
        let message = message(rng);
        let end = &mut self.ends[e];
        let deth = Deth { qkey: end.attributes.qkey, source_qp: rng.below(3) as u32 };
        let bth = Bth::new(end.config.qp.0, psn);
        let header = Header {
            bth: bth.asking(rng.one_in(2)).soliciting(rng.one_in(2)),
            transport,
            deth: (transport == Transport::Ud).then_some(deth),
            message,
        };
        let payload = vec![0x5a; len];
        let mut path = self.ends[peer].attributes.path;
        path.address.destination = self.ends[e].attributes.path.address.source;
        self.note(|| format!("end {e} is attacked by {header:?} and {len} octets"));
        let packet = Packet { header, payload: &payload };
        let end = &mut self.ends[e];
        end.core.receive(&packet, &path, self.now, &end.host, &end.host);
        self.judge_receipt(e, None)
    }
}

fn message(rng: &mut Choices<'_>) -> Message {
    let (rkey, va) = match rng.below(4) {
        0 => (Stag(rng.word() as u32), TaggedOffset(rng.word())),
        1 => Role::Stock.remote(0),
        _ => Role::Target.remote(rng.below((SLOTS * SLOT) as u64) as usize),
    };
    let length = match rng.below(4) {
        0 => rng.word() as u32,
        1 => 256,
        _ => rng.below(3000) as u32,
    };
    let reth = Reth { va, rkey, length };
    let position = rng.pick(&[Position::First, Position::Middle, Position::Last, Position::Only]);
    let immediate = (position.ends() && rng.one_in(3)).then_some([1, 2, 3, 4]);
    let syndrome = match rng.below(6) {
        0 => Syndrome::RnrNak(RnrTimer::new(1)),
        1 => Syndrome::Nak(NakCode::SequenceError),
        2 => Syndrome::Nak(NakCode::RemoteAccess),
        3 => Syndrome::Reserved(0x5f),
        _ => Syndrome::ACK,
    };
    let aeth = Aeth { syndrome, msn: rng.below(100) as u32 };
    match rng.below(8) {
        0 | 1 => {
            let tail = immediate.map_or(SendTail::Plain, SendTail::Immediate);
            Message::Send { position, tail }
        }
        2 => Message::WriteBegin { only: position.ends(), reth, immediate },
        3 => Message::WriteMore { last: position.ends(), immediate },
        4 => Message::ReadRequest(reth),
        5 => {
            let has = !matches!(position, Position::Middle);
            Message::ReadResponse { position, aeth: has.then_some(aeth) }
        }
        6 => Message::Acknowledge(aeth),
        _ => match rng.one_in(2) {
            true => Message::AtomicAcknowledge { aeth, original: rng.word() },
            false => Message::Atomic(AtomicEth { va, rkey, kind: AtomicKind::FetchAdd { add: 1 } }),
        },
    }
}
