// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lines that the demo prints.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use console::style;
use indicatif::{ProgressBar, ProgressStyle};

use crate::demo::explained::Journal;
use crate::demo::explained::journal::What;

/// The direction in which bytes moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Tells what the client does while it does it: prints it, notes it for a story, or both.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    pub(crate) journal: Option<Journal>,
    /// Each operation has a line as soon as it is done.
    pub(crate) prints: bool,
}

impl Teller {
    /// An operation begins; `lead` says what it is.
    pub(crate) fn chapter(&self, title: &str, lead: &str) {
        self.note(|| What::Chapter { title: title.to_owned(), lead: lead.to_owned() });
    }

    /// Does something that is no part of the operation, for the reason that `why` says.
    pub(crate) fn aside(&self, why: &str) {
        self.note(|| What::Aside(why.to_owned()));
    }

    /// The operation goes on.
    pub(crate) fn back(&self) {
        self.note(|| What::Back);
    }

    /// Something was moved by an operation.
    pub(crate) fn moved(&self, operation: &str, way: Way, what: &str) {
        let (arrow, drawn) = match way {
            Way::ToServer => ("client -> server", "client → server"),
            Way::ToClient => ("client <- server", "client ← server"),
        };
        if self.prints {
            println!("  {:<16}{}  {what}", style(operation).cyan(), style(arrow).dim());
        }
        self.note(|| What::Outcome(format!("{drawn}: {what}")));
    }

    /// Prints a headline of lines that are printed one by one.
    pub(crate) fn headline(&self, text: &str) {
        if self.prints {
            println!("\n{}", style(text).bold());
        }
    }

    fn note(&self, what: impl FnOnce() -> What) {
        if let Some(journal) = &self.journal {
            journal.note(what());
        }
    }
}

/// Prints one of the processes.
pub(crate) fn process(role: &str, about: &str) {
    println!("  {:<16}{about}", style(role).cyan());
}

/// Prints this.
pub(crate) fn out(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.context("cannot write to standard output")
}

/// Prints a sentence by itself.
pub(crate) fn remark(text: &str) {
    println!("\n{text}");
}

/// Prints where the page is.
pub(crate) fn written(file: &Path) {
    println!("\nThe page is in {}.", file.display());
}

/// A bar for something that takes a while; shown on a terminal only.
pub(crate) fn progress(what: &str, time: Duration) -> ProgressBar {
    let bar = ProgressBar::new(time.as_millis() as u64);
    let template = "  {msg:<16}{bar:30}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
    bar.set_message(what.to_owned());
    bar
}

/// The speed of a transfer.
pub(crate) struct Speed {
    pub(crate) what: String,
    pub(crate) result: String,
    pub(crate) detail: String,
}

impl Speed {
    pub(crate) fn bandwidth(what: String, octets: u64, time: Duration, detail: String) -> Self {
        let per_second = octets as f64 / time.as_secs_f64();
        let result = format!("{:.2} GB/s ({:.1} Gbit/s)", per_second / 1e9, per_second * 8e-9);
        Self { what, result, detail }
    }
}

/// Prints a table of speeds.
pub(crate) fn speeds(speeds: &[Speed]) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for speed in speeds {
        table.add_row([&speed.what, &speed.result, &speed.detail]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for line in table.lines() {
        println!(" {}", line.trim_end());
    }
}

/// Prints how it went.
pub(crate) fn done(text: &str) {
    println!("\n{}", style(text).green().bold());
}
