// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event channels.

use std::cell::Cell;
use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iwarp::cm::EventChannel;
use iwarp_os::{Heritable, PerProcess};

use super::abi::{rdma_cm_id, rdma_event_channel};
use super::device;
use crate::calls::called;
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
    /// Ids that listen and report here: a forked child that waits for their events goes on with
    /// them.
    listeners: Heritable<Mutex<Vec<Listener>>>,
    /// The thread that has destroyed it.
    destroyer: AtomicUsize,
}

/// An id that listens, which is not destroyed.
#[derive(Clone, Copy)]
struct Listener {
    id: *mut rdma_cm_id,
    take_over: TakeOver,
}

/// Has a forked child go on with an id.
type TakeOver = fn(*mut rdma_cm_id);

// SAFETY: an id may be used by all threads.
unsafe impl Send for Listener {}

struct Live {
    channel: EventChannel,
    serial: u64,
}

impl CmChannel {
    pub(super) fn create() -> Result<*mut rdma_event_channel, Errno> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);

        let channel = EventChannel::for_any_device(device::device()?)?;
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
        for Listener { id, take_over } in listeners {
            take_over(id);
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

    /// Notes that an id listens that reports here, and the call by which a forked child takes it
    /// over.
    ///
    /// # Safety
    ///
    /// The pointer is null or was a channel at some time.
    pub(super) unsafe fn enter(
        channel: *mut rdma_event_channel,
        id: *mut rdma_cm_id,
        take_over: TakeOver,
    ) {
        // SAFETY: the caller's promise.
        if let Some(this) = unsafe { channel.cast::<Self>().as_ref() } {
            let mut listeners = lock(this.listeners());
            if listeners.iter().all(|listener| listener.id != id) {
                listeners.push(Listener { id, take_over });
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
            lock(listeners).retain(|listener| listener.id != id);
        }
    }

    /// The library's side of a channel.
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

    /// Likewise, with the serial number of the channel.
    ///
    /// # Errors
    ///
    /// As [`Self::of`].
    ///
    /// # Safety
    ///
    /// As [`Self::of`].
    pub(super) unsafe fn with_serial(
        channel: *mut rdma_event_channel,
    ) -> Result<(EventChannel, u64), Errno> {
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
    pub(super) unsafe fn went_meanwhile(channel: *mut rdma_event_channel) -> bool {
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

/// `rdma_create_event_channel`
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    guard::prepare();
    #[expect(clippy::redundant_closure, reason = "its name is that of the call")]
    guard::object(called!(rdma_create_event_channel()), || CmChannel::create())
}

/// `rdma_destroy_event_channel`
pub extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if !channel.is_null() {
        // SAFETY: the program's channel, which it does not use any more.
        guard::value(called!(rdma_destroy_event_channel(channel)), (), || unsafe {
            CmChannel::destroy(channel)
        });
    }
}
