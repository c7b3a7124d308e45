// SPDX-License-Identifier: MIT OR Apache-2.0

//! Operations on memory that is only borrowed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use iwarp_mem::{Borrowed, MemoryTable, RegisterError};
use iwarp_types::{Payload, SendOp, Sge, Stag, TaggedOffset};

use crate::cargo::Cargo;
use crate::table::{Core, Handle};
use crate::work::Work;
use crate::{Failure, OperationError, Outcome, Pending, RemoteGrant, Session};

/// Operations that end before [`Session::scope`] returns, so that they can use memory that was
/// borrowed before the call. There is no async form of this: a future can be forgotten, and the
/// memory would be free while operations use it.
///
/// ```no_run
/// # fn example(session: &iwarp_session::Session) -> Result<(), iwarp_session::Failure> {
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
/// # fn example(session: &iwarp_session::Session) {
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
/// # fn example(session: &iwarp_session::Session) {
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
/// # fn example(session: &iwarp_session::Session) {
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
    fn run<'env, R>(session: &Session, f: impl for<'s> FnOnce(&Scope<'s, 'env>) -> R) -> R {
        let handle = &session.handle;
        // In a forked child nothing can be posted, and the parent's table may be locked for ever.
        let spare;
        let core = handle.alive();
        let table = match handle.pd.memory() {
            Ok(memory) => memory,
            Err(_) => {
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
        self.send_parts([octets])
    }

    /// Sends several parts as one message, in their order: as many as one operation may have blocks
    /// ([`Config::max_blocks`](crate::Config::max_blocks)).
    ///
    /// ```no_run
    /// # fn example(session: &iwarp_session::Session, body: &[u8])
    /// # -> Result<(), iwarp_session::Failure> {
    /// let header = (body.len() as u64).to_be_bytes();
    /// session.scope(|scope| scope.send_parts([&header[..], body]).wait())
    /// # }
    /// ```
    pub fn send_parts(&self, parts: impl IntoIterator<Item = &'scope [u8]>) -> Pending<()> {
        self.post_send(self.shared(parts).map(|sges| (SendOp::SEND, sges)))
    }

    /// Receives a message; says how long it is.
    pub fn recv(&self, octets: &'scope mut [u8]) -> Pending<usize> {
        self.recv_parts([octets])
    }

    /// Receives a message into several parts, one after the other; says how long it is.
    ///
    /// ```no_run
    /// # fn example(session: &iwarp_session::Session) -> Result<(), iwarp_session::Failure> {
    /// let (mut header, mut body) = ([0; 8], vec![0; 4096]);
    /// let len = session.scope(|scope| scope.recv_parts([&mut header[..], &mut body]).wait())?;
    /// body.truncate(len.saturating_sub(header.len()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn recv_parts(&self, parts: impl IntoIterator<Item = &'scope mut [u8]>) -> Pending<usize> {
        let posted = self.exclusive(parts);
        let posted = posted.and_then(|sges| self.handle.post_recv(Cargo::None, &sges));
        self.pending(posted)
    }

    /// Writes the bytes at `offset` of what the peer granted.
    pub fn write(&self, octets: &'scope [u8], to: &RemoteGrant, offset: u64) -> Pending<()> {
        self.write_parts([octets], to, offset)
    }

    /// Writes several parts at `offset` of what the peer granted, one behind the other.
    pub fn write_parts(
        &self,
        parts: impl IntoIterator<Item = &'scope [u8]>,
        to: &RemoteGrant,
        offset: u64,
    ) -> Pending<()> {
        self.post_at(to, offset, self.shared(parts), |stag, to| SendOp::Write { stag, to })
    }

    /// Fills the bytes with what is at `offset` of what the peer granted.
    pub fn read(&self, from: &RemoteGrant, offset: u64, octets: &'scope mut [u8]) -> Pending<()> {
        self.read_parts(from, offset, [octets])
    }

    /// Fills several parts, one after the other, with what is at `offset` of what the peer granted.
    pub fn read_parts(
        &self,
        from: &RemoteGrant,
        offset: u64,
        parts: impl IntoIterator<Item = &'scope mut [u8]>,
    ) -> Pending<()> {
        let op = |stag, to| SendOp::Read { stag, to, invalidate: None };
        self.post_at(from, offset, self.exclusive(parts), op)
    }

    fn shared(&self, parts: impl IntoIterator<Item = &'scope [u8]>) -> Result<Vec<Sge>, Failure> {
        self.elements(parts, |part| (part.len(), self.memory.shared(part)))
    }

    fn exclusive(
        &self,
        parts: impl IntoIterator<Item = &'scope mut [u8]>,
    ) -> Result<Vec<Sge>, Failure> {
        self.elements(parts, |part| (part.len(), self.memory.exclusive(part)))
    }

    fn elements<P>(
        &self,
        parts: impl IntoIterator<Item = P>,
        register: impl Fn(P) -> (usize, Result<Stag, RegisterError>),
    ) -> Result<Vec<Sge>, Failure> {
        // More parts than a request may have are not registered.
        let most =
            self.handle.alive().map_or(usize::MAX, |core| core.qp.capabilities().max_send_sge);
        let mut sges = Vec::new();
        for part in parts {
            if sges.len() == most {
                return Err(Failure::new(OperationError::TooManyBlocks, None));
            }
            let (len, stag) = register(part);
            sges.push(element(len, stag)?);
        }
        Ok(sges)
    }

    fn post_at(
        &self,
        grant: &RemoteGrant,
        offset: u64,
        sges: Result<Vec<Sge>, Failure>,
        op: impl FnOnce(Stag, TaggedOffset) -> SendOp,
    ) -> Pending<()> {
        self.post_send(sges.and_then(|sges| {
            let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
            let place = grant.at(offset, len);
            let outside = || Failure::new(OperationError::OutsideGrant, None);
            place.map(|(stag, to)| (op(stag, to), sges)).ok_or_else(outside)
        }))
    }

    fn post_send(&self, work: Result<(SendOp, Vec<Sge>), Failure>) -> Pending<()> {
        let posted = work.and_then(|(op, sges)| {
            self.handle.post_send(Work::on_bytes(op, Payload::Sges(&sges)), None)
        });
        self.pending(posted)
    }

    fn pending<T: Outcome>(&self, posted: Result<u64, Failure>) -> Pending<T> {
        let pending = Pending::new(&self.handle, posted);
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.extend(pending.id());
        pending
    }
}

impl Session {
    /// Lends borrowed memory to operations, and returns when all of those are done: a receive
    /// that no message comes for holds it up, unless either end closes the connection. When `f`
    /// panics, the connection is reset first.
    pub fn scope<'env, R>(&self, f: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> R) -> R {
        Scope::run(self, f)
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
            core.qp.abort();
        }
        let posted =
            std::mem::take(&mut *self.posted.lock().unwrap_or_else(PoisonError::into_inner));
        if core.wait_for_all(&posted).is_err() {
            // Cannot wait: then nothing may be left to wait for.
            core.qp.abort();
        }
    }
}
