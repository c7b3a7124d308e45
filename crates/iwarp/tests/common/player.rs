// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plays a [`Script`] on two devices of this process, and notes all that its program sees.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use iwarp::cm::{Connection, Listener};
use iwarp::verbs::WindowType;
use iwarp::{
    Access, AtomicOp, Bind, CompletionQueue, Device, LocalPath, MemoryRegion, MemoryWindow,
    Options, Payload, ProtectionDomain, QueuePair, RecvRequest, SendOp, SendRequest, Sge, Stag,
    TaggedOffset, WcStatus, WorkCompletion,
};

use super::script::{
    Burst, Exposed, Kind, MESSAGE, OPEN, REGION, REGIONS, Request, Script, Shape, Target, Wrong,
};
use super::{DEADLINE, couple, next, pattern, queues, until};

/// Requests of a burst at most, the one that ends it among them; and receives.
const QUEUE: usize = 12;
/// Contents begin at so many places of the pattern.
const PLACES: usize = 1024;
/// The request that ends a burst.
const LAST: u64 = 1 << 32;

/// The two devices of a way, with memory that all programs use.
pub struct Stage {
    sides: [Part; 2],
    listener: Listener,
    way: LocalPath,
    /// A message waits for its receive.
    waits: bool,
}

/// All that a program has seen.
#[derive(Debug, Default)]
pub struct Seen {
    pub lines: Vec<String>,
    /// Requests that the ends have carried out by themselves.
    pub direct: u64,
    /// Requests.
    pub posted: u64,
}

struct Part {
    device: Device,
    pd: ProtectionDomain,
    other: ProtectionDomain,
    /// Contents to send.
    outbox: MemoryRegion,
    /// A place for what each Read or Atomic brings, and for each message.
    results: MemoryRegion,
    inbox: MemoryRegion,
}

/// One end of a program.
struct Player<'a> {
    part: &'a Part,
    name: &'static str,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    qp: QueuePair,
    connection: Connection,
    window: MemoryWindow,
    /// The STag of the window, once it is bound.
    open: Stag,
    shares: [Share; REGIONS],
    /// Requests so far.
    number: usize,
    sent: Vec<WorkCompletion>,
    received: Vec<WorkCompletion>,
    /// Receives of this burst.
    receives: usize,
}

/// A region that the peer may use.
struct Share {
    exposed: Exposed,
    /// None once it is deregistered for good.
    region: Option<MemoryRegion>,
    /// Its address for the peer, then too.
    at: (Stag, TaggedOffset),
    /// The program's memory, if it lies there. It goes after the region.
    memory: Box<[AtomicU64]>,
}

/// The address of a request's memory at the peer.
type Address = (Stag, TaggedOffset);

impl Stage {
    pub fn new(options: &Options, way: LocalPath, waits: bool) -> Self {
        let options = options.clone().local(way);
        let sides = [1, 2].map(|seed| Part::new(&options, seed));
        let listener = Listener::bind(&sides[1].device, "127.0.0.1:0").unwrap();
        Self { sides, listener, way, waits }
    }

    /// `warm`: the connection moves to its way before the program begins, rather than amid it, and
    /// each end has read what it may.
    pub fn play(&self, script: &Script, warm: bool) -> Seen {
        let [client, server] = &self.sides;
        let [ours, theirs] = [client, server].map(|part| queues(&part.device, &part.pd, QUEUE));
        let (dialled, accepted) = couple(&client.device, &ours.2, &self.listener, &theirs.2);
        let mut players = [
            Player::new(client, "client", ours, dialled, &script.exposed[0]),
            Player::new(server, "server", theirs, accepted, &script.exposed[1]),
        ];
        if warm && self.way != LocalPath::Off {
            let has_moved = |player: &Player<'_>| player.qp.local_path() == LocalPath::Rings;
            until("rings", || players.iter().all(has_moved).then_some(()));
        }
        if warm {
            warm_up(&players);
        }
        let mut seen = Seen::default();
        for (number, burst) in script.bursts.iter().enumerate() {
            seen.lines.push(format!("burst {number}"));
            seen.posted += burst.requests.iter().map(Vec::len).sum::<usize>() as u64;
            self.burst(&mut players, burst, &mut seen.lines);
        }
        for player in &players {
            seen.direct += player.qp.direct_reads() + player.qp.direct_writes();
        }
        seen
    }

