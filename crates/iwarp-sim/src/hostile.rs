// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that sends what it likes: well-formed FPDUs first, then one wrong in a known way, then
//! anything. For a known way the required answer is known; for the rest no memory may be touched
//! that was not granted, and every work request has to end.

use std::time::Duration;

use iwarp_proto::framing::Frame as _;
use iwarp_proto::mpa::startup::Negotiated;
use iwarp_proto::mpa::tx::Framer;
use iwarp_proto::mpa::wire::MAX_ULPDU;
use iwarp_proto::qp::Extensions;
use iwarp_types::Time;

use crate::bank::{Bank, Role};
use crate::choice::Choices;
use crate::host::Flaw;
use crate::model::Verdict;
use crate::net::{End, Net, Tolerance};
use crate::ops::{post_recv, post_send};
use crate::run::config;
use crate::wire::crc32c;

/// The findings of a life: memory, digest, octets, completions.
pub type Given = ([Bank; 2], u64, u64, u64);

/// One connection with such a peer, seen from the end that agreed on `terms`.
pub fn life(
    rng: &mut Choices<'_>,
    terms: Negotiated,
    banks: [Bank; 2],
    flaw: Flaw,
    note: &mut dyn FnMut(&dyn Fn() -> String),
) -> Result<Given, String> {
    let now = Time(Duration::from_secs(1));
    let mut banks = banks.into_iter();
    let mut end = |e: usize| {
        let bank = banks.next().expect("two banks");
        End::new(e, config(e, rng), terms, bank, 0, 0, now)
    };
    let ends = [end(0), end(1)];
    let tolerance = Tolerance { faults: true, garbage: true };
    let mut net = Net::new(ends, tolerance, now);
    net.set_flaw(flaw);
    net.ends[0].host.model.borrow_mut().extensions_may_fail = true;
    let mut peer = Peer {
        framer: Framer::new(terms.crc, terms.receive_markers),
        next_msn: [1; 4],
        requests: 0,
        told: rng.pick(&[None, Some(RFC_7306 | WRITE_IMMEDIATE), Some(EVERYTHING)]),
        expected: Expected::Nothing,
        note,
    };
    peer.go(&mut net, rng)?;
    let completions = net.ends[0].host.model.borrow().completions;
    let (digest, octets) = (net.digest, net.octets);
    Ok((net.into_banks(), digest, octets, completions))
}

type Code = (u8, u8, u8);

/// STag of the hello frame, and its TO but for the capabilities.
const HELLO: (u32, u64) = (0x6957_4152, 0x5048_454c_0100_0000);
/// STags of the frames that say how many messages their sender has received.
const FAREWELL: u32 = 0x6957_4642;
const COUNT: u32 = 0x6957_434e;
const RFC_7306: u64 = 3;
const SEND_IMMEDIATE: u64 = 4;
const WRITE_IMMEDIATE: u64 = 8;
const EVERYTHING: u64 = 15;

/// The duty of the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Expected {
    /// Go on.
    Nothing,
    /// Send a Terminate with one of these codes.
    Fault(Vec<Code>),
    /// Report the Terminate that it received, and send none.
    Terminated(Code),
    /// Any reaction.
    Anything,
}

struct Peer<'a> {
    framer: Framer,
    next_msn: [u32; 4],
    requests: usize,
    /// The capabilities that its hello frame says, if it sends one.
    told: Option<u64>,
    expected: Expected,
    note: &'a mut dyn FnMut(&dyn Fn() -> String),
}

/// A ULPDU in the making.
struct Ulpdu(Vec<u8>);

impl Ulpdu {
    fn tagged(opcode: u8, stag: u32, to: u64) -> Self {
        let mut octets = vec![0xc1, 0x40 | opcode];
        octets.extend(stag.to_be_bytes());
        octets.extend(to.to_be_bytes());
        Self(octets)
    }

    fn untagged(opcode: u8, qn: u32, msn: u32, mo: u32) -> Self {
        let mut octets = vec![0x41, 0x40 | opcode, 0, 0, 0, 0];
        octets.extend(qn.to_be_bytes());
        octets.extend(msn.to_be_bytes());
        octets.extend(mo.to_be_bytes());
        Self(octets)
    }

