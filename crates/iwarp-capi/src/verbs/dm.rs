// SPDX-License-Identifier: MIT OR Apache-2.0

//! Device memory: the library's own, which programs reach by copies and the network by regions.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use iwarp::Buffer;

use super::context::Held;
use super::imports::{Importable, Memory};
use super::mr::{self, Backing, Mr};
use super::pd::Pd;
use super::{Context, Life};
use crate::abi::flags::IBV_ACCESS_ON_DEMAND;
use crate::abi::{Op, ibv_alloc_dm_attr, ibv_dm};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// Bytes that one piece may have. Adapters have some hundred KiB in all.
pub(crate) const MAX: usize = 1 << 20;

/// Copies and regions are of whole words, as adapters want it.
const WORD: usize = 4;

/// The highest alignment that a program may ask for, as its logarithm: what begins on a page is
/// aligned to it.
const MAX_ALIGNMENT: u32 = 12;

/// A piece of device memory.
#[repr(C)]
pub struct Dm {
    abi: ibv_dm,
    memory: Arc<Memory>,
    context: Held,
}

impl Dm {
    fn make(context: &Context, memory: Arc<Memory>, handle: u32) -> Result<*mut Self, Errno> {
        let abi = ibv_dm {
            context: context.as_abi(),
            memcpy_to_dm: memcpy_to_dm as Op,
            memcpy_from_dm: memcpy_from_dm as Op,
            comp_mask: 0,
            handle,
        };
        Ok(Box::into_raw(Box::new(Self { abi, memory, context: context.hold()? })))
    }

    /// The range of `length` bytes at `offset`, which is checked.
    fn part(&self, offset: u64, length: usize) -> Result<std::ops::Range<usize>, Errno> {
        let size = self.memory.buffer.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let words = start.is_multiple_of(WORD) && length.is_multiple_of(WORD);
        match start.checked_add(length) {
            Some(end) if words && end <= size => Ok(start..end),
            _ => Err(refuse!(
                EINVAL,
                "{length} bytes at {offset} of {size}: both have to be multiples of {WORD}, and within"
            )),
        }
    }
}

/// `ibv_alloc_dm`
pub(crate) extern "C" fn alloc_dm(context: &Context, attr: &ibv_alloc_dm_attr) -> *mut Dm {
    guard::object(called!(ibv_alloc_dm(context, attr)), || {
        if attr.comp_mask != 0 {
            return Err(decline!(EOPNOTSUPP, "comp_mask {:#x} is not known", attr.comp_mask));
        }
        if attr.length == 0 || attr.log_align_req > MAX_ALIGNMENT {
            return Err(refuse!(
                EINVAL,
                "{} bytes, aligned to 2^{}: at least 1, and no more than 2^{MAX_ALIGNMENT}",
                attr.length,
                attr.log_align_req
            ));
        }
        if attr.length > MAX {
            return Err(refuse!(
                ENOMEM,
                "{} bytes, of {MAX} that can be (max_dm_size)",
                attr.length
            ));
        }
        let buffer = Arc::new(Buffer::try_new(attr.length)?);
        let memory = Arc::new(Memory { buffer, life: Life::default() });
        let handle = context.next_handle();
        context.imports().enter(handle, Importable::Memory(Arc::downgrade(&memory)))?;
        Dm::make(context, memory, handle)
    })
}

/// `ibv_free_dm`: not while there are regions of it.
pub(crate) extern "C" fn free_dm(dm: *mut Dm) -> c_int {
    guard::errno(called!(ibv_free_dm(dm)), || {
        // SAFETY: the program has it from a function of this module.
        let object = unsafe { &*dm };
        if object.memory.life.in_use() {
            return Err(refuse!(EBUSY, "{} memory regions are of it", object.memory.life.users()));
        }
        object.context.get().imports().leave(object.abi.handle);
        // SAFETY: made by `Box::into_raw`, and freed once.
        drop(unsafe { Box::from_raw(dm) });
        Ok(())
    })
}

/// `ibv_memcpy_to_dm`
extern "C" fn memcpy_to_dm(dm: &Dm, offset: u64, from: *const c_void, length: usize) -> c_int {
    guard::errno(called!(ibv_memcpy_to_dm(dm, offset, from, length)), || {
        let part = dm.part(offset, length)?;
        let to = dm.memory.buffer.as_mut_ptr().wrapping_add(part.start);
        // SAFETY: within the buffer; the program has `length` bytes at `from`, which are its own.
        // An access by the network at the same time is the program's race.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), to, length) };
        Ok(())
    })
}

/// `ibv_memcpy_from_dm`
extern "C" fn memcpy_from_dm(to: *mut c_void, dm: &Dm, offset: u64, length: usize) -> c_int {
    guard::errno(called!(ibv_memcpy_from_dm(to, dm, offset, length)), || {
        let part = dm.part(offset, length)?;
        let from = dm.memory.buffer.as_mut_ptr().wrapping_add(part.start);
        // SAFETY: as above, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), length) };
        Ok(())
    })
}

/// `ibv_reg_dm_mr`: addressed from 0, which the program has to say.
pub(crate) extern "C" fn reg_dm_mr(
    pd: &Pd,
    dm: &Dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut Mr {
    guard::object(called!(ibv_reg_dm_mr(pd, dm, offset, length, access)), || {
        let access = mr::access(access)?;
        let on_demand = access.bits() & IBV_ACCESS_ON_DEMAND != 0;
        if on_demand || !access.contains(iwarp::Access::ZERO_BASED) {
            return Err(refuse!(
                EINVAL,
                "the access needs IBV_ACCESS_ZERO_BASED, and not IBV_ACCESS_ON_DEMAND"
            ));
        }
        let memory = &dm.memory;
        let part = dm.part(offset, length)?;
        let region = pd.domain().register_part(Arc::clone(&memory.buffer), part, access)?;
        let backing = Backing::Device(memory.life.clone());
        Mr::make(pd, std::ptr::null_mut(), region, Some(backing))
    })
}

/// `ibv_import_dm`
pub extern "C" fn ibv_import_dm(context: &Context, handle: u32) -> *mut Dm {
    guard::object(called!(ibv_import_dm(context, handle)), || {
        Dm::make(context, context.imports().memory(handle)?, handle)
    })
}

/// `ibv_unimport_dm`: the memory stays.
pub extern "C" fn ibv_unimport_dm(dm: *mut Dm) {
    guard::value(called!(ibv_unimport_dm(dm)), (), || {
        // SAFETY: the program has it from `ibv_import_dm`, and gives it up once.
        drop(unsafe { Box::from_raw(dm) });
    });
}
