// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that are killed, stopped, and end in other ways, at moments by lot. A *breeder* forks
//! them, which has never used the library and has one thread, and does to them what comes from
//! outside.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags};

use super::mixed::Lots;

/// The end of a victim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fate {
    Killed,
    /// Stopped, and killed while it stands.
    StoppedAndKilled,
    /// Stopped, and let go on; then it disconnects.
    Stopped,
    /// Becomes another program, which lives on.
    Exec,
    /// Has a child that lives on, and is killed.
    Fork,
    Exit,
    Disconnects,
    /// Destroys its queue pairs.
    Destroys,
    /// The other end leaves.
    IsLeft,
}

pub const FATES: [Fate; 9] = [
    Fate::Killed,
    Fate::StoppedAndKilled,
    Fate::Stopped,
    Fate::Exec,
    Fate::Fork,
    Fate::Exit,
    Fate::Disconnects,
    Fate::Destroys,
    Fate::IsLeft,
];

/// A round, by its number.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub fate: Fate,
    /// Which options the devices have.
    pub device: usize,
    pub connections: usize,
    /// The survivor is the end that connects.
    pub connects: bool,
    /// The survivor sleeps whenever there is nothing.
    pub sleeps: bool,
    /// The time counts from the move of all connections.
    pub moved: bool,
    /// The time counts from the birth of the victim, not from its connections.
    pub early: bool,
    pub delay: Duration,
    pub second: Duration,
    /// After that time the survivor deregisters the memory that the victim uses.
    pub withdraws: Option<Duration>,
}

impl Plan {
    pub fn new(seed: u64, devices: usize) -> Self {
        let mut lots = Lots(seed);
        let mut micros = |most| Duration::from_micros(lots.below(most));
        let (amid, late, second) = (micros(3_000), micros(20_000), micros(20_000));
        let fate = FATES[lots.below(FATES.len() as u64) as usize];
        let from_outside = matches!(fate, Fate::Killed | Fate::StoppedAndKilled | Fate::Stopped);
        let early = from_outside && lots.below(8) == 0;
        let moved = !early && lots.below(2) == 0;
        let amid_move = !moved && lots.below(4) > 0;
        let withdraws = lots.below(4) == 0;
        let withdraws = withdraws.then(|| Duration::from_micros(lots.below(20_000)));
        Self {
            seed,
            fate,
            // The last one has ends that take a second.
            device: (lots.below(4 * devices as u64 - 3) / 4) as usize,
            connections: 1 + lots.below(3) as usize,
            connects: lots.below(2) == 0,
            sleeps: lots.below(16) == 0,
            moved,
            early,
            delay: if amid_move { amid } else { late },
            second,
            withdraws,
        }
    }
}

/// The words that the processes exchange past everything that is tested.
#[derive(Default)]
pub struct Board {
    /// The victim's connections are made.
    pub connected: AtomicU32,
    /// The port at which it listens.
    pub port: AtomicU16,
    /// The Sends that each connection has accepted, plus one, when it posts no more.
    pub posted: [AtomicU64; 4],
    /// Its fate has come.
    pub over: AtomicU32,
    /// Programs and children that live on may go.
    pub release: AtomicU32,
    pub pid: AtomicI32,
    pub child: AtomicI32,
    /// The victim is no more.
    pub gone: AtomicU32,
}

impl Board {
    fn shared() -> &'static Self {
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, which stays; zeros are a board.
        unsafe {
            let len = size_of::<Self>();
            let place = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, rights, flags);
            &*place.unwrap().cast()
        }
    }

    fn reset(&self) {
        let Self { connected, port, posted, over, release, pid, child, gone } = self;
        for word in [connected, over, release, gone] {
            word.store(0, Ordering::SeqCst);
        }
        posted.iter().for_each(|count| count.store(0, Ordering::SeqCst));
        port.store(0, Ordering::SeqCst);
        pid.store(0, Ordering::SeqCst);
        child.store(0, Ordering::SeqCst);
    }

    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst) != 0
    }
}

/// See the [module](self).
pub struct Breeder {
    line: UnixStream,
    pub board: &'static Board,
    pid: libc::pid_t,
}

