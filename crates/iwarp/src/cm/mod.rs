//! Connection manager: who connects to whom, and when (RFC 5044 §7, RFC 6581).
//!
//! Two layers. [`Id`], [`EventChannel`] and [`Event`] are those of `librdmacm`: every step is
//! asynchronous and ends in an event. [`connect`] and [`Listener`] do the same blocking, and are
//! what most programs want.

mod blocking;
mod channel;
mod id;
mod incoming;
mod meanwhile;
mod outgoing;
mod watch;

pub use blocking::{Connection, Incoming, Listener, connect};
pub use channel::{Event, EventChannel, EventKind};
pub use id::{ConnectionState, Id};

use crate::startup::closed;
pub use crate::startup::{ConnectError, ConnectParams, StartupError, StartupFault};
