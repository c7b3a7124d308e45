// SPDX-License-Identifier: MIT OR Apache-2.0

//! Other processes of this host.

use std::fs;

/// Whether a process is stopped, by a signal or a debugger. False where the system does not tell.
pub fn is_stopped(process: u32) -> bool {
    fs::read(format!("/proc/{process}/stat")).is_ok_and(|stat| state(&stat) == Some(true))
}

/// When a process began, in ticks since the system did; the lower half of the number. `None` where
/// there is none that still runs, or the system does not tell.
pub fn started(process: u32) -> Option<u32> {
    start(&fs::read(format!("/proc/{process}/stat")).ok()?)
}

/// The state stands behind the name, which is in parentheses and may have any character.
fn state(stat: &[u8]) -> Option<bool> {
    Some(matches!(behind_name(stat)?.first()?, b'T' | b't'))
}

/// The 20th word from the state on. What has ended and is not waited for yet has one, too.
fn start(stat: &[u8]) -> Option<u32> {
    let rest = behind_name(stat).filter(|rest| !rest.starts_with(b"Z"))?;
    let word = rest.split(|octet| *octet == b' ').nth(19)?;
    let number: u64 = std::str::from_utf8(word).ok()?.parse().ok()?;
    Some(number as u32)
}

fn behind_name(stat: &[u8]) -> Option<&[u8]> {
    let name_ends = stat.iter().rposition(|octet| *octet == b')')?;
    stat.get(name_ends + 2..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_stands_behind_the_name() {
        let lines: [(&[u8], _); 5] = [
            (b"7 (sh) T 1 7", Some(true)),
            (b"7 (sh) t 1 7", Some(true)),
            (b"7 (a) T (b) S 1", Some(false)),
            (b"7 (sh)", None),
            (b"", None),
        ];
        for (line, expected) in lines {
            assert_eq!(state(line), expected);
        }
        assert!(!is_stopped(std::process::id()) && !is_stopped(u32::MAX));
    }

    #[test]
    fn the_start_is_the_twentieth_word() {
        let line = |start: &str| format!("7 (a b) c) S {}{start} 0 0", "1 ".repeat(18));
        assert_eq!(start(line("4711").as_bytes()), Some(4711));
        assert_eq!(start(line("4294967297").as_bytes()), Some(1));
        assert_eq!((start(line("-").as_bytes()), start(b"7 (sh) S 1")), (None, None));
        assert_eq!(start(line("4711").replace(") S", ") Z").as_bytes()), None);
        assert!(started(std::process::id()).is_some() && started(u32::MAX).is_none());
    }
}
