// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA: one end of the connections, as a program sees them through verbs.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use iwarp::cm::{self, ConnectParams, Connection, Listener};
use iwarp::{
    Access, Buffer, CompletionChannel, CompletionQueue, Device, LocalPath, MemoryRegion, Options,
    Payload, QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, Stag, TaggedOffset,
    WcStatus, WorkCompletion,
};
use rustix::io::ioctl_fionbio;

use super::crowd::{Crowd, Door};
use super::octets;
use super::patience::{PATIENCE, Patience, wait_for};
use super::task::{Kind, Spec, Transport, Wait};
use super::ways::Ways;

/// iWARP has no RNR: a Send that finds no receive ends the connection. So many receives wait at
/// each end of a connection, and the peer is told as they are posted again.
const RECEIVES: u64 = 4096;
/// Receives that wait at each end where there are many connections.
const FEW_RECEIVES: u64 = 1024;
/// Connections of which each gets [`RECEIVES`].
const FEW_CONNECTIONS: usize = 4;
/// Receives are posted again in lists of so many.
const RECEIVE_LIST: usize = 32;
/// Completions taken at a time.
const BATCH: usize = 64;
/// Work requests for credits, beside the depth.
const SPARE: usize = 32;

/// Offsets in the tail of an inbox, behind the messages: how many of our Sends the peer has room
/// for; the bytes that Atomics change; the old values that they found.
const CREDIT: usize = 0;
const COUNTER: usize = 64;
const FOUND: usize = 128;
const TAIL: usize = 4096;

/// The purpose of a work request, as its completion says it.
const WORK: u64 = 1;
const TOLD: u64 = 2;
const RECEIVED: u64 = 3;

pub(super) const SEND: SendOp = SendOp::SEND;

/// All connections of a contender, with one completion queue.
pub(super) struct Rdma {
    pub(super) ends: Vec<End>,
    cq: CompletionQueue,
    channel: CompletionChannel,
    batch: Vec<WorkCompletion>,
    /// Idle connections on the completion queue above.
    pub(super) crowd: Option<Crowd>,
    device: Device,
}

/// One end of a connection.
pub(super) struct End {
    number: u64,
    qp: QueuePair,
    /// Memory for the peer's messages, with the tail behind them.
    inbox: MemoryRegion,
    /// Memory that is sent, or read by the peer.
    outbox: MemoryRegion,
    /// The bytes that are sent last.
    last: MemoryRegion,
    /// The offset at which the tail of the inboxes begins.
    tail: usize,
    peer: Option<Peer>,
    connection: Option<Connection>,
    /// Work requests of a round that have not completed.
    pub(super) outstanding: usize,
    /// Credits under way.
    telling: usize,
    /// Messages that came and were not waited for yet.
    pub(super) received: u64,
    receives: u64,
    /// Sends since the connection began.
    sends: u64,
    /// Receives used up and not posted again.
    used: usize,
    /// Receives posted again, since the connection began.
    renewed: u64,
    /// Of those, the ones that the peer knows of.
    told: u64,
}

/// The memory of the other end.
#[derive(Clone, Copy)]
struct Peer {
    inbox: (Stag, TaggedOffset),
    outbox: (Stag, TaggedOffset),
    /// The port at which its crowd listens; 0 without one.
    crowd_port: u16,
}

impl Peer {
    fn encode(end: &End, crowd_port: u16) -> Vec<u8> {
        let mut octets = Vec::with_capacity(26);
        for region in [&end.inbox, &end.outbox] {
            octets.extend_from_slice(&region.rkey().0.to_be_bytes());
            octets.extend_from_slice(&region.base().0.to_be_bytes());
        }
        octets.extend_from_slice(&crowd_port.to_be_bytes());
        octets
    }

    fn decode(octets: &[u8]) -> Result<Self> {
        let region = |at: usize| -> Option<(Stag, TaggedOffset)> {
            let stag = u32::from_be_bytes(octets.get(at..at + 4)?.try_into().ok()?);
            let to = u64::from_be_bytes(octets.get(at + 4..at + 12)?.try_into().ok()?);
            Some((Stag(stag), TaggedOffset(to)))
        };
        let peer = || {
            let crowd_port = u16::from_be_bytes(octets.get(24..26)?.try_into().ok()?);
            Some(Self { inbox: region(0)?, outbox: region(12)?, crowd_port })
        };
        peer().context("the peer does not say where its memory is")
    }
}

/// The device of a contender.
pub(super) fn device(spec: &Spec) -> Result<Device> {
    let Transport::Iwarp { crc, markers, local } = spec.transport else { bail!("not RDMA") };
    let local_congestion = spec.congestion.clone();
    let options = Options::from_env()?.crc(crc).markers(markers).local_congestion(local_congestion);
    let path = local.map_or(options.local, LocalPath::from);
    Ok(Device::with_options(options.local(path))?)
}

