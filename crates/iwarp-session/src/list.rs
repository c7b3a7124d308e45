// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations that were collected, to be posted together.
//!
//! Each has its slot in the session's table from the moment it is collected, and all that can be
//! checked is checked then. So nothing but the end of the connection, or of memory, is left to
//! refuse them when they are posted.

use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp::verbs::Capabilities;
use iwarp_types::{Limits, Payload, PostError, SendOp, SendRequest, Sge};

use crate::balance::Claim;
use crate::cargo::Cargo;
use crate::table::{Core, Handle, Place};
use crate::work::Work;
use crate::{Failure, OperationError};

/// Shared by a batch and the operations collected in it: one that is waited for posts the list.
#[derive(Default)]
pub(super) struct List(Mutex<Collected>);

#[derive(Default)]
struct Collected {
    requests: Vec<Request>,
    /// One was refused, or the batch is gone: nothing is posted any more.
    closed: bool,
}

/// The rights that the program has put aside for the operations of a list.
#[derive(Default)]
pub(super) struct Rights {
    places: Vec<Place>,
    messages: Vec<(Claim, Place)>,
    /// Messages need credits, as there were some.
    credited: bool,
}

/// The place of an operation in the send queue, and for a message its receive of the peer, where
/// that was waited for.
#[derive(Default)]
pub(super) enum Right {
    #[default]
    None,
    Place(Place),
    Message(Claim, Place),
    /// A message for which there is no credit.
    Missing,
}

impl Rights {
    pub(super) fn add_place(&mut self, place: Place) {
        self.places.push(place);
    }

    /// For a message: the peer's receive, and the place.
    pub(super) fn add_message(&mut self, claim: Claim, place: Place) {
        self.messages.push((claim, place));
        self.credited = true;
    }

    /// Permits and credits that are left.
    pub(super) const fn left(&self) -> [usize; 2] {
        [self.places.len(), self.messages.len()]
    }

    /// That of an operation.
    pub(super) fn next(&mut self, work: &Work<'_>) -> Right {
        if self.credited && work.is_message() {
            let message = self.messages.pop();
            return message.map_or(Right::Missing, |(claim, place)| Right::Message(claim, place));
        }
        self.places.pop().map_or(Right::None, Right::Place)
    }
}

/// A work request with storage of its own.
struct Request {
    id: u64,
    op: SendOp,
    fence: bool,
    bytes: Bytes,
    /// Given back where no message comes of it.
    claim: Option<Claim>,
}

enum Bytes {
    Sges(Vec<Sge>),
    Inline(Vec<u8>),
}

impl Bytes {
    fn payload(&self) -> Payload<'_> {
        match self {
            Self::Sges(sges) => Payload::Sges(sges),
            Self::Inline(octets) => Payload::Inline(octets),
        }
    }
}

impl Request {
    /// Checks an operation as posting does, and gives it its slot.
    fn admit(core: &Core, work: Work<'_>, right: Right) -> Result<Self, Failure> {
        let Work { op, fence, cargo, other } = work;
        let (claim, place) = match right {
            Right::None => (None, None),
            Right::Place(place) => (None, Some(place)),
            Right::Message(claim, place) => (Some(claim), Some(place)),
            Right::Missing => return Err(Failure::with(OperationError::QueueFull, cargo)),
        };
        let lent = cargo.lend(&core.pd)?;
        let bytes = match (&lent, other) {
            (Cargo::None, Payload::Inline(octets)) => Bytes::Inline(octets.to_vec()),
            (Cargo::None, Payload::Sges(sges)) => Bytes::Sges(sges.to_vec()),
            _ => Bytes::Sges(lent.as_slice().iter().map(|lent| lent.sge(false)).collect()),
        };
        let Capabilities { max_send_sge, max_inline, .. } = core.qp.capabilities();
        let request = SendRequest::new(0, op, bytes.payload());
        if let Err(error) = request.check(&Limits { max_send_sge, max_inline }) {
            return Err(Failure::with(error, lent.take_back()));
        }
        let id = core.take_send_slot(lent, place)?;
        Ok(Self { id, op, fence, bytes, claim })
    }

    fn to_post(&self) -> SendRequest<'_> {
        let mut request = SendRequest::new(self.id, self.op, self.bytes.payload()).signaled();
        request.fence = self.fence;
        request
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Operations that wait to be posted.
    pub(super) fn len(&self) -> usize {
        self.lock().requests.len()
    }

    fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Collects one more. When it is refused, none is posted.
    pub(super) fn collect(
        &self,
        handle: &Handle,
        work: Result<Work<'_>, Failure>,
        right: Right,
    ) -> Result<u64, Failure> {
        let Some(core) = handle.alive() else {
            return work.and_then(|work| Err(Failure::with(PostError::WrongState, work.cargo)));
        };
        // Not while it is locked: others may be woken for what this completes, or gives back.
        let admitted = work.and_then(|work| match self.is_closed() {
            true => Err(Failure::with(OperationError::NotPosted, work.cargo)),
            false => Request::admit(core, work, right),
        });
        let mut collected = self.lock();
        match admitted {
            Ok(request) => {
                let id = request.id;
                collected.requests.push(request);
                Ok(id)
            }
            Err(failure) => {
                collected.closed = true;
                Err(failure)
            }
        }
    }

    /// Posts what was collected.
    pub(super) fn post(&self, core: &Core) -> Result<(), OperationError> {
        let mut collected = self.lock();
        let mut requests = std::mem::take(&mut collected.requests);
        if requests.is_empty() {
            return Ok(());
        }
        let mut collecting = None;
        let posted = match collected.closed {
            true => Err((0, None)),
            false => {
                // Locked: nothing that is collected later overtakes it.
                let list = requests.iter().map(Request::to_post).collect::<Vec<_>>();
                collecting = core.collecting(&list);
                core.post_list(&list).map_err(|(taken, error)| (taken, Some(error)))
            }
        };
        collected.closed |= posted.is_err();
        drop(collected);
        let taken = posted.as_ref().map_or_else(|(taken, _)| *taken, |()| requests.len());
        let claims = requests[..taken].iter_mut().filter_map(|request| request.claim.as_mut());
        claims.for_each(Claim::spend);
        if collecting.is_some() {
            core.collect();
        }
        drop(collecting);
        posted.map_err(|(taken, error): (usize, Option<PostError>)| {
            let why = || error.map_or(OperationError::NotPosted, OperationError::from);
            requests[taken..].iter().for_each(|left| core.fail(left.id, why()));
            why()
        })
    }

    /// Posts nothing any more.
    pub(super) fn close(&self, core: &Core) {
        let requests = {
            let mut collected = self.lock();
            collected.closed = true;
            std::mem::take(&mut collected.requests)
        };
        requests.iter().for_each(|left| core.fail(left.id, OperationError::NotPosted));
    }
}
