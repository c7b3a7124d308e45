// SPDX-License-Identifier: MIT OR Apache-2.0

//! Wishes to a running process, each of which it carries out or refuses with a sentence.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use iwarp_os::questions::{Answering, answering, ask};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(5);

/// The process with that number.
pub(super) fn find(pid: u32) -> Result<Answering> {
    let process = answering().into_iter().find(|one| one.process == pid);
    process.with_context(|| {
        format!(
            "process {pid} has no device of this library, or is another user's: iwarp ps lists \
             those that can be asked"
        )
    })
}

/// Returns once the process has done it.
pub(super) fn tell(process: Answering, wish: &str) -> Result<()> {
    let pid = process.process;
    let answer = ask(process, wish, PATIENCE).with_context(|| format!("process {pid}"))?;
    let answer: Value = serde_json::from_str(&answer)?;
    match answer["error"].as_str() {
        Some(error) => bail!("process {pid}: {}", error.replace(char::is_control, "?")),
        None => Ok(()),
    }
}