impl Rdma {
    /// The client's end.
    pub(super) fn connect(spec: &Spec, addr: SocketAddr) -> Result<Self> {
        let device = device(spec)?;
        let mut this = Self::new(spec, &device)?;
        for end in &mut this.ends {
            let connection = cm::connect(&device, addr, &end.qp, &end.params(spec, 0), PATIENCE)
                .with_context(|| format!("cannot connect to {addr}"))?;
            end.connected(connection)?;
        }
        if let Kind::Crowd(idle) = spec.kind {
            let addr = SocketAddr::new(addr.ip(), this.ends[0].peer().crowd_port);
            this.crowd = Some(Crowd::connect(&device, &this.cq, addr, idle)?);
        }
        Ok(this)
    }

    /// The server's end.
    pub(super) fn accept(spec: &Spec, device: &Device, listener: &Listener) -> Result<Self> {
        let mut this = Self::new(spec, device)?;
        let door = match spec.kind {
            Kind::Crowd(idle) => {
                let addr = listener.local_addr().context("the listener has no address")?;
                Some(Door::open(device, addr.ip(), idle)?)
            }
            _ => None,
        };
        let crowd_port = door.as_ref().map_or(0, Door::port);
        for end in &mut this.ends {
            let incoming = listener.accept(Some(PATIENCE))?.context("no RDMA connection came")?;
            let connection = incoming.accept(&end.qp, &end.params(spec, crowd_port))?;
            end.connected(connection)?;
        }
        if let Some(door) = door {
            this.crowd = Some(Crowd::accept(door, device, &this.cq)?);
        }
        Ok(this)
    }

    fn new(spec: &Spec, device: &Device) -> Result<Self> {
        let channel = device.create_comp_channel()?;
        let receives = if spec.connections <= FEW_CONNECTIONS { RECEIVES } else { FEW_RECEIVES };
        let each = receives as usize + spec.max_depth + SPARE;
        let cq = device.create_cq(spec.connections * each, Some(&channel))?;
        let pd = device.alloc_pd();
        let attributes = QueuePairAttributes::new(&cq, &cq)
            .max_send_wr(spec.max_depth + SPARE)
            .max_recv_wr(receives as usize);
        let tail = spec.max_size.next_multiple_of(64);
        let ends = (0..spec.connections as u64).map(|number| {
            let end = End {
                number,
                qp: pd.create_qp(&attributes)?,
                inbox: pd.allocate(tail + TAIL, Access::LOCAL_WRITE | Access::REMOTE)?,
                outbox: pd.allocate(spec.max_size, Access::LOCAL_WRITE | Access::REMOTE_READ)?,
                last: pd.allocate(spec.max_size, Access::LOCAL_WRITE)?,
                tail,
                peer: None,
                connection: None,
                outstanding: 0,
                telling: 0,
                received: 0,
                receives,
                sends: 0,
                used: 0,
                renewed: 0,
                told: 0,
            };
            let sges = [end.inbox.sge(0, spec.max_size)];
            for _ in 0..receives {
                end.qp.post_recv(&RecvRequest::new(end.id(RECEIVED), &sges))?;
            }
            Ok(end)
        });
        let ends = ends.collect::<Result<Vec<End>>>()?;
        let batch = Vec::with_capacity(BATCH);
        Ok(Self { ends, cq, channel, batch, crowd: None, device: device.clone() })
    }

    /// Takes what has completed, moves the connections, and says how many completions there were.
    pub(super) fn poll(&mut self) -> Result<usize> {
        let taken = self.cq.poll(&mut self.batch, BATCH);
        for completion in self.batch.drain(..) {
            let (number, what) = (completion.wr_id >> 32, completion.wr_id as u32);
            let end = &mut self.ends[number as usize];
            if completion.status != WcStatus::Success {
                return Err(end.why(&completion));
            }
            match u64::from(what) & 0xff {
                RECEIVED => end.received()?,
                TOLD => end.telling -= 1,
                _ => end.outstanding -= (what >> 8) as usize,
            }
        }
        Ok(taken)
    }

    /// Waits until `done`. A caller that sleeps has to have armed the queue before.
    pub(super) fn until(&mut self, wait: Wait, mut done: impl FnMut(&[End]) -> bool) -> Result<()> {
        if wait.sleeps() {
            while !done(&self.ends) {
                self.sleep(wait)?;
                self.arm()?;
            }
            return Ok(());
        }
        let mut patience = Patience::default();
        while !done(&self.ends) {
            if self.poll()? == 0 {
                patience.check()?;
            }
        }
        Ok(())
    }

