// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one line that counts: fine, or the first thing that went wrong and why.

use serde::Serialize;

use crate::findings::{Finding, Severity};

/// The outcome of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It has no fault and no trouble.
    Fine,
    /// It worked, but something cost time.
    Troubled,
    /// Something went wrong.
    Wrong,
    /// The capture does not show enough to tell.
    Unknown,
}

/// The judgement on a connection.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// The kind of the finding that decided, if there is one.
    pub kind: Option<&'static str>,
    /// The line.
    pub text: String,
}

/// Findings that say that the capture does not show all.
const LACKS: [&str; 3] = ["capture-gap", "cut-headers", "one-direction"];

/// Judges by the findings, which are in the order of time. `blind`: no frame could be read.
pub(crate) fn of(findings: &[Finding], blind: bool) -> Verdict {
    let first = |severity: Severity| findings.iter().find(|one| one.severity == severity);
    if let Some(fault) = first(Severity::Fault) {
        return decided(Outcome::Wrong, fault, "went wrong: ");
    }
    if blind {
        let text = "cannot be told: no frame of this connection could be read".to_owned();
        return Verdict { outcome: Outcome::Unknown, kind: None, text };
    }
    if let Some(trouble) = first(Severity::Trouble) {
        return decided(Outcome::Troubled, trouble, "worked, with trouble: ");
    }
    let lacks = findings.iter().any(|finding| LACKS.contains(&finding.kind));
    let text = if lacks { "fine, as far as the capture shows" } else { "fine" };
    Verdict { outcome: Outcome::Fine, kind: None, text: text.to_owned() }
}

fn decided(outcome: Outcome, finding: &Finding, prefix: &str) -> Verdict {
    let text = format!("{prefix}{} (packet {})", finding.text, finding.packet);
    Verdict { outcome, kind: Some(finding.kind), text }
}
