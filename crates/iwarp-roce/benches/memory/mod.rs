// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory for benches: a vector.

use std::cell::RefCell;

use iwarp_types::{
    AccessError, Accessor, AtomicOp, Bind, Digest, EachAnew, Invalidator, Memory, RemoteAccess,
    Sge, Stag, TaggedOffset, Usage,
};

/// Memory in which every access is allowed.
pub(crate) struct Flat(RefCell<Vec<u8>>);

impl Flat {
    pub(crate) fn new(octets: Vec<u8>) -> Self {
        Self(RefCell::new(octets))
    }

    fn read(
        &self,
        at: u64,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        dst.copy_from_slice(&self.0.borrow()[at as usize..][..dst.len()]);
        if let Some(digest) = digest {
            digest.update(dst);
        }
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), AccessError> {
        self.0.borrow_mut()[at as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}

impl Memory for Flat {
    type Use<'a> = EachAnew<'a, Self>;

    fn begin_use(
        &self,
        who: Accessor,
        stag: Stag,
        usage: Usage,
    ) -> Result<Self::Use<'_>, AccessError> {
        Ok(EachAnew { memory: self, who, stag, usage })
    }

    fn check_remote(
        &self,
        _: Accessor,
        _: Stag,
        _: TaggedOffset,
        _: u64,
        _: RemoteAccess,
    ) -> Result<(), AccessError> {
        Ok(())
    }

    fn place_remote(
        &self,
        _: Accessor,
        _: Stag,
        to: TaggedOffset,
        data: &[u8],
    ) -> Result<(), AccessError> {
        self.write(to.0, data)
    }

    fn gather_remote(
        &self,
        _: Accessor,
        _: Stag,
        to: TaggedOffset,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        self.read(to.0, dst, digest)
    }

    fn atomic(
        &self,
        _: Accessor,
        _: Stag,
        _: TaggedOffset,
        _: AtomicOp,
    ) -> Result<u64, AccessError> {
        Ok(0)
    }

    fn check_local(&self, _: Accessor, _: Sge, _: bool) -> Result<(), AccessError> {
        Ok(())
    }

    fn place_local(&self, _: Accessor, sge: Sge, data: &[u8]) -> Result<(), AccessError> {
        self.write(sge.addr, data)
    }

    fn gather_local(
        &self,
        _: Accessor,
        sge: Sge,
        dst: &mut [u8],
        digest: Option<&mut Digest>,
    ) -> Result<(), AccessError> {
        self.read(sge.addr, dst, digest)
    }

    fn bind_window(&self, _: Accessor, _: Bind) -> Result<(), AccessError> {
        Ok(())
    }

    fn invalidate(&self, _: Accessor, _: Stag, _: Invalidator) -> Result<(), AccessError> {
        Ok(())
    }
}
