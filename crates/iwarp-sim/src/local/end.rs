// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end of a program: its device, its memory, and what it has seen.

use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use iwarp::cm::{EventChannel, Id};
use iwarp::port::{Clock, ManualClock, MemoryNetwork, Platform};
use iwarp::{
    Access, AtomicOp, CompletionQueue, Device, LocalPath, MemoryRegion, Options, Payload,
    ProtectionDomain, QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, Stag,
    TaggedOffset, Turns, WcOp, WcStatus, WorkCompletion,
};

use super::program::{Kind, MESSAGE, Part, REGION, REGIONS, REQUESTS, Request, Wrong};
use crate::choice::pattern;

/// The port at which the first end listens; the second listens at the next.
const PORT: u16 = 4791;
/// Octets that memory holds which nothing may change.
const KEPT: u64 = 0x6b65_7074;

/// See the [module](self).
pub(super) struct End {
    // In this order they go.
    pub(super) id: Option<Id>,
    pub(super) qp: QueuePair,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    /// None once it is deregistered for good.
    regions: [Option<MemoryRegion>; REGIONS],
    /// The addresses for the peer, then too.
    at: [(Stag, TaggedOffset); REGIONS],
    outbox: MemoryRegion,
    results: MemoryRegion,
    inbox: MemoryRegion,
    /// In the place of one that was deregistered.
    kept: Option<MemoryRegion>,
    pd: ProtectionDomain,
    _listener: Id,
    pub(super) events: EventChannel,
    device: Device,
    side: usize,
    pub(super) lines: Vec<String>,
    pub(super) ended: Option<String>,
    pub(super) completions: u64,
    // Of this part.
    posted: usize,
    receives: usize,
    sent: Vec<WorkCompletion>,
    received: Vec<(WorkCompletion, u64)>,
    brought: Vec<(u64, u64)>,
}

fn digest(octets: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(octets);
    hasher.finish()
}

fn filled(seed: u64, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    pattern(seed, &mut octets);
    octets
}

fn addr() -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1).into()
}

pub(super) fn listens_at(side: usize) -> SocketAddr {
    SocketAddr::new(addr(), PORT + side as u16)
}

fn digest_at(region: &MemoryRegion, at: usize, len: usize) -> u64 {
    let mut octets = vec![0; len];
    region.buffer().expect("the library's own").read_at(at, &mut octets);
    digest(&octets)
}

impl End {
    pub(super) fn new(
        side: usize,
        options: &Options,
        way: LocalPath,
        network: &MemoryNetwork,
        clock: &ManualClock,
    ) -> (Self, Turns) {
        let platform = Platform {
            network: network.host(addr()),
            clock: Clock::from(clock.clone()),
            datagrams: None,
        };
        let (device, turns) =
            Device::turned(options.clone().local(way), platform).expect("a device can be opened");
        let [send_cq, recv_cq] =
            [(); 2].map(|()| device.create_cq(4 * REQUESTS, None).expect("descriptors"));
        let events = EventChannel::new(&device).expect("descriptors");
        let listener = Id::new(&events).expect("an id");
        listener.bind(listens_at(side)).expect("a free port");
        listener.listen(4).expect("a free port");
        let pd = device.alloc_pd();
        let attributes = QueuePairAttributes::new(&send_cq, &recv_cq);
        let qp = pd
            .create_qp(&attributes.max_send_wr(REQUESTS + 1).max_recv_wr(REQUESTS + 1))
            .expect("a queue pair");
        let local = |len| pd.allocate(len, Access::LOCAL_WRITE).expect("memory");
        let (outbox, results, inbox) =
            (local(REQUESTS * (MESSAGE + 1)), local(REQUESTS * MESSAGE), local(REQUESTS * MESSAGE));
        let mut end = Self {
            id: None,
            qp,
            send_cq,
            recv_cq,
            regions: [None, None],
            at: [(Stag(0), TaggedOffset(0)); REGIONS],
            outbox,
            results,
            inbox,
            kept: None,
            pd,
            _listener: listener,
            events,
            device,
            side,
            lines: Vec::new(),
            ended: None,
            completions: 0,
            posted: 0,
            receives: 0,
            sent: Vec::new(),
            received: Vec::new(),
            brought: Vec::new(),
        };
        (0..REGIONS).for_each(|region| end.register(region));
        (end, turns)
    }

    /// Registers a region, in place of the one that there is; its contents stay.
    pub(super) fn register(&mut self, which: usize) {
        let all = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let contents = match self.regions[which].take() {
            Some(before) => before.buffer().expect("the library's own").to_vec(),
            None => filled(self.side as u64 * 2 + which as u64, REGION),
        };
        // STags are random, and two whose indices are alike displace each other where an end keeps
        // few of them: a seed would not repeat itself.
        let region = loop {
            let region = self.pd.allocate(REGION, all).expect("memory");
            if (region.rkey().0 >> 8) as usize % REGIONS == which {
                break region;
            }
        };
        region.buffer().expect("the library's own").write_at(0, &contents);
        self.at[which] = (region.rkey(), region.base());
        self.regions[which] = Some(region);
    }

