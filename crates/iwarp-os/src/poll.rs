// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waiting for descriptors: epoll, eventfd, and a wait for callers that own no epoll.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::{BitAnd, BitOr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::io::{Errno, ReadWriteFlags};

use crate::environment;
use crate::fd::{FdPlace, OurFd, PassedFd, as_fd};
use crate::thread::{KernelSet, blocked_in_waits};

/// A set of descriptors to wait for. It may itself be in another set (a level-triggered group
/// of sockets inside a worker's one-shot set): it is readable while one of its own is ready.
#[derive(Debug)]
pub struct Epoll {
    fd: OurFd,
}

/// The events to wait for. Errors and hang-ups are reported with every interest, even
/// [`Interest::NONE`].
///
/// Level-triggered unless [`one_shot`](Self::one_shot) or [`edge`](Self::edge) says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(EventFlags);

/// The events that a wait found, and the room for them.
pub struct Events {
    list: Vec<epoll::Event>,
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The token it was added with.
    pub token: u64,
    /// A read would not wait (it may report the end or an error).
    pub readable: bool,
    /// A write would not wait.
    pub writable: bool,
    /// The peer has sent its FIN; only where [`Interest::PEER_END`] was asked for.
    pub peer_end: bool,
    /// Both directions have ended.
    pub hangup: bool,
    /// An error is stored on the socket.
    pub error: bool,
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `OutOfMemory`.
    pub fn new(place: FdPlace) -> io::Result<Self> {
        // Here, and not in a thread beside which the program may change its environment.
        inexact();
        Ok(Epoll { fd: place.put(epoll::create(CreateFlags::CLOEXEC)?) })
    }

    /// Adds a descriptor. Its file must be removed before it is closed if a duplicate of it may
    /// be open elsewhere (in a forked child, say): epoll reports the file, not the number.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; `ENOSPC` at the user's limit (`fs.epoll.max_user_watches`); `ELOOP` for
    /// sets that contain each other.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(self, fd, EventData::new_u64(token), interest.0)?)
    }

    /// Changes token and interest, and arms a one-shot descriptor again: what is pending at this
    /// moment is reported at once.
    ///
    /// # Errors
    ///
    /// `NotFound` when it was not added.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(self, fd, EventData::new_u64(token), interest.0)?)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    ///
    /// `NotFound` when it was not added.
    pub fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(self, fd)?)
    }

    /// Waits until something is ready or `timeout` has passed (`None`: without end, zero: only
    /// looks). Never returns with nothing before the timeout (but 24 days are the longest wait).
    /// Replaces the contents of `events`; returns how many there are.
    ///
    /// The timeout is kept to the microsecond where the system has `epoll_pwait2`, else rounded
    /// up to the millisecond. A sandbox may refuse one of the two calls.
    ///
    /// # Errors
    ///
    /// `Interrupted` after a signal handler, and after the process was stopped and continued.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.list.clear();
        if timeout.is_some_and(|timeout| timeout.subsec_nanos() % 1_000_000 != 0) {
            let waited = self.wait_exact(events, timeout);
            if !is_refused(&waited) {
                waited?;
                return Ok(events.list.len());
            }
        }
        let waited = self.wait_millis(events, timeout);
        if is_refused(&waited) {
            self.wait_exact(events, timeout)?;
        } else {
            waited?;
        }
        Ok(events.list.len())
    }

    fn wait_millis(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        // Rounded up, as a wait never ends early.
        let millis = timeout.map_or(-1, |timeout| {
            capped_secs(timeout) * 1000 + i64::from(timeout.subsec_nanos().div_ceil(1_000_000))
        });
        let millis = i32::try_from(millis).unwrap_or(i32::MAX);
        // SAFETY: `wait_by` names room that the kernel may fill.
        self.wait_by(events, |fd, room, most, mask| unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                fd,
                room,
                most,
                millis,
                mask,
                size_of::<KernelSet>(),
            )
        })
    }

    fn wait_exact(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if inexact().load(Ordering::Relaxed) {
            return Err(Errno::NOSYS.into());
        }
        // The kernel's timespec for calls that are younger than the year 2038 problem.
        let kernel =
            timeout.map(|timeout| [capped_secs(timeout), i64::from(timeout.subsec_nanos())]);
        let end = kernel.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `wait_by` names room that the kernel may fill; `kernel` is only read.
        let result = self.wait_by(events, |fd, room, most, mask| unsafe {
            libc::syscall(libc::SYS_epoll_pwait2, fd, room, most, end, mask, size_of::<KernelSet>())
        });
        if is_refused(&result) {
            inexact().store(true, Ordering::Relaxed);
        }
        result
    }

    /// Waits by a system call of all six arguments: valgrind looks at the length of the signal mask
    /// also where there is none, and reports what a call that leaves it out has in the register.
    ///
    /// `call` gets the set, the room for events, how many there is room for, and the signals that
    /// are blocked meanwhile (null: no others than before). It returns how many events the kernel
    /// has filled in.
    ///
    /// A thread of ours has no signal unblocked while it waits: what it does with those that come
    /// is up to its handler, which the program may have taken away.
    fn wait_by(
        &self,
        events: &mut Events,
        call: impl FnOnce(RawFd, *mut MaybeUninit<epoll::Event>, i32, *const KernelSet) -> libc::c_long,
    ) -> io::Result<()> {
        let room = events.list.spare_capacity_mut();
        let most = i32::try_from(room.len()).unwrap_or(i32::MAX);
        let mask = blocked_in_waits();
        let mask = mask.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let found = call(self.fd.as_raw_fd(), room.as_mut_ptr(), most, mask);
        let Ok(found) = usize::try_from(found) else { return Err(io::Error::last_os_error()) };
        // SAFETY: the kernel has filled in that many, no more than there was room for.
        unsafe { events.list.set_len(found) };
        Ok(())
    }
}

