// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases that the tester brings along, and those of a folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::case::{Case, CaseError, parse};
use crate::requirements;

/// The files of cases, in the order in which they are run.
const FILES: &[(&str, &str)] = &[
    ("startup.case", include_str!("../cases/startup.case")),
    ("enhanced.case", include_str!("../cases/enhanced.case")),
    ("framing.case", include_str!("../cases/framing.case")),
    ("ddp.case", include_str!("../cases/ddp.case")),
    ("rdmap.case", include_str!("../cases/rdmap.case")),
    ("reads.case", include_str!("../cases/reads.case")),
    ("initiator.case", include_str!("../cases/initiator.case")),
    ("extensions.case", include_str!("../cases/extensions.case")),
    ("initiator-extensions.case", include_str!("../cases/initiator-extensions.case")),
    ("rdmac.case", include_str!("../cases/rdmac.case")),
    ("limits.case", include_str!("../cases/limits.case")),
    ("endings.case", include_str!("../cases/endings.case")),
];

/// The cases that come along.
///
/// # Errors
///
/// None, as its test shows.
pub fn embedded() -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    for (file, text) in FILES {
        cases.extend(parse(file, text)?);
    }
    check(&cases)?;
    Ok(cases)
}

/// The cases of all files `*.case` in a folder, in the order of their names.
///
/// # Errors
///
/// The fault of one of them; a folder that cannot be read.
pub fn folder(path: &Path) -> Result<Vec<Case>, CaseError> {
    let fail = |error: std::io::Error| CaseError {
        file: path.display().to_string(),
        line: 0,
        what: error.to_string(),
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        files.push(entry.map_err(fail)?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "case"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(fail)?;
        cases.extend(parse(&file.display().to_string(), &text)?);
    }
    check(&cases)?;
    Ok(cases)
}

/// Names are unique, and requirements exist.
fn check(cases: &[Case]) -> Result<(), CaseError> {
    let mut names = BTreeSet::new();
    for case in cases {
        let line = case.steps.first().map_or(0, |step| step.line);
        let fail = |what: String| CaseError { file: case.file.clone(), line, what };
        if !names.insert(&case.name) {
            return Err(fail(format!("there are two cases with the name {}", case.name)));
        }
        if let Some(id) = case.covers.iter().find(|id| requirements::find(id).is_none()) {
            return Err(fail(format!("the case {} names {id}, which does not exist", case.name)));
        }
    }
    Ok(())
}
