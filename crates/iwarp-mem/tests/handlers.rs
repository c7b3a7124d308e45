// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fault handler beside those of the program.
//!
//! A process of its own, as signal handlers are the process's; each case is a child.
#![cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plain_copies, kernel_copies))
))]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use iwarp_mem::{
    MemoryTable, RegionSpec, admit_faults, keep_fault_handler, stay_admitted_to_faults,
};
use iwarp_types::{Access, AccessError, Accessor, Memory, PdId, QpId, Stag, TaggedOffset};

const WHO: Accessor = Accessor { pd: PdId(1), qp: QpId(1) };
const PAGE: usize = 4096;

/// The end of a child.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exit(i32),
    Signal(i32),
}

/// Runs `child` in a forked process.
fn in_child(child: impl FnOnce() -> i32) -> End {
    // SAFETY: the child goes on with this thread alone; the C library's allocator works there.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: ends this process, if it hangs or when it is done. No core files.
            unsafe {
                libc::alarm(20);
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &none);
                let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
                libc::_exit(code.unwrap_or(99));
            }
        }
        pid => {
            let mut status = 0;
            // SAFETY: writes to `status`.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            match libc::WIFEXITED(status) {
                true => End::Exit(libc::WEXITSTATUS(status)),
                false => End::Signal(libc::WTERMSIG(status)),
            }
        }
    }
}

/// Registered memory of a page that is gone.
struct Gone {
    table: MemoryTable,
    stag: Stag,
    start: *mut u8,
}

impl Gone {
    fn new() -> Self {
        let table = MemoryTable::new();
        // SAFETY: a new mapping.
        let start: *mut u8 = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(null_mut(), PAGE, access, kind, -1, 0).cast()
        };
        let spec = RegionSpec::new(WHO.pd, start, PAGE, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        // SAFETY: nothing else uses the page.
        let stag = unsafe { table.register(spec) }.unwrap();
        // SAFETY: as above.
        unsafe { libc::mprotect(start.cast(), PAGE, libc::PROT_NONE) };
        Self { table, stag, start }
    }

    /// True if an access fails, as it should.
    fn survives(&self) -> bool {
        let addr = self.start.addr() as u64;
        let placed = self.table.place_remote(WHO, self.stag, TaggedOffset(addr), &[1; 100]);
        placed == Err(AccessError::BadAddress(addr))
            || placed == Err(AccessError::BadAddress(addr + 64))
    }

    /// A fault of the program's own.
    fn touch(&self) {
        // SAFETY: meant to raise SIGSEGV.
        unsafe { self.start.write_volatile(1) };
    }
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static OTHER: AtomicUsize = AtomicUsize::new(0);
static PAGE_AT: AtomicUsize = AtomicUsize::new(0);

/// Repairs what the program touched: it goes on.
fn repair() {
    CALLS.fetch_add(1, Ordering::SeqCst);
    let page = PAGE_AT.load(Ordering::SeqCst) as *mut c_void;
    // SAFETY: the test's own page.
    unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
}

extern "C" fn with_info(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    assert!(signal == libc::SIGSEGV && !context.is_null());
    // SAFETY: passed by the kernel, through ours.
    let addr = unsafe { (*info).si_addr() }.addr();
    assert_eq!(addr, PAGE_AT.load(Ordering::SeqCst));
    repair();
}

extern "C" fn plain(signal: c_int) {
    assert_eq!(signal, libc::SIGSEGV);
    repair();
}

/// As a runtime that knows only its own faults and passes on the others.
extern "C" fn passes_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    OTHER.fetch_add(1, Ordering::SeqCst);
    let before = BEFORE_OTHER.load(Ordering::SeqCst);
    // SAFETY: what was in force when this one came was a handler with three arguments: ours.
    unsafe {
        type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        std::mem::transmute::<usize, Handler>(before)(signal, info, context);
    }
}

static BEFORE_OTHER: AtomicUsize = AtomicUsize::new(0);

/// Installs a handler and returns what was there.
fn install(handler: usize, flags: c_int) -> libc::sigaction {
    // SAFETY: a structure of numbers; then a handler that fits its flags.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        let mut old = MaybeUninit::uninit();
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, old.as_mut_ptr()), 0);
        old.assume_init()
    }
}

