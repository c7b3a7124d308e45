// SPDX-License-Identifier: MIT OR Apache-2.0

//! The name under which a process has its faults: the program's and, behind `~`, a number that its
//! arguments give. So client and server of one program draw apart, in each run alike.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use super::rules::mix;

#[derive(Debug)]
struct Process {
    program: String,
    name: String,
    arguments: Vec<OsString>,
}

fn this() -> &'static Process {
    static THIS: OnceLock<Process> = OnceLock::new();
    THIS.get_or_init(|| of(std::env::args_os().collect()))
}

fn of(mut words: Vec<OsString>) -> Process {
    let arguments = words.split_off(words.len().min(1));
    let first = words.pop().unwrap_or_default();
    let file = Path::new(&first).file_name().unwrap_or_default().to_string_lossy();
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || "-_.".contains(*letter);
    let mut program: String = file.chars().filter(fits).collect();
    if program.is_empty() {
        program.push_str("program");
    }
    let mut name = program.clone();
    if !arguments.is_empty() {
        let octets = arguments.iter().flat_map(|word| word.as_bytes().iter().chain(&[0]));
        name.push_str(&format!("~{:04x}", hash(octets) & 0xffff));
    }
    Process { program, name, arguments }
}

pub(super) fn hash<'a>(octets: impl IntoIterator<Item = &'a u8>) -> u64 {
    octets.into_iter().fold(0, |hash, octet| mix(hash ^ u64::from(*octet)))
}

/// The name, in letters and figures.
pub(super) fn name() -> &'static str {
    &this().name
}

/// True if the program has this name, or the process.
pub(super) fn is(name: &str) -> bool {
    let this = this();
    this.program == name || this.name == name
}

/// True if the process was started with this argument.
pub(super) fn has(argument: &str) -> bool {
    this().arguments.iter().any(|word| word == argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_program_are_told_apart_by_their_arguments() {
        let named = |words: &[&str]| of(words.iter().map(OsString::from).collect()).name;
        assert_eq!(named(&["/usr/bin/ib_send_lat"]), "ib_send_lat");
        assert_eq!(named(&["a b:c"]), "abc");
        assert_eq!(named(&[]), "program");
        let (server, client) = (named(&["rping", "-s"]), named(&["rping", "-c"]));
        assert_ne!(server, client);
        assert!(server.starts_with("rping~") && server.len() == 10, "{server}");
        assert_eq!(server, named(&["/opt/rping", "-s"]));
        assert_ne!(named(&["a", "bc"]), named(&["a", "b", "c"]));
    }
}
