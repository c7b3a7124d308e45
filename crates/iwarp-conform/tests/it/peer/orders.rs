// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the peer does by itself, on orders: it reads, writes and sends.

use std::collections::VecDeque;

use iwarp_conform::wire::segment::{Kind, Place, ReadRequest, Segment};

use super::{Fault, PIECE, Peer, ddp, rdmap};

/// Where it keeps what it reads, and takes what it writes from.
const SINK: u32 = 0x100;

/// The Reads of an order.
pub(super) struct Orders {
    /// Reads that may be under way.
    depth: u16,
    /// Not yet asked for.
    waiting: VecDeque<ReadRequest>,
    /// Asked for, and how many bytes have come.
    under_way: VecDeque<(ReadRequest, u32)>,
}

impl Orders {
    pub(super) fn new(depth: u16) -> Self {
        Self { depth, waiting: VecDeque::new(), under_way: VecDeque::new() }
    }

    pub(super) fn is_reading(&self) -> bool {
        !self.under_way.is_empty()
    }
}

impl Peer {
    /// "OPERATION TIMES LENGTH STAG TO".
    pub(super) fn obey(&mut self, order: &[u8]) {
        let order = String::from_utf8(order.to_vec()).expect("text");
        let words: Vec<&str> = order.split(' ').collect();
        let [operation, times, length, stag, to] = words[..] else { panic!("{order}") };
        let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let (stag, to) = (hexadecimal(stag).expect("a key") as u32, hexadecimal(to).expect("hex"));
        let (times, length): (u32, u32) =
            (times.parse().expect("how often"), length.parse().expect("a length"));
        let mut places: Vec<u32> = (0..times).map(|number| number * length).collect();
        if self.is("works in reverse") {
            places.reverse();
        }
        if operation == "read" {
            let ask = |at: u32| ReadRequest {
                sink_stag: SINK,
                sink_to: at.into(),
                size: length,
                source_stag: stag,
                source_to: to.wrapping_add(at.into()),
            };
            self.orders.waiting.extend(places.into_iter().map(ask));
            return self.ask();
        }
        if self.is("is done before it begins") {
            self.send(Kind::Send, b"done");
        }
        for at in places {
            let data = self.regions[&SINK].data[at as usize..][..length as usize].to_vec();
            match operation {
                "write" => self.write(stag, to.wrapping_add(at.into()), &data),
                name => self.long_send(Kind::named(name).expect("a Send"), stag, &data),
            }
        }
        if !self.is("is done before it begins") {
            self.send(Kind::Send, b"done");
        }
    }

    /// Asks for as much as may be under way.
    fn ask(&mut self) {
        let depth = match self.wrong {
            "asks for too many at a time" | "forgets the Reply's IRD" => usize::MAX,
            _ => self.orders.depth.into(),
        };
        while self.orders.under_way.len() < depth {
            let Some(request) = self.orders.waiting.pop_front() else { return };
            let mut said = request;
            said.size -= u32::from(self.is("asks for a byte too few"));
            said.source_to ^= u64::from(self.is("asks for another place"));
            said.source_stag ^= u32::from(self.is("asks for other memory"));
            let mut bytes = said.encode();
            if self.is("asks in a header that is too long") {
                bytes.push(0);
            }
            let kind = if self.is("asks by a Send") { Kind::Send } else { Kind::ReadRequest };
            self.send(kind, &bytes);
            self.orders.under_way.push_back((request, 0));
        }
    }

    /// Takes a segment of a Read Response.
    pub(super) fn answered(&mut self, stag: u32, to: u64, segment: &Segment) -> Result<(), Fault> {
        let len = segment.payload.len() as u32;
        let Some(&(due, came)) = self.orders.under_way.front() else {
            return if self.is("takes answers that nobody asked for") {
                Ok(())
            } else {
                Err(rdmap(6))
            };
        };
        if len > 0 {
            if stag != due.sink_stag && !self.is("takes answers to any STag") {
                return Err(ddp(1, 0));
            }
            if to != due.sink_to + u64::from(came) && !self.is("takes answers to any place") {
                return Err(ddp(1, 1));
            }
            if came + len > due.size && !self.is("takes answers of any length") {
                return Err(ddp(1, 1));
            }
        }
        let data = &mut self.regions.get_mut(&SINK).expect("there").data;
        let places = (due.sink_to + u64::from(came)) as usize..;
        if self.wrong != "places no answers" {
            for (at, byte) in places.zip(&segment.payload) {
                if let Some(place) = data.get_mut(at) {
                    *place = *byte;
                }
            }
        }
        self.orders.under_way[0].1 += len;
        if !segment.is_last() && !self.is("is done with the first segment") {
            return Ok(());
        }
        if came + len < due.size && segment.is_last() {
            return Err(rdmap(7));
        }
        self.orders.under_way.pop_front();
        self.ask();
        if !self.orders.is_reading() {
            self.send(Kind::Send, b"done");
        }
        Ok(())
    }

    fn write(&mut self, stag: u32, to: u64, data: &[u8]) {
        let pieces = data.chunks(PIECE).count().max(1);
        for number in 0..pieces {
            let at = number * PIECE;
            let piece = data[at..].chunks(PIECE).next().unwrap_or_default();
            let offset = if self.is("writes each segment to the same place") { 0 } else { at };
            let changed = u32::from(number > 0 && self.is("changes the STag inside a Write"));
            let place = Place::Tagged { stag: stag ^ changed, to: to.wrapping_add(offset as u64) };
            let last = number + 1 == pieces || self.is("says last in each segment");
            self.segment(Kind::Write, place, last, piece);
            if number == 0 && pieces > 1 && self.is("sends inside a Write") {
                self.send(Kind::Send, b"inside");
            }
        }
    }

    fn long_send(&mut self, kind: Kind, stag: u32, data: &[u8]) {
        let kind = match kind {
            Kind::SendSolicited if self.is("forgets to solicit") => Kind::Send,
            Kind::SendSolicitedInvalidate if self.is("forgets to solicit an invalidation") => {
                Kind::SendInvalidate
            }
            kind => kind,
        };
        let names = kind.invalidates() && !self.is("names nothing to invalidate");
        let invalidate = if names || self.is("always names an STag") { stag | 1 } else { 0 };
        let invalidate = if names { stag } else { invalidate };
        let data = if self.is("sends no more than a segment") {
            &data[..data.len().min(PIECE)]
        } else {
            data
        };
        let msn = self.number(0);
        let pieces = data.chunks(PIECE).count().max(1);
        for number in 0..pieces {
            let at = number * PIECE;
            let piece = data[at..].chunks(PIECE).next().unwrap_or_default();
            let mo = if self.is("counts no MO") { 0 } else { at as u32 };
            let msn = msn + u32::from(number > 0 && self.is("counts MSNs by segments"));
            let place = Place::Untagged { invalidate, qn: 0, msn, mo };
            self.segment(kind, place, number + 1 == pieces, piece);
        }
    }
}
