// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagram services: one end asks for the queue pair of one, another answers. The exchange leaves
//! no state but the answer.

use std::fmt;
use std::io;
use std::sync::Arc;

use iwarp_roce::cm::{
    Answer, EventKind as News, RejectReason, Request, Resolve, Resolved, ServiceId, SidrStatus,
    Unreachable,
};
use iwarp_types::QpId;

use super::ends::Ends;
use crate::connect::{
    By, ConnectError, ConnectionState, EventKind, Exchange, Listener, Owner, Question, Retries,
};
use crate::engine::fate::ROCE;
use crate::engine::sync::Mutex;
use crate::engine::timers::{Alarm, Timers};
use crate::wire::roce::manager::{Communication, ConnectionManager, Party};

/// A SIDR request of this end, until it is answered.
pub(crate) struct SidrRequest {
    owner: Arc<dyn Owner>,
    /// Absent once the question is answered: an id may be kept for long then.
    manager: Mutex<Option<Arc<ConnectionManager>>>,
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
    /// The queue pair is known.
    Found,
    Over,
}

impl SidrRequest {
    pub(crate) fn new(
        manager: Arc<ConnectionManager>,
        timers: &Timers,
        question: Question<'_>,
    ) -> Arc<Self> {
        let Question { owner, space, local, peer, traffic_class, private_data } = question;
        let ends = Ends { local, peer, traffic_class };
        let service = ServiceId::new(space, peer.port());
        let private_data = private_data.to_vec();
        let (retries, slot) = (Retries::begin(timers), Mutex::new(Slot::Starting(None)));
        let manager = Mutex::new(Some(manager));
        Arc::new(Self { owner, manager, ends, service, private_data, retries, slot })
    }

    /// Asks. The outcome may be reported before this returns.
    fn ask(self: &Arc<Self>) -> io::Result<()> {
        let resolve = Resolve {
            path: self.ends.path(),
            service: self.service,
            source_port: Some(self.ends.local.port()),
            private_data: &self.private_data,
        };
        let party = Arc::downgrade(self);
        let manager = self.manager.lock().clone().ok_or(io::ErrorKind::NotConnected)?;
        let communication = Communication::resolve(&manager, &resolve, party)?;
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
                    Slot::Here { .. } | Slot::Found | Slot::Over => false,
                }
            };
            if is_wanted && let Err(error) = question.ask() {
                question.answered(EventKind::Unreachable(error));
            }
        };
        let Some(alarm) = self.retries.again(Box::new(again)) else { return false };
        let mut slot = self.slot.lock();
        let before = match &*slot {
            Slot::Found | Slot::Over => Slot::Starting(Some(alarm)),
            _ => std::mem::replace(&mut *slot, Slot::Starting(Some(alarm))),
        };
        drop(slot);
        drop(before);
        true
    }

    fn answered(&self, kind: EventKind) {
        if matches!(kind, EventKind::ServiceFound { .. }) {
            self.end(Slot::Found);
            self.owner.tell(kind);
        } else {
            self.end(Slot::Over);
            if self.owner.failed(self) {
                self.owner.tell(kind);
            }
        }
    }

    /// The question is answered, or no longer wanted.
    fn end(&self, end: Slot) {
        let mut slot = self.slot.lock();
        let end = if matches!(*slot, Slot::Over) { Slot::Over } else { end };
        let before = std::mem::replace(&mut *slot, end);
        drop(slot);
        drop(before);
        let manager = self.manager.lock().take();
        drop(manager);
    }
}

impl fmt::Debug for SidrRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SidrRequest").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl Exchange for SidrRequest {
    fn state(&self) -> ConnectionState {
        match *self.slot.lock() {
            Slot::Starting(_) | Slot::Here { .. } => ConnectionState::Connecting,
            Slot::Found => ConnectionState::Connected,
            Slot::Over => ConnectionState::Over,
        }
    }

    fn wire(&self) -> &'static str {
        ROCE
    }

    fn begin(self: Arc<Self>, _: By) -> Result<(), ConnectError> {
        Ok(self.ask()?)
    }

    fn close(self: Arc<Self>) {
        self.end(Slot::Over);
    }

    fn abandon(self: Arc<Self>) {
        self.end(Slot::Over);
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

/// A question of a peer's that waits for the program's answer.
struct Inquiry {
    ends: Ends,
    state: Mutex<Stage>,
}

enum Stage {
    Asked(Communication),
    Answered,
    Over,
}

impl Inquiry {
    /// Takes the question to answer it: once only, even if that fails.
    fn take(&self, after: Stage) -> io::Result<Communication> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, after) {
            Stage::Asked(communication) => Ok(communication),
            other => {
                *state = other;
                Err(io::ErrorKind::InvalidInput.into())
            }
        }
    }
}

impl fmt::Debug for Inquiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inquiry").field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl Exchange for Inquiry {
    fn state(&self) -> ConnectionState {
        match *self.state.lock() {
            Stage::Asked(_) => ConnectionState::Requested,
            Stage::Answered => ConnectionState::Connected,
            Stage::Over => ConnectionState::Over,
        }
    }

    fn wire(&self) -> &'static str {
        ROCE
    }

    fn answer(&self, qp: u32, qkey: u32, private_data: &[u8]) -> io::Result<()> {
        self.take(Stage::Answered)?.answer(&Answer { qp: QpId(qp), qkey, private_data })
    }

    fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        self.take(Stage::Over)?.reject(RejectReason::Consumer, private_data)
    }

    /// Dropping the question refuses.
    fn close(self: Arc<Self>) {
        drop(self.take(Stage::Over));
    }

    fn abandon(self: Arc<Self>) {
        self.close();
    }
}

/// A peer asks: the program gets it as an event of the id that offers the service.
pub(super) fn requested(
    listener: &dyn Listener,
    communication: Communication,
    ends: Ends,
    request: &Request,
) {
    let (private_data, address) = (request.private_data.to_vec(), request.path.address);
    let kind = EventKind::ServiceRequest { private_data, address };
    let make = move |_: Arc<dyn Owner>| {
        let state = Mutex::new(Stage::Asked(communication));
        Arc::new(Inquiry { ends, state }) as Arc<dyn Exchange>
    };
    listener.requested(Some(ends.local), ends.peer, Box::new(make), kind);
}
