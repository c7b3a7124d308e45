// SPDX-License-Identifier: MIT OR Apache-2.0

//! The calls of the program, which never wait.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use iwarp::{Access, MemoryRegion};
use iwarp_sockets::stream::{self, Condition, MapError, SendError};
use iwarp_sockets::wire::IomapEntry;
use rustix::io::Errno;

use crate::connection::Connection;
use crate::host::Host;
use crate::settings::Settings;
use crate::shown::By;
use crate::socket::{
    Choices, Direction, Domain, Flags, Inner, Phase, Socket, State, not_connected, shown,
};

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
        self.inner.lock().advance(By::Call);
    }

    /// True if no bytes follow those that wait.
    pub fn is_at_end(&self) -> bool {
        self.inner.lock().stream().is_none_or(stream::Stream::is_read_over)
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
        connection.mapped.push(memory);
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
        let is_it = |memory: &MemoryRegion| memory.rkey().0 == entry.key;
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

    /// Lets other sockets with this choice bind to its address.
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
            // Bytes that go out at once make room.
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
