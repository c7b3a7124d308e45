// SPDX-License-Identifier: MIT OR Apache-2.0

//! The date that what is shipped carries, so that equal sources give equal files.

use anyhow::{Context, Result};

use crate::shell;

/// Seconds since 1970: `SOURCE_DATE_EPOCH` where that is set, else the time of the last commit, or
/// 0 where there is no history.
pub(super) fn epoch() -> Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH={text}: expected seconds"));
    }
    let mut git = shell::program("git");
    git.args(["log", "-1", "--format=%ct"]).stderr(std::process::Stdio::null());
    let text = git.output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    Ok(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
}

/// The date as Debian's changelogs write it, in UTC.
pub(super) fn in_words(epoch: u64) -> Result<String> {
    let mut date = shell::program("date");
    date.env("LC_ALL", "C").args(["--utc", "--rfc-email", "--date"]).arg(format!("@{epoch}"));
    Ok(shell::output(&mut date)?.trim().to_owned())
}
