// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask dist`: the files that users install.

mod date;
mod deb;
mod layout;
mod licences;
mod product;
mod rpm;
mod standalone;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::shell;

pub(crate) use layout::{Build, stage};
pub(crate) use product::Product;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder to put it in
    #[arg(long, value_name = "DIRECTORY", default_value = "dist")]
    to: PathBuf,
    /// Only these
    #[arg(long, value_delimiter = ',', value_name = "PRODUCT")]
    only: Vec<Product>,
    /// Do not unpack and run them, which needs more programs: ibv_devices, and RPM's tools
    #[arg(long)]
    untried: bool,
}

/// Makes what is shipped, and tries it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let products = if args.only.is_empty() { Product::ALL } else { &args.only };
    println!("{}", make(&shell::root().join(&args.to), products, !args.untried)?);
    Ok(())
}

/// Makes `products` in `directory`, tries them if `tried`, and says what was made.
///
/// # Errors
///
/// Before anything is built, if a program is missing that this needs.
pub(crate) fn make(directory: &Path, products: &[Product], tried: bool) -> Result<String> {
    product::ensure_tools(products, tried)?;
    fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))?;
    let work = shell::target_dir().join("dist");
    clear(&work)?;
    let name = format!("iwarp-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let epoch = date::epoch()?;
    let prefix = work.join(&name);
    if products.iter().any(|product| *product != Product::Static) {
        Build::Release.make()?;
        stage(&prefix, Build::Release)?;
    }

    let mut made = Vec::new();
    if products.contains(&Product::Tarball) {
        let tarball = directory.join(format!("{name}.tar.gz"));
        pack(&work, &name, &tarball, epoch)?;
        if tried {
            let unpacked = work.join("unpacked");
            unpack(&tarball, &unpacked)?;
            attempt(&unpacked.join(&name).join("bin/iwarp"))?;
        }
        made.push(tarball);
    }
    if products.contains(&Product::Deb) {
        let package = deb::pack(&prefix, &work, directory, epoch)?;
        if tried {
            let installed = work.join("installed");
            let mut extract = shell::program("dpkg-deb");
            shell::run(extract.arg("--extract").arg(&package).arg(&installed))?;
            attempt(&installed.join("usr/bin/iwarp"))?;
        }
        made.extend([package, deb::pack_symbols(&prefix, &work, directory, epoch)?]);
    }
    if products.contains(&Product::Rpm) {
        let rpm = rpm::pack(&prefix, directory, epoch)?;
        if tried {
            let unpacked = work.join("unpacked-rpm");
            rpm::unpack(&rpm, &unpacked)?;
            attempt(&unpacked.join("usr/bin/iwarp"))?;
        }
        made.push(rpm);
    }
    if products.contains(&Product::Static) {
        made.extend(standalone::make(&work, directory, epoch, tried)?);
    }
    let mut said = described(&made)?;
    if prefix.exists() {
        // A packager who builds on a newer system than the one that runs it reads it here first.
        said += &format!("; for glibc {} and later", deb::glibc(&prefix)?);
    }
    Ok(said)
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
