// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps of `cargo xtask test`, in the order they run: first the gate, which runs every time,
//! then those that run in turn; in each, what fails quickly comes first.

use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Result, bail};

use crate::allocators;
use crate::apart;
use crate::conformance;
use crate::dist::{self, Build, Product};
use crate::fuzz;
use crate::index;
use crate::instructions;
use crate::interop;
use crate::layers;
use crate::learn;
use crate::packaging;
use crate::portable;
use crate::programs;
use crate::prose;
use crate::purity;
use crate::recipe;
use crate::sanitizer::{self, Sanitizer};
use crate::shell::{self, Tally};
use crate::soak;
use crate::turn::Inputs;

/// One step.
pub(crate) struct Step {
    /// For `--only` and `--skip`.
    pub(crate) name: &'static str,
    /// For `--list`.
    pub(crate) about: &'static str,
    /// When it runs without being asked for.
    pub(crate) due: Due,
    /// The thing that the step tests and does not find, if so.
    pub(crate) absent: fn() -> Option<String>,
    /// Runs it.
    pub(crate) run: fn(&Settings) -> Result<Outcome>,
}

/// When a step runs.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    /// Each time: it belongs to the gate.
    Always,
    /// When one of these files has changed, else now and then.
    InTurn(Inputs),
}

/// The result of a step.
pub(crate) enum Outcome {
    /// Everything was right.
    Passed(String),
    /// Something was wrong.
    Failed(String),
    /// The thing that it tests does not exist yet.
    Absent(String),
    /// A tool it needs is missing, and installing that is the user's decision.
    NotRun(String),
}

impl Outcome {
    /// For the summary.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "FAILED",
            Self::Absent(_) => "absent",
            Self::NotRun(_) => "not run",
        }
    }

    /// The note about it.
    pub(crate) fn note(&self) -> &str {
        let (Self::Passed(note) | Self::Failed(note) | Self::Absent(note) | Self::NotRun(note)) =
            self;
        note
    }
}

/// Lengths of the steps without a natural end.
#[derive(clap::Args)]
pub(crate) struct Settings {
    /// Seconds for each fuzz target
    #[arg(long, default_value_t = 10)]
    fuzz_seconds: u64,
    /// Minutes of the soak
    #[arg(long, default_value_t = 1.0)]
    soak_minutes: f64,
    /// Minutes of the long soak
    #[arg(long, default_value_t = 3.0)]
    long_soak_minutes: f64,
    /// Rounds of processes that are killed, beside the soak
    #[arg(long, default_value_t = 100)]
    kills: u64,
    /// Rounds of processes that are killed, beside the long soak
    #[arg(long, default_value_t = 2_000)]
    long_kills: u64,
    /// Seeds of the simulator
    #[arg(long, default_value_t = 300)]
    sim_seeds: u64,
    /// Seeds of the simulator's long run
    #[arg(long, default_value_t = 1_000)]
    long_sim_seeds: u64,
}

/// The library and what it is made of.
const LIBRARY: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "crates/iwarp/Cargo.toml",
    "crates/iwarp/src",
    "crates/iwarp-session/Cargo.toml",
    "crates/iwarp-session/src",
    "crates/iwarp-mem/Cargo.toml",
    "crates/iwarp-mem/src",
    "crates/iwarp-os/Cargo.toml",
    "crates/iwarp-os/src",
    "crates/iwarp-proto/Cargo.toml",
    "crates/iwarp-proto/src",
    "crates/iwarp-roce/Cargo.toml",
    "crates/iwarp-roce/src",
    "crates/iwarp-crc/Cargo.toml",
    "crates/iwarp-crc/src",
    "crates/iwarp-types/Cargo.toml",
    "crates/iwarp-types/src",
];

/// The drop-in libraries.
const DROP_IN: &[&str] = &[
    "crates/iwarp-capi/Cargo.toml",
    "crates/iwarp-capi/exports.rs",
    "crates/iwarp-capi/src",
    "crates/iwarp-capi/ibverbs",
    "crates/iwarp-capi/rdmacm",
];

/// The command, and what it brings along.
const COMMAND: &[&str] = &[
    "crates/iwarp-cli/Cargo.toml",
    "crates/iwarp-cli/src",
    "crates/iwarp-conform",
    "crates/iwarp-explain",
    "crates/iwarp-kit",
    "crates/iwarp-perf",
    "crates/iwarp-preload",
    // A link in iwarp-conform leads to it.
    "conformance/requirements.csv",
];