impl Breeder {
    /// Forks it: to be called before the process uses the library. `victim` is what its children
    /// do, with the plan and the port of the survivor; it may come back.
    pub fn new(victim: impl Fn(&Plan, u16, &Board), devices: usize) -> Self {
        let board = Board::shared();
        let (line, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the process has one thread that does anything.
        match unsafe { libc::fork() } {
            0 => {
                drop(line);
                breed(theirs, board, victim, devices);
                // SAFETY: without the parent's handlers.
                unsafe { libc::_exit(0) }
            }
            pid => Self { line, board, pid },
        }
    }

    /// A new victim, whose survivor listens at that port.
    pub fn begin(&mut self, plan: &Plan, port: u16) {
        self.board.reset();
        let order = [plan.seed, port.into()].map(u64::to_ne_bytes).concat();
        self.line.write_all(&order).unwrap();
    }

    /// The status of the victim as `waitpid` says, once it has gone.
    pub fn end(&mut self) -> i32 {
        self.board.release.store(1, Ordering::SeqCst);
        let mut status = [0; 4];
        self.line.read_exact(&mut status).unwrap();
        i32::from_ne_bytes(status)
    }
}

impl Drop for Breeder {
    fn drop(&mut self) {
        // SAFETY: our child, which is waited for here alone; its children go with it.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

fn breed(mut line: UnixStream, board: &Board, victim: impl Fn(&Plan, u16, &Board), devices: usize) {
    // SAFETY: victims' children are ours when their parents have gone; we go with our parent.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let mut order = [0; 16];
    while line.read_exact(&mut order).is_ok() {
        let [seed, port] =
            [0, 8].map(|at| u64::from_ne_bytes(order[at..at + 8].try_into().unwrap()));
        let plan = Plan::new(seed, devices);
        // SAFETY: this process has one thread.
        let pid = match unsafe { libc::fork() } {
            0 => {
                // SAFETY: it goes with its parent.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                let run = std::panic::AssertUnwindSafe(|| victim(&plan, port as u16, board));
                let failed = std::panic::catch_unwind(run).is_err();
                // SAFETY: with the handlers, as a program does: what it has accepted goes out.
                unsafe { libc::exit(if failed { 101 } else { 0 }) }
            }
            pid => pid,
        };
        board.pid.store(pid, Ordering::SeqCst);
        let status = attend(pid, &plan, board);
        let child = board.child.load(Ordering::SeqCst);
        if child != 0 {
            while board.release.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            kill(child, libc::SIGKILL);
        }
        // SAFETY: reaps what there is.
        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {}
        line.write_all(&status.to_ne_bytes()).unwrap();
    }
}

fn kill(pid: libc::pid_t, signal: i32) {
    // SAFETY: a child that was not waited for.
    unsafe { libc::kill(pid, signal) };
}

/// Waits for `done`, or the end of the victim, whose status it says.
fn until(pid: libc::pid_t, board: &Board, done: impl Fn() -> bool) -> Option<i32> {
    loop {
        let mut status = 0;
        // SAFETY: writes to `status`.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            board.gone.store(1, Ordering::SeqCst);
            board.over.store(1, Ordering::SeqCst);
            return Some(status);
        }
        if done() {
            return None;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn attend(pid: libc::pid_t, plan: &Plan, board: &Board) -> i32 {
    let connected = || plan.early || board.connected.load(Ordering::SeqCst) != 0;
    if let Some(status) = until(pid, board, connected) {
        return status;
    }
    let from = Instant::now();
    let passed = |time| move || from.elapsed() >= time;
    let steps: &[(Duration, i32)] = match plan.fate {
        Fate::Killed => &[(plan.delay, libc::SIGKILL)],
        Fate::StoppedAndKilled => {
            &[(plan.delay, libc::SIGSTOP), (plan.delay + plan.second, libc::SIGKILL)]
        }
        Fate::Stopped => &[(plan.delay, libc::SIGSTOP), (plan.delay + plan.second, libc::SIGCONT)],
        _ => &[],
    };
    for (at, signal) in steps {
        if let Some(status) = until(pid, board, passed(*at)) {
            return status;
        }
        kill(pid, *signal);
    }
    let released = || board.release.load(Ordering::SeqCst) != 0;
    let late = passed(Duration::from_secs(60));
    // A victim that became another program is to be ended; others end by themselves.
    let lives_on = plan.fate == Fate::Exec;
    if let Some(status) = until(pid, board, || (lives_on && released()) || late()) {
        return status;
    }
    kill(pid, libc::SIGKILL);
    until(pid, board, || false).unwrap()
}