    /// Deregisters a region for good, and has other use for its memory.
    pub(super) fn withdraw(&mut self, which: usize) {
        drop(self.regions[which].take());
        let kept = self.pd.allocate(REGION, Access::LOCAL_WRITE).expect("memory");
        kept.buffer().expect("the library's own").write_at(0, &filled(KEPT, REGION));
        self.kept = Some(kept);
    }

    /// True unless something has changed memory that no peer may reach.
    pub(super) fn is_kept(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_none_or(|kept| digest_at(kept, 0, REGION) == digest(&filled(KEPT, REGION)))
    }

    pub(super) fn begin_part(&mut self) {
        (self.posted, self.receives) = (0, 0);
        self.sent.clear();
        self.received.clear();
        self.brought.clear();
    }

    pub(super) const fn posted(&self) -> usize {
        self.posted
    }

    pub(super) const fn receives(&self) -> usize {
        self.receives
    }

    pub(super) fn address(&self, request: &Request) -> (Stag, TaggedOffset) {
        let (stag, base) = self.at[request.region];
        let stag = if request.wrong == Some(Wrong::Key) { Stag(stag.0 ^ 0x80) } else { stag };
        (stag, base.advanced(request.offset as u64))
    }

    pub(super) fn post_receive(&mut self) -> Result<(), String> {
        let at = self.receives;
        let sges = [self.inbox.sge(at * MESSAGE, MESSAGE)];
        self.receives += 1;
        let posted = self.qp.post_recv(&RecvRequest::new(at as u64, &sges));
        posted.map_err(|error| format!("a receive is refused: {error}"))
    }

