// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask pyverbs`: the tests of rdma-core's Python bindings, on our libraries.
//!
//! Debian ships them as documentation of python3-pyverbs. They judge every answer of the verbs and
//! skip what a device says it cannot do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::extra;
use super::lab::{Lab, Lane, Side};
use super::process::Process;
use crate::dist::Build;
use crate::shell;

const PACKAGE: &str = "python3-pyverbs";
const FOLDER: &str = "usr/share/doc/rdma-core/tests";
const RUNNER: &str = include_str!("pyverbs.py");
const FILE: &str = "docs/pyverbs.md";
const LIMIT: Duration = Duration::from_secs(300);

/// Tests that are left out: with which personality, which, and why.
const LEFT_OUT: &[(&[&str], &[&str], &str)] = &[
    (
        &["iwarp"],
        &[
            "CMTestCase.test_rdmacm_async_write",
            "MRTest.test_mr_rereg_access",
            "MRTest.test_mr_rereg_access_bad_flow",
            "MRTest.test_mr_rereg_addr",
            "MRTest.test_mr_rereg_pd",
            "DeviceMemoryTest.test_dm_remote_traffic",
            "MWTest.test_invalidate_mw_type1",
            "MWTest.test_mw_type1",
            "MWTest.test_mw_type2",
            "MWTest.test_mw_type2_invalidate_dealloc",
            "MWTest.test_mw_type2_invalidate_local",
            "MWTest.test_mw_type2_invalidate_remote",
            "OdpTestCase.test_odp_rc_rdma_write",
            "QpExTestCase.test_qp_ex_rc_bind_mw",
            "QpExTestCase.test_qp_ex_rc_rdma_write",
            "SharedPDTestCase.test_imported_rc_ex_rdma_write",
        ],
        "takes the completion of a Write or Send for its arrival at the peer, as InfiniBand defines it",
    ),
    (
        &["iwarp"],
        &["CMTestCase.test_rdmacm_async_traffic_external_qp"],
        "may send before the peer has posted a receive, which ends an iWARP connection",
    ),
    (
        &["iwarp"],
        &["QPTest.test_query_uc_qp", "QPTest.test_query_ud_qp"],
        "expects queue pairs that no RNIC has to start in the same state as an RNIC's",
    ),
];

/// Tests of later versions that are left out with `iwarp` for the first of its reasons.
const LATER: &[&str] = &[
    "MRTest.test_mrex_rereg_access",
    "MRTest.test_mrex_rereg_addr",
    "MWTest.test_mw_ex_type1",
    "RoTestCase.test_ro_mr_ex_traffic",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these: test_qp, test_qp.QPTest, test_qp.QPTest.test_create_rc_qp, ...
    tests: Vec<String>,
    /// The kind of device that it says it is
    #[arg(long, default_value = "roce", value_parser = ["iwarp", "roce"])]
    personality: String,
    /// Take the last build as it is
    #[arg(long)]
    no_build: bool,
    /// Compare with docs/pyverbs.md instead of writing it
    #[arg(long)]
    check: bool,
    /// The tests of this source tree of rdma-core, which has been built in `build` and which
    /// everybody can read, instead of Debian's; nothing is recorded
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    rdma_core: Option<PathBuf>,
}

/// The suite that is run.
struct Suite<'a> {
    personality: &'a str,
    /// These only, or all but those that are left out.
    tests: &'a [String],
    /// Built source, where it is not Debian's.
    rdma_core: Option<&'a Path>,
}

