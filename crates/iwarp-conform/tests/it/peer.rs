// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer made of the tester's own encoder and decoder: slow, right, and wrong in one thing on
//! request.

mod atomics;
mod client;
mod orders;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use iwarp_conform::peer::{Lent, Offer, pattern};
use iwarp_conform::wire::fpdu::{Deframer, Deviations, Framer};
use iwarp_conform::wire::segment::{
    AtomicRequest, COMPARE_SWAP, Destination, FETCH_ADD, Kind, LAST, ReadRequest, Segment, TAGGED,
    Terminate, header_len,
};
use iwarp_conform::wire::startup::{self, Depths, Frame};
use socket2::SockRef;

pub(crate) use client::call;
use orders::Orders;

const LENT: usize = 65_536;
const RECEIVES: u32 = 4;
const ROOM: usize = 256;
const DEPTH: u16 = 4;
/// Bytes of a segment's payload that it sends.
const PIECE: usize = 1000;
/// A tester that says nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// And so long where it hurries.
const HURRY: Duration = Duration::from_millis(100);

const WRITE: u8 = 1;
const READ: u8 = 2;
const ATOMIC: u8 = 4;

/// Listens, and serves every tester until the test ends.
pub(crate) fn start(wrong: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let one = std::thread::spawn(move || serve(stream, wrong));
            if wrong == "serves one at a time" {
                one.join().expect("it serves");
            }
        }
    });
    addr
}

struct Region {
    data: Vec<u8>,
    rights: u8,
    of_others: bool,
}

/// The way in which a stream ends: a Terminate, with so much of the segment quoted.
enum Fault {
    Is((u8, u8, u8), Quote),
    /// The stream ends without one.
    Over,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    Nothing,
    Segment,
    Read,
}

const fn ddp(etype: u8, code: u8) -> Fault {
    Fault::Is((1, etype, code), Quote::Segment)
}

const fn rdmap(code: u8) -> Fault {
    Fault::Is((0, 2, code), Quote::Segment)
}

struct Peer {
    stream: TcpStream,
    wrong: &'static str,
    framer: Framer,
    regions: BTreeMap<u32, Region>,
    expected: [u32; 4],
    sent: [u32; 4],
    receives: u32,
    more: bool,
    message: Vec<u8>,
    /// The version of DDP and of RDMAP.
    version: u8,
    orders: Orders,
    /// Some Reads are answered late.
    later: Vec<ReadRequest>,
}

fn serve(mut stream: TcpStream, wrong: &'static str) {
    // The tester may leave in any way.
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut came = Vec::new();
    let Some(request) = request(&mut stream, &mut came, wrong) else { return };
    let regions = regions();
    let markers = wrong == "asks for markers";
    let reply = reply(&request, &regions, wrong, markers);
    if stream.write_all(&reply.encode()).is_err() {
        return;
    }
    if request.revision == 0 && !is_permissive(wrong) {
        if wrong == "stays with the RDMAC" {
            std::thread::sleep(PATIENCE);
        }
        return;
    }
    let (mut peer, deframer) = Peer::new(stream, wrong, [&reply, &request]);
    if wrong == "speaks first" {
        peer.send(Kind::Send, b"hello");
    }
    peer.attend(came, deframer);
}

/// True if it has the versions of the RDMA Consortium too.
fn is_permissive(wrong: &str) -> bool {
    wrong.starts_with("is permissive")
}

