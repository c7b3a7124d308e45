// SPDX-License-Identifier: MIT OR Apache-2.0

//! The core of a queue pair as its endpoint holds it, of any wire.
//!
//! A post costs a few virtual calls, and each question of the engine one. The wing that moves the
//! bytes or packets of a core knows its type: it takes the core by that (`EndpointCore::of`),
//! once for each time that it has the lock, and calls it statically from there, as the endpoint
//! does for that core's events.

use std::any::{Any, TypeId};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_types::{
    Access, Core, Disposition, Limits, PdId, PostError, QpId, QpState, QpType, RecvRequest,
    SendRequest, Standing, Time, TransitionError, Wanted,
};

use super::events::Sink;
use crate::engine::fate::Fate;
use crate::engine::options::Wire;
use crate::report::Object;

/// The time that a message waits for its receive before the receiver's user is told.
pub(crate) const NO_RECEIVE: Duration = Duration::from_secs(3);

/// A queue pair, as its core is made for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConfig {
    pub(crate) qp: QpId,
    pub(crate) qp_type: QpType,
    pub(crate) pd: PdId,
    /// Send work requests that may be outstanding.
    pub(crate) max_send_wr: usize,
    /// Receive work requests that may be outstanding.
    pub(crate) max_recv_wr: usize,
    pub(crate) limits: Limits,
    /// Elements of a receive work request.
    pub(crate) max_recv_sge: usize,
    /// Receives come from a shared queue.
    pub(crate) shared_receive: bool,
    /// The domain of that queue's memory.
    pub(crate) receive_pd: Option<PdId>,
}

/// The methods that a wing adds to a core. The defaults fit a core over a stream.
pub(crate) trait WireCore: Core + Any {
    /// Its protocol, if that is one that the device's option chooses among.
    fn wire(&self) -> Option<Wire>;

    /// Packets of a datagram port come to it, not the bytes of a stream.
    fn takes_packets(&self) -> bool {
        false
    }

    /// True if a Read or Atomic can ever be under way, as far as is known.
    fn may_read(&self) -> bool {
        true
    }

    /// True if this Read, Write or Atomic may be carried out before it is posted, by a stream that
    /// reaches the peer's memory where it lies.
    fn may_be_done(&mut self, _request: &SendRequest<'_>) -> bool {
        false
    }

    /// Posts a request that was carried out so.
    ///
    /// # Errors
    ///
    /// As [`Core::post_send`].
    fn post_done(&mut self, _request: &SendRequest<'_>) -> Result<(), PostError> {
        Err(PostError::Invalid)
    }

    /// True if the request of this number is the first that waits to be sent, and may be carried
    /// out so in place of that.
    fn may_be_done_next(&self, _number: u64) -> bool {
        false
    }

    /// That was done.
    fn was_done(&mut self, _number: u64) {}

    /// The multicast groups that it belongs to, where it can belong to any.
    fn multicast(&mut self) -> Option<&mut dyn Multicast> {
        None
    }

    /// Adds what it knows of its peer, and of the way there, to the description of the queue pair.
    fn describe(&self, _: &mut Object) {}

    /// Writes the line of the log that a connection over packets begins, and returns its fate.
    fn begin_fate(&self, _qp: u32) -> Option<Arc<Fate>> {
        None
    }
}

/// The multicast groups of a queue pair.
pub(crate) trait Multicast {
    /// Joins a group. False where it had joined before.
    ///
    /// # Errors
    ///
    /// `Invalid` for an address that is no group's; out of memory.
    fn attach(&mut self, group: IpAddr) -> Result<bool, PostError>;

    /// Leaves it. False where it had not joined.
    fn detach(&mut self, group: IpAddr) -> bool;
}

/// Another protocol's core over a stream, which a program brings (the public module `wire`).
impl WireCore for iwarp_types::BoxedCore {
    fn wire(&self) -> Option<Wire> {
        None
    }
}

/// Declares [`EndpointCore`] with these methods of the named traits, those of `&self` and those of
/// `&mut self`, and has each core pass them on.
macro_rules! endpoint_core {
    (&self { $(
            $asked:ident: $ask:ident($($key:ident: $key_type:ty)?) $(-> $answer:ty)?;
    )+ } &mut self { $(
            $trait:ident: $method:ident($($arg:ident: $type:ty)?) $(-> $result:ty)?;
    )+ }) => {
        /// A core of any type. The methods are those of [`Core`] and [`WireCore`].
        pub(crate) trait EndpointCore: Any + Debug + Send {
            $(fn $ask(&self $(, $key: $key_type)?) $(-> $answer)?;)+

            $(fn $method(&mut self $(, $arg: $type)?) $(-> $result)?;)+

            /// Hands its events on.
            fn hand_on(&mut self, to: Sink<'_>);
        }

        impl<C: WireCore> EndpointCore for C {
            $(fn $ask(&self $(, $key: $key_type)?) $(-> $answer)? {
                <C as $asked>::$ask(self $(, $key)?)
            })+

            $(fn $method(&mut self $(, $arg: $type)?) $(-> $result)? {
                <C as $trait>::$method(self $(, $arg)?)
            })+

            fn hand_on(&mut self, to: Sink<'_>) {
                to.events_of(self);
            }
        }
    };
}

endpoint_core! {
    &self {
        WireCore: wire() -> Option<Wire>;
        WireCore: takes_packets() -> bool;
        WireCore: may_read() -> bool;
        WireCore: may_be_done_next(number: u64) -> bool;
        WireCore: describe(to: &mut Object);
        WireCore: begin_fate(qp: u32) -> Option<Arc<Fate>>;
        Core: state() -> QpState;
        Core: outstanding() -> (usize, usize);
        Core: is_connected() -> bool;
        Core: is_outlived() -> bool;
        Core: disposition() -> Disposition;
        Core: arrivals() -> u64;
        Core: has_parked() -> bool;
        Core: is_stalled() -> bool;
        Core: has_events() -> bool;
        Core: may_want_time() -> bool;
        Core: poll_timeout() -> Option<Time>;
        Core: read_depths() -> (usize, usize);
    }
    &mut self {
        WireCore: multicast() -> Option<&mut dyn Multicast>;
        WireCore: may_be_done(request: &SendRequest<'_>) -> bool;
        WireCore: post_done(request: &SendRequest<'_>) -> Result<(), PostError>;
        WireCore: was_done(number: u64);
        Core: post_send(request: &SendRequest<'_>) -> Result<(), PostError>;
        Core: post_recv(request: &RecvRequest<'_>) -> Result<(), PostError>;
        Core: modify(to: QpState) -> Result<(), TransitionError>;
        Core: disconnect();
        Core: abort();
        Core: unreachable();
        Core: lost();
        Core: timed_out();
        Core: fail_locally(what: &'static str);
        Core: wanted() -> Wanted;
        Core: standing() -> Standing;
        Core: handle_timeout(now: Time);
        Core: set_rnr_timer(timer: Duration);
        Core: set_rnr_retry(count: u8);
        Core: set_peer_rnr_retry(count: u8);
        Core: set_remote_access(access: Access);
    }
}

impl dyn EndpointCore {
    /// The core, for the wing whose it is.
    #[inline]
    pub(crate) fn of<C: Any>(&mut self) -> Option<&mut C> {
        (self as &mut dyn Any).downcast_mut()
    }

    /// True if it is of that type.
    pub(crate) fn is(&self, kind: TypeId) -> bool {
        (self as &dyn Any).type_id() == kind
    }
}
