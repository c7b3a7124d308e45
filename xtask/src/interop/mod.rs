// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask interop`: programs here against the same programs on Linux siw, in a guest.
//!
//! A cell of the matrix in `interop/siw-matrix` is one program at each end. The test step of this
//! name runs the short list in a guest that `interop/guest` builds.

mod cell;
mod guest;
mod matrix;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use self::guest::{Guest, Site};
use self::matrix::{Cell, Matrix};
use self::report::{Line, Verdict};
use crate::dist::Build;
use crate::steps::Outcome;
use crate::{packages, shell};

/// The tools that it needs beside a guest.
const TOOLS: &[packages::Tool] = &[
    packages::Tool { program: "ip", package: "iproute2", steps: &[] },
    packages::Tool { program: "ethtool", package: "ethtool", steps: &[] },
    packages::Tool { program: "tcpdump", package: "tcpdump", steps: &[] },
    packages::Tool { program: "setpriv", package: "util-linux", steps: &[] },
    packages::Tool { program: "cc", package: "gcc", steps: &[] },
    packages::Tool { program: "rping", package: "rdmacm-utils", steps: &[] },
    packages::Tool { program: "ib_write_bw", package: "perftest", steps: &[] },
    packages::Tool { program: "qperf", package: "qperf", steps: &[] },
    packages::Tool {
        program: "/usr/include/infiniband/verbs.h",
        package: "libibverbs-dev",
        steps: &[],
    },
    packages::Tool {
        program: "/usr/include/rdma/rdma_cma.h",
        package: "librdmacm-dev",
        steps: &[],
    },
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only a few cells of each kind
    #[arg(long)]
    short: bool,
    /// Run only cells with one of these texts in their names
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    only: Vec<String>,
    /// List the cells and exit
    #[arg(long)]
    list: bool,
    /// Folder for captures and output of cells that fail
    #[arg(long, value_name = "DIRECTORY", default_value = "target/interop")]
    keep: PathBuf,
    /// Write the results there as JSON, and keep those of other cells with the same versions
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results there as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Take the last build as it is
    #[arg(long)]
    no_build: bool,
    /// Build a guest if there is none: the one that takes half a CPU minute
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let matrix = Matrix::read()?;
    let wanted = |cell: &&Cell| {
        let name = matrix.name(**cell);
        (!args.short || matrix.is_short(**cell))
            && (args.only.is_empty() || args.only.iter().any(|text| name.contains(text.as_str())))
    };
    let cells: Vec<Cell> = matrix.cells.iter().filter(wanted).copied().collect();
    if args.list {
        cells.iter().for_each(|cell| println!("{}", matrix.name(*cell)));
        return Ok(());
    }
    if cells.is_empty() {
        bail!("{} has no such cell", matrix::FILE);
    }
    packages::ensure_tools(TOOLS.iter())?;
    if Site::guest().is_err() {
        let mut build = shell::program("interop/guest/build");
        shell::run(build.args(args.quick.then_some("--quick")))?;
    }
    if !args.no_build {
        build()?;
    }
    // Behind each cell, so that a run that is ended early has not been for nothing.
    let json = args.json.as_ref().map(|path| shell::root().join(path));
    let mut kept: Option<Vec<Line>> = None;
    let write = |lines: &[Line], versions: &Versions| -> Result<()> {
        let kept = kept.get_or_insert_with(|| match &json {
            Some(path) => report::earlier(path, &matrix, versions),
            None => Vec::new(),
        });
        kept.retain(|line| lines.iter().all(|new| new.cell != line.cell));
        let mut lines = [&kept[..], lines].concat();
        lines.sort_by_key(|line| matrix.cells.iter().position(|cell| *cell == line.cell));
        if let Some(path) = &json {
            report::write_json(path, &matrix, &lines, versions)?;
        }
        if let Some(path) = &args.markdown {
            report::write_markdown(&shell::root().join(path), &matrix, &lines, versions)?;
        }
        Ok(())
    };
    let (lines, _) = run_all(&matrix, &cells, &shell::root().join(&args.keep), write)?;
    println!("{}", report::counts(&lines));
    verdict(&matrix, &lines)
}

/// Set where `cargo xtask test` is to build a quick guest if there is none.
const BUILD: &str = "IWARP_TEST_GUEST";

/// For `cargo xtask test`: the short list, with the guest that there is.
pub(crate) fn check() -> Result<Outcome> {
    let matrix = Matrix::read()?;
    let cells: Vec<Cell> =
        matrix.cells.iter().filter(|cell| matrix.is_short(**cell)).copied().collect();
    if let Err(why) = ready() {
        return Ok(Outcome::NotRun(format!("siw was not tested against: {why:#}")));
    }
    build()?;
    let (lines, versions) =
        run_all(&matrix, &cells, &shell::target_dir().join("interop"), |_, _| Ok(()))?;
    verdict(&matrix, &lines)?;
    let (linux, kind) = (&versions["linux"], &versions["guest"]);
    Ok(Outcome::Passed(format!("{}; siw of Linux {linux}, {kind}", report::counts(&lines))))
}

/// Sees to it that there is a guest, and what it takes to run it.
fn ready() -> Result<()> {
    if Site::guest().is_err() {
        // It takes a kernel's packages and some minutes of emulation, which not every run is for.
        if std::env::var_os(BUILD).is_none() {
            bail!("there is no guest; interop/guest/build makes one, {BUILD}=1 a quick one here");
        }
        let mut build = shell::program("interop/guest/build");
        shell::run(build.arg("--quick")).context("no guest, and none can be built")?;
    }
    packages::ensure_tools(TOOLS.iter())?;
    let (_, kind) = Site::guest()?;
    if kind == "QEMU" && !Path::new("/dev/net/tun").exists() {
        bail!("QEMU's network needs /dev/net/tun");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("only root makes network namespaces");
    }
    Ok(())
}

