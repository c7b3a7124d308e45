// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages between processes of one host: AF_UNIX sockets of the type SOCK_SEQPACKET under
//! abstract names, which belong to a network namespace as UDP ports do, and end with the process
//! that has bound them. No call here waits.

use std::collections::BTreeSet;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::fd::{FdPlace, OurFd, as_fd, at_hard_limit};
use crate::sockopt;

/// Descriptors that one message can carry.
pub const MAX_PASSED: usize = 4;

/// A socket with a name, to which others connect once it listens.
#[derive(Debug)]
pub struct SeqListener {
    fd: OurFd,
}

/// One end of a connection that keeps messages apart.
#[derive(Debug)]
pub struct SeqSocket {
    fd: OurFd,
}

impl SeqListener {
    /// Takes an abstract name (without its leading zero; 107 bytes at most). Connecting to it is
    /// refused.
    ///
    /// # Errors
    ///
    /// `AddrInUse` where another socket has the name; shortages.
    pub fn bind(name: &[u8]) -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self { fd })
    }

    /// From now on others can connect; `backlog` of them may wait. They see this process at the
    /// other end, even if another has called it before.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn listen(&self, backlog: u16) -> io::Result<()> {
        Ok(rustix::net::listen(self, backlog.into())?)
    }

    /// True if it is a socket of this kind that others can connect to.
    ///
    /// # Errors
    ///
    /// `ENOTSOCK`.
    pub fn listens(&self) -> io::Result<bool> {
        let ask = |name| sockopt::int(self.as_fd(), libc::SOL_SOCKET, name);
        Ok(ask(libc::SO_TYPE)? == libc::SOCK_SEQPACKET && ask(libc::SO_ACCEPTCONN)? != 0)
    }

    /// Takes a connection that is waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none is; shortages, where it goes on waiting.
    pub fn accept(&self) -> io::Result<SeqSocket> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = match rustix::net::accept_with(self, flags) {
            // A sandbox that knows the older call alone.
            Err(Errno::NOSYS | Errno::PERM) => {
                let fd = rustix::net::accept(self)?;
                rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
                rustix::io::ioctl_fionbio(&fd, true)?;
                fd
            }
            taken => taken?,
        };
        Ok(SeqSocket { fd: FdPlace::Internal.put(fd) })
    }
}

impl SeqSocket {
    /// Connects to the process that listens under the abstract name.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` where no process listens; `WouldBlock` where too many wait already;
    /// shortages.
    pub fn connect(name: &[u8]) -> io::Result<Self> {
        let fd = socket()?;
        rustix::net::connect(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
        Ok(Self { fd })
    }

    /// Both ends of a connection.
    ///
    /// # Errors
    ///
    /// Shortages.
    pub fn pair() -> io::Result<(Self, Self)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let kind = SocketType::SEQPACKET;
        let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let internal = |fd| Self { fd: FdPlace::Internal.put(fd) };
        Ok((internal(one), internal(other)))
    }

    /// The effective user of the process at the other end when it connected, or listened
    /// (`SO_PEERCRED`), as our user namespace knows it; mostly 65534 if it does not.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn peer_user(&self) -> io::Result<u32> {
        // Not by rustix, which takes it that a process has a number here: one of another PID
        // namespace has 0.
        let mut credentials = [0; size_of::<libc::ucred>()];
        sockopt::octets(self.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, &mut credentials)?;
        let [_, _, _, _, a, b, c, d, ..] = credentials;
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    /// The number of that process; `None` where it has none in our PID namespace.
    pub fn peer_process(&self) -> Option<u32> {
        let mut credentials = [0; size_of::<libc::ucred>()];
        let level = libc::SOL_SOCKET;
        sockopt::octets(self.as_fd(), level, libc::SO_PEERCRED, &mut credentials).ok()?;
        let [a, b, c, d, ..] = credentials;
        Some(u32::from_ne_bytes([a, b, c, d])).filter(|process| *process != 0)
    }

    /// Sends one message, with at most [`MAX_PASSED`] descriptors.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where the other end does not read; `ETOOMANYREFS` where more descriptors of
    /// this user are on their way than the hard limit allows; `BrokenPipe`, `ConnectionReset`.
    pub fn send(&self, message: &[u8], passed: &[BorrowedFd<'_>]) -> io::Result<()> {
        if passed.len() > MAX_PASSED {
            return Err(Errno::INVAL.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(passed));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut send = || rustix::net::sendmsg(self, &[IoSlice::new(message)], &mut control, flags);
        match send() {
            // The soft limit, 1,024 as a rule, counts descriptors on their way from all processes
            // of the user.
            Err(Errno::TOOMANYREFS) => at_hard_limit(send)?,
            sent => sent?,
        };
        Ok(())
    }

    /// Receives a message; 0 is the end. Bytes that do not go into `room` are lost, and so are
    /// descriptors that came along.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none has come; `ConnectionReset`.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self, room, RecvFlags::DONTWAIT)?.0)
    }

    /// As [`Self::recv`], with the descriptors that came along, [`MAX_PASSED`] at most.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn recv_passed(&self, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive(self.as_fd(), room, RecvFlags::empty())
    }

