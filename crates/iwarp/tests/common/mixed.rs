// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end of a connection with traffic of all kinds, each byte of which the other end checks:
//! Sends of one byte to 300 KiB, Writes behind which a word says that they are there, Reads and
//! Atomics. Each message has contents of its own number. Other memory is registered and
//! deregistered meanwhile, and an end may deregister that which its peer uses.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use iwarp::cm::{ConnectError, ConnectParams, Incoming, connect};
use iwarp::{
    Access, AtomicOp, CompletionChannel, Device, LocalPath, MemoryRegion, PostError,
    QueuePairAttributes, SendOp, SendRequest, Sge, Stag, TaggedOffset, WcStatus, WorkCompletion,
};

use super::{DEADLINE, End, all_access, pattern};

/// Bytes of the longest message, and of a block that is written.
const LONGEST: usize = 300 << 10;
const BLOCK: usize = 64 << 10;
/// Contents begin at so many places of the pattern.
const PLACES: u64 = 4096;
const RECEIVES: usize = 6;
const QUEUE: usize = 16;

// The parts that a peer reaches: the number of the last block, the counts of blocks and messages
// that this end has seen, a counter, the block, and bytes to read.
const WORD: usize = 0;
const SEEN: usize = 8;
const COUNTER: usize = 24;
const PLACE: usize = 64;
const EXPOSED: usize = PLACE + BLOCK;

/// The part that an end plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// All kinds of operations; a message waits for a receive of the peer's.
    Trades,
    /// Sends, however many receives there are.
    Sends,
    /// Receives, and posts nothing else.
    Receives,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Send = 1,
    Block,
    Word,
    Tell,
    Read,
    Add,
}

/// The bytes that the ends of a kind send: those of number `n` begin at a place of its own.
fn contents(side: usize) -> &'static [u8] {
    static BYTES: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    BYTES[side].get_or_init(|| pattern(LONGEST + PLACES as usize, 17 + side as u64))
}

fn place(number: u64) -> usize {
    (number.wrapping_mul(1009) % PLACES) as usize
}

