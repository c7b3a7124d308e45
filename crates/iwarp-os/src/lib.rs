// SPDX-License-Identifier: MIT OR Apache-2.0

//! The few edges of the operating system that the engine needs and that need `unsafe`, or that
//! must not go through the C library.
//!
//! ```text
//!   socket   TCP sockets and their options        addr     interfaces, source addresses
//!   datagram UDP sockets whose packets are known as they leave, in trains
//!   part     one piece of a vectored transfer     fd       descriptors out of select()'s range
//!   stream   sendmsg, recvmsg over such pieces    fork     has this process been forked?
//!   poll     epoll, eventfd, a blocking wait      thread   threads that take no signals
//!   cancel   a wait that can be cancelled         owner    the user at the other end
//!   owned    objects that only the process that made them may use
//!   heritable objects that a forked child makes anew
//!   family   a word that a process shares with its forked children
//!   slots    one UDP port for several processes   unix     messages and descriptors between those
//!   token    descriptors that stand for something
//!   readiness a descriptor that shows the readiness of something else
//!   board    numbers that processes count together
//!   ledger   counts of what live processes have
//!   roster   the objects of live processes, one by one
//!   local    rings in memory that two processes share, reads of another's memory
//!   watch    have interfaces or addresses changed?
//!   append_file  a file to which several processes add
//!   questions  that processes of a user ask each other
//!   clock, ticks, guid, exit, environment
//! ```
//!
//! System calls are made directly (rustix's raw backend) wherever that is possible: libraries that
//! are preloaded into a program replace the C library's socket functions, and must not apply their
//! changes to this library's sockets. The exceptions are calls that need the C library: [`cancel`],
//! the signal mask, `getifaddrs`.
//!
//! No function retries or blocks unless it says so, and none of them allocates on the data path.
//!
//! ```
//! use iwarp_os::{EventFd, EventFdKind, FdPlace, clock};
//!
//! let before = clock::now();
//! let event = EventFd::new(EventFdKind::Counter, FdPlace::Internal)?;
//! event.signal()?;
//! assert_eq!(event.drain()?, 1);
//! assert!(clock::now() >= before);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! All of this is Linux (and Android) so far; on other systems the crate is empty, while the
//! protocol and memory crates build there.
//!
//! # Other systems
//!
//! A port to macOS or FreeBSD would have to replace these, as far as the documentation of those
//! systems tells. None of it was tried.
//!
//! - epoll, and an epoll within another (for poll sets; a completion channel's descriptor, which
//!   programs and runtimes wait on): kqueue, which nests as well; the crate `polling` reaches it
//!   and gives its descriptor away.
//! - eventfd, futex (for bells, sleeping threads): `EVFILT_USER` or a pipe; FreeBSD 13 has eventfd.
//! - `SIOCOUTQ`, `TCP_INFO` (for the bytes that the peer's TCP has not acknowledged; metrics):
//!   `SO_NWRITE` (macOS), `FIONWRITE` (FreeBSD); other structures.
//! - the frame of SIGSEGV on x86-64, `process_vm_readv` elsewhere (for memory that is gone kills no
//!   process): other frames on x86-64; on AArch64, which is most of macOS, the same technique with
//!   instructions of that processor, or only memory that the library allocates.
//! - `MADV_WIPEONFORK` (for forked children): `minherit`: `INHERIT_ZERO` (FreeBSD),
//!   `VM_INHERIT_NONE` (macOS).
//! - `sock_diag`, `/proc/net/tcp` (for the owner of a peer's process on this host):
//!   `net.inet.tcp.getcred` (FreeBSD); nothing without root on macOS: there only the proof would
//!   protect queue pairs that meet without the connection manager.
//! - `/proc/self/maps` (for registering memory without touching it): `mach_vm_region` (macOS),
//!   `kinfo_getvmmap` (FreeBSD).
//! - `UDP_SEGMENT`, `recvmmsg`, a filter of a port that processes share (for UD, UC, RoCE v2):
//!   FreeBSD has `recvmmsg`; neither shares a port by a filter.
//! - glibc's `LD_AUDIT`, symbol versions (for drop-in libraries): not there; nor have programs that
//!   want them another libibverbs there.
//!
//! iWARP between Rust programs needs the first four. They are all in this crate and in `iwarp-mem`,
//! below one module each, but two of them carry promises to users, which a port could not test
//! without such a machine.
#![cfg(any(target_os = "linux", target_os = "android"))]

pub mod addr;
pub mod append_file;
pub mod bell;
pub mod board;
mod bpf;
pub mod cancel;
pub mod clock;
pub mod datagram;
pub mod environment;
pub mod exit;
pub mod family;
pub mod fd;
pub mod fork;
pub mod guid;
pub mod heritable;
pub mod ledger;
pub mod local;
pub mod owned;
pub mod owner;
pub mod part;
pub mod poll;
pub mod process;
pub mod questions;
pub mod readiness;
pub mod register;
pub mod roster;
pub mod route;
mod shared_file;
pub mod slots;
pub mod socket;
mod sockopt;
pub mod stream;
mod sync;
pub mod thread;
pub mod ticks;
pub mod token;
pub mod unix;
pub mod watch;

pub use addr::{Interface, InterfaceAddr};
pub use append_file::AppendFile;
pub use datagram::DatagramSocket;
pub use family::FamilyClaim;
pub use fd::{FdPlace, PassedFd};
pub use fork::{ForkGeneration, PerProcess, handlers as fork_handlers};
pub use heritable::Heritable;
pub use owned::ProcessOwned;
pub use part::{IoPart, IoPartMut};
pub use poll::{Epoll, EventFd, EventFdKind, Events, Interest, Ready};
pub use socket::{Ipv6Listen, Keepalive, Sharing, Spare, TcpSocket, Vitals};
pub use watch::AddressWatch;
