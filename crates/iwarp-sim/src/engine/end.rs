// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end of a connection: its queue pair and memory, what was posted, and what has to come of it.

use std::collections::VecDeque;

use iwarp::{
    Access, AtomicOp, MemoryRegion, Payload, QueuePair, QueuePairAttributes, RecvRequest, SendOp,
    SendRequest,
};

use super::host::Host;
use crate::choice::{Choices, pattern};

/// Octets of a message at most.
pub(super) const SLOT: usize = 16 * 1024;
/// Messages that an end has in memory at a time, each way.
const SLOTS: usize = 8;
const AREA: usize = SLOTS * SLOT;

/// The parts of an end's region. The peer writes into one, reads from another, and counts in a
/// third; nothing else changes those.
const SEND: usize = 0;
const RECV: usize = AREA;
pub(super) const WRITTEN: usize = 2 * AREA;
const READABLE: usize = 3 * AREA;
const COUNTER: usize = 4 * AREA;
const LEN: usize = COUNTER + 8;

/// A message as it has to be at the receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) len: usize,
    /// Of its octets.
    pub(super) seed: u64,
    pub(super) immediate: Option<[u8; 8]>,
    pub(super) solicited: bool,
    /// The last Write before it: its octets have to be there when the message is received.
    pub(super) behind: Option<Written>,
}

/// A Write to a slot of the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) slot: usize,
    pub(super) len: usize,
    pub(super) seed: u64,
    pub(super) number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Immediate,
    Write,
}

/// The octets that a request leaves in local memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fetches {
    Nothing,
    /// Octets of the peer's readable part, from that place on.
    Octets {
        from: usize,
        len: usize,
    },
    /// The value that the counter had.
    Count(u64),
}

/// A send work request that has not completed, as far as the program knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) signaled: bool,
    pub(super) slot: Option<usize>,
    pub(super) fetches: Fetches,
}

/// A receive that has not completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    pub(super) id: u64,
    pub(super) slot: usize,
}

/// See the [module](self).
pub(super) struct End {
    pub(super) host: usize,
    /// None when the program has dropped it.
    pub(super) qp: Option<QueuePair>,
    pub(super) number: u32,
    /// It has its receives from the host's pool.
    pub(super) is_shared: bool,
    /// Its completion queues of the host's, sends' and receives'.
    pub(super) queues: [usize; 2],
    pub(super) memory: MemoryRegion,
    /// Drawn for the readable part.
    pub(super) seed: u64,
    pub(super) sends: VecDeque<Sent>,
    pub(super) receives: VecDeque<Receive>,
    /// Messages that the peer has not received.
    pub(super) messages: VecDeque<Message>,
    /// The octets that the peer's written part has to hold in the end, slot by slot.
    pub(super) writes: [Option<Written>; SLOTS],
    free: [Vec<usize>; 2],
    serial: u64,
    counted: u64,
}

/// Which request is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Any,
    /// One that takes no receive of the peer's.
    NoMessage,
    /// A Send.
    Message,
}

/// The knowledge that an end has of its peer's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) stag: iwarp::Stag,
    pub(super) base: iwarp::TaggedOffset,
}

/// The part that is read, of the end with this seed.
fn readable(seed: u64) -> Vec<u8> {
    let mut octets = vec![0; AREA];
    pattern(seed, &mut octets);
    octets
}

impl End {
    pub(super) fn new(
        number: usize,
        host: &Host,
        by_number: bool,
        choices: &mut Choices<'_>,
    ) -> Self {
        let queues = [0, 1].map(|_| choices.below(host.queues.len() as u64) as usize);
        let [send, recv] = queues.map(|queue| &host.queues[queue].cq);
        let pool = host.pool.as_ref().filter(|_| choices.below(2) == 0);
        let attributes = QueuePairAttributes::new(send, recv)
            .srq(pool.map(|pool| &pool.srq))
            .max_send_wr(choices.pick(&[4, 16, 64]))
            .max_recv_wr(choices.pick(&[4, 16, 64]));
        let made = if by_number {
            host.pd.create_addressable_qp(&attributes)
        } else {
            host.pd.create_qp(&attributes)
        };
        let qp = made.expect("a queue pair");
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = host.pd.allocate(LEN, all).expect("memory");
        let seed = choices.word();
        memory.buffer().expect("the library's own").write_at(READABLE, &readable(seed));
        Self {
            host: number,
            is_shared: pool.is_some(),
            number: qp.number(),
            qp: Some(qp),
            queues,
            memory,
            seed,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            messages: VecDeque::new(),
            writes: [None; SLOTS],
            free: [(0..SLOTS).collect(), (0..SLOTS).collect()],
            serial: 0,
            counted: 0,
        }
    }