/// Tests of the library and of the C interface.
const LIBRARY_TESTS: &[&str] = &[
    "crates/iwarp/tests",
    "crates/iwarp-capi/tests",
    "crates/iwarp-mem/tests",
    "crates/iwarp-os/tests",
    "xtask/src/apart",
    "xtask/src/sanitizer",
];

const SIMULATOR: &[&str] = &["crates/iwarp-sim"];

/// Code that runs programs in hosts of their own.
const LAB: &[&str] = &[
    "xtask/src/dist/layout.rs",
    "xtask/src/programs/clock.rs",
    "xtask/src/programs/lab.rs",
    "xtask/src/programs/process.rs",
    "xtask/src/programs/table.rs",
];

/// All steps.
pub(crate) const ALL: &[Step] = &[
    Step { name: "fmt", about: "cargo fmt --check", due: Due::Always, absent: || None, run: fmt },
    Step {
        name: "clippy",
        about: "clippy, warnings are errors",
        due: Due::Always,
        absent: || None,
        run: clippy,
    },
    Step {
        name: "purity",
        about: "no_std and no unsafe code in the core, transports, layers, indexes of tests, comments",
        due: Due::Always,
        absent: || absent_file(purity::subject()),
        run: |_| {
            let notes = [purity::check()?, layers::check()?, index::check()?, prose::check()?];
            Ok(Outcome::Passed(notes.join("; ")))
        },
    },
    Step {
        name: "test",
        about: "all tests of the workspace",
        due: Due::Always,
        absent: || None,
        run: test,
    },
    Step {
        name: "doctest",
        about: "the examples in the docs",
        due: Due::Always,
        absent: || None,
        run: doctest,
    },
    Step {
        name: "e2e",
        about: "the command against itself, optimised",
        due: Due::Always,
        absent: || absent_file(path("crates/iwarp-cli/tests")),
        run: e2e,
    },
    Step {
        name: "programs",
        about: "real RDMA programs on the drop-in libraries",
        due: Due::Always,
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |_| programs::check().map(Outcome::Passed),
    },
    Step {
        name: "pyverbs",
        about: "rdma-core's Python tests on the drop-in libraries",
        due: Due::Always,
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |_| programs::pyverbs::check().map(Outcome::Passed),
    },
    Step {
        name: "soak",
        about: "mixed traffic while processes, connections and packets are lost",
        due: Due::Always,
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |settings| {
            let killed = kills(settings.kills)?;
            let soaked = soak::check(soak::SEED, settings.soak_minutes)?;
            Ok(Outcome::Passed(format!("{soaked}; {killed}")))
        },
    },
    Step {
        name: "sim",
        about: "the simulator: protocol core, the whole library, ways within a host, and RoCE",
        due: Due::Always,
        absent: || absent_file(path("crates/iwarp-sim/src/main.rs")),
        run: |settings| sim(1, settings.sim_seeds, 1),
    },
    Step {
        name: "asan",
        about: "memory, system calls and the C programs under AddressSanitizer",
        due: Due::Always,
        absent: absent_sanitized,
        run: |_| sanitizer::run(Sanitizer::Address, sanitizer::GATE).and_then(counted),
    },
    // Behind the tests: those it counts have passed.
    Step {
        name: "conformance",
        about: "requirements, corners and the tests that name them",
        due: Due::Always,
        absent: || None,
        run: |_| conformance::check().map(Outcome::Passed),
    },
    Step {
        name: "doc",
        about: "rustdoc, warnings are errors",
        due: Due::InTurn(&[&[
            "Cargo.lock",
            "Cargo.toml",
            "crates",
            "docs/learn/programs",
            "xtask",
        ]]),
        absent: || None,
        run: doc,
    },
    Step {
        name: "features",
        about: "the crates outside of the workspace's common set of features",
        due: Due::InTurn(&[
            LIBRARY,
            &["crates/iwarp-conform", "crates/iwarp-sockets", "xtask/src/portable.rs"],
        ]),
        absent: || None,
        run: |_| portable::features(),
    },
    Step {
        name: "package",
        about: "the crates' packages are complete",
        due: Due::InTurn(&[&[
            "Cargo.lock",
            "Cargo.toml",
            "LICENSE-APACHE",
            "LICENSE-MIT",
            "README.md",
            "crates",
            "conformance/requirements.csv",
            "xtask/src/packaging.rs",
            "xtask/src/purity.rs",
        ]]),
        absent: || None,
        run: |_| packaging::check().map(Outcome::Passed),
    },
    Step {
        name: "targets",
        about: "the library for other processors and C libraries",
        due: Due::InTurn(&[LIBRARY, DROP_IN, COMMAND, &["xtask/src/portable.rs"]]),
        absent: || None,
        run: |_| portable::targets(),
    },
    Step {
        name: "emulated",
        about: "the protocol crates' tests on a big-endian processor",
        due: Due::InTurn(&[&[
            "Cargo.lock",
            "Cargo.toml",
            "crates/iwarp-mem",
            "crates/iwarp-proto",
            "crates/iwarp-roce",
            "crates/iwarp-sockets",
            "crates/iwarp-crc",
            "crates/iwarp-types",
            "xtask/src/portable.rs",
        ]]),
        absent: || None,
        run: |_| portable::emulated(),
    },
    Step {
        name: "musl",
        about: "the library's tests with another C library",
        due: Due::InTurn(&[LIBRARY, &["xtask/src/apart", "xtask/src/portable.rs"]]),
        absent: || None,
        run: |_| portable::musl(),
    },
    Step {
        name: "oldest",
        about: "the library with the oldest Rust that the manifest allows",
        due: Due::InTurn(&[LIBRARY, &["xtask/src/portable.rs"]]),
        absent: || None,
        run: |_| portable::oldest(),
    },
    Step {
        name: "dist",
        about: "the tarballs, the Debian package and the RPM package, tried after unpacking",
        due: Due::InTurn(&[
            LIBRARY,
            DROP_IN,
            COMMAND,
            &[
                "ARCHITECTURE.md",
                "CHANGELOG.md",
                "LICENSE-*",
                "README.md",
                "docs",
                "xtask/src/dist",
            ],
        ]),
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |_| {
            let made = shell::target_dir().join("dist-made");
            dist::make(&made, Product::ALL, true).map(Outcome::Passed)
        },
    },
    Step {
        name: "programs-more",
        about: "programs that are built first, or move data that is compared",
        due: Due::InTurn(&[
            LIBRARY,
            DROP_IN,
            COMMAND,
            &[
                "docs/programs.md",
                "xtask/src/dist/layout.rs",
                "xtask/src/messages.rs",
                "xtask/src/programs",
            ],
        ]),
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |_| programs::check_more().map(Outcome::Passed),
    },
    Step {
        name: "learn",
        about: "docs/learn: its programs print what it says, its links lead somewhere",
        due: Due::InTurn(&[
            LIBRARY,
            DROP_IN,
            COMMAND,
            LAB,
            &["docs", "*.md", "xtask/src/apart", "xtask/src/learn"],
        ]),
        absent: || absent_file(path("docs/learn/book.toml")),
        run: |_| learn::check().map(Outcome::Passed),
    },
    Step {
        name: "recipe",
        about: "docs/ci.md as its reader follows it, jobs beside each other",
        due: Due::InTurn(&[
            LIBRARY,
            DROP_IN,
            COMMAND,
            &[
                "*.md",
                "LICENSE-*",
                "docs/*.md",
                "docs/ci",
                "interop/*.md",
                "xtask/src/apart",
                "xtask/src/dist",
                "xtask/src/nobody.rs",
                "xtask/src/programs/crates.rs",
                "xtask/src/recipe",
            ],
        ]),
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |_| recipe::check().map(Outcome::Passed),
    },
    Step {
        name: "interop",
        about: "a few programs against the same programs on Linux siw, in a guest",
        due: Due::InTurn(&[
            LIBRARY,
            DROP_IN,
            COMMAND,
            LAB,
            &["crates/iwarp/examples", "interop", "xtask/src/interop"],
        ]),
        absent: || absent_file(path("interop/siw-matrix")),
        run: |_| interop::check(),
    },
    Step {
        name: "soak-long",
        about: "the soak for some minutes, with other faults",
        due: Due::InTurn(&[LIBRARY, LIBRARY_TESTS, DROP_IN, COMMAND, LAB, &["xtask/src/soak"]]),
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |settings| {
            let killed = kills(settings.long_kills)?;
            let soaked = soak::check(soak::SEED + 1, settings.long_soak_minutes)?;
            Ok(Outcome::Passed(format!("{soaked}; {killed}")))
        },
    },
    Step {
        name: "sim-long",
        about: "the simulator with the seeds that follow those of `sim`",
        due: Due::InTurn(&[
            LIBRARY,
            SIMULATOR,
            &["xtask/src/dist/layout.rs", "xtask/src/steps.rs"],
        ]),
        absent: || absent_file(path("crates/iwarp-sim/src/main.rs")),
        run: |settings| sim(1 + settings.sim_seeds, settings.long_sim_seeds, 10),
    },
    Step {
        name: "instructions",
        about: "instructions of the inner loops, against a table",
        due: Due::InTurn(&[
            LIBRARY,
            &[
                "crates/iwarp/benches",
                "crates/iwarp/tests/Cargo.toml",
                "crates/iwarp/tests/benches",
                "crates/iwarp/tests/common",
                "xtask/src/instructions",
                "xtask/src/messages.rs",
            ],
        ]),
        absent: || absent_file(instructions::path()),
        run: |_| instructions::check(),
    },
    Step {
        name: "loom",
        about: "all interleavings of the lock-free parts",
        due: Due::InTurn(&[
            LIBRARY,
            &["crates/iwarp-mem/tests/loom", "crates/iwarp-os/tests/loom", "xtask/src/steps.rs"],
        ]),
        absent: || match loom_tests().is_empty() {
            true => Some(format!("no tests/loom in {}", LOOM_CRATES.join(", "))),
            false => None,
        },
        run: loom,
    },
    Step {
        name: "allocators",
        about: "the C programs with jemalloc and under valgrind",
        due: Due::InTurn(&[
            LIBRARY,
            DROP_IN,
            &[
                "crates/iwarp-capi/tests",
                "crates/iwarp-preload",
                "xtask/src/allocators",
                "xtask/src/apart",
            ],
        ]),
        absent: || absent_file(path("crates/iwarp-capi")),
        run: |_| allocators::check(),
    },
    Step {
        name: "asan-library",
        about: "the library's own tests under AddressSanitizer",
        due: Due::InTurn(&[LIBRARY, LIBRARY_TESTS]),
        absent: absent_sanitized,
        run: |_| sanitizer::run(Sanitizer::Address, sanitizer::IN_TURN).and_then(counted),
    },
    Step {
        name: "tsan",
        about: "unsafe crates under ThreadSanitizer",
        due: Due::InTurn(&[LIBRARY, LIBRARY_TESTS, DROP_IN]),
        absent: absent_sanitized,
        run: |_| sanitizer::run(Sanitizer::Thread, sanitizer::CRATES).and_then(counted),
    },
    Step {
        name: "fuzz",
        about: "every fuzz target for some seconds",
        due: Due::InTurn(&[
            SIMULATOR,
            &[
                "Cargo.toml",
                "crates/iwarp-mem/src",
                "crates/iwarp-os/src",
                "crates/iwarp-preload",
                "crates/iwarp-proto",
                "crates/iwarp-roce",
                "crates/iwarp-sockets",
                "crates/iwarp-crc",
                "crates/iwarp-types",
                "fuzz",
                "xtask/src/fuzz.rs",
                "xtask/src/sanitizer",
            ],
        ]),
        absent: || match fuzz::targets().is_empty() {
            true => Some("no fuzz/fuzz_targets".to_owned()),
            false => None,
        },
        run: |settings| fuzz::run_all(settings.fuzz_seconds).map(Outcome::Passed),
    },
    Step {
        name: "miri",
        about: "unsafe code of iwarp-mem under Miri",
        due: Due::InTurn(&[&[
            "Cargo.lock",
            "Cargo.toml",
            "crates/iwarp-mem",
            "crates/iwarp-crc",
            "crates/iwarp-types",
            "xtask/src/steps.rs",
        ]]),
        absent: || absent_file(path("crates/iwarp-mem/src/lib.rs")),
        run: miri,
    },
    Step {
        name: "deny",
        about: "licences, advisories and sources of the dependencies",
        due: Due::InTurn(&[&[
            "Cargo.lock",
            "Cargo.toml",
            "crates/*/Cargo.toml",
            "deny.toml",
            "xtask/src/steps.rs",
        ]]),
        absent: || None,
        run: deny,
    },
];

