// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines of the log as JSON (RFC 8259).

use std::fmt::{Arguments, Debug, Write as _};

use tracing::Level;
use tracing::field::{Field, Visit};

use super::style::name;

/// An event as an object and the end of its line.
pub(super) fn event(
    time: &str,
    level: Level,
    target: &str,
    record: impl FnOnce(&mut dyn Visit),
) -> String {
    let mut parts = Parts::default();
    record(&mut parts);
    object(time, level, target, &parts.message, &parts.fields)
}

/// As above, of a message without fields.
pub(super) fn message(time: &str, level: Level, target: &str, message: Arguments<'_>) -> String {
    object(time, level, target, &message.to_string(), "")
}

fn object(time: &str, level: Level, target: &str, message: &str, fields: &str) -> String {
    let mut line = String::from("{\"time\":");
    add_text(&mut line, time);
    // Writing to memory does not fail.
    let _ = write!(line, ",\"pid\":{},\"level\":\"{}\"", std::process::id(), name(level));
    line.push_str(",\"target\":");
    add_text(&mut line, target);
    line.push_str(",\"message\":");
    add_text(&mut line, message);
    if !fields.is_empty() {
        let _ = write!(line, ",\"fields\":{{{fields}}}");
    }
    line.push_str("}\n");
    line
}

/// Adds a string. JSON asks for escapes of quotation marks, backslashes and control characters;
/// U+007F to U+009F get them too, because terminals act on them, and so do the line ends of
/// Unicode.
pub(super) fn add_text(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            character if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') => {
                let _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            character => line.push(character),
        }
    }
    line.push('"');
}

#[derive(Default)]
struct Parts {
    message: String,
    /// Members of the object, with commas between.
    fields: String,
}

impl Parts {
    /// Begins a member, whose value is to follow.
    fn begin(&mut self, field: &Field) {
        if !self.fields.is_empty() {
            self.fields.push(',');
        }
        add_text(&mut self.fields, field.name());
        self.fields.push(':');
    }

    fn add(&mut self, field: &Field, value: Arguments<'_>) {
        self.begin(field);
        let _ = self.fields.write_fmt(value);
    }
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
        } else {
            self.begin(field);
            add_text(&mut self.fields, &format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no other numbers.
        if value.is_finite() {
            self.add(field, format_args!("{value:?}"));
        } else {
            self.record_debug(field, &value);
        }
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use serde_json::{Value, json};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::report::LogFormat;

    /// Keeps each event as a line of JSON.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(LogFormat::Json.event(event));
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// The line of the one event that `f` has.
    fn line_of(f: impl FnOnce()) -> String {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), f);
        let mut lines = lines.0.lock().unwrap();
        assert_eq!(lines.len(), 1);
        lines.pop().unwrap()
    }

    proptest! {
        /// A line with any content is one line and one object, and keeps the content.
        #[test]
        fn a_line_is_one_object_with_what_was_said(
            text in any::<String>(),
            name in "\\PC*|[\\x00-\\x20\\x7f-\\x9f\"\\\\\u{2028}]*",
            number in any::<u64>(),
            negative in any::<i64>(),
            real in any::<f64>(),
            yes in any::<bool>(),
        ) {
            let line = line_of(|| {
                tracing::info!(target: "t\"t", number, negative, real, yes, name, shown = %text, "{text}");
            });
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert!(line.ends_with("}\n"), "{line}");
            prop_assert!(!line.trim_end().contains(|c: char| c.is_control()));
            let value: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&value["message"], &json!(text));
            prop_assert_eq!(&value["level"], &json!("info"));
            prop_assert_eq!(&value["target"], &json!("t\"t"));
            prop_assert_eq!(&value["pid"], &json!(std::process::id()));
            let fields = &value["fields"];
            prop_assert_eq!(&fields["number"], &json!(number));
            prop_assert_eq!(&fields["negative"], &json!(negative));
            prop_assert_eq!(&fields["yes"], &json!(yes));
            prop_assert_eq!(&fields["name"], &json!(name));
            prop_assert_eq!(&fields["shown"], &json!(text));
            if real.is_finite() {
                let read = fields["real"].as_f64().unwrap();
                prop_assert!((read - real).abs() <= real.abs() * 1e-12);
            } else {
                prop_assert!(fields["real"].is_string());
            }
        }

        /// So it is with a message of the C libraries.
        #[test]
        fn a_message_is_one_object(text in any::<String>()) {
            let line = LogFormat::Json.say(Level::WARN, "iwarp", format_args!("{text}"));
            let value: Value = serde_json::from_str(&line).unwrap();
            prop_assert_eq!(&value["message"], &json!(text));
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert!(value["time"].as_str().unwrap().ends_with('Z'));
        }
    }
}
