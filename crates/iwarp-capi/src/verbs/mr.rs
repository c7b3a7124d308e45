//! Memory regions.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use iwarp::{Access, MemoryRegion};

use super::pd::Pd;
use crate::abi::flags::*;
use crate::abi::{ibv_mr, ibv_mr_init_attr};
use crate::guard::{self, BUSY, Errno, INVALID, UNSUPPORTED};

/// A memory region.
#[repr(C)]
pub struct Mr {
    abi: ibv_mr,
    /// Taken when it is deregistered.
    region: RefCell<Option<MemoryRegion>>,
    pd: RefCell<Arc<Pd>>,
}

/// What the flags of the header ask for. Bits of the optional range are hints, and huge pages
/// need nothing.
pub(crate) fn access(flags: c_uint) -> Result<Access, Errno> {
    const RIGHTS: c_uint = Access::all().bits();
    const IGNORED: c_uint = IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

    if flags & IBV_ACCESS_ON_DEMAND != 0 {
        return Err(UNSUPPORTED);
    }
    if flags & !(RIGHTS | IGNORED) != 0 {
        return Err(if flags & !0x3fff_ffff != 0 { INVALID } else { UNSUPPORTED });
    }
    // The numbers are the same.
    Ok(Access::from_bits_truncate(flags))
}

fn register(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> Result<*mut Mr, Errno> {
    let access = access(flags)?;
    let held = pd.hold().ok_or(INVALID)?;
    // SAFETY: the program promises to keep the memory until it deregisters it, and its peers'
    // accesses are its own affair (ibv_reg_mr(3)).
    let region = unsafe { pd.domain().register_raw_at(addr.cast(), length, iova, access)? };
    Ok(Box::into_raw(Box::new(Mr {
        abi: ibv_mr {
            context: pd.context().as_abi(),
            pd: Cell::new(pd.as_abi()),
            addr: Cell::new(addr),
            length: Cell::new(length),
            handle: pd.context().next_handle(),
            lkey: region.lkey().0,
            rkey: region.rkey().0,
        },
        region: RefCell::new(Some(region)),
        pd: RefCell::new(held),
    })))
}

/// `ibv_reg_mr`
pub extern "C" fn ibv_reg_mr(pd: &Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    let iova = addr.addr() as u64;
    guard::object(|| register(pd, addr, length, iova, access.cast_unsigned()))
}

/// `ibv_reg_mr_iova`
pub extern "C" fn ibv_reg_mr_iova(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut Mr {
    guard::object(|| register(pd, addr, length, iova, access.cast_unsigned()))
}

/// `ibv_reg_mr_iova2`
pub extern "C" fn ibv_reg_mr_iova2(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut Mr {
    guard::object(|| register(pd, addr, length, iova, access))
}

/// `ibv_reg_mr_ex`
pub extern "C" fn ibv_reg_mr_ex(pd: &Pd, init: &ibv_mr_init_attr) -> *mut Mr {
    const IOVA: u64 = 1;
    const ADDR: u64 = 1 << 1;

    guard::object(|| {
        if init.comp_mask & !(IOVA | ADDR) != 0 {
            return Err(UNSUPPORTED);
        }
        if init.comp_mask & ADDR == 0 {
            return Err(INVALID);
        }
        let iova = if init.comp_mask & IOVA != 0 { init.iova } else { init.addr.addr() as u64 };
        register(pd, init.addr, init.length, iova, init.access.cast_unsigned())
    })
}

/// `ibv_rereg_mr`: 0, or a negative number that says whether the old region still is; `errno` says
/// why.
pub extern "C" fn ibv_rereg_mr(
    mr: &Mr,
    flags: c_int,
    pd: Option<&Pd>,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let result = guard::call(|| {
        let has = |flag: u32| flags.cast_unsigned() & flag != 0;
        if flags == 0 || flags.cast_unsigned() & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
            return Err(INVALID);
        }
        let to_pd = if has(IBV_REREG_MR_CHANGE_PD) { Some(pd.ok_or(INVALID)?) } else { None };
        if to_pd.is_some_and(|pd| pd.context().as_abi() != mr.abi.context) {
            return Err(INVALID);
        }
        let rights = if has(IBV_REREG_MR_CHANGE_ACCESS) {
            Some(self::access(access.cast_unsigned())?)
        } else {
            None
        };
        let moved = has(IBV_REREG_MR_CHANGE_TRANSLATION);
        if moved && (length == 0 || addr.is_null()) {
            return Err(INVALID);
        }
        let translation = moved.then_some((addr.cast(), length, addr.addr() as u64));
        let mut region = mr.region.borrow_mut();
        let region = region.as_mut().ok_or(INVALID)?;
        let held = to_pd.map(|pd| pd.hold().ok_or(INVALID)).transpose()?;
        // SAFETY: as with registering.
        unsafe { region.reregister(to_pd.map(Pd::domain), translation, rights)? };
        if let Some(pd) = held {
            mr.abi.pd.set(pd.as_abi());
            mr.pd.replace(pd);
        }
        if moved {
            mr.abi.addr.set(addr);
            mr.abi.length.set(length);
        }
        Ok(())
    });
    match result {
        Ok(()) => 0,
        Err(error) => {
            guard::set_errno(error);
            IBV_REREG_MR_ERR_INPUT
        }
    }
}

/// `ibv_dereg_mr`
pub extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    guard::errno(|| {
        // SAFETY: the program has it from a function of this module.
        let object = unsafe { &*mr };
        let region = object.region.take().ok_or(INVALID)?;
        if let Err((region, _)) = region.deregister() {
            // Memory windows are bound to it.
            object.region.replace(Some(region));
            return Err(BUSY);
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}
