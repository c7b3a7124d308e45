// SPDX-License-Identifier: MIT OR Apache-2.0

//! The results of a run, as Markdown and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::matrix::{Cell, Matrix, Way};
use crate::shell;

/// The result of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// The second attempt passed, on another guest; why the first did not.
    Again(String),
    /// siw fails it without us too, or in a way that is known; how.
    Siw(String),
    Failed(String),
}

/// Of one cell.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) cell: Cell,
    pub(crate) verdict: Verdict,
    pub(crate) seconds: f64,
    /// The complaints of siw's kernel meanwhile.
    pub(crate) complaints: String,
}

impl Verdict {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Again(_) => "again",
            Self::Siw(_) => "siw",
            Self::Failed(_) => "FAILED",
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Passed => "",
            Self::Again(reason) | Self::Siw(reason) | Self::Failed(reason) => reason,
        }
    }
}

/// The number of each, for the last line.
pub(crate) fn counts(lines: &[Line]) -> String {
    let count = |word: &str| lines.iter().filter(|line| line.verdict.word() == word).count();
    let (passed, again) = (count("ok") + count("again"), count("again"));
    let mut text = format!("{passed} of {} cells passed", lines.len());
    if again > 0 {
        let _ = write!(text, " ({again} at the second attempt)");
    }
    for (word, meaning) in [("siw", "siw fails"), ("FAILED", "FAILED")] {
        if count(word) > 0 {
            let _ = write!(text, ", {} {meaning}", count(word));
        }
    }
    text
}

/// The versions of what was run: of the guest's kernel, of the programs, of this project.
pub(crate) fn versions(kernel: &str, kind: &str) -> BTreeMap<&'static str, String> {
    let of = |package: &str| {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat", "${Version}", package]);
        shell::output(&mut query).unwrap_or_else(|_| "unknown".to_owned())
    };
    let mut describe = shell::program("git");
    describe.args(["describe", "--always", "--dirty"]);
    let commit = shell::output(&mut describe).unwrap_or_default();
    BTreeMap::from([
        ("guest", kind.to_owned()),
        ("iwarp", format!("{} {}", env!("CARGO_PKG_VERSION"), commit.trim()).trim().to_owned()),
        ("linux", kernel.to_owned()),
        ("perftest", of("perftest")),
        ("rdma-core", of("rdmacm-utils")),
    ])
}

/// The lines that an earlier run wrote with the same versions, of cells that the matrix still has.
pub(crate) fn earlier(
    path: &Path,
    matrix: &Matrix,
    versions: &BTreeMap<&'static str, String>,
) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let Ok(document) = serde_json::from_str::<Value>(&text) else { return Vec::new() };
    if document["versions"] != json!(versions) {
        return Vec::new();
    }
    let line = |entry: &Value| -> Option<Line> {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let cell = matrix.cells.iter().find(|cell| matrix.name(**cell) == text("name"))?;
        let verdict = match &*text("result") {
            "ok" => Verdict::Passed,
            "again" => Verdict::Again(text("reason")),
            "siw" => Verdict::Siw(text("reason")),
            _ => Verdict::Failed(text("reason")),
        };
        let (seconds, complaints) = (entry["seconds"].as_f64()?, text("kernel_complaints"));
        Some(Line { cell: *cell, verdict, seconds, complaints })
    };
    document["cells"].as_array().into_iter().flatten().filter_map(line).collect()
}

pub(crate) fn write_json(
    path: &Path,
    matrix: &Matrix,
    lines: &[Line],
    versions: &BTreeMap<&'static str, String>,
) -> Result<()> {
    let cells: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "name": matrix.name(line.cell),
                "program": matrix.program(line.cell).name,
                "setting": matrix.setting(line.cell).name,
                "family": format!("IPv{}", line.cell.family),
                "way": line.cell.way.to_string(),
                "result": line.verdict.word(),
                "reason": line.verdict.reason(),
                "seconds": (line.seconds * 10.0).round() / 10.0,
                "kernel_complaints": line.complaints,
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&json!({ "versions": versions, "cells": cells }))?;
    fs::write(path, text + "\n").with_context(|| format!("{}", path.display()))
}

