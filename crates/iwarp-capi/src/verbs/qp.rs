// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.

use std::ffi::{c_int, c_uint};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iwarp::{AsyncEvent, DatagramAttributes, QpState, QpType, QueuePair};
use iwarp_os::{ProcessOwned, roster};

use super::attributes::{number, state};
use super::book::Key;
use super::builder::Builder;
use super::cq::Cq;
use super::object::Object;
use super::{Context, Life};
use crate::abi::flags::*;
use crate::abi::{ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr};
use crate::calls::called;
use crate::guard::{self, Errno};
use crate::refuse::refuse;

/// A queue pair.
#[repr(C)]
pub struct Qp {
    pub(crate) abi: ibv_qp_ex,
    pub(super) object: Object,
    pub(crate) queue_pair: QueuePair,
    /// Its type; RC where it is a mere number.
    pub(crate) kind: QpType,
    /// Number of its protection domain.
    pub(crate) domain: u32,
    /// The attributes with which it was made.
    pub(crate) init: ibv_qp_init_attr,
    /// Every request raises a completion.
    pub(crate) signal_all: bool,
    /// The attributes that the program has set, and reads back.
    pub(super) attr: ProcessOwned<Mutex<ibv_qp_attr>>,
    /// The attributes that the library was told of one over datagrams.
    pub(super) told: ProcessOwned<Mutex<DatagramAttributes>>,
    /// The multicast groups that it is attached to.
    pub(super) groups: ProcessOwned<Mutex<Vec<IpAddr>>>,
    /// The connection manager makes its connection.
    pub(super) managed: AtomicBool,
    /// The operations of `ibv_qp_ex` that it was made for; 0 where it was not made for any.
    pub(super) send_ops: u64,
    pub(crate) builder: Builder,
    pub(super) _pd: Life,
    pub(super) _send_cq: Life,
    pub(super) _recv_cq: Life,
    pub(super) _srq: Option<Life>,
    /// The numbers by which other processes know its domain and its shared receive queue.
    pub(super) shown: (u32, u32),
}

impl Qp {
    /// The pointer that the program knows it by.
    pub fn as_abi(&self) -> *mut ibv_qp {
        (&raw const self.abi.base).cast_mut()
    }

    /// The queue pair behind a pointer that the program has.
    ///
    /// # Safety
    ///
    /// The pointer is null or one that a function of this library gave, and the queue pair exists.
    pub unsafe fn of<'a>(qp: *mut ibv_qp) -> Option<&'a Self> {
        // SAFETY: the caller's promise; `abi` begins with the `ibv_qp`.
        unsafe { qp.cast::<Self>().as_ref() }
    }

