// SPDX-License-Identifier: MIT OR Apache-2.0

//! The outcome of a case.

use std::time::Duration;

use serde::Serialize;

use crate::case::Role;
use crate::link::Record;

/// The verdict on a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// The peer did what the requirements say.
    Conforms,
    /// It did something else.
    Deviates(Deviation),
    /// The peer's behaviour could not be seen.
    NotSeen {
        /// The reason.
        why: String,
    },
}

/// An act of a peer that it should not have done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Deviation {
    /// The step, as it is written.
    pub step: String,
    /// Its line in its file.
    pub line: usize,
    /// The frame or end that should have come.
    pub expected: String,
    /// The frame or end that came.
    pub came: String,
    /// The bytes of it, in hexadecimal digits.
    pub bytes: String,
}

/// A case that was run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its name.
    pub case: String,
    /// The end that the tester was.
    pub role: Role,
    /// The verdict on it.
    pub verdict: Verdict,
    /// The time that it took.
    pub took: Duration,
    /// The record of the wire; `None` where there was no connection.
    pub record: Option<Record>,
}

/// The reason why a case ends before its last step.
#[derive(Clone, Debug)]
pub(crate) enum Stop {
    Deviates { expected: String, came: String, bytes: Vec<u8> },
    NotSeen(String),
}

impl Stop {
    pub(crate) fn deviates(
        expected: impl Into<String>,
        came: impl Into<String>,
        bytes: &[u8],
    ) -> Self {
        Self::Deviates { expected: expected.into(), came: came.into(), bytes: bytes.to_vec() }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::NotSeen(format!("the system: {error}"))
    }
}
