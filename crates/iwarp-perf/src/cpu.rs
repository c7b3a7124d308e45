// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of a process, and the CPUs that it runs on.

use std::ffi::c_long;
use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::process::setpriority_process;
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

/// Time on CPUs of all threads of this process (`getrusage`).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Seconds in the program.
    pub(super) user: f64,
    /// Seconds in the kernel.
    pub(super) system: f64,
    /// The number of times that a thread slept or was taken off its CPU.
    pub(super) switches: c_long,
    /// Turns of the [`Background`] task.
    pub(super) turns: u64,
    /// Seconds by the clock.
    pub(super) wall: f64,
}

impl Usage {
    /// The usage since the process began.
    pub(super) fn now() -> Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_SELF).context("getrusage")?;
        Ok(Self {
            user: usage.user_time().num_microseconds() as f64 * 1e-6,
            system: usage.system_time().num_microseconds() as f64 * 1e-6,
            switches: usage.voluntary_context_switches() + usage.involuntary_context_switches(),
            turns: TURNS.load(Ordering::Relaxed),
            wall: CLOCK.get_or_init(Instant::now).elapsed().as_secs_f64(),
        })
    }

    /// Seconds altogether.
    pub(super) fn seconds(&self) -> f64 {
        self.user + self.system
    }
}

impl Sub for Usage {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user: self.user - before.user,
            system: self.system - before.system,
            switches: self.switches - before.switches,
            turns: self.turns - before.turns,
            wall: self.wall - before.wall,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.user += more.user;
        self.system += more.system;
        self.switches += more.switches;
        self.turns += more.turns;
        self.wall += more.wall;
    }
}

static TURNS: AtomicU64 = AtomicU64::new(0);
static CLOCK: OnceLock<Instant> = OnceLock::new();

/// A task of the lowest priority that never ends by itself. Its slowdown, compared with running
/// alone, is the load of its CPU, the kernel's part included.
pub(super) struct Background {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(super) fn start(cpu: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, (ready, is_ready)) = (Arc::clone(&stop), mpsc::channel());
        let run = move || {
            // Of this thread alone (sched(7), nice value).
            let placed =
                pin(&[cpu]).and_then(|()| setpriority_process(None, 19).context("setpriority"));
            let runs = placed.is_ok();
            let told = ready.send(placed);
            // It walks memory, so that it feels what is done to its cache.
            let mut memory = vec![1_u64; 2048];
            while runs && told.is_ok() && !stopped.load(Ordering::Relaxed) {
                for cell in &mut memory {
                    *cell = cell.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                }
                std::hint::black_box(&mut memory);
                TURNS.fetch_add(1, Ordering::Relaxed);
            }
        };
        let thread = Some(std::thread::Builder::new().spawn(run)?);
        let background = Self { stop, thread };
        is_ready.recv().context("the background task ended")??;
        Ok(background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It ends by itself now, and has nothing to say.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The CPUs that this thread may run on.
pub(super) fn allowed() -> Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None).context("sched_getaffinity")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Has this thread, and those that it starts from now on, run on these CPUs only.
pub(super) fn pin(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on CPU {cpus:?}"))
}

/// Does something on these CPUs, if there are any to be on.
pub(super) fn on<T>(cpus: &[usize], f: impl FnOnce() -> Result<T>) -> Result<T> {
    if cpus.is_empty() {
        return f();
    }
    let everywhere = allowed()?;
    pin(cpus)?;
    let done = f();
    pin(&everywhere)?;
    done
}

/// Threads that ran or wanted to, on average in the last minute: the system's load.
pub(super) fn load() -> f64 {
    // A fraction of 16 bits (sysinfo(2)).
    rustix::system::sysinfo().loads[0] as f64 / 65_536.0
}

/// The kind of processor, as far as the kernel says.
pub(super) fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name"));
    let name = name.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
