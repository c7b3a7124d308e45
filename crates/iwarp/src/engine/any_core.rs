// SPDX-License-Identifier: MIT OR Apache-2.0

//! The core of a queue pair: iWARP's, RoCE v2's, or one over a stream that a program brings.
//!
//! A match stands at the top of each call, so that iWARP's core is called statically and inlined;
//! another one costs a virtual call for all bytes that have come or go out together.
//!
//! Attaching a stream checks that the link is of its core's kind, once for the life of both. A stream
//! core needs no start-up, so it is attached to a connected port (`QueuePair::on_core` and `attach`,
//! hidden in the docs like ports).

use std::time::Duration;

use iwarp_proto::qp::Qp;
use iwarp_roce::{Qp as DatagramQp, Ud};
use iwarp_types::{
    Access, BoxedCore, Core, Disposition, PostError, QpState, QpType, RecvRequest, SendRequest,
    Time, TransitionError, Wanted,
};

/// See the [module](self).
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each endpoint has one, most of them iWARP's")]
pub(crate) enum AnyCore {
    /// Its bulk work is done beside the lock, by a link's pipelines.
    Iwarp(Qp),
    /// Another protocol's over a stream: its bulk work is done under the lock.
    Stream(BoxedCore),
    /// RoCE's, over datagrams: its bulk work is done under the lock.
    Datagram(Box<DatagramQp>),
}

/// Calls the core there is. `Qp`'s own methods go before those of the trait, and do as they do.
macro_rules! each {
    ($any:expr, $core:ident => $call:expr) => {
        match $any {
            Self::Iwarp($core) => $call,
            Self::Stream($core) => $call,
            Self::Datagram($core) => $call,
        }
    };
}

impl AnyCore {
    /// iWARP's, to which a link with iWARP's pipelines belongs.
    #[inline]
    pub(crate) fn iwarp(&mut self) -> &mut Qp {
        match self {
            Self::Iwarp(qp) => qp,
            Self::Stream(_) | Self::Datagram(_) => unreachable!("a link is of its core's kind"),
        }
    }

    /// The other protocol's over a stream, to which a link without pipelines belongs.
    pub(crate) fn stream(&mut self) -> &mut BoxedCore {
        match self {
            Self::Stream(core) => core,
            Self::Iwarp(_) | Self::Datagram(_) => unreachable!("a link is of its core's kind"),
        }
    }

    /// Its type.
    pub(crate) fn qp_type(&self) -> QpType {
        match self {
            Self::Datagram(core) => core.qp_type(),
            Self::Iwarp(_) | Self::Stream(_) => QpType::Rc,
        }
    }

    /// UD's, which alone has to do with multicast groups.
    pub(crate) fn ud(&mut self) -> Option<&mut Ud> {
        match self {
            Self::Datagram(core) => core.ud(),
            Self::Iwarp(_) | Self::Stream(_) => None,
        }
    }

    pub(crate) const fn is_datagram(&self) -> bool {
        matches!(self, Self::Datagram(_))
    }

    pub(crate) const fn is_iwarp(&self) -> bool {
        matches!(self, Self::Iwarp(_))
    }

    #[inline]
    pub(crate) fn post_send(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        each!(self, core => core.post_send(request))
    }

    #[inline]
    pub(crate) fn post_recv(&mut self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        each!(self, core => core.post_recv(request))
    }

    pub(crate) fn state(&self) -> QpState {
        each!(self, core => core.state())
    }

    pub(crate) fn modify(&mut self, to: QpState) -> Result<(), TransitionError> {
        each!(self, core => core.modify(to))
    }

    pub(crate) fn outstanding(&self) -> (usize, usize) {
        each!(self, core => core.outstanding())
    }

    #[inline]
    pub(crate) fn is_connected(&self) -> bool {
        each!(self, core => core.is_connected())
    }

    pub(crate) fn is_outlived(&self) -> bool {
        each!(self, core => core.is_outlived())
    }

    pub(crate) fn disconnect(&mut self) {
        each!(self, core => core.disconnect());
    }

    pub(crate) fn abort(&mut self) {
        each!(self, core => core.abort());
    }

    pub(crate) fn unreachable(&mut self) {
        each!(self, core => core.unreachable());
    }

    pub(crate) fn lost(&mut self) {
        each!(self, core => core.lost());
    }

    pub(crate) fn timed_out(&mut self) {
        each!(self, core => core.timed_out());
    }

    pub(crate) fn fail_locally(&mut self, what: &'static str) {
        each!(self, core => core.fail_locally(what));
    }

    #[inline]
    pub(crate) fn disposition(&self) -> Disposition {
        each!(self, core => core.disposition())
    }

    #[inline]
    pub(crate) fn wanted(&mut self) -> Wanted {
        each!(self, core => core.wanted())
    }

    #[inline]
    pub(crate) fn arrivals(&self) -> u64 {
        each!(self, core => core.arrivals())
    }

    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        each!(self, core => core.has_parked())
    }

    #[inline]
    pub(crate) fn is_stalled(&self) -> bool {
        each!(self, core => core.is_stalled())
    }

    #[inline]
    pub(crate) fn may_want_time(&self) -> bool {
        each!(self, core => core.may_want_time())
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        each!(self, core => core.poll_timeout())
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        each!(self, core => core.handle_timeout(now));
    }

    pub(crate) fn set_rnr_timer(&mut self, timer: Duration) {
        each!(self, core => core.set_rnr_timer(timer));
    }

    pub(crate) fn set_rnr_retry(&mut self, count: u8) {
        each!(self, core => core.set_rnr_retry(count));
    }

    pub(crate) fn set_peer_rnr_retry(&mut self, count: u8) {
        each!(self, core => core.set_peer_rnr_retry(count));
    }

    pub(crate) fn set_remote_access(&mut self, access: Access) {
        each!(self, core => core.set_remote_access(access));
    }

    pub(crate) fn read_depths(&self) -> (usize, usize) {
        each!(self, core => core.read_depths())
    }
}
