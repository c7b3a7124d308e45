// SPDX-License-Identifier: MIT OR Apache-2.0

//! Vectored sending and receiving on a TCP socket.
//!
//! Calls for sockets only: on a descriptor that the program closed by mistake and that now names
//! one of its files, they fail with `ENOTSOCK`, where `writev` would write into that file.
//! `sendto` and `recvfrom` where there is one part, which is common and spares the kernel the
//! copying of a header and a vector.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::part::{IoPart, IoPartMut};
use crate::socket::TcpSocket;

/// The most parts the kernel takes in one call (`UIO_MAXIOV`).
pub const MAX_PARTS: usize = 1024;

impl TcpSocket {
    /// Sends what the socket takes at once; returns the bytes taken, which may be fewer than
    /// given. `more` says that more follows soon, so that the last segment may wait for it
    /// (`MSG_MORE`): the caller owes a send without it.
    ///
    /// Parts beyond the first [`MAX_PARTS`] are left for the next call. Never waits, never raises
    /// SIGPIPE, and carries on when a signal interrupts it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when the socket's buffer is full; `EFAULT` when the first byte cannot be read,
    /// and nothing was taken (what lies before such a byte is taken alone); `BrokenPipe` or
    /// `ConnectionReset` when the connection is gone; `EBADF`, `ENOTSOCK` when the descriptor is
    /// not ours any more.
    pub fn send(&self, parts: &[IoPart<'_>], more: bool) -> io::Result<usize> {
        order::before_sending();
        let now = &parts[..parts.len().min(MAX_PARTS)];
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, more || now.len() < parts.len());
        if let [part] = now {
            let (fd, base, len) = (self.as_fd().as_raw_fd(), part.as_ptr(), part.len());
            // SAFETY: the maker of the part promises that its bytes may be read for its lifetime.
            return repeated(|| unsafe {
                libc::syscall(libc::SYS_sendto, fd, base, len, flags.bits(), 0usize, 0usize)
            });
        }
        let iov = IoPart::as_io_slices(now);
        Ok(retry_on_intr(|| {
            rustix::net::sendmsg(self, iov, &mut SendAncillaryBuffer::default(), flags)
        })?)
    }

    /// Receives what is there into `parts`, in order; returns the bytes received. Zero means
    /// that the peer has sent its last byte (FIN).
    ///
    /// Parts beyond the first [`MAX_PARTS`] are not used. Never waits, and carries on when a
    /// signal interrupts it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` when nothing is there; `EFAULT` when there is no writing to the first byte's
    /// place, and nothing was taken from the stream; `InvalidInput` when there is no room in
    /// `parts`, which would look like the end of the stream; `ConnectionReset`, `TimedOut` when the
    /// connection is gone; `EBADF`, `ENOTSOCK` when the descriptor is not ours any more.
    pub fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let usable = parts.len().min(MAX_PARTS);
        let now = &mut parts[..usable];
        if now.iter().all(IoPartMut::is_empty) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        if let [part] = now {
            let (fd, base, len) = (self.as_fd().as_raw_fd(), part.as_mut_ptr(), part.len());
            // SAFETY: the maker of the part promises that its bytes may be written for its
            // lifetime; no address is asked for.
            let received = repeated(|| unsafe {
                let flags = RecvFlags::DONTWAIT.bits();
                libc::syscall(libc::SYS_recvfrom, fd, base, len, flags, 0usize, 0usize)
            });
            order::after_receiving();
            return received;
        }
        let iov = IoPartMut::as_io_slices(now);
        let received = retry_on_intr(|| {
            let mut none = RecvAncillaryBuffer::default();
            rustix::net::recvmsg(self, iov, &mut none, RecvFlags::DONTWAIT).map(|got| got.bytes)
        });
        order::after_receiving();
        Ok(received?)
    }
}

/// An act of one end before it sent is ordered before those of the other after it received.
/// ThreadSanitizer has to be told: it sees neither these system calls nor which descriptors are of
/// one connection.
mod order {
    #[cfg(plain_copies)]
    static PASSED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

    pub(super) fn before_sending() {
        #[cfg(plain_copies)]
        PASSED.fetch_add(1, std::sync::atomic::Ordering::Release);
    }

    pub(super) fn after_receiving() {
        #[cfg(plain_copies)]
        PASSED.load(std::sync::atomic::Ordering::Acquire);
    }
}

/// True if a call found the memory of its parts gone, of which nothing was taken or filled then.
pub fn is_bad_address(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

/// Makes a system call until no signal interrupts it; returns the bytes that it transferred.
fn repeated(call: impl Fn() -> libc::c_long) -> io::Result<usize> {
    let octets = retry_on_intr(|| {
        let failed = |_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
        usize::try_from(call()).map_err(failed)
    });
    Ok(octets?)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    use super::*;

    /// A connection whose descriptors are blocking.
    fn blocking_pair() -> (TcpSocket, TcpSocket) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        (OwnedFd::from(client).into(), OwnedFd::from(server).into())
    }

    #[test]
    fn never_waits_even_on_a_blocking_descriptor() {
        let (client, server) = blocking_pair();
        let error = server.recv(&mut [IoPartMut::new(&mut [0; 8])]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let block = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = client.send(&[IoPart::new(&block)], false) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_broken_connection_does_not_kill_the_process() {
        let (client, _server) = blocking_pair();
        client.shutdown_write().unwrap();
        // A socket that is not ours any more, a child has open.
        let client = OwnedFd::from(client);
        // In a child, where SIGPIPE does what it does in a C program (std ignores it).
        let code = crate::fork::in_child_process(|| {
            // SAFETY: sets the default action of a signal, in a child with one thread.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            match TcpSocket::from(client).send(&[IoPart::new(b"x")], false) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
                _ => 1,
            }
        });
        assert_eq!(code, 0);
    }
}
