//! What the protocol asks of registered memory.
//!
//! A generic argument of each call, never a field and never `dyn`: the core holds no buffer, and
//! a lock on one ([`Use`]) for as long as a system call may take at most. Every method checks the
//! access anew, because a region may be invalidated or deregistered between any two of them.

use crate::mpa::crc::Crc32c;
use crate::types::{Stag, TaggedOffset};

/// Protection domain number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PdId(pub u32);

/// Queue pair number: what a stream-scoped STag (memory window type 2) is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QpId(pub u32);

/// On whose behalf memory is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accessor {
    /// The protection domain of the queue pair.
    pub pd: PdId,
    /// The queue pair.
    pub qp: QpId,
}

/// Rights of a region or window. The values are those of `ibv_access_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access(pub u32);

impl Access {
    /// Nothing but local read, which every region has.
    pub const LOCAL_READ: Self = Self(0);
    /// Receives and Read Responses may be placed.
    pub const LOCAL_WRITE: Self = Self(1);
    /// The peer may write. Needs local write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// The peer may read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// The peer may do atomic operations. Needs local write.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Tagged offsets (and the addresses of local work requests) count from the region's start
    /// instead of being virtual addresses.
    pub const ZERO_BASED: Self = Self(1 << 5);

    /// Whether every right of `other` is among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any right of `other` is among these.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl core::ops::BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One element of a scatter/gather list: octets of local registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// Address (or offset, in a zero-based region) of the first octet.
    pub addr: u64,
    /// Octets.
    pub length: u32,
    /// The region's local STag.
    pub lkey: Stag,
}

/// What a remote operation does with the memory it names.
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

/// Why an access was refused. What this means on the wire depends on the message
/// ([`crate::qp::terminate`]).
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

/// An atomic operation on 64 bits in the host's octet order (RFC 7306 §5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOp {
    /// Adds field by field; each set bit of `mask` is the most significant bit of a field, whose
    /// carry is dropped. A mask of zero is one field of 64 bits.
    FetchAdd {
        /// What is added.
        add: u64,
        /// Field boundaries.
        mask: u64,
    },
    /// Where `(old ^ compare) & compare_mask` is zero, replaces the bits in `swap_mask`.
    CompareSwap {
        /// What the old value is compared with.
        compare: u64,
        /// Which bits are compared.
        compare_mask: u64,
        /// The new bits.
        swap: u64,
        /// Which bits are replaced.
        swap_mask: u64,
    },
}

impl AtomicOp {
    /// The value the operation leaves where it found `old`.
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask } => {
                // Add without the top bit of each field, then put the top bits in without carry.
                let low = !mask;
                ((old & low).wrapping_add(add & low)) ^ ((old ^ add) & mask)
            }
            Self::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if (old ^ compare) & compare_mask == 0 {
                    (old & !swap_mask) | (swap & swap_mask)
                } else {
                    old
                }
            }
        }
    }
}

/// Binding of a memory window, as a work request carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The window: its present STag.
    pub window: Stag,
    /// The STag it is to have: same index; for type 2 the key is the caller's choice.
    pub new_stag: Stag,
    /// The region underneath: its local STag.
    pub region: Stag,
    /// First octet, in the region's own addressing.
    pub addr: u64,
    /// Octets; 0 unbinds a type 1 window.
    pub length: u64,
    /// Rights of the window, [`Access::ZERO_BASED`] among them.
    pub access: Access,
}

/// Who asks for an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidator {
    /// A local work request (Local Invalidate, or a Read with local invalidate).
    Local,
    /// The peer, by Send with Invalidate (RFC 5040 §5.3).
    Remote,
}

/// What a use of a buffer does, and on whose word.
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

    /// Whether a work request names the buffer: then it is a region, not a window.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::LocalRead | Self::LocalWrite)
    }
}

/// A use of one buffer for several pieces of it, one after another ([`Memory::begin_use`]). What is
/// asked of one piece is asked anew of the next, but for the STag.
pub trait Use {
    /// Places `data` at address or offset `at`, as [`Memory::place_local`] and
    /// [`Memory::place_remote`] do.
    fn place(&self, at: u64, data: &[u8]) -> Result<(), AccessError>;

    /// Copies from address or offset `at`, as [`Memory::gather_local`] and
    /// [`Memory::gather_remote`] do.
    fn gather(&self, at: u64, dst: &mut [u8], crc: Option<&mut Crc32c>) -> Result<(), AccessError>;
}

/// A [`Use`] for memory to which beginning one means nothing: every piece is an access of its own.
#[derive(Debug)]
pub struct EachAnew<'a, M: ?Sized> {
    /// The memory.
    pub memory: &'a M,
    /// On whose behalf.
    pub who: Accessor,
    /// The buffer.
    pub stag: Stag,
    /// What for.
    pub usage: Usage,
}

impl<M: Memory + ?Sized> EachAnew<'_, M> {
    const fn element(&self, at: u64, octets: usize) -> Sge {
        Sge { addr: at, length: octets as u32, lkey: self.stag }
    }
}

