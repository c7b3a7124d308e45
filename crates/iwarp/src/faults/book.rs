// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts of the operations of a process, and of what the rules did to them.
//!
//! A fault that fires has a name: `PROGRAM:RULE:QP:LANE:NUMBER`, by which another run can be told
//! to have it and no others (`only=`). PROGRAM tells processes of other
//! arguments apart. The lane is a function of the C API, or `sent` or `received`
//! for completions, and so on; numbers count from 1, and QP is 0 where there is none.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use iwarp_os::AppendFile;

use super::process;
use super::rules::{Action, FaultRules, Operation, lot};

#[derive(Debug, Default)]
pub(super) struct Book {
    counts: Mutex<Counts>,
    /// The file of the record, once there was something for it; `None` in it where that failed.
    record: Mutex<Option<Option<AppendFile>>>,
}

#[derive(Debug, Default)]
struct Counts {
    began: Option<Instant>,
    /// Queue pairs made so far.
    qps: u32,
    /// The place among them of the one that has the number now.
    indices: HashMap<u32, u32>,
    /// Operations of a queue pair, by lane.
    operations: HashMap<(u32, String), u64>,
    /// Matched and fired, by rule, queue pair and lane.
    rules: HashMap<(usize, u32, String), (u64, u64)>,
}

impl Book {
    /// Other rules take the place of those that it is about.
    pub(super) fn begin_anew(&self) {
        let Self { counts, record } = self;
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = Counts::default();
        *record.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn created(&self, qp: u32) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.qps += 1;
        let index = counts.qps;
        counts.indices.insert(qp, index);
    }

    /// The action of the first rule that fires, and a number that follows from the operation alone.
    pub(super) fn decide(
        &self,
        rules: &FaultRules,
        operation: &Operation<'_>,
    ) -> Option<(Action, u64)> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let time = counts.began.get_or_insert_with(Instant::now).elapsed();
        let index = operation.qp.map_or(0, |qp| counts.indices.get(&qp).copied().unwrap_or(0));
        let lane = operation.verb;
        let number = counts.operations.entry((index, lane.to_owned())).or_insert(0);
        *number += 1;
        let number = *number;
        let seed = rules.seed ^ process::hash(process::name().as_bytes());
        let mut fired = None;
        for (at, rule) in rules.rules.iter().enumerate() {
            if !rule.is_about(operation, index, time) {
                continue;
            }
            let count = counts.rules.entry((at, index, lane.to_owned())).or_insert((0, 0));
            count.0 += 1;
            if fired.is_some() {
                continue;
            }
            let name = format!("{}:{}:{index}:{lane}:{number}", process::name(), at + 1);
            let fires = match &rules.only {
                Some(only) => only.contains(&name),
                None => rule.fires(count.0, count.1, lot(seed, at, index, lane, number)),
            };
            if !fires {
                continue;
            }
            count.1 += 1;
            fired = Some((rule.action, name));
        }
        drop(counts);
        let (action, name) = fired?;
        tracing::info!(target: crate::report::REPORT, "a fault on purpose: {name}");
        self.write(rules, &format!("fired {name}\n"));
        Some((action, lot(0, 0, index, lane, number)))
    }

    pub(super) fn write_out(&self, rules: &FaultRules) {
        let mut matched = vec![0; rules.rules.len()];
        {
            let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            for ((rule, ..), (count, _)) in &counts.rules {
                // A thread may just have counted for rules that are no more.
                matched.get_mut(*rule).into_iter().for_each(|matched| *matched += count);
            }
        }
        let lines = matched.iter().enumerate().filter(|(_, count)| **count > 0);
        let lines: String =
            lines.map(|(rule, count)| format!("matched {} {count}\n", rule + 1)).collect();
        self.write(rules, &lines);
    }

    /// Adds to the record, if there is one.
    fn write(&self, rules: &FaultRules, lines: &str) {
        let Some(path) = &rules.record else { return };
        let open = || match AppendFile::open(path, |_| Ok(Vec::new())) {
            Ok(file) => Some(file),
            Err(error) => {
                complain(&error);
                None
            }
        };
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let file = record.get_or_insert_with(open);
        if let Some(Err(error)) = file.as_ref().map(|file| file.add(lines.as_bytes())) {
            complain(&error);
        }
    }
}

fn complain(error: &io::Error) {
    tracing::warn!(target: crate::report::REPORT, "the record of faults (IWARP_FAULTS, record=): {error}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::rules::Kind;

    fn fired(book: &Book, rules: &FaultRules, verb: &str, qp: Option<u32>, calls: u64) -> Vec<u64> {
        let kind = qp.map(|_| Kind::Send);
        let operation = Operation { verb, qp, kind, size: Some(8), wr_id: None };
        (1..=calls).filter(|_| book.decide(rules, &operation).is_some()).collect()
    }

    fn rules(text: &str) -> FaultRules {
        text.parse().unwrap()
    }

    #[test]
    fn selectors_choose_the_operations() {
        let post = "errno=ENOMEM,verb=ibv_post_send";
        for (selectors, expected) in [
            ("nth=3", vec![3]),
            ("every=4", vec![4, 8]),
            ("every=2,times=2", vec![2, 4]),
            ("qp=2", vec![]),
            ("qpn=70", vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            ("size=9-", vec![]),
            ("op=read", vec![]),
            ("after=3600000", vec![]),
        ] {
            let book = Book::default();
            book.created(70);
            let rules = rules(&format!("{post},{selectors}"));
            assert_eq!(
                fired(&book, &rules, "ibv_post_send", Some(70), 10),
                expected,
                "{selectors}"
            );
            assert_eq!(fired(&book, &rules, "ibv_post_recv", Some(70), 10), [0; 0]);
        }
    }

    /// Operations of other queue pairs in between change nothing.
    #[test]
    fn lots_of_a_queue_pair_are_its_own() {
        let rules = rules("seed=5;errno=ENOMEM,verb=ibv_post_send,one-in=3");
        let alone = Book::default();
        alone.created(70);
        let expected = fired(&alone, &rules, "ibv_post_send", Some(70), 50);
        assert!((5..30).contains(&expected.len()), "{expected:?}");
        let beside = Book::default();
        beside.created(70);
        beside.created(71);
        let found = (1..=50).filter(|n| {
            fired(&beside, &rules, "ibv_post_send", Some(71), n % 3);
            fired(&beside, &rules, "ibv_post_send", Some(70), 1).len() == 1
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn faults_by_name_fire_alone() {
        let name = format!("{}:1:1:ibv_post_send:7", process::name());
        let rules = rules(&format!("errno=ENOMEM,verb=ibv_post_send,one-in=1;only={name}"));
        let book = Book::default();
        book.created(70);
        assert_eq!(fired(&book, &rules, "ibv_post_send", Some(70), 10), [7]);
    }
}
