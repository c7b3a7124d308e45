// SPDX-License-Identifier: MIT OR Apache-2.0

//! The result of a run: a sentence, a table, and a warning if it cannot be trusted.

use iwarp_kit::size;

use super::{CaseReport, Report, SubjectReport, Versus};
use crate::plan::Measure;
use crate::stats::median;

/// Half of the 95 % intervals span no more than this factor on a machine that is otherwise idle.
const USUAL_SPAN: f64 = 1.3;

/// The comparison of a line with raw TCP, as far as its 95 % interval tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Better,
    Worse,
    /// The interval holds 1.
    Open,
}

/// The ratios of the plainest lines: a row for each case, a column for each operation.
#[derive(Debug)]
pub(super) struct Overview {
    pub(super) operations: Vec<String>,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// In the order of the operations.
    pub(super) cells: Vec<Vec<Entry>>,
}

/// The ratio of one line.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) crc: bool,
    pub(super) ratio: f64,
    pub(super) verdict: Verdict,
}

/// Lines that are compared with raw TCP, and how they compare.
fn compared(case: &CaseReport) -> impl Iterator<Item = (&SubjectReport, &Versus, Verdict)> {
    let less = matches!(case.measure, Measure::Latency | Measure::RoundTrip);
    case.subjects.iter().filter_map(move |subject| {
        let versus = subject.versus.as_ref()?;
        let counts = subject.transport.is_rdma() && versus.name.starts_with("TCP");
        let verdict = match (versus.ratio.low > 1.0, versus.ratio.high < 1.0) {
            (false, false) => Verdict::Open,
            (above, _) if above == less => Verdict::Worse,
            _ => Verdict::Better,
        };
        counts.then_some((subject, versus, verdict))
    })
}

/// The run in a sentence, where anything was compared with raw TCP.
pub(super) fn sentence(report: &Report) -> Option<String> {
    let verdicts: Vec<Verdict> =
        report.cases.iter().flat_map(compared).map(|(.., verdict)| verdict).collect();
    let count = |wanted| verdicts.iter().filter(|&&verdict| verdict == wanted).count();
    let [better, worse, open] = [Verdict::Better, Verdict::Worse, Verdict::Open].map(count);
    (!verdicts.is_empty()).then(|| {
        format!(
            "Of {} comparisons with raw TCP, RDMA is better in {better} and worse in {worse}; in \
             {open} this run cannot tell.",
            verdicts.len()
        )
    })
}

impl Overview {
    /// `None` where no line of an operation is compared with raw TCP.
    pub(super) fn of(report: &Report) -> Option<Self> {
        let mut operations: Vec<String> = Vec::new();
        for (subject, ..) in report.cases.iter().flat_map(compared) {
            let operation = subject.name.split(',').next().unwrap_or_default();
            if !operation.contains(' ') && !operations.iter().any(|known| known == operation) {
                operations.push(operation.to_owned());
            }
        }
        let mut rows: Vec<Row> = Vec::new();
        for case in report.cases.iter().filter(|case| case.title.is_none()) {
            let cells: Vec<_> = operations.iter().map(|name| entries(case, name)).collect();
            let name = name(case);
            match rows.iter_mut().find(|row| row.name == name) {
                // Reads are measured in a case of their own.
                Some(row) => row.cells.iter_mut().zip(cells).for_each(|(all, own)| all.extend(own)),
                None => rows.push(Row { name, cells }),
            }
        }
        rows.retain(|row| row.cells.iter().any(|cell| !cell.is_empty()));
        (!rows.is_empty()).then_some(Self { operations, rows })
    }
}

fn entries(case: &CaseReport, operation: &str) -> Vec<Entry> {
    let entry = |name: String, crc: bool| {
        let (_, versus, verdict) = compared(case).find(|(subject, ..)| subject.name == name)?;
        Some(Entry { crc, ratio: versus.ratio.medians, verdict })
    };
    let both = [entry(operation.to_owned(), false), entry(format!("{operation}, CRC"), true)];
    both.into_iter().flatten().collect()
}

/// A case in few words.
fn name(case: &CaseReport) -> String {
    let what = match case.measure {
        Measure::Bandwidth => "Bandwidth",
        Measure::Latency => "Half round trip (less is better)",
        Measure::RoundTrip => "Whole round trip (less is better)",
        Measure::Rate => "Messages per second",
        Measure::Connect => "Connections per second",
    };
    format!("{what}, {}", size::show(case.size))
}

/// The warning where values varied more than they do on an idle machine.
pub(super) fn warning(report: &Report) -> Option<String> {
    let versus = report.cases.iter().flat_map(|case| &case.subjects);
    let ratios = versus.filter_map(|subject| subject.versus.as_ref().map(|versus| versus.ratio));
    let spans: Vec<f64> = ratios.map(|ratio| ratio.high / ratio.low).collect();
    if spans.is_empty() || median(&spans) <= USUAL_SPAN {
        return None;
    }
    let load = match report.run.load {
        load if load > report.run.cpus.len() as f64 / 2.0 => format!(
            " In the minute before, {load:.1} threads wanted a CPU on average, and there are {} CPUs.",
            report.run.cpus.len()
        ),
        _ => String::new(),
    };
    Some(format!(
        "The machine was busy, or the rounds were too few or too short: half of the 95 % intervals \
         span more than a factor of {:.2}.{load} Stop other programs, or run more --rounds.",
        median(&spans)
    ))
}

#[cfg(test)]
mod tests {
    use super::{Overview, Verdict, sentence, warning};
    use crate::report::tests::report;

    #[test]
    fn a_run_is_summed_up() {
        let report =
            report(&[("TCP", 1.0), ("Write", 1.5), ("Write, CRC", 0.5), ("Send", 1.0)], 0.1);
        let text = sentence(&report).expect("there is something to compare");
        assert_eq!(
            text,
            "Of 3 comparisons with raw TCP, RDMA is better in 1 and worse in 1; in 1 this run \
             cannot tell."
        );
        let overview = Overview::of(&report).expect("there are operations");
        assert_eq!(overview.operations, ["Write", "Send"]);
        let verdicts: Vec<Vec<Verdict>> = overview.rows[0]
            .cells
            .iter()
            .map(|cell| cell.iter().map(|entry| entry.verdict).collect())
            .collect();
        assert_eq!(verdicts, [vec![Verdict::Better, Verdict::Worse], vec![Verdict::Open]]);
    }

    #[test]
    fn wide_intervals_are_warned_of() {
        let lines = [("TCP", 1.0), ("Write", 1.5), ("Send", 1.2)];
        assert_eq!(warning(&report(&lines, 0.05)), None);
        let text = warning(&report(&lines, 0.4)).expect("a warning");
        assert!(text.contains("factor of 2.33") && !text.contains("minute"), "{text}");
        let mut busy = report(&lines, 0.4);
        busy.run.load = 7.0;
        assert!(warning(&busy).expect("a warning").contains("7.0 threads wanted a CPU"));
        assert_eq!(warning(&report(&[], 0.4)), None);
    }
}