/// Length of the message, or block, of this number: mostly short.
fn length(number: u64, longest: usize) -> usize {
    let mut lots = Lots(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    lots.next();
    let most = match lots.below(8) {
        0..4 => 64,
        4..6 => 8 << 10,
        6 => 64 << 10,
        _ => longest,
    };
    1 + lots.below(most.min(longest) as u64) as usize
}

/// Numbers by lot.
pub struct Lots(pub u64);

impl Lots {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The parts that an end needs before it is connected.
pub struct Ready {
    end: End<()>,
    exposed: MemoryRegion,
    local: MemoryRegion,
    inboxes: MemoryRegion,
    side: usize,
    part: Part,
}

/// See the [module](self).
pub struct Mixed {
    pub end: End,
    /// None once it is deregistered.
    exposed: Option<MemoryRegion>,
    /// In its place then.
    kept: Option<MemoryRegion>,
    /// Registered for a while, and used by no request.
    spare: Option<MemoryRegion>,
    /// Contents to send; then places for the results of Reads and Atomics, and words to write.
    local: MemoryRegion,
    inboxes: MemoryRegion,
    side: usize,
    part: Part,
    peer: (Stag, TaggedOffset),
    lots: Lots,
    /// Requests, and receives, that have not completed.
    outstanding: usize,
    receives: usize,
    sends: u64,
    received: u64,
    blocks: u64,
    blocks_seen: u64,
    told: [u64; 2],
    adds: u64,
    words: usize,
    is_reading: bool,
    is_adding: bool,
    has_moved: bool,
    /// It posts no more.
    is_over: bool,
    /// Completions that are no success.
    pub failures: BTreeMap<String, u64>,
}

const RESULTS: usize = LONGEST + PLACES as usize;
const SUM: usize = RESULTS + BLOCK;
/// Words to write: the next one is another than those that may not have gone out.
const WORDS: usize = SUM + 8;
const LOCAL: usize = WORDS + 2 * QUEUE * 16;

impl Ready {
    /// `side`: 0 or 1, as the peer is not. Completions raise events on the channel.
    pub fn new(
        device: &Device,
        channel: Option<&CompletionChannel>,
        side: usize,
        part: Part,
    ) -> Self {
        let pd = device.alloc_pd();
        let [send_cq, recv_cq] = [(); 2].map(|()| device.create_cq(64, channel).unwrap());
        let attributes = QueuePairAttributes::new(&send_cq, &recv_cq);
        let qp = pd.create_qp(&attributes.max_send_wr(QUEUE).max_recv_wr(RECEIVES)).unwrap();
        let [exposed, local, inboxes] =
            [EXPOSED, LOCAL, RECEIVES * LONGEST].map(|len| pd.allocate(len, all_access()).unwrap());
        local.buffer().unwrap().write_at(0, contents(side));
        exposed.buffer().unwrap().write_at(PLACE + BLOCK / 2, &contents(side)[..BLOCK / 2]);
        let end = End { device: device.clone(), pd, send_cq, recv_cq, qp, connection: () };
        let ready = Self { end, exposed, local, inboxes, side, part };
        (0..RECEIVES).for_each(|at| ready.end.post_recv(at as u64, &[inbox(&ready.inboxes, at)]));
        ready
    }

    /// The terms by which the peer finds the memory.
    fn params(&self) -> ConnectParams {
        let mut terms = self.exposed.rkey().0.to_be_bytes().to_vec();
        terms.extend_from_slice(&self.exposed.base().0.to_be_bytes());
        ConnectParams::new().private_data(terms)
    }

    pub fn connect(self, addr: SocketAddr, seed: u64) -> Result<Mixed, ConnectError> {
        let connection = connect(&self.end.device, addr, &self.end.qp, &self.params(), DEADLINE)?;
        Ok(self.connected(connection, seed))
    }

    pub fn accept(self, incoming: Incoming, seed: u64) -> Result<Mixed, ConnectError> {
        let connection = incoming.accept(&self.end.qp, &self.params())?;
        Ok(self.connected(connection, seed))
    }

    fn connected(self, connection: iwarp::cm::Connection, seed: u64) -> Mixed {
        let terms = connection.private_data();
        let stag = u32::from_be_bytes(terms[..4].try_into().unwrap());
        let base = u64::from_be_bytes(terms[4..12].try_into().unwrap());
        let Self { end, exposed, local, inboxes, side, part } = self;
        let End { device, pd, send_cq, recv_cq, qp, connection: () } = end;
        Mixed {
            end: End { device, pd, send_cq, recv_cq, qp, connection },
            exposed: Some(exposed),
            kept: None,
            spare: None,
            local,
            inboxes,
            side,
            part,
            peer: (Stag(stag), TaggedOffset(base)),
            lots: Lots(seed.wrapping_add(side as u64)),
            outstanding: 0,
            receives: RECEIVES,
            sends: 0,
            received: 0,
            blocks: 0,
            blocks_seen: 0,
            told: [0; 2],
            adds: 0,
            words: 0,
            is_reading: false,
            is_adding: false,
            has_moved: false,
            is_over: false,
            failures: BTreeMap::new(),
        }
    }
}

fn inbox(inboxes: &MemoryRegion, at: usize) -> Sge {
    inboxes.sge(at * LONGEST, LONGEST)
}

impl Mixed {
    /// Polls, checks what has come, and posts more; false when there was nothing to do.
    pub fn step(&mut self) -> bool {
        let mut came = false;
        while let Some(completion) = self.end.recv_cq.poll_one() {
            self.receive(completion);
            came = true;
        }
        while let Some(completion) = self.end.send_cq.poll_one() {
            self.complete(completion);
            came = true;
        }
        self.look_for_block();
        if came && self.lots.below(32) == 0 {
            let len = 1 + self.lots.below(1 << 20) as usize;
            self.spare =
                self.spare.is_none().then(|| self.end.pd.allocate(len, all_access()).unwrap());
        }
        self.has_moved |= self.end.qp.local_path() == LocalPath::Rings;
        let posted = !self.is_over && self.post_some();
        came || posted
    }

    /// True once all that was posted has completed. The queue pair has ended then.
    pub fn is_done(&self) -> bool {
        self.outstanding == 0 && self.receives == 0
    }

    /// Deregisters the memory that the peer uses, and has other use for it.
    pub fn withdraw(&mut self) {
        self.is_over = true;
        if self.exposed.take().is_none() {
            return;
        }
        let kept = self.end.pd.allocate(EXPOSED, Access::LOCAL_WRITE).unwrap();
        kept.buffer().unwrap().write_at(0, &contents(self.side)[..EXPOSED]);
        self.kept = Some(kept);
    }

    /// True unless bytes have come into memory that is deregistered.
    pub fn is_kept(&self) -> bool {
        let is_whole =
            |kept: &MemoryRegion| kept.buffer().unwrap().to_vec() == contents(self.side)[..EXPOSED];
        self.kept.as_ref().is_none_or(is_whole)
    }

    /// Posts no more, and says how many Sends it has posted.
    pub fn stop(&mut self) -> u64 {
        self.is_over = true;
        self.sends
    }

    pub fn received(&self) -> u64 {
        self.received
    }

    /// True once this end has been seen to send by shared memory.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Messages, blocks and Atomics that were posted.
    pub fn posted(&self) -> [u64; 3] {
        [self.sends, self.blocks, self.adds]
    }

    /// For a failure.
    pub fn describe(&self) -> String {
        let (qp, path) = (self.end.qp.state(), self.end.qp.local_path());
        let Self { outstanding, receives, received, failures, is_over, .. } = self;
        format!(
            "{qp:?} by {path:?}, {outstanding} requests and {receives} receives wait, {received} \
             came, failures {failures:?}, over {is_over}"
        )
    }

    fn word(&self, at: usize) -> u64 {
        let word = |exposed: &MemoryRegion| {
            exposed.buffer().unwrap().atomic_u64(at).load(Ordering::Acquire)
        };
        self.exposed.as_ref().map_or(0, word)
    }

    fn failed(&mut self, completion: &WorkCompletion) -> bool {
        if completion.status == WcStatus::Success {
            return false;
        }
        *self.failures.entry(format!("{:?}", completion.status)).or_default() += 1;
        self.is_over = true;
        true
    }

    fn receive(&mut self, completion: WorkCompletion) {
        self.receives -= 1;
        if self.failed(&completion) {
            return;
        }
        let number = self.received;
        let len = length(number, LONGEST);
        assert_eq!(completion.byte_len as usize, len, "message {number}");
        let mut octets = vec![0; len];
        let slot = completion.wr_id as usize;
        self.inboxes.buffer().unwrap().read_at(slot * LONGEST, &mut octets);
        let wanted = &contents(1 - self.side)[place(number)..][..len];
        assert!(octets == wanted, "message {number} of {len} bytes has others");
        self.received += 1;
        let sges = [inbox(&self.inboxes, slot)];
        let receive = iwarp::RecvRequest::new(slot as u64, &sges);
        match self.end.qp.post_recv(&receive) {
            Ok(()) => self.receives += 1,
            Err(PostError::WrongState) => self.is_over = true,
            Err(error) => panic!("{error}"),
        }
    }

    fn complete(&mut self, completion: WorkCompletion) {
        self.outstanding = self.outstanding.checked_sub(1).expect("a completion too many");
        let kind = completion.wr_id;
        let failed = self.failed(&completion);
        if kind == Kind::Read as u64 {
            self.is_reading = false;
            let mut octets = vec![0; completion.byte_len as usize];
            if !failed {
                self.local.buffer().unwrap().read_at(RESULTS, &mut octets);
                let wanted = &contents(1 - self.side)[..octets.len()];
                assert!(!octets.is_empty() && octets == wanted, "a Read brings other bytes");
            }
        } else if kind == Kind::Add as u64 {
            self.is_adding = false;
            if !failed {
                let old = self.local.buffer().unwrap().atomic_u64(SUM).load(Ordering::Acquire);
                assert_eq!(old, self.adds - 1, "a sum is wrong");
            }
        }
    }

    /// The peer has written a block, and the word behind it.
    fn look_for_block(&mut self) {
        let word = self.word(WORD);
        let Some(exposed) = self.exposed.as_ref().filter(|_| word != self.blocks_seen) else {
            return;
        };
        assert_eq!(word, self.blocks_seen + 1, "a word that the peer has not written");
        let len = length(word, BLOCK / 2);
        let mut octets = vec![0; len];
        exposed.buffer().unwrap().read_at(PLACE, &mut octets);
        let wanted = &contents(1 - self.side)[place(word)..][..len];
        assert!(octets == wanted, "block {word} of {len} bytes has others");
        self.blocks_seen = word;
    }

    fn post_some(&mut self) -> bool {
        if self.part == Part::Receives || self.outstanding >= QUEUE - 2 {
            return false;
        }
        if self.part == Part::Sends {
            return self.post_send();
        }
        let now = [self.blocks_seen, self.received];
        if now != self.told {
            self.told = now;
            return self.write_words(Kind::Tell, &now, SEEN);
        }
        match self.lots.below(4) {
            0 => self.sends < self.word(SEEN + 8) + RECEIVES as u64 && self.post_send(),
            1 => self.blocks == self.word(SEEN) && self.write_block(),
            2 => !self.is_reading && self.post_read(),
            _ => !self.is_adding && self.post_add(),
        }
    }

    fn post_send(&mut self) -> bool {
        let sge = self.local.sge(place(self.sends), length(self.sends, LONGEST));
        let posted = self.post(Kind::Send, SendOp::SEND, sge);
        self.sends += u64::from(posted);
        posted
    }

    fn write_block(&mut self) -> bool {
        let number = self.blocks + 1;
        let sge = self.local.sge(place(number), length(number, BLOCK / 2));
        if !self.write(Kind::Block, sge, PLACE) {
            return false;
        }
        self.blocks = number;
        self.write_words(Kind::Word, &[number], WORD)
    }

    fn write_words(&mut self, kind: Kind, words: &[u64], to: usize) -> bool {
        self.words = (self.words + 1) % (2 * QUEUE);
        let at = WORDS + 16 * self.words;
        let buffer = self.local.buffer().unwrap();
        for (i, word) in words.iter().enumerate() {
            buffer.atomic_u64(at + 8 * i).store(*word, Ordering::Release);
        }
        self.write(kind, self.local.sge(at, 8 * words.len()), to)
    }

    fn write(&mut self, kind: Kind, sge: Sge, to: usize) -> bool {
        let (stag, base) = self.peer;
        self.post(kind, SendOp::Write { stag, to: base.advanced(to as u64) }, sge)
    }

    /// The second half of the peer's place, which is never written.
    fn post_read(&mut self) -> bool {
        let (stag, base) = self.peer;
        let len = 1 + self.lots.below(BLOCK as u64 / 2) as usize;
        let sge = self.local.sge(RESULTS, len);
        let to = base.advanced((PLACE + BLOCK / 2) as u64);
        self.is_reading = self.post(Kind::Read, SendOp::Read { stag, to, invalidate: None }, sge);
        self.is_reading
    }

    fn post_add(&mut self) -> bool {
        let (stag, base) = self.peer;
        let to = base.advanced(COUNTER as u64);
        let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
        let sge = self.local.sge(SUM, 8);
        self.is_adding = self.post(Kind::Add, SendOp::Atomic { stag, to, op }, sge);
        self.adds += u64::from(self.is_adding);
        self.is_adding
    }

    fn post(&mut self, kind: Kind, op: SendOp, sge: Sge) -> bool {
        let sges = [sge];
        let request = SendRequest::new(kind as u64, op, &sges).signaled();
        match self.end.qp.post_send(&request) {
            Ok(()) => self.outstanding += 1,
            Err(PostError::WrongState) => self.is_over = true,
            Err(PostError::QueueFull) => return false,
            Err(error) => panic!("{error}"),
        }
        !self.is_over
    }
}
