// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use iwarp::{AsyncEvent, CompletionQueue, WorkCompletion};
use iwarp_os::{Heritable, roster};

use super::book::Key;
use super::channel::Channel;
use super::context::{Held, tell_of_heir};
use super::counts::Kind;
use super::object::Object;
use super::qp::Qp;
use super::{Context, Life, cq_ex};
use crate::abi::flags::IBV_WC_STANDARD_FLAGS;
use crate::abi::{Plain, ibv_cq, ibv_cq_ex};
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// A completion queue.
#[repr(C)]
pub struct Cq {
    pub(crate) abi: ibv_cq_ex,
    object: Object,
    /// A forked child has its own in its place.
    queue: Heritable<CompletionQueue>,
    /// The completion that is looked at with the functions of `ibv_cq_ex`.
    pub(crate) current: UnsafeCell<Option<WorkCompletion>>,
    /// Held by queue pairs.
    pub(crate) life: Life,
    _context: Held,
    _channel: Option<Life>,
}

/// The parameters with which one is made.
pub(crate) struct Wanted {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut Channel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
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

    /// The library's completion queue, which a forked child makes anew, and empty, when it first needs
    /// it.
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
    fn show(&self) {
        let cqe = || self.abi.base.cqe.load(Relaxed).unsigned_abs();
        self.object.show(0, || roster::Object::Completions { cqe: cqe() });
    }

    /// Has other processes see the state of a queue pair, which the library may have changed: a
    /// request of it has failed.
    #[cold]
    pub(super) fn show_failed(&self, number: u32) {
        if self.object.shown_number() != 0 {
            self.context().book.with(Key::Qp(number), |address| {
                // SAFETY: destroying a queue pair strikes it off first, and waits for that.
                unsafe { &*std::ptr::with_exposed_provenance::<Qp>(address) }.show();
            });
        }
    }

    /// The channel it raises events on.
    pub(crate) fn channel(&self) -> Option<&Channel> {
        // SAFETY: the channel stays while something holds its life.
        unsafe { self.abi.base.channel.cast::<Channel>().as_ref() }
    }
}

pub(crate) fn create(context: &Context, wanted: &Wanted) -> Result<*mut Cq, Errno> {
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

#[cold]
fn wrong_cqe(cqe: i64) -> Errno {
    refuse!(EINVAL, "cqe is {cqe}; a completion queue has at least 1 entry")
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
    guard::object(|| {
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

/// `ibv_resize_cq`
pub extern "C" fn ibv_resize_cq(cq: &Cq, cqe: c_int) -> c_int {
    guard::errno(|| {
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
    guard::errno(|| {
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
        // The parent's, in a forked child that has not used it: nothing is entered under its number.
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
