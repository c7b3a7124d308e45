// SPDX-License-Identifier: MIT OR Apache-2.0

//! The `iwarp` command: see, try and test RDMA over plain TCP.

// `println!` and `eprintln!` are its own.
#[macro_use]
extern crate iwarp_kit;

mod completions;
mod conform;
mod demo;
mod descriptors;
mod devinfo;
mod explain;
mod live;
mod manual;
mod rping;
#[cfg_attr(
    not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")),
    path = "run/none.rs"
)]
mod run;
mod torture;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use iwarp::LogFormat;
use iwarp::report::tracing::{Event, Subscriber};
use iwarp_kit::lines;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// RDMA over plain TCP, without an RDMA device.
///
/// The iWARP protocol suite (MPA, DDP, RDMAP: RFC 5044, 5041, 5040, 6581, 7306) in user space. No
/// kernel module, no root. On the wire it is iWARP to the letter, so the other end may be this
/// command, Linux siw, or an iWARP network card.
#[derive(Parser)]
#[command(name = "iwarp", version, after_long_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const ENVIRONMENT: &str = "\
Start here:
  iwarp demo                         two processes exchange data by every RDMA operation
  iwarp devinfo -v                   the device as an RDMA program sees it
  iwarp perf                         speed, compared with raw TCP
  iwarp run ib_write_bw              run an unmodified RDMA program; see iwarp run --help
  iwarp explain trace.pcap           a capture in words, and the first thing that went wrong

Environment (all commands):
  IWARP_CRC=on|off                   CRC32c on the stream (on; off only if both ends switch it off)
  IWARP_MARKERS=on|off               ask the peer for MPA markers (off)
  IWARP_MPA_REVISION=1|2             revision of the requests this end makes (2)
  IWARP_PEER_TO_PEER=off|write|read|send|any
                                     the peer-to-peer start-up of RFC 6581 (off)
  IWARP_LOG=info|debug|iwarp=trace   messages on standard error (warnings)
  IWARP_LOG_FORMAT=text|json         their form (text)

docs/configuration.md lists all variables. A misspelt one is reported, with the nearest name.";

#[derive(Subcommand)]
enum Command {
    Capture(live::capture::Args),
    Conform(Box<conform::Args>),
    Demo(demo::Args),
    Devinfo(devinfo::Args),
    Explain(explain::Args),
    Metrics(live::metrics::Args),
    Perf(Box<iwarp_perf::Args>),
    Ps(live::ps::Args),
    Resource(live::resource::Args),
    Rping(rping::Args),
    Run(run::Args),
    Set(live::set::Args),
    Statistic(live::statistic::Args),
    Top(live::top::Args),
    Torture(torture::Args),
    Why(live::why::Args),
    Completions(manual::CompletionArgs),
    /// Write manual pages, for packages.
    #[command(hide = true)]
    ManPages(manual::PageArgs),
    /// The serving process of `iwarp demo`.
    #[command(hide = true)]
    DemoServer(demo::ServerArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(is_child(&cli.command));
    let (name, result) = match cli.command {
        // The exit status says whether the peer deviates.
        Command::Conform(args) => return conform::run(&args),
        Command::Demo(args) => ("demo", demo::run(&args)),
        Command::DemoServer(args) => ("demo, server", demo::serve(&args)),
        Command::Completions(args) => ("completions", manual::complete(&args)),
        Command::ManPages(args) => ("man-pages", manual::write_pages(&args)),
        // The exit status says whether the file could be read.
        Command::Explain(args) => return explain::run(&args),
        Command::Devinfo(args) => ("devinfo", devinfo::run(&args)),
        Command::Perf(args) => ("perf", iwarp_perf::run(&args)),
        Command::Capture(args) => ("capture", live::capture::run(&args)),
        Command::Metrics(args) => ("metrics", live::metrics::run(&args)),
        Command::Ps(args) => ("ps", live::ps::run(&args)),
        Command::Resource(args) => ("resource", live::resource::run(&args)),
        Command::Rping(args) => ("rping", rping::run(&args)),
        Command::Set(args) => ("set", live::set::run(&args)),
        Command::Statistic(args) => ("statistic", live::statistic::run(&args)),
        Command::Top(args) => ("top", live::top::run(&args)),
        // The exit status says whether something waits.
        Command::Why(args) => match live::why::run(&args) {
            Ok(waits) => return ExitCode::from(if waits { 0 } else { live::why::NOTHING }),
            Err(error) => ("why", Err(error)),
        },
        // The program's exit status, or one that says why it did not start.
        Command::Run(args) => return run::run(&args),
        // The exit status says whether the command has failed.
        Command::Torture(args) => return torture::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iwarp {name}: {}", lines::reason(&error));
            ExitCode::FAILURE
        }
    }
}

/// True if another process of this command started this one, with its environment.
fn is_child(command: &Command) -> bool {
    match command {
        Command::DemoServer(_) => true,
        Command::Perf(args) => args.is_child(),
        _ => false,
    }
}

/// Logs at the levels in `IWARP_LOG`; warnings if it is not set. A child does not repeat complaints
/// about the environment.
fn log_to_stderr(is_child: bool) {
    let wanted = iwarp_os::environment::variable("IWARP_LOG").unwrap_or_default();
    let mut filter =
        EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).parse_lossy(wanted);
    if is_child {
        filter = filter.add_directive("iwarp::variables=off".parse().expect("a directive"));
    }
    // One that makes no sense is an error where a device is opened.
    let format = iwarp_os::environment::variable("IWARP_LOG_FORMAT");
    let format = if format.as_deref() == Some("json") { LogFormat::Json } else { LogFormat::Text };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .event_format(Lines(format))
        .init();
}

/// Lines like those of the drop-in libraries.
struct Lines(LogFormat);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let Self(format) = self;
        writer.write_str(&format.event(event))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
