// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peer's own Atomics, and their answers.

use iwarp_conform::order::{CANNOT, DONE, Operation, Request};
use iwarp_conform::wire::segment::{
    AtomicRequest, COMPARE_SWAP, Destination, FETCH_ADD, Kind, Segment,
};

use super::orders::{SINK, is_atomic};
use super::{Fault, Peer, ddp, rdmap};

/// The number from which the identifiers of requests count.
const ID: u32 = 0x0a70_0000;

impl Peer {
    pub(super) fn ask_atomic(&mut self, request: Request) {
        if self.is("knows no Atomics") {
            return self.refuse();
        }
        let id = ID + self.sent[1];
        let mut payload = self.atomic_request(&request, id).encode();
        if self.is("leaves the Compare Mask out") {
            payload.truncate(44);
        }
        if self.is("asks for Atomics on the queue of Sends") {
            let destination =
                Destination::Untagged { invalidate: 0, qn: 0, msn: self.number(0), mo: 0 };
            self.segment(Kind::AtomicRequest, destination, true, &payload);
        } else {
            self.send(Kind::AtomicRequest, &payload);
        }
        if self.is("numbers no Atomics") {
            self.sent[1] -= 1;
        }
        if self.is("asks for an Atomic that it cannot do") {
            return self.refuse();
        }
        if self.is("is done when it has asked") {
            self.send(Kind::Send, DONE);
        }
        self.orders.under_way.push_back((request, id));
    }

    fn refuse(&mut self) {
        self.send(Kind::Send, &[CANNOT, b"no Atomics here"].concat());
    }

    fn atomic_request(&self, request: &Request, id: u32) -> AtomicRequest {
        let mut said = AtomicRequest {
            operation: FETCH_ADD,
            id,
            stag: request.stag,
            to: request.to ^ if self.is("asks for Atomics elsewhere") { 8 } else { 0 },
            data: 0,
            mask: 0,
            compare: 0,
            compare_mask: u64::MAX,
        };
        match request.operation {
            Operation::CompareSwap { compare, swap, compare_mask, swap_mask } => {
                let is_add = self.is("asks for FetchAdd in the place of CmpSwap");
                said.operation = if is_add { FETCH_ADD } else { COMPARE_SWAP };
                (said.data, said.compare) = (swap, compare);
                (said.mask, said.compare_mask) = (swap_mask, compare_mask);
                if self.is("swaps in what it compares") {
                    (said.data, said.compare) = (compare, swap);
                }
                if self.is("compares all bits") {
                    said.compare_mask = u64::MAX;
                }
            }
            Operation::FetchAdd { add, mask } => {
                said.data = add + u64::from(self.is("adds one more"));
                said.mask = if self.is("adds in one field") { 0 } else { mask };
                if self.is("compares nothing in a FetchAdd") {
                    said.compare_mask = 0;
                }
            }
            other => panic!("{other:?} is no Atomic"),
        }
        said.operation |= if self.is("fills reserved bits of Atomics") { 0x10 } else { 0 };
        said
    }

    /// Takes an Atomic Response.
    pub(super) fn atomic_answered(&mut self, segment: &Segment, mo: u32) -> Result<(), Fault> {
        let Some(&(due, id)) = self.orders.under_way.front() else {
            let takes = self.is("takes Atomic Responses that nobody asked for");
            return if takes { Ok(()) } else { Err(rdmap(6)) };
        };
        if !is_atomic(&due) && !self.is("takes Atomic Responses for Reads") {
            return Err(rdmap(6));
        }
        let answer = &segment.payload;
        if mo > 0 {
            return Err(ddp(2, 4));
        }
        if answer.len() > 12 && !self.is("takes Atomic Responses that are too long") {
            return Err(ddp(2, 5));
        }
        if answer.len() < 12 && !self.is("takes Atomic Responses that are too short") {
            return Err(rdmap(7));
        }
        let is_other = answer.get(..4).is_some_and(|said| *said != id.to_be_bytes());
        if is_other && is_atomic(&due) && answer.len() == 12 {
            return Err(rdmap(7));
        }
        if let Some(value) = answer.get(4..12)
            && !self.is("places no values")
        {
            let data = &mut self.regions.get_mut(&SINK).expect("there").data;
            data[due.at..due.at + 8].copy_from_slice(value);
        }
        self.is_answered();
        Ok(())
    }
}