/// Takes the Request, if it is one.
fn request(stream: &mut TcpStream, came: &mut Vec<u8>, wrong: &str) -> Option<Frame> {
    let mut piece = [0; 4096];
    loop {
        if let Some(length) = came.get(18..20) {
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            if length > startup::MAX_PRIVATE_DATA && wrong != "takes any length" {
                return None;
            }
        }
        if let Some(frame) = Frame::decode(came) {
            came.drain(..frame.size());
            let rev = frame.revision;
            let is_old = rev == 0 && (is_permissive(wrong) || wrong == "stays with the RDMAC");
            let good = (frame.key == *startup::Kind::Request.key() || wrong == "takes any key")
                && ((1..=2).contains(&rev) || is_old || wrong == "takes any revision")
                && (came.is_empty() || wrong == "takes bytes behind the Request")
                && !(rev == 2 && frame.flags & startup::S != 0 && frame.private_data.len() < 4)
                && (frame.flags & startup::RESERVED == 0 || wrong != "checks reserved bits");
            return good.then_some(frame);
        }
        match stream.read(&mut piece) {
            Ok(len) if len > 0 => came.extend(&piece[..len]),
            _ => return None,
        }
        if wrong == "wants the Request at once" && Frame::decode(came).is_none() {
            return None;
        }
    }
}

fn reply(request: &Frame, regions: &BTreeMap<u32, Region>, wrong: &str, markers: bool) -> Frame {
    let enhanced = request.revision >= 2 && request.flags & startup::S != 0;
    let mut flags = startup::C;
    let mut data = Vec::new();
    let is_old = request.revision == 0;
    if markers || is_old && wrong != "is permissive, but for markers" {
        flags |= startup::M;
    }
    if wrong == "sets reserved bits" {
        flags |= 1;
    }
    if enhanced || wrong == "always answers enhanced" {
        flags |= startup::S;
        let asked = request.depths().unwrap_or_default();
        let unsaid = |asked: u16, otherwise: u16| {
            let unsaid = asked == 0x3fff && wrong != "knows no unsaid depths";
            if unsaid { 0x3fff } else { otherwise }
        };
        let ord = if wrong == "wants too many Reads" { DEPTH } else { DEPTH.min(asked.ird) };
        let bits = asked.a || wrong == "mixes up the models";
        data.extend(
            Depths {
                a: asked.a,
                b: bits && asked.b,
                ird: unsaid(asked.ord, DEPTH),
                c: bits && asked.c,
                d: bits && asked.d,
                ord: unsaid(asked.ird, ord),
            }
            .encode(),
        );
    }
    data.extend(offer(regions).encode());
    let kind = match wrong {
        "answers with the wrong key" => startup::Kind::Request,
        _ => startup::Kind::Reply,
    };
    let revision = match wrong {
        "always answers revision 2" => 2,
        "stays with the RDMAC" => request.revision.clamp(1, 2),
        _ => request.revision.min(2),
    };
    Frame::new(kind, flags, revision, data)
}

/// The offer of the lent memory.
fn offer(regions: &BTreeMap<u32, Region>) -> Offer {
    let names = [(0x100, "rw"), (0x200, "ro"), (0x300, "wo"), (0x400, "other")];
    let lent = names.map(|(stag, name)| {
        let len = regions[&stag].data.len() as u32;
        (name.to_owned(), Lent { stag, to: 0, len })
    });
    Offer { lent: lent.into(), receives: RECEIVES, room: ROOM as u32 }
}

fn regions() -> BTreeMap<u32, Region> {
    let region = |rights, of_others| Region { data: pattern(LENT), rights, of_others };
    let all = WRITE | READ | ATOMIC;
    BTreeMap::from([
        (0x100, region(all, false)),
        (0x200, region(READ, false)),
        (0x300, region(WRITE, false)),
        (0x400, region(all, true)),
    ])
}

