// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection: the queue pair of a stream, its memory, and the driver of its protocol.
//!
//! The protocol decides what is posted and when; this posts it, and hands over what completes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

use iwarp::cm::{ConnectParams, Id};
use iwarp::drive::Drive;
use iwarp::verbs::RegisterError;
use iwarp::{
    Access, Buffer, MemoryRegion, Payload, PostError, ProtectionDomain, QueuePair,
    QueuePairAttributes, RecvRequest, SendOp, SendRequest, Sge, Stag, TaggedOffset, WcOp, WcStatus,
    WorkCompletion,
};
use iwarp_os::clock;
use iwarp_sockets::stream::{
    Action, Arrival, Config, Failure, Memory, Operation, Request, Source, Stream, Table, Wire,
};
use iwarp_sockets::wire::{
    ByteOrder, ConnData, IOMAP_ENTRY_LEN, IOMAP_OFFSET, IomapSize, MESSAGE_LEN, SGL_ENTRY_LEN,
};
use iwarp_types::Time;
use rustix::io::Errno;

use crate::settings::Settings;

/// Set in the numbers of receives, which share the completion queue with the requests.
const RECEIVE: u64 = 1 << 63;
/// Requests that are posted together, at most.
const TOGETHER: usize = 8;
/// Parts of a Write from a circular buffer.
const PARTS: usize = 2;

/// See the [module](self).
pub(crate) struct Connection {
    pub(crate) id: Id,
    /// Before what it uses.
    qp: QueuePair,
    pub(crate) drive: Arc<Drive>,
    buffer: Region,
    ring: Region,
    table: Region,
    inbox: Region,
    /// Places in the inbox without a receive.
    places: VecDeque<u32>,
    config: Config,
    /// The private data of the peer that has asked for the connection.
    pub(crate) requested: Option<ConnData>,
    /// `None` until the private data of both ends are known.
    pub(crate) stream: Option<Stream>,
    /// Regions that the program has mapped for the peer.
    pub(crate) mapped: Vec<MemoryRegion>,
    to_post: Vec<Request>,
    /// The protocol has ended, and the queue pair is being torn down.
    pub(crate) is_torn_down: bool,
    /// The connection manager has said that it is over.
    pub(crate) is_gone: bool,
    /// A completion brings the server, or wakes the thread that sleeps, and none was looked for
    /// since.
    is_armed: bool,
}

/// Memory of the library's that is registered.
struct Region {
    memory: MemoryRegion,
    buffer: Arc<Buffer>,
}

impl Region {
    fn new(pd: &ProtectionDomain, len: usize, access: Access) -> io::Result<Self> {
        let buffer = Arc::new(Buffer::try_new(len).map_err(|_| Errno::NOMEM)?);
        let memory = pd.register(Arc::clone(&buffer), access).map_err(|error| match error {
            RegisterError::Exhausted | RegisterError::OutOfMemory => io::Error::from(Errno::NOMEM),
            error => io::Error::other(error),
        })?;
        Ok(Self { memory, buffer })
    }

    fn for_peer(&self) -> Memory {
        Memory { addr: self.memory.base().0, key: self.memory.rkey().0 }
    }
}

/// The table that the peer writes, as the protocol reads it.
struct TableOf<'a>(&'a Buffer);

impl Table for TableOf<'_> {
    fn take_sgl_entry(&mut self, index: u32) -> [u8; SGL_ENTRY_LEN] {
        let at = index as usize * SGL_ENTRY_LEN;
        let mut entry = [0; SGL_ENTRY_LEN];
        self.0.read_at(at, &mut entry);
        self.0.write_at(at, &[0; SGL_ENTRY_LEN]);
        entry
    }

    fn iomap_entry(&mut self, index: u32) -> [u8; IOMAP_ENTRY_LEN] {
        let mut entry = [0; IOMAP_ENTRY_LEN];
        self.0.read_at(IOMAP_OFFSET as usize + index as usize * IOMAP_ENTRY_LEN, &mut entry);
        entry
    }
}