impl<'a> Suite<'a> {
    /// Debian's, all of it.
    const fn of(personality: &'a str) -> Self {
        Self { personality, tests: &[], rdma_core: None }
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Huge pages of the system for some tests, which skip without; given back at the end. A machine
/// that does not let their number be set keeps those it has.
struct HugePages {
    before: Option<String>,
}

impl HugePages {
    const SETTING: &str = "/proc/sys/vm/nr_hugepages";
    const WANTED: usize = 64;
    /// The words by which a test says that there were none.
    const MISSING: &str = "There are no huge pages";

    fn reserve() -> Self {
        let before = fs::read_to_string(Self::SETTING).ok().filter(|before| {
            before.trim().parse().is_ok_and(|pages: usize| pages < Self::WANTED)
                && fs::write(Self::SETTING, Self::WANTED.to_string()).is_ok()
        });
        Self { before }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = fs::write(Self::SETTING, before);
        }
    }
}

/// By module and name.
type Outcomes = BTreeMap<(String, String), Outcome>;

pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.no_build {
        Build::Ci.make()?;
    }
    let lab = Lab::new(Build::Ci, 1)?;
    let tests: Vec<String> = args.tests.iter().map(|test| with_module(test)).collect();
    let rdma_core = args.rdma_core.as_deref().map(fs::canonicalize).transpose()?;
    let suite =
        Suite { personality: &args.personality, tests: &tests, rdma_core: rdma_core.as_deref() };
    let outcomes = play(&lab.lanes[0], &suite)?;
    if !tests.is_empty() || args.personality != "roce" || rdma_core.is_some() {
        for ((module, name), outcome) in &outcomes {
            println!("{module}.{name}: {outcome:?}");
        }
        return judge(&outcomes, 0).map(|summary| println!("{summary}"));
    }
    if !args.check {
        fs::write(shell::root().join(FILE), document(&outcomes))?;
    }
    judge(&outcomes, recorded()).map(|summary| println!("{summary}"))
}

/// For `cargo xtask test`.
pub(crate) fn check() -> Result<String> {
    Build::Ci.make()?;
    let lab = Lab::new(Build::Ci, 1)?;
    let lane = &lab.lanes[0];
    let roce = judge(&play(lane, &Suite::of("roce"))?, recorded()).context("roce")?;
    let iwarp = judge(&play(lane, &Suite::of("iwarp"))?, 0).context("iwarp")?;
    Ok(format!("roce: {roce}; iwarp: {iwarp}"))
}

/// unittest loads names from the module `tests`.
fn with_module(test: &str) -> String {
    test.strip_prefix("tests.").unwrap_or(test).to_owned()
}

fn play(lane: &Lane, suite: &Suite) -> Result<Outcomes> {
    let &Suite { personality, tests, rdma_core } = suite;
    let work = lane.directory().with_file_name("pyverbs");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(work.join("tests"))?;
    let source = match rdma_core {
        Some(folder) => folder.join("tests"),
        None => extra::packaged(PACKAGE, FOLDER, &work.join("package"))?,
    };
    copy(&source, &work.join("tests"))?;
    fs::write(work.join("run.py"), RUNNER)?;

    let (results, output) =
        (lane.directory().join("results.txt"), lane.directory().join("output.txt"));
    let mut command = lane.command(Side::Server);
    command.arg(lane.iwarp()).args(["run", "--sysfs", "--personality", personality, "--"]);
    // Debian's interpreter, which has Debian's modules.
    command.args(["/usr/bin/python3", "-B", "run.py"]).arg(&results);
    if let Some(folder) = rdma_core {
        let modules = folder.join("build/python");
        ensure!(modules.is_dir(), "{}: there is none; build rdma-core first", modules.display());
        command.env("PYTHONPATH", modules);
        // They ask the kernel first, by this program, and fail where it has no RDMA at all.
        let rdma = lane.directory().with_file_name("bin").join("rdma");
        fs::write(&rdma, "#!/bin/sh\necho []\n")?;
        fs::set_permissions(&rdma, Permissions::from_mode(0o755))?;
    }
    let left_out = LEFT_OUT.iter().filter(|(of, ..)| of.contains(&personality));
    let mut left_out: Vec<&str> =
        left_out.flat_map(|(_, names, _)| names.iter().copied()).collect();
    if personality == "iwarp" {
        left_out.extend(LATER);
    }
    // A caller who names a test wants to see it.
    command.arg(if tests.is_empty() { left_out.join(",") } else { String::new() }).args(tests);
    command.current_dir(&work);
    println!("$ python3 run_tests.py -v (rdma-core's, {personality})");
    let _huge_pages = HugePages::reserve();
    let mut process = Process(lane.spawn(&mut command, &output)?);
    let ended = process.ends(Instant::now() + LIMIT);
    let outcomes = read(&fs::read_to_string(&results).unwrap_or_default());
    let said = fs::read(&output).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    if ended.is_none_or(|status| !matches!(status.code(), Some(0 | 1))) || outcomes.is_empty() {
        bail!("the tests did not come to their end ({ended:?}):\n{said}");
    }
    if !tests.is_empty() {
        println!("{said}");
    }
    Ok(outcomes)
}