    /// The number of the network that it is in, of no other on this host.
    ///
    /// # Errors
    ///
    /// `ENOPROTOOPT` before Linux 5.14.
    pub fn network(&self) -> io::Result<u64> {
        sockopt::network(self.as_fd())
    }

    /// As [`Self::recv_passed`], of the message that begins `offset` bytes into what waits. It
    /// stays there. The offset is kept with the socket, so only one process at a time may look.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn peek_passed(&self, offset: u16, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        sockopt::set_int(self.as_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, offset.into())?;
        receive(self.as_fd(), room, RecvFlags::PEEK)
    }
}

/// The abstract names of sockets here that begin so, each once; none where the system does not
/// tell.
pub fn names(prefix: &[u8]) -> BTreeSet<Vec<u8>> {
    // Of the thread: it may have another network than the process.
    let list = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let lines = list.split(|octet| *octet == b'\n');
    let names = lines.filter_map(|line| line.rsplit(|octet| *octet == b' ').next());
    let names = names.filter_map(|name| name.strip_prefix(b"@"));
    names.filter(|name| name.starts_with(prefix)).map(<[u8]>::to_vec).collect()
}

fn receive(
    fd: BorrowedFd<'_>,
    room: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(fd, &mut [IoSliceMut::new(room)], &mut control, flags)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let mut passed: Vec<OwnedFd> = rights.flatten().collect();
    // The space is aligned, and may have room for one more.
    passed.truncate(MAX_PASSED);
    Ok((got.bytes, passed))
}

fn socket() -> io::Result<OurFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    Ok(FdPlace::Internal.put(fd))
}

as_fd!(SeqListener SeqSocket);

/// Takes over a socket that came from another process.
macro_rules! from_fd {
    ($($type:ty)*) => {$(
        impl From<OwnedFd> for $type {
            fn from(fd: OwnedFd) -> Self {
                Self { fd: FdPlace::Internal.put(fd) }
            }
        }
    )*};
}

from_fd!(SeqListener SeqSocket);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn name(of: &str) -> Vec<u8> {
        format!("iwarp-os-test/{}/{of}", std::process::id()).into_bytes()
    }

    #[test]
    fn a_name_is_one_sockets_until_that_is_closed() {
        let name = name("one");
        let first = SeqListener::bind(&name).unwrap();
        assert_eq!(SeqListener::bind(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
        let listed = names(&name[..name.len() - 1]);
        assert_eq!(listed.into_iter().collect::<Vec<_>>(), std::slice::from_ref(&name));
        let refused = SeqSocket::connect(&name).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        first.listen(4).unwrap();
        let ours = SeqSocket::connect(&name).unwrap();
        let theirs = first.accept().unwrap();
        assert_eq!(first.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        let me = rustix::process::geteuid().as_raw();
        assert_eq!((ours.peer_user().unwrap(), theirs.peer_user().unwrap()), (me, me));
        drop(first);
        SeqListener::bind(&name).unwrap();
        // Connections live on.
        ours.send(b"still", &[]).unwrap();
        assert_eq!(theirs.recv(&mut [0; 8]).unwrap(), 5);
        drop(ours);
        assert_eq!(theirs.recv(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn descriptors_come_along_or_are_closed() {
        let (one, other) = SeqSocket::pair().unwrap();
        let (passed, end) = SeqSocket::pair().unwrap();
        for taken in [true, false] {
            one.send(b"x", &[passed.as_fd()]).unwrap();
            let mut room = [0; 4];
            if taken {
                let (len, fds) = other.recv_passed(&mut room).unwrap();
                assert_eq!((len, fds.len()), (1, 1));
                SeqSocket::from(fds.into_iter().next().unwrap()).send(b"y", &[]).unwrap();
                assert_eq!(end.recv(&mut room).unwrap(), 1);
            } else {
                assert_eq!(other.recv(&mut room).unwrap(), 1);
            }
        }
        drop(passed);
        // No copy is open anywhere.
        assert_eq!(end.recv(&mut [0; 4]).unwrap(), 0);
        let five = [one.as_fd(); MAX_PASSED + 1];
        assert_eq!(one.send(b"x", &five).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