fn with_three() -> usize {
    with_info as *const () as usize
}

fn with_one() -> usize {
    plain as *const () as usize
}

/// Survives a fault of ours, has the program's repair its own, and survives again.
fn both_work(gone: &Gone) -> i32 {
    PAGE_AT.store(gone.start.addr(), Ordering::SeqCst);
    let first = gone.survives();
    gone.touch();
    let calls = CALLS.load(Ordering::SeqCst);
    // SAFETY: the test's own page.
    unsafe { libc::mprotect(gone.start.cast(), PAGE, libc::PROT_NONE) };
    i32::from(first) + 2 * i32::from(calls == 1) + 4 * i32::from(gone.survives())
}

#[test]
fn a_programs_handler_from_before_gets_the_programs_faults() {
    for (handler, flags) in [
        (with_three(), libc::SA_SIGINFO),
        (with_three(), libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER),
        (with_one(), 0),
        (with_one(), libc::SA_RESTART),
        (with_three(), libc::SA_SIGINFO | libc::SA_RESETHAND),
    ] {
        let end = in_child(|| {
            install(handler, flags);
            both_work(&Gone::new())
        });
        assert_eq!(end, End::Exit(7), "{flags:#x}");
    }
}

#[test]
fn a_programs_handler_from_afterwards_does_so_too() {
    for (handler, flags) in [(with_three(), libc::SA_SIGINFO), (with_one(), 0)] {
        let end = in_child(|| {
            let gone = Gone::new();
            install(handler, flags);
            keep_fault_handler();
            both_work(&gone)
        });
        assert_eq!(end, End::Exit(7), "{flags:#x}");
        // The next access notices by itself.
        let end = in_child(|| {
            let gone = Gone::new();
            install(handler, flags);
            let _admitted = admit_faults();
            both_work(&gone)
        });
        assert_eq!(end, End::Exit(7), "{flags:#x}");
        // So does the next registration.
        let end = in_child(|| {
            drop(Gone::new());
            install(handler, flags);
            both_work(&Gone::new())
        });
        assert_eq!(end, End::Exit(7), "{flags:#x}");
    }
}

#[test]
fn a_handler_that_is_to_be_called_once_is_called_once() {
    let end = in_child(|| {
        install(with_one(), libc::SA_RESETHAND);
        let gone = Gone::new();
        let result = both_work(&gone);
        if result == 7 {
            gone.touch();
        }
        result
    });
    assert_eq!(end, End::Signal(libc::SIGSEGV));
}

#[test]
fn on_the_alternative_stack_too() {
    let end = in_child(|| {
        let mut stack = vec![0_u8; 64 << 10];
        let stack =
            libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        // SAFETY: the stack lives as long as this process.
        unsafe { libc::sigaltstack(&stack, null_mut()) };
        install(with_three(), libc::SA_SIGINFO | libc::SA_ONSTACK);
        both_work(&Gone::new())
    });
    assert_eq!(end, End::Exit(7));
}

/// Two handlers that each have the other for the one before.
#[test]
fn handlers_that_pass_on_to_each_other_come_to_an_end() {
    let chained = |first: usize, flags: c_int| {
        in_child(|| {
            install(first, flags);
            let gone = Gone::new();
            let before = install(passes_on as *const () as usize, libc::SA_SIGINFO);
            BEFORE_OTHER.store(before.sa_sigaction, Ordering::SeqCst);
            keep_fault_handler();
            let result = both_work(&gone);
            result + 8 * i32::from(OTHER.load(Ordering::SeqCst) == 1)
        })
    };
    assert_eq!(chained(with_three(), libc::SA_SIGINFO), End::Exit(15));
    assert_eq!(chained(libc::SIG_DFL, 0), End::Signal(libc::SIGSEGV));
}

