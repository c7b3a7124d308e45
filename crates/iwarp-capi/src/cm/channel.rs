// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event channels.

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::{c_char, c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iwarp::cm::EventChannel;
use iwarp_os::cancel::wait_cancellable;
use iwarp_os::{Heritable, PerProcess};

use super::abi::*;
use super::id::{CmId, Shared};
use super::{device, event};
use crate::guard::{self, Errno};
use crate::refuse::{decline, refuse};
use crate::verbs::tell_of_heir;

/// A channel as the program has it, and the library's part behind it.
///
/// Programs destroy channels on which another thread waits (rping does, when it ends). A thread
/// that may be cancelled can hold on to nothing, so this memory is never given back: it becomes
/// another channel, and a thread that waits knows by the serial number.
#[repr(C)]
pub struct CmChannel {
    abi: rdma_event_channel,
    /// A forked child has its own in its place.
    live: Heritable<Mutex<Option<Live>>>,
    /// Ids that listen and report here: a forked child that waits for their events goes on with them.
    listeners: Heritable<Mutex<Vec<Listener>>>,
    /// The thread that has destroyed it.
    destroyer: AtomicUsize,
}

/// An id that listens, which is not destroyed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Listener(*mut rdma_cm_id);

// SAFETY: an id may be used by all threads.
unsafe impl Send for Listener {}

struct Live {
    channel: EventChannel,
    serial: u64,
}

impl CmChannel {
    pub(super) fn create() -> Result<*mut rdma_event_channel, Errno> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);

        let channel = EventChannel::new(device::device()?)?;
        let fd = channel.as_fd().as_raw_fd();
        // The program says whether a wait on it blocks. (It is never read without an
        // event being there.)
        // SAFETY: changes flags of a descriptor of ours.
        if unsafe { libc::fcntl(fd, libc::F_SETFL, 0) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        let place = lock(UNUSED.get()).pop().map_or_else(
            || {
                let abi = rdma_event_channel { fd: Cell::new(-1) };
                let (live, destroyer) = (Heritable::new(Mutex::default()), AtomicUsize::new(0));
                let listeners = Heritable::new(Mutex::default());
                Box::into_raw(Box::new(Self { abi, live, listeners, destroyer }))
            },
            |unused| unused.0,
        );
        // SAFETY: never freed.
        let this = unsafe { &*place };
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        *lock(this.live()?) = Some(Live { channel, serial });
        this.abi.fd.set(fd);
        Ok(place.cast())
    }

    /// The library's side, which a forked child makes anew when it first needs it.
    fn live(&self) -> Result<&Mutex<Option<Live>>, Errno> {
        match self.live.get() {
            Some(own) => Ok(own),
            None => self.take_over(),
        }
    }

    #[cold]
    fn take_over(&self) -> Result<&Mutex<Option<Live>>, Errno> {
        let taken = self.live.get_or_make(|inherited| {
            let parents = inherited.try_lock().map_err(|_| {
                refuse!(
                    EBADF,
                    "a thread of the parent was just using the event channel at the fork"
                )
            })?;
            let Some(Live { channel, serial }) = &*parents else {
                return Ok::<_, Errno>(Mutex::default());
            };
            let channel = EventChannel::take_over(device::device()?, channel)?;
            tell_of_heir("an event channel");
            Ok(Mutex::new(Some(Live { channel, serial: *serial })))
        })?;
        // Their requests come in only once they are the child's.
        let listeners = lock(self.listeners()).clone();
        for Listener(id) in listeners {
            // SAFETY: not destroyed, as it stands in the list.
            let _ = unsafe { CmId::of(id) };
        }
        Ok(taken)
    }

    fn listeners(&self) -> &Mutex<Vec<Listener>> {
        // A thread of the parent may have been about to change its list.
        let made = self.listeners.get_or_make(|parents| {
            let listeners = parents.try_lock().map(|all| all.clone()).unwrap_or_default();
            Ok::<_, Infallible>(Mutex::new(listeners))
        });
        match made {
            Ok(own) => own,
        }
    }

    /// Notes that an id listens that reports here.
    ///
    /// # Safety
    ///
    /// The pointer is null or was a channel at some time.
    pub(super) unsafe fn enter(channel: *mut rdma_event_channel, id: *mut rdma_cm_id) {
        // SAFETY: the caller's promise.
        if let Some(this) = unsafe { channel.cast::<Self>().as_ref() } {
            let mut listeners = lock(this.listeners());
            if !listeners.contains(&Listener(id)) {
                listeners.push(Listener(id));
            }
        }
    }

    /// Forgets an id that is being destroyed, or reports elsewhere from now on. Does nothing in a
    /// forked child that has not used the channel.
    ///
    /// # Safety
    ///
    /// As [`Self::enter`].
    pub(super) unsafe fn leave(channel: *mut rdma_event_channel, id: *mut rdma_cm_id) {
        // SAFETY: the caller's promise.
        if let Some(this) = unsafe { channel.cast::<Self>().as_ref() }
            && let Some(listeners) = this.listeners.get()
        {
            lock(listeners).retain(|listener| *listener != Listener(id));
        }
    }

    /// The library's side of a channel, and its serial number.
    ///
    /// # Errors
    ///
    /// `EINVAL` for null, `EBADF` for one that is gone.
    ///
    /// # Safety
    ///
    /// The pointer is null or was a channel at some time.
    pub(super) unsafe fn of(channel: *mut rdma_event_channel) -> Result<EventChannel, Errno> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Self::with_serial(channel) }?.0)
    }

    /// # Safety
    ///
    /// As [`Self::of`].
    unsafe fn with_serial(channel: *mut rdma_event_channel) -> Result<(EventChannel, u64), Errno> {
        // SAFETY: the caller's promise; `abi` is the first field, and the memory stays.
        let this = unsafe { channel.cast::<Self>().as_ref() };
        let this = this.ok_or_else(|| refuse!(EINVAL, "the event channel is NULL"))?;
        let live = lock(this.live()?);
        let live =
            live.as_ref().ok_or_else(|| decline!(EBADF, "the event channel is destroyed"))?;
        Ok((live.channel.clone(), live.serial))
    }

    /// True if another thread has destroyed it. Then a thread that comes to wait is a moment too
    /// late for what it was about to do: rping's thread for events is back from the last one while
    /// its main thread ends the program, and would end it with an error of its own (`cm_thread`).
    ///
    /// # Safety
    ///
    /// As [`Self::of`].
    unsafe fn went_meanwhile(channel: *mut rdma_event_channel) -> bool {
        // SAFETY: as in `with_serial`.
        let this = unsafe { channel.cast::<Self>().as_ref() };
        this.is_some_and(|this| {
            this.live.get().is_some_and(|live| lock(live).is_none())
                && this.destroyer.load(Ordering::SeqCst) != this_thread()
        })
    }

    /// # Safety
    ///
    /// The channel is not used any more, except by threads that wait.
    pub(super) unsafe fn destroy(channel: *mut rdma_event_channel) {
        // SAFETY: the caller's promise.
        let Some(this) = (unsafe { channel.cast::<Self>().as_ref() }) else { return };
        // A forked child that has not used it does nothing: it is the parent's.
        let Some(live) = this.live.get() else { return };
        this.destroyer.store(this_thread(), Ordering::SeqCst);
        let live = lock(live).take();
        if live.is_some() {
            this.abi.fd.set(-1);
            lock(UNUSED.get()).push(Unused(channel.cast()));
        }
    }
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// Channels that were destroyed.
static UNUSED: PerProcess<Mutex<Vec<Unused>>> = PerProcess::new();

