// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows that failed beside others and may pass by themselves.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::unsteady;

/// A row that is not as it should be.
#[derive(Debug)]
pub(super) struct Problem<J> {
    /// The row's line, for the record.
    pub(super) line: String,
    /// The message about it.
    pub(super) text: String,
    /// The job to do once more, if it failed.
    pub(super) job: Option<J>,
}

/// Forgives a row that passes when the function runs it again, or says why not.
pub(super) fn record(line: &str, again: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let step = match unsteady::step() {
        "" => "programs",
        step => step,
    };
    unsteady::forgive(step, &[line], |_| again())
}

/// Runs those that failed once more, one after the other, if they are few; returns all results, and
/// what is wrong now. Nothing else may run by then.
pub(super) fn once_more<J, K: Ord, V>(
    (mut values, problems): (BTreeMap<K, V>, Vec<Problem<J>>),
    forgive: impl Fn(&str, &mut dyn FnMut() -> Result<()>) -> Result<()>,
    mut attempt: impl FnMut(J) -> (K, V, Option<Problem<J>>),
) -> (BTreeMap<K, V>, Vec<String>) {
    let few = problems.iter().filter(|problem| problem.job.is_some()).count() <= unsteady::MOST;
    let mut wrong = Vec::new();
    for Problem { line, text, job } in problems {
        let Some(job) = job.filter(|_| few) else {
            wrong.push(text);
            continue;
        };
        let mut job = Some(job);
        let forgiven = forgive(&line, &mut || {
            let Some(job) = job.take() else { bail!("it ran again") };
            let (key, value, problem) = attempt(job);
            values.insert(key, value);
            match problem {
                None => Ok(()),
                Some(_) => bail!("by itself, too"),
            }
        });
        if let Err(error) = forgiven {
            wrong.push(format!("{text}: {error:#}"));
        }
    }
    (values, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Results = (BTreeMap<u32, bool>, Vec<Problem<u32>>);

    fn problem(job: u32) -> Problem<u32> {
        Problem { line: format!("row {job}"), text: format!("{job} fails"), job: Some(job) }
    }

    fn failed(jobs: &[u32]) -> Results {
        (
            jobs.iter().map(|job| (*job, false)).collect(),
            jobs.iter().copied().map(problem).collect(),
        )
    }

    /// The rows with even numbers pass the second time.
    fn even(job: u32) -> (u32, bool, Option<Problem<u32>>) {
        let good = job.is_multiple_of(2);
        (job, good, (!good).then(|| problem(job)))
    }

    fn always(_: &str, again: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        again()
    }

    #[test]
    fn a_row_that_passes_by_itself_is_forgiven() {
        let (values, wrong) = once_more(failed(&[1, 2, 4]), always, even);
        assert_eq!(values, [(1, false), (2, true), (4, true)].into());
        assert_eq!(wrong, ["1 fails: by itself, too"]);
    }

    #[test]
    fn many_rows_have_a_cause() {
        let (values, wrong) = once_more(failed(&[2, 4, 6, 8]), always, even);
        assert!(values.values().all(|good| !good));
        assert_eq!(wrong.len(), 4);
    }

    #[test]
    fn the_record_may_forgive_nothing() {
        let never = |line: &str, _: &mut dyn FnMut() -> Result<()>| bail!("{line} is recorded");
        let (values, wrong) = once_more(failed(&[2]), never, even);
        assert_eq!((values[&2], wrong), (false, vec!["2 fails: row 2 is recorded".to_owned()]));
    }

    #[test]
    fn jobs_that_did_not_fail_are_not_run_again() {
        let note = Problem { job: None, ..problem(2) };
        let (values, wrong) =
            once_more(([(2, true)].into(), vec![note]), always, |_| unreachable!("it ran again"));
        assert_eq!((values[&2], wrong), (true, vec!["2 fails".to_owned()]));
    }
}