    fn burst(&self, players: &mut [Player<'_>; 2], burst: &Burst, lines: &mut Vec<String>) {
        let wrong = burst.requests.iter().flatten().find_map(|request| request.wrong);
        let ends = wrong.is_some() || burst.leaves.is_some();
        for (side, player) in players.iter_mut().enumerate() {
            player.begin(burst.renewed[side]);
            let asked = burst.requests[1 - side]
                .iter()
                .find(|request| request.wrong == Some(Wrong::Withdrawn));
            if let Some(asked) = asked {
                player.shares[asked.target.region()].region = None;
            }
        }
        if !burst.late {
            (0..2).for_each(|side| players[side].post_receives(&burst.requests[1 - side]));
        }
        for side in 0..2 {
            let requests = &burst.requests[side];
            let addresses: Vec<_> =
                requests.iter().map(|request| players[1 - side].address(request)).collect();
            players[side].post(requests, &addresses, burst.as_list, !ends);
            if burst.leaves == Some(side) {
                players[side].connection.disconnect();
            }
        }
        if burst.late {
            (0..100).for_each(|_| players.iter_mut().for_each(Player::poll));
            (0..2).for_each(|side| players[side].post_receives(&burst.requests[1 - side]));
        }
        let last = |side: usize| if ends { burst.requests[side].len() as u64 - 1 } else { LAST };
        let posts = |side: usize| !ends || !burst.requests[side].is_empty();
        if let Some(side) = burst.polls_first.filter(|side| posts(*side)) {
            until("the end that polls alone", || {
                players[side].poll();
                players[side].has_sent(last(side)).then_some(())
            });
        }
        let what = format!("all to be done of {burst:?}");
        until(&what, || {
            players.iter_mut().for_each(Player::poll);
            let done = |(side, player): (usize, &Player<'_>)| {
                (!posts(side) || player.has_sent(last(side)))
                    && player.received.len() == player.receives
            };
            players.iter().enumerate().all(done).then_some(())
        });
        if ends {
            for player in players.iter_mut() {
                let ended = player.connection.wait_disconnected(Some(DEADLINE)).expect("no end");
                lines.push(format!("{} ended: {ended:?}", player.name));
                // A completion behind it would be one too many.
                player.poll();
            }
        }
        for (side, player) in players.iter_mut().enumerate() {
            player.note(side, burst, self.waits, lines);
        }
    }
}

/// The first accesses of a region are never direct.
fn warm_up(players: &[Player<'_>; 2]) {
    for side in 0..2 {
        let (reader, owner) = (&players[side], &players[1 - side]);
        for share in owner.shares.iter().filter(|share| share.exposed.grants(Access::REMOTE_READ)) {
            let (stag, to) = share.at;
            let room = [reader.part.results.sge(0, 8)];
            for _ in 0..4 {
                reader.qp.post_send(&SendRequest::read(0, &room, stag, to).signaled()).unwrap();
                assert_eq!(next(&reader.send_cq).status, WcStatus::Success);
            }
        }
    }
}

impl Part {
    fn new(options: &Options, seed: u64) -> Self {
        let device = Device::with_options(options.clone()).unwrap();
        let (pd, other) = (device.alloc_pd(), device.alloc_pd());
        let [outbox, results, inbox] = [REGION + PLACES, QUEUE * REGION, QUEUE * MESSAGE]
            .map(|len| pd.allocate(len, Access::LOCAL_WRITE).unwrap());
        outbox.buffer().unwrap().write_at(0, &pattern(REGION + PLACES, seed));
        Self { device, pd, other, outbox, results, inbox }
    }
}

impl Share {
    fn new(part: &Part, exposed: Exposed) -> Self {
        let words = if exposed.shape == Shape::Program { REGION / 8 } else { 0 };
        let memory = (0..words).map(|_| AtomicU64::new(0)).collect();
        let mut share = Self { exposed, region: None, at: (Stag(0), TaggedOffset(0)), memory };
        share.register(part);
        share
    }

    /// Registers it, in place of the registration that it has; its contents stay.
    fn register(&mut self, part: &Part) {
        let Exposed { shape, access } = self.exposed;
        let pd = if shape == Shape::OtherDomain { &part.other } else { &part.pd };
        let before = self.region.take();
        let region = if shape == Shape::Program {
            drop(before);
            // SAFETY: the memory goes after the region, and is accessed as words that change.
            unsafe { pd.register_raw(self.memory.as_ptr() as *mut u8, REGION, access) }.unwrap()
        } else {
            let region = pd.allocate(REGION, access).unwrap();
            if let Some(before) = before {
                region.buffer().unwrap().write_at(0, &before.buffer().unwrap().to_vec());
            }
            region
        };
        self.at = (region.rkey(), region.base());
        self.region = Some(region);
    }

    fn contents(&self) -> Vec<u8> {
        match &self.region {
            Some(region) if self.memory.is_empty() => region.buffer().unwrap().to_vec(),
            _ => {
                let words = self.memory.iter().map(|word| word.load(Ordering::Relaxed));
                words.flat_map(u64::to_ne_bytes).collect()
            }
        }
    }
}

impl<'a> Player<'a> {
    fn new(
        part: &'a Part,
        name: &'static str,
        (send_cq, recv_cq, qp): (CompletionQueue, CompletionQueue, QueuePair),
        connection: Connection,
        exposed: &[Exposed; REGIONS],
    ) -> Self {
        let shares = exposed.map(|exposed| Share::new(part, exposed));
        let window = part.pd.allocate_window(WindowType::TwoB).unwrap();
        let open = window.next_stag().unwrap();
        let mut player = Self {
            part,
            name,
            send_cq,
            recv_cq,
            qp,
            connection,
            window,
            open,
            shares,
            number: 0,
            sent: Vec::new(),
            received: Vec::new(),
            receives: 0,
        };
        player.bind();
        player
    }

    fn bind(&mut self) {
        let region = self.shares[0].region.as_ref().unwrap();
        let bind = Bind {
            window: self.window.stag(),
            new_stag: self.open,
            region: region.lkey(),
            addr: region.base().0 + OPEN.start as u64,
            length: OPEN.len() as u64,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        };
        self.qp.post_send(&SendRequest::bind(0, bind).signaled()).unwrap();
        assert_eq!(next(&self.send_cq).status, WcStatus::Success);
    }

    fn begin(&mut self, renewed: Option<usize>) {
        if let Some(renewed) = renewed {
            self.shares[renewed].register(self.part);
        }
        self.sent.clear();
        self.received.clear();
        self.receives = 0;
    }

    /// A receive for each of the peer's requests that needs one, and for the one behind them.
    fn post_receives(&mut self, requests: &[Request]) {
        let needed = requests.iter().take_while(|it| it.wrong != Some(Wrong::NoReceive));
        let mut count = needed.clone().filter(|request| request.kind.takes_receive()).count();
        count += usize::from(needed.count() == requests.len());
        for at in self.receives..count {
            let sges = [self.part.inbox.sge(at * MESSAGE, MESSAGE)];
            self.qp.post_recv(&RecvRequest::new(at as u64, &sges)).unwrap();
        }
        self.receives = count;
    }

    /// The memory that the peer's request names.
    fn address(&self, request: &Request) -> Address {
        let (stag, base) = self.shares[request.target.region()].at;
        let stag = match request.target {
            Target::Window => self.open,
            Target::Region(_) => stag,
        };
        let stag = if request.wrong == Some(Wrong::Key) { Stag(stag.0 ^ 0x80) } else { stag };
        (stag, base.advanced(request.offset as u64))
    }

    /// `behind`: an empty message goes behind the requests.
    fn post(&mut self, requests: &[Request], at: &[Address], as_list: bool, behind: bool) {
        let sges: Vec<_> = requests.iter().enumerate().map(|it| self.sges(it.0, it.1)).collect();
        let outbox = self.part.outbox.buffer().unwrap();
        let inline: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(i, request)| {
                let mut octets = vec![0; if request.inline { request.len } else { 0 }];
                outbox.read_at(self.place(i), &mut octets);
                octets
            })
            .collect();
        let mut list = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            let payload = match request.inline {
                true => Payload::Inline(&inline[i]),
                false => Payload::Sges(&sges[i]),
            };
            let mut post = SendRequest::new(i as u64, self.op(i, request, at[i]), payload);
            post.fence = request.fence;
            post.signaled = request.signaled || (!behind && i + 1 == requests.len());
            list.push(post);
        }
        if behind {
            list.push(SendRequest::new(LAST, SendOp::SEND, Payload::NONE).signaled());
        }
        if as_list {
            self.qp.post_sends(&list).unwrap();
        } else {
            list.iter().for_each(|request| self.qp.post_send(request).unwrap());
        }
        self.number += requests.len();
    }

