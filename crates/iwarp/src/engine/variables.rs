// SPDX-License-Identifier: MIT OR Apache-2.0

//! Variables of the environment that look like ours and are not: misspelt, most likely.

use std::sync::atomic::{AtomicBool, Ordering};

use iwarp_os::environment;

const PREFIX: &str = "IWARP_";

/// The `tracing` target of the warning.
const TARGET: &str = "iwarp::variables";

/// The variables that [`super::options::Options::from_env`] reads.
pub(super) const READ: [&str; 29] = [
    "IWARP_ALLOW_USERS",
    "IWARP_CAPTURE",
    "IWARP_CRC",
    "IWARP_DEVICES",
    "IWARP_EXTENSIONS",
    "IWARP_FAULTS",
    "IWARP_KEEPALIVE_S",
    "IWARP_LINGER_MS",
    "IWARP_LOCAL",
    "IWARP_LOCAL_CONGESTION",
    "IWARP_LOG",
    "IWARP_LOG_FORMAT",
    "IWARP_MARKERS",
    "IWARP_MAX_PENDING",
    "IWARP_MPA_FALLBACK",
    "IWARP_MPA_REVISION",
    "IWARP_MULPDU",
    "IWARP_PEER_TO_PEER",
    "IWARP_PERSONALITY",
    "IWARP_PORTS",
    "IWARP_SEND_MEMORY",
    "IWARP_SPEED",
    "IWARP_STARTUP_TIMEOUT_MS",
    "IWARP_STRICT",
    "IWARP_UDP_SEGMENT",
    "IWARP_USER_TIMEOUT_MS",
    "IWARP_WIRE",
    "IWARP_WITHOUT",
    "IWARP_WORKERS",
];

/// Variables that `iwarp run` sets for its own small libraries, and those that the C libraries and
/// rsockets read.
const OTHERS: [&str; 9] = [
    "IWARP_CHECK",
    "IWARP_LIBRARIES",
    "IWARP_RSOCKET_INLINE",
    "IWARP_RSOCKET_IOMAP",
    "IWARP_RSOCKET_RCVBUF",
    "IWARP_RSOCKET_RQSIZE",
    "IWARP_RSOCKET_SNDBUF",
    "IWARP_RSOCKET_SQSIZE",
    "IWARP_SYSFS",
];

/// Prefix of the variables of test programs.
const TESTS: &str = "IWARP_TEST_";

/// Warns of all unknown ones, once in the life of a process.
pub(super) fn warn_of_unknown() {
    static DONE: AtomicBool = AtomicBool::new(false);

    // Noted first: a subscriber may read the environment as well.
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    for name in environment::names(PREFIX) {
        if !is_known(&name) {
            tracing::warn!(target: TARGET, "{}", complaint(&name));
        }
    }
}

fn is_known(name: &str) -> bool {
    READ.contains(&name) || OTHERS.contains(&name) || name.starts_with(TESTS)
}

fn complaint(name: &str) -> String {
    match nearest(name) {
        Some(nearest) => {
            format!("{name} is not a variable of this library; did you mean {nearest}?")
        }
        None => format!("{name} is not a variable of this library and has no effect"),
    }
}

/// The known name that `name` may have been meant to be.
fn nearest(name: &str) -> Option<&'static str> {
    /// The likeness of two words of which one is misspelt, from 0 to 1.
    const ALIKE: f64 = 0.75;

    let word = name.strip_prefix(PREFIX)?.to_uppercase();
    let likeness =
        |known: &str| strsim::normalized_damerau_levenshtein(&word, &known[PREFIX.len()..]);
    let rated = READ.into_iter().map(|known| (likeness(known), known));
    let best = rated.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    // A word that another begins with was cut short, or has something behind it.
    let cut = || {
        let rest = |known: &&str| known[PREFIX.len()..].starts_with(&word);
        READ.into_iter().find(rest).filter(|_| word.len() >= 3)
    };
    if best.0 >= ALIKE { Some(best.1) } else { cut() }
}

#[cfg(test)]
mod tests {
    use super::{complaint, is_known, nearest};

    #[test]
    fn a_misspelt_name_is_answered_by_the_nearest() {
        for (name, meant) in [
            ("IWARP_CRCC", "IWARP_CRC"),
            ("IWARP_crc", "IWARP_CRC"),
            ("IWARP_PERSONALTY", "IWARP_PERSONALITY"),
            ("IWARP_DEVICE", "IWARP_DEVICES"),
            ("IWARP_MARKER", "IWARP_MARKERS"),
            ("IWARP_KEEPALIVE", "IWARP_KEEPALIVE_S"),
            ("IWARP_LINGER", "IWARP_LINGER_MS"),
            ("IWARP_USER_TIMEOUT", "IWARP_USER_TIMEOUT_MS"),
        ] {
            assert!(!is_known(name));
            assert_eq!(nearest(name), Some(meant), "{name}");
            assert!(complaint(name).ends_with(&format!("did you mean {meant}?")));
        }
    }

    #[test]
    fn a_name_that_is_like_none_is_answered_without_a_guess() {
        for name in ["IWARP_COLOUR", "IWARP_SERVICE_HOST", "IWARP_", "IWARP_X"] {
            assert_eq!(nearest(name), None, "{name}");
            assert!(complaint(name).starts_with(&format!("{name} is not a variable")));
        }
    }

    #[test]
    fn variables_of_the_small_libraries_and_of_tests_are_known() {
        for name in ["IWARP_SYSFS", "IWARP_LIBRARIES", "IWARP_TEST_ADDR", "IWARP_LOG"] {
            assert!(is_known(name), "{name}");
        }
    }
}