fn path(relative: &str) -> PathBuf {
    shell::root().join(relative)
}

fn absent_file(path: PathBuf) -> Option<String> {
    let relative = path.strip_prefix(shell::root()).unwrap_or(&path).display();
    if path.exists() { None } else { Some(format!("no {relative}")) }
}

fn absent_sanitized() -> Option<String> {
    match sanitizer::subjects().is_empty() {
        true => Some(format!("none of {}", sanitizer::CRATES.join(", "))),
        false => None,
    }
}

/// A run of tests in which there was none has shown nothing.
pub(crate) fn counted(tally: Tally) -> Result<Outcome> {
    if tally.passed == 0 {
        bail!("no test was run");
    }
    Ok(Outcome::Passed(format!("{} tests passed, {} ignored", tally.passed, tally.ignored)))
}

fn fmt(_: &Settings) -> Result<Outcome> {
    shell::run(&mut shell::cargo(["fmt", "--all", "--check"]))?;
    if path("fuzz/Cargo.toml").exists() {
        let fuzz = ["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"];
        shell::run(&mut shell::cargo(fuzz))?;
    }
    Ok(Outcome::Passed(String::new()))
}

fn clippy(_: &Settings) -> Result<Outcome> {
    let scope = ["clippy", "--workspace", "--all-targets", "--all-features"];
    shell::run(shell::cargo(scope).args(["--", "--deny", "warnings"]))?;
    if path("fuzz/Cargo.toml").exists() {
        // A workspace of its own, whose step runs in turn only: a changed API is seen here.
        let fuzz = ["clippy", "--manifest-path", "fuzz/Cargo.toml", "--all-targets", "--locked"];
        shell::run(shell::cargo(fuzz).args(["--", "--deny", "warnings"]))?;
    }
    Ok(Outcome::Passed(String::new()))
}

