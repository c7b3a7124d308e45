// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls of the program, which never wait, and what a thread does that waits for another.

use std::any::Any;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use bitflags::bitflags;
use iwarp::cm::Id;
use iwarp::{Access, Look, MemoryRegion};
use iwarp_sockets::stream::{self, Condition, MapError, Readiness, SendError};
use iwarp_sockets::wire::IomapEntry;
use rustix::io::Errno;

use crate::connection::Connection;
use crate::host::{Core, Host};
use crate::listening::Listening;
use crate::settings::Settings;
use crate::shown::{By, Shown, Waited};

/// The family of a socket's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// `AF_INET`
    Ipv4,
    /// `AF_INET6`
    Ipv6,
}

impl Domain {
    /// The address of all interfaces.
    pub(crate) const fn any(self) -> IpAddr {
        match self {
            Self::Ipv4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Self::Ipv6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        }
    }

    pub(crate) const fn has(self, addr: SocketAddr) -> bool {
        addr.is_ipv4() == matches!(self, Self::Ipv4)
    }
}

/// A direction of a connection, for which a thread may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Data, a connection to accept, or the end.
    Read,
    /// So many bytes, or the end.
    ReadAtLeast(usize),
    /// Room for data, or the connection.
    Write,
    /// All that was sent, and the end of it, was handed to the transport.
    Flush,
}

bitflags! {
    /// Properties of a new descriptor.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Flags: u8 {
        /// `SOCK_CLOEXEC`
        const CLOEXEC = 1 << 0;
        /// `SOCK_NONBLOCK`
        const NONBLOCK = 1 << 1;
    }
}

/// A descriptor on which a thread sleeps until it is worth another try. A number, not a borrow:
/// another thread may close the socket meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sleep {
    /// The descriptor.
    pub fd: RawFd,
    /// Wait until it is writable, and not until it is readable.
    pub writable: bool,
}

/// A stream socket over RDMA. All calls but those that say so are for any thread at any time.
///
/// The calls that begin with `try_` never wait: they end with `WouldBlock` where the others do.
#[derive(Clone)]
pub struct Socket {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) host: Arc<Core>,
    pub(crate) domain: Domain,
    pub(crate) itself: Weak<Self>,
    state: Mutex<State>,
}

/// The state of a socket, behind its lock.
pub(crate) struct State {
    pub(crate) phase: Phase,
    /// `None` for a connection that the program has not accepted yet, and behind the close.
    shown: Option<Shown>,
    pub(crate) settings: Settings,
    pub(crate) choices: Choices,
    /// The error that `SO_ERROR` tells.
    pub(crate) error: Option<Errno>,
    /// The thread that sleeps on the connection, and for what.
    sleeper: Option<(ThreadId, Direction)>,
    /// Threads sleep on the descriptor, too.
    has_others: bool,
    /// The socket at which its connection came in.
    pub(crate) parent: Weak<Inner>,
    /// The program has closed it.
    pub(crate) is_closed: bool,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
}

/// The choices of the program for its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choices {
    pub(crate) keepalive: bool,
    pub(crate) share_address: bool,
    pub(crate) ipv6_only: bool,
    pub(crate) traffic_class: Option<u8>,
}

/// The progress of a socket.
pub(crate) enum Phase {
    /// Without an address.
    New,
    Bound(Id),
    Listening(Box<Listening>),
    /// The connection is being made, by this end or by a peer.
    Opening(Box<Connection>),
    Connected(Box<Connection>),
    /// The connection was not made; [`State::error`] says why, until it was told.
    Failed,
    Closed,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("domain", &self.inner.domain).finish_non_exhaustive()
    }
}

impl State {
    pub(crate) fn new(settings: Settings, choices: Choices) -> Self {
        Self {
            phase: Phase::New,
            shown: None,
            settings,
            choices,
            error: None,
            sleeper: None,
            has_others: false,
            parent: Weak::new(),
            is_closed: false,
            local: None,
            peer: None,
        }
    }

