//! What cargo says for machines: JSON, of which only a few strings are wanted.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// Runs a command of cargo's; the programs that it has built.
pub(crate) fn built(cargo: &mut Command) -> Result<Vec<PathBuf>> {
    let messages = shell::output(cargo.arg("--message-format=json-render-diagnostics"))?;
    Ok(messages.lines().filter_map(executable).collect())
}

/// What a message says was built.
pub(crate) fn executable(message: &str) -> Option<PathBuf> {
    strings_of("executable", message).next().map(PathBuf::from)
}

/// The strings that a name stands before in JSON. None of them has anything to escape.
pub(crate) fn strings_of<'a>(name: &str, json: &'a str) -> impl Iterator<Item = String> + use<'a> {
    let parts: Vec<&str> = json.split(&format!("\"{name}\":\"")).skip(1).collect();
    parts.into_iter().filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
}