/// True if `epoll_pwait2` is not to be called: the system refuses it, or there is valgrind, which
/// prints five lines where it does not know a call (3.19 does not).
fn inexact() -> &'static AtomicBool {
    static INEXACT: OnceLock<AtomicBool> = OnceLock::new();
    INEXACT.get_or_init(|| AtomicBool::new(environment::is_valgrinds()))
}

/// True if the system does not have a call, or a sandbox refuses it.
fn is_refused(result: &io::Result<()>) -> bool {
    let error = result.as_ref().err().and_then(Errno::from_io_error);
    matches!(error, Some(Errno::NOSYS | Errno::PERM))
}

impl Interest {
    /// Errors and hang-ups alone.
    pub const NONE: Interest = Interest(EventFlags::empty());
    /// Something to read, or to accept.
    pub const READ: Interest = Interest(EventFlags::IN);
    /// Room to write, or a connect that has ended.
    pub const WRITE: Interest = Interest(EventFlags::OUT);
    /// The peer's FIN. Level-triggered it stays ready from then on.
    pub const PEER_END: Interest = Interest(EventFlags::RDHUP);

    /// Reported once, then disarmed until [`Epoll::modify`].
    #[must_use]
    pub const fn one_shot(self) -> Self {
        Interest(self.0.union(EventFlags::ONESHOT))
    }

    /// Reported when something new arrives, not while it stays.
    #[must_use]
    pub const fn edge(self) -> Self {
        Interest(self.0.union(EventFlags::ET))
    }

    /// All of it that is not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Interest(self.0.difference(other.0))
    }

    /// True if all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0.contains(other.0)
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Interest(self.0 | other.0)
    }
}

impl BitAnd for Interest {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Interest(self.0 & other.0)
    }
}

// SAFETY: plain numbers. The kernel's `data` is a union with a pointer in it; only its integer is
// ever set or read here.
unsafe impl Send for Events {}
// SAFETY: as above; and shared access only reads.
unsafe impl Sync for Events {}

impl Events {
    /// Room for `capacity` events per wait (at least 1).
    pub fn with_capacity(capacity: usize) -> Self {
        Events { list: Vec::with_capacity(capacity.max(1)) }
    }

    /// The number of events that the last wait found.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if the last wait found none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// The events that the last wait found.
    pub fn iter(&self) -> impl Iterator<Item = Ready> + Clone + '_ {
        self.list.iter().map(|event| {
            // Copied out: the kernel's struct is packed on some machines.
            let (flags, data) = (event.flags, event.data);
            Ready {
                token: data.u64(),
                readable: flags.contains(EventFlags::IN),
                writable: flags.contains(EventFlags::OUT),
                peer_end: flags.contains(EventFlags::RDHUP),
                hangup: flags.contains(EventFlags::HUP),
                error: flags.contains(EventFlags::ERR),
            }
        })
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A counter that is readable while it is not zero: wakes a thread, or a program that polls.
#[derive(Debug)]
pub struct EventFd {
    fd: OurFd,
    /// Another descriptor of this file, out of the program's way, where `fd` is the program's: a
    /// daemon that closes all descriptors it does not know and opens files must not find our
    /// signals in them.
    own: Option<OurFd>,
    kind: EventFdKind,
}

/// The amount that one [`EventFd::try_wait`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFdKind {
    /// All signals so far at once.
    Counter,
    /// One signal.
    Semaphore,
}