    /// The connection, once it is up.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        match &mut self.phase {
            Phase::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    fn condition(&self) -> Condition {
        match &self.phase {
            Phase::New | Phase::Bound(_) => Condition::Unconnected,
            Phase::Listening(listening) => {
                Condition::Listening { waiting: !listening.waiting.is_empty() }
            }
            Phase::Opening(_) => Condition::Connecting,
            Phase::Connected(connection) => match &connection.stream {
                Some(stream) => stream.condition(),
                None => Condition::Connecting,
            },
            Phase::Failed => Condition::Gone { untold: self.error.is_some() },
            Phase::Closed => Condition::Gone { untold: false },
        }
    }

    fn readiness(&self) -> Readiness {
        match self.condition() {
            // Linux says POLLHUP as well, which a descriptor of this kind cannot take back.
            Condition::Unconnected => Readiness { writable: true, ..Readiness::default() },
            condition => condition.readiness(),
        }
    }

    /// True if a call in that direction ends at once.
    fn is_ready(&self, direction: Direction) -> bool {
        let readiness = self.readiness();
        match direction {
            Direction::Read | Direction::ReadAtLeast(_) | Direction::Write if self.is_closed => {
                true
            }
            Direction::Read => readiness.readable || readiness.hangup,
            Direction::ReadAtLeast(bytes) => {
                readiness.read_closed || readiness.hangup || self.readable() >= bytes
            }
            Direction::Write => readiness.writable || readiness.hangup,
            Direction::Flush => match &self.phase {
                Phase::Connected(connection) => {
                    let is_over = |stream: &stream::Stream| {
                        stream.is_flushed() && (!self.is_closed || connection.is_torn_down)
                    };
                    connection.stream.as_ref().is_none_or(is_over)
                }
                _ => true,
            },
        }
    }

    /// Moves the connection. True if data have come.
    fn progress(&mut self) -> bool {
        let Some(connection) = self.connection() else { return false };
        connection.progress();
        connection.stream.as_mut().is_some_and(|stream| stream.wakes().reader)
    }

    /// To be called last, with the lock held: the descriptor shows the readiness, threads that
    /// sleep are woken, and what comes next brings the server.
    pub(crate) fn settle(&mut self, by: By, is_news: bool) {
        if let Some(connection) = self.connection() {
            connection.pump();
            connection.arm();
        }
        let readiness = self.readiness();
        let waited = match self.sleeper {
            Some((_, direction)) if !self.has_others => Waited {
                read: matches!(direction, Direction::Read | Direction::ReadAtLeast(_)),
                write: direction == Direction::Write,
            },
            _ => Waited::default(),
        };
        if let Some(shown) = &mut self.shown {
            shown.show(readiness, by, waited, is_news);
        }
        if let Some((thread, direction)) = self.sleeper
            && thread != thread::current().id()
            && self.is_ready(direction)
            && let Some(connection) = self.connection()
        {
            connection.drive.wake();
        }
    }

    /// Bytes that wait to be received.
    fn readable(&self) -> usize {
        match &self.phase {
            Phase::Connected(connection) => {
                connection.stream.as_ref().map_or(0, stream::Stream::readable)
            }
            _ => 0,
        }
    }

    /// The number of the descriptor.
    fn number(&self) -> io::Result<RawFd> {
        Ok(self.shown.as_ref().ok_or(Errno::BADF)?.pair().number())
    }

    pub(crate) fn attach(&mut self, shown: Shown) {
        self.shown = Some(shown);
    }
}

/// The error of a call for which a connection has to be there.
fn not_connected(phase: &Phase) -> Errno {
    match phase {
        Phase::Opening(_) => Errno::AGAIN,
        Phase::Closed => Errno::BADF,
        _ => Errno::NOTCONN,
    }
}

impl Inner {
    pub(crate) fn new(host: &Arc<Core>, domain: Domain, state: State) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            host: Arc::clone(host),
            domain,
            itself: Weak::clone(itself),
            state: Mutex::new(state),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, of a socket that is not closed.
    fn open(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.lock();
        if state.is_closed { Err(Errno::BADF) } else { Ok(state) }
    }

    /// The socket of an id.
    pub(crate) fn of(id: &Id) -> Option<Arc<Self>> {
        id.context()?.downcast_ref::<Weak<Self>>()?.upgrade()
    }