struct Unused(*mut CmChannel);

// SAFETY: only the thread that takes it out uses it.
unsafe impl Send for Unused {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An event as the program has it.
#[repr(C)]
pub(super) struct CmEvent {
    pub(super) abi: rdma_cm_event,
    /// The id, whose destruction waits for the acknowledgement.
    pub(super) owner: Arc<Shared>,
    /// The bytes to which `abi.param` points.
    pub(super) private_data: Box<[u8]>,
}

/// `rdma_create_event_channel`
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    guard::prepare();
    #[expect(clippy::redundant_closure, reason = "its name is that of the call")]
    guard::object(|| CmChannel::create())
}

/// `rdma_destroy_event_channel`
pub extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if !channel.is_null() {
        // SAFETY: the program's channel, which it does not use any more.
        guard::value((), || unsafe { CmChannel::destroy(channel) });
    }
}

/// `rdma_get_cm_event`: waits unless the program has made the channel's descriptor non-blocking.
pub extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return guard::minus_one(|| Err(refuse!(EINVAL, "event is NULL")));
    }
    let taken = wait(channel);
    if taken.is_null() {
        return -1;
    }
    // SAFETY: the program's place for a pointer.
    unsafe { event.write(taken) };
    0
}

/// The next event of a channel; null, with `errno` set, when there is none to be had. A
/// cancellation point: nothing here waits for its `Drop`.
pub(super) fn wait(channel: *mut rdma_event_channel) -> *mut rdma_cm_event {
    let mut serial = None;
    loop {
        let fd = match guard::call(|| next(channel, &mut serial)) {
            Ok(Next::Event(event)) => return event,
            Ok(Next::Wait(fd)) => fd,
            Err(error) => {
                guard::set_errno(error.number());
                return null_mut();
            }
        };
        if let Err(error) = wait_cancellable(fd, None) {
            guard::set_errno(Errno::from(error).number());
            return null_mut();
        }
    }
}

