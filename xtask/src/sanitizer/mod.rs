// SPDX-License-Identifier: MIT OR Apache-2.0

//! The crates with unsafe code or threads under AddressSanitizer and ThreadSanitizer, on the
//! stable toolchain (`RUSTC_BOOTSTRAP=1`) and with its precompiled standard library.

mod c;
mod left_out;
mod tsan;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::apart;
use crate::shell::{self, Tally};
use crate::steps;

/// The crates that are run so.
pub(crate) const CRATES: &[&str] = &["iwarp-mem", "iwarp-os", LIBRARY, C_API];

/// Crates that run under AddressSanitizer each time.
pub(crate) const GATE: &[&str] = &["iwarp-mem", "iwarp-os", C_API];

/// Crates that do so in turn.
pub(crate) const IN_TURN: &[&str] = &[LIBRARY];

const LIBRARY: &str = "iwarp";

/// The package of the library's folder `tests`, and the crate that is tested there as well.
const LIBRARY_TESTS: [&str; 2] = ["iwarp-tests", "iwarp-session"];

/// The one whose tests are C programs with the drop-in libraries.
const C_API: &str = "iwarp-capi";

/// Sanitizers that the compiler supports and that the project uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sanitizer {
    /// Accesses outside of what is allocated, use after free, leaks.
    Address,
    /// Data races.
    Thread,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }
}

/// The members of [`CRATES`] that exist by now.
pub(crate) fn subjects() -> Vec<&'static str> {
    let exists = |name: &&&str| {
        let source = shell::root().join("crates").join(name).join("src/lib.rs");
        fs::metadata(source).is_ok_and(|file| file.len() > 100)
    };
    CRATES.iter().filter(exists).copied().collect()
}

/// Runs the tests of these.
pub(crate) fn run(sanitizer: Sanitizer, crates: &[&str]) -> Result<Tally> {
    if sanitizer == Sanitizer::Thread {
        tsan::check(&build_dir(sanitizer), &suppressions_for("canary")?)?;
    }
    let mut sum = Tally::default();
    for part in parts(sanitizer, crates)? {
        sum += shell::run_counted(&mut apart::built(&part.run(sanitizer)?)?)?;
    }
    Ok(sum)
}

/// The commands that build what [`run`] runs.
pub(crate) fn builds(sanitizer: Sanitizer, crates: &[&str]) -> Result<Vec<Command>> {
    parts(sanitizer, crates)?.iter().map(|part| part.build(sanitizer)).collect()
}

/// Tests of a package that are run in one go.
struct Part {
    package: &'static str,
    /// Arguments of Cargo that choose binaries.
    targets: Vec<String>,
    /// Tests in whose names one of these occurs are left out.
    skipped: Vec<String>,
}

fn parts(sanitizer: Sanitizer, crates: &[&str]) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for package in subjects().into_iter().filter(|package| crates.contains(package)) {
        let runs = |part: &String| left_out::runs(sanitizer, package, part);
        let mut targets = vec!["--lib".to_owned()];
        for file in test_files(package, "tests")?.into_iter().filter(runs) {
            targets.extend(["--test".to_owned(), file]);
        }
        parts.push(Part { package, targets, skipped: Vec::new() });
        let (due, others): (Vec<_>, Vec<_>) =
            test_files(package, MODULES)?.into_iter().partition(runs);
        if !due.is_empty() {
            let targets = vec!["--test".to_owned(), "it".to_owned()];
            let skipped = others.iter().map(|module| format!("{module}::")).collect();
            parts.push(Part { package, targets, skipped });
        }
    }
    Ok(parts)
}

/// The folder of a package's tests that share a binary, which is called `it`.
const MODULES: &str = "tests/it";

impl Part {
    fn build(&self, sanitizer: Sanitizer) -> Result<Command> {
        let mut command = self.command(sanitizer)?;
        command.arg("--no-run");
        Ok(command)
    }

    fn command(&self, sanitizer: Sanitizer) -> Result<Command> {
        let mut command = shell::cargo(["test", "--package", self.package, "--all-features"]);
        if self.package == LIBRARY {
            command.args(LIBRARY_TESTS.iter().flat_map(|name| ["--package", name]));
        }
        command.args(&self.targets);
        build_environment(&mut command, sanitizer, &[])?;
        Ok(command)
    }

