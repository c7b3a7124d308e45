// SPDX-License-Identifier: MIT OR Apache-2.0

//! Log lines whose number a peer decides, limited in rate.
//!
//! A peer that can cause one line can cause a million. So every such line has its own [`Throttle`],
//! and the next line that passes says how many were suppressed (`left_out=`).
#![doc(hidden)]

mod json;
mod object;
mod style;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[doc(hidden)]
pub use tracing;
use tracing::Event;

pub(crate) use self::object::Object;
pub use self::style::LogFormat;

/// The `tracing` target of the lines that a user must see: the reasons for which queue pairs could
/// not meet, or a peer was lost.
pub const REPORT: &str = "iwarp::report";

/// The `tracing` target of the lines on the fate of connections.
pub const FATE: &str = "iwarp::fate";

/// Time that one line stands for, in the long run.
const PERIOD: Duration = Duration::from_secs(1);

/// Lets so many lines pass at once, and one in each period from then on. Takes no lock: a forked
/// child may find it in any state.
#[derive(Debug)]
pub struct Throttle {
    /// Lines that may pass at once.
    burst: u64,
    period: Duration,
    /// The time by which the lines that have passed will be made up for, in nanoseconds.
    made_up: AtomicU64,
    left_out: AtomicU64,
}

impl Throttle {
    /// One a second in the long run. `burst` is at least one.
    pub const fn new(burst: u64) -> Self {
        Self::paced(burst, PERIOD)
    }

    /// One in each `period` in the long run.
    pub const fn paced(burst: u64, period: Duration) -> Self {
        Self { burst, period, made_up: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// `Some` if a line may be written now, with the number that were left out before it, if some
    /// were.
    pub fn admit(&self) -> Option<Option<u64>> {
        self.admit_at(iwarp_os::clock::now())
    }

    fn admit_at(&self, now: Duration) -> Option<Option<u64>> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (now, period) = (nanos(now), nanos(self.period));
        let take = |made_up: u64| {
            let from = made_up.max(now);
            (from - now <= (self.burst - 1) * period).then_some(from + period)
        };
        if self.made_up.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            let left_out = self.left_out.swap(0, Ordering::Relaxed);
            Some((left_out > 0).then_some(left_out))
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// An event as text: the message, then ` field=value` for each thing that belongs to it.
pub fn line(event: &Event<'_>) -> String {
    let mut text = style::Text::default();
    event.record(&mut text);
    text.line()
}

/// The throttle for lines on the fate of connections of either end. A user who asks for it wants
/// all, and busy servers have many; a flood of strangers is no more than this.
pub const fn of_connections() -> Throttle {
    Throttle::paced(1000, Duration::from_millis(10))
}

/// Writes a line of the level (`WARN`, `INFO`), as [`tracing::event!`] takes it, unless there were
/// too many from here: `burst N` may come at once, 8 where that is not said. Lines above `INFO` go
/// to the target [`REPORT`](crate::REPORT). `fate` in place of `burst` is for the fate of
/// connections: it goes to [`FATE`], and more may come.
#[macro_export]
#[doc(hidden)]
macro_rules! report {
    (@target INFO) => { module_path!() };
    (@target $level:ident) => { $crate::report::REPORT };
    (burst $burst:literal, $level:ident, $($line:tt)+) => {
        $crate::report!(@line $level, $crate::report!(@target $level),
            $crate::report::Throttle::new($burst), $($line)+)
    };
    (fate $level:ident, $($line:tt)+) => {
        $crate::report!(@line $level, $crate::report::FATE, $crate::report::of_connections(),
            $($line)+)
    };
    (@line $level:ident, $target:expr, $throttle:expr, $($line:tt)+) => {{
        use $crate::report::tracing;
        const TARGET: &str = $target;
        if tracing::enabled!(target: TARGET, tracing::Level::$level) {
            static THROTTLE: $crate::report::Throttle = $throttle;
            if let Some(left_out) = THROTTLE.admit() {
                tracing::event!(target: TARGET, tracing::Level::$level, left_out, $($line)+);
            }
        }
    }};
    ($level:ident, $($line:tt)+) => { $crate::report!(burst 8, $level, $($line)+) };
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_burst_passes_then_one_a_second() {
        let throttle = Throttle::new(3);
        let start = Duration::from_secs(100);
        for _ in 0..3 {
            assert_eq!(throttle.admit_at(start), Some(None));
        }
        for _ in 0..1_000_000 {
            assert_eq!(throttle.admit_at(start), None);
        }
        assert_eq!(throttle.admit_at(start + PERIOD / 2), None);
        assert_eq!(throttle.admit_at(start + PERIOD), Some(Some(1_000_001)));
        assert_eq!(throttle.admit_at(start + PERIOD), None);
        // After a pause there is a whole burst again, and no more.
        let later = start + 60 * PERIOD;
        assert_eq!(throttle.admit_at(later), Some(Some(1)));
        assert_eq!(throttle.admit_at(later), Some(None));
        assert_eq!(throttle.admit_at(later), Some(None));
        assert_eq!(throttle.admit_at(later), None);
    }

    /// Keeps what is written.
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::WARN
        }

        fn event(&self, event: &tracing::Event<'_>) {
            let line = format!("{}: {}", event.metadata().target(), line(event));
            self.0.lock().unwrap().push(line);
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_flood_is_a_few_lines_for_users() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::with_default(Lines(Arc::clone(&kept)), || {
            for number in 0..10_000 {
                crate::report!(INFO, number, "which is not asked for");
                crate::report!(burst 2, WARN, number, "a peer did something");
            }
        });
        let lines = kept.lock().unwrap();
        let first = "iwarp::report: a peer did something number=0";
        assert!(lines.len() >= 2 && lines.len() < 100, "{}", lines.len());
        assert_eq!(lines[0], first, "nothing was left out before it");
    }
}
