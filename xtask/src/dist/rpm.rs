// SPDX-License-Identifier: MIT OR Apache-2.0

//! The RPM package: the files of the tarball below /usr.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};

use super::deb;
use crate::shell;

/// Folders in which Debian and the distributions of RPM packages differ.
const ELSEWHERE: &[(&str, &str)] = &[("share/zsh/vendor-completions", "share/zsh/site-functions")];

/// Packs what was staged at `prefix`; returns the package, in `to`. `epoch` is its date.
pub(super) fn pack(prefix: &Path, to: &Path, epoch: u64) -> Result<PathBuf> {
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let date = u32::try_from(epoch).context("a date that RPM packages can carry")?;
    let summary = "RDMA over plain TCP, without an RDMA device";
    let licence = env!("CARGO_PKG_LICENSE");
    let mut package = PackageBuilder::new("iwarp", version, licence, architecture, summary);
    let glibc = format!("libc.so.6(GLIBC_{})(64bit)", deb::glibc(prefix)?);
    package
        .using_config(BuildConfig::v4().compression(CompressionType::Gzip).source_date(date))
        // Not the name of the machine.
        .build_host("localhost")
        .packager(deb::maintainer())
        .description(
            "The iWARP protocol suite in user space: no RDMA card, no kernel module, no root.\n\
             \"iwarp run PROGRAM\" runs unmodified RDMA programs on libibverbs.so.1 and\n\
             librdmacm.so.1 of its own, which stay in a private directory.",
        )
        .requires(Dependency::any(glibc))
        .requires(Dependency::any("libgcc_s.so.1()(64bit)"))
        .suggests(Dependency::any("libibverbs-utils"))
        .suggests(Dependency::any("librdmacm-utils"))
        .suggests(Dependency::any("perftest"));
    for (from, to) in ELSEWHERE {
        ensure!(prefix.join(from).is_dir(), "no {from}, which is to become {to}");
    }
    add(&mut package, prefix, Path::new(""))?;
    let file = to.join(format!("iwarp-{version}-1.{architecture}.rpm"));
    package.build()?.write_file(&file)?;
    Ok(file)
}

/// Adds what is in a folder below `prefix`.
fn add(package: &mut PackageBuilder, prefix: &Path, folder: &Path) -> Result<()> {
    let directory = prefix.join(folder);
    let mut entries = fs::read_dir(&directory)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("{}", directory.display()))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let below = folder.join(entry.file_name());
        let kind = entry.file_type()?;
        let installed = installed(&below);
        if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            package.with_symlink(FileOptions::symlink(installed, target.to_string_lossy()))?;
        } else if kind.is_dir() {
            // Others belong to the system.
            if below.ends_with("iwarp") {
                package.with_dir_entry(FileOptions::dir(installed))?;
            }
            add(package, prefix, &below)?;
        } else {
            let options = FileOptions::new(installed);
            let is_document = below.starts_with("share/doc") || below.starts_with("share/man");
            let options = if is_document { options.doc() } else { options };
            package.with_file(entry.path(), options)?;
        }
    }
    Ok(())
}

fn installed(below: &Path) -> String {
    let moved = ELSEWHERE.iter().find_map(|(from, to)| {
        let rest = below.strip_prefix(from).ok()?;
        Some(Path::new(to).join(rest))
    });
    format!("/usr/{}", moved.as_deref().unwrap_or(below).display())
}

/// Has RPM's own tools check the package and unpack it into `to`.
pub(super) fn unpack(package: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    shell::run(shell::program("rpm").args(["--checksig", "--nosignature"]).arg(package))?;
    let mut unpack = shell::program("sh");
    unpack.args(["-c", "rpm2cpio \"$1\" | cpio --extract --make-directories --quiet", "sh"]);
    shell::run(unpack.arg(package).current_dir(to))
}
