// SPDX-License-Identifier: MIT OR Apache-2.0

//! The language of the connection manager and the wires.
//!
//! An id of the connection manager has an [`Exchange`] with a peer, which a wire makes and takes
//! through its states. The exchange knows the id as its [`Owner`]. An id that listens has
//! [`Arrivals`] of each wire by which peers can ask, and these know it as their [`Listener`].
//!
//! ```text
//!   exchange     an exchange, its owner, and the call by which it begins
//!   arrivals     peers that ask, and the listener that they ask
//!   event        what an id's program is told, and the states of its connection
//!   params       what both programs say when they connect; why a connection was not made
//!   attributes   the attributes of a queue pair over packets, by the names of the verbs
//!   meeting      a queue pair that meets its peer without the connection manager
//!   peer         that peer, and how long it may be silent
//!   retries      how long a peer is asked at which no program listens yet
//!   watch        streams that are up, and the observer that tells the owner of their ends
//!   meanwhile    the connections that a blocked caller moves while it waits for another
//! ```

mod arrivals;
mod attributes;
mod event;
mod exchange;
mod meanwhile;
mod meeting;
mod params;
mod peer;
mod retries;
mod watch;

pub(crate) use arrivals::{Arrivals, Heirloom, Listener, Make};
pub use attributes::DatagramAttributes;
pub use event::{ConnectionState, EventKind};
pub(crate) use exchange::{By, Call, Exchange, NamedQp, Owner, Question};
pub(crate) use meanwhile::Meanwhile;
pub(crate) use meeting::Meeting;
pub(crate) use params::closed;
pub use params::{ConnectError, ConnectParams};
pub use peer::{Peer, Retry};
pub(crate) use retries::{PATIENCE, Retries, nobody_listens};
pub(crate) use watch::{Connected, Watch};
