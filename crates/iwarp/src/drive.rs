// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that an event loop of the program's moves: a descriptor that is readable when there
//! is something to do, and a call that does it.
//!
//! Otherwise a thread of the library, the worker, moves what no caller polls or waits for, and the
//! program hears of it by a [`CompletionChannel`]. A [`Drive`] spares the way through that thread:
//! the loop itself reads what has come, in the [turn](Drive::turn) that also hands it the
//! completions. The worker stays away as long as the loop has its turns in time, and moves the
//! connections again when it does not, or when the `Drive` is dropped.
//!
//! A loop has turns until one says [`Turn::Sleep`], and the next one when the descriptor is
//! readable. `poll(2)`, `epoll`, mio's `SourceFd` and the like may watch it together with others:
//!
//! ```
//! # use std::io;
//! # use std::os::fd::AsFd;
//! use iwarp::WorkCompletion;
//! use iwarp::drive::{Drive, Turn};
//! use rustix::event::{PollFd, PollFlags, Timespec, poll};
//!
//! /// Goes on until `completed` says that it is enough.
//! fn run(
//!     drive: &Drive,
//!     other: &dyn AsFd,
//!     completed: &mut dyn FnMut(WorkCompletion) -> bool,
//! ) -> io::Result<()> {
//!     let mut enough = false;
//!     while !enough {
//!         let turn = drive.turn(|completion| enough |= completed(completion))?;
//!         let mut fds = [
//!             PollFd::from_borrowed_fd(drive.descriptor()?, PollFlags::IN),
//!             PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN),
//!         ];
//!         // The others are looked at in any case, and waited for where there is nothing to do.
//!         let now = Timespec { tv_sec: 0, tv_nsec: 0 };
//!         poll(&mut fds, (turn == Turn::Again).then_some(&now))?;
//!         // Here is the place for their work, and for a queue by which threads wake the loop.
//!     }
//!     Ok(())
//! }
//!
//! let pd = iwarp::Device::open()?.alloc_pd();
//! let drive = Drive::new(&pd, 64)?;
//! let attributes = iwarp::QueuePairAttributes::new(drive.cq(), drive.cq());
//! let qp = pd.create_qp(&attributes)?;
//! // Connect it, post to it, and run.
//! # let _ = (run, qp);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A task of tokio's watches a duplicate, which is its runtime's alone. What that tells is a
//! change, so it forgets the last one before the turn:
//!
//! ```
//! # use std::io;
//! # use iwarp::WorkCompletion;
//! use iwarp::drive::{Drive, Turn};
//! use tokio::io::unix::AsyncFd;
//!
//! async fn run(drive: &Drive, mut completed: impl FnMut(WorkCompletion)) -> io::Result<()> {
//!     let descriptor = AsyncFd::new(drive.duplicate()?)?;
//!     loop {
//!         match drive.turn(&mut completed)? {
//!             // Other tasks have theirs.
//!             Turn::Again => tokio::task::yield_now().await,
//!             Turn::Sleep => descriptor.readable().await?.clear_ready(),
//!         }
//!     }
//! }
//! # let _ = |drive: &'static Drive| drop(run(drive, |_| ()));
//! ```
//!
//! The sessions of `iwarp-session` are made of this. What they need beyond it is public and hidden
//! from this documentation, as no program should rely on it.

mod served;
mod task;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use iwarp_os::ProcessOwned;
use iwarp_types::WorkCompletion;

#[doc(hidden)]
pub use self::task::{Background, Collecting, TaskTurn};
use crate::engine::channel::ChannelCore;
use crate::engine::cq::CqCore;
#[doc(hidden)]
pub use crate::engine::ended::ConnectionObserver;
#[doc(hidden)]
pub use crate::engine::mover::{Enter, ReactorPlace, ReactorStream};
use crate::engine::worker::Worker;
use crate::verbs::{CompletionChannel, CompletionQueue, ProtectionDomain, check_depth};

/// A completion queue whose connections an event loop moves: see the [module](self).
///
/// One thread or task at a time has turns. Others may post to its queue pairs meanwhile: what
/// completes by that makes the descriptor readable.
#[derive(Debug)]
pub struct Drive {
    cq: CompletionQueue,
    channel: CompletionChannel,
    driven: ProcessOwned<Driven>,
}

/// The parts of it that belong to this process.
#[derive(Debug)]
struct Driven {
    cq: Arc<CqCore>,
    channel: Arc<ChannelCore>,
    worker: Arc<Worker>,
}