/// A program has a handler for a moment, and puts back what it has found.
#[test]
fn a_handler_that_was_there_for_a_moment_is_not_called_afterwards() {
    let with_a_moment = |first: usize| {
        in_child(|| {
            install(first, 0);
            let gone = Gone::new();
            PAGE_AT.store(gone.start.addr(), Ordering::SeqCst);
            for _ in 0..20 {
                let found = install(passes_on as *const () as usize, libc::SA_SIGINFO);
                BEFORE_OTHER.store(found.sa_sigaction, Ordering::SeqCst);
                keep_fault_handler();
                assert!(gone.survives());
                // SAFETY: what the system has returned.
                unsafe { libc::sigaction(libc::SIGSEGV, &found, null_mut()) };
                keep_fault_handler();
                assert!(gone.survives());
            }
            let result = both_work(&gone);
            result + 8 * i32::from(OTHER.load(Ordering::SeqCst) == 0)
        })
    };
    assert_eq!(with_a_moment(with_one()), End::Exit(15));
    assert_eq!(with_a_moment(libc::SIG_DFL), End::Signal(libc::SIGSEGV));
}

/// By `signal`, which keeps an address and no flags.
#[test]
fn a_handler_that_is_put_back_without_its_flags_gets_them_back() {
    for moment in [with_one(), libc::SIG_DFL] {
        let end = in_child(|| {
            install(with_one(), 0);
            let gone = Gone::new();
            // SAFETY: a handler that the kernel calls with what `signal` promises.
            unsafe {
                let found = libc::signal(libc::SIGSEGV, moment);
                libc::signal(libc::SIGSEGV, found);
            }
            keep_fault_handler();
            both_work(&gone)
        });
        assert_eq!(end, End::Exit(7));
    }
}

/// More handlers than there is room for.
#[test]
fn many_handlers_may_come_one_after_the_other() {
    let end = in_child(|| {
        let gone = Gone::new();
        for turn in 0..100 {
            let flags = [0, libc::SA_RESTART, libc::SA_NODEFER, libc::SA_ONSTACK][turn % 4];
            match turn % 3 {
                0 => install(with_one(), flags),
                1 => install(with_three(), flags | libc::SA_SIGINFO),
                _ => install(libc::SIG_DFL, flags),
            };
            keep_fault_handler();
            assert!(gone.survives());
        }
        install(with_three(), libc::SA_SIGINFO);
        keep_fault_handler();
        both_work(&gone)
    });
    assert_eq!(end, End::Exit(7));
}

/// As many times as one likes.
#[test]
fn faults_of_both_kinds_may_alternate() {
    let end = in_child(|| {
        let gone = Gone::new();
        install(with_three(), libc::SA_SIGINFO);
        keep_fault_handler();
        PAGE_AT.store(gone.start.addr(), Ordering::SeqCst);
        let mut right = 0;
        for _ in 0..100 {
            gone.touch();
            // SAFETY: the test's own page.
            unsafe { libc::mprotect(gone.start.cast(), PAGE, libc::PROT_NONE) };
            right += i32::from(gone.survives());
        }
        i32::from(right == 100 && CALLS.load(Ordering::SeqCst) == 100)
    });
    assert_eq!(end, End::Exit(1));
}

#[test]
fn without_a_handler_the_programs_own_fault_is_its_end() {
    for before in [libc::SIG_DFL, libc::SIG_IGN] {
        let end = in_child(|| {
            install(before, 0);
            let gone = Gone::new();
            let survived = gone.survives();
            if survived {
                gone.touch();
            }
            1
        });
        assert_eq!(end, End::Signal(libc::SIGSEGV));
    }
}

#[test]
fn signals_that_are_sent_have_the_effect_that_they_had() {
    // SAFETY: sends a signal to this process.
    let sent = || unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
    let end = in_child(|| {
        install(libc::SIG_DFL, 0);
        let gone = Gone::new();
        sent();
        i32::from(gone.survives())
    });
    assert_eq!(end, End::Signal(libc::SIGSEGV));
    let end = in_child(|| {
        install(libc::SIG_IGN, 0);
        let gone = Gone::new();
        sent();
        i32::from(gone.survives())
    });
    assert_eq!(end, End::Exit(1));
    let end = in_child(|| {
        install(with_one(), 0);
        let gone = Gone::new();
        PAGE_AT.store(gone.start.addr(), Ordering::SeqCst);
        sent();
        CALLS.load(Ordering::SeqCst) as i32
    });
    assert_eq!(end, End::Exit(1));
}

