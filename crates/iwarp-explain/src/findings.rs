// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults, troubles and remarks of a connection, in the order in which they came.

use std::time::Duration;

use serde::Serialize;

use crate::report::nanos;

/// The weight of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Severity {
    /// Worth knowing; no harm.
    Remark,
    /// It took time, and the protocol got over it.
    Trouble,
    /// A rule was broken, a request refused, or the connection lost.
    Fault,
}

/// Something that a reader of the capture should know.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Its weight.
    pub severity: Severity,
    /// A name for its kind, such as `bad-crc`.
    pub kind: &'static str,
    /// Its time.
    #[serde(rename = "at_ns", serialize_with = "nanos")]
    pub at: Duration,
    /// The packet that showed it.
    pub packet: u64,
    /// The end from which the trouble came, as far as the capture tells: 0 or 1.
    pub end: Option<usize>,
    /// The text.
    pub text: String,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Findings of the kind that are left out because they repeat this one.
    #[serde(skip_serializing_if = "is_zero")]
    pub repeated: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A moment of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) packet: u64,
}

/// The most findings of one kind and end that are kept; more are counted.
const KEPT: usize = 5;

/// The findings of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
}

impl Findings {
    pub(crate) fn remark(
        &mut self,
        when: Moment,
        kind: &'static str,
        end: impl Into<Option<usize>>,
        text: impl Into<String>,
    ) {
        self.add(Severity::Remark, when, kind, end.into(), text.into(), None);
    }

    pub(crate) fn trouble(
        &mut self,
        when: Moment,
        kind: &'static str,
        end: impl Into<Option<usize>>,
        text: impl Into<String>,
        advice: &str,
    ) {
        self.add(Severity::Trouble, when, kind, end.into(), text.into(), Some(advice));
    }

    pub(crate) fn fault(
        &mut self,
        when: Moment,
        kind: &'static str,
        end: impl Into<Option<usize>>,
        text: impl Into<String>,
        advice: &str,
    ) {
        self.add(Severity::Fault, when, kind, end.into(), text.into(), Some(advice));
    }

    fn add(
        &mut self,
        severity: Severity,
        when: Moment,
        kind: &'static str,
        end: Option<usize>,
        text: String,
        advice: Option<&str>,
    ) {
        let alike = |finding: &&mut Finding| finding.kind == kind && finding.end == end;
        if self.all.iter_mut().filter(alike).count() >= KEPT {
            if let Some(last) = self.all.iter_mut().rfind(alike) {
                last.repeated += 1;
            }
            return;
        }
        let advice = advice.filter(|advice| !advice.is_empty()).map(str::to_owned);
        let Moment { at, packet } = when;
        self.all.push(Finding { severity, kind, at, packet, end, text, advice, repeated: 0 });
    }

    pub(crate) fn has(&self, kind: &str) -> bool {
        self.all.iter().any(|finding| finding.kind == kind)
    }

    /// True if one of the kind lies in a time.
    pub(crate) fn has_within(&self, kind: &str, from: Duration, to: Duration) -> bool {
        self.all.iter().any(|one| one.kind == kind && (from..=to).contains(&one.at))
    }

    /// All, in the order of time.
    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.all.sort_by_key(|finding| (finding.at, finding.packet));
        self.all
    }
}