impl<M: Memory + ?Sized> Use for EachAnew<'_, M> {
    fn place(&self, at: u64, data: &[u8]) -> Result<(), AccessError> {
        match self.usage.is_local() {
            true => self.memory.place_local(self.who, self.element(at, data.len()), data),
            false => self.memory.place_remote(self.who, self.stag, TaggedOffset(at), data),
        }
    }

    fn gather(&self, at: u64, dst: &mut [u8], crc: Option<&mut Crc32c>) -> Result<(), AccessError> {
        match self.usage.is_local() {
            true => self.memory.gather_local(self.who, self.element(at, dst.len()), dst, crc),
            false => self.memory.gather_remote(self.who, self.stag, TaggedOffset(at), dst, crc),
        }
    }
}

/// Registered memory, as the protocol sees it.
///
/// Placement contract: when a method that places returns, the octets are visible to other
/// threads, and the last aligned word of them became visible last (programs poll it).
/// They may be called while the queue pair is held ([`crate::qp::Shared`]): they wait for nobody who
/// could be waiting for that.
pub trait Memory {
    /// What [`Self::begin_use`] returns.
    type Use<'a>: Use
    where
        Self: 'a;

    /// Begins a use of `stag` for `usage`: consecutive segments of one message are copied in it,
    /// 64 KiB at most, so that whoever revokes the STag waits no longer than for a system call.
    /// Finds whether there is such an STag; the other checks are those of each piece.
    fn begin_use(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<Self::Use<'_>, AccessError>;

    /// Whether the peer may do `access` to `len` octets at `to` of `stag`. Checks, in this order:
    /// the STag, its association with `who`, the right, wrap of `to + len` (a sum of exactly 2^64
    /// wraps), bounds; of an atomic operation last the alignment of the address. `len` is not zero:
    /// zero-length operations are never checked.
    fn check_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
        access: RemoteAccess,
    ) -> Result<(), AccessError>;

    /// Places the payload of an RDMA Write segment, with the checks of [`Self::check_remote`].
    fn place_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        data: &[u8],
    ) -> Result<(), AccessError>;

    /// Copies the source of a Read Response segment into `dst` with the checks of
    /// [`Self::check_remote`]; feeds what it copied to `crc` in the same pass.
    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        crc: Option<&mut Crc32c>,
    ) -> Result<(), AccessError>;

    /// Whether octets that the stream is to take from where they lie may be read by the peer, as
    /// [`Self::check_remote`] says, and are there.
    fn find_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
    ) -> Result<(), AccessError> {
        self.check_remote(who, stag, to, len, RemoteAccess::Read)
    }

    /// The same of a local element, as [`Self::check_local`] says.
    fn find_local(&self, who: Accessor, sge: Sge) -> Result<(), AccessError> {
        self.check_local(who, sge, false)
    }

    /// Performs `op` on the 8 octets at `to` of `stag` and returns what was there before.
    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        op: AtomicOp,
    ) -> Result<u64, AccessError>;

    /// Checks a local element: lkey, protection domain, bounds, and local write if `write`.
    fn check_local(&self, who: Accessor, sge: Sge, write: bool) -> Result<(), AccessError>;

    /// Places `data` (at most `sge.length` octets) at the start of a local element that must be
    /// writable.
    fn place_local(&self, who: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError>;

    /// Copies the first `dst.len()` octets of a local element; feeds them to `crc` in the pass.
    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        crc: Option<&mut Crc32c>,
    ) -> Result<(), AccessError>;

    /// Binds a memory window.
    fn bind_window(&self, who: Accessor, bind: Bind) -> Result<(), AccessError>;

    /// Makes an STag invalid (a window, or a region that allows it).
    fn invalidate(&self, who: Accessor, stag: Stag, by: Invalidator) -> Result<(), AccessError>;
}

#[cfg(test)]
mod tests {
    use super::{Access, AtomicOp};

    #[test]
    fn rights_are_apart_and_add_up() {
        let all = [
            Access::LOCAL_WRITE,
            Access::REMOTE_WRITE,
            Access::REMOTE_READ,
            Access::REMOTE_ATOMIC,
            Access::MW_BIND,
            Access::ZERO_BASED,
        ];
        for (i, one) in all.into_iter().enumerate() {
            assert!(one != Access::LOCAL_READ);
            for (j, other) in all.into_iter().enumerate() {
                assert_eq!(one.contains(other), i == j);
                assert_eq!(one.intersects(other), i == j);
                assert!((one | other).contains(one) && (one | other).intersects(other));
            }
        }
    }

    /// Covers: EXT-7306-5.1.1-06
    #[test]
    fn corner_61_fetch_add_mask_bit_is_the_most_significant_of_a_field() {
        let add = |old, add, mask| AtomicOp::FetchAdd { add, mask }.apply(old);
        assert_eq!(add(u64::MAX, 1, 0), 0);
        assert_eq!(add(u64::MAX, 1, 1 << 63), 0);
        assert_eq!(add(0x0000_0000_ffff_ffff, 1, 1 << 31), 0);
        assert_eq!(add(0x7fff_ffff_ffff_ffff, 1, 0), 1 << 63);
        assert_eq!(add(0x00ff_00ff_00ff_00ff, 0x0001_0001_0001_0001, 0x0080_0080_0080_0080), 0);
    }

    /// Covers: EXT-7306-5.1.2-01
    #[test]
    fn compare_swap_compares_and_replaces_under_masks() {
        let op = AtomicOp::CompareSwap {
            compare: 0x1200,
            compare_mask: 0xff00,
            swap: 0xabcd,
            swap_mask: 0x00ff,
        };
        assert_eq!(op.apply(0x1234), 0x12cd);
        assert_eq!(op.apply(0x1334), 0x1334);
    }
}
