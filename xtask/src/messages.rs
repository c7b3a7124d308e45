// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files that cargo builds, as its messages for machines say it: a JSON object a line.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use crate::shell;

/// Runs a command of cargo's; returns the programs that it has built.
pub(crate) fn built(cargo: &mut Command) -> Result<Vec<PathBuf>> {
    let messages = messages(cargo)?;
    Ok(messages.lines().filter_map(executable).collect())
}

/// Runs a command of cargo's; returns the Rust libraries that it has built.
pub(crate) fn libraries(cargo: &mut Command) -> Result<Vec<PathBuf>> {
    let messages = messages(cargo)?;
    Ok(messages.lines().flat_map(rlibs).collect())
}

/// The program that a message says was built.
pub(crate) fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message["executable"].as_str().map(PathBuf::from)
}

fn rlibs(message: &str) -> Vec<PathBuf> {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    let files = message["filenames"].as_array().into_iter().flatten();
    let files = files.filter_map(Value::as_str).map(PathBuf::from);
    files.filter(|file| file.extension() == Some(Path::new("rlib").as_os_str())).collect()
}

fn messages(cargo: &mut Command) -> Result<String> {
    shell::output(cargo.arg("--message-format=json-render-diagnostics"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_found_in_messages() {
        let message = r#"{"reason":"compiler-artifact","filenames":["/t/libq.rlib","/t/q.rmeta"]}"#;
        assert_eq!(rlibs(message), [PathBuf::from("/t/libq.rlib")]);
        assert!(rlibs(r#"{"reason":"build-finished","success":true}"#).is_empty());
        assert!(rlibs("no JSON").is_empty());
    }
}
