// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that give up because they could not measure their clock.

use std::path::Path;

/// A run is begun so often where the machine leaves a program no time to measure its clock.
pub(crate) const ATTEMPTS: u32 = 4;

/// Whether one of these files holds perftest's complaint about its clock. Before each line of its
/// table it times 200 loops, and ends with an error if other processes interrupt them too
/// unevenly: on a busy machine now and then, and whatever the device.
pub(crate) fn gave_up<P: AsRef<Path>>(outputs: impl IntoIterator<Item = P>) -> bool {
    outputs.into_iter().any(|file| {
        let said = std::fs::read(file).unwrap_or_default();
        complains(&String::from_utf8_lossy(&said))
    })
}

fn complains(said: &str) -> bool {
    said.contains("Correlation coefficient r^2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_complaint_is_one() {
        let table = " 128        5                2.86               2.72   \t\t   0.022282";
        let end = "Correlation coefficient r^2: 0.886689 < 0.9\nCan't produce a report\n";
        assert!(complains(&format!("{table}{end}")));
        assert!(!complains(table));
        assert!(!complains("Failed to exchange data between server and clients"));
    }
}
