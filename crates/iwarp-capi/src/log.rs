// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines on standard error, as many as `IWARP_LOG` asks for, or later `iwarp set`.
//!
//! (Considered: `tracing-subscriber`, which brings half a dozen crates into every program.)

use std::ffi::c_int;
use std::fmt::Arguments;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use iwarp::{Log, LogFormat, Options, follow_log_level};
use iwarp_os::cancel::put_off;
use once_cell::race::OnceBox;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Time that a call waits for something that the program itself has to do, before the user is told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The wishes of the user.
struct Wanted {
    /// The number of the level.
    log: AtomicU8,
    format: LogFormat,
}

impl Wanted {
    fn log(&self) -> Log {
        let number = self.log.load(Ordering::Relaxed);
        LEVELS.into_iter().find(|level| *level as u8 == number).unwrap_or_default()
    }
}

const LEVELS: [Log; 6] = [Log::Off, Log::Error, Log::Warn, Log::Info, Log::Debug, Log::Trace];

/// A value that makes no sense counts as nothing said: opening the device complains about it.
fn wanted() -> &'static Wanted {
    static WANTED: OnceBox<Wanted> = OnceBox::new();
    WANTED.get_or_init(|| {
        // Not `from_env`, which has lines to say itself. A mistake in another variable does not
        // concern the two that count.
        let read = |wanted: &str| {
            let lookup = |name: &'static str| {
                (name == wanted).then(|| iwarp_os::environment::variable(name)).flatten()
            };
            Options::default().with_lookup(lookup).unwrap_or_default()
        };
        let (log, format) = (read("IWARP_LOG").log, read("IWARP_LOG_FORMAT").log_format);
        Box::new(Wanted { log: AtomicU8::new(log as u8), format })
    })
}

/// True where a line of this level would be written.
pub(crate) fn is_wanted(level: Log) -> bool {
    level <= wanted().log()
}

/// Writes a line, unless `IWARP_LOG` asks for less than `level`.
pub fn say(level: Log, line: Arguments<'_>) {
    if is_wanted(level) {
        write(&wanted().format.say(level_of(level), TARGET, line));
    }
}

/// Writes lines with their ends. One call, so that lines of several threads do not mix. A closed
/// standard error is fine, and `errno` stays as it is. By the system call, as the standard
/// library's lock may be held by a thread that a forked child does not have, or by the code that a
/// signal handler has interrupted.
pub(crate) fn write(line: &str) {
    let errno = last_errno();
    put_off(|| {
        let mut left = line.as_bytes();
        while !left.is_empty() {
            // SAFETY: the bytes are there.
            let written = unsafe { libc::write(2, left.as_ptr().cast(), left.len()) };
            match usize::try_from(written) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(_) if last_errno() == libc::EINTR => {}
                Err(_) => break,
            }
        }
    });
    set_errno(errno);
}

/// The C library's `errno` of this thread.
pub(crate) fn last_errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// Sets the C library's `errno` of this thread.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the C library gives every thread its own, and it is only used by that thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The origin that is given for lines of the C libraries themselves.
const TARGET: &str = "iwarp::capi";

/// A message that a user is told once. No thread waits for another that is telling it, which a
/// forked child would do for ever.
#[derive(Debug)]
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// True on the first call.
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// As [`say`], the first time.
    pub(crate) fn say(&self, level: Log, line: Arguments<'_>) {
        if self.first() {
            say(level, line);
        }
    }
}

/// Has the library's own events written. Only for the drop-in libraries.
pub(crate) fn listen() {
    // Another subscriber can only be there in tests.
    if tracing::subscriber::set_global_default(Lines).is_ok() {
        follow_log_level(set_level);
    }
}

fn set_level(level: Log) {
    wanted().log.store(level as u8, Ordering::Relaxed);
    // Each place that writes an event keeps the answer that it was given before.
    tracing::callsite::rebuild_interest_cache();
}

const fn level(of: Level) -> Log {
    match of {
        Level::ERROR => Log::Error,
        Level::WARN => Log::Warn,
        Level::INFO => Log::Info,
        Level::DEBUG => Log::Debug,
        _ => Log::Trace,
    }
}

const fn level_of(log: Log) -> Level {
    match log {
        Log::Off | Log::Error => Level::ERROR,
        Log::Warn => Level::WARN,
        Log::Info => Level::INFO,
        Log::Debug => Level::DEBUG,
        _ => Level::TRACE,
    }
}

/// Writes each event as a line; spans are not kept.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Events, and questions whether one would be written.
        !metadata.is_span() && level(*metadata.level()) <= wanted().log()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match wanted().log() {
            Log::Off => LevelFilter::OFF,
            Log::Error => LevelFilter::ERROR,
            Log::Warn => LevelFilter::WARN,
            Log::Info => LevelFilter::INFO,
            Log::Debug => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &Event<'_>) {
        write(&wanted().format.event(event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
