// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cores: protocols as the engine drives them.
//!
//! The engine calls iWARP's core statically and keeps its two pipelines outside the lock. A
//! [`StreamCore`] gets all octets that have come, or all the room there is, in one virtual call
//! under the lock. Events use the verbs' vocabulary, generic over the core's own reasons and
//! faults. (Considered: endpoints that are generic over their core. Every holder of one, from the
//! poll group to the connection manager, would be generic too, or make a virtual call for each
//! poll.)

use core::fmt::Debug;
use core::time::Duration;

use crate::{
    Access, Cause, Event, Memory, PostError, QpState, Reason, ReceivePool, RecvRequest, Refusal,
    SendRequest, Standing, Time, TransitionError,
};

/// The things that there are to transmit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// No octets now.
    Nothing,
    /// An answer by which the peer learns what was received. It may wait a moment, for a message
    /// that it can go out with.
    Acknowledgement,
    /// More than that.
    Much,
}

/// The fate of the stream once the octets that were built are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Go on.
    Open,
    /// No more octets will be sent: shut down the write side, then read and discard until the peer
    /// closes (RFC 5040 §6.2.1: gracefully, so that a Terminate arrives).
    Finish,
    /// The framing of what was sent cannot be kept, or the program asked for it: reset.
    Abort,
}

/// A core: the deciding part of a queue pair's protocol, with its state and its work queues.
///
/// It is a state machine behind the engine's lock: it knows no socket, no thread and no clock, and
/// no call waits. Octets that arrive and leave pass a [`StreamCore`], or, where a core has halves
/// that work beside the lock, those (`iwarp_proto::qp`).
///
/// Each posted request ends in exactly one event: [`Event::SendCompleted`] or
/// [`Event::ReceiveCompleted`], in the order of posting, with [`WcStatus`](crate::WcStatus) telling
/// how; a request that is not signalled and ends well counts in [`Event::SilentSends`] before the
/// next instead. When the stream ends, what was posted is flushed, and exactly one of
/// [`Event::Disconnected`], [`Event::Terminated`], [`Event::Fault`] and [`Event::Lost`] says why,
/// unless this side ended it ([`Self::disconnect`], [`Self::modify`], [`Self::abort`]).
pub trait Core: Send + Debug {
    /// The peer's reason for breaking off.
    type Terminated: Into<Reason>;
    /// A fault that this side found.
    type Fault: Cause;

    /// Its state.
    fn state(&self) -> QpState;

    /// Changes the state as the program asks. Going to Err flushes and ends the stream as
    /// [`Self::disconnect`] does; going to Reset forgets everything, events included.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] if [`QpState::may_become`] is false.
    fn modify(&mut self, to: QpState) -> Result<(), TransitionError>;

    /// Posts a send work request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the request is not queued then. The engine, not the core, counts how many
    /// fit.
    fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError>;

    /// Posts a receive work request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; the request is not queued then.
    fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError>;

    /// Work requests that have not completed: sends and receives.
    fn outstanding(&self) -> (usize, usize);

    /// True if there is a stream that has not ended.
    fn is_connected(&self) -> bool;

    /// Ends the stream in good order: what was accepted goes out.
    fn disconnect(&mut self);

    /// Ends the stream with a reset.
    fn abort(&mut self);

    /// No stream could be had: the oldest send work request says so, everything else is flushed.
    fn unreachable(&mut self);

    /// The stream broke: nothing can be sent or will arrive.
    fn lost(&mut self);

    /// The stream broke because the peer has not answered for too long: the oldest request that has
    /// not ended says so.
    fn timed_out(&mut self) {
        self.lost();
    }

