// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stream within the host that moves from TCP to memory that both processes share.
//!
//! The responder offers it, once the peer's hello frame says that it would move; the initiator
//! follows the offer (`engine/local`). The worker then gives the stream its ring. Each direction
//! switches between two message units, so that the CRCs of the rest may be left out.

use std::io;
use std::sync::{Arc, Weak};

use iwarp_proto::mpa::startup::{Negotiated, Role};
use iwarp_proto::qp::{PeerIsLocal, Qp};

use super::Link;
use crate::engine::group::{Member, MemberWaker};
use crate::engine::local::{LocalEnd, Locals, Offer};
use crate::engine::mover::StreamMover;
use crate::engine::sync::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::port::local::Way;
use crate::port::{Ends, Port, Readiness, Wake, Waker, WakerSlot};

/// No part, or no more.
const DONE: u8 = 0;
const OFFERS: u8 = 1;
const FOLLOWS: u8 = 2;

/// Receives after which an offer that has not come is not waited for any more: each looks at the
/// core once more.
const PATIENCE: u32 = 1024;

/// The part of this end in the agreement that is still to be played, and what came of it.
#[derive(Debug)]
pub(super) struct Local {
    part: AtomicU8,
    /// Receives that have looked.
    looks: AtomicU32,
    /// The poll groups that it joins from now on are woken by what comes past TCP.
    woken: AtomicBool,
}

impl Local {
    pub(super) fn new(terms: Option<&Negotiated>, stream: &dyn Port) -> Self {
        let part = match terms.filter(|_| stream.local().is_some()) {
            Some(Negotiated { role: Role::Responder, .. }) => OFFERS,
            Some(Negotiated { role: Role::Initiator, .. }) => FOLLOWS,
            None => DONE,
        };
        Self { part: AtomicU8::new(part), looks: AtomicU32::new(0), woken: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.part.load(Ordering::Relaxed) != DONE
    }
}

impl Link {
    /// Looks whether the peer has said that it would move, or has offered it.
    #[cold]
    pub(super) fn agree(&self) {
        let part = self.local.part.load(Ordering::Relaxed);
        let (peer, offer) =
            self.endpoint.with_own(|qp: &mut Qp| (qp.peer_is_local(), qp.heard_offer()));
        match (peer, part, offer) {
            // There is more to come.
            (PeerIsLocal::Unknown, ..) | (PeerIsLocal::Willing, FOLLOWS, None)
                if self.local.looks.fetch_add(1, Ordering::Relaxed) < PATIENCE =>
            {
                return;
            }
            _ => {}
        }
        // Another thread may be at it.
        let is_ours = part != DONE && self.local.part.swap(DONE, Ordering::Relaxed) == part;
        if !is_ours || peer != PeerIsLocal::Willing {
            return;
        }
        let end: Weak<dyn LocalEnd> = Weak::<Self>::clone(&self.itself);
        let locals = self.locals();
        if part == OFFERS {
            let Some(Offer { name, secret }) = locals.offer(end) else { return };
            let offer = iwarp_proto::qp::Offer { name, secret };
            self.endpoint.with_own(|qp: &mut Qp| qp.offer(offer));
            self.send();
        } else if let (Some(offer), Some(end)) = (offer, end.upgrade()) {
            let iwarp_proto::qp::Offer { name, secret } = offer;
            locals.follow(Offer { name, secret }, end);
        }
    }

    fn locals(&self) -> Arc<Locals> {
        let engine = &self.endpoint.engine;
        let make = || Locals::new(&engine.worker, engine.options.demands_crc);
        let kept: Arc<Arc<Locals>> = engine.kept_or(make);
        Arc::clone(&kept)
    }

    /// True if what comes past TCP wakes the poll groups.
    #[inline]
    pub(super) fn is_woken(&self) -> bool {
        self.local.woken.load(Ordering::Acquire)
    }

    /// Has the poll groups woken by what comes past TCP, or no more.
    fn rejoin(self: &Arc<Self>, woken: bool) -> io::Result<()> {
        if self.local.woken.load(Ordering::Acquire) == woken {
            return Ok(());
        }
        // In this order: a thread that has the link join a group meanwhile has it join as it is
        // from now on, or has it leave as well.
        self.local.woken.store(woken, Ordering::Release);
        self.memberships.leave(&**self);
        for group in self.endpoint.groups() {
            self.join(group)?;
        }
        if let Some(port) = self.stream.local() {
            // Marked while it was in no group.
            port.waker().wake(Readiness::all());
        }
        Ok(())
    }

    /// The poll groups learn by the channel what comes, before the stream moves.
    fn join_channel(&self, way: &Way) -> io::Result<()> {
        self.endpoint.groups().into_iter().try_for_each(|group| group.add_channel(&way.channel))
    }
}

impl LocalEnd for Link {
    fn ends(&self) -> Ends {
        self.stream.ends()
    }

    fn waker(&self) -> Arc<WakerSlot> {
        self.stream.local().map_or_else(Arc::default, |port| Arc::clone(port.waker()))
    }

    fn move_to(&self, way: Way) -> io::Result<()> {
        let (Some(port), Some(link)) = (self.stream.local(), self.itself.upgrade()) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if self.is_closed() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        self.join_channel(&way)?;
        let waker = Arc::new(MemberWaker::default());
        port.set_waker(Waker::new(Arc::clone(&waker) as Arc<dyn Wake>));
        if !port.set_way(way) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let _ = self.waker.set(waker);
        link.rejoin(true).inspect_err(|error| self.lose(error))
    }

    fn send_by_way(&self, crc: bool) {
        let Some(port) = self.stream.local() else { return };
        let (qp, peer) = (self.endpoint.id(), self.stream.ends().name());
        tracing::info!(qp, %peer, crc, "moved from TCP to shared memory");
        port.permit(crc);
        // The transmitter switches before its next message unit.
        self.send();
        self.settle();
    }

    fn stay(&self) {
        if let Some(link) = self.itself.upgrade()
            && let Err(error) = link.rejoin(false)
        {
            self.lose(&error);
        }
    }
}
