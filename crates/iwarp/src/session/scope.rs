// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations on memory that is only borrowed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use iwarp_mem::{Borrowed, MemoryTable, RegisterError};
use iwarp_types::{Payload, SendOp, Sge, Stag};

use crate::session::cargo::Cargo;
use crate::session::post::Work;
use crate::session::table::{Core, Handle};
use crate::session::{Failure, OperationError, Outcome, Pending, RemoteGrant, Session};

/// Operations that end before [`Session::scope`] returns, so that they can use memory that was
/// borrowed before the call. There is no async form of this: a future can be forgotten, and the
/// memory would be free while operations use it.
///
/// ```no_run
/// # fn example(session: &iwarp::session::Session) -> Result<(), iwarp::session::Failure> {
/// let question = [1, 2, 3];
/// let mut answer = [0; 64];
/// let len = session.scope(|scope| {
///     let answered = scope.recv(&mut answer);
///     scope.send(&question).wait()?;
///     answered.wait()
/// })?;
/// println!("{:?}", &answer[..len]);
/// # Ok(())
/// # }
/// ```
///
/// Memory that dies before the scope ends is refused:
///
/// ```compile_fail,E0597
/// # fn example(session: &iwarp::session::Session) {
/// session.scope(|scope| {
///     let question = vec![1, 2, 3];
///     let _ = scope.send(&question); // does not live until the scope ends
/// });
/// # }
/// ```
///
/// So is looking at memory that a message may be written to:
///
/// ```compile_fail,E0502
/// # fn example(session: &iwarp::session::Session) {
/// let mut answer = [0; 64];
/// session.scope(|scope| {
///     let answered = scope.recv(&mut answer);
///     println!("{}", answer[0]); // borrowed until the scope ends
///     let _ = answered.wait();
/// });
/// # }
/// ```
///
/// And changing memory that is being sent:
///
/// ```compile_fail,E0506
/// # fn example(session: &iwarp::session::Session) {
/// let mut question = [1, 2, 3];
/// session.scope(|scope| {
///     let sent = scope.send(&question);
///     question[0] = 9;
///     let _ = sent.wait();
/// });
/// # }
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    handle: Arc<Handle>,
    memory: &'scope Borrowed<'scope, 'env>,
    posted: Arc<Mutex<Vec<u64>>>,
}

impl<'scope> Scope<'scope, '_> {
    pub(super) fn run<'env, R>(
        session: &Session,
        f: impl for<'s> FnOnce(&Scope<'s, 'env>) -> R,
    ) -> R {
        let handle = &session.handle;
        // In a forked child nothing can be posted, and the parent's table may be locked for ever.
        let spare;
        let core = handle.alive();
        let table = match core {
            Some(core) => &core.pd.engine.memory,
            None => {
                spare = Arc::new(MemoryTable::new());
                &spare
            }
        };
        table.borrow_for(handle.pd.id(), |memory| {
            let posted = Arc::default();
            let scope = Scope { handle: Arc::clone(handle), memory, posted: Arc::clone(&posted) };
            let mut ending = Ending { core, posted, returned: false };
            let result = f(&scope);
            ending.returned = true;
            result
            // `ending` waits here, and behind it the memory is deregistered: that, and not the
            // waiting, is what makes this sound.
        })
    }

    /// Sends the bytes as a message.
    pub fn send(&self, octets: &'scope [u8]) -> Pending<()> {
        let op = SendOp::SEND;
        self.post_send(op, self.shared(octets))
    }

    /// Receives a message; says how long it is.
    pub fn recv(&self, octets: &'scope mut [u8]) -> Pending<usize> {
        let sge = self.exclusive(octets);
        let posted = sge.and_then(|sge| self.handle.post_recv(Cargo::None, &[sge]));
        self.pending(posted)
    }

    /// Writes the bytes at `offset` of what the peer granted.
    pub fn write(&self, octets: &'scope [u8], to: &RemoteGrant, offset: u64) -> Pending<()> {
        let Some((stag, to)) = to.at(offset, octets.len() as u64) else {
            return self.pending(Err(Failure::new(OperationError::OutsideGrant, None)));
        };
        self.post_send(SendOp::Write { stag, to }, self.shared(octets))
    }

    /// Fills the bytes with what is at `offset` of what the peer granted.
    pub fn read(&self, from: &RemoteGrant, offset: u64, octets: &'scope mut [u8]) -> Pending<()> {
        let Some((stag, to)) = from.at(offset, octets.len() as u64) else {
            return self.pending(Err(Failure::new(OperationError::OutsideGrant, None)));
        };
        self.post_send(SendOp::Read { stag, to, invalidate: None }, self.exclusive(octets))
    }

    fn shared(&self, octets: &'scope [u8]) -> Result<Sge, Failure> {
        let len = octets.len();
        element(len, self.memory.shared(octets))
    }

    fn exclusive(&self, octets: &'scope mut [u8]) -> Result<Sge, Failure> {
        let len = octets.len();
        element(len, self.memory.exclusive(octets))
    }

    fn post_send<T: Outcome>(&self, op: SendOp, sge: Result<Sge, Failure>) -> Pending<T> {
        let handle = &self.handle;
        self.pending(
            sge.and_then(|sge| handle.post_send(Work::on_bytes(op, Payload::Sges(&[sge])), None)),
        )
    }

    fn pending<T: Outcome>(&self, posted: Result<u64, Failure>) -> Pending<T> {
        let pending = Pending::new(&self.handle, posted);
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.extend(pending.id());
        pending
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

fn element(len: usize, stag: Result<Stag, RegisterError>) -> Result<Sge, Failure> {
    let lkey = stag.map_err(|error| Failure::new(error, None))?;
    let length = u32::try_from(len).map_err(|_| Failure::new(RegisterError::InvalidRange, None))?;
    Ok(Sge { addr: 0, length, lkey })
}

/// Waits for the operations of a scope.
struct Ending<'a> {
    /// `None` in a forked child, where there are none.
    core: Option<&'a Arc<Core>>,
    posted: Arc<Mutex<Vec<u64>>>,
    returned: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Some(core) = self.core else { return };
        if !self.returned {
            core.abort();
        }
        let posted =
            std::mem::take(&mut *self.posted.lock().unwrap_or_else(PoisonError::into_inner));
        if core.wait_for_all(&posted).is_err() {
            // Cannot wait: then nothing may be left to wait for.
            core.abort();
        }
    }
}
