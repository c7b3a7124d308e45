// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts to try sockets on, as network namespaces of threads; and a thread without rights. Root
//! alone can have either.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

/// True if there can be hosts. Says so where not.
pub(crate) fn possible() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("not root: left out");
    }
    root
}

/// A network namespace.
pub(crate) struct Host(File);

impl Host {
    /// One with a loopback interface.
    pub(crate) fn new() -> Self {
        let host = on_a_thread(|| {
            // SAFETY: concerns this thread alone, which ends soon.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "no namespace");
            Self(File::open("/proc/thread-self/ns/net").unwrap())
        });
        host.sh("ip link set lo up");
        host
    }

    /// Two with a cable between interfaces `v0`: 10.9.0.1 and fd09::1, 10.9.0.2 and fd09::2.
    pub(crate) fn pair() -> [Self; 2] {
        let pair = [Self::new(), Self::new()];
        pair[0].cable(&pair[1], "v0", 0);
        for ((host, number), peer) in pair.iter().zip(1..).zip([2, 1]) {
            host.sh(&format!("ip addr add 10.9.0.{number}/24 dev v0"));
            host.sh(&format!("ip addr add fd09::{number}/64 dev v0 nodad"));
            host.sh("ip route add 224.0.0.0/4 dev v0");
            // So that no packet waits for the address of the other end, where few may.
            for ip in ["10.9.0.", "fd09::"] {
                host.sh(&format!("ip neigh add {ip}{peer} lladdr 02:00:00:00:00:0{peer} dev v0"));
            }
        }
        pair
    }

    /// Puts a cable between interfaces of one name, whose hardware addresses have this number.
    pub(crate) fn cable(&self, other: &Self, name: &str, number: u32) {
        let there = format!("/proc/{}/fd/{}", std::process::id(), other.0.as_raw_fd());
        let end = |end: u32| format!("name {name} address 02:00:00:00:0{number}:0{end}");
        let (one, two) = (end(1), end(2));
        self.sh(&format!("ip link add {one} type veth peer {two} netns {there}"));
        for host in [self, other] {
            host.sh(&format!("ip link set {name} up"));
        }
        // The system notices a little later that both are up, and drops packets until then.
        for host in [self, other] {
            host.sh(&format!("until ip link show dev {name} | grep -q 'state UP'; do :; done"));
        }
    }

    /// Calls `what` in it: sockets that are made there stay there.
    pub(crate) fn run<R: Send>(&self, what: impl FnOnce() -> R + Send) -> R {
        on_a_thread(|| {
            // SAFETY: concerns this thread alone.
            let entered = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(entered, 0, "{}", std::io::Error::last_os_error());
            what()
        })
    }

    /// Runs a command there, which has to succeed.
    pub(crate) fn sh(&self, command: &str) {
        let status = self.run(|| Command::new("sh").args(["-c", command]).status().unwrap());
        assert!(status.success(), "{command}");
    }

    /// Captures the packets that pass there from now on.
    pub(crate) fn capture(&self) -> Capture {
        // SAFETY: a system call without pointers.
        let fd = self.run(|| unsafe {
            let all = i32::from((libc::ETH_P_ALL as u16).to_be());
            libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, all)
        });
        assert!(fd >= 0, "no packet socket");
        // SAFETY: just made, and not owned elsewhere.
        Capture(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// A socket that sees packets.
pub(crate) struct Capture(OwnedFd);

impl Capture {
    /// The packets that have come so far with that UDP port as their destination, from the IP
    /// header on.
    pub(crate) fn packets_to(&self, port: u16) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut packet = vec![0; 1 << 17];
        while let Ok((len, _)) =
            rustix::net::recv(&self.0, &mut packet[..], rustix::net::RecvFlags::empty())
        {
            let ip = if packet[0] >> 4 == 6 { 40 } else { 20 };
            let protocol = if ip == 40 { packet[6] } else { packet[9] };
            if len >= ip + 8 && protocol == 17 && packet[ip + 2..ip + 4] == port.to_be_bytes() {
                found.push(packet[..len].to_vec());
            }
        }
        found
    }
}

/// Calls `what` on a thread of its own, and passes its panic on.
fn on_a_thread<R: Send>(what: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(what).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Calls `what` on a thread that is the user nobody's and has no rights, where that can be.
pub(crate) fn as_nobody<R: Send>(what: impl FnOnce() -> R + Send) -> R {
    on_a_thread(|| {
        if rustix::process::geteuid().is_root() {
            // SAFETY: by system call these concern this thread alone, which ends soon.
            let gone = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                libc::syscall(libc::SYS_setgroups, 0, 0)
                    | libc::syscall(libc::SYS_setresgid, 65_534, 65_534, 65_534)
                    | libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534)
            };
            assert_eq!(gone, 0, "there is no user nobody");
        }
        what()
    })
}
