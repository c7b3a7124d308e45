// SPDX-License-Identifier: MIT OR Apache-2.0

//! Starting the messages that send requests ask for.

use iwarp_types::{AtomicOp, SendOp, Stag, TaggedOffset};

use super::{Current, Kind, Next};
use crate::ddp::tx::Message;
use crate::qp::Qp;
use crate::rdmap::hello::{Capabilities, WRITE_MARK};
use crate::rdmap::reads::{Awaits, Purpose};
use crate::rdmap::requester;
use crate::rdmap::wire::AtomicRequest;
use crate::rdmap::wire::{ATOMIC_REQUEST_LEN, IMMEDIATE_LEN, Opcode, ReadRequest};
use crate::types::Msn;

impl Qp {
    /// Starts one send request whose conditions are met.
    pub(super) fn start_op(&mut self, number: u64, op: &SendOp, length: u32) -> Option<Next> {
        match *op {
            SendOp::Write { stag, to } => {
                self.start_write(stag, to, length, Kind::Request(number));
            }
            SendOp::WriteImmediate { stag, to, .. } => {
                self.start_write(stag, to, length, Kind::Prelude(number));
            }
            SendOp::Send { solicited, invalidate } => {
                self.start_send(number, |msn| requester::send(solicited, invalidate, msn, length));
            }
            SendOp::SendImmediate { solicited, data } => {
                self.start_send(number, |msn| {
                    requester::send_immediate(solicited, data, msn, length)
                });
            }
            SendOp::Immediate { solicited, data } => self.start_immediate(number, solicited, data),
            SendOp::Read { stag, to, .. } => self.start_read(number, stag, to, length),
            SendOp::Atomic { stag, to, op } => self.start_atomic(number, stag, to, op),
            SendOp::Bind(bind) => {
                self.outbound.performing = Some(number);
                return Some(Next::Bind(bind));
            }
            SendOp::LocalInvalidate(stag) => {
                self.outbound.performing = Some(number);
                return Some(Next::Invalidate(stag));
            }
            // Was refused when it was posted.
            _ => {}
        }
        None
    }

    fn start_write(&mut self, stag: Stag, to: TaggedOffset, length: u32, kind: Kind) {
        self.outbound.current = Some(Current { message: requester::write(stag, to, length), kind });
    }

    fn start_send(&mut self, number: u64, message: impl FnOnce(Msn) -> Message) {
        let msn = self.outbound.send_msn.take();
        self.sq.at(number).msn = Some(msn);
        let (message, kind) = (message(msn), Kind::Request(number));
        self.outbound.current = Some(Current { message, kind });
    }

    fn start_immediate(&mut self, number: u64, solicited: bool, data: [u8; IMMEDIATE_LEN]) {
        let msn = self.outbound.send_msn.take();
        self.sq.at(number).msn = Some(msn);
        self.start_control(requester::immediate(solicited), msn, &data, Kind::Immediate(number));
    }

    /// The second half of a Write with immediate data. A peer of our own kind is told that the
    /// halves belong together; to another one this is Immediate Data like any.
    pub(super) fn start_second_half(&mut self, number: u64) {
        let SendOp::WriteImmediate { solicited, data: [a, b, c, d], .. } = self.sq.at(number).op
        else {
            return;
        };
        let own = self.peer.has(Capabilities::WRITE_IMMEDIATE);
        let [e, f, g, h] = if own { WRITE_MARK } else { [0; 4] };
        self.start_immediate(number, solicited, [a, b, c, d, e, f, g, h]);
    }

    fn start_read(&mut self, number: u64, stag: Stag, to: TaggedOffset, size: u32) {
        let sink_stag = Self::sink_stag(self.orq.next_serial());
        let sink_to = TaggedOffset(0);
        let awaits = Awaits::Read { sink_stag, sink_to, size, received: 0 };
        let msn = self.orq.push(Purpose::Request(number), awaits);
        self.sq.cover(number);
        let request = ReadRequest { sink_stag, sink_to, size, source_stag: stag, source_to: to };
        self.start_control(Opcode::ReadRequest, msn, &request.octets(), Kind::Asking);
    }

    fn start_atomic(&mut self, number: u64, stag: Stag, to: TaggedOffset, op: AtomicOp) {
        let request_id = self.orq.next_serial();
        let msn = self.orq.push(Purpose::Request(number), Awaits::Atomic { request_id });
        self.sq.cover(number);
        let request = AtomicRequest::new(request_id, stag, to, op);
        debug_assert_eq!(request.octets().len(), ATOMIC_REQUEST_LEN);
        self.start_control(Opcode::AtomicRequest, msn, &request.octets(), Kind::Asking);
    }
}
