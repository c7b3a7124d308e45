// SPDX-License-Identifier: MIT OR Apache-2.0

//! The record of tests that failed without a cause in the change: a table in a file.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// The file, below the root of the workspace.
pub(crate) const FILE: &str = ".ci/unsteady.csv";

const COLUMNS: [&str; 5] = ["step", "test", "failed", "last", "known"];

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The step of `cargo xtask test`.
    pub(crate) step: String,
    /// Binary and test, or the line of a program.
    pub(crate) test: String,
    /// The number of failures since it was last mended.
    pub(crate) failed: u32,
    /// When it last failed, as year-month-day; empty if that is not known.
    pub(crate) last: String,
    /// The cause, as far as it is known.
    pub(crate) known: String,
}

/// All lines, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) rows: Vec<Row>,
}

impl Record {
    /// Without a file nothing was unsteady.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.to_text()?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut reader = csv::ReaderBuilder::new();
        let mut reader = reader.has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut record = Self::default();
        for (number, line) in reader.records().enumerate() {
            let line = line.context(FILE)?;
            let at = line.position().map_or(0, csv::Position::line);
            let cells: Vec<&str> = line.iter().collect();
            if number == 0 {
                ensure!(cells == COLUMNS, "{FILE}, line {at}: not the columns {COLUMNS:?}");
                continue;
            }
            let row = row(&cells).with_context(|| format!("{FILE}, line {at}"))?;
            if record.find(&row.step, &row.test).is_some() {
                bail!("{FILE}, line {at}: {} {} has a line before", row.step, row.test);
            }
            record.rows.push(row);
        }
        Ok(record)
    }

    fn to_text(&self) -> Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(COLUMNS)?;
        for row in &self.rows {
            let failed = row.failed.to_string();
            writer.write_record([&row.step, &row.test, &failed, &row.last, &row.known])?;
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }

    fn find(&mut self, step: &str, test: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.step == step && row.test == test)
    }

    /// The number of its failures in all steps.
    pub(crate) fn count(&self, test: &str) -> u32 {
        self.rows.iter().filter(|row| row.test == test).map(|row| row.failed).sum()
    }

    /// Adds a failure.
    pub(crate) fn add(&mut self, step: &str, test: &str, today: &str) {
        let (last, known) = (today.to_owned(), String::new());
        match self.find(step, test) {
            Some(row) => (row.failed, row.last) = (row.failed + 1, last),
            None => {
                let (step, test) = (step.to_owned(), test.to_owned());
                self.rows.push(Row { step, test, failed: 1, last, known });
            }
        }
    }
}

fn row(cells: &[&str]) -> Result<Row> {
    let [step, test, failed, last, known] = cells else {
        bail!("{} columns instead of {}", cells.len(), COLUMNS.len());
    };
    ensure!(!step.is_empty(), "no step");
    ensure!(!test.is_empty(), "no test");
    ensure!(last.is_empty() || is_date(last), "{last:?} is no date such as 2026-11-26");
    let failed = failed.parse().with_context(|| format!("{failed:?} is no number of failures"))?;
    let [step, test, last, known] = [step, test, last, known].map(|cell| (*cell).to_owned());
    Ok(Row { step, test, failed, last, known })
}

fn is_date(text: &str) -> bool {
    let digits = |part: &str, count| {
        part.len() == count && part.chars().all(|character| character.is_ascii_digit())
    };
    let parts: Vec<&str> = text.split('-').collect();
    matches!(parts[..], [year, month, day]
        if digits(year, 4) && digits(month, 2) && digits(day, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    const HEAD: &str = "step,test,failed,last,known\n";

    #[test]
    fn a_written_record_is_read_back() {
        let mut record = Record::default();
        record.add("asan", "iwarp::it cm::x", "2026-11-26");
        record.add("programs", "`fio --a,b`; \"server\"", "2026-11-26");
        record.add("asan", "iwarp::it cm::x", "2026-11-27");
        record.add("tsan", "iwarp::it cm::x", "2026-11-28");
        record.rows[1].known = "nothing,\nand in two lines".to_owned();
        let text = record.to_text().expect("a text");
        assert!(text.starts_with(HEAD));
        let found = Record::parse(&text).expect("a record");
        assert_eq!(found, record);
        assert_eq!((found.rows[0].failed, &*found.rows[0].last), (2, "2026-11-27"));
        assert_eq!(found.count("iwarp::it cm::x"), 3);
        assert_eq!(found.count("cm::x"), 0);
    }

    #[test]
    fn bad_lines_are_named() {
        let lines = [
            ("test,x,1,2026-11-26", "line 2: 4 columns instead of 5"),
            ("test,x,often,,", "line 2: \"often\" is no number of failures"),
            ("test,x,-1,,", "line 2: \"-1\" is no number of failures"),
            ("test,x,1,yesterday,", "line 2: \"yesterday\" is no date"),
            ("test,x,1,2026-11-1,", "line 2: \"2026-11-1\" is no date"),
            (",x,1,,", "line 2: no step"),
            ("test,,1,,", "line 2: no test"),
            ("test,x,1,,\ntest,x,1,,", "line 3: test x has a line before"),
            ("test,x,1,,\"a\nb\"\ntest,y,1", "line 4: 3 columns"),
        ];
        for (line, complaint) in lines {
            let error = Record::parse(&format!("{HEAD}{line}\n")).expect_err(line);
            let error = format!("{error:#}");
            assert!(error.starts_with(&format!("{FILE}, {complaint}")), "{error}");
        }
        let error = Record::parse("step,test\n").expect_err("no head").to_string();
        assert!(error.contains("line 1: not the columns"), "{error}");
    }

    #[test]
    fn the_projects_own_record_is_one() {
        let record = Record::read(&shell::root().join(FILE)).expect("a record");
        // It is written as it is read, so that runs change no other lines than those they add to.
        let text = fs::read_to_string(shell::root().join(FILE)).expect("a file");
        assert_eq!(record.to_text().expect("a text"), text);
        assert_eq!(Record::read(Path::new("/nonexistent/file")).expect("none"), <_>::default());
    }
}
