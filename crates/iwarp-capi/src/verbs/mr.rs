// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use iwarp::{Access, MemoryRegion, Stag};
use iwarp_os::roster;

use super::Life;
use super::counts::Kind;
use super::listed::ShownUse;
use super::mapping::Mapping;
use super::object::Object;
use super::pd::Pd;
use crate::abi::flags::*;
use crate::abi::ibv_mr;
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, given, refuse};

/// A memory region.
#[repr(C)]
pub struct Mr {
    abi: ibv_mr,
    object: Object,
    /// Taken when it is deregistered.
    registered: RefCell<Option<Registered>>,
    pd: RefCell<Arc<Pd>>,
    /// Other processes see it among the uses of the domain.
    shown: RefCell<ShownUse>,
}

struct Registered {
    region: MemoryRegion,
    /// The memory that it is of, where that is not the program's.
    backing: Option<Box<Backing>>,
}

/// Memory of a region that is not the program's.
pub(crate) enum Backing {
    /// The device's, which stays meanwhile.
    Device(#[expect(dead_code, reason = "held")] Life),
    /// A file's, which is mapped meanwhile.
    File(#[expect(dead_code, reason = "held")] Mapping),
    /// It was imported: another object has it.
    Elsewhere,
}

impl Mr {
    /// The object that the program gets.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the domain is being freed, `ENOMEM` where there are as many regions as there
    /// can be.
    pub(crate) fn make(
        pd: &Pd,
        addr: *mut c_void,
        region: MemoryRegion,
        backing: Option<Backing>,
    ) -> Result<*mut Self, Errno> {
        let held = pd.hold().ok_or_else(being_freed)?;
        let key = region.lkey().0;
        // Keys of a device's regions are unique.
        let object = Object::with_handle(pd.context(), Kind::Mr, key)?;
        let backing = backing.map(Box::new);
        let mr = Self {
            abi: ibv_mr {
                context: pd.context().as_abi(),
                pd: Cell::new(pd.as_abi()),
                addr: Cell::new(addr),
                length: Cell::new(region.len()),
                handle: key,
                lkey: key,
                rkey: key,
            },
            object,
            registered: RefCell::new(Some(Registered { region, backing })),
            pd: RefCell::new(held),
            shown: RefCell::new(pd.shown_use()),
        };
        mr.show();
        Ok(Box::into_raw(Box::new(mr)))
    }

    /// Has other processes see it as it is now.
    fn show(&self) {
        let domain = self.pd.borrow().shown_number();
        let length = self.abi.length.get() as u64;
        self.object.show(domain, || roster::Object::Region { length });
    }
}

impl Registered {
    /// In a forked child that goes on with the protection domain, takes its own region, under that
    /// key. Otherwise changes nothing.
    fn take_over(&mut self, pd: &Pd) {
        if self.region.is_inherited()
            && let Some(own) = pd.domain_in_use()
            && let Ok(region) = own.adopt(self.region.lkey())
        {
            self.region = region;
        }
    }
}

#[cold]
fn being_freed() -> Errno {
    refuse!(EINVAL, "the protection domain is being deallocated")
}

#[cold]
fn deregistered() -> Errno {
    refuse!(EINVAL, "the memory region is deregistered")
}

/// The rights that the flags of the header ask for. Bits of the optional range are hints, and huge
/// pages need nothing.
pub(crate) fn access(flags: c_uint) -> Result<Access, Errno> {
    const RIGHTS: c_uint = Access::all().bits();
    const IGNORED: c_uint = IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;

    if flags & !(RIGHTS | IGNORED) != 0 {
        let unknown = flags & !(RIGHTS | IGNORED);
        return Err(if flags & !0x3fff_ffff != 0 {
            refuse!(EINVAL, "unknown access flags: {unknown:#x}")
        } else {
            decline!(EOPNOTSUPP, "access flags {unknown:#x} are not supported")
        });
    }
    // `Access` has the header's numbers.
    Ok(Access::from_bits_truncate(flags))
}

/// `ibv_rereg_mr`: 0, or `IBV_REREG_MR_ERR_...` with `errno` set; then the region is unchanged.
pub extern "C" fn ibv_rereg_mr(
    mr: &Mr,
    flags: c_int,
    pd: Option<&Pd>,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let has = |flag: u32| flags.cast_unsigned() & flag != 0;
    let moved = has(IBV_REREG_MR_CHANGE_TRANSLATION);
    let wrong = flags == 0
        || has(!IBV_REREG_MR_FLAGS_SUPPORTED)
        || moved && (length == 0 || addr.is_null())
        || access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS);
    let call = called!(ibv_rereg_mr(mr, flags, pd, addr, length, access));
    let result = guard::call(call.verb(), || {
        if wrong {
            return Err(refuse!(
                EINVAL,
                "flags {flags:#x} with address {addr:p}, length {length}, access {access:#x}: each \
                 flag needs what it changes, and nothing else may be given"
            ));
        }
        mr.object.check(mr.abi.context, mr.abi.handle)?;
        let to_pd = if has(IBV_REREG_MR_CHANGE_PD) { Some(given!(pd)?) } else { None };
        if to_pd.is_some_and(|pd| pd.context().as_abi() != mr.abi.context) {
            return Err(refuse!(EINVAL, "the protection domain is of another context"));
        }
        let rights = if has(IBV_REREG_MR_CHANGE_ACCESS) {
            Some(self::access(access.cast_unsigned())?)
        } else {
            None
        };
        let translation = moved.then_some((addr.cast(), length, addr.addr() as u64));
        let mut registered = mr.registered.borrow_mut();
        let registered = registered.as_mut().ok_or_else(deregistered)?;
        let domain = Arc::clone(&mr.pd.borrow());
        domain.domain();
        registered.take_over(&domain);
        let Registered { region, backing } = registered;
        match backing.as_deref() {
            // The region of device memory cannot change.
            Some(Backing::Device(_)) => {
                return Err(refuse!(EINVAL, "a region of device memory stays as it is"));
            }
            Some(Backing::File(_) | Backing::Elsewhere) if moved => {
                return Err(refuse!(EINVAL, "the region has no address of its own to change"));
            }
            _ => {}
        }
        let held = to_pd.map(|pd| pd.hold().ok_or_else(being_freed)).transpose()?;
        // SAFETY: as with registering.
        unsafe { region.reregister(to_pd.map(Pd::domain), translation, rights)? };
        if let Some(pd) = held {
            mr.abi.pd.set(pd.as_abi());
            mr.shown.replace(pd.shown_use());
            mr.pd.replace(pd);
        }
        if moved {
            mr.abi.addr.set(addr);
            mr.abi.length.set(length);
        }
        mr.show();
        Ok(())
    });
    call.ended(|| result.as_ref().map(|()| guard::SUCCESS).map_err(Errno::number));
    match result {
        Ok(()) => 0,
        Err(error) => {
            guard::set_errno(error.number());
            if wrong { IBV_REREG_MR_ERR_INPUT } else { IBV_REREG_MR_ERR_CMD }
        }
    }
}

/// `ibv_dereg_mr`
pub extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    guard::errno(called!(ibv_dereg_mr(mr)), || {
        // SAFETY: the program has it from a function of this module.
        let object = unsafe { &*mr };
        object.object.check(object.abi.context, object.abi.handle)?;
        let mut registered = object.registered.take().ok_or_else(deregistered)?;
        registered.take_over(&object.pd.borrow());
        let Registered { region, backing } = registered;
        // In a forked child that has not used the domain, it is the parent's.
        let is_parents = region.is_inherited();
        if !is_parents && let Err((region, error)) = region.deregister() {
            // Memory windows are bound to it.
            object.registered.replace(Some(Registered { region, backing }));
            return Err(error.into());
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(mr) });
        Ok(())
    })
}

/// `ibv_import_mr`: an imported region does not tell the address of its memory.
pub extern "C" fn ibv_import_mr(pd: &Pd, handle: u32) -> *mut Mr {
    guard::object(called!(ibv_import_mr(pd, handle)), || {
        let region = pd.domain().adopt(Stag(handle)).map_err(|_| {
            refuse!(ENOENT, "there is no memory region with the handle {handle:#x}")
        })?;
        Mr::make(pd, std::ptr::null_mut(), region, Some(Backing::Elsewhere))
    })
}

/// `ibv_unimport_mr`: the region stays registered.
pub extern "C" fn ibv_unimport_mr(mr: *mut Mr) {
    guard::value(called!(ibv_unimport_mr(mr)), (), || {
        // SAFETY: the program has it from `ibv_import_mr`, and gives it up once.
        let mr = unsafe { Box::from_raw(mr) };
        if let Some(Registered { region, .. }) = mr.registered.take() {
            region.disown();
        }
    });
}
