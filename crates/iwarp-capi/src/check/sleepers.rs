// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that sleep until something comes, as the system sees them.

use std::time::Duration;

use iwarp_os::thread::spawn_blocked;

use super::CHECKER;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(200);

/// The calling thread, by the system's number.
pub(super) fn own() -> i32 {
    // SAFETY: it only returns a number.
    unsafe { libc::gettid() }
}

/// True if a thread of this process is in a system call that waits for events of descriptors, and
/// has no end of its own. False where the system does not say.
pub(super) fn sleeps_for_ever(thread: i32) -> bool {
    let file = format!("/proc/self/task/{thread}/syscall");
    std::fs::read_to_string(file).is_ok_and(|line| waits_for_ever(&line))
}

/// `line`: the call's number and its arguments.
fn waits_for_ever(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let Some(call) = words.next().and_then(|word| word.parse::<i64>().ok()) else { return false };
    let arguments: Vec<u64> = words
        .filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())
        .collect();
    let argument = |number: usize| arguments.get(number).copied().unwrap_or(0);
    // A number of milliseconds below 0, or a null pointer.
    let negative = |number| (argument(number) as u32).cast_signed() < 0;
    let null = |number: usize| arguments.get(number) == Some(&0);
    match call {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => negative(2),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => negative(3),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => null(4),
        libc::SYS_ppoll => null(2),
        libc::SYS_epoll_pwait => negative(3),
        libc::SYS_epoll_pwait2 => null(3),
        libc::SYS_pselect6 => null(4),
        _ => false,
    }
}

/// Has a thread look at queues for as long as one may have lost a wake-up. False where there can be
/// no thread.
pub(super) fn watch() -> bool {
    let look = || {
        while CHECKER.get().is_some_and(|checker| checker.look()) {
            std::thread::sleep(PERIOD);
        }
    };
    spawn_blocked("iwarp-check", look).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_without_end_is_known_by_its_time() {
        let line = |call: i64, rest: &str| waits_for_ever(&format!("{call} {rest} 0x7ff 0x7fe\n"));
        assert!(line(libc::SYS_ppoll, "0x1 0x1 0x0 0x0 0x8 0x0"));
        assert!(!line(libc::SYS_ppoll, "0x1 0x1 0x7ffd 0x0 0x8 0x0"));
        assert!(line(libc::SYS_epoll_pwait, "0x4 0x7f 0x10 0xffffffff 0x0 0x8"));
        assert!(!line(libc::SYS_epoll_pwait, "0x4 0x7f 0x10 0x3e8 0x0 0x8"));
        assert!(!line(libc::SYS_read, "0x1 0x1 0x0 0x0 0x0 0x0"));
        assert!(!waits_for_ever("running\n") && !waits_for_ever(""));
    }
}
