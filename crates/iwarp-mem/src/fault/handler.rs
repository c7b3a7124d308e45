// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handler, and how it gets and keeps its place.

use std::ffi::{c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use super::chain::{self, Chain, ENTRIES};
use super::table::end_of_block;
use super::{frozen, mask};

pub(super) const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// The handlers before ours, for each signal.
static BEFORE: [Chain; 2] = [Chain::new(), Chain::new()];
static WANTED: AtomicBool = AtomicBool::new(false);

fn before(signal: c_int) -> &'static Chain {
    &BEFORE[usize::from(signal == libc::SIGBUS)]
}

pub(super) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Installs the handler for both signals where it is not. False if that cannot be done.
pub(super) fn keep() -> bool {
    WANTED.store(true, Ordering::Relaxed);
    SIGNALS.into_iter().all(|signal| is_kept(signal) || install(signal))
}

/// True if the handler is there, as it was installed.
fn is_kept(signal: c_int) -> bool {
    let found = action(signal, None);
    let entry = found.filter(has_our_flags).and_then(|found| entry_at(found.sa_sigaction));
    entry.inspect(|&entry| before(signal).found(entry)).is_some()
}

/// The flags without which it gets nothing to go by. A program that puts it back by `signal` has it
/// without them.
const OURS: c_int = libc::SA_SIGINFO | libc::SA_ONSTACK;

fn has_our_flags(action: &libc::sigaction) -> bool {
    action.sa_flags & OURS == OURS
}

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

const HANDLERS: [Handler; ENTRIES] = [
    handler::<0>,
    handler::<1>,
    handler::<2>,
    handler::<3>,
    handler::<4>,
    handler::<5>,
    handler::<6>,
    handler::<7>,
];

/// The entry whose function is at the address.
fn entry_at(address: usize) -> Option<usize> {
    HANDLERS.iter().position(|&handler| handler as usize == address)
}

/// The action in force, which is replaced by `new`.
fn action(signal: c_int, new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::uninit();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: reads `new` if there is one, and writes to `old`.
    let done = unsafe { libc::sigaction(signal, new, old.as_mut_ptr()) };
    // SAFETY: written by a call that succeeds.
    (done == 0).then(|| unsafe { old.assume_init() })
}

#[cold]
fn install(signal: c_int) -> bool {
    let _one_at_a_time = Installing::begin();
    let Some(mut found) = action(signal, None) else { return false };
    let mut installed = false;
    loop {
        let entry = match entry_at(found.sa_sigaction) {
            Some(entry) if has_our_flags(&found) => {
                if installed {
                    // The program has put this one back in between.
                    let _ = action(signal, Some(&found));
                    before(signal).found(entry);
                }
                return true;
            }
            Some(entry) => entry,
            // First, as the handler may be needed as soon as it is there.
            None => before(signal).entry_before(found.sa_sigaction, found.sa_flags),
        };
        let mut ours = found;
        ours.sa_sigaction = HANDLERS[entry] as usize;
        // The flags for which the handler before asked hold on where it is called from ours. That
        // is on the alternative stack, where the thread has one: others may have no room.
        let kept = libc::SA_NODEFER | libc::SA_RESTART;
        ours.sa_flags = OURS | (found.sa_flags & kept);
        let Some(replaced) = action(signal, Some(&ours)) else { return false };
        installed = true;
        before(signal).found(entry);
        if replaced.sa_sigaction == found.sa_sigaction {
            return true;
        }
        // The program has changed it just now.
        found = replaced;
    }
}

/// Held by one thread at a time. A child that was forked meanwhile takes it from the parent's
/// thread, which it does not have.
struct Installing;

static INSTALLING: AtomicI32 = AtomicI32::new(0);

impl Installing {
    fn begin() -> Self {
        // SAFETY: asks for a number.
        let process = unsafe { libc::getpid() };
        let mut held_by = 0;
        loop {
            let taken =
                INSTALLING.compare_exchange(held_by, process, Ordering::Acquire, Ordering::Relaxed);
            match taken {
                Ok(_) => return Self,
                Err(other) if other != process => held_by = other,
                Err(_) => {
                    held_by = 0;
                    std::thread::yield_now();
                }
            }
        }
    }
}

impl Drop for Installing {
    fn drop(&mut self) {
        INSTALLING.store(0, Ordering::Release);
    }
}

/// Only what is safe in the midst of anything: no lock, no memory, no thread-local.
unsafe extern "C" fn handler<const ENTRY: usize>(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    // SAFETY: the kernel passes both, or a handler that came after ours passes on what it was
    // given.
    let by_fault = unsafe { (*info).si_code } > 0;
    // SAFETY: likewise.
    let (code, fault) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if by_fault && frozen::may_go_on(signal, code, fault) {
        return;
    }
    // SAFETY: likewise.
    if by_fault && unsafe { resume(context.cast(), fault) } {
        return;
    }
    // SAFETY: likewise.
    if !by_fault && unsafe { mask::keep(signal, info, context.cast()) } {
        return;
    }
    let here = (&raw const by_fault).addr();
    // SAFETY: likewise.
    match unsafe { before(signal).call(ENTRY, here, signal, info, context) } {
        chain::Called::Handler => {}
        chain::Called::Ignored if !by_fault => {}
        // The kernel lets no process ignore a fault.
        // SAFETY: as above.
        chain::Called::Default | chain::Called::Ignored => unsafe {
            default(signal, info, by_fault);
        },
    }
}

/// Lets an access of ours end with the fault. False if it is none.
///
/// # Safety
///
/// `context` is that of an instruction that has faulted.
#[cfg(target_arch = "x86_64")]
unsafe fn resume(context: *mut libc::ucontext_t, fault: usize) -> bool {
    // SAFETY: this function's contract.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let Some(end) = end_of_block(registers[libc::REG_RIP as usize] as usize) else {
        return false;
    };
    registers[libc::REG_R11 as usize] = fault.max(1) as i64;
    registers[libc::REG_RIP as usize] = end as i64;
    true
}

/// Does what the kernel would have done without a handler: as soon as this one returns, either the
/// instruction faults again, or the signal that a process sent comes again.
///
/// # Safety
///
/// `info` is the signal's.
#[cold]
unsafe fn default(signal: c_int, info: *mut libc::siginfo_t, by_fault: bool) {
    // SAFETY: zeros are no flags, no mask and SIG_DFL.
    let default: libc::sigaction = unsafe { mem::zeroed() };
    action(signal, Some(&default));
    if !by_fault {
        // SAFETY: sends this thread the signal that it has, which is blocked meanwhile.
        unsafe {
            let (process, thread) = (libc::getpid(), libc::gettid());
            if libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) != 0 {
                libc::raise(signal);
            }
        }
    }
}
