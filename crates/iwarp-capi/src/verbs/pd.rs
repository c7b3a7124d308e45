// SPDX-License-Identifier: MIT OR Apache-2.0

//! Protection domains, and what is derived from them.

use std::ffi::c_int;
use std::sync::{Arc, Weak};

use iwarp::{Log, Personality, ProtectionDomain};
use iwarp_os::{Heritable, roster};

use super::context::{Held, tell_of_heir};
use super::counts::Kind;
use super::imports::Importable;
use super::listed::ShownUse;
use super::object::Object;
use super::{Context, Life};
use crate::abi::{ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, given, refuse};

/// A protection domain, or a parent domain: another name of one. The program's pointer holds it,
/// and so does each of its memory regions.
#[repr(C)]
pub struct Pd {
    abi: ibv_pd,
    object: Object,
    /// A forked child has its own in its place.
    domain: Heritable<ProtectionDomain>,
    /// The domain that a parent domain is another name of.
    base: Weak<Self>,
    own: Weak<Self>,
    /// Held by the objects that were made with it, but for its memory regions.
    pub(crate) life: Life,
    /// The objects of which a parent domain was made.
    _of: [Option<Life>; 2],
    _context: Held,
}

impl Pd {
    /// The pointer that the program knows it by.
    pub fn as_abi(&self) -> *mut ibv_pd {
        (&raw const self.abi).cast_mut()
    }

    /// The domain behind a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is null or one that `ibv_alloc_pd` or `ibv_alloc_parent_domain` gave, and the
    /// domain exists.
    pub unsafe fn of<'a>(pd: *mut ibv_pd) -> Option<&'a Self> {
        // SAFETY: the caller's promise; `abi` is the first field.
        unsafe { pd.cast::<Self>().as_ref() }
    }

    /// True if it has memory regions, which hold it as the program's pointer does.
    fn has_regions(&self) -> bool {
        self.own.strong_count() > 1
    }

    /// The library's protection domain. A forked child makes its own when it first needs it, with
    /// the regions that it inherits.
    pub fn domain(&self) -> &ProtectionDomain {
        self.domain.get_or_make_or_nearest(|inherited| {
            if let Some(base) = self.base.upgrade() {
                return Ok(base.domain().clone());
            }
            // SAFETY: the program keeps the memory of its regions (ibv_reg_mr(3)), here as in the
            // parent.
            let taken = unsafe { self.context().device().take_over_pd(inherited) };
            let (own, left) = taken.map_err(Errno::from).inspect_err(|error| {
                say_no_heir(format_args!("{error:?}"));
            })?;
            tell_of_heir("a protection domain and its memory regions");
            if left > 0 {
                say_no_heir(format_args!("{left} of its regions"));
            }
            Ok::<_, Errno>(own)
        })
    }

    /// The domain of this process; `None` in a forked child that has not used it.
    pub(crate) fn domain_in_use(&self) -> Option<&ProtectionDomain> {
        self.domain.get()
    }

    /// Checks that the public half is still that of this object.
    ///
    /// # Errors
    ///
    /// `ENOENT`
    pub(crate) fn check(&self) -> Result<(), Errno> {
        self.object.check(self.abi.context, self.abi.handle)
    }

    /// The number by which other processes know it; 0 where it is not listed.
    pub(crate) fn shown_number(&self) -> u32 {
        self.object.shown_number()
    }

    /// A use that they see, by a memory region.
    pub(crate) fn shown_use(&self) -> ShownUse {
        self.object.in_use()
    }

    /// For a memory region, whose domain it is also after the program has deallocated it.
    pub(crate) fn hold(&self) -> Option<Arc<Self>> {
        self.own.upgrade()
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
        // SAFETY: the context stays for as long as its objects are.
        unsafe { Context::of(self.abi.context) }
    }
}

#[cold]
fn say_no_heir(what: std::fmt::Arguments<'_>) {
    guard::say(
        Log::Warn,
        format_args!(
            "a forked process goes on with a protection domain of its parent's, but not with all of its \
             memory regions: {what}: register memory again in the child"
        ),
    );
}

/// The parts of a parent domain.
#[derive(Default)]
struct Of {
    base: Weak<Pd>,
    lives: [Option<Life>; 2],
}

fn make(context: &Context, domain: ProtectionDomain, of: Of) -> Result<*mut Pd, Errno> {
    let object = Object::new(context, Kind::Pd)?;
    context.imports().enter(object.handle(), Importable::Domain(domain.clone()))?;
    with_object(context, domain, of, object)
}

fn with_object(
    context: &Context,
    domain: ProtectionDomain,
    of: Of,
    object: Object,
) -> Result<*mut Pd, Errno> {
    let held = context.hold()?;
    let pd = Arc::new_cyclic(|own| Pd {
        abi: ibv_pd { context: context.as_abi(), handle: object.handle() },
        life: object.life(),
        object,
        domain: Heritable::new(domain),
        base: of.base,
        own: Weak::clone(own),
        _of: of.lives,
        _context: held,
    });
    pd.object.show(pd.object.shown_number(), || roster::Object::Domain);
    Ok(Arc::into_raw(pd).cast_mut())
}

