// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines on standard error, as many as `IWARP_LOG` asks for.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use iwarp::{Log, Options, report};
use iwarp_os::cancel::put_off;
use once_cell::race::OnceBox;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// How much the user wants to know. What makes no sense counts as nothing said: opening the device
/// complains about it.
fn wanted() -> Log {
    static LOG: OnceBox<Log> = OnceBox::new();
    // Not `from_env`, which has lines to say itself.
    let options = || Options::default().with_lookup(iwarp_os::environment::variable);
    let read = || options().map_or(Log::default(), |options| options.log);
    *LOG.get_or_init(|| Box::new(read()))
}

/// True where a line of this level would be written.
pub(crate) fn is_wanted(level: Log) -> bool {
    level <= wanted()
}

/// Writes a line, unless `IWARP_LOG` asks for less than `level`.
pub fn say(level: Log, line: Arguments<'_>) {
    if is_wanted(level) {
        // One call, so that lines of several threads do not mix. A closed standard error is fine.
        let line = format!("iwarp: {line}\n");
        let _ = put_off(|| io::stderr().write_all(line.as_bytes()));
    }
}

/// What a user is told once. No thread waits for another that is telling it, which a forked child
/// would do for ever.
#[derive(Debug)]
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Whether this is the first call.
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
    let _ = tracing::subscriber::set_global_default(Lines { wanted, say });
}

const fn level(of: Level) -> Log {
    match of {
        Level::ERROR => Log::Error,
        Level::WARN => Log::Warn,
        Level::INFO => Log::Info,
        _ => Log::Debug,
    }
}

/// Hands each event on as a line; spans are not kept.
struct Lines<W, S> {
    wanted: W,
    say: S,
}

impl<W, S> Subscriber for Lines<W, S>
where
    W: Fn() -> Log + 'static,
    S: Fn(Log, Arguments<'_>) + 'static,
{
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Events, and questions whether one would be written.
        !metadata.is_span() && level(*metadata.level()) <= (self.wanted)()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match (self.wanted)() {
            Log::Off => LevelFilter::OFF,
            Log::Error => LevelFilter::ERROR,
            Log::Warn => LevelFilter::WARN,
            Log::Info => LevelFilter::INFO,
            _ => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let level = level(*event.metadata().level());
        (self.say)(level, format_args!("{}", report::line(event)));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn an_event_is_a_line_with_its_message_first() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&kept);
        let say = move |level, line: Arguments<'_>| {
            lines.lock().unwrap().push((level, line.to_string()));
        };
        tracing::subscriber::with_default(Lines { wanted: || Log::Warn, say }, || {
            let peer = "192.0.2.1";
            tracing::warn!(%peer, qp = 7, "a peer cannot be reached");
            tracing::info!("nobody asked for this");
        });
        let line = "a peer cannot be reached peer=192.0.2.1 qp=7".to_owned();
        assert_eq!(*kept.lock().unwrap(), [(Log::Warn, line)]);
    }
}
