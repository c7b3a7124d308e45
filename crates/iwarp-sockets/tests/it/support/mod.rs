// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ends in memory, and the wire between them.

mod end;
mod rng;
mod table;
mod wire;

use std::fs;
use std::path::Path;

pub(crate) use end::{End, config};
pub(crate) use rng::Rng;
pub(crate) use table::Octets;
pub(crate) use wire::{Packet, Pair};

/// The rows of a file of `tests/data`, without its head; quoted fields may have commas.
pub(crate) fn rows(file: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    let text = fs::read_to_string(path).unwrap();
    text.lines().skip(1).map(fields).collect()
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}