    /// Tests that are left out anyway do not run either.
    fn run(&self, sanitizer: Sanitizer) -> Result<Command> {
        let mut command = self.command(sanitizer)?;
        if self.package == C_API {
            for (variable, flags) in c::flags(sanitizer)? {
                command.env(variable, flags);
            }
            command.env("RUST_TEST_THREADS", steps::at_once().to_string());
            if sanitizer == Sanitizer::Thread {
                // ThreadSanitizer does not see that what is written to one mapping of a memory is
                // read from another, and that one comes after the other.
                command.env("IWARP_LOCAL", "off");
            }
        }
        command.arg("--");
        for test in left_out::skipped(sanitizer) {
            command.args(["--skip", test]);
        }
        for test in &self.skipped {
            command.args(["--skip", test]);
        }
        if sanitizer == Sanitizer::Thread {
            // A buffer that captures output is shared with every thread by code that is not
            // instrumented.
            command.arg("--nocapture");
        }
        let reports = match sanitizer {
            Sanitizer::Address => {
                let more = "detect_stack_use_after_return=1:handle_segv=0:handle_sigbus=0";
                ("ASAN_OPTIONS", format!("{more}:{SHORTAGE}"))
            }
            Sanitizer::Thread => {
                ("TSAN_OPTIONS", format!("{}:{SHORTAGE}", suppressions_for(self.package)?))
            }
        };
        command.env(reports.0, reports.1);
        Ok(command)
    }
}

/// Memory that cannot be had is asked for on purpose.
const SHORTAGE: &str = "allocator_may_return_null=1";

/// The option that names the reports to suppress, for the tests of `package`.
fn suppressions_for(package: &str) -> Result<String> {
    let common = include_str!("suppressions.txt");
    let memory = if [LIBRARY, C_API].contains(&package) {
        include_str!("suppressions-memory.txt")
    } else {
        ""
    };
    let dir = build_dir(Sanitizer::Thread);
    fs::create_dir_all(&dir)?;
    let file = dir.join(format!("suppressions-{package}.txt"));
    fs::write(&file, [common, memory].concat())?;
    Ok(format!("suppressions={}", file.display()))
}

/// The Rust files in `folder` of a package, without their ending: binaries of tests, or modules of
/// one.
fn test_files(package: &str, folder: &str) -> Result<Vec<String>> {
    let dir = shell::root().join("crates").join(package).join(folder);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        let is_test = path.extension().is_some_and(|extension| extension == "rs");
        if is_test && name != "main" {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Sets target, target directory and flags, `more` of them included, for a build under the
/// sanitizer. Only the target is built with them, not build scripts or procedural macros.
pub(crate) fn build_environment(
    command: &mut Command,
    sanitizer: Sanitizer,
    more: &[&str],
) -> Result<()> {
    let mut flags = vec![format!("-Zsanitizer={}", sanitizer.name())];
    let dir = build_dir(sanitizer);
    if sanitizer == Sanitizer::Thread {
        flags.extend(tsan::flags(&dir)?);
    }
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    command.args(["--target", &host()?]);
    command.env("CARGO_TARGET_DIR", dir);
    command.env("RUSTC_BOOTSTRAP", "1");
    // Reports name functions and lines.
    command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    command.env_remove("RUSTFLAGS");
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    Ok(())
}

fn build_dir(sanitizer: Sanitizer) -> PathBuf {
    shell::target_dir().join(format!("sanitizer-{}", sanitizer.name()))
}

/// The triple that the compiler builds for when it is not told.
pub(crate) fn host() -> Result<String> {
    let version = shell::output(shell::program("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

/// A library that comes with the compiler, by its name.
fn of_toolchain(is_wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let sysroot = shell::output(shell::program("rustc").args(["--print", "sysroot"]))?;
    let lib = Path::new(sysroot.trim()).join("lib/rustlib").join(host()?).join("lib");
    fs::read_dir(&lib)
        .with_context(|| format!("{}", lib.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| is_wanted(&path.file_name().unwrap_or_default().to_string_lossy()))
        .context("the toolchain lacks a library")
}

#[cfg(test)]
mod tests {
    use super::{CRATES, GATE, IN_TURN};

    #[test]
    fn each_crate_runs_under_both_sanitizers() {
        let mut under_address = [GATE, IN_TURN].concat();
        under_address.sort_unstable();
        let mut all = CRATES.to_vec();
        all.sort_unstable();
        assert_eq!(under_address, all);
    }
}