    fn place(&self, i: usize) -> usize {
        (self.number + i) * 37 % PLACES
    }

    fn sges(&self, i: usize, request: &Request) -> Vec<Sge> {
        let (region, begin) = match request.kind.is_answered() {
            true => (&self.part.results, i * REGION),
            false => (&self.part.outbox, self.place(i)),
        };
        let cut = |piece| piece * request.len / request.pieces;
        let pieces = (0..request.pieces).map(|piece| (cut(piece), cut(piece + 1)));
        pieces.map(|(from, to)| region.sge(begin + from, to - from)).collect()
    }

    fn op(&self, i: usize, request: &Request, (stag, to): Address) -> SendOp {
        let number = (self.number + i) as u64;
        let data = (number as u32).to_be_bytes();
        let solicited = request.solicited;
        match request.kind {
            Kind::Write => SendOp::Write { stag, to },
            Kind::WriteImmediate => SendOp::WriteImmediate { stag, to, solicited, data },
            Kind::Read => SendOp::Read { stag, to, invalidate: None },
            Kind::Add => {
                let op = AtomicOp::FetchAdd { add: number << 20 | 1, mask: 0 };
                SendOp::Atomic { stag, to, op }
            }
            Kind::Swap => {
                // The words that no one has written are 0.
                let op = AtomicOp::CompareSwap {
                    compare: 0,
                    compare_mask: u64::from(number.is_multiple_of(2)).wrapping_neg(),
                    swap: number,
                    swap_mask: u64::MAX,
                };
                SendOp::Atomic { stag, to, op }
            }
            Kind::Send => {
                // The peer's window, at whose address the request points.
                let invalidate = request.invalidates.then_some(stag);
                SendOp::Send { solicited, invalidate }
            }
            Kind::SendImmediate => SendOp::SendImmediate { solicited, data },
        }
    }

