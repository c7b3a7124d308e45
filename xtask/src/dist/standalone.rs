// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tarball for any Linux: the command alone, linked with musl, which needs no library.
//!
//! The drop-in libraries are not in it: programs of the system load them, so they belong to the
//! system's C library. `iwarp run` says so there; all else is as in the other packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use super::{layout, unpack};
use crate::shell;

/// Rust brings musl along for it. The other packages are for the kind of machine that makes them,
/// and so is this one: elsewhere none is made.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Runs the command alone, but for what the kernel shows in every container.
const ALONE: &str = "mount --rbind /proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" \
    && exec chroot \"$0\" /bin/iwarp demo --size 64KiB";

/// Builds it, packs it into `to`, and tries it if `tried`.
pub(super) fn make(work: &Path, to: &Path, epoch: u64, tried: bool) -> Result<Option<PathBuf>> {
    if !TARGET.starts_with(std::env::consts::ARCH) {
        return Ok(None);
    }
    let iwarp = build()?;
    // No `iwarp-*`: by that the recipes of docs/ci.md find the tarball with the libraries.
    let name = format!("iwarp_{}_{}_static", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    layout::stage_standalone(&work.join(&name), &iwarp, TARGET)?;
    let tarball = to.join(format!("{name}.tar.gz"));
    super::pack(work, &name, &tarball, epoch)?;
    if tried {
        let unpacked = work.join("unpacked-static");
        unpack(&tarball, &unpacked)?;
        attempt(&unpacked.join(&name))?;
    }
    Ok(Some(tarball))
}

/// Adds what Rust needs for it.
///
/// # Errors
///
/// When that is neither here nor to be had.
pub(super) fn ensure_target() -> Result<()> {
    let add = ["target", "add", TARGET];
    if TARGET.starts_with(std::env::consts::ARCH)
        && !has_target()
        && !shell::succeeds(shell::program("rustup").args(add))
    {
        bail!("for the static tarball: rustup {}, or --only tarball,deb,rpm", add.join(" "));
    }
    Ok(())
}

/// Rust of a distribution has its targets without rustup.
fn has_target() -> bool {
    let mut rustc = shell::program("rustc");
    rustc.args(["--print", "target-libdir", "--target", TARGET]);
    shell::output(&mut rustc).is_ok_and(|folder| Path::new(folder.trim()).is_dir())
}

fn build() -> Result<PathBuf> {
    let folder = shell::target_dir().join("targets");
    let mut build = shell::cargo(["build", "--release", "--package", "iwarp-cli"]);
    shell::run(build.args(["--target", TARGET, "--target-dir"]).arg(&folder))?;
    Ok(folder.join(TARGET).join("release/iwarp"))
}

/// Runs the demo with the unpacked folder as the root of the file system where that is allowed,
/// and otherwise from that folder.
fn attempt(root: &Path) -> Result<()> {
    let dynamic =
        shell::output(shell::program("readelf").arg("--dynamic").arg(root.join("bin/iwarp")))?;
    ensure!(!dynamic.contains("(NEEDED)"), "the static command needs libraries:\n{dynamic}");
    for folder in ["proc", "dev"] {
        std::fs::create_dir(root.join(folder))?;
    }
    let text = match namespaces() {
        Some(mut alone) => shell::output(alone.args(["sh", "-c", ALONE]).arg(root))?,
        None => {
            println!("no namespaces here: the static command is tried beside the system's files");
            let mut demo = shell::program(root.join("bin/iwarp"));
            shell::output(demo.args(["demo", "--size", "64KiB"]))?
        }
    };
    ensure!(text.contains("Every result was verified."), "the static command's demo:\n{text}");
    Ok(())
}

/// The command that runs another in mounts of its own, by the caller's rights or those of a user
/// namespace: a container forbids the one, Ubuntu 24.04 the other.
fn namespaces() -> Option<Command> {
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    ways.into_iter().find_map(|way| {
        let unshare = || {
            let mut unshare = shell::program("unshare");
            unshare.args(way);
            unshare
        };
        let mut probe = unshare();
        probe.args(["mount", "-t", "tmpfs", "none", "/tmp"]).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success()).then(unshare)
    })
}