    fn sleep(&mut self, wait: Wait) -> Result<()> {
        if wait == Wait::Events {
            let event = self.channel.wait(Some(PATIENCE))?;
            ensure!(event.is_some(), "no completion event for {PATIENCE:?}");
            return Ok(());
        }
        loop {
            ensure!(wait_for(&self.channel.as_fd(), PATIENCE)?, "no event for {PATIENCE:?}");
            if self.channel.try_next().is_some() {
                return Ok(());
            }
        }
    }

    /// Arms the queue of a caller that sleeps. One that does so in poll(2) takes events without
    /// waiting for them, as event loops do.
    pub(super) fn prepare_to_sleep(&mut self, wait: Wait) -> Result<()> {
        if wait.sleeps() {
            ioctl_fionbio(&self.channel, wait == Wait::Fd)?;
            self.arm()?;
        }
        Ok(())
    }

    /// Counts the messages that have come, and has further ones raise an event.
    pub(super) fn arm(&mut self) -> Result<()> {
        self.cq.request_notify(false);
        while self.poll()? > 0 {}
        Ok(())
    }

    /// Spins until the last of `size` bytes is `mark`, without a call of the library.
    pub(super) fn spin(&self, at: usize, size: usize, mark: u8) -> Result<()> {
        let (end, mut patience) = (&self.ends[at], Patience::default());
        let last = end.last_octet(size);
        while last.load(Ordering::Acquire) != mark {
            if patience.check()? {
                ensure!(end.qp.is_connected(), "the connection has ended");
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Seconds that a poll takes when there is nothing: the median, as every poll may be the one
    /// that lets another thread run.
    pub(super) fn empty_poll(&mut self) -> f64 {
        const POLLS: usize = 20_000;
        let mut times = Vec::with_capacity(POLLS);
        for _ in 0..POLLS {
            let start = Instant::now();
            self.cq.poll(&mut self.batch, BATCH);
            times.push(start.elapsed());
            self.batch.clear();
        }
        times.sort_unstable();
        times[POLLS / 2].as_secs_f64()
    }

    /// The ways that its connections take within the host, idle ones included.
    pub(super) fn all_ways(&self) -> Ways {
        let busy = self.ends.iter().map(|end| Ways::of(&end.qp));
        let idle = self.crowd.as_ref().map(Crowd::ways);
        busy.chain(idle).sum()
    }

    /// Requests so far that this end has carried out by itself in memory of the other process.
    pub(super) fn all_direct(&self) -> u64 {
        self.ends.iter().map(|end| end.qp.direct_reads() + end.qp.direct_writes()).sum()
    }

    /// The reason for which its connections stay with TCP within the host, if it is at this end.
    pub(super) fn path_hindrance(&self) -> Option<&'static str> {
        self.device.local_path_hindrance()
    }

    /// Posts one Send on a connection whose peer has room for it.
    pub(super) fn send(&mut self, at: usize, payload: Payload<'_>) -> Result<()> {
        self.wait_for_credit(at, 1)?;
        let end = &mut self.ends[at];
        let request = end.request(SEND, payload, 1);
        end.qp.post_send(&request)?;
        end.outstanding += 1;
        end.sends += 1;
        Ok(())
    }

    /// Waits until the peer has room for so many Sends more. There is no event for that: it is
    /// polled for, which only many small messages make necessary.
    pub(super) fn wait_for_credit(&mut self, at: usize, sends: u64) -> Result<()> {
        let room = |end: &End| end.sends + sends <= end.receives + end.credit();
        if room(&self.ends[at]) { Ok(()) } else { self.until(Wait::Poll, |ends| room(&ends[at])) }
    }
}

impl End {
    fn id(&self, what: u64) -> u64 {
        self.number << 32 | what
    }

    fn params(&self, spec: &Spec, crowd_port: u16) -> ConnectParams {
        let reads = spec.max_depth.clamp(16, 128) as u16;
        ConnectParams::new().private_data(Peer::encode(self, crowd_port)).ird(reads).ord(reads)
    }

    fn connected(&mut self, connection: Connection) -> Result<()> {
        self.peer = Some(Peer::decode(connection.private_data())?);
        self.connection = Some(connection);
        Ok(())
    }

    fn peer(&self) -> Peer {
        self.peer.expect("an end is connected before it is used")
    }

    /// The peer's inbox, for Writes.
    pub(super) fn write(&self) -> SendOp {
        let (stag, to) = self.peer().inbox;
        SendOp::Write { stag, to }
    }

    /// The peer's outbox, for Reads.
    pub(super) fn read(&self) -> SendOp {
        let (stag, to) = self.peer().outbox;
        SendOp::Read { stag, to, invalidate: None }
    }

    /// The peer's counter, for Atomics.
    pub(super) fn peer_counter(&self) -> (Stag, TaggedOffset) {
        let (stag, to) = self.peer().inbox;
        (stag, to.advanced((self.tail + COUNTER) as u64))
    }

    /// A work request whose completion stands for `n` of them.
    pub(super) fn request<'a>(
        &self,
        op: SendOp,
        payload: Payload<'a>,
        n: usize,
    ) -> SendRequest<'a> {
        let wr_id = self.id((n as u64) << 8 | WORK);
        let mut request = SendRequest::new(wr_id, op, payload);
        request.signaled = n > 0;
        request
    }

