// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp run`: starts an unmodified RDMA program on the drop-in libraries.

mod bundled;
mod capture;
mod faults;
mod libraries;
mod links;
mod program;
mod sysfs;
mod usage;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use iwarp::{LocalPath, Options};
use iwarp_kit::lines;
use iwarp_os::environment;

use crate::descriptors::raise_descriptor_limit;
use libraries::Libraries;
use program::{Located, Refusal};

/// Run an unmodified RDMA program, without an RDMA device.
///
/// The program gets this project's libibverbs.so.1 and librdmacm.so.1 in place of the system's, or
/// of copies that it bundles, and with them an RDMA device, which answers on every address of the
/// machine and has its entries in /sys/class/infiniband and /dev/infiniband. This command installs
/// and changes nothing, and needs no privilege. The program replaces it: signals, job control and
/// the exit status are the program's own. Programs that the program starts are served too.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "iwarp run [OPTIONS] [--] PROGRAM [ARGUMENTS]...",
    after_long_help = EXAMPLES,
)]
pub(crate) struct Args {
    /// Kind of the device: a RoCE card (default) or an iWARP card
    #[arg(long, value_name = "KIND")]
    personality: Option<Personality>,
    /// The devices, separated by commas: a name each, optionally with an interface, or one for each
    /// port, and with what it differs in: mlx5_0=eth0:roce:speed=100,mlx4_0=eth1+eth2
    #[arg(long, value_name = "DEVICES")]
    devices: Option<String>,
    /// CRC32c on the stream; off only if both ends switch it off
    #[arg(long, value_name = "ON|OFF")]
    crc: Option<Switch>,
    /// Ask the peer for MPA markers
    #[arg(long, value_name = "ON|OFF")]
    markers: Option<Switch>,
    /// Messages of the libraries on standard error: off, error, warn, info or debug
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
    /// Write all packets of the program to a file, a pcapng, without any privilege; ,snap=BYTES and
    /// ,ring=FILESxSIZE may follow, and %p in the name stands for the process
    #[arg(long, value_name = "FILE")]
    capture: Option<String>,
    /// Faults on purpose, by rule: errno=ENOMEM,verb=ibv_post_send,nth=3 or several with semicolons
    /// between, or @FILE with one a line; a table at the end says what became of them
    #[arg(long, value_name = "RULES|@FILE")]
    faults: Option<String>,
    /// Have the program's use of verbs checked, and misuse told on standard error: report, abort,
    /// and behind commas strict, exitcode=NUMBER, suppressions=FILE; alone it is report,exitcode=66
    #[arg(
        long, value_name = "WISH", num_args = 0..=1, require_equals = true,
        default_missing_value = "report,exitcode=66",
    )]
    check: Option<String>,
    /// Seed of the faults that come by lot
    #[arg(long, value_name = "NUMBER", requires = "faults")]
    seed: Option<u64>,
    /// Fail with status 123 if a rule has never fired
    #[arg(long, requires = "faults")]
    strict: bool,
    /// Show the devices under /sys/class/infiniband and /dev/infiniband; on by default
    #[arg(
        long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true,
        default_missing_value = "on",
    )]
    sysfs: Option<Switch>,
    /// Also replace copies of the libraries that programs bundle, such as those in Python wheels;
    /// the default depends on the program and on glibc, as versions before 2.35 become slower by it
    #[arg(
        long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true,
        default_missing_value = "on",
    )]
    bundled: Option<Switch>,
    /// Have large blocks of memory that the program allocates (malloc) lie where other processes of
    /// this host can map them, so that Writes and Reads there are plain copies
    #[arg(long)]
    shared_heap: bool,
    /// Start the program even if it cannot be served itself, for the sake of others that it starts
    #[arg(long)]
    force: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples, each with its server in one terminal and its client in another:
  iwarp run ibv_devinfo                         the device as programs see it
  iwarp run ib_write_bw                         the server of a bandwidth test
  iwarp run ib_write_bw 192.0.2.1               its client
  iwarp run rping -s -v                         rping through the connection manager
  iwarp run rping -c -a 192.0.2.1 -v -C 10
  iwarp run --crc off ib_send_bw                without checksums, if both ends agree
  iwarp run --personality iwarp ibv_devinfo     as an iWARP card
  iwarp run --shared-heap ib_write_bw           both ends on this host, in each other's memory
  iwarp run --capture rdma.pcapng rping -s      all packets, for Wireshark or iwarp explain
  iwarp run --faults errno=ENOMEM,verb=ibv_reg_mr,nth=2 ib_write_bw
  iwarp run --check rping -s                    misuse of verbs is told; the status is 66 then
  iwarp run --devices mlx5_0,mlx5_1 ibv_devices
  iwarp run --devices mlx5_0=eth0:roce,siw0=eth1:iwarp ibv_devinfo
  iwarp run bash                                a shell in which every program is served

