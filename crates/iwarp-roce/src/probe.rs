// SPDX-License-Identifier: MIT OR Apache-2.0

//! The search of a queue pair that may speak another protocol for a sign that its peer speaks RoCE
//! v2.
//!
//! It asks by a request that every responder takes for one that it has executed before: a Write of
//! no octets, one PSN before the first. That is answered by an acknowledgement and changes nothing
//! (IBA C9-105, ROCE-077). A mark stands in place of the buffer's address and key, so that our own
//! kind, which answers no such request while it may speak the other protocol, recognises the
//! question.
//!
//! The proof that the peer speaks RoCE v2 is an answer, or its own first request. Both carry a PSN
//! that only the two programs know, so no third party can forge one, short of trying 2^24 PSNs.

use iwarp_types::{QpId, Stag, TaggedOffset};

use crate::config::Attributes;
use crate::wire::{Bth, Burst, Header, Message, Packet, Path, Reth, Transport};

/// The mark: where the length is 0, address and key are not looked at (ROCE-093).
const MARK: Reth = Reth {
    va: TaggedOffset(u64::from_be_bytes(*b"iwarp? \x01")),
    rkey: Stag(0x6977_6172),
    length: 0,
};

/// The state of a queue pair that does not know yet what its peer speaks.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    qp: QpId,
    attributes: Attributes,
    /// The attributes hold the first PSN, so it may ask.
    may_ask: bool,
}

/// True if a packet is a question by our own kind.
#[inline]
pub fn is_question(message: &Message) -> bool {
    matches!(message, Message::WriteBegin { only: true, reth: MARK, immediate: None })
}

impl Probe {
    /// A probe for a queue pair in RTR or, if `may_ask`, from RTS on.
    pub const fn new(qp: QpId, attributes: Attributes, may_ask: bool) -> Self {
        Self { qp, attributes, may_ask }
    }

    /// Puts the question into a burst, if it may be asked.
    pub fn ask(&self, burst: &mut Burst) {
        if !self.may_ask {
            return;
        }
        let Attributes { path, dest_qp, sq_psn, pkey, .. } = &self.attributes;
        let mut bth = Bth::new(*dest_qp, sq_psn.previous()).asking(true);
        bth.pkey = *pkey;
        let message = Message::WriteBegin { only: true, reth: MARK, immediate: None };
        let header = Header { bth, transport: Transport::Rc, deth: None, message };
        let _ = burst.push(path, &header, 0, |_, _| Ok::<(), ()>(()));
    }