pub(crate) fn now() -> Time {
    Time(clock::now())
}

impl Connection {
    /// The queue pair and the memory, with receives posted: not connected yet. The worker calls
    /// `serve` when something has completed.
    pub(crate) fn new(
        pd: &ProtectionDomain,
        id: Id,
        settings: &Settings,
        serve: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let wire = if id.speaks_roce() { Wire::InfiniBand } else { Wire::Iwarp };
        let half = (settings.receive_buffer / 2).max(1);
        let iomap = IomapSize::covering(settings.iomap as usize);
        let nothing = Memory { addr: 0, key: 0 };
        let mut config = Config {
            wire,
            immediates: true,
            order: ByteOrder::HOST,
            receive_queue: settings.receive_queue.max(1),
            send_queue: usize::from(settings.send_queue).max(Config::MIN_SEND_QUEUE),
            send_buffer: settings.send_buffer.max(1) as usize,
            sgl: nothing,
            ring: nothing,
            half,
            iomap,
            keepalive: None,
        };
        let receives = config.receives() as usize;
        let drive = Arc::new(Drive::served(pd, config.send_queue + receives, serve)?);
        let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let ring = Region::new(pd, config.ring_len(), written)?;
        let table = Region::new(pd, config.table_len(), written)?;
        let inbox = Region::new(pd, receives * MESSAGE_LEN, Access::LOCAL_WRITE)?;
        let buffer = Region::new(pd, config.send_buffer, Access::LOCAL_READ)?;
        (config.ring, config.sgl) = (ring.for_peer(), table.for_peer());
        let attributes = QueuePairAttributes::new(drive.cq(), drive.cq())
            .max_send_wr(config.send_queue)
            .max_recv_wr(receives)
            .max_send_sge(PARTS)
            .max_recv_sge(1)
            .max_inline(IOMAP_ENTRY_LEN);
        let qp = pd.create_qp(&attributes)?;
        let mut this = Self {
            id,
            qp,
            drive,
            buffer,
            ring,
            table,
            inbox,
            places: (0..receives as u32).collect(),
            config,
            requested: None,
            stream: None,
            mapped: Vec::new(),
            to_post: Vec::with_capacity(TOGETHER),
            is_torn_down: false,
            is_gone: false,
            is_armed: false,
        };
        this.post_receives(receives as u32).map_err(io::Error::other)?;
        Ok(this)
    }

    /// The parameters of its request or reply (RS-WIRE-08).
    pub(crate) fn params(&self) -> ConnectParams {
        let private_data = self.config.conn_data().write().to_vec();
        ConnectParams::new().private_data(private_data).ird(1).ord(1)
    }

    pub(crate) fn connect(&self) -> io::Result<()> {
        self.id.connect(&self.qp, &self.params())
    }

    pub(crate) fn accept(&self) -> io::Result<()> {
        self.id.accept(&self.qp, &self.params())
    }

    /// The connection is up; the peer has said this.
    ///
    /// # Errors
    ///
    /// If no stream works with that.
    pub(crate) fn begin(
        &mut self,
        peer: &ConnData,
        keepalive: Option<Duration>,
    ) -> Result<(), Errno> {
        self.config.keepalive = keepalive;
        let stream = Stream::new(self.config.clone(), peer, now());
        self.stream = Some(stream.map_err(|error| {
            tracing::warn!("an rsocket's peer has private data that no stream works with: {error}");
            Errno::PROTO
        })?);
        Ok(())
    }

    /// Moves the connection, hands what has completed to the protocol, and posts what that wants.
    /// True if something has completed.
    pub(crate) fn progress(&mut self) -> bool {
        let (mut any, drive) = (false, Arc::clone(&self.drive));
        // A look at the connection is a lease of it, which arming ends.
        self.is_armed = false;
        loop {
            let moved = drive.collect(|completion| self.completed(&completion));
            self.pump();
            if !moved {
                return any;
            }
            any = true;
        }
    }

    /// Has what completes from now on bring the server, or wake the thread that sleeps.
    pub(crate) fn arm(&mut self) {
        while !self.is_armed {
            self.is_armed = true;
            if self.drive.arm() {
                self.progress();
            }
        }
    }

