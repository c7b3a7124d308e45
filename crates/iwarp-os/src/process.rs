// SPDX-License-Identifier: MIT OR Apache-2.0

//! Other processes of this host.

use std::fs;

/// Whether a process is stopped, by a signal or a debugger. False where the system does not tell.
pub fn is_stopped(process: u32) -> bool {
    fs::read(format!("/proc/{process}/stat")).is_ok_and(|stat| state(&stat) == Some(true))
}

/// The state stands behind the name, which is in parentheses and may have any character.
fn state(stat: &[u8]) -> Option<bool> {
    let name_ends = stat.iter().rposition(|octet| *octet == b')')?;
    let state = stat.get(name_ends + 2)?;
    Some(matches!(state, b'T' | b't'))
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
}
