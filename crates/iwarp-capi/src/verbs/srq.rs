// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues.

use std::cell::Cell;
use std::ffi::{c_int, c_uint};

use iwarp::{AsyncEvent, PostError, SharedReceiveQueue};
use iwarp_os::roster;

use super::book::Key;
use super::counts::Kind;
use super::object::Object;
use super::pd::Pd;
use super::{Context, Life};
use crate::abi::flags::*;
use crate::abi::{Plain, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, given, refuse};

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    pub(crate) abi: ibv_srq,
    object: Object,
    queue: SharedReceiveQueue,
    max_wr: Cell<u32>,
    max_sge: u32,
    /// Held by queue pairs.
    pub(crate) life: Life,
    _pd: Life,
}

impl Srq {
    /// The pointer that the program knows it by.
    pub fn as_abi(&self) -> *mut ibv_srq {
        (&raw const self.abi).cast_mut()
    }

    /// The queue behind a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is null or one that a function of this library gave, and the queue exists.
    pub unsafe fn of<'a>(srq: *mut ibv_srq) -> Option<&'a Self> {
        // SAFETY: the caller's promise; `abi` is the first field.
        unsafe { srq.cast::<Self>().as_ref() }
    }

    /// The library's shared receive queue.
    pub fn queue(&self) -> &SharedReceiveQueue {
        &self.queue
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

    pub(crate) fn context(&self) -> &Context {
        // SAFETY: the context stays for as long as its objects are.
        unsafe { Context::of(self.abi.context) }
    }
}

impl Srq {
    /// The error for a receive with so many elements that it does not take.
    #[cold]
    pub(crate) fn refused(&self, error: PostError, sges: usize) -> Errno {
        match error {
            PostError::QueueFull => refuse!(
                ENOMEM,
                "the shared receive queue is full: it has room for {} (max_wr)",
                self.max_wr.get()
            ),
            PostError::TooManySges => refuse!(
                EINVAL,
                "{sges} scatter/gather elements, of {} (max_sge) that a receive may have",
                self.max_sge
            ),
            PostError::OutOfMemory => refuse!(ENOMEM, "out of memory"),
            error => refuse!(EINVAL, "{error}"),
        }
    }
}

fn create(pd: &Pd, init: &mut ibv_srq_init_attr) -> Result<*mut Srq, Errno> {
    pd.check()?;
    let context = pd.context();
    let limits = context.device().attributes();
    let attr = &mut init.attr;
    if attr.max_wr == 0 || attr.max_wr > limits.max_srq_wr || attr.max_sge > limits.max_srq_sge {
        return Err(refuse!(
            EINVAL,
            "max_wr is {}, and max_sge {}; they can be 1 to {}, and up to {}",
            attr.max_wr,
            attr.max_sge,
            limits.max_srq_wr,
            limits.max_srq_sge
        ));
    }
    context.book.prepare()?;
    let object = Object::new(context, Kind::Srq)?;
    object.show(pd.shown_number(), || roster::Object::SharedReceives);
    attr.max_sge = attr.max_sge.max(1);
    attr.srq_limit = 0;
    let queue = pd.domain().create_srq(attr.max_wr as usize, attr.max_sge as usize);
    let number = queue.number();
    let mut abi = ibv_srq::zeroed();
    abi.context = context.as_abi();
    abi.srq_context = init.srq_context;
    abi.pd = pd.as_abi();
    abi.handle = object.handle();
    let srq = Box::into_raw(Box::new(Srq {
        abi,
        life: object.life(),
        object,
        queue,
        max_wr: Cell::new(attr.max_wr),
        max_sge: attr.max_sge,
        _pd: pd.life.clone(),
    }));
    context.book.enter(Key::Srq(number), srq.expose_provenance());
    Ok(srq)
}

/// `ibv_create_srq`
pub extern "C" fn ibv_create_srq(pd: &Pd, init: &mut ibv_srq_init_attr) -> *mut Srq {
    guard::object(called!(ibv_create_srq(pd, init)), || create(pd, init))
}

/// `ibv_create_srq_ex`
pub(crate) extern "C" fn create_srq_ex(
    context: &Context,
    init: &mut ibv_srq_init_attr_ex,
) -> *mut Srq {
    guard::object(called!(ibv_create_srq_ex(context, init)), || {
        let mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        let basic = init.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || init.srq_type == IBV_SRQT_BASIC;
        if init.comp_mask & !mask != 0 || !basic {
            return Err(decline!(
                EOPNOTSUPP,
                "comp_mask {:#x}, srq_type {}: only IBV_SRQT_BASIC, without more, is supported",
                init.comp_mask,
                init.srq_type
            ));
        }
        if init.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return Err(refuse!(EINVAL, "comp_mask lacks IBV_SRQ_INIT_ATTR_PD"));
        }
        // SAFETY: the program passes a domain of its own.
        let pd = unsafe { Pd::of(init.pd) };
        let pd = given!(pd)?;
        if !pd.context().is(context) {
            return Err(refuse!(EINVAL, "the protection domain is of another context"));
        }
        let mut plain = ibv_srq_init_attr { srq_context: init.srq_context, attr: init.attr };
        let srq = create(pd, &mut plain)?;
        init.attr = plain.attr;
        Ok(srq)
    })
}

/// `ibv_modify_srq`
pub extern "C" fn ibv_modify_srq(srq: &Srq, attr: &ibv_srq_attr, mask: c_int) -> c_int {
    guard::errno(called!(ibv_modify_srq(srq, attr, mask)), || {
        srq.check()?;
        let mask: c_uint = mask.cast_unsigned();
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(refuse!(EINVAL, "the mask has unknown bits: {mask:#x}"));
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            // The device does not say that it can (IBV_DEVICE_SRQ_RESIZE).
            return Err(decline!(EOPNOTSUPP, "IBV_SRQ_MAX_WR: its size cannot change"));
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            if attr.srq_limit > srq.max_wr.get() {
                return Err(refuse!(
                    EINVAL,
                    "srq_limit is {}, of {} (max_wr) at most",
                    attr.srq_limit,
                    srq.max_wr.get()
                ));
            }
            srq.queue.set_limit(attr.srq_limit as usize);
        }
        Ok(())
    })
}

/// `ibv_query_srq`
pub extern "C" fn ibv_query_srq(srq: &Srq, attr: &mut ibv_srq_attr) -> c_int {
    guard::errno(called!(ibv_query_srq(srq, attr)), || {
        srq.check()?;
        attr.max_wr = srq.max_wr.get();
        attr.max_sge = srq.max_sge;
        attr.srq_limit = srq.queue.limit() as u32;
        Ok(())
    })
}

/// `ibv_destroy_srq`: waits until the events about it that the program has are acknowledged.
pub extern "C" fn ibv_destroy_srq(srq: *mut Srq) -> c_int {
    guard::errno(called!(ibv_destroy_srq(srq)), || {
        // SAFETY: the program has it from a function of this library.
        let object = unsafe { &*srq };
        object.check()?;
        if object.life.in_use() {
            return Err(refuse!(
                EBUSY,
                "{} queue pairs still take receives from it: destroy them first",
                object.life.users()
            ));
        }
        // The parent's, in a forked child: nothing is entered under its number.
        if !object.queue.is_inherited() {
            let (number, context) = (object.queue.number(), object.context());
            context.book.strike(Key::Srq(number));
            context.device().discard_async_events(
                |event| matches!(event, AsyncEvent::SrqLimitReached { srq } if *srq == number),
            );
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(srq) });
        Ok(())
    })
}