    fn poll(&mut self) {
        self.send_cq.poll(&mut self.sent, 4);
        self.recv_cq.poll(&mut self.received, 4);
    }

    fn has_sent(&self, last: u64) -> bool {
        self.sent.iter().any(|completion| completion.wr_id == last)
    }

    /// Notes the completions of a burst, and what is in memory behind it.
    fn note(&self, side: usize, burst: &Burst, waits: bool, lines: &mut Vec<String>) {
        let name = self.name;
        let requests = &burst.requests[side];
        for done in &self.sent {
            let request = requests.get(done.wr_id as usize);
            if may_differ(burst, requests, waits, done) {
                if requests[done.wr_id as usize].signaled {
                    lines.push(format!("{name} #{} {:?} has ended", done.wr_id, done.op));
                }
                continue;
            }
            let brought = request
                .filter(|request| request.kind.is_answered() && done.status == WcStatus::Success);
            let octets = brought.map_or(0, |request| {
                let mut octets = vec![0; request.len];
                let results = self.part.results.buffer().unwrap();
                results.read_at(done.wr_id as usize * REGION, &mut octets);
                digest(&octets)
            });
            lines.push(format!(
                "{name} #{} {:?} {:?} {} {octets:x}",
                done.wr_id, done.op, done.status, done.byte_len
            ));
        }
        for done in &self.received {
            let mut octets = vec![0; done.byte_len.min(MESSAGE as u32) as usize];
            if done.status == WcStatus::Success && done.op == iwarp::WcOp::Recv {
                self.part
                    .inbox
                    .buffer()
                    .unwrap()
                    .read_at(done.wr_id as usize * MESSAGE, &mut octets);
            }
            lines.push(format!(
                "{name} received {} {:?} {:?} {} {:?} {} {} {:x}",
                done.wr_id,
                done.op,
                done.status,
                done.byte_len,
                done.immediate,
                done.invalidated == Some(self.open),
                done.solicited,
                digest(&octets)
            ));
        }
        // A Write that is refused for what lies behind its region may have been placed in part.
        let in_part = burst.requests[1 - side].iter().find(|it| it.wrong == Some(Wrong::Beyond));
        for (at, share) in self.shares.iter().enumerate() {
            // The library's memory goes with its region.
            if share.region.is_some() || !share.memory.is_empty() {
                let mut contents = share.contents();
                if let Some(refused) = in_part.filter(|refused| refused.target.region() == at) {
                    contents
                        .iter_mut()
                        .skip(refused.offset)
                        .take(refused.len)
                        .for_each(|it| *it = 0);
                }
                lines.push(format!("{name} region {at} {:x}", digest(&contents)));
            }
        }
    }
}

/// True if it is not determined whether the request of a completion succeeds: one without an answer
/// completes when it goes out, or when the peer has taken it in, and the end may come before.
fn may_differ(burst: &Burst, requests: &[Request], waits: bool, done: &WorkCompletion) -> bool {
    let Some(request) = requests.get(done.wr_id as usize) else { return false };
    let is_refused = requests.iter().any(|request| request.wrong.is_some());
    let ends = if waits { burst.leaves.is_some() } else { is_refused };
    let either = matches!(done.status, WcStatus::Success | WcStatus::Flushed);
    ends && either && !request.kind.is_answered()
}

fn digest(octets: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(octets);
    hasher.finish()
}
