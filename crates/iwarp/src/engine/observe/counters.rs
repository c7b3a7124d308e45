// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters of a queue pair: its operations by kind, and their bytes.

use iwarp_types::{SendOp, WcStatus, WorkCompletion};

/// Work requests of one kind. A request that is refused when it is posted counts nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Operations {
    /// Operations posted.
    pub posted: u64,
    /// Operations that ended well.
    pub completed: u64,
    /// Operations that failed, among them those under way when the connection ended.
    pub failed: u64,
    /// Bytes of payload of those that ended well.
    pub bytes: u64,
}

impl Operations {
    /// Operations that have not ended.
    pub const fn under_way(&self) -> u64 {
        self.posted.saturating_sub(self.completed).saturating_sub(self.failed)
    }

    const fn ended(&mut self, is_good: bool, bytes: u64) {
        if is_good {
            self.completed += 1;
            self.bytes += bytes;
        } else {
            self.failed += 1;
        }
    }
}

/// Work requests of a queue pair since it was made, by kind. A reset of the queue pair ends what
/// was under way as failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Sends, and messages of Immediate Data.
    pub sends: Operations,
    /// Writes, with immediate data or without.
    pub writes: Operations,
    /// Reads.
    pub reads: Operations,
    /// Atomic operations, each of 8 bytes.
    pub atomics: Operations,
    /// Bindings of memory windows, and invalidations of local STags. They move no bytes.
    pub local: Operations,
    /// Receives. A receive of a shared receive queue counts as completed or failed only, as it is
    /// posted to that queue. Bytes are those of messages: what a peer's Write with
    /// immediate data writes is none.
    pub receives: Operations,
}

impl Counters {
    pub(super) const fn of(&mut self, kind: Kind) -> &mut Operations {
        match kind {
            Kind::Send => &mut self.sends,
            Kind::Write => &mut self.writes,
            Kind::Read => &mut self.reads,
            Kind::Atomic => &mut self.atomics,
            Kind::Local => &mut self.local,
        }
    }

    #[inline]
    pub(super) const fn posted(&mut self, kind: Kind) {
        self.of(kind).posted += 1;
    }

    #[inline]
    pub(super) const fn ended(&mut self, kind: Kind, is_good: bool, bytes: u32) {
        self.of(kind).ended(is_good, bytes as u64);
    }

    #[inline]
    pub(super) fn received(&mut self, completion: &WorkCompletion) {
        let is_good = completion.status == WcStatus::Success;
        self.receives.ended(is_good, completion.payload_len().into());
    }
}

/// Send work requests that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
    Atomic,
    Local,
}

impl Kind {
    pub(super) const fn of(op: &SendOp) -> Self {
        match op {
            SendOp::Write { .. } | SendOp::WriteImmediate { .. } => Self::Write,
            SendOp::Read { .. } => Self::Read,
            SendOp::Atomic { .. } => Self::Atomic,
            SendOp::Bind(_) | SendOp::LocalInvalidate(_) => Self::Local,
            // So does what later versions of the vocabulary add.
            _ => Self::Send,
        }
    }
}
