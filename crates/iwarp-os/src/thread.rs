// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that leave the program's signals alone, and the process alone when it is theirs only.

use std::cell::Cell;
use std::ffi::{CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::environment;
use crate::fork::PerProcess;

/// Threads of this file in the process, and how often that number has changed.
#[derive(Debug, Default)]
struct Ours {
    running: AtomicU32,
    changes: AtomicU32,
}

static OURS: PerProcess<Ours> = PerProcess::new();

thread_local! {
    /// In a thread of this file: the signals that were blocked in the one that has started it.
    static PROGRAMS: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
    /// In such a thread: all that it blocks, as the kernel has it.
    static ALL: Cell<Option<KernelSet>> = const { Cell::new(None) };
}

/// A set of signals as the kernel has it. On MIPS the kernel has a longer one, so calls with this
/// fail there, and threads keep the mask that they have.
pub(crate) type KernelSet = u64;

/// The signals that the calling thread blocks as it begins, if it is one of ours. It may have some
/// of them unblocked meanwhile, though not while it waits.
pub(crate) fn blocked_in_waits() -> Option<KernelSet> {
    ALL.get()
}

fn blocked_now() -> Option<KernelSet> {
    // valgrind 3.19 ends a waiting thread by a signal that such a mask blocks.
    if environment::is_valgrinds() {
        return None;
    }
    let mut set: KernelSet = 0;
    let (none, len) = (null::<KernelSet>(), size_of::<KernelSet>());
    // SAFETY: without a new set, the kernel writes the one in force to `set`, or fails.
    let done = unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, &raw mut set, len)
    };
    (done == 0).then_some(set)
}

/// A thread. Dropping this lets it run on.
#[derive(Debug)]
pub struct Thread {
    id: libc::pthread_t,
}

// A pointer with some C libraries, a number with others.
// SAFETY: it names the thread to the C library, which takes it from any thread; nothing here looks
// at what it may point to.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

/// Starts a thread in which every signal is blocked from its first instruction on, so that the
/// program's handlers run in the program's threads and interrupt none of ours. (The C library
/// keeps the few that it needs itself.)
///
/// By the C library and not by std, which takes a lock of its own as a thread begins: in a forked
/// child it may be held for ever.
///
/// The kernel shows the first 15 bytes of `name`.
///
/// # Errors
///
/// When the system allows no more threads.
///
/// # Panics
///
/// If `name` holds a NUL.
pub fn spawn_blocked<F>(name: &str, f: F) -> io::Result<Thread>
where
    F: FnOnce() + Send + 'static,
{
    let name: String = name.chars().take(15).collect();
    let name = CString::new(name).expect("a name without NUL");
    // A thread inherits the mask of the one that starts it.
    let restored = BlockedSignals::all();
    // Made before the thread needs it.
    OURS.get();
    start(Start { name, before: restored.before, f }, run::<F>)
}

/// The system's number of the calling thread; never 0. One system call.
pub fn id() -> u32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// True if this process has a thread of that number. One system call.
pub fn is_alive(id: u32) -> bool {
    // SAFETY: without a signal the call only looks.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id.cast_signed(), 0) == 0 }
}

/// True if the calling thread is one that [`spawn_blocked`] has started.
pub fn is_ours() -> bool {
    PROGRAMS.get().is_some()
}

fn start<T>(start: T, run: extern "C" fn(*mut c_void) -> *mut c_void) -> io::Result<Thread> {
    let start = Box::into_raw(Box::new(start));
    let mut id = MaybeUninit::uninit();
    // SAFETY: `run` gets what it takes, once, and owns it from then on.
    let error = unsafe { libc::pthread_create(id.as_mut_ptr(), null(), run, start.cast()) };
    if error != 0 {
        // SAFETY: there is no thread that could have it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: written by the call.
    Ok(Thread { id: unsafe { id.assume_init() } })
}

/// The program's threads, as one of ours sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// Its first one runs, or there is no telling (a sandbox without `/proc`).
    Runs,
    /// Its first one has ended by `pthread_exit`, others go on.
    LeftByMain,
    /// All have ended: the process has only threads that [`spawn_blocked`] has started.
    Gone,
}

