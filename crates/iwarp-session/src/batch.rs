// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several operations that are posted at once.

use std::fmt;
use std::sync::Arc;

use iwarp_types::{AtomicOp, PostError};

use crate::list::{List, Rights};
use crate::post::sealed::Posts as _;
use crate::post::{self, Post, operations};
use crate::{Blocks, Credit, OperationError, Pending, Permit, RemoteGrant, SendFlags, Session};

/// Collects operations and posts them together, in their order: one lock, one look at the queue,
/// and what fits together goes out in one system call.
///
/// An operation has a place in the send queue from the moment it is collected, and is checked then.
/// So a batch is posted as a whole or not at all: when one operation is refused, its [`Pending`]
/// says why, and all others of the batch, before and behind it, end with
/// [`OperationError::NotPosted`]. All do when the batch is dropped. Blocks come back with the
/// failures.
///
/// Other failures can only be found later: when the connection has ended, each operation fails as
/// it does without a batch. When there is no memory to post the rest, those before were posted and
/// go on, and those from there on fail with the reason.
///
/// Waiting for an operation of a batch posts what was collected so far, because it would never end
/// otherwise.
///
/// ```
/// # use iwarp::Access;
/// # use iwarp_session::{Block, BlockPool, Listener, RemoteGrant, Session};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pd = iwarp::Device::open()?.alloc_pd();
/// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
/// # let connecting = Session::connect(&pd, listener.local_addr().ok_or("no address")?);
/// # let peer = Session::accept(listener.accept().wait()?).wait()?;
/// # let session = connecting.wait()?;
/// # let exposed = peer.expose(8192, Access::REMOTE_WRITE)?;
/// # let grant = RemoteGrant::from_octets(&exposed.grant().to_octets());
/// # let received = peer.recv(Block::new(&pd, 8)?);
/// # let pool = BlockPool::new(&pd, 4096, 2)?;
/// # let (one, two) = (pool.take().wait()?, pool.take().wait()?);
/// let mut batch = session.batch();
/// let written = [batch.write(one, &grant, 0), batch.write(two, &grant, 4096)];
/// let told = batch.send_inline(b"written");
/// batch.post()?;
/// for write in written {
///     write.wait()?;
/// }
/// told.wait()?;
/// # assert_eq!(&*received.wait()?.block, b"written");
/// # Ok(())
/// # }
/// ```
#[must_use = "a batch that is dropped posts nothing"]
pub struct Batch<'a> {
    session: &'a Session,
    list: Arc<List>,
    rights: Rights,
}

impl Batch<'_> {
    /// Has the next operation take the place of this permit. Operations beyond the permits need
    /// free places, and are refused with [`OperationError::QueueFull`] where there is none.
    ///
    /// While a batch holds places, waiting for more of them may wait for ever: for this batch, or
    /// for another one that waits as well. So wait for all of them at once before anything is
    /// collected ([`Session::reserve_many`]), or with a timeout.
    ///
    /// # Errors
    ///
    /// The permit, if it is another session's.
    pub fn add_permit(&mut self, permit: Permit) -> Result<(), Permit> {
        if !permit.is_of(&self.session.handle) {
            return Err(permit);
        }
        self.rights.add_place(permit.into_place());
        Ok(())
    }

    /// Has the next message (Send, Immediate Data or Write with immediate data) take the receive of
    /// the peer and the place in the send queue that this credit is for; [`Credits::reserve_many`]
    /// waits for several. Once there was a credit, messages beyond the credits are refused with
    /// [`OperationError::QueueFull`]. Other operations take places as before.
    ///
    /// The receives of messages that are not posted, as the batch is dropped or one of its
    /// operations refused, go to the next that wait.
    ///
    /// [`Credits::reserve_many`]: crate::Credits::reserve_many
    ///
    /// # Errors
    ///
    /// The credit, if it is another session's.
    pub fn add_credit(&mut self, credit: Credit) -> Result<(), Credit> {
        if !credit.is_of(&self.session.handle) {
            return Err(credit);
        }
        let (claim, place) = credit.into_parts();
        self.rights.add_message(claim, place);
        Ok(())
    }

    /// Operations that it would post.
    pub fn len(&self) -> usize {
        self.session.handle.alive().map_or(0, |_| self.list.len())
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts what was collected. Permits and credits that were not needed are given back.
    ///
    /// # Errors
    ///
    /// The reason why not all of it was posted: [`OperationError::NotPosted`] when one operation
    /// was refused before, else as the [`Pending`]s say.
    pub fn post(self) -> Result<(), OperationError> {
        match self.session.handle.alive() {
            Some(core) => self.list.post(core),
            None => Err(PostError::WrongState.into()),
        }
    }

    operations! { self: &mut self }
}

impl post::sealed::Posts for &mut Batch<'_> {
    fn post_by<T>(self, what: impl FnOnce(Post<'_>) -> Pending<T>) -> Pending<T> {
        what(Post::later(&self.session.handle, &self.list, &mut self.rights))
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [permits, credits] = self.rights.left();
        f.debug_struct("Batch")
            .field("len", &self.len())
            .field("permits", &permits)
            .field("credits", &credits)
            .finish_non_exhaustive()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // In a forked child the list may be locked for ever.
        if let Some(core) = self.session.handle.alive() {
            self.list.close(core);
        }
    }
}

impl Session {
    /// Begins to collect operations, to be posted together.
    pub fn batch(&self) -> Batch<'_> {
        Batch { session: self, list: Arc::default(), rights: Rights::default() }
    }
}
