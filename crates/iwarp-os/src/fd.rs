//! Where descriptors lie in the process's table.

use std::os::fd::OwnedFd;

use rustix::process::Resource;

/// The number of descriptors that `select()` can name (`FD_SETSIZE`).
const SELECT_RANGE: u64 = 1024;

/// Who will use a descriptor, which decides its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdPlace {
    /// Ours alone: moved out of the way of programs that use `select()`.
    Internal,
    /// Handed to the program, which may give it to `select()`: the lowest free number.
    Program,
}

impl FdPlace {
    pub(crate) fn put(self, fd: OwnedFd) -> OwnedFd {
        match self {
            FdPlace::Internal => high_fd(fd),
            FdPlace::Program => fd,
        }
    }
}

/// Moves a descriptor above those that `select()` can name, so that a program which uses it
/// keeps the low numbers. Under a limit too low for that, into the upper half of what the limit
/// allows; where there is no room either, the descriptor stays what it is.
///
/// Status flags (`O_NONBLOCK`) stay, close-on-exec is set. Membership in an epoll set does not
/// move along: move first, then add.
pub fn high_fd(fd: OwnedFd) -> OwnedFd {
    let limit = rustix::process::getrlimit(Resource::Nofile).current;
    let floor = floor_for(limit);
    match rustix::io::fcntl_dupfd_cloexec(&fd, floor) {
        Ok(moved) => moved,
        Err(_) => fd,
    }
}

/// The lowest number for our descriptors under a soft limit (`None`: no limit).
fn floor_for(limit: Option<u64>) -> i32 {
    match limit {
        Some(limit) if limit < 2 * SELECT_RANGE => (limit / 2) as i32,
        _ => SELECT_RANGE as i32,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn the_floor_follows_the_limit() {
        assert_eq!(floor_for(None), 1024);
        assert_eq!(floor_for(Some(1 << 20)), 1024);
        assert_eq!(floor_for(Some(2048)), 1024);
        assert_eq!(floor_for(Some(1024)), 512);
        assert_eq!(floor_for(Some(64)), 32);
    }

    #[test]
    fn a_moved_descriptor_is_high_and_keeps_its_flags() {
        let fd = eventfd(7, EventfdFlags::NONBLOCK).unwrap();
        let low = fd.as_raw_fd();
        let moved = high_fd(fd);
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        assert!(moved.as_raw_fd() >= floor_for(limit), "{} from {low}", moved.as_raw_fd());
        let status = rustix::fs::fcntl_getfl(&moved).unwrap();
        assert!(status.contains(rustix::fs::OFlags::NONBLOCK));
        let flags = rustix::io::fcntl_getfd(&moved).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let mut value = [0; 8];
        assert_eq!(rustix::io::read(&moved, &mut value), Ok(8));
        assert_eq!(u64::from_ne_bytes(value), 7);
    }

    #[test]
    fn without_room_above_the_descriptor_stays() {
        // In a child, as the limit is the whole process's. It makes system calls only.
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let raw = fd.as_raw_fd();
        let code = crate::fork::in_child(|| {
            let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: reads `limit`, which outlives the call.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
                return 2;
            }
            let kept = high_fd(fd).as_raw_fd() == raw;
            if kept { 0 } else { 1 }
        });
        assert_eq!(code, 0);
    }
}
