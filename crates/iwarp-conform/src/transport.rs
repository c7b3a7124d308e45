// SPDX-License-Identifier: MIT OR Apache-2.0

//! The carrier of a connection's bytes, and the time that its waits go by: TCP and the system's
//! clock, or those of a simulator.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

/// A connected stream of bytes with a clock. No call waits for longer than it is told, by that
/// clock.
pub trait Transport: Debug {
    /// This end and the peer's.
    ///
    /// # Errors
    ///
    /// If the connection is gone already.
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// The time.
    fn now(&self) -> Instant;

    /// Lets time pass.
    fn sleep(&mut self, time: Duration);

    /// Sends all of these bytes.
    ///
    /// # Errors
    ///
    /// If the peer takes them no more.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Receives what comes within `patience`, which is not zero; 0 bytes are the end of the stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock` or `TimedOut` where nothing comes, `ConnectionReset` after a reset.
    fn read(&mut self, room: &mut [u8], patience: Duration) -> io::Result<usize>;

    /// Receives what is there; 0 bytes are the end of the stream.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    fn take(&mut self, room: &mut [u8]) -> io::Result<usize>;

    /// Another connection to this peer.
    ///
    /// # Errors
    ///
    /// `Unsupported` where there can be one only; those of connecting, which takes `patience` at
    /// most.
    fn another(&self, patience: Duration) -> io::Result<Box<dyn Transport>>;

    /// Ends this half of the stream.
    fn close(&mut self);

    /// Makes the end of the connection a reset.
    ///
    /// # Errors
    ///
    /// From the system.
    fn reset(&mut self) -> io::Result<()>;
}

/// TCP, by the system's clock.
#[derive(Debug)]
pub(crate) struct Tcp(TcpStream);

impl Tcp {
    pub(crate) fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self(stream))
    }
}

impl Transport for Tcp {
    fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.0.local_addr()?, self.0.peer_addr()?))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn read(&mut self, room: &mut [u8], patience: Duration) -> io::Result<usize> {
        self.0.set_read_timeout(Some(patience))?;
        self.0.read(room)
    }

    fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.set_nonblocking(true)?;
        let taken = self.0.read(room);
        self.0.set_nonblocking(false)?;
        taken
    }

    fn another(&self, patience: Duration) -> io::Result<Box<dyn Transport>> {
        let stream = TcpStream::connect_timeout(&self.0.peer_addr()?, patience)?;
        Ok(Box::new(Self::new(stream, patience)?))
    }

    fn close(&mut self) {
        // Fails where the connection is gone already.
        let _ = self.0.shutdown(Shutdown::Write);
    }

    fn reset(&mut self) -> io::Result<()> {
        SockRef::from(&self.0).set_linger(Some(Duration::ZERO))
    }
}
