//! Arrows between modules point down: the layers of a crate, and that none names one above it.
//!
//! The compiler does not care about the order of modules within a crate. So the sources are parsed
//! and every path in them is followed, through groups, `super::`, aliases and re-exports, to the
//! file that it ends in. Tests may name what they like.

mod graph;
mod source;

use std::fs;

use anyhow::{Result, bail};

use crate::shell;
use graph::Graph;

/// A crate and its layers, the lowest first. A module has the layer of the longest name here that
/// its path begins with; the root of the crate is above all of them.
struct Crate {
    name: &'static str,
    layers: &'static [&'static [&'static str]],
}

const CRATES: [Crate; 3] = [
    Crate { name: "iwarp-proto", layers: &[&["types"], &["mpa"], &["ddp"], &["rdmap"], &["qp"]] },
    Crate {
        name: "iwarp",
        layers: &[
            &["report"],
            &["engine"],
            &["startup"],
            &["rendezvous"],
            &["verbs"],
            &["cm"],
            &["session"],
        ],
    },
    Crate {
        name: "iwarp-capi",
        layers: &[&["log", "reserve"], &["guard"], &["abi"], &["verbs"], &["cm"]],
    },
];

/// Checks all of them.
pub(crate) fn check() -> Result<String> {
    let mut notes = Vec::new();
    let mut problems = Vec::new();
    for Crate { name, layers } in &CRATES {
        let load = |file: &str| fs::read_to_string(shell::root().join(file)).ok();
        let graph = Graph::new(source::read(&format!("crates/{name}/src/lib.rs"), &load)?);
        problems.extend(graph.arrows_up(layers));
        let order: Vec<String> = layers.iter().rev().map(|names| names.join("+")).collect();
        notes.push(format!("{name} is {}", order.join(" > ")));
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(notes.join("; "))
}

#[cfg(test)]
mod tests;