impl Peer {
    /// A peer in Full Operation, from its own frame of the start-up and the tester's.
    fn new(stream: TcpStream, wrong: &'static str, frames: [&Frame; 2]) -> (Self, Deframer) {
        let [ours, theirs] = frames;
        let crc = (ours.flags | theirs.flags) & startup::C != 0;
        let is_old = theirs.revision == 0;
        let markers = is_old || theirs.flags & startup::M != 0;
        let no_markers = ["sends no markers", "sends no markers to a server"].contains(&wrong);
        let no_crc = ["sends no CRC", "sends no CRC to a server"].contains(&wrong);
        let peer = Self {
            stream,
            wrong,
            framer: Framer::new(crc && !no_crc, markers && !no_markers),
            regions: regions(),
            expected: [1; 4],
            sent: if wrong == "numbers from 0" { [0; 4] } else { [1; 4] },
            receives: RECEIVES,
            more: true,
            message: Vec::new(),
            version: u8::from(!is_old),
            orders: Orders::new(theirs.depths().map_or(1, |depths| depths.ird.min(DEPTH))),
            later: Vec::new(),
        };
        (peer, Deframer::new(crc, is_old || ours.flags & startup::M != 0))
    }

    /// Takes what comes, until the stream ends.
    fn attend(mut self, mut came: Vec<u8>, mut deframer: Deframer) {
        let mut piece = [0; 4096];
        loop {
            while let Some(fpdu) = deframer.next(&mut came) {
                let is_bad = fpdu.flaws.iter().any(|flaw| flaw.starts_with("the CRC"));
                let taken = if is_bad && !self.is("checks no CRC") {
                    Err(Fault::Is((2, 0, 2), Quote::Nothing))
                } else {
                    self.take(&fpdu.ulpdu)
                };
                match taken {
                    Ok(()) => {}
                    Err(fault) => return self.end(fault, &fpdu.ulpdu, came, deframer),
                }
            }
            self.answer_later();
            // Only the tester's patience is shorter.
            let patience = if self.is_in_a_hurry(&came) { HURRY } else { PATIENCE };
            let _ = self.stream.set_read_timeout(Some(patience));
            match self.stream.read(&mut piece) {
                Ok(len) if len > 0 => came.extend(&piece[..len]),
                Ok(_) if self.is("stays when its Read fails") && self.orders.is_asking() => {
                    std::thread::sleep(PATIENCE);
                    return;
                }
                _ => return,
            }
        }
    }

    fn is_in_a_hurry(&self, came: &[u8]) -> bool {
        match self.wrong {
            "leaves a stream at rest" => true,
            "wants an FPDU at once" => !came.is_empty(),
            "wants a message at once" => !self.message.is_empty(),
            "wants the first FPDU at once" => self.sent[0] == 1 && self.expected == [1; 4],
            "wants an answer at once" => self.orders.is_asking(),
            _ => false,
        }
    }

    fn is(&self, wrong: &str) -> bool {
        self.wrong == wrong
    }

    /// Sends a segment of a message.
    fn segment(&mut self, kind: Kind, destination: Destination, last: bool, payload: &[u8]) {
        let tagged = if kind.queue().is_none() { TAGGED } else { 0 };
        let last = if last && !self.is("never says last") { LAST } else { 0 };
        let ddp = tagged | last | if self.is("sends DDP version 2") { 2 } else { self.version };
        let mixes = self.is("is permissive, but for RDMAP");
        let rdmap = if mixes { 1 } else { self.version } << 6 | kind.opcode();
        let segment = Segment { ddp, rdmap, destination, payload: payload.into() };
        let deviations = Deviations {
            wrong_crc: self.is("sends wrong CRCs"),
            pad: u8::from(self.is("pads with ones")),
            pointer: if self.is("points elsewhere") { 4 } else { 0 },
            ..Deviations::default()
        };
        let bytes = self.framer.frame(&segment.encode(), deviations);
        // The tester may have gone.
        let _ = self.stream.write_all(&bytes);
    }

    fn send(&mut self, kind: Kind, payload: &[u8]) {
        let qn = kind.queue().expect("untagged");
        let msn = self.number(qn);
        let qn = if self.is("answers on another queue") { qn ^ 1 } else { qn };
        self.segment(kind, Destination::Untagged { invalidate: 0, qn, msn, mo: 0 }, true, payload);
    }