#[test]
fn a_thread_that_blocked_all_signals_survives() {
    let end = in_child(|| {
        let gone = Gone::new();
        // The address of a table is fine to share; `Gone` says nothing of threads.
        let shared = &raw const gone as usize;
        let inside = thread::spawn(move || {
            // SAFETY: blocks signals in this thread; the table outlives it.
            let gone = unsafe {
                let mut all = MaybeUninit::uninit();
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), null_mut());
                &*(shared as *const Gone)
            };
            let _admitted = admit_faults();
            gone.survives()
        });
        i32::from(inside.join().unwrap())
    });
    assert_eq!(end, End::Exit(1));
}

/// Both signals, blocked in this thread and those that it makes.
fn block_both() -> libc::sigset_t {
    let mut both = MaybeUninit::uninit();
    // SAFETY: a set of two signals.
    unsafe {
        libc::sigemptyset(both.as_mut_ptr());
        libc::sigaddset(both.as_mut_ptr(), libc::SIGSEGV);
        libc::sigaddset(both.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_BLOCK, both.as_ptr(), null_mut());
        both.assume_init()
    }
}

/// As a program that takes its signals by `sigwait` or a signalfd.
#[test]
fn signals_that_a_program_blocks_stay_blocked_and_wait() {
    let accesses = |gone: &Gone, both: &libc::sigset_t| {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: looks for signals that wait.
        let waits = || unsafe { libc::sigtimedwait(both, null_mut(), &now) };
        (0..100).all(|_| {
            let admitted = admit_faults();
            let survives = gone.survives();
            // SAFETY: sends signals to this process and thread.
            unsafe {
                libc::kill(libc::getpid(), libc::SIGSEGV);
                libc::pthread_kill(libc::pthread_self(), libc::SIGBUS);
            }
            drop(admitted);
            survives && waits() == libc::SIGBUS && waits() == libc::SIGSEGV && waits() == -1
        })
    };
    let end = in_child(|| i32::from(accesses(&Gone::new(), &block_both())));
    assert_eq!(end, End::Exit(1));
    // The kernel does not take every signal back from a thread that is not the first.
    let end = in_child(|| {
        let both = block_both();
        i32::from(thread::spawn(move || accesses(&Gone::new(), &both)).join().unwrap())
    });
    assert_eq!(end, End::Exit(1));
}

/// Sends this process each of the signals again and again, and waits for it.
fn takes_what_it_sends(both: &libc::sigset_t) -> bool {
    (0..1000).all(|turn| {
        let (sent, mut taken) = ([libc::SIGSEGV, libc::SIGBUS][turn % 2], 0);
        // SAFETY: sends a signal to this process, and writes to `taken`.
        let done = unsafe { libc::kill(libc::getpid(), sent) + libc::sigwait(both, &mut taken) };
        done == 0 && taken == sent
    })
}

/// One that waits gets each, though other threads have them unblocked again and again.
#[test]
fn signals_that_a_program_waits_for_arrive_beside_accesses() {
    let end = in_child(|| {
        let both = block_both();
        let stop = AtomicUsize::new(0);
        let right = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let gone = Gone::new();
                    while stop.load(Ordering::SeqCst) == 0 {
                        let _admitted = admit_faults();
                        assert!(gone.survives());
                    }
                });
            }
            let right = takes_what_it_sends(&both);
            stop.store(1, Ordering::SeqCst);
            right
        });
        i32::from(right)
    });
    assert_eq!(end, End::Exit(1));
}