/// The state of the program's threads. Three system calls.
pub fn program() -> Program {
    let ours = OURS.get();
    let count = || (ours.running.load(Ordering::SeqCst), ours.changes.load(Ordering::SeqCst));
    let before = count();
    let Some((ended, threads)) = first_and_all() else { return Program::Runs };
    // A thread counts for the system for longer than it counts here. The first one counts for as
    // long as there is another.
    match ended {
        false => Program::Runs,
        true if threads == before.0 + 1 && count() == before => Program::Gone,
        true => Program::LeftByMain,
    }
}

/// True if the first thread has ended; and the number of threads, that one included.
fn first_and_all() -> Option<(bool, u32)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/stat", flags, Mode::empty()).ok()?;
    let mut room = [0; 1024];
    let len = rustix::io::read(&file, &mut room[..]).ok()?;
    parse(&room[..len])
}

/// Reads the line that `proc_pid_stat(5)` describes; the name, in parentheses, may hold anything.
fn parse(stat: &[u8]) -> Option<(bool, u32)> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // The 3rd was the state; the 20th is the number of threads.
    let threads = fields.nth(16)?.parse().ok()?;
    Some((matches!(state, "Z" | "X"), threads))
}

/// Ends the process as the C library does when the last thread of a program ends: by `exit(0)`,
/// with the program's exit handlers, and while ours go on. To be called by one of ours. The thread
/// that exits has the signal mask of the thread that started the caller.
pub fn exit_for_program() {
    let blocked = PROGRAMS.get();
    if start(blocked, run_exit).map(drop).is_err() {
        exit_with(blocked);
    }
}

/// Has `hook` called in the calling thread as that ends by `pthread_exit`, if it is the first of
/// the process: the C library then drops no thread-locals, but calls the destructors of keys.
pub fn on_exit_of_first(hook: fn()) {
    /// One more than the key; 0: none. Only the first thread makes it, so there is no other to wait
    /// for.
    static KEY: AtomicU32 = AtomicU32::new(0);

    // SAFETY: both ask for a number.
    if unsafe { libc::gettid() != libc::getpid() } {
        return;
    }
    let mut key = KEY.load(Ordering::Relaxed).wrapping_sub(1);
    // SAFETY: writes to `key` where it succeeds. The caller has a thread-local with a destructor,
    // which keeps this library loaded until its thread has ended.
    if key == u32::MAX && unsafe { libc::pthread_key_create(&mut key, Some(call_hook)) } != 0 {
        return;
    }
    KEY.store(key + 1, Ordering::Relaxed);
    // SAFETY: a key of ours; what it gets is for `call_hook`.
    unsafe { libc::pthread_setspecific(key, hook as *const c_void) };
}

unsafe extern "C" fn call_hook(hook: *mut c_void) {
    // SAFETY: `on_exit_of_first` stores nothing but such functions.
    let hook: fn() = unsafe { std::mem::transmute(hook) };
    // The C library is not to be unwound into.
    let _ = catch_unwind(hook);
}

extern "C" fn run_exit(blocked: *mut c_void) -> *mut c_void {
    // SAFETY: `start` gives its box away.
    exit_with(*unsafe { Box::from_raw(blocked.cast::<Option<libc::sigset_t>>()) })
}

fn exit_with(blocked: Option<libc::sigset_t>) -> ! {
    // SAFETY: reads a mask that the system has written. Exiting is what the C library would do in
    // the last thread of the program.
    unsafe {
        if let Some(blocked) = &blocked {
            libc::pthread_sigmask(libc::SIG_SETMASK, blocked, null_mut());
        }
        libc::exit(0)
    }
}

impl Thread {
    /// True if this is the calling thread.
    pub fn is_current(&self) -> bool {
        // SAFETY: compares two numbers.
        unsafe { libc::pthread_equal(self.id, libc::pthread_self()) != 0 }
    }

