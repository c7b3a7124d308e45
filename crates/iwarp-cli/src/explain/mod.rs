// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp explain`: a capture in words. The crate `iwarp-explain` reads it.

mod page;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use iwarp_explain::{FileError, Report, Settings, text};
use iwarp_kit::lines;
use iwarp_kit::output::Output;

/// Explain a capture: the connections in it, and the first thing that went wrong in each.
///
/// The file may be pcap or pcapng, with iWARP or RoCE v2 of any stack or card: this project's,
/// Linux siw and rxe, network cards. For each connection it says which ends talked on which terms,
/// the operations by kind and size, their times, lost packets, refusals, stalls and the end that
/// was waited for, and Terminates and NAKs in words. Ports do not matter: iWARP is known by its
/// start-up frames or, where the capture begins later, by its frames. CRCs are verified where all
/// bytes were kept.
///
/// The exit status is 0 if the file was explained, also if it shows faults, and 2 if it cannot be
/// read.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Examples:
  iwarp explain trace.pcap                      each connection, its findings and a verdict
  iwarp explain trace.pcap --frames             also each frame, in one line
  iwarp explain trace.pcapng --html trace.html  also a page with a time line for each connection
  iwarp explain trace.pcap --json               the facts as JSON
  tcpdump -w - port 7174 | iwarp explain -      from standard input")]
pub(crate) struct Args {
    /// The capture, or - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    /// Also write a page with a time line for each connection
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
    /// Add one line for each frame
    #[arg(long)]
    frames: bool,
    /// Pauses of so many milliseconds are stalls if an end waited for the other
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    stall: u64,
}

/// The exit status if the file cannot be read.
const UNREADABLE: u8 = 2;

pub(crate) fn run(args: &Args) -> ExitCode {
    match explain(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iwarp explain: {}", lines::reason(&error));
            ExitCode::from(UNREADABLE)
        }
    }
}

fn explain(args: &Args) -> Result<()> {
    let page = args.html.as_deref().map(Output::open).transpose()?;
    let settings = Settings { frames: args.frames, stall: Duration::from_millis(args.stall) };
    let report = read(&args.file, &settings)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        lines::out(format_args!("{}", text::text(&report)));
    }
    if let Some(page) = page {
        page.write(&page::page(&report, &title(&args.file)))?;
    }
    Ok(())
}

fn read(file: &Path, settings: &Settings) -> Result<Report> {
    let explained = |input: &mut dyn Read| -> Result<Report, FileError> {
        iwarp_explain::explain(input, settings)
    };
    if file == Path::new("-") {
        return explained(&mut io::stdin().lock()).context("standard input");
    }
    let mut input = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    explained(&mut input).with_context(|| file.display().to_string())
}

fn title(file: &Path) -> String {
    match file.file_name() {
        Some(name) if file != Path::new("-") => format!("{}, explained", name.to_string_lossy()),
        _ => "A capture, explained".to_owned(),
    }
}