/// A thread of the library's has them unblocked between its accesses, and keeps none for itself.
#[test]
fn a_thread_that_stays_admitted_passes_signals_on() {
    let end = in_child(|| {
        let both = block_both();
        let gone = Gone::new();
        let shared = (&raw const gone).addr();
        let (ready, started) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let other = thread::spawn(move || {
            // SAFETY: it is joined before `gone` ends.
            let gone = unsafe { &*(shared as *const Gone) };
            let staying = stay_admitted_to_faults();
            let survives = || {
                let _admitted = admit_faults();
                gone.survives()
            };
            let before = survives() && !blocks(libc::SIGSEGV) && !blocks(libc::SIGBUS);
            // SAFETY: asks for a number.
            ready.send(unsafe { libc::gettid() }).unwrap();
            // Between accesses until the other end is dropped.
            let _ = stopped.recv();
            // The one that came was passed on, and both are blocked from then on.
            let after = blocks(libc::SIGSEGV) && survives() && blocks(libc::SIGSEGV);
            drop(staying);
            before && after && blocks(libc::SIGBUS)
        });
        let thread = started.recv().unwrap();
        // SAFETY: sends a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
        while !blocks_in(thread, libc::SIGSEGV) {
            thread::yield_now();
        }
        let mut taken = 0;
        // SAFETY: writes to `taken`.
        let first = unsafe { libc::sigwait(&both, &mut taken) } == 0 && taken == libc::SIGSEGV;
        let right = first && takes_what_it_sends(&both);
        drop(stop);
        i32::from(other.join().unwrap() && right)
    });
    assert_eq!(end, End::Exit(1));
}

/// Nor does it in the midst of accesses, where a fault must find them unblocked.
#[test]
fn a_thread_that_stays_admitted_passes_signals_on_beside_accesses() {
    let end = in_child(|| {
        let both = block_both();
        let stop = AtomicUsize::new(0);
        let right = thread::scope(|scope| {
            scope.spawn(|| {
                let gone = Gone::new();
                while stop.load(Ordering::SeqCst) == 0 {
                    // Each turn is a new thread of the library's, with its first access and signal.
                    let _staying = stay_admitted_to_faults();
                    for _ in 0..10 {
                        let _admitted = admit_faults();
                        assert!(gone.survives());
                    }
                }
            });
            let right = takes_what_it_sends(&both);
            stop.store(1, Ordering::SeqCst);
            right
        });
        i32::from(right)
    });
    assert_eq!(end, End::Exit(1));
}

/// True if another thread of this process blocks the signal.
fn blocks_in(thread: i32, signal: libc::c_int) -> bool {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
}

fn blocks(signal: libc::c_int) -> bool {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: without a new mask, `pthread_sigmask` writes the one in force to `mask`.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), signal) == 1
    }
}

#[test]
fn a_child_survives_what_its_parent_has_registered() {
    let gone = Gone::new();
    assert_eq!(in_child(|| i32::from(gone.survives())), End::Exit(1));
    assert!(gone.survives());
}

/// The calls that a jail denies: every one that asks about mappings, but one that would end the
/// process.
#[test]
fn small_regions_need_no_system_call_that_a_jail_denies() {
    let end = in_child(|| {
        deny(&[
            libc::SYS_msync,
            libc::SYS_madvise,
            libc::SYS_ioctl,
            libc::SYS_open,
            libc::SYS_openat,
        ]);
        let gone = Gone::new();
        // A large one is tried at places.
        // SAFETY: a new mapping, which nothing else uses.
        let large = unsafe {
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let (len, access) = (1000 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
            let start = libc::mmap(null_mut(), len, access, kind, -1, 0);
            let spec = RegionSpec::new(WHO.pd, start.cast(), len, Access::LOCAL_WRITE);
            let registered = gone.table.register(spec);
            libc::mprotect(start, len / 2, libc::PROT_READ);
            (registered.is_ok(), gone.table.register(spec).is_err())
        };
        i32::from(gone.survives()) + 2 * i32::from(large == (true, true))
    });
    assert_eq!(end, End::Exit(3));
}

/// Has these system calls fail with EPERM.
fn deny(calls: &[libc::c_long]) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let (load, equal, answer) = (0x20, 0x15, 0x06);
    let mut program = vec![statement(load, 0)];
    for (number, call) in calls.iter().enumerate() {
        let to_denial = (calls.len() - number) as u8;
        program.push(libc::sock_filter { jt: to_denial, ..statement(equal, *call as u32) });
    }
    program.push(statement(answer, libc::SECCOMP_RET_ALLOW));
    program.push(statement(answer, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a filter that the kernel copies.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
    };
    assert_eq!(done, 0);
}