enum Next {
    Event(*mut rdma_cm_event),
    /// No event, and the descriptor to wait on.
    Wait(RawFd),
}

/// No descriptor: `poll` never reports it.
const NEVER: RawFd = -1;

fn next(channel: *mut rdma_event_channel, serial: &mut Option<u64>) -> Result<Next, Errno> {
    // SAFETY: the program's channel, which may be gone meanwhile.
    let found = unsafe { CmChannel::with_serial(channel) };
    let gone = channel;
    let channel = match (found, *serial) {
        (Ok((channel, number)), None) => {
            *serial = Some(number);
            channel
        }
        (Ok((channel, number)), Some(before)) if before == number => channel,
        // SAFETY: as above.
        (Err(error), None) if !unsafe { CmChannel::went_meanwhile(gone) } => return Err(error),
        // Destroyed during the wait: a thread that sits in the kernel's stays there.
        _ => return Ok(Next::Wait(NEVER)),
    };
    while let Some(event) = channel.try_next() {
        if let Some(event) = event::convert(event) {
            return Ok(Next::Event(event));
        }
    }
    let fd = channel.as_fd().as_raw_fd();
    // SAFETY: asks about a descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    if flags & libc::O_NONBLOCK != 0 {
        return Err(Errno::plain(libc::EAGAIN));
    }
    Ok(Next::Wait(fd))
}

/// The second half of a step of a synchronous id: waits for its event and says how it went. A
/// cancellation point: nothing here waits for its `Drop`.
pub(super) fn complete(id: *mut rdma_cm_id) -> c_int {
    let event = match wait_for_step(id) {
        Step::Event(event) => event,
        Step::Asynchronous => return 0,
        Step::Failed => return -1,
    };
    // SAFETY: the program's id, and an event that was just made.
    let (event_place, event_kind, status) =
        unsafe { (&(*id).event, (*event).event, (*event).status) };
    event_place.set(event);
    if status == 0 {
        return 0;
    }
    let refused = event_kind == RDMA_CM_EVENT_REJECTED;
    guard::set_errno(if refused { libc::ECONNREFUSED } else { status.abs() });
    -1
}

/// The outcome of [`wait_for_step`].
pub(super) enum Step {
    Event(*mut rdma_cm_event),
    /// The program takes the events of this id from its channel.
    Asynchronous,
    /// `errno` says why.
    Failed,
}

/// Acknowledges the event of a synchronous id's last step, and waits for the next. A cancellation
/// point: nothing here waits for its `Drop`.
pub(super) fn wait_for_step(id: *mut rdma_cm_id) -> Step {
    let channel = guard::call(|| {
        // SAFETY: the program's id.
        let id = unsafe { CmId::of(id)? };
        if !id.state().sync {
            return Ok(null_mut());
        }
        release_event(id);
        Ok(id.channel.get())
    });
    let event = match channel {
        Ok(channel) if channel.is_null() => return Step::Asynchronous,
        Ok(channel) => wait(channel),
        Err(error) => {
            guard::set_errno(error.number());
            null_mut()
        }
    };
    if event.is_null() { Step::Failed } else { Step::Event(event) }
}

/// Acknowledges the event of a synchronous id's last step.
pub(super) fn release_event(id: &CmId) {
    let event = id.event.replace(null_mut());
    if !event.is_null() {
        rdma_ack_cm_event(event);
    }
}

/// `rdma_ack_cm_event`: frees it.
pub extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    guard::minus_one(|| {
        if event.is_null() {
            return Err(refuse!(EINVAL, "event is NULL"));
        }
        // SAFETY: made by `event::convert`; the program is done with it.
        let event = unsafe { Box::from_raw(event.cast::<CmEvent>()) };
        event.owner.acknowledge();
        Ok(0)
    })
}

/// `rdma_event_str`
pub extern "C" fn rdma_event_str(event: c_uint) -> *const c_char {
    let name = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        RDMA_CM_EVENT_ADDRINFO_RESOLVED => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        RDMA_CM_EVENT_ADDRINFO_ERROR => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        RDMA_CM_EVENT_USER => c"RDMA_CM_EVENT_USER",
        RDMA_CM_EVENT_INTERNAL => c"RDMA_CM_EVENT_INTERNAL",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}