    /// The number of its next message on a queue.
    fn number(&mut self, qn: u32) -> u32 {
        let msn = self.sent[qn as usize];
        let stays = [(0, "numbers all Sends alike"), (1, "numbers all Reads alike")];
        if !stays.iter().any(|&(queue, wrong)| queue == qn && self.is(wrong)) {
            self.sent[qn as usize] += 1;
        }
        msn
    }

    /// Answers the Reads that it has left behind.
    fn answer_later(&mut self) {
        for request in std::mem::take(&mut self.later) {
            let data = &self.regions[&request.source_stag].data;
            let data = data[request.source_to as usize..][..request.size as usize].to_vec();
            let destination = Destination::Tagged { stag: request.sink_stag, to: request.sink_to };
            self.segment(Kind::ReadResponse, destination, true, &data);
        }
    }

    fn end(mut self, fault: Fault, ulpdu: &[u8], mut came: Vec<u8>, mut deframer: Deframer) {
        if let Fault::Is((layer, etype, code), quote) = fault
            && !self.is("sends no Terminate")
        {
            let code = if self.is("says another code") { code ^ 1 } else { code };
            let quote = if self.is("quotes nothing") { Quote::Nothing } else { quote };
            let mut told = Terminate { layer, etype, code, bits: 0, quoted: Vec::new() };
            if quote != Quote::Nothing {
                let more = if quote == Quote::Read { 28 } else { 0 };
                let header = header_len(ulpdu[0]) + more;
                told.bits = Terminate::M | Terminate::D;
                told.bits |= if quote == Quote::Read { Terminate::R } else { 0 };
                told.quoted.extend((ulpdu.len() as u16).to_be_bytes());
                told.quoted.extend(&ulpdu[..header.min(ulpdu.len())]);
                if self.is("quotes something else") {
                    told.quoted[3] ^= 0xff;
                }
            }
            self.send(Kind::Terminate, &told.encode());
        }
        if self.is("goes on after its Terminate") {
            while let Some(fpdu) = deframer.next(&mut came) {
                let _ = self.take(&fpdu.ulpdu);
            }
        }
        if self.is("stays after its Terminate") {
            std::thread::sleep(PATIENCE);
        }
        if self.is("resets after its Terminate") {
            // The Terminate is on its way on loopback.
            let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
            return;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // Bytes on their way would make a reset of the end, and that would overtake the Terminate.
        let mut rest = [0; 4096];
        while matches!(self.stream.read(&mut rest), Ok(len) if len > 0) {}
    }

    fn take(&mut self, ulpdu: &[u8]) -> Result<(), Fault> {
        let Some(segment) = Segment::decode(ulpdu) else {
            return Err(Fault::Is((2, 0, 3), Quote::Nothing));
        };
        let tagged = segment.ddp & TAGGED != 0;
        let is_old = segment.ddp & 3 == 0 && segment.rdmap >> 6 == 0;
        let is_taken = is_old && self.is("takes the RDMAC's versions");
        if segment.ddp & 3 != self.version && !is_taken && !self.is("takes any DDP version") {
            return Err(if tagged { ddp(1, 4) } else { ddp(2, 6) });
        }
        if segment.ddp & 0x3c != 0 && self.is("checks reserved bits of DDP") {
            return Err(rdmap(7));
        }
        if segment.rdmap >> 6 != self.version && !is_taken && !self.is("takes any RDMAP version") {
            return Err(rdmap(5));
        }
        if segment.rdmap & 0x30 != 0 && self.is("checks reserved bits of RDMAP") {
            return Err(rdmap(7));
        }
        let Some(kind) = segment.kind() else {
            return if self.is("skips unknown opcodes") { Ok(()) } else { Err(rdmap(6)) };
        };
        if kind.queue().is_none() != tagged {
            return Err(rdmap(6));
        }
        match segment.destination {
            Destination::Tagged { stag, to } if kind == Kind::Write => {
                self.destination(stag, to, &segment.payload)
            }
            Destination::Tagged { stag, to } => self.answered(stag, to, &segment),
            Destination::Untagged { qn, .. } if qn > 3 && !self.is("takes any queue") => {
                Err(ddp(2, 1))
            }
            Destination::Untagged { .. } if kind == Kind::Terminate => {
                if self.is("answers Terminates") {
                    Err(rdmap(7))
                } else if self.orders.is_asking()
                    && (self.is("stays when its Read is refused")
                        || self.is("stays when its Atomic is refused"))
                {
                    Ok(())
                } else {
                    Err(Fault::Over)
                }
            }
            Destination::Untagged { qn, .. }
                if kind.queue() != Some(qn) && !self.is("takes any queue") =>
            {
                Err(ddp(2, 1))
            }
            Destination::Untagged { invalidate, msn, mo, .. } => {
                let queue = kind.queue().expect("untagged") as usize;
                let next = self.expected[queue];
                if msn != next && !self.is("ignores MSNs") {
                    return Err(ddp(2, if msn > next { 2 } else { 3 }));
                }
                if segment.is_last() {
                    self.expected[queue] += 1;
                }
                match kind {
                    Kind::ReadRequest => self.read(&segment.payload),
                    Kind::AtomicRequest => self.atomic(&segment.payload),
                    Kind::AtomicResponse => self.atomic_answered(&segment, mo),
                    _ => self.receive(kind, &segment, mo as usize, invalidate),
                }
            }
        }
    }

    fn destination(&mut self, stag: u32, to: u64, data: &[u8]) -> Result<(), Fault> {
        if data.is_empty() && !self.is("checks Writes of nothing") {
            return Ok(());
        }
        let any = self.is("ignores rights");
        let foreign = self.is("ignores protection domains");
        let [wraps, slack] = [!self.is("knows no wrap"), self.is("takes a byte too many")];
        let region = self.regions.get_mut(&stag).ok_or(ddp(1, 0))?;
        if region.of_others && !foreign {
            return Err(ddp(1, 2));
        }
        if region.rights & WRITE == 0 && !any {
            return Err(ddp(1, 0));
        }
        if wraps && to.checked_add(data.len() as u64).is_none() {
            return Err(ddp(1, 3));
        }
        let end = to.saturating_add(data.len() as u64);
        let limit = region.data.len() as u64 + u64::from(slack);
        if end > limit {
            return Err(ddp(1, 1));
        }
        for (at, byte) in (to as usize..).zip(data) {
            if let Some(destination) = region.data.get_mut(at) {
                *destination = *byte;
            }
        }
        Ok(())
    }

    fn read(&mut self, payload: &[u8]) -> Result<(), Fault> {
        if payload.len() > 28 {
            return Err(ddp(2, 5));
        }
        let request = ReadRequest::decode(payload).ok_or(rdmap(7))?;
        let ReadRequest { sink_stag: stag, sink_to, size, source_stag, source_to } = request;
        let fault = |code| Fault::Is((0, 1, code), Quote::Read);
        if self.is("answers the longest Read last") && size > 1000 {
            self.later.push(request);
            return Ok(());
        }
        if size == 0 && !self.is("checks Reads of nothing") {
            let to = sink_to + u64::from(self.is("answers to another place"));
            self.segment(Kind::ReadResponse, Destination::Tagged { stag, to }, true, &[]);
            return Ok(());
        }
        let region = self.regions.get(&source_stag).ok_or(fault(0))?;
        if region.of_others && !self.is("ignores protection domains") {
            return Err(fault(3));
        }
        if region.rights & READ == 0 && !self.is("ignores rights") {
            return Err(fault(2));
        }
        let end = source_to.checked_add(size.into()).ok_or(fault(4))?;
        if end > region.data.len() as u64 {
            return Err(fault(1));
        }
        let mut data = region.data[source_to as usize..end as usize].to_vec();
        if self.is("reads a byte too few") {
            data.pop();
        }
        let pieces = data.chunks(PIECE).count();
        for (number, piece) in data.chunks(PIECE).enumerate() {
            let to = sink_to.wrapping_add((number * PIECE) as u64);
            let last = number + 1 == pieces;
            self.segment(Kind::ReadResponse, Destination::Tagged { stag, to }, last, piece);
        }
        Ok(())
    }

    fn atomic(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let request = AtomicRequest::decode(payload).ok_or(rdmap(7))?;
        let fault = |code| Fault::Is((0, 1, code), Quote::Segment);
        if ![FETCH_ADD, COMPARE_SWAP].contains(&request.operation) {
            return if self.is("knows more Atomics") { Ok(()) } else { Err(rdmap(6)) };
        }
        let [unmasked, swaps] = [self.is("ignores the mask"), self.is("always swaps")];
        let [unaligned, after] = [self.is("takes any address"), self.is("tells the sum")];
        let region = self.regions.get_mut(&request.stag).ok_or(fault(0))?;
        if region.rights & ATOMIC == 0 {
            return Err(fault(2));
        }
        if request.to >= region.data.len() as u64 - 7 {
            return Err(fault(1));
        }
        if !request.to.is_multiple_of(8) && !unaligned {
            return Err(rdmap(7));
        }
        let destination = &mut region.data[request.to as usize..request.to as usize + 8];
        let before = u64::from_le_bytes(destination.try_into().expect("eight bytes"));
        let AtomicRequest { data, mask, compare, compare_mask, .. } = request;
        let value = if request.operation == FETCH_ADD {
            if unmasked { before.wrapping_add(data) } else { add(before, data, mask) }
        } else if (before ^ compare) & compare_mask == 0 || swaps {
            before & !mask | data & mask
        } else {
            before
        };
        destination.copy_from_slice(&value.to_le_bytes());
        let mut answer = request.id.to_be_bytes().to_vec();
        answer.extend(if after { value } else { before }.to_be_bytes());
        self.send(Kind::AtomicResponse, &answer);
        Ok(())
    }

    fn receive(
        &mut self,
        kind: Kind,
        segment: &Segment,
        mo: usize,
        invalidate: u32,
    ) -> Result<(), Fault> {
        let data = &segment.payload;
        let is_immediate = matches!(kind, Kind::Immediate | Kind::ImmediateSolicited);
        if is_immediate && data.len() < 8 && !self.is("takes any Immediate Data") {
            return Err(rdmap(7));
        }
        if is_immediate && data.len() > 8 {
            return Err(ddp(2, 5));
        }
        if self.receives == 0 && !self.is("drops what it has no receive for") {
            return Err(ddp(2, 2));
        }
        if mo >= ROOM && !data.is_empty() {
            return Err(ddp(2, 4));
        }
        if mo + data.len() > ROOM && !self.is("cuts what is too long") {
            return Err(ddp(2, 5));
        }
        if kind.invalidates() && !self.is("invalidates nothing") {
            return Err(Fault::Is((0, 1, 9), Quote::Segment));
        }
        if kind == Kind::Send && invalidate != 0 && self.is("checks the field of Invalidate") {
            return Err(rdmap(7));
        }
        self.message.extend(data);
        if !segment.is_last() && !self.is("delivers segments") {
            return Ok(());
        }
        let message = std::mem::take(&mut self.message);
        if self.obey(&message) {
            return Ok(());
        }
        self.more &= message != b"no more receives";
        if !self.more {
            self.receives = self.receives.saturating_sub(1);
        }
        self.send(Kind::Send, &message);
        Ok(())
    }
}

/// Adds field by field; a bit of the mask ends a field.
fn add(left: u64, right: u64, mask: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let total = (left >> bit & 1) + (right >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { total >> 1 };
    }
    sum
}