/// Debian compresses documentation that is large.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_suffix(".gz") {
            Some(plain) => {
                let text = shell::output(shell::program("gzip").arg("-cd").arg(&path))?;
                fs::write(to.join(plain), text)?;
            }
            None => fs::copy(&path, to.join(name)).map(|_| ())?,
        }
    }
    Ok(())
}

/// The lines of the script. A test that was started and did not end has failed.
fn read(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in text.lines() {
        let mut words = line.splitn(3, '\t');
        let (Some(word), Some(id)) = (words.next(), words.next()) else { continue };
        let reason = words.next().unwrap_or_default().to_owned();
        let outcome = match word {
            "passed" => Outcome::Passed,
            "skipped" => Outcome::Skipped(reason),
            "failed" => Outcome::Failed(reason),
            _ => Outcome::Failed("does not end".to_owned()),
        };
        let id = id.trim_start_matches("tests.");
        let (module, name) = id.split_once('.').unwrap_or(("", id));
        let which = (module.to_owned(), name.to_owned());
        match outcomes.get(&which) {
            // Of the parts of one test the worst counts.
            Some(Outcome::Failed(why)) if why != "does not end" => {}
            _ => drop(outcomes.insert(which, outcome)),
        }
    }
    outcomes
}

fn judge(outcomes: &Outcomes, least: usize) -> Result<String> {
    let count = |wanted: fn(&Outcome) -> bool| outcomes.values().filter(|o| wanted(o)).count();
    let passed = count(|outcome| matches!(outcome, Outcome::Passed));
    let skipped = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
    let summary = format!("{passed} passed, {skipped} skipped");
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|((module, name), outcome)| match outcome {
            Outcome::Failed(why) => Some(format!("{module}.{name}: {why}")),
            _ => None,
        })
        .collect();
    ensure!(failed.is_empty(), "{summary}, failed:\n{}", failed.join("\n"));
    let is_without = |reason: &String| reason.starts_with(HugePages::MISSING);
    let without = outcomes
        .values()
        .filter(|outcome| matches!(outcome, Outcome::Skipped(reason) if is_without(reason)))
        .count();
    ensure!(passed + without >= least, "{summary}; {least} passed when {FILE} was written");
    Ok(summary)
}

/// The number that passed when the document was written.
fn recorded() -> usize {
    let text = fs::read_to_string(shell::root().join(FILE)).unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("| all | "));
    total.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(0)
}

fn document(outcomes: &Outcomes) -> String {
    let mut text = String::from(HEAD);
    let mut modules: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut skips: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((module, name), outcome) in outcomes {
        for counted in [module.as_str(), "~all"] {
            modules.entry(counted).or_default()[match outcome {
                Outcome::Passed => 0,
                Outcome::Skipped(_) => 1,
                Outcome::Failed(_) => 2,
            }] += 1;
        }
        if let Outcome::Skipped(reason) = outcome {
            let short = name.rsplit('.').next().unwrap_or(name);
            skips.entry(reason).or_default().push(format!("{module}: {short}"));
        }
    }
    for (module, [passed, skipped, failed]) in &modules {
        let module = module.trim_start_matches('~');
        let _ = writeln!(text, "| {module} | {passed} | {skipped} | {failed} |");
    }
    text.push_str(LEAVES_OUT);
    for (personalities, names, reason) in LEFT_OUT {
        let (with, names) = (personalities.join(", "), names.join(", "));
        let _ = writeln!(text, "| {names} | {with} | {reason} |");
    }
    text.push_str(SKIPS);
    for (reason, tests) in skips {
        let reason = reason.replace('|', "\\|");
        let _ = writeln!(text, "| {reason} | {} | {} |", tests.len(), tests.join("; "));
    }
    text
}

const HEAD: &str = "\
# rdma-core's own tests

This page has the results of the tests of rdma-core 44's Python bindings, as Debian 12 ships them
with python3-pyverbs, under `iwarp run --sysfs --personality roce`. `cargo xtask pyverbs` generates
it; `cargo xtask test` runs the tests with both personalities, and fails if a test fails or fewer
tests pass. Tests skip features that the device does not announce; the last table lists them.
[suites.md](suites.md) has a later version.

| Module | Passed | Skipped | Failed |
|---|---|---|---|
";

const LEAVES_OUT: &str = "
| Left out | With | Because it |
|---|---|---|
";

const SKIPS: &str = "
| Message of the skipped tests | Tests | Names |
|---|---|---|
";
