// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram services: one end asks for the queue pair of one, another answers. The exchange leaves
//! no state but the answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iwarp_roce::cm::{
    Answer, EventKind as News, RejectReason, Request, Resolve, Resolved, ServiceId, SidrStatus,
    Unreachable,
};
use iwarp_roce::wire::{GSI_QP, Path, source_port};
use iwarp_types::{AddressVector, PortSpace, QpId, Time};

use crate::cm::EventKind;
use crate::cm::id::{IdCore, WeakId};
use crate::cm::outgoing::{PATIENCE, PAUSES};
use crate::engine::now;
use crate::engine::sync::Mutex;
use crate::engine::timers::Alarm;
use crate::wire::roce::manager::{Communication, ConnectionManager, Party};

/// A SIDR request of this end, until it is answered.
pub(crate) struct SidrRequest {
    id: WeakId,
    manager: Arc<ConnectionManager>,
    ends: Ends,
    service: ServiceId,
    private_data: Vec<u8>,
    retries: Retries,
    slot: Mutex<Slot>,
}

enum Slot {
    /// It is being asked, or is going to be.
    Starting(Option<Alarm>),
    Here {
        _communication: Communication,
    },
    Over,
}

impl SidrRequest {
    pub(crate) fn new(
        id: WeakId,
        manager: Arc<ConnectionManager>,
        ends: Ends,
        service: ServiceId,
        private_data: &[u8],
    ) -> Arc<Self> {
        let private_data = private_data.to_vec();
        let (retries, slot) = (Retries::begin(&id), Mutex::new(Slot::Starting(None)));
        Arc::new(Self { id, manager, ends, service, private_data, retries, slot })
    }

    /// Asks. The outcome may be reported before this returns.
    pub(crate) fn ask(self: &Arc<Self>) -> io::Result<()> {
        let resolve = Resolve {
            path: self.ends.path(),
            service: self.service,
            source_port: Some(self.ends.local.port()),
            private_data: &self.private_data,
        };
        let party = Arc::downgrade(self);
        let communication = Communication::resolve(&self.manager, &resolve, party)?;
        let mut slot = self.slot.lock();
        let mut before = None;
        if matches!(*slot, Slot::Starting(None)) {
            let here = Slot::Here { _communication: communication };
            before = Some(std::mem::replace(&mut *slot, here));
        }
        drop(slot);
        drop(before);
        Ok(())
    }

    /// Asks again, if that is not too late: the peer's program may be about to offer the service.
    fn ask_again(self: &Arc<Self>) -> bool {
        let weak = Arc::downgrade(self);
        let again = move || {
            let Some(question) = weak.upgrade() else { return };
            let is_wanted = {
                let mut slot = question.slot.lock();
                match &mut *slot {
                    Slot::Starting(alarm) => {
                        *alarm = None;
                        true
                    }
                    Slot::Here { .. } | Slot::Over => false,
                }
            };
            if is_wanted && let Err(error) = question.ask() {
                question.answered(EventKind::Unreachable(error));
            }
        };
        let Some(alarm) = self.retries.again(&self.id, Box::new(again)) else { return false };
        let mut slot = self.slot.lock();
        let before = match &*slot {
            Slot::Over => Slot::Starting(Some(alarm)),
            _ => std::mem::replace(&mut *slot, Slot::Starting(Some(alarm))),
        };
        drop(slot);
        drop(before);
        true
    }

    fn answered(self: &Arc<Self>, kind: EventKind) {
        self.cancel();
        if let Some(id) = self.id.upgrade() {
            id.answered(self, kind);
        }
    }

    /// Ends the question: it is answered, or no longer wanted.
    pub(crate) fn cancel(&self) {
        let before = std::mem::replace(&mut *self.slot.lock(), Slot::Over);
        drop(before);
    }
}

/// Repeated attempts at a peer where no program listens yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    began: Time,
}

impl Retries {
    pub(crate) fn begin(id: &WeakId) -> Self {
        Self { began: id.upgrade().map_or_else(now, |id| id.engine().timers.now()) }
    }

    /// The time for which it has been asked.
    pub(crate) fn lasted(&self, id: &WeakId) -> Duration {
        let now = id.upgrade().map_or_else(now, |id| id.engine().timers.now());
        now.0.saturating_sub(self.began.0)
    }

    /// Calls `what` after a pause; `None` where enough was tried.
    pub(crate) fn again(&self, id: &WeakId, what: Box<dyn FnOnce() + Send>) -> Option<Alarm> {
        let id = id.upgrade()?;
        let timers = &id.engine().timers;
        let now = timers.now();
        let waited = now.0.saturating_sub(self.began.0);
        let (first, last) = PAUSES;
        (waited < PATIENCE).then(|| timers.at(now.plus((waited / 8).clamp(first, last)), what))
    }
}

impl Party for SidrRequest {
    fn happened(self: Arc<Self>, what: News) {
        let kind = match what {
            News::Resolved(resolved) => {
                let Resolved { path, qp, qkey, private_data } = *resolved;
                EventKind::ServiceFound {
                    private_data: private_data.to_vec(),
                    address: path.address,
                    qp,
                    qkey,
                }
            }
            News::Unreachable(Unreachable::Service(SidrStatus::NoService)) if self.ask_again() => {
                return;
            }
            News::Unreachable(Unreachable::Service(status)) => {
                EventKind::ServiceRefused { status: status.code() }
            }
            News::Unreachable(_) => EventKind::Unreachable(io::ErrorKind::TimedOut.into()),
            // No other news concerns a question.
            _ => return,
        };
        self.answered(kind);
    }
}

/// Addresses of an id and its peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) traffic_class: u8,
}

impl Ends {
    /// The way to the peer's connection manager.
    pub(crate) fn path(&self) -> Path {
        let (local, peer) = (self.local.ip().to_canonical(), self.peer.ip().to_canonical());
        let address =
            AddressVector { traffic_class: self.traffic_class, ..AddressVector::new(local, peer) };
        Path::new(address, source_port(0, GSI_QP, GSI_QP))
    }
}

/// A question of a peer's that waits for the program's answer.
pub(crate) struct Inquiry {
    pub(crate) communication: Communication,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl Inquiry {
    /// Says which queue pair has the service.
    pub(crate) fn answer(self, qp: u32, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        self.communication.answer(&Answer { qp: QpId(qp), qkey, private_data })
    }

    pub(crate) fn reject(self, private_data: &[u8]) -> io::Result<()> {
        self.communication.reject(RejectReason::Consumer, private_data)
    }
}

/// A peer asks: the program gets it as an event of the id that offers the service.
pub(crate) fn requested(listener: &WeakId, space: PortSpace, inquiry: Inquiry, request: &Request) {
    let (private_data, address) = (request.private_data.to_vec(), request.path.address);
    let mut waiting = Some(inquiry);
    listener.with_channel(|channel| {
        let Some(inquiry) = waiting.take() else { return };
        let id = IdCore::inquired(channel, inquiry, space);
        let kind = EventKind::ServiceRequest { private_data, address };
        channel.push_request(id, listener.clone(), kind);
    });
    // Outside of the lock: dropping it says no.
    drop(waiting);
}
