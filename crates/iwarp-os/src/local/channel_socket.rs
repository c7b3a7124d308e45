// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages and descriptors between two processes, before they share memory.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::fd::as_fd;
use crate::unix::{SeqListener, SeqSocket};

/// A socket under an abstract name, to which other processes connect. No call waits.
#[derive(Debug)]
pub struct ChannelListener {
    fd: SeqListener,
}

/// A connection that keeps messages apart. No call waits.
#[derive(Debug)]
pub struct ChannelSocket {
    fd: SeqSocket,
}

/// The process at the other end, as the system knows it (`SO_PEERCRED`): when it connected, or
/// began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number; `None` where it has none in our PID namespace.
    pub process: Option<u32>,
    /// Its effective user; mostly 65534 where our user namespace does not know it.
    pub user: u32,
}

impl ChannelListener {
    /// Listens under an abstract name (without its leading zero; 107 bytes at most), for `backlog`
    /// connections that wait.
    ///
    /// # Errors
    ///
    /// `AddrInUse`; shortages.
    pub fn listen(name: &[u8], backlog: u16) -> io::Result<Self> {
        let fd = SeqListener::bind(name)?;
        fd.listen(backlog)?;
        Ok(Self { fd })
    }

    /// Takes a connection that waits.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none does; shortages, where it goes on waiting.
    pub fn accept(&self) -> io::Result<ChannelSocket> {
        Ok(ChannelSocket { fd: self.fd.accept()? })
    }
}

impl ChannelSocket {
    /// Connects to the process that listens under the abstract name.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused`; `WouldBlock` where too many wait already; shortages.
    pub fn connect(name: &[u8]) -> io::Result<Self> {
        Ok(Self { fd: SeqSocket::connect(name)? })
    }

    /// Sends one message, with [`MAX_PASSED`](crate::unix::MAX_PASSED) descriptors at most. It goes
    /// as a whole or not at all.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for no bytes or too many descriptors; `WouldBlock` where the peer does not
    /// read; `BrokenPipe`, `ConnectionReset`.
    pub fn send(&self, message: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
        if message.is_empty() {
            // The peer would take it for the end.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.fd.send(message, passed)
    }

    /// Receives one message, with [`MAX_PASSED`](crate::unix::MAX_PASSED) descriptors at most; 0
    /// bytes are the end.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none has come. `InvalidData` where the message has more bytes than `room`
    /// or more descriptors: it is lost, and its descriptors are closed; also where this process may
    /// have no more descriptors. `ConnectionReset`.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        self.fd.recv_whole(room)
    }

    /// The process at the other end.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn peer(&self) -> io::Result<Credentials> {
        Ok(Credentials { process: self.fd.peer_process(), user: self.fd.peer_user()? })
    }
}

as_fd!(ChannelListener ChannelSocket);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::fd::AsFd;

    use super::*;
    use crate::unix::MAX_PASSED;

    fn pair(of: &str) -> (ChannelListener, ChannelSocket, ChannelSocket) {
        let name = format!("iwarp-os-channel/{}/{of}", std::process::id()).into_bytes();
        let listener = ChannelListener::listen(&name, 4).unwrap();
        let one = ChannelSocket::connect(&name).unwrap();
        let other = listener.accept().unwrap();
        (listener, one, other)
    }

    #[test]
    fn messages_keep_apart_and_descriptors_come_along() {
        let (listener, one, other) = pair("apart");
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let me = Credentials {
            process: Some(std::process::id()),
            user: rustix::process::geteuid().as_raw(),
        };
        assert_eq!([one.peer().unwrap(), other.peer().unwrap()], [me; 2]);
        assert_eq!(other.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
        one.send(b"first", &[listener.as_fd(), one.as_fd()]).unwrap();
        one.send(b"second", &[]).unwrap();
        assert_eq!(one.send(b"", &[]).unwrap_err().kind(), ErrorKind::InvalidInput);
        let mut room = [0; 8];
        let (len, fds) = other.recv(&mut room).unwrap();
        assert_eq!((&room[..len], fds.len()), (&b"first"[..], 2));
        drop(fds);
        let (len, fds) = other.recv(&mut room).unwrap();
        assert_eq!((&room[..len], fds.len()), (&b"second"[..], 0));
        drop(one);
        assert_eq!(other.recv(&mut room).unwrap().0, 0);
    }

    #[test]
    fn a_message_that_is_too_long_is_refused() {
        let (_listener, one, other) = pair("long");
        one.send(b"12345", &[]).unwrap();
        one.send(b"1234", &[]).unwrap();
        assert_eq!(other.recv(&mut [0; 4]).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(other.recv(&mut [0; 4]).unwrap().0, 4);
    }

    #[test]
    fn surplus_descriptors_are_closed() {
        use std::io::{IoSlice, Read};

        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

        let (_listener, one, other) = pair("surplus");
        let (read, write) = rustix::pipe::pipe().unwrap();
        let many = [write.as_fd(); MAX_PASSED + 1];
        assert_eq!(one.send(b"x", &many).unwrap_err().kind(), ErrorKind::InvalidInput);
        let mut space = [std::mem::MaybeUninit::uninit(); 256];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        rustix::net::sendmsg(&one, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())
            .unwrap();
        assert_eq!(other.recv(&mut [0; 4]).unwrap_err().kind(), ErrorKind::InvalidData);
        drop(write);
        // No copy is open anywhere.
        assert_eq!(std::fs::File::from(read).read(&mut [0; 4]).unwrap(), 0);
    }
}