    pub(super) const fn remote(&self) -> Remote {
        Remote { stag: self.memory.rkey(), base: self.memory.base() }
    }

    /// Sends are numbered evenly, receives oddly.
    fn next_id(&mut self, receive: bool) -> u64 {
        self.serial += 1;
        self.serial * 2 + u64::from(receive)
    }

    pub(super) fn octets(&self, at: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.memory.buffer().expect("the library's own").read_at(at, &mut octets);
        octets
    }

    /// The octets that were received into a slot, or fetched into one.
    pub(super) fn received(&self, slot: usize, len: usize) -> Vec<u8> {
        self.octets(RECV + slot * SLOT, len)
    }

    pub(super) fn fetched(&self, slot: usize, len: usize) -> Vec<u8> {
        self.octets(SEND + slot * SLOT, len)
    }

    /// The octets that a Read of that place brings.
    pub(super) fn readable(&self, from: usize, len: usize) -> Vec<u8> {
        readable(self.seed)[from..from + len].to_vec()
    }

    pub(super) fn give_back(&mut self, receive: bool, slot: usize) {
        self.free[usize::from(receive)].push(slot);
    }

    /// True if a receive can be posted.
    pub(super) fn can_receive(&self) -> bool {
        let Some(qp) = &self.qp else { return false };
        qp.room().1 > 0 && !self.free[1].is_empty()
    }

    pub(super) fn post_recv(&mut self) -> Result<String, String> {
        let slot = self.free[1].pop().expect("asked before");
        let id = self.next_id(true);
        let sges = [self.memory.sge(RECV + slot * SLOT, SLOT)];
        let Some(qp) = &self.qp else { return Err("no queue pair".to_owned()) };
        let posted = qp.post_recv(&RecvRequest::new(id, &sges));
        self.receives.push_back(Receive { id, slot });
        posted.map_err(|error| format!("a receive is refused: {error}"))?;
        Ok(format!("post_recv {id}"))
    }

    /// True if a request can be posted.
    pub(super) fn can_send(&self) -> bool {
        let Some(qp) = &self.qp else { return false };
        qp.room().0 > 0 && !self.free[0].is_empty()
    }

    fn draw_len(choices: &mut Choices<'_>) -> usize {
        choices.length(SLOT as u32) as usize
    }

    /// Fills a slot with what is going to be sent.
    fn fill(&self, slot: usize, len: usize, seed: u64) {
        let mut octets = vec![0; len];
        pattern(seed, &mut octets);
        let buffer = self.memory.buffer().expect("the library's own");
        buffer.write_at(SEND + slot * SLOT, &octets);
    }

    /// A Write to a slot of the peer's, which will hold these octets.
    fn write_to(&mut self, choices: &mut Choices<'_>, len: usize, seed: u64) -> (usize, Written) {
        let slot = choices.below(SLOTS as u64) as usize;
        let written = Written { slot, len, seed, number: self.serial };
        self.writes[slot] = Some(written);
        (WRITTEN + slot * SLOT, written)
    }