    /// Waits for its end; not to be called by itself.
    pub fn join(self) {
        // SAFETY: it was neither joined nor detached: this is the only handle. Cannot fail but for
        // a thread that waits for itself, which does nothing.
        unsafe { libc::pthread_join(self.id, null_mut()) };
        std::mem::forget(self);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        unsafe { libc::pthread_detach(self.id) };
    }
}

struct Start<F> {
    name: CString,
    before: libc::sigset_t,
    f: F,
}

extern "C" fn run<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn_blocked` gives its box away.
    let Start { name, before, f } = *unsafe { Box::from_raw(start.cast::<Start<F>>()) };
    // SAFETY: a string of at most 15 bytes and a NUL, for the kernel to copy.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    PROGRAMS.set(Some(before));
    ALL.set(blocked_now());
    let ours = OURS.get();
    ours.running.fetch_add(1, Ordering::SeqCst);
    ours.changes.fetch_add(1, Ordering::SeqCst);
    // A panic was reported when it happened; the C library is not to be unwound into.
    let _ = catch_unwind(AssertUnwindSafe(f));
    ours.changes.fetch_add(1, Ordering::SeqCst);
    ours.running.fetch_sub(1, Ordering::SeqCst);
    null_mut()
}

/// All signals blocked in this thread until dropped.
struct BlockedSignals {
    before: libc::sigset_t,
}

impl BlockedSignals {
    fn all() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises `all`; `pthread_sigmask` reads it and writes the mask
        // in force to `before`. With a valid `how` neither can fail.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            BlockedSignals { before: before.assume_init() }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that `all` found; a null pointer means: not interested.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, null_mut());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocked(signal: libc::c_int) -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: without a new mask, `pthread_sigmask` writes the one in force to `mask`, which
        // `sigismember` then reads.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn signals_are_blocked_in_the_thread_and_nowhere_else() {
        let before: Vec<bool> = (1..=31).map(blocked).collect();
        let (sender, inside) = std::sync::mpsc::channel();
        let thread = spawn_blocked("iwarp-test-with-a-long-name", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
            let all = (1..=31)
                .filter(|&signal| signal != libc::SIGKILL && signal != libc::SIGSTOP)
                .all(blocked);
            sender.send((name, all)).unwrap();
        });
        thread.unwrap().join();
        let (name, all) = inside.recv().unwrap();
        assert_eq!(name.trim_end(), "iwarp-test-with");
        assert!(all);
        let after: Vec<bool> = (1..=31).map(blocked).collect();
        assert_eq!(before, after);
    }

    #[test]
    fn the_system_says_how_many_threads_there_are() {
        let text = b"7 (a) Z 1 (b) S 1 7 7 0 -1 1 0 0 0 0 0 0 0 0 20 0 3 0 9 0 0";
        assert_eq!(parse(text), Some((false, 3)));
        let text = b"7 (a) Z 1 7 7 0 -1 1 0 0 0 0 0 0 0 0 20 0 12 0";
        assert_eq!(parse(text), Some((true, 12)));
        assert_eq!(parse(b"7 (a) Z 1"), None);
        assert_eq!(parse(b""), None);
        let (ended, threads) = first_and_all().unwrap();
        assert!(!ended && threads > 0);
        assert_eq!(program(), Program::Runs);
    }

    #[test]
    fn a_thread_lives_until_it_was_joined() {
        assert!(is_alive(id()));
        let (sender, number) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || sender.send(id()));
        let number = number.recv().unwrap();
        thread.join().unwrap().unwrap();
        // The system takes its number back a moment after the C library has seen its end.
        while is_alive(number) {
            std::thread::yield_now();
        }
        assert_ne!(number, id());
    }

    #[test]
    fn a_thread_that_panics_ends_alone() {
        let thread = spawn_blocked("iwarp-test", || panic!("on purpose")).unwrap();
        assert!(!thread.is_current());
        thread.join();
    }
}
