// SPDX-License-Identifier: MIT OR Apache-2.0

//! The Debian package: the same files below /usr, with the libraries in a directory of their own,
//! so that rdma-core's stay the system's.
//!
//! (Considered: `cargo-deb`. Building it takes 88 s of CPU time and a C compiler on each fresh
//! machine. The files are laid out for the tarball anyway, and `dpkg-deb` packs them.)

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::date;
use super::layout::Build;
use crate::shell;

/// The findings of lintian that are meant so.
const OVERRIDES: &str = "\
# It is in a namespace of its own, where each library that it needed would be loaded once more.
iwarp: shared-library-lacks-prerequisites [usr/lib/iwarp/libiwarp-audit.so]
";

/// The maintainer of the package: Debian's own variables say it (debchange(1)).
pub(super) fn maintainer() -> String {
    let or = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let name = or("DEBFULLNAME", "The iwarp developers");
    format!("{name} <{}>", or("DEBEMAIL", "iwarp@lists.example.org"))
}

/// Packs what was staged at `prefix`; returns the package, in `to`. `epoch` is its date.
pub(super) fn pack(prefix: &Path, work: &Path, to: &Path, epoch: u64) -> Result<PathBuf> {
    let root = work.join("deb");
    fs::create_dir_all(root.join("DEBIAN"))?;
    shell::run(shell::program("cp").arg("-a").arg(prefix).arg(root.join("usr")))?;
    arrange(&root.join("usr/share"), epoch)?;

    let architecture = shell::output(shell::program("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let version = env!("CARGO_PKG_VERSION");
    let glibc = glibc(&root.join("usr"))?;
    let maintainer = maintainer();
    let size = installed_size(&root)?;
    let control = format!(
        "Package: iwarp\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: {maintainer}\n\
         Installed-Size: {size}\n\
         Section: net\n\
         Priority: optional\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\n\
         Suggests: ibverbs-utils, rdmacm-utils, perftest\n\
         Description: RDMA over plain TCP, without an RDMA device\n \
         The iWARP protocol suite in user space: no RDMA card, no kernel module, no\n \
         root. \"iwarp run PROGRAM\" runs unmodified RDMA programs on libibverbs.so.1\n \
         and librdmacm.so.1 of its own, which stay in a private directory.\n"
    );
    build(&root, &control, to.join(format!("iwarp_{version}_{architecture}.deb")), epoch)
}

/// Packs the symbols that [`pack`]'s files were stripped of, where debuggers look for them.
pub(super) fn pack_symbols(prefix: &Path, work: &Path, to: &Path, epoch: u64) -> Result<PathBuf> {
    let root = work.join("deb-dbgsym");
    fs::create_dir_all(root.join("DEBIAN"))?;
    let built = Build::Release.folder();
    let mut ids = Vec::new();
    for (shipped, whole) in [
        ("bin/iwarp", "iwarp"),
        ("lib/iwarp/libibverbs.so.1", "deps/libibverbs.so"),
        ("lib/iwarp/librdmacm.so.1", "deps/librdmacm.so"),
    ] {
        let id = build_id(&prefix.join(shipped))?;
        let folder = root.join("usr/lib/debug/.build-id").join(&id[..2]);
        fs::create_dir_all(&folder)?;
        let mut objcopy = shell::program("objcopy");
        objcopy.args(["--only-keep-debug", "--compress-debug-sections"]);
        let file = folder.join(format!("{}.debug", &id[2..]));
        shell::run(objcopy.arg(built.join(whole)).arg(&file))?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        ids.push(id);
    }
    let doc = root.join("usr/share/doc");
    fs::create_dir_all(&doc)?;
    std::os::unix::fs::symlink("iwarp", doc.join("iwarp-dbgsym"))?;
    let architecture = shell::output(shell::program("dpkg").arg("--print-architecture"))?;
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture.trim());
    let control = format!(
        "Package: iwarp-dbgsym\n\
         Source: iwarp\n\
         Version: {version}\n\
         Auto-Built-Package: debug-symbols\n\
         Architecture: {architecture}\n\
         Maintainer: {}\n\
         Installed-Size: {}\n\
         Depends: iwarp (= {version})\n\
         Section: debug\n\
         Priority: optional\n\
         Description: debug symbols for iwarp\n\
         Build-Ids: {}\n",
        maintainer(),
        installed_size(&root)?,
        ids.join(" ")
    );
    build(&root, &control, to.join(format!("iwarp-dbgsym_{version}_{architecture}.deb")), epoch)
}

/// The note by which a debugger finds the symbols of a file.
fn build_id(file: &Path) -> Result<String> {
    let notes = shell::output(shell::program("readelf").args(["--notes", "--wide"]).arg(file))?;
    let id = notes.split("Build ID: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let id = id.filter(|id| id.len() > 2).map(str::to_owned);
    id.with_context(|| format!("{} has no build id", file.display()))
}

/// Makes a package of a tree.
fn build(root: &Path, control: &str, package: PathBuf, epoch: u64) -> Result<PathBuf> {
    fs::write(root.join("DEBIAN/control"), control)?;
    let mut sums = shell::program("sh");
    let list = "find usr -type f | LC_ALL=C sort | xargs -d '\\n' md5sum";
    let sums = shell::output(sums.current_dir(root).args(["-c", list]))?;
    fs::write(root.join("DEBIAN/md5sums"), sums)?;
    let mut dpkg = shell::program("dpkg-deb");
    // Dates that do not depend on when it is built.
    dpkg.env("SOURCE_DATE_EPOCH", epoch.to_string());
    dpkg.args(["--root-owner-group", "-Zxz", "--build"]);
    shell::run(dpkg.arg(root).arg(&package))?;
    Ok(package)
}

/// Puts the documents where Debian's policy has them.
fn arrange(share: &Path, epoch: u64) -> Result<()> {
    let doc = share.join("doc/iwarp");
    let date = date::in_words(epoch)?;
    let year = date.split_whitespace().nth(3).context("a date has a year")?;
    fs::write(doc.join("copyright"), copyright(year)?)?;
    let overrides = share.join("lintian/overrides");
    fs::create_dir_all(&overrides)?;
    fs::write(overrides.join("iwarp"), OVERRIDES)?;
    // They are in `copyright`, or it names them.
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::remove_file(doc.join(name))?;
    }
    let (version, maintainer) = (env!("CARGO_PKG_VERSION"), maintainer());
    let changelog = format!(
        "iwarp ({version}) unstable; urgency=medium\n\n  * /usr/share/doc/iwarp/CHANGELOG.md says \
         what is new.\n\n -- {maintainer}  {date}\n"
    );
    fs::write(doc.join("changelog"), changelog)?;
    let mut gzip = shell::program("gzip");
    gzip.args(["-9", "-n", "--recursive"]);
    shell::run(gzip.arg(doc.join("changelog")).arg(share.join("man")))
}

/// KiB on the disk.
fn installed_size(root: &Path) -> Result<u64> {
    let mut du = shell::program("du");
    let text = shell::output(du.args(["-sk", "--apparent-size"]).arg(root.join("usr")))?;
    text.split_whitespace().next().and_then(|size| size.parse().ok()).context("du says no size")
}

/// In the form of Debian's machine-readable copyright files.
fn copyright(year: &str) -> Result<String> {
    let mit = fs::read_to_string(shell::root().join("LICENSE-MIT")).context("LICENSE-MIT")?;
    let (holder, mit) = mit
        .split_once("\n\n")
        .and_then(|(_, rest)| rest.split_once("\n\n"))
        .context("LICENSE-MIT: a title, a line of copyright and the text")?;
    let mit: String = mit
        .lines()
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    let holder = holder.trim().trim_start_matches("Copyright").trim_start_matches(" (c)").trim();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: iwarp\n\
         Comment: The crates that are linked into the files have licences of their own, which are\n \
         in /usr/share/doc/iwarp/THIRD-PARTY-LICENCES.\n\n\
         Files: *\n\
         Copyright: {year} {holder}\n\
         License: Expat or Apache-2.0\n\n\
         License: Expat\n\
         {mit}\n\
         License: Apache-2.0\n \
         The text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

/// The newest version of glibc that one of the files asks for.
pub(super) fn glibc(usr: &Path) -> Result<String> {
    let mut readelf = shell::program("readelf");
    readelf.args(["--version-info", "--wide"]).arg(usr.join("bin/iwarp"));
    let helpers = ["libiwarp-preload.so", "libiwarp-audit.so", "libiwarp-heap.so"];
    for name in ["libibverbs.so.1", "librdmacm.so.1"].into_iter().chain(helpers) {
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
