// SPDX-License-Identifier: MIT OR Apache-2.0

//! The InfiniBand connection manager over management datagrams (ROCE-144).
//!
//! [`Manager`] holds all connections of one process. It does no I/O and reads no clock: datagrams
//! ([`Manager::receive`]), calls of the program and time ([`Manager::advance`]) go in, datagrams
//! ([`Manager::poll_transmit`]) and events ([`Manager::poll_event`]) come out.
//!
//! ```text
//!   initiator   connect    -> REQ            ConnectResponse <- REP    ready -> RTU
//!   acceptor    ConnectRequest <- REQ        accept -> REP             Established <- RTU
//!   either      disconnect -> DREQ           Disconnected <- DREP      TimewaitExit
//! ```
//!
//! A message that needs an answer is sent again a limited number of times; every wait for the
//! program has a deadline as well. Only an established connection lasts for ever.
//!
//! Deliberate differences from Linux:
//!
//! - Messages about a connection count only from its peer's address. So no other host can end it,
//!   not even by a REQ with its queue pair and GUID.
//! - A REJ of a REQ does not touch a connection whose REP has come: it is a late answer to a
//!   repeated REQ. Linux ends the connection.
//! - An unexpected REP is refused (REJ 6), so that its sender does not wait in vain; and so is an
//!   RTU or MRA, so that its sender does not believe in a connection given up here.
//! - A refused REQ that is repeated is refused again, and not told to the program again.
//! - Times that a peer asks for are limited: an acceptor repeats its messages after 0.27 to 4.3 s,
//!   and timewait ends after 69 s at most.
//!
//! ```text
//!   field, mad, message               encoding of the messages
//!   time, reason, service, own_kind   meaning of their fields
//!   call, event, settings             the interface to a program
//!   pending, listener                 places of requests that wait for a program's answer
//!   connection, sidr, table           state of each connection and SIDR request
//!   manager                           actions on messages, calls and time
//!   addressee                         the process that a datagram is for, among several
//!   multicast                         description of a joined group, for a program
//! ```

mod addressee;
mod call;
mod connection;
mod event;
mod field;
mod listener;
mod mad;
mod manager;
pub mod message;
mod multicast;
mod own_kind;
mod pending;
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
pub use service::ServiceId;
pub use settings::{Random, Seeded, Settings};
pub use time::TimeCode;
