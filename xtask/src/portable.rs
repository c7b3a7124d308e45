// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library with fewer features, for other targets, and with the oldest Rust that will do.

use anyhow::{Context, Result};

use crate::shell;
use crate::steps::Outcome;

/// Targets beside that of this machine: 32 bits, big-endian octets, another C library.
const TARGETS: &[&str] = &[
    "aarch64-unknown-linux-gnu",
    "armv7-unknown-linux-gnueabihf",
    "i686-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "s390x-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];

/// Those among them that the drop-in libraries are for.
const DROP_IN: &[&str] =
    &["aarch64-unknown-linux-gnu", "riscv64gc-unknown-linux-gnu", "s390x-unknown-linux-gnu"];

/// Crates that do without std.
const NO_STD: &[&str] = &["iwarp-types", "iwarp-proto", "iwarp-roce"];

/// Crates by themselves: in the workspace each gets the features that any other asks for.
const ALONE: &[&str] = &["iwarp-mem", "iwarp-os", "iwarp", "iwarp-conform", "iwarp-cli"];

/// Checks each crate by itself, with its default features and without.
pub(crate) fn features() -> Result<Outcome> {
    for name in NO_STD {
        shell::run(&mut shell::cargo(["check", "--package", name, "--no-default-features"]))?;
    }
    for name in NO_STD.iter().chain(ALONE) {
        shell::run(&mut shell::cargo(["check", "--package", name]))?;
    }
    shell::run(&mut shell::cargo(["check", "--package", "iwarp-sim", "--no-default-features"]))?;
    Ok(Outcome::Passed(String::new()))
}

/// Checks the library for other targets, the C interface where it is for them, and the command
/// where it has no drop-in libraries.
pub(crate) fn targets() -> Result<Outcome> {
    let add = || shell::program("rustup");
    if !shell::succeeds(add().args(["target", "add"]).args(TARGETS)) {
        return Ok(Outcome::NotRun(format!("rustup target add {}", TARGETS.join(" "))));
    }
    let check = |what: &[&str], targets: &[&str]| {
        let mut command = shell::cargo(["check"]);
        // Of its own, as each target brings builds of all dependencies.
        command.args(["--target-dir"]).arg(shell::target_dir().join("targets")).args(what);
        shell::run(command.args(targets.iter().flat_map(|target| ["--target", target])))
    };
    check(&["--package", "iwarp", "--features", "tokio"], TARGETS)?;
    check(&["--package", "iwarp-capi"], DROP_IN)?;
    check(&["--package", "iwarp-cli"], &["x86_64-unknown-linux-musl"])?;
    Ok(Outcome::Passed(format!("{} targets", TARGETS.len())))
}

/// Runs the tests of the protocol crates where the first octet of a number is its highest.
pub(crate) fn endian() -> Result<Outcome> {
    const TARGET: &str = "s390x-unknown-linux-gnu";
    let mut add = shell::program("rustup");
    if !shell::succeeds(add.args(["target", "add", TARGET])) {
        return Ok(Outcome::NotRun(format!("rustup target add {TARGET}")));
    }
    let mut test = shell::cargo(["test", "--target", TARGET]);
    test.arg("--target-dir").arg(shell::target_dir().join("targets"));
    test.args(NO_STD.iter().flat_map(|name| ["--package", name])).args(["--lib", "--tests"]);
    test.env("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_LINKER", "s390x-linux-gnu-gcc");
    test.env("CARGO_TARGET_S390X_UNKNOWN_LINUX_GNU_RUNNER", "qemu-s390x-static");
    test.env("QEMU_LD_PREFIX", "/usr/s390x-linux-gnu");
    let tally = shell::run_counted(&mut test)?;
    Ok(Outcome::Passed(format!("{} tests passed", tally.passed)))
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
    check.args(["run", &toolchain, "cargo", "check", "--package", "iwarp", "--features", "tokio"]);
    shell::run(check.arg("--target-dir").arg(shell::target_dir().join("oldest")))?;
    Ok(Outcome::Passed(format!("Rust {version}")))
}