    fn completed(&mut self, completion: &WorkCompletion) {
        let Self { stream, inbox, table, places, .. } = self;
        let WorkCompletion { wr_id, status, op, byte_len, immediate, .. } = *completion;
        let place = (wr_id & !RECEIVE) as u32;
        if wr_id & RECEIVE != 0 {
            places.push_back(place);
        }
        let Some(stream) = stream else { return };
        if status != WcStatus::Success {
            // Behind the end of the protocol requests are flushed.
            if !self.is_torn_down {
                tracing::debug!("a request of an rsocket failed: {status:?}");
                stream.lost();
            }
        } else if wr_id & RECEIVE == 0 {
            stream.completed(wr_id);
        } else {
            let mut message = [0; MESSAGE_LEN];
            let arrival = match (op, immediate) {
                (WcOp::RecvImmediate | WcOp::RecvWriteImmediate, Some([a, b, c, d, ..])) => {
                    Arrival::Immediate([a, b, c, d])
                }
                _ => {
                    inbox.buffer.read_at(place as usize * MESSAGE_LEN, &mut message);
                    Arrival::Send(&message[..(byte_len as usize).min(MESSAGE_LEN)])
                }
            };
            if let Err(violation) = stream.received(arrival, &mut TableOf(&table.buffer)) {
                tracing::warn!("an rsocket's connection ends: {violation}");
            }
        }
    }

    /// Posts what the protocol wants posted.
    pub(crate) fn pump(&mut self) {
        let now = now();
        loop {
            let Some(stream) = &mut self.stream else { return };
            match stream.poll(now) {
                Some(Action::Post(request)) => {
                    self.to_post.push(request);
                    if self.to_post.len() == TOGETHER {
                        self.post();
                    }
                }
                Some(Action::PostReceives(count)) => {
                    if self.post_receives(count).is_err() {
                        self.lost();
                    }
                }
                Some(Action::Disconnect) => {
                    self.post();
                    self.is_torn_down = true;
                    self.id.disconnect();
                }
                None if self.to_post.is_empty() => return,
                None => self.post(),
            }
        }
    }