    /// True if a packet proves that the peer speaks RoCE v2.
    pub fn is_proof(&self, packet: &Packet<'_>, path: &Path) -> bool {
        let Attributes { path: own, pkey, sq_psn, rq_psn, .. } = &self.attributes;
        let Header { bth, transport, message, .. } = &packet.header;
        let is_peers = matches!(transport, Transport::Rc)
            && bth.dest_qp == self.qp.0
            && bth.pkey.admits(*pkey)
            && path.address.source == own.address.destination
            && path.address.destination == own.address.source;
        if !is_peers || is_question(message) {
            return false;
        }
        if message.is_response() {
            // A NAK names the expected PSN.
            return self.may_ask && (bth.psn == sq_psn.previous() || bth.psn == *sq_psn);
        }
        bth.psn == *rq_psn
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use iwarp_types::{Access, Core, QpState, SendOp};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{self, End, Sent};
    use crate::wire::{Aeth, Psn, Syndrome};
    use crate::{DatagramCore, Rc};

    fn attributes(end: u8) -> Attributes {
        let first = |end: u8| Psn::new(0x1000 * u32::from(end));
        Attributes {
            sq_psn: first(end),
            rq_psn: first(3 - end),
            timeout: 14,
            ..testing::attributes(end)
        }
    }

    fn probe(end: u8, may_ask: bool) -> Probe {
        Probe::new(testing::config(end).qp, attributes(end), may_ask)
    }

    /// The question of end `n`.
    fn question(n: u8) -> Vec<Sent> {
        testing::packets(|burst| probe(n, true).ask(burst))
    }

    fn responder(n: u8) -> End<Rc> {
        let config = crate::Config { qp_type: iwarp_types::QpType::Rc, ..testing::config(n) };
        End::new(Rc::new(config), &attributes(n))
    }

    /// The verdict of the other end on a packet of end `n`.
    fn arrives(n: u8, sent: &Sent) -> bool {
        probe(3 - n, true).is_proof(&sent.packet(), &sent.path)
    }

    /// Every responder answers from RTR on, and does nothing else; the answer is a proof.
    ///
    /// Covers: ROCE-077, ROCE-093
    #[test]
    fn a_question_is_answered_as_what_was_executed_before() {
        let mut peer = responder(2);
        // Not even the right to write is needed.
        peer.core.set_remote_access(Access::empty());
        let asked = question(1);
        assert_eq!(asked.len(), 1);
        for _ in 0..3 {
            assert_eq!(peer.told(&asked), [], "the peer's program has said nothing");
            let answers = peer.packets();
            let [answer] = &answers[..] else { panic!("one answer") };
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
            assert_eq!(answer.packet().header.message, Message::Acknowledge(aeth));
            assert_eq!(answer.packet().header.bth.psn, attributes(1).sq_psn.previous());
            assert!(arrives(2, answer));
        }
        // As before, in RTR, where a request of the program's would raise `FirstHeard`.
        let mut waiting = Rc::new(*peer.core.config());
        waiting.set_attributes(&attributes(2));
        [QpState::Init, QpState::Rtr].into_iter().for_each(|to| waiting.modify(to).unwrap());
        peer.core = waiting;
        assert_eq!(peer.told(&asked), []);
        assert_eq!(peer.packets().len(), 1);
    }

    /// Two ends of our own kind that both ask prove nothing to each other.
    #[test]
    fn a_question_is_no_proof() {
        for n in [1, 2] {
            assert!(!arrives(n, &question(n)[0]));
        }
        assert_eq!(testing::packets(|burst| probe(1, false).ask(burst)), []);
    }

    /// The first packet of the peer's requester proves it, and no later one does: the first comes
    /// again.
    #[test]
    fn the_first_request_is_a_proof() {
        let mut peer = responder(2);
        peer.post_inline(1, SendOp::SEND, &[1; 64]);
        peer.post_inline(2, SendOp::SEND, &[1; 64]);
        let sent = peer.packets();
        let proofs: Vec<_> = sent.iter().map(|sent| arrives(2, sent)).collect();
        assert_eq!(proofs, [true, false]);
        // An end that does not send yet takes the request as proof as well, but no answer.
        assert!(probe(1, false).is_proof(&sent[0].packet(), &sent[0].path));
    }

    proptest! {
        /// A sender that does not know the PSNs proves nothing, no matter what it says.
        #[test]
        fn senders_without_the_psns_prove_nothing(psn in 0..1_u32 << 24, response: bool, qp in 0..40_u32) {
            let aeth = Aeth { syndrome: Syndrome::ACK, msn: 0 };
            let message = match response {
                true => Message::Acknowledge(aeth),
                false => Message::WriteBegin {
                    only: true,
                    reth: Reth { length: 0, rkey: Stag(0), va: TaggedOffset(0) },
                    immediate: None,
                },
            };
            let bth = Bth::new(qp, Psn::new(psn));
            let header = Header { bth, transport: Transport::Rc, deth: None, message };
            let sent = Sent::new(attributes(2).path, &header, &[]);
            let known = if response { [0xfff, 0x1000] } else { [0x2000, 0x2000] };
            prop_assert_eq!(arrives(2, &sent), qp == 0x11 && known.contains(&psn));
            let mut path = sent.path;
            path.address.source = [10, 0, 0, 9].into();
            prop_assert!(!probe(1, true).is_proof(&sent.packet(), &path));
        }
    }
}
