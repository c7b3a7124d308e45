// SPDX-License-Identifier: MIT OR Apache-2.0

//! The look of a line of the log: for people, or one JSON object.

use std::fmt::{Arguments, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

use super::json;

/// The form of the lines that the drop-in libraries and the `iwarp` command write to standard
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object in each line: `time` (UTC), `pid`, `level`, `target`, `message`, and `fields`
    /// with what belongs to the message.
    Json,
}

/// Writes lines of that form. Each names the process and the time: programs that use this library
/// come in numbers, with one standard error.
impl LogFormat {
    /// An event as a line with its end.
    #[doc(hidden)]
    pub fn event(self, event: &Event<'_>) -> String {
        let metadata = event.metadata();
        self.line(*metadata.level(), metadata.target(), |visit| event.record(visit))
    }

    /// A message as a line with its end.
    #[doc(hidden)]
    pub fn say(self, level: Level, target: &str, message: Arguments<'_>) -> String {
        match self {
            Self::Text => {
                let mut line = head(level);
                add_visible(&mut line, &message.to_string());
                line.push('\n');
                line
            }
            Self::Json => json::message(&stamp(), level, target, message),
        }
    }

    fn line(self, level: Level, target: &str, record: impl FnOnce(&mut dyn Visit)) -> String {
        match self {
            Self::Text => {
                let mut text = Text::default();
                record(&mut text);
                let mut line = head(level);
                add_visible(&mut line, &text.line());
                line.push('\n');
                line
            }
            Self::Json => json::event(&stamp(), level, target, record),
        }
    }
}

fn head(level: Level) -> String {
    format!("iwarp[{}] {} {}: ", std::process::id(), stamp(), name(level))
}

/// Adds a text that may have come from a peer: it stays within its line, and moves no terminal.
fn add_visible(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            character if character.is_control() => line.extend(character.escape_default()),
            character => line.push(character),
        }
    }
}

/// An event as text: the message, then ` field=value` for each thing that belongs to it.
#[derive(Default)]
pub(super) struct Text {
    message: String,
    fields: String,
}

impl Text {
    pub(super) fn line(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to memory does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// A level as `IWARP_LOG` names it.
pub(super) const fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The time, in UTC.
fn stamp() -> String {
    written(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A time since 1970 as RFC 3339 writes it, to the millisecond.
fn written(since: Duration) -> String {
    let seconds = since.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day that so many days after the first of 1970 have in the Gregorian calendar.
const fn date(days: u64) -> (u64, u64, u64) {
    // Counted from the first of March in the year 0, so that a leap day ends its year, and in eras
    // of 400 years, which are all alike.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (of_month, shifted) = (day - (153 * month + 2) / 5 + 1, month >= 10);
    let year = era * 400 + year;
    if shifted { (year + 1, month - 9, of_month) } else { (year, month + 3, of_month) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339_does() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_210_096_007, "2024-02-29T12:34:56.007Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(written(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_line_names_its_process_and_stays_one() {
        let pid = std::process::id();
        let said = format_args!("a peer says \"x\"\n\u{1b}[2J");
        let line = LogFormat::Text.say(Level::WARN, "iwarp", said);
        assert!(line.ends_with("Z warn: a peer says \"x\"\\n\\u{1b}[2J\n"), "{line}");
        let line = LogFormat::Text.say(Level::INFO, "iwarp", format_args!("up"));
        let (head, rest) = line.split_at(format!("iwarp[{pid}] ").len());
        assert_eq!(head, format!("iwarp[{pid}] "));
        assert_eq!(rest.len(), "2026-01-01T00:00:00.000Z info: up\n".len(), "{rest}");
        assert!(rest.ends_with("Z info: up\n"), "{rest}");
    }
}