    fn lost(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.lost();
        }
    }

    /// The connection is gone: what has come before counts.
    pub(crate) fn disconnected(&mut self) {
        self.is_gone = true;
        self.progress();
        self.lost();
        self.pump();
    }

    fn post_receives(&mut self, count: u32) -> Result<(), PostError> {
        for _ in 0..count {
            let Some(place) = self.places.pop_front() else { return Ok(()) };
            let sge = self.inbox.memory.sge(place as usize * MESSAGE_LEN, MESSAGE_LEN);
            self.qp.post_recv(&RecvRequest::new(RECEIVE | u64::from(place), &[sge]))?;
        }
        Ok(())
    }

    /// Posts the requests that were gathered.
    fn post(&mut self) {
        let mut requests = std::mem::take(&mut self.to_post);
        if !requests.is_empty() {
            let posted = self.post_all(&requests);
            if let Err(error) = posted {
                tracing::debug!("a request of an rsocket cannot be posted: {error}");
                self.lost();
            }
        }
        requests.clear();
        self.to_post = requests;
    }

    fn post_all(&self, requests: &[Request]) -> Result<(), PostError> {
        let nothing = Sge { addr: 0, length: 0, lkey: Stag(0) };
        let mut lists = [([nothing; PARTS], 0); TOGETHER];
        for (request, (list, len)) in requests.iter().zip(&mut lists) {
            if let Operation::Write { source: Source::Buffer(spans), .. } = &request.operation {
                for (part, sge) in spans.iter().zip(list.iter_mut()) {
                    *sge = self.buffer.memory.sge(part.start, part.len());
                    *len += 1;
                }
            }
        }
        let mut posts = [SendRequest::new(0, SendOp::SEND, Payload::NONE); TOGETHER];
        for ((request, (list, len)), post) in requests.iter().zip(&lists).zip(&mut posts) {
            *post = self.as_post(request, &list[..*len]);
            post.signaled = request.signaled;
        }
        self.qp.post_sends(&posts[..requests.len()]).map_err(|(_, error)| error)
    }

    fn as_post<'a>(&self, request: &'a Request, list: &'a [Sge]) -> SendRequest<'a> {
        let Request { id, operation, .. } = request;
        match operation {
            Operation::Send(message) => SendRequest::send(*id, Payload::Inline(message)),
            Operation::Write { source, addr, key, immediate } => {
                let payload = match source {
                    Source::Buffer(_) => Payload::Sges(list),
                    Source::Inline(entry) => Payload::Inline(entry.octets()),
                    Source::Empty => Payload::NONE,
                };
                let (stag, to) = (Stag(*key), TaggedOffset(*addr));
                let op = match *immediate {
                    None => SendOp::Write { stag, to },
                    // By itself it needs no Write in front, where the wire has such a message.
                    Some([a, b, c, d])
                        if *source == Source::Empty && self.config.wire == Wire::Iwarp =>
                    {
                        SendOp::Immediate { solicited: false, data: [a, b, c, d, 0, 0, 0, 0] }
                    }
                    Some(data) => SendOp::WriteImmediate { stag, to, solicited: false, data },
                };
                SendRequest::new(*id, op, payload)
            }
        }
    }

    /// Copies from the program into the send buffer: as much as there is room for.
    pub(crate) fn fill(
        &mut self,
        parts: &[IoSlice<'_>],
        mut skip: usize,
    ) -> Result<usize, iwarp_sockets::stream::SendError> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let mut done = 0;
        for part in parts {
            let skipped = skip.min(part.len());
            skip -= skipped;
            let mut rest = &part[skipped..];
            while !rest.is_empty() {
                let spans = stream.send_space(rest.len())?;
                if spans.is_empty() {
                    return Ok(done);
                }
                for span in spans.iter() {
                    let (piece, behind) = rest.split_at(span.len());
                    self.buffer.buffer.write_at(span.start, piece);
                    rest = behind;
                }
                stream.sent(spans.len())?;
                done += spans.len();
            }
        }
        Ok(done)
    }

    /// Copies to the program what waits in the ring, and leaves it there if it only peeks.
    pub(crate) fn drain(&mut self, parts: &mut [IoSliceMut<'_>], peek: bool) -> usize {
        let Some(stream) = &mut self.stream else { return 0 };
        let wanted = parts.iter().map(|part| part.len()).sum();
        let spans = stream.receive_space(wanted);
        let mut spans_left = spans.iter();
        let mut span = spans_left.next().unwrap_or(0..0);
        let mut done = 0;
        'all: for part in parts {
            let mut at = 0;
            while at < part.len() {
                if span.is_empty() {
                    let Some(next) = spans_left.next() else { break 'all };
                    span = next;
                }
                let len = span.len().min(part.len() - at);
                self.ring.buffer.read_at(span.start, &mut part[at..at + len]);
                span.start += len;
                at += len;
                done += len;
            }
        }
        if !peek {
            stream.taken(done);
        }
        done
    }

    /// Copies from the program into the send buffer, for a region of the peer's.
    pub(crate) fn fill_mapped(
        &mut self,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, iwarp_sockets::stream::SendError> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let spans = stream.write_space(offset, bytes.len())?;
        let mut rest = bytes;
        for span in spans.iter() {
            let (piece, behind) = rest.split_at(span.len());
            self.buffer.buffer.write_at(span.start, piece);
            rest = behind;
        }
        stream.wrote(offset, spans.len())?;
        Ok(spans.len())
    }

    /// The error of the connection, the first time.
    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        Some(match self.stream.as_mut()?.take_error()? {
            Failure::Reset => Errno::CONNRESET,
            Failure::Violation(_) => Errno::IO,
        })
    }

    /// Ends it with a reset.
    pub(crate) fn abort(&mut self) {
        self.is_torn_down = true;
        self.qp.abort();
        self.id.close();
    }
}
