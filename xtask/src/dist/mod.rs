// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask dist`: the files that users install.

mod date;
mod deb;
mod layout;
mod licences;
mod rpm;
mod standalone;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

pub(crate) use layout::{Build, stage};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to put it
    #[arg(long, value_name = "DIRECTORY", default_value = "dist")]
    to: PathBuf,
}

/// Makes all that is shipped, and tries it.
pub(crate) fn run(args: &Args) -> Result<()> {
    make_all(&shell::root().join(&args.to)).map(|_| ())
}

/// Makes the tarballs and the packages in `directory`, tries them, and says what was made.
pub(crate) fn make_all(directory: &Path) -> Result<String> {
    let mut made = make_files(directory)?;
    made.extend(standalone::make(&work(), directory, date::epoch()?)?);
    described(&made)
}

/// The same without the static tarball, whose build takes long.
pub(crate) fn make(directory: &Path) -> Result<String> {
    described(&make_files(directory)?)
}

/// Folder of this module.
fn work() -> PathBuf {
    shell::target_dir().join("dist")
}

fn make_files(directory: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))?;
    let work = work();
    clear(&work)?;
    let name = format!("iwarp-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let prefix = work.join(&name);
    Build::Release.make()?;
    stage(&prefix, Build::Release)?;

    let tarball = directory.join(format!("{name}.tar.gz"));
    let epoch = date::epoch()?;
    pack(&work, &name, &tarball, epoch)?;
    let unpacked = work.join("unpacked");
    unpack(&tarball, &unpacked)?;
    attempt(&unpacked.join(&name).join("bin/iwarp"))?;

    let package = deb::pack(&prefix, &work, directory, epoch)?;
    let installed = work.join("installed");
    shell::run(shell::program("dpkg-deb").arg("--extract").arg(&package).arg(&installed))?;
    attempt(&installed.join("usr/bin/iwarp"))?;

    let rpm = rpm::pack(&prefix, directory, epoch)?;
    let unpacked = work.join("unpacked-rpm");
    rpm::unpack(&rpm, &unpacked)?;
    attempt(&unpacked.join("usr/bin/iwarp"))?;

    let symbols = deb::pack_symbols(&prefix, &work, directory, epoch)?;
    Ok(vec![tarball, package, symbols, rpm])
}

/// The names and sizes of files.
fn described(files: &[PathBuf]) -> Result<String> {
    let described = files.iter().map(|file| {
        let size = fs::metadata(file)?.len() as f64 / 1e6;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(format!("{name} ({size:.1} MB)"))
    });
    Ok(described.collect::<Result<Vec<_>>>()?.join(", "))
}

/// An empty directory.
fn clear(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))
}

/// Packs the tree so that equal files give equal bytes, on any machine and day.
fn pack(work: &Path, name: &str, tarball: &Path, epoch: u64) -> Result<()> {
    let mut tar = shell::program("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{epoch}"));
    tar.arg("--use-compress-program=gzip -n -9").arg("-cf").arg(tarball);
    shell::run(tar.arg("-C").arg(work).arg(name))
}

/// Unpacks a tarball into a new folder.
fn unpack(tarball: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    shell::run(shell::program("tar").arg("-xzf").arg(tarball).arg("-C").arg(to))
}

/// Runs one unmodified program from what was unpacked.
fn attempt(iwarp: &Path) -> Result<()> {
    if !shell::exists("ibv_devices") {
        bail!("to try what was made: apt-get install --no-install-recommends ibverbs-utils");
    }
    let mut command = shell::program(iwarp);
    let text = shell::output(command.args(["run", "--", "ibv_devices"]))?;
    ensure!(text.contains("roce0"), "ibv_devices does not see the device:\n{text}");
    for personality in ["roce", "iwarp"] {
        compare(iwarp, personality)?;
    }
    Ok(())
}

/// Looks whether `iwarp devinfo -v` shows all that ibv_devinfo does on the libraries.
fn compare(iwarp: &Path, personality: &str) -> Result<()> {
    let shown = |arguments: &[&str]| -> Result<Vec<String>> {
        let mut command = shell::program(iwarp);
        let text = shell::output(command.env("IWARP_PERSONALITY", personality).args(arguments))?;
        // Space is a matter of taste, and so is the start of a row and how IPv6 is written.
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        Ok(text.lines().map(words).filter(|line| !line.is_empty()).collect())
    };
    let ours = shown(&["devinfo", "-v"])?;
    let theirs = shown(&["run", "--", "ibv_devinfo", "-v"])?;
    for line in theirs.iter().filter(|line| !UNKNOWN.iter().any(|start| line.starts_with(start))) {
        ensure!(
            ours.iter().any(|own| own == line),
            "ibv_devinfo shows {line:?}, and iwarp devinfo does not:\n{}",
            ours.join("\n")
        );
    }
    Ok(())
}

/// Rows of ibv_devinfo about what no device of this kind has, and those of GIDs, which are written
/// in more than one way.
const UNKNOWN: [&str; 15] = [
    "GID[",
    "completion_timestamp_mask",
    "core clock",
    "device_cap_flags_ex",
    "tso_caps",
    "max_tso",
    "rss_caps",
    "max_rwq_",
    "rx_hash_",
    "max_wq_type_rq",
    "packet_pacing_caps",
    "qp_rate_limit_",
    "tag matching",
    "maximum available device memory",
    "max_dm_size",
];
