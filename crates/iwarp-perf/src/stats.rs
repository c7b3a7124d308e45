// SPDX-License-Identifier: MIT OR Apache-2.0

//! Medians, their ratio, and how far it can be trusted.

use iwarp_kit::pattern;
use serde::Serialize;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 2000;

/// Median and quartiles of values measured round by round.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) median: f64,
    /// Lower quartile.
    pub(super) q1: f64,
    /// Upper quartile.
    pub(super) q3: f64,
}

impl Summary {
    /// Takes at least one value.
    pub(super) fn of(values: &[f64]) -> Self {
        let sorted = sorted(values);
        Self {
            median: quantile(&sorted, 0.5),
            q1: quantile(&sorted, 0.25),
            q3: quantile(&sorted, 0.75),
        }
    }
}

/// The ratio of values to those of a baseline that were taken in turn with them.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    /// Ratio of the medians.
    #[serde(rename = "ratio")]
    pub(super) medians: f64,
    /// Lower quartile of the ratios taken round by round.
    pub(super) q1: f64,
    /// Upper quartile of them.
    pub(super) q3: f64,
    /// The ratio of medians lies above this with 97.5 %: percentile bootstrap over rounds.
    pub(super) low: f64,
    /// And below this.
    pub(super) high: f64,
}

impl Ratio {
    /// Takes as many values as there are in `base`.
    pub(super) fn of(values: &[f64], base: &[f64]) -> Self {
        let each: Vec<f64> = values.iter().zip(base).map(|(value, base)| value / base).collect();
        let each = sorted(&each);
        let (low, high) = bootstrap(values, base);
        Self {
            medians: median(values) / median(base),
            q1: quantile(&each, 0.25),
            q3: quantile(&each, 0.75),
            low,
            high,
        }
    }
}

/// The middle one.
pub(super) fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The 95 % interval of the ratio of medians. Rounds are drawn as a whole, so that the effects of a
/// slow moment on both stay together; equal values give equal draws.
fn bootstrap(values: &[f64], base: &[f64]) -> (f64, f64) {
    let rounds = values.len().min(base.len());
    let mut random = Draw { drawn: 0 };
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let (drawn, drawn_base): (Vec<f64>, Vec<f64>) = (0..rounds)
                .map(|_| random.below(rounds))
                .map(|round| (values[round], base[round]))
                .unzip();
            median(&drawn) / median(&drawn_base)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    (quantile(&ratios, 0.025), quantile(&ratios, 0.975))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// A quantile of sorted values, interpolated between neighbours.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * part;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
}

/// Random enough to draw rounds, and reproducible.
struct Draw {
    drawn: u64,
}

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        let random = u64::from_le_bytes(pattern::word(bound as u64, self.drawn));
        ((u128::from(random) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(summary, Summary { median: 2.5, q1: 1.75, q3: 3.25 });
        assert_eq!(Summary::of(&[7.0]), Summary { median: 7.0, q1: 7.0, q3: 7.0 });
    }

    #[test]
    fn a_slow_moment_that_hits_both_leaves_the_ratio() {
        let base = [10.0, 11.0, 5.0, 10.0, 2.0, 10.5, 9.0];
        let values = base.map(|value| 1.5 * value);
        let ratio = Ratio::of(&values, &base);
        for number in [ratio.medians, ratio.q1, ratio.q3, ratio.low, ratio.high] {
            assert!((number - 1.5).abs() < 1e-12, "{ratio:?}");
        }
    }

    #[test]
    fn the_interval_holds_the_ratio_and_narrows_with_rounds() {
        let width = |rounds: usize| {
            let mut random = Draw { drawn: 0 };
            let mut noisy = || 100.0 + random.below(40) as f64;
            let base: Vec<f64> = (0..rounds).map(|_| noisy()).collect();
            let values: Vec<f64> = (0..rounds).map(|_| 2.0 * noisy()).collect();
            let ratio = Ratio::of(&values, &base);
            assert!(ratio.low <= ratio.medians && ratio.medians <= ratio.high, "{ratio:?}");
            assert!(ratio.low < 2.0 && 2.0 < ratio.high, "{ratio:?}");
            assert!(ratio.low < ratio.high);
            ratio.high - ratio.low
        };
        assert!(width(200) < width(12) / 2.0);
    }
}