fn doc(_: &Settings) -> Result<Outcome> {
    let mut command = shell::cargo(["doc", "--workspace", "--all-features", "--no-deps"]);
    shell::run(command.env("RUSTDOCFLAGS", "--deny warnings"))?;
    Ok(Outcome::Passed(String::new()))
}

fn test(_: &Settings) -> Result<Outcome> {
    let command = if shell::exists("cargo-nextest") {
        shell::cargo(["nextest", "run", "--profile", "step", "--workspace", "--all-features"])
    } else {
        shell::cargo(["test", "--workspace", "--all-features", "--all-targets"])
    };
    let mut tests = apart::built(&command)?;
    tests.env("NEXTEST_TEST_THREADS", at_once().to_string());
    counted(shell::run_counted(&mut tests)?)
}

/// So many tests are run at once: each waits for half of its time.
pub(crate) fn at_once() -> usize {
    let processors = thread::available_parallelism().map_or(2, NonZero::get);
    processors + processors / 2
}

fn doctest(_: &Settings) -> Result<Outcome> {
    let mut command = shell::cargo(["test", "--workspace", "--all-features", "--doc"]);
    let tally = shell::run_counted(&mut command)?;
    if tally.passed == 0 {
        return Ok(Outcome::Absent("no examples in the docs".to_owned()));
    }
    counted(tally)
}