/// A row for each program and setting, a column for each family and way.
pub(crate) fn write_markdown(
    path: &Path,
    matrix: &Matrix,
    lines: &[Line],
    versions: &BTreeMap<&'static str, String>,
) -> Result<()> {
    let mut text = HEAD.to_owned();
    let _ = writeln!(
        text,
        "iwarp {}; Linux {} ({}); rdma-core {}, perftest {} at both ends. {}; the list has {}.\n",
        versions["iwarp"],
        versions["linux"],
        versions["guest"],
        versions["rdma-core"],
        versions["perftest"],
        counts(lines),
        matrix.cells.len(),
    );
    let columns =
        [('4', Way::WeServe), ('4', Way::WeConnect), ('6', Way::WeServe), ('6', Way::WeConnect)];
    text.push_str("| Program | Setting | IPv4, siw connects | IPv4, siw serves | IPv6, siw connects | IPv6, siw serves |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    let mut rows: Vec<(usize, usize)> = Vec::new();
    for line in lines {
        let row = (line.cell.program, line.cell.setting);
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows.sort_unstable();
    for (program, setting) in rows {
        let names = (&matrix.programs[program].name, &matrix.settings[setting].name);
        let _ = write!(text, "| {} | {} |", names.0, names.1);
        for (family, way) in columns {
            let here = |line: &&Line| line.cell == Cell { program, setting, family, way };
            let word = lines.iter().find(here).map_or("–", |line| line.verdict.word());
            let _ = write!(text, " {word} |");
        }
        text.push('\n');
    }
    let notes: Vec<&Line> = lines.iter().filter(|line| !line.verdict.reason().is_empty()).collect();
    if !notes.is_empty() {
        text.push_str(
            "\n## Cells that are not simply ok\n\n| Cell | Result | Reason |\n|---|---|---|\n",
        );
        for line in notes {
            let reason = line.verdict.reason().replace(['|', '\n'], " ");
            let (name, word) = (matrix.name(line.cell), line.verdict.word());
            let _ = writeln!(text, "| {name} | {word} | {reason} |");
        }
    }
    for line in lines.iter().filter(|line| !line.complaints.is_empty()) {
        let complaint = line.complaints.lines().next().unwrap_or_default();
        let _ = writeln!(
            text,
            "\nsiw's kernel complained in {}: `{complaint}`",
            matrix.name(line.cell)
        );
    }
    if !matrix.absent.is_empty() {
        text.push_str("\n## Not run\n\n");
        for (name, cause) in &matrix.absent {
            let _ = writeln!(text, "- `{name}`: {cause}");
        }
    }
    text.push_str("\n## Programs\n\n| Program | Client, here | Client on siw |\n|---|---|---|\n");
    for program in &matrix.programs {
        let _ = writeln!(
            text,
            "| {} | `{}` | `{}` |",
            program.name, program.client.here, program.client.there
        );
    }
    text.push_str("\n## Settings\n\n| Setting | |\n|---|---|\n");
    for setting in &matrix.settings {
        let _ = writeln!(text, "| {} | `{}` |", setting.name, setting.text);
    }
    fs::write(path, text).with_context(|| format!("{}", path.display()))
}

const HEAD: &str = "\
# The matrix against Linux siw

`cargo xtask interop --markdown interop/siw-matrix.md` writes this page, from what
[siw-matrix](siw-matrix) lists. One end is this project, `iwarp` itself or Debian's program on the
drop-in libraries; the other is the same Debian program on siw.

*ok*: both ends end with status 0 in time, and say nothing of wrong data; under `kill-ours`,
`kill-theirs` and `cut`, the end that is left ends in time, with an error. *again*: the first attempt
failed, and the second, on a fresh guest, is ok. *siw*: siw fails it with another siw too, or in a
way that is known; not counted as passed. *–*: not in the list, or not run.

";
