// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registering memory of the program's.

use std::ffi::{c_int, c_uint, c_void};

use iwarp::Access;

use super::dmabuf;
use super::mr::{Mr, access};
use super::pd::Pd;
use crate::abi::ibv_mr_init_attr;
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

fn register(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    flags: c_uint,
) -> Result<*mut Mr, Errno> {
    pd.check()?;
    let access = access(flags)?;
    let everything = addr.is_null() && length == usize::MAX;
    let region = if everything && access.contains(Access::ON_DEMAND) {
        if iova != 0 || access.contains(Access::ZERO_BASED) {
            return Err(refuse!(
                EINVAL,
                "a region of all memory is addressed from 0, and not IBV_ACCESS_ZERO_BASED"
            ));
        }
        // SAFETY: the program promises to name only what is its own to be accessed.
        unsafe { pd.domain().register_everything(access)? }
    } else {
        // SAFETY: the program promises to keep the memory until it deregisters it, and its peers'
        // accesses are its own affair (ibv_reg_mr(3)).
        unsafe { pd.domain().register_raw_at(addr.cast(), length, iova, access)? }
    };
    Mr::make(pd, addr, region, None)
}

/// `ibv_reg_mr`
pub extern "C" fn ibv_reg_mr(pd: &Pd, addr: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    let iova = addr.addr() as u64;
    guard::object(called!(ibv_reg_mr(pd, addr, length, access)), || {
        register(pd, addr, length, iova, access.cast_unsigned())
    })
}

/// `ibv_reg_mr_iova`
pub extern "C" fn ibv_reg_mr_iova(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut Mr {
    guard::object(called!(ibv_reg_mr_iova(pd, addr, length, iova, access)), || {
        register(pd, addr, length, iova, access.cast_unsigned())
    })
}

/// `ibv_reg_mr_iova2`
pub extern "C" fn ibv_reg_mr_iova2(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut Mr {
    guard::object(called!(ibv_reg_mr_iova2(pd, addr, length, iova, access)), || {
        register(pd, addr, length, iova, access)
    })
}

/// `ibv_reg_mr_ex`
pub extern "C" fn ibv_reg_mr_ex(pd: &Pd, init: &ibv_mr_init_attr) -> *mut Mr {
    const IOVA: u64 = 1;
    const ADDR: u64 = 1 << 1;
    const FD: u64 = 1 << 2;
    const FD_OFFSET: u64 = 1 << 3;

    guard::object(called!(ibv_reg_mr_ex(pd, init)), || {
        let has = |field| init.comp_mask & field != 0;
        if init.comp_mask & !(IOVA | ADDR | FD | FD_OFFSET) != 0 {
            return Err(decline!(EOPNOTSUPP, "comp_mask {:#x} has unknown bits", init.comp_mask));
        }
        let access = init.access.cast_unsigned();
        match (has(ADDR), has(FD)) {
            (true, false) if !has(FD_OFFSET) => {
                let iova = if has(IOVA) { init.iova } else { init.addr.addr() as u64 };
                register(pd, init.addr, init.length, iova, access)
            }
            // By an address and a descriptor: the memory of the latter, mapped at the former.
            (_, true) if has(FD_OFFSET) => {
                let iova = if has(IOVA) { init.iova } else { init.fd_offset };
                dmabuf::register(pd, init.fd_offset, init.length, iova, init.fd, access)
            }
            _ => Err(refuse!(
                EINVAL,
                "comp_mask {:#x}: either an address, or a descriptor and an offset in it",
                init.comp_mask
            )),
        }
    })
}
