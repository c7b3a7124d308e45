// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tarball for any Linux: the command alone, linked with musl, which needs no library.
//!
//! The drop-in libraries are not in it: programs of the system load them, so they belong to the
//! system's C library. `iwarp run` says so there; all else is as in the other packages.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use super::{layout, unpack};
use crate::shell;

/// Rust brings musl along for it. The other packages are for the kind of machine that makes them,
/// and so is this one: elsewhere none is made.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Runs the command where nothing else is, but for what the kernel shows in every container.
const ALONE: &str = "mount --rbind /proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" \
    && exec chroot \"$0\" /bin/iwarp demo --size 64KiB";

/// Builds it, packs it into `to`, and tries it.
pub(super) fn make(work: &Path, to: &Path, epoch: u64) -> Result<Option<PathBuf>> {
    if !TARGET.starts_with(std::env::consts::ARCH) {
        return Ok(None);
    }
    let iwarp = build()?;
    // No `iwarp-*`: by that the recipes of docs/ci.md find the tarball with the libraries.
    let name = format!("iwarp_{}_{}_static", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    layout::stage_standalone(&work.join(&name), &iwarp, TARGET)?;
    let tarball = to.join(format!("{name}.tar.gz"));
    super::pack(work, &name, &tarball, epoch)?;
    let unpacked = work.join("unpacked-static");
    unpack(&tarball, &unpacked)?;
    attempt(&unpacked.join(&name))?;
    Ok(Some(tarball))
}

fn build() -> Result<PathBuf> {
    let add = ["target", "add", TARGET];
    if !shell::succeeds(shell::program("rustup").args(add)) {
        bail!("for the static tarball: rustup {}", add.join(" "));
    }
    let folder = shell::target_dir().join("targets");
    let mut build = shell::cargo(["build", "--release", "--package", "iwarp-cli"]);
    shell::run(build.args(["--target", TARGET, "--target-dir"]).arg(&folder))?;
    Ok(folder.join(TARGET).join("release/iwarp"))
}

/// Runs the demo with the unpacked folder as the root of the file system.
fn attempt(root: &Path) -> Result<()> {
    let dynamic =
        shell::output(shell::program("readelf").arg("--dynamic").arg(root.join("bin/iwarp")))?;
    ensure!(!dynamic.contains("(NEEDED)"), "the static command needs libraries:\n{dynamic}");
    for folder in ["proc", "dev"] {
        std::fs::create_dir(root.join(folder))?;
    }
    let mut alone = shell::program("unshare");
    alone.args(["--user", "--map-root-user", "--mount", "sh", "-c", ALONE]).arg(root);
    let text = shell::output(&mut alone)?;
    ensure!(text.contains("Every result was verified."), "the static command's demo:\n{text}");
    Ok(())
}
