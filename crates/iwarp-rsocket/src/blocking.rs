// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that wait, and the end of a socket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::cancel::wait_cancellable_for;
use rustix::io::Errno;

use crate::shown::By;
use crate::socket::{Direction, Flags, Inner, Phase, Sleep, Socket};

/// A socket that is dropped waits so long for what it has sent to be handed to the transport.
const PATIENCE: Duration = Duration::from_secs(10);

impl Socket {
    /// Connects to `addr`.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`, `TimedOut`, `NetworkUnreachable`, `HostUnreachable`; `ENOTSUP` where
    /// the peer speaks another version; those of [`Self::try_connect`].
    pub fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        match self.try_connect(addr) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INPROGRESS) => {}
            done => return done,
        }
        self.waiting(Direction::Write, || match self.finish_connect() {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ALREADY) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            done => done,
        })
    }

    /// Waits for a connection that comes in.
    ///
    /// # Errors
    ///
    /// As [`Self::try_accept`].
    pub fn accept(&self) -> io::Result<(Self, SocketAddr)> {
        self.waiting(Direction::Read, || self.try_accept(Flags::empty()))
    }

    /// Waits for bytes: as many as have come and have a place; 0 at the end of the peer's.
    ///
    /// # Errors
    ///
    /// As [`Self::try_recv`].
    pub fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.waiting(Direction::Read, || self.try_recv(bytes))
    }

    /// Sends bytes, as many as there is room for once there is some.
    ///
    /// # Errors
    ///
    /// As [`Self::try_send`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting(Direction::Write, || self.try_send(bytes))
    }

    /// Sends all bytes.
    ///
    /// # Errors
    ///
    /// As [`Self::try_send`]; some bytes may have been sent then.
    pub fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = &bytes[self.send(bytes)?..];
        }
        Ok(())
    }

    /// Calls `attempt` until it does not end with `WouldBlock`, and waits between.
    fn waiting<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut has_slept = false;
        let result = loop {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => break result,
            }
            match self.prepare_wait(direction) {
                Ok(None) => {}
                Ok(Some(sleep)) => {
                    has_slept = true;
                    if let Err(error) = sleep.wait(None) {
                        break Err(error);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if has_slept {
            self.end_wait();
        }
        result
    }

    fn flush(&self, patience: Duration) {
        let until = iwarp_os::clock::now() + patience;
        let mut has_slept = false;
        while let Ok(Some(sleep)) = self.prepare_wait(Direction::Flush) {
            has_slept = true;
            let left = until.saturating_sub(iwarp_os::clock::now());
            if left.is_zero() || sleep.wait(Some(left)).is_err() {
                break;
            }
        }
        if has_slept {
            self.end_wait();
        }
    }

    /// Closes the socket: what was sent goes out, and this waits until the transport has it.
    ///
    /// # Errors
    ///
    /// `EBADF` if it is closed already.
    pub fn close(&self) -> io::Result<()> {
        self.begin_close()?;
        self.flush(PATIENCE);
        self.forget();
        Ok(())
    }
}

impl Sleep {
    /// Sleeps, for that time at most.
    ///
    /// # Errors
    ///
    /// When waiting fails.
    pub fn wait(self, time: Option<Duration>) -> io::Result<()> {
        match wait_cancellable_for(self.fd, self.writable, time) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

impl Inner {
    pub(crate) fn begin_close(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_closed, true) {
            return Err(Errno::BADF.into());
        }
        match std::mem::replace(&mut state.phase, Phase::Closed) {
            Phase::Connected(mut connection) => {
                connection.progress();
                if let Some(stream) = &mut connection.stream {
                    stream.close();
                }
                state.phase = Phase::Connected(connection);
                state.settle(By::Call, true);
                let is_gone = state.connection().is_none_or(|connection| connection.is_gone);
                drop(state);
                if !is_gone {
                    self.host.keep(Arc::clone(self));
                }
            }
            Phase::Listening(listening) => {
                drop(state);
                listening.close();
            }
            Phase::Opening(connection) => {
                drop(state);
                connection.id.close();
            }
            Phase::New | Phase::Bound(_) | Phase::Failed | Phase::Closed => {}
        }
        Ok(())
    }

    /// Ends the connection with a reset.
    pub(crate) fn abort(self: &Arc<Self>) {
        let mut state = self.lock();
        state.is_closed = true;
        let phase = std::mem::replace(&mut state.phase, Phase::Closed);
        state.settle(By::Event, true);
        drop(state);
        match phase {
            Phase::Connected(mut connection) | Phase::Opening(mut connection) => {
                connection.abort();
            }
            Phase::Listening(listening) => listening.close(),
            Phase::New | Phase::Bound(_) | Phase::Failed | Phase::Closed => {}
        }
    }
}
