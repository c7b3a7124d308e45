// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory, as a protocol asks for it.
//!
//! An argument of each call, never a field (and `dyn` only for a
//! [`StreamCore`](crate::StreamCore)): the core holds no buffer, and a lock on one ([`Use`]) for as
//! long as a system call may take at most. Every method checks the access anew, because a region
//! may be invalidated or deregistered between any two of them.

use crate::{
    Access, AccessError, Accessor, AtomicOp, Digest, RemoteAccess, Stag, TaggedOffset, Usage,
};

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

/// The end that asks for an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalidator {
    /// A local work request (Local Invalidate, or a Read with local invalidate).
    Local,
    /// The peer, by Send with Invalidate (RFC 5040 §5.3).
    Remote,
}

/// A use of one buffer for several pieces of it, one after another ([`Memory::begin_use`]). Each
/// piece is checked anew, but for the STag.
pub trait Use {
    /// Places `data` at address or offset `at`, as [`Memory::place_local`] and
    /// [`Memory::place_remote`] do.
    fn place(&self, at: u64, data: &[u8]) -> Result<(), AccessError>;

    /// Copies from address or offset `at`, as [`Memory::gather_local`] and
    /// [`Memory::gather_remote`] do.
    fn gather(
        &self,
        at: u64,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError>;
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
    /// The access that it is for.
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

    fn gather(
        &self,
        at: u64,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        match self.usage.is_local() {
            true => self.memory.gather_local(self.who, self.element(at, dst.len()), dst, digest),
            false => self.memory.gather_remote(self.who, self.stag, TaggedOffset(at), dst, digest),
        }
    }
}

/// Registered memory, as the protocol sees it.
///
/// Placement contract: when a method that places returns, the octets are visible to other
/// threads, and the last aligned word of them became visible last (programs poll it).
/// They may be called while the queue pair is locked: they wait for no thread that could be
/// waiting for that lock.
pub trait Memory {
    /// The use that [`Self::begin_use`] returns.
    type Use<'a>: Use
    where
        Self: Sized + 'a;

    /// Begins a use of `stag` for `usage`: consecutive segments of one message are copied in it,
    /// 64 KiB at most, so that a thread that revokes the STag waits no longer than for a system
    /// call. Finds whether there is such an STag; the other checks are those of each piece.
    fn begin_use(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<Self::Use<'_>, AccessError>
    where
        Self: Sized;

    /// Checks that the peer may do `access` to `len` octets at `to` of `stag`, in this order: the
    /// STag, its association with `who`, the right, wrap of `to + len` (a sum of exactly 2^64
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
    /// [`Self::check_remote`]; feeds what it copied to `digest` in the same pass.
    fn gather_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError>;

    /// Checks that octets which the stream is to take from where they lie may be read by the peer,
    /// as [`Self::check_remote`] says, and are there.
    fn find_remote(
        &self,
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        len: u64,
    ) -> Result<(), AccessError> {
        self.check_remote(who, stag, to, len, RemoteAccess::Read)
    }

    /// Checks that octets of a local element which the stream is to take from where they lie may be
    /// read, as [`Self::check_local`] says, and are there.
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

    /// Copies the first `dst.len()` octets of a local element; feeds them to `digest` in the pass.
    fn gather_local(
        &self,
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError>;

    /// Binds a memory window.
    fn bind_window(&self, who: Accessor, bind: Bind) -> Result<(), AccessError>;

    /// Makes an STag invalid (a window, or a region that allows it).
    fn invalidate(&self, who: Accessor, stag: Stag, by: Invalidator) -> Result<(), AccessError>;
}

/// Passes each method on to the memory behind the reference, for protocols that are generic over
/// theirs and are handed one of any type ([`StreamCore`](crate::StreamCore)). A use of it means
/// nothing ([`EachAnew`]): a thread that revokes an STag waits for one segment.
macro_rules! behind_reference {
    ($($method:ident($($arg:ident: $type:ty),+) -> $result:ty;)+) => {
        impl<'m> Memory for &'m dyn Memory {
            type Use<'a>
                = EachAnew<'a, dyn Memory + 'm>
            where
                Self: 'a;

            fn begin_use(
                &self,
                who: Accessor,
                stag: Stag,
                usage: Usage,
            ) -> Result<Self::Use<'_>, AccessError> {
                Ok(EachAnew { memory: *self, who, stag, usage })
            }

            $(fn $method(&self, $($arg: $type),+) -> Result<$result, AccessError> {
                (**self).$method($($arg),+)
            })+
        }
    };
}

behind_reference! {
    check_remote(who: Accessor, stag: Stag, to: TaggedOffset, len: u64, access: RemoteAccess) -> ();
    place_remote(who: Accessor, stag: Stag, to: TaggedOffset, data: &[u8]) -> ();
    gather_remote(
        who: Accessor,
        stag: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        digest: Option<&mut Digest>
    ) -> ();
    find_remote(who: Accessor, stag: Stag, to: TaggedOffset, len: u64) -> ();
    find_local(who: Accessor, sge: Sge) -> ();
    atomic(who: Accessor, stag: Stag, to: TaggedOffset, op: AtomicOp) -> u64;
    check_local(who: Accessor, sge: Sge, write: bool) -> ();
    place_local(who: Accessor, sge: Sge, data: &[u8]) -> ();
    gather_local(
        who: Accessor,
        sge: Sge,
        dst: &mut [u8],
        digest: Option<&mut Digest>
    ) -> ();
    bind_window(who: Accessor, bind: Bind) -> ();
    invalidate(who: Accessor, stag: Stag, by: Invalidator) -> ();
}