    /// Posts the next requests of the part, of which the peer's memory is at `to`.
    pub(super) fn post(
        &mut self,
        requests: &[Request],
        to: &[(Stag, TaggedOffset)],
    ) -> Result<(), String> {
        let first = self.posted;
        // Before the call: it may complete them.
        self.posted += requests.len();
        let octets: Vec<_> =
            requests.iter().map(|request| filled(request.seed, request.len)).collect();
        let outbox = self.outbox.buffer().expect("the library's own");
        let mut sges = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            let slot = first + i;
            sges.push([if request.kind.is_answered() {
                self.results.sge(slot * MESSAGE, request.len)
            } else {
                outbox.write_at(slot * (MESSAGE + 1), &octets[i]);
                self.outbox.sge(slot * (MESSAGE + 1), request.len)
            }]);
        }
        let mut list = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            let payload = match request {
                Request { inline: true, .. } => Payload::Inline(&octets[i]),
                Request { kind: Kind::Immediate, .. } => Payload::Sges(&[]),
                _ => Payload::Sges(&sges[i]),
            };
            let mut post = SendRequest::new((first + i) as u64, op(request, to[i]), payload);
            (post.signaled, post.fence) = (request.signaled, request.fence);
            list.push(post);
        }
        let posted = match &list[..] {
            [one] => self.qp.post_send(one).map_err(|error| error.to_string()),
            list => self.qp.post_sends(list).map_err(|(at, error)| format!("{at}: {error}")),
        };
        posted.map_err(|error| format!("a request is refused: {error}"))
    }

    /// Takes completions, and overwrites what the requests that are done were sent from.
    pub(super) fn poll(&mut self, requests: &[Request], max: usize) -> Result<usize, String> {
        let mut found = Vec::new();
        self.send_cq.poll(&mut found, max);
        for wc in &found {
            let request = requests.get(wc.wr_id as usize).ok_or("a completion of no request")?;
            let slot = wc.wr_id as usize;
            if wc.status == WcStatus::Success && request.kind.is_answered() {
                let brought = digest_at(&self.results, slot * MESSAGE, request.len);
                self.brought.push((wc.wr_id, brought));
            }
            let outbox = self.outbox.buffer().expect("the library's own");
            for done in 0..=slot {
                outbox.write_at(done * (MESSAGE + 1), &[0xee; 64]);
            }
        }
        let sends = found.len();
        self.sent.append(&mut found);
        self.recv_cq.poll(&mut found, max);
        for wc in &found {
            let is_there = wc.status == WcStatus::Success && wc.op == WcOp::Recv;
            let len = if is_there { wc.byte_len as usize } else { 0 };
            let octets = digest_at(&self.inbox, wc.wr_id as usize * MESSAGE, len);
            self.received.push((*wc, octets));
        }
        self.completions += (sends + found.len()) as u64;
        Ok(sends + found.len())
    }

    /// True if all of the part has come to this end.
    pub(super) fn is_done(&self, part: &Part) -> bool {
        let own = &part.requests[self.side];
        let needed = part.requests[1 - self.side].iter();
        let needed = needed.filter(|request| request.kind.takes_receive()).count();
        let has_sent =
            own.is_empty() || self.sent.iter().any(|wc| wc.wr_id as usize + 1 == own.len());
        self.posted == own.len() && has_sent && self.received.len() == needed
    }

    /// True if nothing is left that has to complete.
    pub(super) fn is_over(&self, part: &Part) -> bool {
        let own = &part.requests[self.side][..self.posted];
        let due = own.iter().filter(|request| request.signaled).count();
        let came = |id: usize| self.sent.iter().any(|wc| wc.wr_id as usize == id);
        let is_last = (0..own.len()).filter(|id| own[*id].signaled && came(*id)).count() == due;
        is_last && self.received.len() == self.receives
    }

    /// Success comes before all failures, at either queue.
    pub(super) fn judge_ending(&self) -> Result<(), String> {
        let sent: Vec<_> = self.sent.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        let received: Vec<_> = self.received.iter().map(|(wc, _)| (wc.wr_id, wc.status)).collect();
        for all in [sent, received] {
            let failed = all.iter().position(|(_, status)| *status != WcStatus::Success);
            let is_mixed =
                failed.is_some_and(|at| all[at..].iter().any(|it| it.1 == WcStatus::Success));
            if is_mixed || !all.is_sorted_by(|one, other| one.0 < other.0) {
                return Err(format!("completions out of order: {all:?}"));
            }
        }
        Ok(())
    }

    /// Messages of the peer's that came are the first ones that it posted, each as it was.
    pub(super) fn judge_messages(&self, part: &Part) -> Result<(), String> {
        let messages = part.requests[1 - self.side].iter().filter(|it| it.kind.takes_receive());
        for ((wc, octets), sent) in self.received.iter().zip(messages) {
            if wc.status != WcStatus::Success {
                break;
            }
            let len = if sent.kind == Kind::Immediate { 8 } else { sent.len };
            let is_other = wc.op == WcOp::Recv && *octets != digest(&filled(sent.seed, sent.len));
            if wc.byte_len as usize != len || is_other {
                return Err(format!("{wc:?} is not {sent:?}"));
            }
        }
        Ok(())
    }

    /// Completions of its requests from that one on are not compared.
    pub(super) fn forget_sent_from(&mut self, first: usize) {
        self.sent.retain(|wc| (wc.wr_id as usize) < first);
    }

    /// Notes what this part has shown.
    pub(super) fn note(&mut self, number: usize) {
        self.lines.push(format!("part {number}"));
        for wc in &self.sent {
            self.lines.push(match wc.status {
                WcStatus::Success => format!("{} {:?} of {}", wc.wr_id, wc.op, wc.byte_len),
                status => format!("{} {status:?}", wc.wr_id),
            });
        }
        for (id, octets) in &self.brought {
            self.lines.push(format!("{id} brought {octets:x}"));
        }
        for (wc, octets) in &self.received {
            let WorkCompletion { wr_id, op, byte_len, immediate, solicited, .. } = wc;
            self.lines.push(match wc.status {
                WcStatus::Success => format!(
                    "receive {wr_id}: {op:?} of {byte_len}, {immediate:?}, {solicited}, {octets:x}"
                ),
                status => format!("receive {wr_id}: {status:?}"),
            });
        }
        for region in self.regions.iter().flatten() {
            self.lines.push(format!("memory {:x}", digest_at(region, 0, REGION)));
        }
    }

    /// For a failure.
    pub(super) fn describe(&self) -> String {
        let Self { posted, receives, sent, received, ended, qp, .. } = self;
        let (state, path) = (qp.state(), qp.local_path());
        format!(
            "{state:?} by {path:?}: {posted} posted, {} of them told, {receives} receives, {} of \
             them used, ended {ended:?}",
            sent.len(),
            received.len()
        )
    }

    /// Requests that this end has carried out by itself.
    pub(super) fn direct(&self) -> u64 {
        self.qp.direct_reads() + self.qp.direct_writes()
    }

    pub(super) fn connections(&self) -> usize {
        self.device.connections()
    }
}

/// The operation that a request is.
fn op(request: &Request, (stag, to): (Stag, TaggedOffset)) -> SendOp {
    let solicited = request.solicited;
    let data: [u8; 4] = (request.seed as u32).to_be_bytes();
    let add = request.seed >> 40;
    match request.kind {
        Kind::Write => SendOp::Write { stag, to },
        Kind::WriteImmediate => SendOp::WriteImmediate { stag, to, solicited, data },
        Kind::Read => SendOp::Read { stag, to, invalidate: None },
        Kind::Add => SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add, mask: 0 } },
        Kind::Swap => {
            // Of counters that hold anything it exchanges some.
            let op = AtomicOp::CompareSwap {
                compare: 0,
                compare_mask: 0xff,
                swap: request.seed,
                swap_mask: u64::MAX,
            };
            SendOp::Atomic { stag, to, op }
        }
        Kind::Send => SendOp::Send { solicited, invalidate: None },
        Kind::SendImmediate => SendOp::SendImmediate { solicited, data },
        Kind::Immediate => SendOp::Immediate { solicited, data: request.seed.to_be_bytes() },
    }
}