Exit status: the program's own; 127 if it is not found, 126 if it cannot be served or started, 125
if this command fails itself, 123 if --strict misses a fault. With --faults rules, the program runs
below this command, and 128 and a number stand for the signal that ended it.

Limits: the program must be dynamic, linked with glibc, for this architecture, and without setuid
bits or file capabilities; otherwise `iwarp run` refuses it and says why. `iwarp run` raises the
soft limit of open files to the hard one. IWARP_* variables reach the program; options override
them.";

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Personality {
    Iwarp,
    Roce,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Switch {
    On,
    Off,
}

impl Switch {
    fn value(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Exit statuses of commands that run others: env(1), nohup(1), timeout(1).
const FAILED: u8 = 125;
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Starts the program in place of this process; returns only where that fails.
pub(crate) fn run(args: &Args) -> ExitCode {
    let name = &args.program[0];
    let located = match program::locate(name) {
        Ok(located) => located,
        Err(refusal) => return refuse(name, &refusal),
    };
    if let Some(refusal) = located.obstacle().filter(|_| !args.force) {
        return refuse(name, &refusal);
    }
    let error = match start(args, &located) {
        Ok(code) => return code,
        Err(error) => error,
    };
    eprintln!("iwarp run: {}", lines::reason(&error));
    ExitCode::from(FAILED)
}

/// Starts the program in place of this process, or, with faults by rule, below it.
fn start(args: &Args, located: &Located) -> Result<ExitCode> {
    let name = &args.program[0];
    let given = args.faults.as_deref().map(|given| faults::text(given, args.seed)).transpose()?;
    let recorded = given.as_deref().map(faults::Recorded::begin).transpose()?.flatten();
    let text = recorded.as_ref().map(|recorded| recorded.text().to_owned()).or(given);
    let mut command = prepare(args, located, text)?;
    let Some(recorded) = recorded else { return Ok(not_started(name, &command.exec())) };
    match recorded.run(&mut command, args.strict) {
        Ok(code) => Ok(code),
        Err(error) => Ok(not_started(name, &error)),
    }
}

fn refuse(name: &OsStr, refusal: &Refusal) -> ExitCode {
    eprintln!("iwarp run: {}: {refusal}", name.to_string_lossy());
    ExitCode::from(if refusal.is_absence() { NOT_FOUND } else { CANNOT_RUN })
}

fn not_started(name: &OsStr, error: &io::Error) -> ExitCode {
    let name = name.to_string_lossy();
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOEXEC) => eprintln!(
            "iwarp run: {name}: is neither a program nor a script that begins with #!; \
             give its interpreter: iwarp run -- sh {name}"
        ),
        _ => eprintln!("iwarp run: {name}: cannot be started: {error}"),
    }
    ExitCode::from(CANNOT_RUN)
}

/// The command with the environment that lets it find the libraries.
fn prepare(args: &Args, located: &Located, faults: Option<String>) -> Result<Command> {
    let libraries = Libraries::find()?;
    let mut settings = settings(args);
    settings.extend(faults.map(|text| ("IWARP_FAULTS", text)));
    if let Some(capture) = &args.capture {
        settings.push(("IWARP_CAPTURE", capture::begin(capture)?));
    }
    let options = Options::for_any_program().with_lookup(|name| {
        let given = settings.iter().find(|(variable, _)| *variable == name);
        given.map(|(_, value)| value.clone()).or_else(|| environment::variable(name))
    })?;
    let mut command = Command::new(located.path());
    command.arg0(&args.program[0]).args(&args.program[1..]);
    command.env("LD_LIBRARY_PATH", in_front(libraries.directory(), "LD_LIBRARY_PATH"));
    command.envs(settings);
    let mut preload = Vec::new();
    if args.shared_heap {
        if matches!(options.local, LocalPath::Off | LocalPath::Rings) {
            bail!(
                "--shared-heap: IWARP_LOCAL={} keeps processes from each other's memory; unset it",
                options.local
            );
        }
        preload.push(libraries.heap());
    }
    let bundled = is_on(args.bundled, bundled::by_default(located));
    if located.has_rpath() && !bundled {
        // The loader looks at DT_RPATH before LD_LIBRARY_PATH (ld.so(8)), but not for what is
        // loaded already.
        preload.push(libraries.directory().join("libibverbs.so.1"));
        preload.push(libraries.directory().join("librdmacm.so.1"));
    }
    let tree = is_on(args.sysfs, true).then(|| sysfs::tree(&options));
    match tree.transpose() {
        Ok(None) => {}
        Ok(Some(tree)) => {
            // AddressSanitizer refuses to start behind preloaded libraries unless told that they do
            // no harm.
            let option = "verify_asan_link_order=0";
            command.env("ASAN_OPTIONS", with_option("ASAN_OPTIONS", option, option));
            command.env("IWARP_SYSFS", tree);
            preload.push(libraries.preload());
        }
        // Most programs do without.
        Err(_) if args.sysfs.is_none() => {}
        Err(error) => return Err(error).context("--sysfs"),
    }
    if bundled {
        let option = format!("{}=16384", bundled::STORAGE);
        command.env("GLIBC_TUNABLES", with_option("GLIBC_TUNABLES", bundled::STORAGE, &option));
        command.env("IWARP_LIBRARIES", libraries.directory());
        command.env("LD_AUDIT", in_front(&libraries.audit(), "LD_AUDIT"));
    }
    if !preload.is_empty() {
        let list = env::join_paths(preload).context("LD_PRELOAD")?;
        command.env("LD_PRELOAD", in_front(Path::new(&list), "LD_PRELOAD"));
    }
    raise_descriptor_limit();
    Ok(command)
}

fn is_on(switch: Option<Switch>, by_default: bool) -> bool {
    switch.map_or(by_default, |switch| matches!(switch, Switch::On))
}

/// The variables that the options stand for.
fn settings(args: &Args) -> Vec<(&'static str, String)> {
    let switch = |switch: Option<Switch>| switch.map(|switch| switch.value().to_owned());
    let all = [
        ("IWARP_PERSONALITY", args.personality.map(|kind| kind.value().to_owned())),
        ("IWARP_DEVICES", args.devices.clone()),
        ("IWARP_CRC", switch(args.crc)),
        ("IWARP_MARKERS", switch(args.markers)),
        ("IWARP_LOG", args.log.clone()),
        ("IWARP_CHECK", args.check.clone()),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

impl Personality {
    fn value(self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            Self::Roce => "roce",
        }
    }
}

/// The list of paths in `variable` with one more at its front. An empty list stays out: to the
/// loader an empty item is the current directory.
fn in_front(path: &Path, variable: &str) -> OsString {
    let mut list = path.as_os_str().to_owned();
    if let Some(others) = env::var_os(variable).filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// The options in `variable`, with one more at their end unless `known` is among them.
fn with_option(variable: &str, known: &str, option: &str) -> OsString {
    let mut list = env::var_os(variable).unwrap_or_default();
    if !list.to_string_lossy().contains(known) {
        if !list.is_empty() {
            list.push(":");
        }
        list.push(option);
    }
    list
}
