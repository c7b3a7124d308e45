//! `cargo xtask dist`: what users install.

mod deb;
mod layout;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

pub(crate) use layout::{build, stage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to put it
    #[arg(long, value_name = "DIRECTORY", default_value = "dist")]
    to: PathBuf,
}

/// Makes the tarball and the Debian package, and tries both.
pub(crate) fn run(args: &Args) -> Result<()> {
    make(&shell::root().join(&args.to)).map(|_| ())
}

/// Makes both in `directory`, tries them, and says what was made.
pub(crate) fn make(directory: &Path) -> Result<String> {
    fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))?;
    let work = shell::target_dir().join("dist");
    clear(&work)?;
    let name = format!("iwarp-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let prefix = work.join(&name);
    build()?;
    stage(&prefix)?;

    let tarball = directory.join(format!("{name}.tar.gz"));
    pack(&work, &name, &tarball)?;
    let unpacked = work.join("unpacked");
    fs::create_dir(&unpacked)?;
    shell::run(shell::program("tar").arg("-xzf").arg(&tarball).arg("-C").arg(&unpacked))?;
    attempt(&unpacked.join(&name).join("bin/iwarp"))?;

    let package = deb::pack(&prefix, &work, directory)?;
    let installed = work.join("installed");
    shell::run(shell::program("dpkg-deb").arg("--extract").arg(&package).arg(&installed))?;
    attempt(&installed.join("usr/bin/iwarp"))?;

    let mut made = Vec::new();
    for file in [tarball, package] {
        let size = fs::metadata(&file)?.len() as f64 / 1e6;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        made.push(format!("{name} ({size:.1} MB)"));
    }
    Ok(made.join(", "))
}

/// An empty directory.
fn clear(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))
}

/// Packs the tree so that equal files give equal octets, on any machine and day.
fn pack(work: &Path, name: &str, tarball: &Path) -> Result<()> {
    let mut tar = shell::program("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"]);
    tar.arg("--use-compress-program=gzip -n -9").arg("-cf").arg(tarball);
    shell::run(tar.arg("-C").arg(work).arg(name))
}

/// Runs one unmodified program from what was unpacked.
fn attempt(iwarp: &Path) -> Result<()> {
    if !shell::exists("ibv_devices") {
        bail!("to try what was made: apt-get install --no-install-recommends ibverbs-utils");
    }
    let mut command = shell::program(iwarp);
    let text = shell::output(command.args(["run", "--", "ibv_devices"]))?;
    ensure!(text.contains("roce0"), "ibv_devices does not see the device:\n{text}");
    Ok(())
}
