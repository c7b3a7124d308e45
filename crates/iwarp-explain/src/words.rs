// SPDX-License-Identifier: MIT OR Apache-2.0

//! Numbers in words.

use std::time::Duration;

/// A duration with three digits that count.
pub(crate) fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        10.0..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A count with its noun: `1 byte`, `2 bytes`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = match noun {
        _ if number == 1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{}{noun}{plural}", format_args!("{} ", grouped(number)))
}

/// A number of bytes.
pub(crate) fn bytes(number: u64) -> String {
    count(number, "byte")
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(time(Duration::from_micros(1500)), "1.50 ms");
        assert_eq!(time(Duration::from_nanos(42)), "42 ns");
        assert_eq!(time(Duration::from_millis(123_456)), "123 s");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(1_234_567), "1,234,567 bytes");
        assert_eq!(count(2, "loss"), "2 losses");
    }
}
