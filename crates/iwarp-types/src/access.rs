// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rights to registered memory, and why an access is refused.

bitflags::bitflags! {
    /// Rights of a region or window. The values are those of `ibv_access_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Access: u32 {
        /// Only local read, which every region has.
        const LOCAL_READ = 0;
        /// Receives and Read Responses may be placed.
        const LOCAL_WRITE = 1;
        /// The peer may write. Needs local write.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may read.
        const REMOTE_READ = 1 << 2;
        /// The peer may do atomic operations. Needs local write.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Tagged offsets (and the addresses of local work requests) count from the region's start
        /// instead of being virtual addresses.
        const ZERO_BASED = 1 << 5;
        /// Registering does not look at what is mapped: each access finds out. Memory may come and
        /// go while it is registered.
        const ON_DEMAND = 1 << 6;
    }
}

impl Access {
    /// All that a peer may be allowed to do.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);
}

/// A remote operation, by its effect on the memory that it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteAccess {
    /// RDMA Write.
    Write,
    /// RDMA Read (the source of a Read Response).
    Read,
    /// FetchAdd or CompareSwap.
    Atomic,
}

impl RemoteAccess {
    /// The right that the region or window must have.
    pub const fn right(self) -> Access {
        match self {
            Self::Write => Access::REMOTE_WRITE,
            Self::Read => Access::REMOTE_READ,
            Self::Atomic => Access::REMOTE_ATOMIC,
        }
    }
}

/// A use of a buffer, by its effect and by the end that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// A work request sends from it.
    LocalRead,
    /// A receive or a Read of a work request's is placed in it.
    LocalWrite,
    /// The peer reads it.
    RemoteRead,
    /// The peer writes to it.
    RemoteWrite,
}

impl Usage {
    /// The right that the region or window must have.
    pub const fn right(self) -> Access {
        match self {
            Self::LocalRead => Access::LOCAL_READ,
            Self::LocalWrite => Access::LOCAL_WRITE,
            Self::RemoteRead => RemoteAccess::Read.right(),
            Self::RemoteWrite => RemoteAccess::Write.right(),
        }
    }

    /// True if a work request names the buffer: then it is a region, not a window.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::LocalRead | Self::LocalWrite)
    }
}

/// The reason why an access was refused. Its code on the wire depends on the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// No such STag: unknown index, wrong key, STag 0, or invalidated.
    #[error("invalid STag")]
    InvalidStag,
    /// The octets are not all within the region or window.
    #[error("base or bounds violation")]
    Bounds,
    /// Offset plus length reaches 2^64.
    #[error("tagged offset wraps")]
    Wrap,
    /// The region does not grant this kind of access.
    #[error("access right not granted")]
    Rights,
    /// The STag belongs to another protection domain or another stream.
    #[error("STag not associated with this stream")]
    NotAssociated,
    /// The target of an atomic operation is not aligned to 8 octets.
    #[error("atomic target is not aligned to 8 octets")]
    Unaligned,
    /// Invalidation was asked for something that may not be invalidated this way: a region that
    /// several streams share, or one with windows bound to it.
    #[error("STag cannot be invalidated")]
    CannotInvalidate,
    /// Everything was right but the memory: the program has unmapped, protected or truncated it
    /// since it was registered. The address that could not be accessed (as `EFAULT` says it).
    #[error("bad address {0:#x}: registered memory is gone")]
    BadAddress(u64),
}
