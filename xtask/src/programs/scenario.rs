// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rows that take more than a server and a client: a script drives the programs, and compares what
//! they moved.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::again::{self, Problem};
use super::lab::{Lab, Lane, Side};
use super::process::Process;
use super::scenario_record::{Key, Record, Records};
use super::sources::Source;
use super::table::{Personality, Topology};
use super::{document, learning, monitors, mpi, qemu, show, sources, storage, stores, ucx, wheels};
use crate::dist::Build;
use crate::{packages, shell};

/// The module that all scripts import.
const LAB: &str = include_str!("scenarios/lab.py");
/// The tools that they and [`install`] need.
const TOOLS: &[packages::Tool] = &[
    packages::Tool { program: "python3", package: "python3", steps: &[] },
    packages::Tool { program: "pip3", package: "python3-pip", steps: &[] },
];
/// Versions of what packages are built with. pyverbs 59.0 has a parenthesis too many in
/// `mlx5dv_flow.pyx` (line 261), in a text that Cython reads as code since 3.1.
const CONSTRAINTS: &str = "cython<3.1\n";
/// Of what a script prints, this much is shown where it fails.
const SHOWN: usize = 40;

/// A line of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Heading in the document, and for `--only`.
    pub(crate) group: &'static str,
    /// The purpose of it, for the document.
    pub(crate) what: &'static str,
    /// Text of the script.
    pub(crate) script: &'static str,
    /// Its arguments.
    pub(crate) arguments: &'static str,
    /// Other files that it finds beside it: their names and texts.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// The kind that the device says it is.
    pub(crate) personality: Personality,
    /// Set if a program looks into /sys or /dev.
    pub(crate) sysfs: bool,
    /// The topologies where it runs.
    pub(crate) topologies: &'static [Topology],
    /// Debian packages with the programs: what shows that each is installed, and its name.
    pub(crate) packages: &'static [packages::Tool],
    /// Packages of PyPI, with versions; behind `--prefix` those that bring more than Python's
    /// files.
    pub(crate) wheels: &'static [&'static str],
    /// Source packages of Debian, where its programs lack RDMA.
    pub(crate) sources: &'static [&'static Source],
    /// Seconds that are too many for it.
    pub(crate) limit: u64,
    /// Set if `cargo xtask test` runs it; else it takes `--all`, or `--only`.
    pub(crate) always: bool,
    /// The reason why it does not work, where it does not.
    pub(crate) cause: Option<&'static str>,
}

impl Scenario {
    /// A script that works on the default device, in both topologies.
    pub(crate) const fn new(
        what: &'static str,
        script: &'static str,
        arguments: &'static str,
    ) -> Self {
        Self {
            group: "",
            what,
            script,
            arguments,
            files: &[],
            personality: Personality::Iwarp,
            sysfs: false,
            topologies: &[Topology::Loopback, Topology::Network],
            packages: &[],
            wheels: &[],
            sources: &[],
            limit: 120,
            always: false,
            cause: None,
        }
    }

    pub(crate) const fn roce(self) -> Self {
        Self { personality: Personality::Roce, ..self }
    }

    pub(crate) const fn sysfs(self) -> Self {
        Self { sysfs: true, ..self }
    }

    /// Options of `iwarp run` besides the kind of the device.
    pub(super) const fn options(&self) -> &'static [&'static str] {
        if self.sysfs { &["--sysfs"] } else { &[] }
    }

    pub(crate) const fn only(self, topologies: &'static [Topology]) -> Self {
        Self { topologies, ..self }
    }

    pub(crate) const fn within(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    pub(crate) const fn always(self) -> Self {
        Self { always: true, ..self }
    }

    pub(crate) const fn because(self, cause: &'static str) -> Self {
        Self { cause: Some(cause), ..self }
    }

    /// True if `--only` with this text means it.
    fn is_named(&self, text: &str) -> bool {
        self.group == text || self.what.contains(text)
    }
}

