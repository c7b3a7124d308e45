// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp demo`: two processes exchange data by every RDMA operation.

mod client;
pub(crate) mod explained;
mod messages;
mod report;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use iwarp::{Device, LocalPath, Options};
use iwarp_kit::child::Server;
use iwarp_kit::output::Output;
use iwarp_kit::size;

use crate::demo::explained::journal::Log;
use crate::demo::explained::story::Story;
use crate::demo::explained::{Journal, page, terminal};

use report::Teller;
pub(crate) use server::serve;

/// A time that no step of the demo takes unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(15);
/// Memory that the server lends for the measurements in shared memory at most.
const MEASURED: usize = 8 << 20;

/// Watch two processes do RDMA with each other on this machine.
///
/// Starts a server process, connects to it over loopback and goes through the operations: Send,
/// RDMA Write, RDMA Read, FetchAdd, CompareSwap, Immediate Data. Each line shows the data that
/// moved. Then it measures the speed over TCP, and that in memory which both processes share, as
/// programs of one host do unless IWARP_LOCAL=off. It measures nothing where it explains the frames
/// on the wire. Every result is verified; the exit status is 1 if one is wrong.
#[derive(clap::Args, Debug)]
#[command(after_long_help = "\
Examples:
  iwarp demo                         all of it, in a few seconds
  iwarp demo --explain               each verbs call, each frame on the wire, each completion
  iwarp demo --html demo.html        the same as a page with a time line
  iwarp demo --crc off               without CRC32c, to see its cost
  iwarp demo --markers               with MPA markers in both directions
  iwarp demo --size 1GiB             lend the peer more memory")]
pub(crate) struct Args {
    #[command(flatten)]
    settings: Settings,
    /// For each operation, show the verbs calls, the frames field by field, and the completions;
    /// measures nothing
    #[arg(long)]
    explain: bool,
    /// Write the same as a page with a time line; measures nothing
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The settings on which both processes have to agree.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// CRC32c on the stream [default: IWARP_CRC, else on]
    #[arg(long, value_enum)]
    crc: Option<Switch>,
    /// Use markers in both directions, by which a receiver could resynchronise
    #[arg(long)]
    markers: bool,
    /// Memory that the server lends to its peer
    #[arg(long, value_parser = parse_size, default_value = "64MiB")]
    size: usize,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    On,
    Off,
}

/// Arguments of the serving process.
#[derive(clap::Args, Debug)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    settings: Settings,
    /// Note what happens, and print it as JSON at the end.
    #[arg(long)]
    journal: bool,
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = size::parse(text)?;
    if (4096..=1 << 34).contains(&size) {
        Ok(size)
    } else {
        Err("expected 4KiB to 16GiB".to_owned())
    }
}

impl Settings {
    /// The command line of the serving process.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["demo-server".to_owned(), format!("--size={}", self.size)];
        if let Some(crc) = self.crc {
            let crc = if crc == Switch::On { "on" } else { "off" };
            arguments.push(format!("--crc={crc}"));
        }
        if self.markers {
            arguments.push("--markers".to_owned());
        }
        arguments
    }

    fn options(&self) -> Result<Options> {
        let mut options = Options::from_env()?;
        options.markers |= self.markers;
        if let Some(crc) = self.crc {
            options.crc = crc == Switch::On;
        }
        Ok(options)
    }

    /// A device whose connections within the host go that way.
    fn device(&self, journal: Option<&Journal>, local: LocalPath) -> Result<Device> {
        let options = self.options()?.local(local);
        Ok(match journal {
            Some(journal) => Device::on_platform(options, journal.platform())?,
            None => Device::with_options(options)?,
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    // Else it would be the server process that complains about the environment.
    args.settings.options()?;
    let page = args.html.as_deref().map(Output::open).transpose()?;
    let journal = (args.explain || page.is_some()).then(Journal::new);
    let mut arguments = args.settings.arguments();
    if journal.is_some() {
        arguments.push("--journal".to_owned());
    }
    let mut server = Server::start(&arguments)?;
    let teller = Teller { journal: journal.clone(), prints: !args.explain };
    let result = client::run(&args.settings, &server, &teller);
    let told = match journal.clone() {
        Some(journal) => tell(args, &mut server, &journal, page),
        None => Ok(()),
    };
    // An error of the demo itself comes before an error in reporting it.
    result?;
    told?;
    server.join()?;
    if journal.is_none() && std::env::var_os("IWARP_LOCAL").is_none_or(|way| way != "off") {
        let settings = Settings { size: args.settings.size.min(MEASURED), ..args.settings };
        let mut server = Server::start(&settings.arguments())?;
        if !client::measure_locally(&settings, &server, &teller)? {
            report::remark("The processes found no memory to share (IWARP_LOG=info says why).");
        }
        server.join()?;
    }
    report::done("Every result was verified.");
    Ok(())
}

/// Tells what happened, however it ended.
fn tell(args: &Args, server: &mut Server, journal: &Journal, page: Option<Output>) -> Result<()> {
    // It ends when the client's connection has, and says all at its end.
    let theirs = server.rest()?;
    let theirs = if theirs.is_empty() {
        Log { process: server.id(), ..Log::default() }
    } else {
        serde_json::from_str(&theirs).context("the server process sent no valid report")?
    };
    let story = Story::new(&journal.log(), &theirs)?;
    if args.explain {
        report::out(&terminal::tell(&story))?;
    }
    if let (Some(page), Some(file)) = (page, &args.html) {
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let about = format!("iwarp {}: iwarp {command}", env!("CARGO_PKG_VERSION"));
        page.write(&page::page(&story, "RDMA between two processes, frame by frame", &about))?;
        report::written(file);
    }
    Ok(())
}
