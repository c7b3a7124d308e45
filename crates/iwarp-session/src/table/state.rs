// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table itself: the stage that each operation is at, and what there is of them together.

use std::task::Waker;
use std::thread::ThreadId;

use iwarp_types::WorkCompletion;
use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::block::Lent;
use crate::cargo::Cargo;
use crate::line::Line;
use crate::{Block, OperationError};

/// Which queue, and whose places there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Queue {
    Send = 0,
    Receive = 1,
    /// The send queue, with what the session itself has to say.
    Word = 2,
}

#[derive(Default)]
pub(crate) struct State {
    pub(super) operations: SlotMap<DefaultKey, Stage>,
    pub(super) under_way: [usize; 3],
    /// Places in the send queue that are kept for permits.
    pub(super) reserved: usize,
    /// The line of waiters for some: empty while there are as many as the first needs.
    pub(super) line: Line<Waker, usize>,
    /// Operations whose [`Pending`](crate::Pending) was dropped before they were done.
    pub(super) left_behind: usize,
    /// The thread that is blocked on the channel.
    pub(super) leader: Option<ThreadId>,
    /// Tasks that wait until nothing is under way.
    pub(super) idle: Vec<Waker>,
}

/// The end of an operation, and the blocks that it had.
pub(crate) type Finished = (Result<WorkCompletion, OperationError>, Cargo<Block>);

pub(crate) enum Stage {
    UnderWay {
        queue: Queue,
        cargo: Cargo<Lent>,
        waker: Option<Waker>,
        left_behind: bool,
    },
    /// By its completion, or without having been posted.
    Done {
        cargo: Cargo<Lent>,
        end: Result<WorkCompletion, OperationError>,
    },
}

impl Stage {
    /// The result, with the blocks; `None` where it is under way.
    #[inline]
    pub(super) fn into_result(self) -> Option<Finished> {
        match self {
            Self::Done { cargo, end } => Some((end, cargo.take_back())),
            Self::UnderWay { .. } => None,
        }
    }

    /// Has `by` woken when the operation is done. False when it is done already.
    pub(super) fn wake(&mut self, by: &Waker) -> bool {
        let Self::UnderWay { waker, .. } = self else { return false };
        match waker {
            Some(waker) => waker.clone_from(by),
            None => *waker = Some(by.clone()),
        }
        true
    }
}

impl State {
    pub(super) fn insert(&mut self, queue: Queue, cargo: Cargo<Lent>) -> u64 {
        self.under_way[queue as usize] += 1;
        let stage = Stage::UnderWay { queue, cargo, waker: None, left_behind: false };
        self.operations.insert(stage).data().as_ffi()
    }

    pub(super) fn stage(&mut self, id: u64) -> Option<&mut Stage> {
        self.operations.get_mut(key(id))
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Stage> {
        let stage = self.operations.remove(key(id));
        if let Some(Stage::UnderWay { queue, left_behind, .. }) = stage {
            self.under_way[queue as usize] -= 1;
            self.left_behind -= usize::from(left_behind);
        }
        stage
    }

    pub(super) fn is_under_way(&mut self, id: u64) -> bool {
        matches!(self.stage(id), Some(Stage::UnderWay { .. }))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == [0; 3]
    }

    /// True if so many places are free and no other waits for them.
    pub(super) fn has_room(&self, queue: Queue, count: usize, limit: usize) -> bool {
        let promised = queue == Queue::Send && self.line.has_waiting();
        !promised && self.fits(queue, count, limit)
    }

    fn fits(&self, queue: Queue, count: usize, limit: usize) -> bool {
        let reserved = if queue == Queue::Send { self.reserved } else { 0 };
        self.under_way[queue as usize] + reserved + count <= limit
    }

    /// Gives the places in the send queue that are free to those who wait for them.
    pub(super) fn serve(&mut self, limit: usize, woken: &mut Vec<Waker>) {
        while let Some(need) = self.line.need()
            && self.fits(Queue::Send, need, limit)
            && let Ok((_, waker)) = self.line.serve(need)
        {
            self.reserved += need;
            woken.extend(waker);
        }
    }
}

fn key(id: u64) -> DefaultKey {
    KeyData::from_ffi(id).into()
}