    /// Posts a request.
    pub(super) fn post_send(
        &mut self,
        remote: Remote,
        what: What,
        choices: &mut Choices<'_>,
    ) -> Result<String, String> {
        let kind = match what {
            What::Any => choices.below(12),
            What::NoMessage => 7 + choices.below(5),
            What::Message => 0,
        };
        let slot = self.free[0].pop().expect("asked before");
        let id = self.next_id(false);
        let (mut len, seed) = (Self::draw_len(choices), choices.word());
        let solicited = choices.one_in(3);
        let signaled = choices.below(4) != 0;
        let fence = choices.one_in(8);
        let word: [u8; 4] = (seed as u32).to_be_bytes();
        let to = |offset: usize| remote.base.advanced(offset as u64);
        let Remote { stag, .. } = remote;
        let before = self.writes.iter().flatten().max_by_key(|written| written.number).copied();
        let mut message = None;
        let mut told = |kind, immediate, len, behind| {
            message = Some(Message { kind, len, seed, immediate, solicited, behind });
        };
        let eight = |word: [u8; 4]| {
            let mut eight = [0; 8];
            eight[..4].copy_from_slice(&word);
            eight
        };
        let mut fetches = Fetches::Nothing;
        let (name, op) = match kind {
            0..=3 => {
                told(Kind::Send, None, len, before);
                ("Send", SendOp::Send { solicited, invalidate: None })
            }
            4 => {
                told(Kind::Send, Some(eight(word)), len, before);
                ("SendImmediate", SendOp::SendImmediate { solicited, data: word })
            }
            5 => {
                len = 0;
                told(Kind::Immediate, Some(seed.to_be_bytes()), 8, before);
                ("Immediate", SendOp::Immediate { solicited, data: seed.to_be_bytes() })
            }
            6 => {
                let (place, written) = self.write_to(choices, len, seed);
                told(Kind::Write, Some(eight(word)), len, Some(written));
                (
                    "WriteImmediate",
                    SendOp::WriteImmediate { stag, to: to(place), solicited, data: word },
                )
            }
            7..=9 => {
                let (place, _) = self.write_to(choices, len, seed);
                ("Write", SendOp::Write { stag, to: to(place) })
            }
            10 => {
                let from = choices.below((AREA - len) as u64) as usize;
                fetches = Fetches::Octets { from, len };
                ("Read", SendOp::Read { stag, to: to(READABLE + from), invalidate: None })
            }
            _ => {
                (len, fetches) = (8, Fetches::Count(self.counted));
                let add = seed >> 40;
                self.counted = self.counted.wrapping_add(add);
                (
                    "Atomic",
                    SendOp::Atomic {
                        stag,
                        to: to(COUNTER),
                        op: AtomicOp::FetchAdd { add, mask: 0 },
                    },
                )
            }
        };
        let is_sent = matches!(fetches, Fetches::Nothing);
        if is_sent {
            self.fill(slot, len, seed);
        }
        let octets = self.octets(SEND + slot * SLOT, len);
        let sges = [self.memory.sge(SEND + slot * SLOT, len)];
        let inline = is_sent && len <= 64 && choices.below(2) == 0;
        let payload = match (inline, kind) {
            (true, _) => Payload::Inline(&octets),
            (false, 5) => Payload::Sges(&[]),
            (false, _) => Payload::Sges(&sges),
        };
        let mut request = SendRequest::new(id, op, payload);
        (request.signaled, request.fence) = (signaled, fence);
        // Before the call: it may receive, or complete this very request.
        self.sends.push_back(Sent { id, signaled, slot: Some(slot), fetches });
        self.messages.extend(message);
        let Some(qp) = &self.qp else { return Err("no queue pair".to_owned()) };
        let posted = qp.post_send(&request);
        posted.map_err(|error| format!("{:?} is refused: {error}", request.op))?;
        Ok(format!(
            "post_send {id}: {name} of {len}{}",
            if signaled { "" } else { ", unsignalled" }
        ))
    }

    /// Writes the eight octets that `mark` stands for to the peer's first slot, where the peer's
    /// program spins until they are there.
    pub(super) fn post_mark(&mut self, remote: Remote, mark: u64) -> Result<(), String> {
        let slot = self.free[0].pop().expect("asked before");
        let id = self.next_id(false);
        let mut octets = [0; 8];
        pattern(mark, &mut octets);
        let written = Written { slot: 0, len: 8, seed: mark, number: self.serial };
        self.writes[0] = Some(written);
        let to = remote.base.advanced(WRITTEN as u64);
        let op = SendOp::Write { stag: remote.stag, to };
        let request = SendRequest::new(id, op, Payload::Inline(&octets)).signaled();
        let fetches = Fetches::Nothing;
        self.sends.push_back(Sent { id, signaled: true, slot: Some(slot), fetches });
        let Some(qp) = &self.qp else { return Err("no queue pair".to_owned()) };
        qp.post_send(&request).map_err(|error| format!("a mark is refused: {error}"))
    }

    /// True if the peer's mark is here.
    pub(super) fn has_mark(&self, mark: u64) -> bool {
        let mut octets = [0; 8];
        pattern(mark, &mut octets);
        self.octets(WRITTEN, 8) == octets
    }

    /// Number of requests with a completion due when all is done.
    pub(super) fn due_sends(&self) -> usize {
        self.sends.iter().filter(|sent| sent.signaled).count()
    }
}