    fn with(mut self, payload: &[u8]) -> Self {
        self.0.extend(payload);
        self
    }

    fn filled(self, len: usize) -> Self {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        self.with(&payload)
    }

    /// Not the last segment.
    fn open(mut self) -> Self {
        self.0[0] &= !0x40;
        self
    }
}

fn read_request(stag: u32, to: u64, size: u32) -> Vec<u8> {
    let mut octets = Vec::new();
    octets.extend(0x1234_5678u32.to_be_bytes());
    octets.extend(0u64.to_be_bytes());
    octets.extend(size.to_be_bytes());
    octets.extend(stag.to_be_bytes());
    octets.extend(to.to_be_bytes());
    octets
}

fn atomic_request(operation: u32, stag: u32, to: u64) -> Vec<u8> {
    let mut octets = Vec::new();
    octets.extend(operation.to_be_bytes());
    octets.extend(7u32.to_be_bytes());
    octets.extend(stag.to_be_bytes());
    octets.extend(to.to_be_bytes());
    for word in [1u64, 0, 0, u64::MAX] {
        octets.extend(word.to_be_bytes());
    }
    octets
}

impl Peer<'_> {
    fn go(&mut self, net: &mut Net, rng: &mut Choices<'_>) -> Verdict {
        for _ in 0..rng.below(6) {
            post_recv(net, 0, rng)?;
            post_recv(net, 1, rng)?;
        }
        net.ends[0].set_mulpdu(1440);
        if let Some(capabilities) = self.told {
            self.put(net, &Ulpdu::tagged(0, HELLO.0, HELLO.1 | capabilities));
        }
        for _ in 0..rng.below(30) {
            self.step(net, rng)?;
            if !net.ends[0].is_up() {
                break;
            }
            match rng.below(4) {
                0 => post_send(net, 0, rng, true)?,
                1 => post_recv(net, 0, rng)?,
                _ => self.well_formed(net, rng),
            }
        }
        let blameless = net.ends[0].outcome.fault.is_none() && net.ends[0].is_up();
        // All of the peer's own is read: what comes next is the first fault.
        self.drain(net, rng)?;
        if blameless && net.ends[0].is_up() {
            self.break_rule(net, rng)?;
        } else {
            self.expected = Expected::Anything;
        }
        let more = if net.links[1].fin { 0 } else { rng.below(4) };
        for _ in 0..more {
            self.noise(net, rng);
        }
        for _ in 0..rng.below(10) {
            self.step(net, rng)?;
        }
        self.drain(net, rng)?;
        self.verify(net)?;
        net.links[1].fin = true;
        self.drain(net, rng)?;
        net.ends[0].host.model.borrow_mut().disconnected = true;
        net.ends[0].qp.borrow_mut().disconnect();
        net.poll(0)?;
        self.drain(net, rng)?;
        let end = &net.ends[0];
        let shared = end.qp.borrow().config().shared_receive;
        end.host.model.borrow_mut().check_finished(!shared)?;
        if end.qp.borrow().outstanding() != (0, 0) {
            return Err("work requests left".into());
        }
        net.check_memory()
    }

    fn step(&mut self, net: &mut Net, rng: &mut Choices<'_>) -> Verdict {
        (self.note)(&|| format!("{} octets for it", net.links[1].flying.len()));
        net.links[0].flying.clear();
        if rng.one_in(2) {
            net.send(0, 65_536, usize::MAX)
        } else {
            let most = if rng.one_in(2) { usize::MAX } else { rng.below(200) as usize };
            net.receive(0, most, rng.one_in(2))
        }
    }

    fn drain(&mut self, net: &mut Net, rng: &mut Choices<'_>) -> Verdict {
        for _ in 0..200 {
            net.links[0].flying.clear();
            let before = net.octets;
            net.receive(0, usize::MAX, rng.one_in(2))?;
            net.send(0, 65_536, usize::MAX)?;
            if before == net.octets && net.links[1].flying.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn verify(&self, net: &Net) -> Verdict {
        let outcome = &net.ends[0].outcome;
        let sent = net.ends[0].host.model.borrow().terminate;
        match &self.expected {
            Expected::Fault(codes) => {
                let Some(code) = outcome.fault else {
                    return Err(format!("no fault where {codes:?} is due"));
                };
                if !codes.contains(&code) {
                    return Err(format!("fault {code:?} where {codes:?} is due"));
                }
                if sent != Some(code) {
                    return Err(format!("fault {code:?}, Terminate {sent:?}"));
                }
            }
            Expected::Terminated(code) => {
                if outcome.terminated != Some(*code) {
                    return Err(format!("Terminate {code:?} not reported"));
                }
                if sent.is_some() {
                    return Err("a Terminate is answered by one".into());
                }
            }
            Expected::Nothing if outcome.fault.is_some() => {
                return Err(format!("fault {:?} over nothing wrong", outcome.fault));
            }
            Expected::Nothing | Expected::Anything => {}
        }
        if sent.is_some() && sent != outcome.fault {
            return Err(format!("Terminate {sent:?}, fault {:?}", outcome.fault));
        }
        Ok(())
    }

    fn put(&mut self, net: &mut Net, ulpdu: &Ulpdu) {
        (self.note)(&|| format!("ULPDU {:02x?}", &ulpdu.0[..ulpdu.0.len().min(80)]));
        let mut out = vec![0; self.framer.frame_len(ulpdu.0.len())];
        let framed = self.framer.write(&mut out, &ulpdu.0, 0, |_, _, _| Ok::<(), ()>(()));
        framed.expect("nothing to gather");
        net.links[1].flying.extend(out);
    }

    fn take_msn(&mut self, qn: usize) -> u32 {
        let msn = self.next_msn[qn];
        self.next_msn[qn] = msn.wrapping_add(1);
        msn
    }

    /// Room in the receive that the next message gets.
    fn room(&self, net: &Net) -> Option<u64> {
        let model = net.ends[0].host.model.borrow();
        model.recvs.get(self.next_msn[0] as usize - 1).map(crate::model::PostedRecv::capacity)
    }

    /// Requests that may still be sent.
    fn free_requests(&self, net: &Net) -> usize {
        let answered = net.seen.iter().filter(|s| matches!(s.opcode, 2 | 0xb) && s.last).count();
        usize::from(net.ends[0].terms.inbound()).saturating_sub(self.requests - answered)
    }

    fn place(net: &Net, role: Role) -> (u32, u64, u64) {
        let bank = net.ends[0].host.bank.borrow();
        let region = bank.region(role);
        (region.stag.0, region.base, region.octets.len() as u64)
    }

    /// The highest opcode that the end takes: Sends with Immediate where it has asked and was told.
    fn highest(&self, net: &Net) -> u8 {
        let told = self.told.is_some_and(|capabilities| capabilities & SEND_IMMEDIATE != 0);
        match net.ends[0].qp.borrow().config().extensions {
            Extensions::Refuse => 7,
            Extensions::Ask if told => 0xd,
            _ => 0xb,
        }
    }

    /// Something that is right.
    fn well_formed(&mut self, net: &mut Net, rng: &mut Choices<'_>) {
        let (stag, base, size) = Self::place(net, Role::Target);
        match rng.below(6) {
            0 => {
                let ulpdu = Ulpdu::tagged(0, rng.word() as u32 | 1, rng.word());
                self.put(net, &ulpdu);
            }
            1 | 2 => {
                let len = rng.length(9000);
                let at = base + rng.below(size - u64::from(len) + 1);
                let ulpdu = Ulpdu::tagged(0, stag, at).filled(len as usize);
                self.put(net, &if rng.one_in(3) { ulpdu.open() } else { ulpdu });
            }
            3 => {
                let Some(room) = self.room(net) else { return };
                let len = u64::from(rng.length(9000)).min(room) as u32;
                let first = rng.below(u64::from(len) + 1) as u32;
                let msn = self.take_msn(0);
                let all = [3, 5, 0xc, 0xd];
                let opcode = rng.pick(if self.highest(net) >= 0xc { &all } else { &all[..2] });
                if first > 0 {
                    let ulpdu = Ulpdu::untagged(opcode, 0, msn, 0).filled(first as usize);
                    self.put(net, &ulpdu.open());
                }
                let rest = (len - first) as usize;
                self.put(net, &Ulpdu::untagged(opcode, 0, msn, first).filled(rest));
            }
            4 => {
                if self.free_requests(net) == 0 {
                    return;
                }
                let len = rng.length(9000);
                let at = base + rng.below(size - u64::from(len) + 1);
                let at = if len == 0 { rng.word() } else { at };
                let msn = self.take_msn(1);
                self.requests += 1;
                let body = read_request(stag, at, len);
                self.put(net, &Ulpdu::untagged(1, 1, msn, 0).with(&body));
            }
            _ => {
                let refuses = net.ends[0].qp.borrow().config().extensions == Extensions::Refuse;
                if refuses || self.free_requests(net) == 0 {
                    return;
                }
                let (stag, base, size) = Self::place(net, Role::Counters);
                let msn = self.take_msn(1);
                self.requests += 1;
                let body = atomic_request(0, stag, base + 8 * rng.below(size / 8));
                self.put(net, &Ulpdu::untagged(0xa, 1, msn, 0).with(&body));
            }
        }
    }

    /// One thing that is wrong, and what has to follow.
    fn break_rule(&mut self, net: &mut Net, rng: &mut Choices<'_>) -> Verdict {
        let (stag, base, size) = Self::place(net, Role::Target);
        let foreign = Self::place(net, Role::Foreign);
        let source = Self::place(net, Role::Source);
        let private = Self::place(net, Role::Private);
        let config = *net.ends[0].qp.borrow().config();
        let refuses = config.extensions == Extensions::Refuse;
        let parks = config.park.is_some();
        let terms = net.ends[0].terms;
        let asks_what_was_received =
            config.acknowledge && config.extensions == Extensions::Ask && terms.outbound() > 0;
        let len = rng.range(1, 3000);
        let fill = len as usize;
        let fault = |codes: &[Code]| Expected::Fault(codes.to_vec());
        let write = |stag: u32, to: u64| Ulpdu::tagged(0, stag, to).filled(fill);
        let (msn, asks) = (self.next_msn[0], self.next_msn[1]);
        let read = |stag: u32, to: u64, size: u64| {
            Ulpdu::untagged(1, 1, asks, 0).with(&read_request(stag, to, size as u32))
        };
        let send = |opcode: u8| Ulpdu::untagged(opcode, 0, msn, 0);
        let may_ask = self.free_requests(net) > 0;
        let full = [(1, 2, 2), (1, 2, 3)];
        let asked = |code: Code| if may_ask { vec![code] } else { full.to_vec() };
        let room = self.room(net);
        let (ulpdu, expected) = match rng.below(41) {
            0 => (write(stag ^ 1, base), fault(&[(1, 1, 0)])),
            1 => (write(0, base), fault(&[(1, 1, 0)])),
            2 => (write(foreign.0, foreign.1), fault(&[(1, 1, 2)])),
            3 => (write(source.0, source.1), fault(&[(1, 1, 0)])),
            4 => (write(stag, base + size - len + 1), fault(&[(1, 1, 1)])),
            5 => (write(stag, base - 1), fault(&[(1, 1, 1)])),
            6 => (write(stag, len.wrapping_neg()), fault(&[(1, 1, 3)])),
            7 => (write(stag, len.wrapping_neg() - 1), fault(&[(1, 1, 1)])),
            8 => (Ulpdu::untagged(3, 4, 1, 0), fault(&[(1, 2, 1)])),
            9 => (Ulpdu::untagged(3, 1, asks, 0), fault(&[(1, 2, 1)])),
            10 => (Ulpdu::untagged(3, 0, msn.wrapping_add(1), 0), fault(&full)),
            11 => (Ulpdu::untagged(3, 0, msn.wrapping_sub(1), 0), fault(&full)),
            12 => match room {
                Some(room) if room < 60_000 => {
                    (send(3).filled(room as usize + 1), fault(&[(1, 2, 5)]))
                }
                _ => (write(0, base), fault(&[(1, 1, 0)])),
            },
            13 => match room {
                Some(room @ 1..) => {
                    (Ulpdu::untagged(3, 0, msn, room as u32).filled(1), fault(&[(1, 2, 4)]))
                }
                _ => (write(0, base), fault(&[(1, 1, 0)])),
            },
            14 if room.is_none() && !parks => (send(3), fault(&full)),
            15 => (read(stag ^ 2, base, len), Expected::Fault(asked((0, 1, 0)))),
            16 => (read(foreign.0, foreign.1, 1), Expected::Fault(asked((0, 1, 3)))),
            17 => (read(private.0, private.1, 1), Expected::Fault(asked((0, 1, 2)))),
            18 => (read(stag, base + size - len + 1, len), Expected::Fault(asked((0, 1, 1)))),
            19 => (read(stag, len.wrapping_neg(), len), Expected::Fault(asked((0, 1, 4)))),
            20 => {
                let mut ulpdu = read(stag, base, len);
                ulpdu.0.pop();
                (ulpdu, fault(&[(0, 2, 7), (1, 2, 5), full[0], full[1]]))
            }
            21 => (read(stag, base, 0).with(&[0]), fault(&[(0, 2, 7), (1, 2, 5), full[0]])),
            22 => {
                let unknown = rng.range(u64::from(self.highest(net)) + 1, 15) as u8;
                let qn = rng.below(4) as u32;
                (Ulpdu::untagged(unknown, qn, msn, 0), fault(&[(0, 2, 6)]))
            }
            23 => (Ulpdu::tagged(rng.range(3, 15) as u8, stag, base), fault(&[(0, 2, 6)])),
            24 => (Ulpdu::untagged(0, 0, msn, 0), fault(&[(0, 2, 6)])),
            25 => {
                let mut ulpdu = send(3);
                ulpdu.0[1] ^= 0xc0;
                (ulpdu, fault(&[(0, 2, 5)]))
            }
            26 => {
                let mut ulpdu = send(3);
                ulpdu.0[0] ^= 3;
                (ulpdu, fault(&[(1, 2, 6)]))
            }
            27 => {
                let mut ulpdu = write(stag, base);
                ulpdu.0[0] ^= 1;
                (ulpdu, fault(&[(1, 1, 4)]))
            }
            28 => {
                let mut ulpdu = write(stag, base);
                ulpdu.0.truncate(rng.below(14) as usize);
                (ulpdu, fault(&[(2, 0, 3)]))
            }
            29 => {
                let mut ulpdu = send(3);
                ulpdu.0.truncate(rng.below(18) as usize);
                (ulpdu, fault(&[(2, 0, 3)]))
            }
            30 => (Ulpdu::tagged(2, stag, base).filled(fill), fault(&[(1, 1, 0), (0, 2, 6)])),
            31 => {
                let (stag, base, _) = Self::place(net, Role::Counters);
                let body = atomic_request(0, stag, base + rng.range(1, 7));
                let code = if refuses { (0, 2, 6) } else { (0, 2, 7) };
                let codes = if refuses { vec![code] } else { asked(code) };
                (Ulpdu::untagged(0xa, 1, asks, 0).with(&body), Expected::Fault(codes))
            }
            32 => {
                let body = atomic_request(1, stag, base);
                let codes = if refuses { vec![(0, 2, 6)] } else { asked((0, 2, 6)) };
                (Ulpdu::untagged(0xa, 1, asks, 0).with(&body), Expected::Fault(codes))
            }
            33 if room.is_some() => {
                let mut ulpdu = send(4);
                ulpdu.0[2..6].copy_from_slice(&(stag ^ 0x33).to_be_bytes());
                (ulpdu, fault(&[(0, 2, 9)]))
            }
            34 if room.is_some() && !refuses => {
                (send(8).filled(rng.pick(&[0, 7, 9])), fault(&[(0, 2, 7), (1, 2, 5)]))
            }
            35 => {
                let free = self.free_requests(net);
                for _ in 0..=free {
                    let msn = self.take_msn(1);
                    let body = read_request(0, 0, 0);
                    self.put(net, &Ulpdu::untagged(1, 1, msn, 0).with(&body));
                }
                self.expected = fault(&full);
                // All at once, or some are answered before the last one comes.
                return net.receive(0, usize::MAX, false);
            }
            36 => {
                let code = (rng.below(16) as u8, rng.below(16) as u8, rng.below(256) as u8);
                let mut body = vec![code.0 << 4 | code.1, code.2];
                body.extend((0..rng.below(60)).map(|_| rng.below(256) as u8));
                self.expected = Expected::Terminated(code);
                self.put(net, &Ulpdu::untagged(7, 2, 1, 0).with(&body));
                return Ok(());
            }
            37 => {
                self.spoil_frame(net, &terms, rng);
                return Ok(());
            }
            38 => {
                // The end of the stream inside an FPDU.
                let all = net.links[1].flying.len();
                self.put(net, &write(stag, base));
                let whole = net.links[1].flying.len() - all;
                net.links[1].flying.truncate(all + rng.range(1, whole as u64 - 1) as usize);
                net.links[1].fin = true;
                self.expected = fault(&[(2, 0, 1)]);
                return Ok(());
            }
            39 if asks_what_was_received && self.told.is_some() => {
                let too_much = rng.range(1 << 20, u64::MAX);
                (Ulpdu::tagged(0, rng.pick(&[FAREWELL, COUNT]), too_much), fault(&[(0, 2, 7)]))
            }
            _ => {
                self.expected = Expected::Anything;
                return Ok(());
            }
        };
        self.expected = expected;
        self.put(net, &ulpdu);
        Ok(())
    }

    /// A wrong frame around a good segment.
    fn spoil_frame(&mut self, net: &mut Net, terms: &Negotiated, rng: &mut Choices<'_>) {
        let (stag, base, _) = Self::place(net, Role::Target);
        let at = net.links[1].flying.len();
        let leading = terms.receive_markers && self.framer.position().is_multiple_of(512);
        let length_at = at + if leading { 4 } else { 0 };
        self.put(net, &Ulpdu::tagged(0, stag, base).filled(rng.range(1, 3000) as usize));
        let flying = &mut net.links[1].flying;
        let end = flying.len();
        let code = match rng.below(3) {
            spoils if terms.crc && (spoils == 0 || !terms.receive_markers) => {
                let spot = rng.range(length_at as u64 + 2, end as u64 - 1) as usize;
                flying[spot] ^= 1 << rng.below(8);
                (2, 0, 2)
            }
            1 if leading => {
                flying[at + 2] ^= 0x40;
                if terms.crc {
                    let octets: Vec<u8> = flying.range(at..end - 4).copied().collect();
                    let crc = crc32c(&octets).to_le_bytes();
                    (0..4).for_each(|i| flying[end - 4 + i] = crc[i]);
                }
                (2, 0, 3)
            }
            _ if terms.receive_markers => {
                let len = rng.range(MAX_ULPDU as u64 + 1, 0xffff) as u16;
                let [high, low] = len.to_be_bytes();
                (flying[length_at], flying[length_at + 1]) = (high, low);
                (2, 0, 3)
            }
            _ => {
                // No field of it can be wrong, so it is cut short.
                flying.truncate(rng.range(at as u64 + 1, end as u64 - 1) as usize);
                net.links[1].fin = true;
                (2, 0, 1)
            }
        };
        self.expected = Expected::Fault(vec![code]);
    }

    /// Anything that is an FPDU.
    fn noise(&mut self, net: &mut Net, rng: &mut Choices<'_>) {
        let (stag, base, size) = Self::place(net, rng.pick(&Role::ALL));
        let opcode = rng.below(16) as u8;
        let mut ulpdu = if rng.one_in(2) {
            Ulpdu::tagged(opcode, stag, base.wrapping_add(rng.below(2 * size)))
        } else {
            Ulpdu::untagged(opcode, rng.below(4) as u32, rng.below(6) as u32, rng.length(9000))
        };
        ulpdu = ulpdu.filled(rng.length(9000) as usize);
        if rng.one_in(2) {
            let spot = rng.below(ulpdu.0.len().min(60) as u64) as usize;
            ulpdu.0[spot] ^= 1 << rng.below(8);
        }
        if rng.one_in(8) {
            let len = rng.below(ulpdu.0.len() as u64 + 1) as usize;
            ulpdu.0.truncate(len);
        }
        self.put(net, &ulpdu);
    }
}
