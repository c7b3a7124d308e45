// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counting one case.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{messages, shell};

/// The function of the bench in which instructions count.
const MEASURED: &str = "instructions::measured*";

/// Each case is run so many times, and so many: what happens once is in both, and cancels.
const FEW: u64 = 200;
const MANY: u64 = 1_200;

/// The median of so many is taken where the worker's thread may come in between.
const ROUNDS: usize = 5;

/// glibc's `memcpy` would move blocks by `rep movsb`, which callgrind counts byte by byte.
const TUNABLES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS");

/// The built bench.
pub(super) struct Bench {
    program: PathBuf,
}

impl Bench {
    pub(super) fn build() -> Result<Self> {
        let mut cargo = shell::cargo([
            "bench",
            "--no-run",
            "--profile=instructions",
            "--package=iwarp-tests",
            "--bench=instructions",
        ]);
        let program = messages::built(&mut cargo)?.pop().context("cargo built no bench")?;
        Ok(Self { program })
    }

    pub(super) fn cases(&self) -> Result<Vec<String>> {
        let list = shell::output(shell::program(&self.program).arg("--list"))?;
        Ok(list.lines().map(str::to_owned).collect())
    }

    /// Instructions of one iteration.
    pub(super) fn count(&self, case: &str) -> Result<f64> {
        let has_worker = ["_tcp", "_rings"].into_iter().any(|path| case.contains(path));
        let rounds = if has_worker { ROUNDS } else { 1 };
        let mut counts = (0..rounds).map(|_| self.count_once(case)).collect::<Result<Vec<_>>>()?;
        counts.sort_by(f64::total_cmp);
        Ok(counts[rounds / 2])
    }

    fn count_once(&self, case: &str) -> Result<f64> {
        let few = self.start(case, FEW)?;
        let many = self.start(case, MANY)?;
        let (few, many) = (few.total(), many.total());
        let (few, many) = (few?, many?);
        ensure!(many > few, "{case}: {MEASURED} was not entered, or is known by another name");
        Ok((many - few) as f64 / (MANY - FEW) as f64)
    }

    fn start(&self, case: &str, iterations: u64) -> Result<Run> {
        let what = format!("{case} {iterations}");
        let out = shell::target_dir().join(format!("callgrind-{case}-{iterations}"));
        let log = out.with_extension("log");
        let mut command = shell::program("valgrind");
        command.args(["--quiet", "--tool=callgrind"]);
        command.arg(format!("--log-file={}", log.display()));
        command.arg(format!("--toggle-collect={MEASURED}"));
        command.arg(format!("--callgrind-out-file={}", out.display()));
        command.arg(&self.program).args([case, &iterations.to_string()]);
        command.env(TUNABLES.0, TUNABLES.1).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start valgrind")?;
        Ok(Run { what, child, out, log })
    }
}

struct Run {
    what: String,
    child: Child,
    out: PathBuf,
    /// The output of valgrind; it grumbles at system calls that are newer than itself.
    log: PathBuf,
}

impl Run {
    /// Waits for the end and reads what was counted.
    fn total(mut self) -> Result<u64> {
        let status = self.child.wait()?;
        if !status.success() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!("{} under valgrind: {status}\n{log}", self.what);
        }
        let text = fs::read_to_string(&self.out).context("callgrind wrote nothing")?;
        for file in [&self.out, &self.log] {
            fs::remove_file(file)?;
        }
        let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
        total.and_then(|n| n.trim().parse().ok()).context("no total in what callgrind wrote")
    }
}

/// The tools that decide count beside the source.
pub(super) fn made_with() -> Result<String> {
    let rustc = shell::output(shell::program("rustc").arg("-vV"))?;
    let version = rustc.lines().next().context("rustc has no version")?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("?");
    // Musl has none, and its memcpy is another.
    let libc = shell::output(shell::program("getconf").arg("GNU_LIBC_VERSION"));
    let libc = libc.unwrap_or_else(|_| "no glibc".to_owned());
    Ok(format!("{version}, {host}, {}, {}", libc.trim(), processor()))
}

/// The features by which code chooses at run time. Valgrind shows no processor with more than AVX2.
fn processor() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    return match std::arch::is_x86_feature_detected!("avx2") {
        true => "AVX2",
        false => "no AVX2",
    };
    #[cfg(not(target_arch = "x86_64"))]
    "any processor"
}
