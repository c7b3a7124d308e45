// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time, and the processors.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Time since some fixed moment in the past (`CLOCK_MONOTONIC`). Never goes back; stands still
/// while the machine sleeps.
pub fn now() -> Duration {
    let mut now = MaybeUninit::<libc::timespec>::uninit();
    // libc's, as rustix wants more of the vDSO than that of User-Mode-Linux has.
    // SAFETY: the time is written to memory of our own; with this clock the call cannot fail.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr());
        now.assume_init()
    };
    // The fields are of 32 or 64 bits, as the C library has them.
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Lets another thread run on this processor.
pub fn yield_now() {
    // rustix's takes it that no sandbox refuses the call.
    std::thread::yield_now();
}

/// The number of processors that the calling thread may run on; at least 1.
///
/// This is the affinity mask alone: unlike std's `available_parallelism` it does not count a
/// CPU quota, under which two threads still run at the same time.
pub fn cpus() -> usize {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (set.count() as usize).max(1),
        // More processors than the set has bits (1,024).
        Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The processor that the calling thread may run on, if it is one only.
pub fn only_cpu() -> Option<usize> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let is_in = |cpu: &usize| set.is_set(*cpu);
    (set.count() == 1).then(|| (0..rustix::thread::CpuSet::MAX_CPU).find(is_in)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_std_s_time() {
        // std reads the same clock, so a reading of ours lies between two of its own.
        let before = std::time::Instant::now();
        let ours = now();
        let after = std::time::Instant::now();
        let again = now();
        assert!(again >= ours);
        assert!(again - ours >= after.elapsed().saturating_sub(before.elapsed()));
        assert!(again - ours <= before.elapsed());
    }

    #[test]
    fn affinity_limits_the_count() {
        let all = cpus();
        assert!(all >= 1);
        std::thread::spawn(|| {
            let first =
                (0..).find(|&cpu| rustix::thread::sched_getaffinity(None).unwrap().is_set(cpu));
            let mut one = rustix::thread::CpuSet::new();
            one.set(first.unwrap());
            rustix::thread::sched_setaffinity(None, &one).unwrap();
            assert_eq!(cpus(), 1);
            assert_eq!(only_cpu(), first);
            yield_now();
        })
        .join()
        .unwrap();
        assert_eq!(cpus(), all);
    }
}