    /// Posts work requests, all at once, as those of the round.
    pub(super) fn post(&mut self, requests: &[SendRequest<'_>]) -> Result<()> {
        self.qp.post_sends(requests).map_err(|(_, error)| error)?;
        self.outstanding += requests.len();
        if requests.first().is_some_and(|request| matches!(request.op, SendOp::Send { .. })) {
            self.sends += requests.len() as u64;
        }
        Ok(())
    }

    pub(super) fn outbox(&self) -> &MemoryRegion {
        &self.outbox
    }

    /// The bytes that are sent last.
    pub(super) fn last(&self) -> &MemoryRegion {
        &self.last
    }

    pub(super) fn inbox(&self) -> &MemoryRegion {
        &self.inbox
    }

    /// A byte of the peer's inbox, for a Read.
    pub(super) fn read_back(&self, offset: usize) -> SendOp {
        let (stag, to) = self.peer().inbox;
        SendOp::Read { stag, to: to.advanced(offset as u64), invalidate: None }
    }

    /// The place where such a Read leaves it.
    pub(super) fn found_octet(&self) -> iwarp::Sge {
        // The low one of the value.
        let low = if cfg!(target_endian = "little") { 0 } else { 7 };
        self.inbox.sge(self.tail + FOUND + low, 1)
    }

    /// The place where Atomics leave the old value.
    pub(super) fn found(&self) -> iwarp::Sge {
        self.inbox.sge(self.tail + FOUND, 8)
    }

    /// The value that they found.
    pub(super) fn found_value(&self) -> u64 {
        memory(&self.inbox).atomic_u64(self.tail + FOUND).load(Ordering::Acquire)
    }

    /// The counter that the peer's Atomics change.
    pub(super) fn counter(&self) -> &std::sync::atomic::AtomicU64 {
        memory(&self.inbox).atomic_u64(self.tail + COUNTER)
    }

    /// The last byte of a message in the inbox.
    pub(super) fn last_octet(&self, size: usize) -> &AtomicU8 {
        memory(&self.inbox).atomic_u8(size - 1)
    }

    /// Sends that the peer has posted receives for, beside the first ones.
    fn credit(&self) -> u64 {
        u64::from_be(memory(&self.inbox).atomic_u64(self.tail + CREDIT).load(Ordering::Acquire))
    }

    /// A message came: the receive it took is posted again, and the peer told, in good time.
    fn received(&mut self) -> Result<()> {
        self.received += 1;
        self.used += 1;
        if self.used < RECEIVE_LIST {
            return Ok(());
        }
        let sges = [self.inbox.sge(0, self.tail)];
        let request = RecvRequest::new(self.id(RECEIVED), &sges);
        self.qp.post_recvs(&[request; RECEIVE_LIST]).map_err(|(_, error)| error)?;
        self.used = 0;
        self.renewed += RECEIVE_LIST as u64;
        if self.renewed - self.told >= self.receives / 4 {
            let (stag, to) = self.peer().inbox;
            let op = SendOp::Write { stag, to: to.advanced((self.tail + CREDIT) as u64) };
            let credit = self.renewed.to_be_bytes();
            let payload = Payload::Inline(&credit);
            let wr_id = self.id(TOLD);
            self.qp.post_send(&SendRequest::new(wr_id, op, payload).signaled())?;
            self.telling += 1;
            self.told = self.renewed;
        }
        Ok(())
    }

    fn why(&self, completion: &WorkCompletion) -> anyhow::Error {
        let ended = self.connection.as_ref().and_then(|connection| {
            connection.wait_disconnected(Some(std::time::Duration::from_secs(1)))
        });
        let how = iwarp_kit::ending::how(ended);
        anyhow!("{:?} failed: {:?}; {how}", completion.op, completion.status)
    }
}

/// The memory of a region of this module's.
pub(super) fn memory(region: &MemoryRegion) -> &Buffer {
    region.buffer().expect("the library allocated it")
}

/// Puts a message there.
pub(super) fn put(region: &MemoryRegion, seed: u64, mark: u8, size: usize) {
    let mut octets = vec![0; size];
    octets::fill(seed, mark, &mut octets);
    memory(region).write_at(0, &octets);
}
