// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets of this process, found past the library.

use std::os::fd::{BorrowedFd, RawFd};

use iwarp_os::TcpSocket;

/// Duplicates of the connected sockets with that port at this end or the other.
pub fn connected(port: u16) -> Vec<TcpSocket> {
    let names = std::fs::read_dir("/proc/self/fd").unwrap();
    let fds = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let duplicates = fds.filter_map(|fd| {
        // SAFETY: only the duplicate is kept; a descriptor closed meanwhile gives an error.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        Some(TcpSocket::from(fd.try_clone_to_owned().ok()?))
    });
    let is_meant = |socket: &TcpSocket| {
        let ends = [socket.local_addr(), socket.peer_addr()];
        let [Ok(here), Ok(there)] = ends else { return false };
        [here, there].iter().any(|addr| addr.port() == port)
    };
    duplicates.filter(is_meant).collect()
}
