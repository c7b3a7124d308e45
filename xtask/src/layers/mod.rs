// SPDX-License-Identifier: MIT OR Apache-2.0

//! Arrows between modules point down: the layers of a crate, and that none names one above it.
//!
//! The compiler does not care about the order of modules within a crate. So the sources are parsed
//! and every path in them is followed, through groups, `super::`, aliases and re-exports, to the
//! file that it ends in. Tests may name what they like.

mod graph;
mod source;
mod surface;

use std::fs;

use anyhow::{Result, bail};

use crate::shell;
use graph::Graph;

/// A crate and its layers, the lowest first, if it has any; names of modules that it does not have
/// do no harm. A module has the layer of the longest name here that its path begins with; the root
/// of the crate is above all of them.
///
/// Files of one layer may name each other in a circle, but not those of the layers in `linear`.
/// Modules of one group in `apart` do not name each other at all. The first list of `neutral` has
/// modules that name no crate of the second, nor module of another crate. The name "" stands for
/// all modules. The modules above `front` name those behind it only as it passes them on.
struct Crate {
    name: &'static str,
    layers: &'static [&'static [&'static str]],
    linear: &'static [&'static str],
    apart: &'static [&'static [&'static str]],
    neutral: (&'static [&'static str], &'static [&'static str]),
    front: Option<Front>,
}

/// A module, those above it, and those behind it.
struct Front {
    name: &'static str,
    above: &'static [&'static str],
    behind: &'static [&'static str],
}

const CRATES: [Crate; 6] = [
    Crate {
        name: "iwarp-proto",
        layers: &[&["types"], &["framing"], &["mpa", "record"], &["ddp"], &["rdmap"], &["qp"]],
        linear: &[],
        // The halves of a queue pair do with any framing.
        apart: &[
            &["mpa", "record"],
            &["mpa", "qp::transmit"],
            &["mpa", "qp::receive"],
            &["record", "qp::transmit"],
            &["record", "qp::receive"],
        ],
        neutral: (&[], &[]),
        front: None,
    },
    Crate {
        name: "iwarp-roce",
        layers: &[
            &["wire"],
            &["config", "core", "payload", "probe"],
            &["work"],
            &["rc", "uc", "ud", "cm"],
            &["qp"],
        ],
        linear: &[],
        apart: &[],
        neutral: (&[], &[]),
        front: None,
    },
    Crate {
        name: "iwarp-sockets",
        layers: &[&["wire"], &["stream", "datagram"]],
        linear: &[],
        apart: &[&["stream", "datagram"]],
        neutral: (&[], &[]),
        front: None,
    },
    Crate {
        name: "iwarp",
        layers: &[
            &["report", "flaw", "hash", "wire", "faults"],
            &["capture"],
            &["port"],
            &["engine"],
            &["connect"],
            &["wire::iwarp", "wire::roce"],
            &["wire::choice"],
            &["verbs"],
            &["drive"],
            &["cm"],
        ],
        // Movers name their endpoint, which names only the traits by which it calls them.
        linear: &["engine", "connect", "verbs", "drive", "cm"],
        apart: &[&["wire::iwarp", "wire::roce"]],
        neutral: (
            &["port", "engine", "connect", "verbs", "drive", "cm"],
            &["iwarp_proto", "iwarp_roce"],
        ),
        front: Some(Front {
            name: "wire::choice",
            above: &["verbs", "drive", "cm"],
            behind: &["wire::iwarp", "wire::roce"],
        }),
    },
    Crate {
        name: "iwarp-session",
        layers: &[],
        linear: &[""],
        apart: &[],
        // Programs do not get these either.
        neutral: (
            &[""],
            &[
                "iwarp::Outbox",
                "iwarp::flaw",
                "iwarp::port",
                "iwarp::report",
                "iwarp::wing",
                "iwarp::wire",
            ],
        ),
        front: None,
    },
    Crate {
        name: "iwarp-capi",
        layers: &[
            &["heap", "log", "reserve"],
            &["refuse"],
            &["calls", "check", "several", "trace"],
            &["guard"],
            &["abi"],
            &["verbs"],
            &["cm"],
            &["rsocket"],
        ],
        // Tables of functions are filled above the types of which they are.
        linear: &["verbs", "cm", "rsocket"],
        apart: &[],
        neutral: (&[], &[]),
        front: None,
    },
];

/// Checks all of them.
pub(crate) fn check() -> Result<String> {
    let mut notes = Vec::new();
    let mut problems = Vec::new();
    for Crate { name, layers, linear, apart, neutral, front } in &CRATES {
        let load = |file: &str| fs::read_to_string(shell::root().join(file)).ok();
        let graph = Graph::new(source::read(&format!("crates/{name}/src/lib.rs"), &load)?);
        if !layers.is_empty() {
            problems.extend(graph.arrows_up(layers));
        }
        for group in *apart {
            problems.extend(graph.arrows_between(group));
        }
        let (modules, crates) = neutral;
        problems.extend(graph.arrows_out(modules, crates));
        if let Some(Front { name, above, behind }) = front {
            problems.extend(graph.arrows_past(name, above, behind));
        }
        for layer in *linear {
            problems.extend(graph.circles_in(layer));
        }
        let order: Vec<String> = layers.iter().rev().map(|names| names.join("+")).collect();
        notes.push(match order.as_slice() {
            [] => format!("{name} has no circle"),
            order => format!("{name} is {}", order.join(" > ")),
        });
    }
    problems.extend(surface()?);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(notes.join("; "))
}

/// Public items of the library that name types which programs do not get.
fn surface() -> Result<Vec<String>> {
    let mut folders = ["iwarp", "iwarp-session"]
        .map(|name| shell::root().join("crates").join(name).join("src"))
        .to_vec();
    let mut leaks = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(shell::root()).unwrap_or(&path).display().to_string();
                leaks.extend(surface::leaks(&file, &fs::read_to_string(&path)?)?);
            }
        }
    }
    Ok(leaks)
}

#[cfg(test)]
mod tests;