fn e2e(_: &Settings) -> Result<Outcome> {
    // With the features that the other packages of `Build::Ci` ask for: nothing is built twice.
    let features = ["--features", "iwarp/flaws,iwarp-types/mock"];
    let mut command = shell::cargo(["test", "--profile", "ci", "--package", "iwarp-cli"]);
    command.args(features).args(["--test", "*"]);
    counted(shell::run_counted(&mut apart::built(&command)?)?)
}

/// Has so many processes end in all ways amid traffic with one that survives them, by each of the
/// two ways within a host. The test binary is that of the step `test`, whose seeds are by lot.
fn kills(rounds: u64) -> Result<String> {
    const TEST: &str = "local_kills::processes_end_in_all_ways_amid_traffic";
    let mut command = shell::cargo(["test", "--workspace", "--all-features", "--test", "it"]);
    command.args(["--", "--exact", TEST]);
    for way in ["rings", "auto"] {
        let mut test = apart::built(&command)?;
        test.envs([("IWARP_KILLS_WAY", way), ("IWARP_KILLS", &rounds.to_string())]);
        counted(shell::run_counted(&mut test)?)?;
    }
    Ok(format!("{rounds} ends of processes in rings, and as many with direct accesses"))
}

/// Runs so many seeds, from the `first` on, of each of the four simulations; of that of one host,
/// whose runs are short, `times` as many.
fn sim(first: u64, seeds: u64, times: u64) -> Result<Outcome> {
    Build::Ci.make()?;
    let kinds: [(&[&str], u64); 4] = [
        (&["--steps", "1000"], seeds),
        (&["--engine"], seeds),
        (&["--local"], times * seeds),
        (&["--roce"], seeds),
    ];
    for (kind, seeds) in kinds {
        let mut sim = shell::program(Build::Ci.folder().join("iwarp-sim"));
        sim.args(["--first", &first.to_string(), "--seeds", &seeds.to_string()]);
        shell::run(sim.args(kind))?;
    }
    let last = first + seeds - 1;
    Ok(Outcome::Passed(format!(
        "seeds {first} to {last} of the protocol core, of the whole library, and of RoCE, and {} \
         of connections within a host",
        times * seeds
    )))
}

