// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA verbs and a connection manager over plain TCP and UDP, on any machine: no RDMA device, no
//! kernel module, no privileges. On the wire it is iWARP (RFC 5040, 5041, 5044, 6581, 7306) or RoCE
//! v2.
//!
//! ```text
//!   verbs    device, protection domain, memory region and window, completion queue and channel,
//!            shared receive queue, queue pair
//!   cm       connection manager: bind, listen, resolve, connect, accept, reject, disconnect
//!   drive    connections that an event loop of the program's moves
//!   wire     the interface for other protocols under a queue pair (hidden), and a wing for each
//!            wire that there is: iWARP over TCP, RoCE v2 over UDP (private)
//!   engine   the threads that move the bytes (private)
//!   port     the streams of bytes and the datagrams under all that, and what makes them (hidden)
//! ```
//!
//! # Safety
//!
//! Memory is shared with a peer, so the one unsafe promise is made where memory is registered that
//! the library does not own ([`ProtectionDomain::register_raw`]). An address in a scatter/gather
//! element is a number that is checked against what is registered: a wrong one is an error
//! completion, never an access. `iwarp-session` needs no such promise: there the types see to it
//! that memory is the program's or the network's. A [`Buffer`] is memory that the library owns, and
//! gives no references to bytes that a peer may change.
//!
//! # Where to start
//!
//! | To | Begin with |
//! |---|---|
//! | send messages, write and read a peer's memory | the crate [`iwarp-session`](https://docs.rs/iwarp-session): its first example is a client and a server |
//! | use RDMA under code that reads and writes a TCP stream | `ByteStream` of `iwarp-session` |
//! | translate a program from C, or post work requests oneself | the example in [`cm`], then [`verbs`] |
//! | move connections from an event loop of one's own | [`drive`] |
//! | configure a device, instead of by `IWARP_*` variables | [`Options`] and [`Device::with_options`] |
//! | learn what RDMA is | the book in the repository, `docs/learn` |
//!
//! The repository's `crates/iwarp/examples` and `crates/iwarp-session/examples` are whole programs.
//!
//! # Example
//!
//! The nouns of the verbs: a queue pair that can be connected, and memory that its peer may read.
//!
//! ```
//! use iwarp::{Access, Device, QueuePairAttributes};
//!
//! let device = Device::open()?;
//! let pd = device.alloc_pd();
//! let cq = device.create_cq(64, None)?;
//! let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq))?;
//! let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
//! println!("peers may read {} bytes by {:?}", memory.len(), memory.rkey());
//! # drop(qp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(any(target_os = "linux", target_os = "android")))]
compile_error!("iwarp runs on Linux; on other systems use a Linux container or virtual machine");

mod capture;
pub mod cm;
mod connect;
pub mod drive;
mod engine;
#[doc(hidden)]
pub mod faults;
#[doc(hidden)]
pub mod flaw;
mod hash;
#[cfg(all(test, not(model)))]
mod lock_bounds;
#[doc(hidden)]
pub mod port;
#[doc(hidden)]
pub mod report;
pub mod verbs;
#[doc(hidden)]
pub mod wire;

/// The code in README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use capture::{Capture, CaptureError};
pub use connect::{Peer, Retry};
pub use engine::devices::NamedDevice;
#[doc(hidden)]
pub use engine::log_level::follow_log_level;
pub use engine::network_faults::{FaultsError, NetworkFaults};
#[doc(hidden)]
pub use engine::observe;
pub use engine::observe::{Counters, Operations};
pub use engine::options::{
    KeepAlive, LocalPath, Log, OptionError, Options, Personality, Users, Wire,
};
pub use engine::policy::Behaviours;
pub use engine::speed::Speed;
#[doc(hidden)]
pub use engine::turns::Turns;
pub use faults::{FaultRules, RuleError};
pub use iwarp_mem::Buffer;
pub use iwarp_types::{
    Access, AddressVector, AtomicOp, Bind, Destination, Extensions, Payload, PostError, Protocol,
    QpState, QpType, Reason, RecvRequest, RtrTypes, SendOp, SendRequest, Sge, SourceQp, Stag,
    TaggedOffset, TransitionError, WcOp, WcStatus, WorkCompletion,
};
pub use report::{LogFormat, REPORT};
pub use verbs::{
    AsyncEvent, Capabilities, CompletionChannel, CompletionQueue, DatagramAttributes, Device,
    DeviceAttributes, Ended, Gid, Look, MemoryRegion, MemoryWindow, ModifyError, OpenError,
    ProtectionDomain, QueuePair, QueuePairAttributes, RegisterError, SharedReceiveQueue,
};
#[doc(hidden)]
pub use wire::choice::wing;
#[doc(hidden)]
pub use wire::roce::counted::COUNTER_NAMES;
#[doc(hidden)]
pub use wire::roce::outbox::Outbox;
