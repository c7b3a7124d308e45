//! The Debian package: the same files below /usr, with the libraries in a directory of their own,
//! so that rdma-core's stay the system's.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// Packs what was staged at `prefix`; returns the package, in `to`.
pub(super) fn pack(prefix: &Path, work: &Path, to: &Path) -> Result<PathBuf> {
    let root = work.join("deb");
    fs::create_dir_all(root.join("DEBIAN"))?;
    shell::run(shell::program("cp").arg("-a").arg(prefix).arg(root.join("usr")))?;
    let doc = root.join("usr/share/doc/iwarp");
    fs::write(doc.join("copyright"), copyright()?)?;

    let architecture = shell::output(shell::program("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let version = env!("CARGO_PKG_VERSION");
    let glibc = glibc(&root.join("usr"))?;
    let control = format!(
        "Package: iwarp\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The iwarp authors <iwarp@localhost>\n\
         Section: net\n\
         Priority: optional\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\n\
         Suggests: ibverbs-utils, rdmacm-utils, perftest\n\
         Description: RDMA over plain TCP, without an RDMA device\n \
         The iWARP protocol suite in user space: no RDMA card, no kernel module, no root.\n \
         `iwarp run PROGRAM` runs unmodified RDMA programs on libibverbs.so.1 and\n \
         librdmacm.so.1 of its own, which stay in a private directory.\n"
    );
    fs::write(root.join("DEBIAN/control"), control)?;
    let package = to.join(format!("iwarp_{version}_{architecture}.deb"));
    let mut dpkg = shell::program("dpkg-deb");
    // Dates that do not depend on when it is built.
    dpkg.env("SOURCE_DATE_EPOCH", "0").args(["--root-owner-group", "-Zxz", "--build"]);
    shell::run(dpkg.arg(&root).arg(&package))?;
    Ok(package)
}

fn copyright() -> Result<String> {
    let mit = fs::read_to_string(shell::root().join("LICENSE-MIT")).context("LICENSE-MIT")?;
    Ok(format!(
        "Licensed under the Apache License 2.0 (/usr/share/common-licenses/Apache-2.0) or, at\n\
         your option, the MIT license:\n\n{mit}"
    ))
}

/// The newest version of glibc that one of the files asks for.
fn glibc(usr: &Path) -> Result<String> {
    let mut readelf = shell::program("readelf");
    readelf.args(["--version-info", "--wide"]).arg(usr.join("bin/iwarp"));
    for name in ["libibverbs.so.1", "librdmacm.so.1", "libiwarp-preload.so", "libiwarp-audit.so"] {
        readelf.arg(usr.join("lib/iwarp").join(name));
    }
    let text = shell::output(&mut readelf)?;
    newest_glibc(&text).context("no file asks for any version of glibc")
}

fn newest_glibc(versions: &str) -> Option<String> {
    let asked = versions.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let numbers = asked.filter_map(|version| {
        let (major, minor) = version.split_once('.')?;
        let minor = minor.split('.').next()?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    numbers.max().map(|(major, minor)| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::newest_glibc;

    #[test]
    fn the_newest_version_counts_by_number() {
        let text = "Name: GLIBC_2.4  Flags: none\n Name: GLIBC_2.34\nName: GLIBC_2.2.5 x";
        assert_eq!(newest_glibc(text).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("GCC_3.0"), None);
    }
}
