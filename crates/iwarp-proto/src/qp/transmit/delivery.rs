// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages of queue 0 among what waits to be taken: each ends in a completion of the peer's
//! receive queue.
//!
//! The frames are looked at as they were built, because only a stream within a host wants to know,
//! and only while its peer waits for an event.

use iwarp_types::Delivery;

use super::{Piece, Transmit, Transmitter};
use crate::ddp::wire::Header;
use crate::framing::Frame;
use crate::rdmap::wire::{Opcode, split_control};

/// Control octets of DDP and RDMAP with which a ULPDU begins.
const CONTROL: usize = 2;

/// The delivery by one segment, whose ULPDU begins with these control octets.
fn of_segment(ddp: u8, rdmap: u8) -> Delivery {
    let ends = Header::is_last(ddp).then(|| Opcode::from_number(split_control(rdmap).1));
    match ends.flatten() {
        Some(opcode) if opcode.solicited() => Delivery::Solicited,
        Some(Opcode::Send | Opcode::SendInvalidate | Opcode::Immediate) => Delivery::Message,
        Some(opcode) if opcode.is_own() => Delivery::Message,
        _ => Delivery::Nothing,
    }
}

impl<F: Frame> Transmitter<F> {
    /// The delivery by all that waits in `out`, which is to begin with a frame. Unknown is nothing:
    /// where the framing does not say how long its frames are.
    pub fn delivery(&self, out: &Transmit) -> Delivery {
        let mut delivery = Delivery::Nothing;
        // The offsets of this piece and of the next frame.
        let (mut at, mut next) = (0, 0);
        for piece in out.pieces() {
            if let Piece::Staged(range) = piece {
                let octets = out.octets(range.clone());
                while let Some(frame) = octets.get(next - at..)
                    && let Some((head, total)) = self.framer().measure(frame)
                    && let Some(&[ddp, rdmap]) =
                        frame.get(head..).and_then(<[u8]>::first_chunk::<CONTROL>)
                {
                    delivery = delivery.max(of_segment(ddp, rdmap));
                    next += total;
                }
            }
            at += piece.octets();
            if next < at {
                // It began amid a frame, or the framing does not say.
                return Delivery::Nothing;
            }
        }
        delivery
    }
}

#[cfg(test)]
mod tests {
    use iwarp_types::{Accessor, PdId, QpId};

    use super::*;
    use crate::mpa::tx::Framer;
    use crate::types::Qn;

    fn framer() -> Framer {
        Framer::new(false, false)
    }

    fn delivery(out: &Transmit) -> Delivery {
        let who = Accessor { pd: PdId(1), qp: QpId(1) };
        Transmitter::new(framer(), who, 1460).delivery(out)
    }

    /// A frame of one segment with so many octets of payload behind a header of 18.
    fn frame(out: &mut Transmit, opcode: Opcode, last: bool, payload: usize) {
        let ulpdu = 18 + payload;
        out.build(|room| {
            let len = framer().frame_len(ulpdu);
            room[..len].fill(0xff);
            room[..2].copy_from_slice(&(ulpdu as u16).to_be_bytes());
            room[2] = if last { 0x41 } else { 0x01 };
            room[3] = opcode.control();
            len
        });
    }

    fn of(frames: &[(Opcode, bool, usize)]) -> Delivery {
        let mut out = Transmit::new(0);
        for (opcode, last, payload) in frames {
            frame(&mut out, *opcode, *last, *payload);
        }
        delivery(&out)
    }

    #[test]
    fn ends_of_messages_of_queue_0_are_found() {
        assert_eq!(of(&[]), Delivery::Nothing);
        for opcode in Opcode::ALL {
            let expected = match opcode.queue() {
                Some(queue) if queue == Qn::SEND => match opcode.solicited() {
                    true => Delivery::Solicited,
                    false => Delivery::Message,
                },
                _ => Delivery::Nothing,
            };
            assert_eq!(of(&[(opcode, true, 7)]), expected, "{opcode:?}");
            assert_eq!(of(&[(opcode, false, 7)]), Delivery::Nothing, "{opcode:?}");
        }
    }

    #[test]
    fn the_most_of_several_frames_counts() {
        let (write, send) = ((Opcode::Write, true, 100), (Opcode::Send, true, 0));
        let solicited = (Opcode::SendSolicited, true, 1);
        assert_eq!(of(&[write, send, write]), Delivery::Message);
        assert_eq!(of(&[send, solicited, send]), Delivery::Solicited);
        assert_eq!(of(&[write, (Opcode::Send, false, 900), write]), Delivery::Nothing);
    }

    #[test]
    fn frames_that_were_taken_count_no_more() {
        let mut out = Transmit::new(0);
        frame(&mut out, Opcode::Send, true, 50);
        let first = out.len();
        frame(&mut out, Opcode::Write, true, 50);
        assert_eq!(delivery(&out), Delivery::Message);
        out.drop_front(first);
        assert_eq!(delivery(&out), Delivery::Nothing);
    }

    #[test]
    fn a_stretch_that_begins_amid_a_frame_is_read_without_a_panic() {
        for cut in 1..100 {
            let mut out = Transmit::new(0);
            frame(&mut out, Opcode::Write, true, 50);
            frame(&mut out, Opcode::Send, true, 50);
            out.drop_front(cut);
            let _ = delivery(&out);
        }
    }
}
