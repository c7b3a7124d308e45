// SPDX-License-Identifier: MIT OR Apache-2.0

//! The InfiniBand connection manager over management datagrams: who connects to whom, and when.
//!
//! [`Manager`] has all connections of one process. It does no I/O and reads no clock: datagrams
//! ([`Manager::receive`]), calls of the program and time ([`Manager::advance`]) go in, datagrams
//! ([`Manager::poll_transmit`]) and events ([`Manager::poll_event`]) come out.
//!
//! ```text
//!   initiator   connect    -> REQ            ConnectResponse <- REP    ready -> RTU
//!   acceptor    ConnectRequest <- REQ        accept -> REP             Established <- RTU
//!   either      disconnect -> DREQ           Disconnected <- DREP      TimewaitExit
//! ```
//!
//! Whatever is sent for an answer is sent again, and ends after so many times; whatever waits for
//! the program has a deadline as well. Only an established connection lasts for ever.
//!
//! Where it differs from Linux, on purpose:
//!
//! - Messages about a connection count only from the address that it is with. So nobody else can
//!   end it, not even with a REQ that has its queue pair and GUID.
//! - A REJ of a REQ does not touch a connection whose REP has come: it is a late answer to a repeated
//!   REQ. Linux ends the connection.
//! - A REP that nobody waits for is refused (REJ 6), so that its sender does not wait in vain; and an
//!   RTU or MRA, so that its sender does not believe in a connection that was given up here.
//! - A refused REQ that is repeated is refused again, and not told to the program again.
//! - Times that a peer asks for are believed within bounds: an acceptor sends its messages again
//!   after 0.27 to 4.3 s, and timewait ends after 69 s.
//!
//! ```text
//!   field, mad, message               what the octets mean
//!   time, reason, service, own_kind   what the fields mean
//!   call, event, settings             what a program says and hears
//!   crowd, listener                   who may wait for a program's answer
//!   connection, sidr, table           what is known of each connection and question
//!   manager                           what happens
//!   addressee                         which of several processes a datagram is for
//!   multicast                         what a program is told of a group that it joins
//! ```

mod addressee;
mod call;
mod connection;
mod crowd;
mod event;
mod field;
mod listener;
mod mad;
mod manager;
pub mod message;
mod multicast;
mod own_kind;
mod reason;
mod service;
mod settings;
mod sidr;
mod table;
mod time;
mod vacancy;
mod way;

pub use addressee::Addressee;
pub use call::{Accept, Answer, CallError, Connect, Listen, Parameters, Resolve};
pub use event::{
    CommId, Ece, Event, EventKind, ListenerId, Request, Resolved, Response, Unreachable,
};
pub use mad::{GSI_QKEY, MAD_HEADER_LEN, MAD_LEN, Mad, Malformed, gsi_header, gsi_payload};
pub use manager::Manager;
pub use message::SidrStatus;
pub use multicast::{Group, JoinError, UDP_QKEY};
pub use own_kind::{OwnKind, VENDOR_ID};
pub use reason::RejectReason;
pub use service::{PortSpace, ServiceId};
pub use settings::{CommIds, Random, Seeded, Settings};
pub use time::TimeCode;
