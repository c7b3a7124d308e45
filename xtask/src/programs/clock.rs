// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that measure something of the machine for themselves, and end with an error where it
//! does not let them. Such a run says nothing of the device, so it is repeated once. Only runs of
//! programs that are known to measure are repeated; a second refusal counts as any failure.

use std::path::Path;

/// A measurement that a program may refuse to go on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measurement {
    /// perftest's, of its clock: before each line of its table it times 200 loops, and ends with an
    /// error if other processes interrupt them too unevenly. That happens on a busy machine now and
    /// then, with any device.
    Clock,
}

impl Measurement {
    /// The one that a command's program makes: all programs of perftest have the clock's.
    pub(crate) fn of(command: &str) -> Option<Self> {
        let is_setting = |word: &&str| *word == "env" || word.contains('=');
        let program = command.split_whitespace().find(|word| !is_setting(word))?;
        program.starts_with("ib_").then_some(Self::Clock)
    }

    /// The thing that it measures.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock",
        }
    }

    /// True if one of these files says that it could not be made.
    pub(crate) fn is_refused<P: AsRef<Path>>(self, outputs: impl IntoIterator<Item = P>) -> bool {
        outputs.into_iter().any(|file| {
            let said = std::fs::read(file).unwrap_or_default();
            self.is_refused_in(&String::from_utf8_lossy(&said))
        })
    }

    fn is_refused_in(self, said: &str) -> bool {
        match self {
            Self::Clock => said.contains("Correlation coefficient r^2"),
        }
    }
}

/// Runs it, and once more if it makes a measurement and `is_refused` says that this could not be
/// made.
pub(crate) fn repeated<T>(
    measures: Option<Measurement>,
    mut run: impl FnMut() -> T,
    is_refused: impl Fn(&T, Measurement) -> bool,
) -> T {
    let first = run();
    match measures {
        Some(measurement) if is_refused(&first, measurement) => {
            println!("again   a program could not measure its {}", measurement.name());
            run()
        }
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_complaint_is_one() {
        let table = " 128        5                2.86               2.72   \t\t   0.022282";
        let end = "Correlation coefficient r^2: 0.886689 < 0.9\nCan't produce a report\n";
        assert!(Measurement::Clock.is_refused_in(&format!("{table}{end}")));
        assert!(!Measurement::Clock.is_refused_in(table));
        let other = "Failed to exchange data between server and clients";
        assert!(!Measurement::Clock.is_refused_in(other));
    }

    #[test]
    fn perftest_measures_its_clock() {
        let clock = Some(Measurement::Clock);
        assert_eq!(Measurement::of("ib_write_bw -n 200 SERVER"), clock);
        assert_eq!(Measurement::of("env A=b ib_send_lat"), clock);
        for command in
            ["", "ibv_rc_pingpong -g 0", "ucx_perftest SERVER", "rping -s ib_", "env A=ib_"]
        {
            assert_eq!(Measurement::of(command), None, "{command}");
        }
    }

    /// The number of runs after so many refusals.
    fn runs(measures: Option<Measurement>, refusals: usize) -> (usize, bool) {
        let mut runs = 0;
        let run = || {
            runs += 1;
            runs > refusals
        };
        let good = repeated(measures, run, |good, _| !good);
        (runs, good)
    }

    #[test]
    fn a_refused_measurement_is_repeated_exactly_once() {
        let clock = Some(Measurement::Clock);
        assert_eq!(runs(clock, 0), (1, true));
        assert_eq!(runs(clock, 1), (2, true));
        assert_eq!(runs(clock, 2), (2, false));
        assert_eq!(runs(None, 1), (1, false));
    }
}