const LOOM_CRATES: &[&str] = &["iwarp-mem", "iwarp-os", "iwarp"];

/// Crates with loom tests, which are a binary of their own: `--cfg loom` swaps the atomics of the
/// whole crate, so other tests cannot run beside them.
fn loom_tests() -> Vec<&'static str> {
    let has = |name: &&&str| path(&format!("crates/{name}/tests/loom")).exists();
    LOOM_CRATES.iter().filter(has).copied().collect()
}

fn loom(_: &Settings) -> Result<Outcome> {
    let mut sum = Tally::default();
    for mut command in loom_commands() {
        sum += shell::run_counted(&mut command)?;
    }
    counted(sum)
}

/// The commands that build the tests of the step `loom`.
pub(crate) fn loom_builds() -> Result<Vec<Command>> {
    let mut commands = loom_commands();
    for command in &mut commands {
        command.arg("--no-run");
    }
    Ok(commands)
}

fn loom_commands() -> Vec<Command> {
    let command = |cfg: &str, targets: &[&str]| {
        let mut command = shell::cargo(["test", "--release", "--package"]);
        command.args(targets).env("RUSTFLAGS", format!("--cfg {cfg}"));
        command.env("CARGO_TARGET_DIR", shell::target_dir().join("loom"));
        command
    };
    let crates = loom_tests().into_iter().map(|name| command("loom", &[name, "--test", "loom"]));
    // The engine's own: its locks and atomics are exchanged by this name.
    let engine = command("model", &["iwarp", "--lib", "model"]);
    crates.chain([engine]).collect()
}

fn miri(_: &Settings) -> Result<Outcome> {
    if !shell::succeeds(&mut shell::cargo(["miri", "--version"])) {
        let install = "rustup +nightly component add miri rust-src, \
                       then cargo +nightly xtask test --only miri";
        return Ok(Outcome::NotRun(format!("the toolchain has no Miri: {install}")));
    }
    let mut command = shell::cargo(["miri", "test", "--package", "iwarp-mem"]);
    // Registered memory is addressed by integers from the wire: its provenance is exposed.
    command.env("MIRIFLAGS", "-Zmiri-permissive-provenance");
    command.env("CARGO_TARGET_DIR", shell::target_dir().join("miri"));
    counted(shell::run_counted(&mut command)?)
}

fn deny(_: &Settings) -> Result<Outcome> {
    if !shell::exists("cargo-deny") {
        let install = "cargo install --locked cargo-deny";
        return Ok(Outcome::NotRun(format!("cargo-deny is not installed: {install}")));
    }
    shell::run(&mut shell::cargo(["deny", "--workspace", "--all-features", "check"]))?;
    Ok(Outcome::Passed(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pathspec that means nothing any more would keep its step from running.
    #[test]
    fn each_input_means_a_file() {
        for step in ALL {
            let Due::InTurn(inputs) = step.due else { continue };
            if !path(".git").exists() {
                return;
            }
            for input in inputs.concat() {
                let files = shell::output(shell::program("git").args(["ls-files", "--", input]));
                assert!(!files.unwrap().is_empty(), "{}: {input}", step.name);
            }
        }
    }
}