    /// The library's queue pair.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.abi.base.qp_num
    }

    /// True if it is there for its number only, and never leaves the state it was made in.
    pub fn is_mere_number(&self) -> bool {
        self.init.qp_type == IBV_QPT_UD && self.kind != QpType::Ud
    }

    /// The context it belongs to.
    pub fn context(&self) -> &Context {
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

    /// From now on the connection manager connects it, so that changing its state to RTR does not.
    pub fn set_managed(&self) {
        self.managed.store(true, Relaxed);
    }

    /// True if [`Self::set_managed`] was called.
    pub fn is_managed(&self) -> bool {
        self.managed.load(Relaxed)
    }

    /// The answer of `ibv_query_qp` beside the state. The connection manager sets what it has
    /// agreed on.
    ///
    /// # Errors
    ///
    /// `ENODEV` in a forked child.
    pub fn attr(&self) -> Result<MutexGuard<'_, ibv_qp_attr>, Errno> {
        Ok(self.attr.check()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts it on the port that the program names, if it does.
    ///
    /// # Errors
    ///
    /// As for [`QueuePair::set_port`].
    pub(super) fn enter_port(&self, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        if mask & IBV_QP_PORT != 0 {
            self.queue_pair.set_port(attr.port_num)?;
        }
        Ok(())
    }

    /// The attributes that the library was told of one over datagrams; `ENODEV` in a forked child.
    pub(super) fn told(&self) -> Result<MutexGuard<'_, DatagramAttributes>, Errno> {
        Ok(self.told.check()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The multicast groups that it is attached to; `ENODEV` in a forked child.
    pub(super) fn groups(&self) -> Result<MutexGuard<'_, Vec<IpAddr>>, Errno> {
        Ok(self.groups.check()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Qp {
    /// The state that the program sees. If the connection manager connects, the program's own steps
    /// on the way are only noted.
    pub(crate) fn state(&self) -> QpState {
        match self.queue_pair.state() {
            QpState::Init if self.is_managed() => {
                state(self.shown_state()).unwrap_or(QpState::Init)
            }
            state => state,
        }
    }

    fn shown_state(&self) -> c_uint {
        self.abi.base.state.load(Relaxed)
    }

    /// Puts it on the port of the connection manager's id.
    ///
    /// # Errors
    ///
    /// As for [`QueuePair::set_port`]; `ENODEV` in a forked child.
    pub fn enter_port_of_id(&self, port_num: u8) -> Result<(), Errno> {
        self.queue_pair.set_port(port_num)?;
        self.attr()?.port_num = port_num;
        Ok(())
    }

    /// Has the program see this state (`IBV_QPS_...`).
    pub fn show_state(&self, state: c_uint) {
        self.abi.base.state.store(state, Relaxed);
        self.show();
    }

    /// Has other processes see it as it is now.
    pub(crate) fn show(&self) {
        let (domain, srq) = self.shown;
        let pair = || {
            let attr = self.attr().map(|attr| *attr).unwrap_or_default();
            roster::Pair {
                number: self.number(),
                remote: attr.dest_qp_num,
                // Programs that draw 32 bits leave it to the hardware to drop some.
                rq_psn: attr.rq_psn & 0x00ff_ffff,
                sq_psn: attr.sq_psn & 0x00ff_ffff,
                srq,
                kind: self.init.qp_type as u8,
                state: number(self.state()) as u8,
                port: attr.port_num,
                moved: self.queue_pair.moves_within_host(),
            }
        };
        self.object.show(domain, || roster::Object::Pair(pair()));
    }

    /// Updates the field `state`: for the connection manager, when it has connected the queue pair
    /// or its connection has ended.
    pub fn refresh_state(&self) {
        self.refreshed_state();
    }

    /// Likewise, and returns the state.
    pub(super) fn refreshed_state(&self) -> c_uint {
        loop {
            let (before, now) = (self.shown_state(), number(self.state()));
            // A state that another thread has shown meanwhile is newer than the one found here.
            let shown = &self.abi.base.state;
            if shown.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
                if before != now {
                    self.show();
                }
                return now;
            }
        }
    }
}

impl Qp {
    /// Has other processes see by which way its connection goes, once that is known.
    pub(super) fn show_way(&self) {
        if self.object.shown_number() == 0 {
            return;
        }
        let (book, key) = (Arc::clone(&self.context().book), Key::Qp(self.number()));
        self.queue_pair.when_moved(move || {
            // SAFETY: the book has it while this is called.
            book.with(key, |address| unsafe { at(address) }.show());
        });
    }
}

/// The queue pair that a book has.
///
/// # Safety
///
/// It is not struck off meanwhile.
unsafe fn at<'a>(address: usize) -> &'a Qp {
    // SAFETY: destroying a queue pair strikes it off first, and waits for that.
    unsafe { &*std::ptr::with_exposed_provenance::<Qp>(address) }
}

/// Has other processes see the state of a queue pair that completes to `cq`, which the library may
/// have changed: a request of it has failed.
#[cold]
pub(super) fn show_failed(cq: &Cq, number: u32) {
    if cq.object.shown_number() != 0 {
        cq.context().book.with(Key::Qp(number), |address| {
            // SAFETY: the book has it while this is called.
            unsafe { at(address) }.show();
        });
    }
}

/// `ibv_qp_to_qp_ex`: null for one that was not made for it.
pub extern "C" fn ibv_qp_to_qp_ex(qp: &Qp) -> *mut ibv_qp_ex {
    if qp.send_ops == 0 { std::ptr::null_mut() } else { (&raw const qp.abi).cast_mut() }
}

/// `ibv_query_qp_data_in_order`: a message is placed from its first byte to its last.
pub extern "C" fn ibv_query_qp_data_in_order(_: &Qp, _opcode: c_uint, flags: u32) -> c_int {
    const RETURN_CAPS: u32 = 1;
    const WHOLE_MESSAGE: c_int = 1;
    const ALIGNED_128: c_int = 1 << 1;

    if flags & RETURN_CAPS != 0 { WHOLE_MESSAGE | ALIGNED_128 } else { 1 }
}

/// `ibv_destroy_qp`: waits until the events about it that the program has are acknowledged. Posted
/// requests still go out, in the background. Refused while it is attached to a multicast group.
pub extern "C" fn ibv_destroy_qp(qp: *mut Qp) -> c_int {
    guard::errno(called!(ibv_destroy_qp(qp)), || {
        // SAFETY: the program has it from a function of this library.
        let object = unsafe { &*qp };
        object.check()?;
        let groups = object.groups().map_or(0, |groups| groups.len());
        if groups > 0 {
            return Err(refuse!(
                EBUSY,
                "queue pair {} is attached to {groups} multicast groups (ibv_detach_mcast)",
                object.number()
            ));
        }
        // The parent's, in a forked child: nothing is entered under its number.
        if !object.queue_pair.is_inherited() {
            object.leave_context();
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(qp) });
        Ok(())
    })
}

impl Qp {
    /// Drops its completions that the program has not taken: as with other devices, a program that
    /// destroys or resets a queue pair sees nothing of it afterwards.
    pub(crate) fn forget_completions(&self) {
        for cq in [self.abi.base.send_cq, self.abi.base.recv_cq] {
            // SAFETY: the queues stay while this holds their lives.
            if let Some(cq) = unsafe { Cq::of(cq) } {
                cq.queue().discard(self.number());
            }
        }
    }

    /// Prepares for its end: waits for its acknowledgements, and has nothing told of it any more.
    fn leave_context(&self) {
        let (number, context) = (self.number(), self.context());
        context.book.strike(Key::Qp(number));
        // First, as the worker goes on meanwhile: a program frees what completions and events name.
        self.queue_pair.retire();
        context.device().discard_async_events(|event| match event {
            AsyncEvent::QpFatal { qp }
            | AsyncEvent::QpAccessError { qp }
            | AsyncEvent::QpRequestError { qp }
            | AsyncEvent::CommunicationEstablished { qp }
            | AsyncEvent::SendQueueDrained { qp }
            | AsyncEvent::LastReceiveReached { qp } => *qp == number,
            _ => false,
        });
        self.forget_completions();
    }

    /// The domain that the program made it with.
    pub fn pd(&self) -> *mut ibv_pd {
        self.abi.base.pd
    }
}