/// All of them, in the order of the document.
pub(crate) fn all() -> Vec<Scenario> {
    [
        qemu::scenarios(),
        storage::scenarios(),
        stores::scenarios(),
        mpi::scenarios(),
        ucx::scenarios(),
        wheels::scenarios(),
        learning::scenarios(),
        monitors::scenarios(),
    ]
    .concat()
}

/// The scenarios that are to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice<'a> {
    /// The ones that `cargo xtask test` runs.
    Always,
    /// Every one.
    All,
    /// The ones with one of these texts in their group or description.
    Only(&'a [String]),
}

/// One scenario in one topology.
#[derive(Debug)]
pub(crate) struct Run {
    scenario: Scenario,
    topology: Topology,
}

impl Run {
    pub(crate) fn line(&self) -> String {
        let Self { scenario, topology } = self;
        format!("{:<16} {:<9} {}", scenario.group, document::name(*topology), scenario.what)
    }
}

/// The runs that a choice means.
pub(crate) fn chosen(choice: Choice) -> Vec<Run> {
    let wanted = |scenario: &Scenario| match choice {
        Choice::Always => scenario.always,
        Choice::All => true,
        Choice::Only(texts) => texts.iter().any(|text| scenario.is_named(text)),
    };
    let runs = all().into_iter().filter(wanted);
    runs.flat_map(|scenario| {
        scenario
            .topologies
            .iter()
            .map(move |&topology| Run { scenario: scenario.clone(), topology })
    })
    .collect()
}

/// Runs them, some at a time, and a few that fail once more; also returns what is wrong.
///
/// # Errors
///
/// When packages are missing or there are no hosts to be had.
pub(crate) fn run_all(runs: Vec<Run>, jobs: usize, build: Build) -> Result<(Records, Vec<String>)> {
    if runs.is_empty() {
        return Ok(<_>::default());
    }
    let mut sources: Vec<&Source> =
        runs.iter().flat_map(|run| run.scenario.sources).copied().collect();
    sources.sort_unstable();
    sources.dedup();
    let tools = TOOLS.iter().chain(runs.iter().flat_map(|run| run.scenario.packages));
    let builders = if sources.is_empty() { &[][..] } else { sources::TOOLS };
    packages::ensure_tools(tools.chain(builders))?;
    let lab = Lab::new(build, jobs.clamp(1, 16))?;
    let mut wheels: Vec<&str> = runs.iter().flat_map(|run| run.scenario.wheels).copied().collect();
    wheels.sort_unstable();
    wheels.dedup();
    for wheel in wheels {
        install(wheel, &lab.bin())?;
    }
    for source in sources {
        sources::install(source, &lab.bin())?;
    }
    let (start, count) = (Instant::now(), runs.len());
    let results = lab.each(runs, attempt);
    println!("{count} scenarios in {:.0} s", start.elapsed().as_secs_f64());
    Ok(again::once_more(results, again::record, |run| attempt(&lab.lanes[0], run)))
}