fn build() -> Result<()> {
    Build::Ci.make()?;
    let example = ["build", "--profile", "ci", "--package", "iwarp", "--example", "siw_exchange"];
    shell::run(&mut shell::cargo(example))
}

type Versions = std::collections::BTreeMap<&'static str, String>;

/// Runs the cells, those that share a guest one after the other.
fn run_all(
    matrix: &Matrix,
    cells: &[Cell],
    keep: &Path,
    mut after_each: impl FnMut(&[Line], &Versions) -> Result<()>,
) -> Result<(Vec<Line>, Versions)> {
    let mut cells = cells.to_vec();
    let first = |cell: &Cell| {
        let boot = &matrix.setting(*cell).boot;
        matrix.settings.iter().position(|setting| setting.boot == *boot)
    };
    cells.sort_by_key(first);
    let _ = fs::remove_dir_all(keep);
    fs::create_dir_all(keep).with_context(|| format!("{}", keep.display()))?;
    let mut bench = Bench { site: &Site::new()?, guest: None, number: 0, kernel: String::new() };
    let mut lines = Vec::new();
    let mut versions = Versions::new();
    for cell in cells {
        let start = Instant::now();
        let directory = keep.join(matrix.name(cell).replace('/', "_"));
        let (verdict, complaints) = bench.judge(matrix, cell, &directory);
        let seconds = start.elapsed().as_secs_f64();
        let (word, reason) = (verdict.word(), verdict.reason());
        println!("{word:<6} {seconds:6.1} s  {}  {reason}", matrix.name(cell));
        lines.push(Line { cell, verdict, seconds, complaints });
        if versions.is_empty() {
            versions = report::versions(&bench.kernel, &bench.site.kind);
        }
        after_each(&lines, &versions)?;
    }
    Ok((lines, versions))
}

fn verdict(matrix: &Matrix, lines: &[Line]) -> Result<()> {
    let failed = |line: &&Line| matches!(line.verdict, Verdict::Failed(_));
    let failed: Vec<String> = lines
        .iter()
        .filter(failed)
        .map(|line| format!("{}: {}", matrix.name(line.cell), line.verdict.reason()))
        .collect();
    if !failed.is_empty() {
        bail!("{}", failed.join("\n       "));
    }
    Ok(())
}

/// Runs cells, with at most one guest at a time.
struct Bench<'a> {
    site: &'a Site,
    guest: Option<Guest<'a>>,
    number: u16,
    kernel: String,
}

impl Bench<'_> {
    /// Two attempts, and where both fail, one without us.
    fn judge(&mut self, matrix: &Matrix, cell: Cell, directory: &Path) -> (Verdict, String) {
        let (first, mut complaints) = self.attempt(matrix, cell, &directory.join("first"), false);
        let Err(first) = first else {
            cell::forget(directory);
            return (Verdict::Passed, complaints);
        };
        let (second, more) = self.attempt(matrix, cell, &directory.join("second"), false);
        complaints.push_str(&more);
        let Err(second) = second else {
            return (Verdict::Again(format!("{first:#}")), complaints);
        };
        let second = format!("{second:#}");
        if let Some(cause) = matrix.known(cell) {
            return (Verdict::Siw(format!("{cause} ({second})")), complaints);
        }
        if matrix.setting(cell).end.is_none() {
            let (alone, _) = self.attempt(matrix, cell, &directory.join("siw-alone"), true);
            if let Err(alone) = alone {
                return (Verdict::Siw(format!("siw with siw: {alone:#}")), complaints);
            }
        }
        (Verdict::Failed(second), complaints)
    }

    /// Runs it on the guest that is there, if that fits, or on another. Behind a failure the guest
    /// goes. Also returns what the guest's kernel complained of.
    fn attempt(
        &mut self,
        matrix: &Matrix,
        cell: Cell,
        directory: &Path,
        without_us: bool,
    ) -> (Result<()>, String) {
        let setting = matrix.setting(cell);
        let boot = if without_us { Default::default() } else { setting.boot.clone() };
        let mut attempt = || -> Result<()> {
            fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))?;
            if self.guest.as_mut().is_none_or(|guest| guest.boot != boot || !guest.is_alive()) {
                // The old one goes first: they share namespaces.
                drop(self.guest.take());
                self.guest = Some(Guest::boot(self.site, &boot)?);
            }
            let guest = self.guest.as_mut().expect("it was just made");
            self.kernel = guest.kernel();
            self.number += 1;
            let capture = guest.capture(&directory.join("pcap"))?;
            let go = if without_us { cell::run_without_us } else { cell::run };
            let done = go(guest, matrix, cell, self.number, self.site.slowness(), directory);
            drop(capture);
            if !guest.is_alive() {
                let said = guest.console();
                bail!("the guest died ({})", said.lines().last().unwrap_or_default());
            }
            done
        };
        let result = attempt();
        let complaints = self.guest.as_mut().map(Guest::complaints).unwrap_or_default();
        let gone = result.is_err() || setting.end.is_some() || !complaints.is_empty();
        let guest = if gone { self.guest.take() } else { None };
        if let Some(mut guest) = guest.filter(|_| result.is_err()) {
            guest.keep(directory);
        }
        (result, complaints)
    }
}
