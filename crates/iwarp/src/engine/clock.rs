//! The time: as the protocol core takes it, and as the hot path does.

use iwarp_types::Time;

/// The time, as the protocol core takes it.
pub(crate) fn now() -> Time {
    Time(iwarp_os::clock::now())
}

/// Nanoseconds of the monotonic clock, nearly.
pub(crate) fn clock() -> u64 {
    iwarp_os::ticks::nanos()
}