/// `ibv_alloc_pd`
pub extern "C" fn ibv_alloc_pd(context: &Context) -> *mut Pd {
    guard::object(called!(ibv_alloc_pd(context)), || {
        make(context, context.device().alloc_pd(), Of::default())
    })
}

/// `ibv_dealloc_pd`, for parent domains too. On an RNIC, memory regions keep the domain, and it is
/// not in use by them: `ib_send_bw` forgets a region where it connects by itself, which no other
/// RNIC lets it do, and would fail at its very end.
pub extern "C" fn ibv_dealloc_pd(pd: *mut Pd) -> c_int {
    guard::errno(called!(ibv_dealloc_pd(pd)), || {
        // SAFETY: the program has it from a function of this module.
        let object = unsafe { &*pd };
        object.check()?;
        let is_rnic = object.context().device_as_it_is().personality() == Personality::Iwarp;
        if object.life.in_use() || (object.has_regions() && !is_rnic) {
            let (users, has) = (object.life.users(), object.has_regions());
            return Err(refuse!(
                EBUSY,
                "{users} queue pairs, shared receive queues, address handles, windows or parent \
                 domains, and {} memory regions, are still of it: destroy and deregister them first",
                if has { "some" } else { "no" }
            ));
        }
        object.context().imports().leave(object.abi.handle);
        // SAFETY: made by `Arc::into_raw`, and deallocated once.
        drop(unsafe { Arc::from_raw(pd) });
        Ok(())
    })
}

/// `ibv_import_pd`
pub extern "C" fn ibv_import_pd(context: &Context, handle: u32) -> *mut Pd {
    guard::object(called!(ibv_import_pd(context, handle)), || {
        let domain = context.imports().domain(handle)?;
        let object = Object::with_handle(context, Kind::Pd, handle)?;
        with_object(context, domain, Of::default(), object)
    })
}

/// `ibv_unimport_pd`: the domain stays, and so do the objects that were made with it here.
pub extern "C" fn ibv_unimport_pd(pd: *mut Pd) {
    guard::value(called!(ibv_unimport_pd(pd)), (), || {
        // SAFETY: the program has it from `ibv_import_pd`, and gives it up once.
        drop(unsafe { Arc::from_raw(pd) });
    });
}

/// Frees an object that nothing uses any more.
///
/// # Safety
///
/// `object` was made by `Box::into_raw`, and is not used afterwards if this succeeds.
pub(crate) unsafe fn destroy<T>(
    object: *mut T,
    life: impl FnOnce(&T) -> &Life,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let users = life(unsafe { &*object }).users();
    if users > 0 {
        return Err(refuse!(EBUSY, "{users} parent domains are still made of it"));
    }
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(object) });
    Ok(())
}

/// A thread domain. Locks cost little here, so it changes nothing.
#[repr(C)]
pub(crate) struct Td {
    abi: ibv_td,
    life: Life,
    _context: Held,
}

/// `ibv_alloc_td`
pub(crate) extern "C" fn alloc_td(context: &Context, init: &ibv_td_init_attr) -> *mut Td {
    guard::object(called!(ibv_alloc_td(context, init)), || {
        if init.comp_mask != 0 {
            return Err(decline!(EOPNOTSUPP, "comp_mask {:#x} is not known", init.comp_mask));
        }
        let abi = ibv_td { context: context.as_abi() };
        let (life, _context) = (Life::default(), context.hold()?);
        Ok(Box::into_raw(Box::new(Td { abi, life, _context })))
    })
}

/// `ibv_dealloc_td`
pub(crate) extern "C" fn dealloc_td(td: *mut Td) -> c_int {
    // SAFETY: the program has it from `alloc_td`, and destroys it once.
    guard::errno(called!(ibv_dealloc_td(td)), || unsafe { destroy(td, |td| &td.life) })
}

/// `ibv_alloc_parent_domain`. The program's allocators are not used: they serve buffers that this
/// device does not have.
pub(crate) extern "C" fn alloc_parent_domain(
    context: &Context,
    init: &ibv_parent_domain_init_attr,
) -> *mut Pd {
    const ALLOCATORS: u32 = 1;
    const PD_CONTEXT: u32 = 1 << 1;

    guard::object(called!(ibv_alloc_parent_domain(context, init)), || {
        if init.comp_mask & !(ALLOCATORS | PD_CONTEXT) != 0 {
            return Err(decline!(EOPNOTSUPP, "comp_mask {:#x} has unknown bits", init.comp_mask));
        }
        // SAFETY: the program passes a domain of its own.
        let pd = unsafe { Pd::of(init.pd) };
        let pd = given!(pd)?;
        // SAFETY: the program passes a thread domain of its own, or null.
        let td = unsafe { init.td.cast::<Td>().as_ref() };
        let others = td.is_some_and(|td| td.abi.context != context.as_abi());
        if others || !pd.context().is(context) {
            return Err(refuse!(EINVAL, "the domain, or thread domain, is of another context"));
        }
        let lives = [Some(pd.life.clone()), td.map(|td| td.life.clone())];
        make(context, pd.domain().clone(), Of { base: Weak::clone(&pd.own), lives })
    })
}
