// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state and the acts of this process, in the system's eyes.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use super::until;

/// Descriptors that are open.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Threads of the library. The test harness starts and ends its own as it likes.
pub fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "iwarp").count()
}

/// Time on processors, of all threads.
pub fn cpu_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

/// The number by which the system knows the calling thread.
pub fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Waits until a thread has said its number, and sleeps in a system call.
pub fn until_asleep(tid: &AtomicI32) {
    until("a thread to sleep", || {
        let stat = format!("/proc/self/task/{}/stat", tid.load(Ordering::Acquire));
        // Behind the name, which is in parentheses.
        let stat = std::fs::read_to_string(stat).ok()?;
        stat.rsplit(')').next()?.starts_with(" S").then_some(())
    });
}