/// The result of a run: its key, the record, and what is wrong.
type Attempt = ((Key, &'static str), Record, Option<Problem<Run>>);

fn attempt(lane: &Lane, run: Run) -> Attempt {
    let Run { scenario, topology } = &run;
    let start = Instant::now();
    let result = drive(lane, scenario, *topology);
    lane.sweep();
    let seconds = show(start.elapsed());
    let what = format!("{}: {}, {}", scenario.group, scenario.what, document::name(*topology));
    let key = (Key::of(scenario), document::name(*topology));
    let line = format!("{}, {}", key.0, key.1);
    let (record, problem) = match (result, scenario.cause) {
        (Ok(said), cause) => {
            println!("ok      {seconds} {what}");
            let text = format!("{what}: works; its cause is to go from the table");
            (Record::works(&said), cause.map(|_| Problem { line, text, job: None }))
        }
        (Err(error), Some(cause)) => {
            println!("no      {seconds} {what}: {cause}\n{error:#}");
            (Record::fails(&error.to_string()), None)
        }
        (Err(error), None) => {
            println!("FAILS   {seconds} {what}: {error:#}");
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            let problem = Problem { line, text: format!("{what}: {last}"), job: Some(run) };
            (Record::fails(&text), Some(problem))
        }
    };
    (key, record, problem)
}

/// Runs the script; what it said is returned, or is the error.
fn drive(lane: &Lane, scenario: &Scenario, topology: Topology) -> Result<String> {
    empty(lane.directory())?;
    let output = lane.directory().with_extension("txt");
    let (script, library) = (lane.directory().join("scenario.py"), lane.directory().join("lab.py"));
    fs::write(&script, scenario.script)?;
    fs::write(library, LAB)?;
    for (name, text) in scenario.files {
        fs::write(lane.directory().join(name), text)?;
    }
    let host = lane.command(Side::Server);
    let mut python = Command::new("python3");
    python.arg(script).args(scenario.arguments.split_whitespace());
    python.current_dir(lane.directory()).env_clear();
    let settings = host.get_envs().filter_map(|(name, value)| Some((name, value?)));
    python.envs(settings).env("PYTHONDONTWRITEBYTECODE", "1");
    let sides = [("ON_SERVER", Side::Server), ("ON_CLIENT", Side::Client)];
    for (name, side) in sides {
        let host = if topology == Topology::Loopback { Side::Server } else { side };
        python.env(name, words(&lane.command(host)));
    }
    let mut iwarp = Command::new("");
    lane.run_with(&mut iwarp, scenario.personality, scenario.options(), topology, "");
    python.env("IWARP", words(&iwarp));
    python.env("PLACE", document::name(topology));
    python.env("SERVER", lane.address(Side::Server, topology));
    python.env("CLIENT", lane.address(Side::Client, topology));
    python.env("DEVICE", format!("{}0", scenario.personality.name()));
    let folders: Vec<String> = scenario
        .wheels
        .iter()
        .map(|wheel| {
            wheel_folder(wheel, &lane.directory().with_file_name("bin")).display().to_string()
        })
        .collect();
    python.env("WHEELS", folders.join(":"));
    python.env("SOURCES", lane.directory().with_file_name("bin"));
    let limit = Duration::from_secs(scenario.limit);
    let mut process = Process(lane.spawn(&mut python, &output)?);
    let status = process.ends(Instant::now() + limit);
    drop(process);
    let said = fs::read(&output).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    let end = shell::last_lines(&said, SHOWN);
    match status {
        None => bail!("{end}\nfailure: it does not end in {limit:?}"),
        Some(status) if !status.success() => bail!("{end}"),
        Some(_) => {}
    }
    ensure!(said.contains("compared: ") || said.contains("beside: "), "{end}\nfailure: silent");
    Ok(said)
}

/// A command's words, as one text that a shell would split so again.
fn words(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words = words.map(|word| word.to_string_lossy().into_owned());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn empty(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let path = entry.path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Puts a package of PyPI, and what it depends on, where everybody can read it. A download is kept
/// beside other things that were built.
fn install(wheel: &str, bin: &Path) -> Result<()> {
    let kept = wheel_folder(wheel, &shell::target_dir().join("wheels"));
    if !kept.join("complete").exists() {
        let _ = fs::remove_dir_all(&kept);
        let constraints = shell::target_dir().join("wheels/constraints.txt");
        fs::create_dir_all(shell::target_dir().join("wheels"))?;
        fs::write(&constraints, CONSTRAINTS)?;
        let mut pip = shell::program("/usr/bin/python3");
        pip.env("PIP_CONSTRAINT", constraints);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--no-compile", "--root-user-action=ignore", "--ignore-installed"]);
        // With `--target`, pip forgets a package's own `lib`.
        match wheel.strip_prefix("--prefix ") {
            Some(wheel) => pip.arg("--prefix").arg(&kept).args(wheel.split_whitespace()),
            None => pip.arg("--target").arg(&kept).args(wheel.split_whitespace()),
        };
        shell::run(&mut pip)?;
        fs::write(kept.join("complete"), "")?;
    }
    shell::copy_tree(&kept, &wheel_folder(wheel, bin))
}

fn wheel_folder(wheel: &str, parent: &Path) -> PathBuf {
    parent.join(wheel.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}
