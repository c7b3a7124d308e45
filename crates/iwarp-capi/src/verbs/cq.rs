// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

use iwarp::{AsyncEvent, CompletionQueue, WorkCompletion};
use iwarp_os::{Heritable, roster};

use super::book::Key;
use super::channel::Channel;
use super::context::{Held, tell_of_heir};
use super::object::Object;
use super::{Context, Life};
use crate::abi::flags::IBV_CQ_ATTR_MODERATE;
use crate::abi::{ibv_cq, ibv_cq_ex, ibv_modify_cq_attr};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};

/// A completion queue.
#[repr(C)]
pub struct Cq {
    pub(crate) abi: ibv_cq_ex,
    pub(super) object: Object,
    /// A forked child has its own in its place.
    pub(super) queue: Heritable<CompletionQueue>,
    /// The completion that is looked at with the functions of `ibv_cq_ex`.
    pub(super) current: UnsafeCell<Option<WorkCompletion>>,
    /// Held by queue pairs.
    pub(crate) life: Life,
    pub(super) _context: Held,
    pub(super) _channel: Option<Life>,
}

impl Cq {
    /// The pointer that the program knows it by.
    pub fn as_abi(&self) -> *mut ibv_cq {
        (&raw const self.abi.base).cast_mut()
    }

    /// The queue behind a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is null or one that a function of this library gave, and the queue exists.
    pub unsafe fn of<'a>(cq: *mut ibv_cq) -> Option<&'a Self> {
        // SAFETY: the caller's promise; `abi` begins with the `ibv_cq`.
        unsafe { cq.cast::<Self>().as_ref() }
    }

    /// The library's completion queue, which a forked child makes anew, and empty, when it first
    /// needs it.
    #[inline]
    pub fn queue(&self) -> &CompletionQueue {
        match self.queue.get() {
            Some(own) => own,
            None => self.queue_of_heir(),
        }
    }

    #[cold]
    fn queue_of_heir(&self) -> &CompletionQueue {
        self.queue.get_or_make_or_nearest(|_| {
            let (context, channel) = (self.context(), self.channel());
            let depth = self.abi.base.cqe.load(Relaxed).unsigned_abs() as usize;
            let own = context.device().create_cq(depth, channel.map(Channel::channel))?;
            let (number, address) = (own.number(), std::ptr::from_ref(self).expose_provenance());
            context.book.enter(Key::Cq(number), address);
            if let Some(channel) = channel {
                channel.enter_again(number, address);
            }
            tell_of_heir("a completion queue");
            Ok::<_, Errno>(own)
        })
    }

    /// The context it belongs to.
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: the context stays for as long as its objects are.
        unsafe { Context::of(self.abi.base.context) }
    }

    /// Checks that the public half is still that of this object.
    ///
    /// # Errors
    ///
    /// `ENOENT`
    pub(crate) fn check(&self) -> Result<(), Errno> {
        self.object.check(self.abi.base.context, self.abi.base.handle)
    }

    /// Has other processes see how much room it has.
    pub(super) fn show(&self) {
        let cqe = || self.abi.base.cqe.load(Relaxed).unsigned_abs();
        self.object.show(0, || roster::Object::Completions { cqe: cqe() });
    }

    /// The channel it raises events on.
    pub(crate) fn channel(&self) -> Option<&Channel> {
        // SAFETY: the channel stays while something holds its life.
        unsafe { self.abi.base.channel.cast::<Channel>().as_ref() }
    }
}

#[cold]
pub(super) fn wrong_cqe(cqe: i64) -> Errno {
    refuse!(EINVAL, "cqe is {cqe}; a completion queue has at least 1 entry")
}

/// `ibv_resize_cq`
pub extern "C" fn ibv_resize_cq(cq: &Cq, cqe: c_int) -> c_int {
    guard::errno(called!(ibv_resize_cq(cq, cqe)), || {
        cq.check()?;
        let depth = usize::try_from(cqe).map_err(|_| wrong_cqe(cqe.into()))?;
        let most = cq.context().device().attributes().max_cqe;
        if depth > most as usize {
            return Err(refuse!(EINVAL, "cqe is {cqe}; the device has {most} at most (max_cqe)"));
        }
        cq.queue().resize(depth)?;
        cq.abi.base.cqe.store(cqe, Relaxed);
        cq.show();
        Ok(())
    })
}

/// `ibv_destroy_cq`: waits until the events about it that the program has are acknowledged.
pub extern "C" fn ibv_destroy_cq(cq: *mut Cq) -> c_int {
    guard::errno(called!(ibv_destroy_cq(cq)), || {
        // SAFETY: the program has it from a function of this library.
        let object = unsafe { &*cq };
        object.check()?;
        if object.life.in_use() {
            return Err(refuse!(
                EBUSY,
                "{} queue pairs still complete there, one that does both counts twice: destroy them \
                 first",
                object.life.users()
            ));
        }
        // The parent's, in a forked child that has not used it: nothing is entered under its
        // number.
        let number = object.queue.get().map(CompletionQueue::number);
        if let Some(channel) = object.channel() {
            channel.strike(number);
        }
        if let Some(number) = number {
            let context = object.context();
            context.book.strike(Key::Cq(number));
            context.device().discard_async_events(
                |event| matches!(event, AsyncEvent::CqError { cq } if *cq == number),
            );
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(cq) });
        Ok(())
    })
}

/// `ibv_ack_cq_events`
pub extern "C" fn ibv_ack_cq_events(cq: &Cq, events: u32) {
    guard::value(called!(ibv_ack_cq_events(cq, events)), (), || {
        cq.abi.base.comp_events_completed.fetch_add(events, Relaxed);
        if let Some(channel) = cq.channel() {
            channel.acknowledge(cq.queue().number(), events);
        }
    });
}

/// `ibv_modify_cq`: moderation has nothing to moderate.
pub(crate) extern "C" fn modify_cq(_: &Cq, attr: &ibv_modify_cq_attr) -> c_int {
    guard::errno(called!(ibv_modify_cq(attr)), || {
        if attr.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
            return Err(decline!(EOPNOTSUPP, "only IBV_CQ_ATTR_MODERATE can be set"));
        }
        Ok(())
    })
}
