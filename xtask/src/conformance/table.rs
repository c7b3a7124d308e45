// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two tables of `conformance/`.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Status;

/// A row of `requirements.csv`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Requirement {
    /// Such as `MPA-5044-4.2-01`.
    pub(super) id: String,
    /// The RFC's number, or a name.
    pub(super) document: String,
    /// `MUST`, `MUST NOT`, `SHOULD`, `SHOULD NOT`, `MAY`; `DEF` for a definition without a
    /// keyword, `low` for a keyword in lower case.
    pub(super) level: String,
    /// The requirement, in short.
    pub(super) text: String,
}

impl Requirement {
    /// True if it needs a test, or a reason why there is none.
    pub(super) fn is_binding(&self) -> bool {
        matches!(self.level.as_str(), "MUST" | "MUST NOT")
    }
}

/// A row of `exceptions.csv`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Exception {
    /// An id, or the beginning of several followed by `*`.
    pub(super) pattern: String,
    /// The reason why there is no test; `Not yet:` in front if there will be one.
    pub(super) reason: String,
}

impl Exception {
    /// The state of a requirement to which it applies.
    pub(super) fn status(&self) -> Status {
        match self.reason.strip_prefix("Not yet:") {
            Some(reason) => Status::NotYet(reason.trim().to_owned()),
            None => Status::Reasoned(self.reason.clone()),
        }
    }

    /// True if it is about this requirement.
    pub(super) fn applies_to(&self, id: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(prefix) => id.starts_with(prefix),
            None => id == self.pattern,
        }
    }
}

/// Reads `id,doc,section,level,requirement,test`.
pub(super) fn requirements(file: &Path) -> Result<Vec<Requirement>> {
    let mut rows: Vec<Requirement> = Vec::new();
    for [id, document, _section, level, text, _test] in read(file)? {
        ensure!(rows.iter().all(|row| row.id != id), "{}: {id} twice", file.display());
        rows.push(Requirement { id, document, level, text });
    }
    Ok(rows)
}

/// Reads `id,reason`.
pub(super) fn exceptions(file: &Path) -> Result<Vec<Exception>> {
    let row = |[pattern, reason]: [String; 2]| Exception { pattern, reason };
    Ok(read(file)?.into_iter().map(row).collect())
}

/// The text of `exceptions.csv` without the lines of these ids. A line is a row.
pub(super) fn without(text: &str, is_covered: impl Fn(&str) -> bool) -> String {
    let stays = |line: &&str| line.split_once(',').is_none_or(|(id, _)| !is_covered(id));
    text.lines().filter(stays).flat_map(|line| [line, "\n"]).collect()
}

fn read<const N: usize>(file: &Path) -> Result<Vec<[String; N]>> {
    let mut reader = csv::Reader::from_path(file).with_context(|| format!("{}", file.display()))?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.with_context(|| format!("{}", file.display()))?;
        let fields: Vec<String> = record.iter().map(|field| field.trim().to_owned()).collect();
        let row = fields.try_into().ok();
        rows.push(row.with_context(|| format!("{}: not {N} columns", file.display()))?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn lines_of_covered_requirements_go() {
        let text = "id,reason\nA-1,\"because, and so\"\nA-2,never\nB-*,any\n";
        let left = without(text, |id| ["A-2", "B-1"].contains(&id));
        assert_eq!(left, "id,reason\nA-1,\"because, and so\"\nB-*,any\n");
        assert_eq!(without(text, |_| false), text);
    }
}
