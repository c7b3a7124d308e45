// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of the addresses of this host.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

use crate::fd::{FdPlace, OurFd, as_fd};

/// The changes that are told: interfaces (their names, MTU, up and down), addresses of IPv4 and of
/// IPv6.
const GROUPS: u32 =
    (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;

/// Messages that are taken at a time.
const MESSAGES: usize = 64;

/// Notices that interfaces or addresses change in the network namespace of the thread that has made
/// it. The system sends a message of each change (rtnetlink) before the process that makes it hears
/// of it.
#[derive(Debug)]
pub struct AddressWatch {
    fd: OurFd,
}

impl AddressWatch {
    /// Notices what changes from now on.
    ///
    /// # Errors
    ///
    /// If the system does not tell of changes (sandboxes), and shortages.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The default protocol is NETLINK_ROUTE.
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        // The least that the system allows: messages that find no room leave an error, which says
        // as much. One that refuses keeps more of them.
        let _ = sockopt::set_socket_recv_buffer_size(&fd, 0);
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { fd: FdPlace::Internal.put(fd) })
    }

    /// Tells if anything has changed since this was asked last. One system call where nothing has.
    pub fn take_changes(&self) -> bool {
        if self.receive(RecvFlags::PEEK) == Err(Errno::AGAIN) {
            return false;
        }
        // A program that has closed our descriptor may have a socket of its own under the number,
        // which is not to lose what comes to it. Then everything may have changed, each time.
        let name = rustix::net::getsockname(self);
        if name.is_ok_and(|name| SocketAddrNetlink::try_from(name).is_ok()) {
            let messages = (0..MESSAGES).map(|_| self.receive(RecvFlags::empty()));
            // Messages that are left say next time that there were changes.
            let _ = messages.take_while(|got| *got != Err(Errno::AGAIN)).count();
        }
        true
    }

    fn receive(&self, flags: RecvFlags) -> Result<usize, Errno> {
        let mut room = [0_u8; 1];
        rustix::net::recv(self, &mut room[..], flags | RecvFlags::DONTWAIT).map(|(got, _)| got)
    }
}

as_fd!(AddressWatch);

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    /// A daemon closes everything and opens a socket, which gets the number.
    #[test]
    fn a_socket_that_is_not_ours_keeps_what_comes_to_it() {
        let watch = AddressWatch::new().unwrap();
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC;
        let (theirs, peer) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        // SAFETY: both numbers are open, and only this test's.
        let replaced =
            unsafe { libc::dup3(theirs.as_raw_fd(), watch.as_raw_fd(), libc::O_CLOEXEC) };
        assert_eq!(replaced, watch.as_raw_fd());
        rustix::net::send(&peer, b"theirs", rustix::net::SendFlags::empty()).unwrap();
        assert!(watch.take_changes() && watch.take_changes());
        let mut room = [0; 16];
        let got = rustix::net::recv(theirs.as_fd(), &mut room[..], RecvFlags::DONTWAIT).unwrap();
        assert_eq!(&room[..got.0], b"theirs");
    }
}