impl EventFd {
    /// A counter at zero. One that the program sees is a blocking descriptor until the program
    /// makes it another, as with a real device, which tells whether the program wants its calls
    /// to wait; nothing here waits on it.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `OutOfMemory`.
    pub fn new(kind: EventFdKind, place: FdPlace) -> io::Result<Self> {
        let mut flags = EventfdFlags::CLOEXEC;
        flags.set(EventfdFlags::NONBLOCK, place == FdPlace::Internal);
        flags.set(EventfdFlags::SEMAPHORE, kind == EventFdKind::Semaphore);
        let fd = place.put(rustix::event::eventfd(0, flags)?);
        let own = match place {
            FdPlace::Internal => None,
            FdPlace::Program => {
                Some(FdPlace::Internal.put(rustix::io::fcntl_dupfd_cloexec(&fd, 0)?))
            }
        };
        Ok(EventFd { fd, own, kind })
    }

    /// The one that a forked child goes on with in place of one that it inherits and the program
    /// has seen: that descriptor, without the signals of the parent.
    ///
    /// # Errors
    ///
    /// `EBADF` where the child has closed it; those of duplicating it.
    pub fn take_over(inherited: &Self) -> io::Result<Self> {
        let own = rustix::io::fcntl_dupfd_cloexec(&inherited.fd, 0)?;
        // Under the number of one that was closed there may be a file of the program's.
        if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&own)?.st_mode)
            != rustix::fs::FileType::Unknown
        {
            return Err(Errno::BADF.into());
        }
        let fd = inherited.fd.take_over();
        let taken = Self { fd, own: Some(FdPlace::Internal.put(own)), kind: inherited.kind };
        taken.drain()?;
        Ok(taken)
    }

    /// A descriptor of it to pass to another process.
    ///
    /// # Errors
    ///
    /// `EMFILE`; `EBADF` when the descriptor is not ours any more.
    pub fn duplicate(&self) -> io::Result<PassedFd> {
        // Out of the way of programs that use `select()`.
        let ours = self.ours();
        Ok(rustix::io::fcntl_dupfd_cloexec(ours, ours.as_raw_fd())?.into())
    }

    /// True if the program has made it non-blocking.
    ///
    /// # Errors
    ///
    /// `EBADF` when the descriptor is not ours any more.
    pub fn is_nonblocking(&self) -> io::Result<bool> {
        Ok(rustix::fs::fcntl_getfl(self.ours())?.contains(rustix::fs::OFlags::NONBLOCK))
    }

    fn ours(&self) -> &OurFd {
        self.own.as_ref().unwrap_or(&self.fd)
    }

    /// Adds one. Never waits; on a counter that is full (2^64 - 2) it does nothing, as a thread
    /// that waits is awake already.
    ///
    /// # Errors
    ///
    /// `EBADF` when the descriptor is not ours any more.
    pub fn signal(&self) -> io::Result<()> {
        self.add(1)
    }

    /// Adds `n`, as so many signals.
    ///
    /// # Errors
    ///
    /// As [`signal`](Self::signal); `InvalidInput` for 2^64 - 1.
    pub fn add(&self, n: u64) -> io::Result<()> {
        loop {
            match rustix::io::write(self.ours(), &n.to_ne_bytes()) {
                Ok(_) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the signals there are (a semaphore: one) without waiting; returns how many, zero if
    /// there are none. If the program sees the descriptor, only one thread may do this at a time.
    ///
    /// # Errors
    ///
    /// `EBADF` when the descriptor is not ours any more.
    pub fn try_wait(&self) -> io::Result<u64> {
        let mut value = [0; 8];
        loop {
            let read = match &self.own {
                None => rustix::io::read(&self.fd, &mut value),
                Some(own) => read_without_waiting(own, &mut value),
            };
            match read {
                Ok(_) => return Ok(u64::from_ne_bytes(value)),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes all signals there are; returns how many.
    ///
    /// # Errors
    ///
    /// As [`try_wait`](Self::try_wait).
    pub fn drain(&self) -> io::Result<u64> {
        let mut all = self.try_wait()?;
        if self.kind == EventFdKind::Counter {
            return Ok(all);
        }
        loop {
            match self.try_wait()? {
                0 => return Ok(all),
                n => all = all.saturating_add(n),
            }
        }
    }
}

/// Takes over a counter that came from another process.
impl From<OwnedFd> for EventFd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd: FdPlace::Internal.put(fd), own: None, kind: EventFdKind::Counter }
    }
}

/// Reads a descriptor that may be blocking and that the program may have read itself.
pub(crate) fn read_without_waiting(fd: &OurFd, value: &mut [u8]) -> rustix::io::Result<usize> {
    static REFUSED: AtomicBool = AtomicBool::new(false);

    if !REFUSED.load(Ordering::Relaxed) {
        let parts = &mut [IoSliceMut::new(value)];
        // At the current position: the file has no others.
        match rustix::io::preadv2(fd, parts, u64::MAX, ReadWriteFlags::NOWAIT) {
            // Systems that do not know it of such a file, sandboxes that do not know the call.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::SPIPE) => {
                REFUSED.store(true, Ordering::Relaxed);
            }
            read => return read,
        }
    }
    read_where_readable(fd, value)
}

fn read_where_readable(fd: &OurFd, value: &mut [u8]) -> rustix::io::Result<usize> {
    match is_readable(fd.as_fd()) {
        Ok(true) => rustix::io::read(fd, value),
        _ => Err(Errno::AGAIN),
    }
}

pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match wait_readable([fd], Some(Duration::ZERO)) {
        Ok([ready]) => Ok(ready),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

/// Blocks until one of `fds` is readable, has an error or was hung up, or `timeout` has passed
/// (`None`: without end); says which are. The timeout has the precision of the system's timers.
///
/// # Errors
///
/// `Interrupted` when a signal handler ran.
pub fn wait_readable<const N: usize>(
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    wait_ready(fds.map(|fd| (fd, Interest::READ)), timeout)
}

/// As [`wait_readable`], with something else to wait for: [`Interest::READ`], [`Interest::WRITE`],
/// or both.
///
/// # Errors
///
/// As [`wait_readable`].
pub fn wait_ready<const N: usize>(
    fds: [(BorrowedFd<'_>, Interest); N],
    timeout: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|(fd, interest)| {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.0.contains(EventFlags::IN));
        flags.set(PollFlags::OUT, interest.0.contains(EventFlags::OUT));
        PollFd::from_borrowed_fd(fd, flags)
    });
    rustix::event::poll(&mut polled, timeout.map(to_timespec).as_ref())?;
    Ok(polled.map(|fd| !fd.revents().is_empty()))
}

fn to_timespec(timeout: Duration) -> Timespec {
    Timespec { tv_sec: capped_secs(timeout), tv_nsec: timeout.subsec_nanos().into() }
}

/// Whole seconds of a timeout, limited to what every interface takes: 24 days in milliseconds.
fn capped_secs(timeout: Duration) -> i64 {
    timeout.as_secs().min(24 * 24 * 3600) as i64
}

as_fd!(Epoll EventFd);

/// The CPU on which the last packet of a socket was received (`SO_INCOMING_CPU`): over loopback,
/// the one where its sender ran. `None` before the first, and of what is no socket.
pub fn incoming_cpu(fd: BorrowedFd<'_>) -> Option<usize> {
    let cpu = crate::sockopt::int(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU).ok()?;
    usize::try_from(cpu).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_descriptor_of_the_program_is_read_without_waiting_with_and_without_the_exact_call() {
        let event = EventFd::new(EventFdKind::Semaphore, FdPlace::Program).unwrap();
        let mut value = [0; 8];
        for read in [read_without_waiting, read_where_readable] {
            assert_eq!(read(event.ours(), &mut value), Err(Errno::AGAIN));
            event.add(2).unwrap();
            assert_eq!(read(event.ours(), &mut value), Ok(8));
            assert_eq!(u64::from_ne_bytes(value), 1);
            assert_eq!(read(event.ours(), &mut value), Ok(8));
            assert_eq!(read(event.ours(), &mut value), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn without_the_exact_call_timeouts_are_rounded_up() {
        let epoll = Epoll::new(FdPlace::Internal).unwrap();
        let mut events = Events::with_capacity(1);
        let timeout = Duration::from_micros(1001);
        let start = clock::now();
        epoll.wait_millis(&mut events, Some(timeout)).unwrap();
        assert!(clock::now() - start >= timeout);
        assert!(events.is_empty());
    }
}
