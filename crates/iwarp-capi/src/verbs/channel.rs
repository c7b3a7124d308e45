// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion channels.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use iwarp::faults::{self, Kind};
use iwarp::{CompletionChannel, Look};
use iwarp_os::Heritable;
use iwarp_os::cancel::wait_cancellable;

use super::book::{Book, Key};
use super::context::{Held, tell_of_heir};
use super::{Context, Life};
use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq};
use crate::calls::called;
use crate::guard::{self, Errno, set_errno};
use crate::refuse::{decline, refuse};

/// A completion channel.
#[repr(C)]
pub struct Channel {
    abi: ibv_comp_channel,
    /// A forked child has its own in its place.
    channel: Heritable<CompletionChannel>,
    /// Events that were handed out.
    book: Arc<Book>,
    /// Held by completion queues.
    pub(crate) life: Life,
    _context: Held,
}

impl Channel {
    /// The library's completion channel, which a forked child makes anew when it first needs it.
    pub(crate) fn channel(&self) -> &CompletionChannel {
        self.channel.get_or_make_or_nearest(|inherited| {
            // SAFETY: the context stays for as long as its objects are.
            let device = unsafe { Context::of(self.abi.context) }.device();
            let own = device.take_over_channel(inherited)?;
            tell_of_heir("a completion channel");
            Ok::<_, Errno>(own)
        })
    }

    /// The context it belongs to.
    pub(crate) fn context(&self) -> *mut ibv_context {
        self.abi.context
    }

    /// Makes room for another queue, so that [`Self::enter`] needs no memory.
    pub(crate) fn prepare(&self) -> Result<(), Errno> {
        Ok(self.book.prepare()?)
    }

    /// A completion queue that will raise events here.
    pub(crate) fn enter(&self, number: u64, cq: usize) {
        self.enter_again(number, cq);
        self.abi.refcnt.fetch_add(1, Relaxed);
    }

    /// Enters a completion queue under the number that it has in a forked child.
    pub(crate) fn enter_again(&self, number: u64, cq: usize) {
        self.book.enter(Key::Cq(number), cq);
    }

    /// The program has acknowledged events of a queue. With the last one the queue and the channel
    /// may go.
    pub(super) fn acknowledge(&self, number: u64, events: u32) {
        Arc::clone(&self.book).acknowledge(Key::Cq(number), events);
    }

    /// Prepares for the end of a queue: waits for its acknowledgements, and drops events not taken.
    /// A queue without a number is the parent's, in a forked child.
    pub(crate) fn strike(&self, number: Option<u64>) {
        if let Some(number) = number {
            self.book.strike(Key::Cq(number));
            self.channel.nearest().discard(number);
        }
        self.abi.refcnt.fetch_sub(1, Relaxed);
    }

    /// A pending event, or the descriptor to wait on; `waited`: the program's call has waited
    /// already.
    fn next(&self, waited: bool) -> Result<Next, Errno> {
        loop {
            let ready = if waited { None } else { self.channel().try_next() };
            let number = match ready {
                Some(number) => number,
                None if !waited && is_nonblocking(self.abi.fd) => {
                    return Err(Errno::plain(libc::EAGAIN));
                }
                None => match self.channel().look()? {
                    Look::Event(number) => number,
                    Look::Nothing(fd) => return Ok(Next::Wait(fd)),
                    _ => return Err(decline!(EOPNOTSUPP, "not supported")),
                },
            };
            // Events of a queue that is gone are passed over.
            if let Some(cq) = self.book.hand_out(Key::Cq(number)) {
                if faults::of_event(Kind::Event) {
                    self.channel().repeat(number);
                }
                return Ok(Next::Event(cq));
            }
        }
    }
}

/// It needs no `Drop`.
#[derive(Clone, Copy)]
enum Next {
    /// Address of the completion queue.
    Event(usize),
    /// A descriptor that is readable when it is time to look again.
    Wait(RawFd),
}

/// True if the program has made a descriptor of ours non-blocking.
pub(crate) fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: asks only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags != -1 && flags & libc::O_NONBLOCK != 0
}

/// `ibv_create_comp_channel`
pub extern "C" fn ibv_create_comp_channel(context: &Context) -> *mut Channel {
    guard::object(called!(ibv_create_comp_channel(context)), || {
        let channel = context.device().create_comp_channel()?;
        let fd = channel.as_fd().as_raw_fd();
        Ok(Box::into_raw(Box::new(Channel {
            abi: ibv_comp_channel { context: context.as_abi(), fd, refcnt: AtomicI32::new(0) },
            channel: Heritable::new(channel),
            book: Arc::default(),
            life: Life::default(),
            _context: context.hold()?,
        })))
    })
}

/// `ibv_destroy_comp_channel`
pub extern "C" fn ibv_destroy_comp_channel(channel: *mut Channel) -> c_int {
    guard::errno(called!(ibv_destroy_comp_channel(channel)), || {
        // SAFETY: the program has it from `ibv_create_comp_channel`.
        let users = unsafe { &*channel }.life.users();
        if users > 0 {
            return Err(refuse!(
                EBUSY,
                "{users} completion queues still raise events on it: destroy them first"
            ));
        }
        // SAFETY: made by `Box::into_raw`, and destroyed once.
        drop(unsafe { Box::from_raw(channel) });
        Ok(())
    })
}

/// `ibv_get_cq_event`: waits for an event, unless the program has made the descriptor
/// non-blocking. A cancellation point: this frame owns nothing while it waits.
pub extern "C-unwind" fn ibv_get_cq_event(
    channel: &Channel,
    cq: &mut *mut ibv_cq,
    cq_context: &mut *mut c_void,
) -> c_int {
    let call = called!(ibv_get_cq_event(channel, cq, cq_context));
    let mut waited = false;
    loop {
        let next = guard::call(call.verb(), || channel.next(waited));
        let fd = match next {
            Ok(Next::Event(address)) => {
                *cq = std::ptr::with_exposed_provenance_mut(address);
                // SAFETY: it stays until this event is acknowledged.
                *cq_context = unsafe { (**cq).cq_context };
                return call.returns(0);
            }
            Ok(Next::Wait(fd)) => fd,
            Err(error) => {
                set_errno(error.number());
                return call.returns(-1);
            }
        };
        if let Err(error) = wait_cancellable(fd, None) {
            let error = Errno::from(error);
            // After a signal the program decides.
            let _ = guard::call(call.verb(), || {
                CompletionChannel::stop_looking();
                Ok(())
            });
            set_errno(error.number());
            return call.returns(-1);
        }
        waited = true;
    }
}