/// A duplicate of the [descriptor](Drive::descriptor) of a [`Drive`].
#[derive(Debug)]
pub struct Duplicate {
    fd: OwnedFd,
    /// Without it the system forgets the descriptors that the duplicate watches.
    _channel: CompletionChannel,
}

impl AsFd for Duplicate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Duplicate {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// The next act of an event loop.
#[must_use = "a loop that sleeps after `Again` may sleep for ever"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// There may be more to do: the next turn, after other work that is due.
    Again,
    /// All is done. The next turn is due when the [descriptor](Drive::descriptor) is readable.
    Sleep,
}

impl Drive {
    /// Makes a completion queue for `depth` completions, for queue pairs of the domain and of
    /// others of its device, and what drives it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a depth of 0 or beyond [`max_cqe`](crate::DeviceAttributes::max_cqe);
    /// `OutOfMemory`; when descriptors cannot be made; `ENODEV` in a forked child.
    pub fn new(pd: &ProtectionDomain, depth: usize) -> io::Result<Self> {
        check_depth(depth)?;
        let channel = ChannelCore::new()?;
        channel.set_driven();
        Self::with(pd, depth, channel)
    }

    fn with(pd: &ProtectionDomain, depth: usize, channel: Arc<ChannelCore>) -> io::Result<Self> {
        let pd = pd.core.check()?;
        let (raises, events) = (Some(Arc::clone(&channel)), Arc::clone(&pd.events));
        let cq = CqCore::new(&pd.engine, depth, raises, events)?;
        Ok(Self {
            cq: CompletionQueue::new(Arc::clone(&cq)),
            channel: CompletionChannel::of(Arc::clone(&channel)),
            driven: ProcessOwned::new(Driven {
                cq,
                channel,
                worker: Arc::clone(&pd.engine.worker),
            }),
        })
    }

    /// The completion queue, for queue pairs ([`QueuePairAttributes`](crate::QueuePairAttributes)).
    /// Turns arm it; a program that does so itself gains nothing.
    pub const fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// The channel of the completion queue. A thread may [wait](CompletionChannel::wait) there in
    /// place of a loop that sleeps, and moves the connections meanwhile. Once the `Drive` is
    /// dropped, to wait there is an error. A loop sleeps on the [descriptor](Self::descriptor) and
    /// not on the channel's, which tells of nothing that comes in.
    pub const fn channel(&self) -> &CompletionChannel {
        &self.channel
    }

    /// The descriptor that is readable when a [turn](Self::turn) is due: something has come on a
    /// connection, there is room again for what waits to go out, another thread has completed
    /// something, or [woken](Self::wake) the loop. It does not change for the life of the `Drive`.
    ///
    /// It is for watching only, by anything that reports what is readable or what becomes so.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child, which does not have it.
    pub fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.driven.check()?.channel.readiness())
    }

    /// A duplicate of the descriptor, for a runtime that wants one of its own. It stays readable
    /// once the `Drive` is dropped, so that a loop which sleeps on it sees that.
    ///
    /// # Errors
    ///
    /// When descriptors cannot be made; `ENODEV` in a forked child.
    pub fn duplicate(&self) -> io::Result<Duplicate> {
        Ok(Duplicate {
            fd: self.descriptor()?.try_clone_to_owned()?,
            _channel: self.channel.clone(),
        })
    }

    /// Moves what can be moved on the connections, and hands over completions, oldest first, 256 at
    /// most. Nothing is locked meanwhile: `completed` may post.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub fn turn(&self, completed: impl FnMut(WorkCompletion)) -> io::Result<Turn> {
        let driven = self.driven.check()?;
        // These have made the descriptor readable.
        while driven.channel.take_ready().is_some() {}
        Ok(match driven.turn(None, completed) {
            TaskTurn::Next | TaskTurn::AfterOthers => Turn::Again,
            TaskTurn::Sleep | TaskTurn::SleepOnStream => Turn::Sleep,
        })
    }

    /// Takes the oldest completion that there is. Moves nothing.
    #[inline]
    pub fn take(&self) -> Option<WorkCompletion> {
        self.driven.alive()?.cq.take_one()
    }

    /// Makes a turn due: from any thread, for a loop that sleeps. The turn takes the word, however
    /// often it was given. So a loop looks between its turn and its sleep at what the other threads
    /// have left for it.
    pub fn wake(&self) {
        if let Some(driven) = self.driven.alive() {
            driven.channel.push_once(driven.cq.number());
        }
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if let Some(driven) = self.driven.alive() {
            // No turn comes for which the worker would wait.
            driven.cq.group().handover.end_wait_for_runtime();
            // One that sleeps on a duplicate of the descriptor sees that it is over.
            driven.channel.end();
        }
    }
}
