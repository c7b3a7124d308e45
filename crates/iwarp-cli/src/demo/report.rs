//! The lines that the demo prints.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use console::style;
use indicatif::{ProgressBar, ProgressStyle};

/// The direction in which octets moved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Prints a headline.
pub(crate) fn headline(text: &str) {
    println!("\n{}", style(text).bold());
}

/// Prints one of the processes.
pub(crate) fn process(role: &str, about: &str) {
    println!("  {:<16}{about}", style(role).cyan());
}

/// Prints what an operation moved.
pub(crate) fn moved(operation: &str, way: Way, what: &str) {
    let arrow = match way {
        Way::ToServer => "client -> server",
        Way::ToClient => "client <- server",
    };
    println!("  {:<16}{}  {what}", style(operation).cyan(), style(arrow).dim());
}

/// A bar for something that takes a while; shown on a terminal only.
pub(crate) fn progress(what: &str, time: Duration) -> ProgressBar {
    let bar = ProgressBar::new(time.as_millis() as u64);
    let template = "  {msg:<16}{bar:30}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
    bar.set_message(what.to_owned());
    bar
}

/// How fast something moved.
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