    /// The context of this socket's ids.
    pub(crate) fn as_context(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::new(Weak::clone(&self.itself))
    }

    /// The server of this socket's connection.
    pub(crate) fn server(&self) -> Arc<dyn Fn() + Send + Sync> {
        let itself = Weak::clone(&self.itself);
        Arc::new(move || {
            if let Some(this) = itself.upgrade() {
                let mut state = this.lock();
                let is_news = state.progress();
                state.settle(By::Event, is_news);
            }
        })
    }
}

impl Socket {
    /// Makes a socket, whose descriptor has the lowest free number.
    ///
    /// # Errors
    ///
    /// When descriptors cannot be made.
    pub fn new(host: &Host, domain: Domain) -> io::Result<Self> {
        Self::with(host, domain, Flags::empty())
    }

    /// As [`Self::new`], with these properties of the descriptor.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn with(host: &Host, domain: Domain, flags: Flags) -> io::Result<Self> {
        let mut state = State::new(host.core.settings.clone(), Choices::default());
        state.attach(shown(flags)?);
        Ok(Self { inner: Inner::new(&host.core, domain, state) })
    }

    /// The number of the descriptor.
    ///
    /// # Errors
    ///
    /// `EBADF` once it is closed.
    pub fn number(&self) -> io::Result<RawFd> {
        self.inner.lock().number()
    }

    /// Binds to a local address; with port 0 the system chooses one.
    ///
    /// # Errors
    ///
    /// `AddrInUse`, `AddrNotAvailable`; `InvalidInput` when it is bound already, or the address is
    /// of another family.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let mut state = self.inner.lock();
        if !matches!(state.phase, Phase::New) || !self.inner.domain.has(addr) {
            return Err(Errno::INVAL.into());
        }
        let id = self.inner.make_id(&state)?;
        id.bind(addr)?;
        state.local = id.local_addr();
        state.phase = Phase::Bound(id);
        Ok(())
    }

    /// The local address; of a socket that has none, the address of all interfaces with port 0.
    ///
    /// # Errors
    ///
    /// `EBADF` once it is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let state = self.inner.lock();
        state.number()?;
        Ok(state.local.unwrap_or_else(|| SocketAddr::new(self.inner.domain.any(), 0)))
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// `NotConnected` before there is a connection, and once it is over (RS-API-22).
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let state = self.inner.lock();
        let is_up =
            matches!(state.condition(), Condition::Connected(_)) && !state.readiness().hangup;
        Ok(state.peer.filter(|_| is_up).ok_or(Errno::NOTCONN)?)
    }

    /// The family of its addresses.
    pub fn domain(&self) -> Domain {
        self.inner.domain
    }

    /// True if connections come in at it.
    pub fn is_listening(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Listening(_))
    }

    /// True if it has, or had, a connection.
    pub fn is_connected(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Connected(_))
    }

    /// The error that waits to be told, once (`SO_ERROR`).
    pub fn take_error(&self) -> Option<io::Error> {
        let mut state = self.inner.lock();
        let error = state.error.take();
        let error = error.or_else(|| state.connection().and_then(Connection::take_error));
        state.settle(By::Call, false);
        error.map(io::Error::from)
    }

    /// Sends bytes, as many as there is room for.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where there is no room for any; `NotConnected`; `BrokenPipe` behind the own end
    /// of sending, or where the peer has closed; `ConnectionReset` the first time after the
    /// connection was lost, then `BrokenPipe`.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_send_vectored(&[IoSlice::new(bytes)], 0)
    }

    /// As [`Self::try_send`], of these parts, without the first `skip` bytes of them.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_send_vectored(&self, parts: &[IoSlice<'_>], skip: usize) -> io::Result<usize> {
        let mut state = self.inner.open()?;
        let result = state.send(parts, skip);
        state.settle(By::Call, false);
        Ok(result?)
    }

    /// Receives bytes, as many as wait and have a place; 0 at the end of the peer's.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none wait; `NotConnected`; `ConnectionReset` the first time after the
    /// connection was lost, and then the end.
    pub fn try_recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.try_recv_vectored(&mut [IoSliceMut::new(bytes)], false)
    }

    /// As [`Self::try_recv`], into these parts; bytes that are only peeked at go on waiting.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_recv_vectored(&self, parts: &mut [IoSliceMut<'_>], peek: bool) -> io::Result<usize> {
        let mut state = self.inner.open()?;
        let result = state.recv(parts, peek);
        state.settle(By::Call, false);
        Ok(result?)
    }

    /// Bytes that wait to be received (`FIONREAD`).
    pub fn readable(&self) -> usize {
        let mut state = self.inner.lock();
        state.progress();
        let readable = state.readable();
        state.settle(By::Call, false);
        readable
    }

    /// Moves what can be moved on the connection, so that the descriptor shows what has come.
    pub fn advance(&self) {
        let mut state = self.inner.lock();
        let is_news = state.progress();
        state.settle(By::Call, is_news);
    }

    /// True if no bytes follow those that wait.
    pub fn is_at_end(&self) -> bool {
        let mut state = self.inner.lock();
        let connection = state.connection();
        let stream = connection.and_then(|connection| connection.stream.as_ref());
        stream.is_none_or(stream::Stream::is_read_over)
    }

    /// True if all that was sent, and the end of it, was handed to the transport.
    pub fn is_flushed(&self) -> bool {
        let mut state = self.inner.lock();
        state.progress();
        state.settle(By::Call, false);
        state.is_ready(Direction::Flush)
    }

    /// Shuts directions down. What was sent before goes out, and then the end of it.
    ///
    /// # Errors
    ///
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => stream::Shutdown::Read,
            Shutdown::Write => stream::Shutdown::Write,
            Shutdown::Both => stream::Shutdown::Both,
        };
        let mut state = self.inner.lock();
        state.progress();
        let error = not_connected(&state.phase);
        let connection = state.connection().ok_or(error)?;
        if let Some(stream) = &mut connection.stream {
            stream.shutdown(how);
        }
        state.settle(By::Call, false);
        Ok(())
    }

    /// Maps memory for the peer to write to (`riomap`): the offset by which the peer names it is
    /// `offset`. The peer is told before the next data (RS-IO-02).
    ///
    /// # Errors
    ///
    /// `OutOfMemory` where the peer's table has no room; `NotConnected`; `InvalidInput` where the
    /// addresses run over.
    pub fn map(
        &self,
        addr: u64,
        len: u32,
        offset: u64,
        register: impl FnOnce(&iwarp::ProtectionDomain, Access) -> io::Result<MemoryRegion>,
    ) -> io::Result<()> {
        let mut state = self.inner.lock();
        state.progress();
        let error = not_connected(&state.phase);
        let place = match &state.phase {
            Phase::Connected(connection) => connection.id.device_place().unwrap_or(0),
            _ => return Err(error.into()),
        };
        let pd = self.inner.host.domain(place)?;
        let memory = register(&pd, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let connection = state.connection().ok_or(error)?;
        let entry = IomapEntry { offset, addr, key: memory.rkey().0, length: len };
        let stream = connection.stream.as_mut().ok_or(error)?;
        stream.map(entry).map_err(|error| match error {
            MapError::Full(_) => Errno::NOMEM,
            MapError::Memory(_) => Errno::INVAL,
            MapError::NotConnected => Errno::NOTCONN,
        })?;
        connection.mapped.push((addr, memory));
        state.settle(By::Call, false);
        Ok(())
    }

    /// Gives up a region that was mapped with exactly these bounds (`riounmap`).
    ///
    /// # Errors
    ///
    /// `InvalidInput` where there is none.
    pub fn unmap(&self, addr: u64, len: u32) -> io::Result<()> {
        let mut state = self.inner.lock();
        let connection = state.connection().ok_or(Errno::INVAL)?;
        let stream = connection.stream.as_mut().ok_or(Errno::INVAL)?;
        let entry = stream.unmap(addr, len).ok_or(Errno::INVAL)?;
        let is_it = |(_, memory): &(u64, MemoryRegion)| memory.rkey().0 == entry.key;
        let place = connection.mapped.iter().position(is_it);
        let memory = place.map(|place| connection.mapped.swap_remove(place));
        drop(state);
        drop(memory);
        Ok(())
    }

    /// Writes to the peer's region at `offset`, as much as there is room for and the region has
    /// (`riowrite`). Goes out in order with what is sent.
    ///
    /// # Errors
    ///
    /// As [`Self::try_send`]. Where nothing is mapped this writes nothing.
    pub fn try_write_mapped(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut state = self.inner.lock();
        state.progress();
        let error = not_connected(&state.phase);
        let result = match state.connection() {
            None => Err(error),
            Some(connection) => match connection.fill_mapped(offset, bytes) {
                Ok(0) if !bytes.is_empty() => Err(Errno::AGAIN),
                Ok(written) => Ok(written),
                Err(SendError::Unmapped) => Ok(0),
                Err(error) => Err(connection.send_error(error)),
            },
        };
        state.settle(By::Call, false);
        Ok(result?)
    }

    /// Prepares the calling thread to wait for `direction`: `None` where there is no need. Otherwise
    /// it sleeps on what this returns, and tries again; [`Self::end_wait`] follows its last try.
    ///
    /// # Errors
    ///
    /// `EBADF` once the socket is closed; errors of waiting, when the system is out of resources.
    pub fn prepare_wait(&self, direction: Direction) -> io::Result<Option<Sleep>> {
        let mut state = self.inner.lock();
        let is_news = state.progress();
        if state.is_ready(direction) {
            state.settle(By::Call, is_news);
            return Ok(None);
        }
        let own = thread::current().id();
        let may_sleep = state.sleeper.is_none_or(|(thread, _)| thread == own);
        let drive = state.connection().map(|connection| Arc::clone(&connection.drive));
        let Some(drive) = drive.filter(|drive| may_sleep && drive.begin_sleep()) else {
            state.has_others |= state.sleeper.is_some();
            state.settle(By::Call, is_news);
            let writable = direction == Direction::Write;
            return Ok(Some(Sleep { fd: state.number()?, writable }));
        };
        state.sleeper = Some((own, direction));
        state.settle(By::Call, is_news);
        loop {
            let look = drive.look()?;
            let is_news = state.progress();
            if state.is_ready(direction) {
                return Ok(None);
            }
            if let Look::Nothing(fd) = look {
                return Ok(Some(Sleep { fd, writable: false }));
            }
            state.settle(By::Call, is_news);
        }
    }

    /// The calling thread waits no more.
    pub fn end_wait(&self) {
        let mut state = self.inner.lock();
        let own = thread::current().id();
        if state.sleeper.is_some_and(|(thread, _)| thread == own) {
            state.sleeper = None;
            if let Some(connection) = state.connection() {
                connection.drive.end_sleep();
            }
        }
        let is_news = state.progress();
        state.settle(By::Call, is_news);
    }

    /// Lets go of the socket: what was sent goes out, then the end; what was received is thrown
    /// away. Wait for [`Direction::Flush`] before the process ends, then [`Self::forget`].
    ///
    /// # Errors
    ///
    /// `EBADF` if it is closed already.
    pub fn begin_close(&self) -> io::Result<()> {
        self.inner.begin_close()
    }

    /// Gives up the number; what is left of the connection goes on without it.
    pub fn forget(&self) {
        let mut state = self.inner.lock();
        let shown = state.shown.take();
        drop(state);
        drop(shown);
    }

    /// The number is another file's by now: it is not closed.
    pub fn disown(&self) {
        let mut state = self.inner.lock();
        let shown = state.shown.take();
        drop(state);
        if let Some(shown) = shown {
            shown.disown();
        }
        self.inner.abort();
    }

    /// Ends the connection with a reset, and the socket (`SO_LINGER` with 0 seconds).
    pub fn abort(&self) {
        self.inner.abort();
    }

    /// The settings of this socket's next connection, to be changed before that is made.
    pub fn settings(&self) -> Settings {
        self.inner.lock().settings.clone()
    }

    /// Changes the settings, those of a listener for connections that come in from now on; false
    /// once there is a connection.
    pub fn set_settings(&self, settings: Settings) -> bool {
        let mut state = self.inner.lock();
        let may = matches!(state.phase, Phase::New | Phase::Bound(_) | Phase::Listening(_));
        if may {
            state.settings = settings;
        }
        may
    }

    /// Has keepalives go out after so much time without traffic, or none.
    pub fn set_keepalive(&self, on: bool) {
        let mut state = self.inner.lock();
        state.choices.keepalive = on;
        let idle = on.then_some(state.settings.keepalive);
        if let Some(connection) = state.connection()
            && let Some(stream) = &mut connection.stream
        {
            stream.set_keepalive(idle);
        }
        state.settle(By::Call, false);
        drop(state);
        self.inner.keep_alive();
    }

    /// Changes the time after which a keepalive goes out.
    pub fn set_keepalive_time(&self, idle: std::time::Duration) {
        let mut state = self.inner.lock();
        state.settings.keepalive = idle;
        let on = state.choices.keepalive;
        drop(state);
        if on {
            self.set_keepalive(true);
        }
    }

    /// Lets other sockets with this choice bind to the same address.
    pub fn set_share_address(&self, share: bool) {
        self.inner.lock().choices.share_address = share;
    }

    /// Keeps IPv4 out of a socket for IPv6.
    pub fn set_ipv6_only(&self, only: bool) {
        self.inner.lock().choices.ipv6_only = only;
    }

    /// Sets the type of service, or traffic class, of connections made from now on.
    pub fn set_traffic_class(&self, class: u8) {
        self.inner.lock().choices.traffic_class = Some(class);
    }

    /// Calls `f` with the descriptor, for watching.
    ///
    /// # Errors
    ///
    /// `EBADF` once it is closed.
    pub fn with_descriptor<T>(&self, f: impl FnOnce(BorrowedFd<'_>) -> T) -> io::Result<T> {
        let state = self.inner.lock();
        let shown = state.shown.as_ref().ok_or(Errno::BADF)?;
        Ok(f(shown.pair().as_fd()))
    }
}

pub(crate) fn shown(flags: Flags) -> io::Result<Shown> {
    Shown::new(flags.contains(Flags::CLOEXEC), flags.contains(Flags::NONBLOCK))
}

impl Connection {
    fn send_error(&mut self, error: SendError) -> Errno {
        match error {
            SendError::Lost => self.take_error().unwrap_or(Errno::PIPE),
            SendError::ShutDown | SendError::PeerClosed | SendError::Unmapped => Errno::PIPE,
        }
    }
}

impl State {
    fn send(&mut self, parts: &[IoSlice<'_>], skip: usize) -> Result<usize, Errno> {
        self.progress();
        let error = self.error.take();
        let missing = match &self.phase {
            // As of a TCP socket that was never connected.
            Phase::New | Phase::Bound(_) | Phase::Listening(_) | Phase::Failed => Errno::PIPE,
            phase => not_connected(phase),
        };
        let connection = self.connection().ok_or(error.unwrap_or(missing))?;
        let wanted = parts.iter().map(|part| part.len()).sum::<usize>().saturating_sub(skip);
        let mut done = 0;
        loop {
            match connection.fill(parts, skip + done) {
                Ok(filled) => done += filled,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(connection.send_error(error)),
            }
            if done == wanted {
                return Ok(done);
            }
            // What goes out at once makes room.
            connection.pump();
            if !connection.progress() {
                return if done > 0 { Ok(done) } else { Err(Errno::AGAIN) };
            }
        }
    }

    fn recv(&mut self, parts: &mut [IoSliceMut<'_>], peek: bool) -> Result<usize, Errno> {
        self.progress();
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let missing = not_connected(&self.phase);
        let connection = self.connection().ok_or(missing)?;
        let done = connection.drain(parts, peek);
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        if done > 0 || wanted == 0 {
            if let Some(shown) = &mut self.shown {
                shown.was_read();
            }
            return Ok(done);
        }
        if let Some(error) = connection.take_error() {
            return Err(error);
        }
        let stream = connection.stream.as_ref();
        if stream.is_none_or(stream::Stream::is_read_over) { Ok(0) } else { Err(Errno::AGAIN) }
    }
}
