// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library with fewer features, for other targets, and with the oldest Rust that will do.

use std::process::Command;

use anyhow::{Context, Result};

use crate::apart;
use crate::shell;
use crate::steps::{Outcome, counted};

/// Targets beside that of this machine: 32 bits, big-endian bytes, another C library.
const TARGETS: &[&str] = &[
    "aarch64-unknown-linux-gnu",
    "armv7-unknown-linux-gnueabihf",
    "i686-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "s390x-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];

/// The targets among them that the drop-in libraries are for.
const DROP_IN: &[&str] =
    &["aarch64-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu", "s390x-unknown-linux-gnu"];

/// Crates that do without std.
const NO_STD: &[&str] = &["iwarp-crc", "iwarp-types", "iwarp-proto", "iwarp-roce", "iwarp-sockets"];

/// The features that sessions can be had with, one by one.
const OPTIONAL: &[&str] = &["metrics", "serde", "tokio", "zerocopy"];

/// Packages and features that are checked together; in the whole workspace each crate gets the
/// features that any other asks for. Each optional feature is on in one of the last two and off in
/// the other. The step `e2e` builds the command by itself, `fuzz` the simulator without its
/// command.
const FEATURES: [(&[&str], &[&str]); 4] = [
    (NO_STD, &["--no-default-features"]),
    (&["iwarp-crc", "iwarp-types", "iwarp-mem", "iwarp-os", "iwarp", "iwarp-session"], &[]),
    (
        &["iwarp-session", "iwarp-conform"],
        &["--features", "iwarp-session/metrics,iwarp-session/serde"],
    ),
    (&["iwarp-session"], &["--features", "iwarp-session/tokio,iwarp-session/zerocopy"]),
];

/// Checks the crates outside of the workspace's common set of features.
pub(crate) fn features() -> Result<Outcome> {
    for (packages, features) in FEATURES {
        let mut check = shell::cargo(["check"]);
        check.args(packages.iter().flat_map(|name| ["--package", name]));
        shell::run(check.args(features))?;
    }
    Ok(Outcome::Passed(String::new()))
}

/// Checks the library for other targets, the C interface where it is for them, and the command
/// where it has no drop-in libraries.
pub(crate) fn targets() -> Result<Outcome> {
    if let Some(not_run) = add(TARGETS) {
        return Ok(not_run);
    }
    let check = |what: &[&str], targets: &[&str]| {
        let mut command = shell::cargo(["check"]);
        // Of its own, as each target brings builds of all dependencies.
        command.args(["--target-dir"]).arg(shell::target_dir().join("targets")).args(what);
        shell::run(command.args(targets.iter().flat_map(|target| ["--target", target])))
    };
    check(&["--package", "iwarp-session", "--features", &OPTIONAL.join(",")], TARGETS)?;
    check(&["--package", "iwarp-capi"], DROP_IN)?;
    check(&["--package", "iwarp-cli"], &["x86_64-unknown-linux-musl"])?;
    Ok(Outcome::Passed(format!("{} targets", TARGETS.len())))
}

/// Runs the tests of the protocol crates on a processor with the highest byte of a number first,
/// for which qemu's user mode stands in. AArch64 has the width and the order of x86-64, so its
/// tests would find nothing that `test` does not; the step `targets` compiles for it.
pub(crate) fn emulated() -> Result<Outcome> {
    const TARGET: &str = "s390x-unknown-linux-gnu";
    if let Some(not_run) = add(&[TARGET]) {
        return Ok(not_run);
    }
    let mut test = test_for(TARGET);
    test.args(NO_STD.iter().flat_map(|name| ["--package", name])).args(["--lib", "--tests"]);
    test.env("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER", "s390x-linux-gnu-gcc");
    test.env("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER", "qemu-s390x-static");
    test.env("QEMU_LD_PREFIX", "/usr/s390x-linux-gnu");
    counted(shell::run_counted(&mut test)?)
}

/// Runs the tests of the library with another C library.
pub(crate) fn musl() -> Result<Outcome> {
    const TARGET: &str = "x86_64-unknown-linux-musl";
    if let Some(not_run) = add(&[TARGET]) {
        return Ok(not_run);
    }
    let mut test = test_for(TARGET);
    let names = ["iwarp-mem", "iwarp-os", "iwarp", "iwarp-session"];
    test.args(NO_STD.iter().chain(&names).flat_map(|name| ["--package", name])).arg("--lib");
    test.args(["--features", "iwarp-session/tokio"]);
    counted(shell::run_counted(&mut apart::built(&test)?)?)
}

/// Adds what Rust needs for `targets`, or says what could not be done.
fn add(targets: &[&str]) -> Option<Outcome> {
    let mut add = shell::program("rustup");
    let added = shell::succeeds(add.args(["target", "add"]).args(targets));
    (!added).then(|| Outcome::NotRun(format!("rustup target add {}", targets.join(" "))))
}

/// `cargo test` for another target, in a folder of its own: each brings builds of all
/// dependencies.
fn test_for(target: &str) -> Command {
    let mut test = shell::cargo(["test", "--target", target]);
    test.arg("--target-dir").arg(shell::target_dir().join("targets"));
    test
}

/// Checks the library with the Rust that the manifest names.
pub(crate) fn oldest() -> Result<Outcome> {
    let manifest = std::fs::read_to_string(shell::root().join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "));
    let version = version.context("Cargo.toml says no rust-version")?.trim_matches('"');
    let toolchain = format!("{version}.0");
    let install = ["toolchain", "install", "--profile", "minimal", "--no-self-update", &toolchain];
    if !shell::succeeds(shell::program("rustup").args(install)) {
        return Ok(Outcome::NotRun(format!("rustup {}", install.join(" "))));
    }
    let mut check = shell::program("rustup");
    check.args(["run", &toolchain, "cargo", "check", "--package", "iwarp-session", "--features"]);
    check.arg(OPTIONAL.join(","));
    shell::run(check.arg("--target-dir").arg(shell::target_dir().join("oldest")))?;
    Ok(Outcome::Passed(format!("Rust {version}")))
}