    /// An error of this side ends the stream, by [`Event::Fault`].
    fn fail_locally(&mut self, what: &'static str);

    /// The fate of the stream once everything built is taken.
    fn disposition(&self) -> Disposition;

    /// The things that there are to transmit.
    fn wanted(&mut self) -> Wanted;

    /// The next completion or event.
    fn poll_event(&mut self) -> Option<Event<Self::Terminated, Self::Fault>>;

    /// True if [`Self::poll_event`] has something.
    fn has_events(&self) -> bool;

    /// The access to memory by which the stream ended, once, for who has just polled
    /// [`Event::Fault`] or [`Event::Terminated`].
    fn take_refusal(&mut self) -> Option<Refusal> {
        None
    }

    /// When [`Self::handle_timeout`] wants to be called; a time that is past means at once. Asked
    /// after each call that drives the core.
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// True if [`Self::poll_timeout`] may have something. Asked more often.
    fn may_want_time(&self) -> bool {
        self.poll_timeout().is_some()
    }

    /// Tells the time.
    fn handle_timeout(&mut self, _: Time) {}

    /// Messages of the peer's that have come whole since the connection began. They are counted to
    /// learn how the program goes about waiting for them.
    fn arrivals(&self) -> u64 {
        0
    }

    /// True if the peer has closed the stream, and work requests outlive it.
    fn is_outlived(&self) -> bool {
        false
    }

    /// True if messages wait for a receive.
    fn has_parked(&self) -> bool {
        false
    }

    /// True if nothing more is to be read from the stream until a receive is there.
    fn is_stalled(&self) -> bool {
        false
    }

    /// The state of the send queue, for people; nothing where the core does not tell.
    fn standing(&mut self) -> Standing {
        Standing::default()
    }

    /// Sets how long this end has a peer wait that sends a message without a receive, before each
    /// repetition.
    fn set_rnr_timer(&mut self, _: Duration) {}

    /// Sets how often this end sends a message again that finds no receive: 0 to 6, or 7 for
    /// without end, as at first.
    fn set_rnr_retry(&mut self, _: u8) {}

    /// As [`Self::set_rnr_retry`], of the peer, where this end says it.
    fn set_peer_rnr_retry(&mut self, _: u8) {}

    /// Says what the peer may do of what the memory grants, until the next Reset: instead of what
    /// was said before, here or by other attributes.
    fn set_remote_access(&mut self, _: Access) {}

    /// Outbound and inbound read queue depths that were agreed on (ORD, IRD).
    fn read_depths(&self) -> (usize, usize) {
        (0, 0)
    }
}

/// A core that works on the octets of a stream while it is locked: the simplest kind.
///
/// One virtual call hands it all the octets that have come, or has it fill all the room there is.
pub trait StreamCore: Core {
    /// A stream is there: the queue pair goes to [`QpState::Rts`] from Init or Rtr.
    fn establish(&mut self, now: Time);

    /// Takes octets of the stream and returns how many were used; the rest comes again at the start
    /// of the next call, with more behind it. It may be the beginning of one message unit of
    /// 64 KiB at most. Called without new octets when receives may be there and
    /// [`Core::has_parked`].
    fn receive(
        &mut self,
        octets: &mut [u8],
        memory: &dyn Memory,
        receives: &dyn ReceivePool,
    ) -> usize;

    /// The peer has closed its side; so many octets were left unused.
    fn eof(&mut self, unused: usize);

    /// Builds octets to go out at the front of `room` (64 KiB at least) and returns how many; none
    /// when there is nothing to send. Their order is the stream's.
    fn transmit(&mut self, room: &mut [u8], memory: &dyn Memory) -> usize;

    /// The stream has taken the next so many octets of those that were built.
    fn taken(&mut self, octets: usize);
}

/// Passes each method on to the core behind the pointer: those of `&self`, those of `&mut self`.
macro_rules! behind_pointer {
    (&self { $(
            $ask:ident() $(-> $answer:ty)?;
    )+ } &mut self { $(
            $method:ident($($arg:ident: $type:ty)?) $(-> $result:ty)?;
    )+ }) => {
        impl<C: Core + ?Sized> Core for alloc::boxed::Box<C> {
            type Terminated = C::Terminated;
            type Fault = C::Fault;

            $(fn $ask(&self) $(-> $answer)? {
                (**self).$ask()
            })+

            $(fn $method(&mut self $(, $arg: $type)?) $(-> $result)? {
                (**self).$method($($arg)?)
            })+
        }
    };
}

behind_pointer! {
    &self {
        state() -> QpState;
        outstanding() -> (usize, usize);
        is_connected() -> bool;
        disposition() -> Disposition;
        has_events() -> bool;
        poll_timeout() -> Option<Time>;
        may_want_time() -> bool;
        arrivals() -> u64;
        is_outlived() -> bool;
        has_parked() -> bool;
        is_stalled() -> bool;
        read_depths() -> (usize, usize);
    }
    &mut self {
        modify(to: QpState) -> Result<(), TransitionError>;
        post_send(request: &SendRequest<'_>) -> Result<(), PostError>;
        post_recv(request: &RecvRequest<'_>) -> Result<(), PostError>;
        disconnect();
        abort();
        unreachable();
        lost();
        timed_out();
        fail_locally(what: &'static str);
        wanted() -> Wanted;
        poll_event() -> Option<Event<C::Terminated, C::Fault>>;
        take_refusal() -> Option<Refusal>;
        standing() -> Standing;
        handle_timeout(now: Time);
        set_rnr_timer(timer: Duration);
        set_rnr_retry(count: u8);
        set_peer_rnr_retry(count: u8);
        set_remote_access(access: Access);
    }
}

/// A stream core behind a pointer, which tells its reasons in the vocabulary's words.
pub type BoxedCore = alloc::boxed::Box<dyn StreamCore<Terminated = Reason, Fault = Reason>>;
