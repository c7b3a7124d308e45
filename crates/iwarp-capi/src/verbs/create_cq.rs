// SPDX-License-Identifier: MIT OR Apache-2.0

//! Making completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicI32;

use iwarp_os::Heritable;

use super::book::Key;
use super::channel::Channel;
use super::counts::Kind;
use super::cq::{Cq, wrong_cqe};
use super::object::Object;
use super::pd::Pd;
use super::{Context, cq_ex};
use crate::abi::flags::*;
use crate::abi::{Plain, ibv_cq_ex, ibv_cq_init_attr_ex};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// The parameters with which one is made.
struct Wanted {
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut Channel,
    comp_vector: u32,
    wc_flags: u64,
}

fn create(context: &Context, wanted: &Wanted) -> Result<*mut Cq, Errno> {
    let vectors = comp_vectors(context);
    if wanted.cqe == 0 {
        return Err(wrong_cqe(0));
    }
    if wanted.comp_vector >= vectors {
        let vector = wanted.comp_vector;
        return Err(refuse!(EINVAL, "comp_vector is {vector}, of {vectors} (num_comp_vectors)"));
    }
    // SAFETY: the program passes a channel of its own, or null.
    let channel = unsafe { wanted.channel.as_ref() };
    if channel.is_some_and(|channel| channel.context() != context.as_abi()) {
        return Err(refuse!(EINVAL, "the completion channel is of another context"));
    }
    context.book.prepare()?;
    if let Some(channel) = channel {
        channel.prepare()?;
    }
    let (held, object) = (context.hold()?, Object::new(context, Kind::Cq)?);
    let depth = wanted.cqe as usize;
    let queue = context.device().create_cq(depth, channel.map(Channel::channel))?;
    let number = queue.number();
    let mut abi = ibv_cq_ex::zeroed();
    abi.base.context = context.as_abi();
    abi.base.channel = wanted.channel.cast();
    abi.base.cq_context = wanted.cq_context;
    abi.base.handle = object.handle();
    abi.base.cqe =
        AtomicI32::new(c_int::try_from(wanted.cqe).map_err(|_| wrong_cqe(wanted.cqe.into()))?);
    cq_ex::fill(&mut abi, wanted.wc_flags);
    let cq = Box::into_raw(Box::new(Cq {
        abi,
        life: object.life(),
        object,
        queue: Heritable::new(queue),
        current: UnsafeCell::new(None),
        _context: held,
        _channel: channel.map(|channel| channel.life.clone()),
    }));
    // SAFETY: just made.
    unsafe { &*cq }.show();
    context.book.enter(Key::Cq(number), cq.expose_provenance());
    if let Some(channel) = channel {
        channel.enter(number, cq.expose_provenance());
    }
    Ok(cq)
}

/// `num_comp_vectors` as the program sees it.
fn comp_vectors(context: &Context) -> u32 {
    // SAFETY: the context is open, and the field never changes.
    unsafe { (*context.as_abi()).num_comp_vectors }.cast_unsigned()
}

/// `ibv_create_cq`
pub extern "C" fn ibv_create_cq(
    context: &Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut Channel,
    comp_vector: c_int,
) -> *mut Cq {
    guard::object(called!(ibv_create_cq(context, cqe, cq_context, channel, comp_vector)), || {
        create(
            context,
            &Wanted {
                cqe: u32::try_from(cqe).map_err(|_| wrong_cqe(cqe.into()))?,
                cq_context,
                channel,
                comp_vector: u32::try_from(comp_vector)
                    .map_err(|_| refuse!(EINVAL, "comp_vector is {comp_vector}"))?,
                wc_flags: IBV_WC_STANDARD_FLAGS,
            },
        )
    })
}

/// `ibv_create_cq_ex`
pub(crate) extern "C" fn create_cq_ex(context: &Context, init: &ibv_cq_init_attr_ex) -> *mut Cq {
    const FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

    guard::object(called!(ibv_create_cq_ex(context, init)), || {
        let mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        let flags = if init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { init.flags } else { 0 };
        if init.comp_mask & !mask != 0
            || flags & !FLAGS != 0
            || init.wc_flags & !IBV_WC_STANDARD_FLAGS != 0
        {
            return Err(decline!(
                EOPNOTSUPP,
                "comp_mask {:#x}, flags {flags:#x}, wc_flags {:#x}: one of them has unsupported bits",
                init.comp_mask,
                init.wc_flags
            ));
        }
        if init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
            // SAFETY: the program passes a domain of its own.
            let domain = unsafe { Pd::of(init.parent_domain) };
            domain
                .filter(|domain| domain.context().is(context))
                .ok_or_else(|| refuse!(EINVAL, "parent_domain is NULL, or of another context"))?;
        }
        create(
            context,
            &Wanted {
                cqe: init.cqe,
                cq_context: init.cq_context,
                channel: init.channel.cast(),
                comp_vector: init.comp_vector,
                wc_flags: init.wc_flags,
            },
        )
    })
}
