// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files of an installation, below a prefix.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::licences;
use crate::{learn, shell};

/// A library: its file in a build, its file in an installation, and another name for that.
struct Library {
    built: &'static str,
    installed: &'static str,
    link: Option<&'static str>,
}

const LIBRARIES: &[Library] = &[
    Library { built: "libibverbs.so", installed: "libibverbs.so.1", link: Some("libibverbs.so") },
    Library { built: "librdmacm.so", installed: "librdmacm.so.1", link: Some("librdmacm.so") },
];

/// The versions of rdma-core 44, whose public symbols the libraries have: what a build asks for.
const PKG_CONFIG: &[(&str, &str, &str, &str)] = &[
    ("libibverbs", "1.14.44.0", "-libverbs", ""),
    ("librdmacm", "1.3.44.0", "-lrdmacm", "Requires.private: libibverbs\n"),
];

/// The packages of which all files are built.
pub(super) const PACKAGES: [&str; 3] = ["iwarp-cli", "iwarp-ibverbs", "iwarp-rdmacm"];

/// Shells, the folders in which they look for completions of packages, and the files' names.
const COMPLETIONS: &[(&str, &str, &str)] = &[
    ("bash", "share/bash-completion/completions", "iwarp"),
    ("zsh", "share/zsh/vendor-completions", "_iwarp"),
    ("fish", "share/fish/vendor_completions.d", "iwarp.fish"),
];

/// An optimised build of all that is installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Build {
    /// For tests: the profile `ci`, with the simulator and its feature `flaws`, so that the steps
    /// that run programs share one build.
    Ci,
    /// For users.
    Release,
}

impl Build {
    /// The folder in which Cargo leaves it.
    pub(crate) fn folder(self) -> PathBuf {
        shell::target_dir().join(match self {
            Self::Ci => "ci",
            Self::Release => "release",
        })
    }

    /// The command that makes it.
    pub(crate) fn command(self) -> Command {
        let mut build = match self {
            Self::Ci => shell::cargo(["build", "--profile", "ci"]),
            Self::Release => shell::cargo(["build", "--release"]),
        };
        build.args(PACKAGES.iter().flat_map(|name| ["--package", name]));
        if self == Self::Ci {
            build.args(["--package", "iwarp-sim", "--features", "iwarp-sim/flaws"]);
        }
        build
    }

    /// Makes it.
    pub(crate) fn make(self) -> Result<()> {
        shell::run(&mut self.command())
    }
}

/// Lays out what was built below `prefix`.
pub(crate) fn stage(prefix: &Path, build: Build) -> Result<()> {
    let built = build.folder();

    let bin = directory(prefix, "bin")?;
    install(&built.join("iwarp"), &bin.join("iwarp"), 0o755)?;
    strip(&bin.join("iwarp"))?;
    let lib = directory(prefix, "lib/iwarp")?;
    for library in LIBRARIES {
        let file = lib.join(library.installed);
        install(&built.join("deps").join(library.built), &file, 0o644)?;
        strip(&file)?;
        if let Some(link) = library.link {
            symlink(library.installed, lib.join(link))?;
        }
    }
    for (name, octets) in [
        ("libiwarp-preload.so", iwarp_preload::PRELOAD),
        ("libiwarp-audit.so", iwarp_preload::AUDIT),
        ("libiwarp-heap.so", iwarp_preload::HEAP),
    ] {
        let file = lib.join(name);
        fs::write(&file, octets).with_context(|| format!("cannot write {}", file.display()))?;
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    }
    let pkg_config = directory(prefix, "lib/iwarp/pkgconfig")?;
    for (name, version, flags, requires) in PKG_CONFIG {
        let text = format!(
            "prefix=${{pcfiledir}}/../../..\n\
             libdir=${{prefix}}/lib/iwarp\n\n\
             Name: {name}\n\
             Description: {name} over TCP (iwarp); the headers are those of rdma-core\n\
             Version: {version}\n\
             {requires}Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} {flags}\n\
             Cflags:\n"
        );
        write(&pkg_config.join(format!("{name}.pc")), &text)?;
    }
    stage_helpers(prefix, &bin.join("iwarp"))?;
    stage_test_helpers(prefix)?;
    stage_book(prefix)?;
    stage_documents(prefix, &licences::text(&PACKAGES, &licences::this_platform()?)?)
}

/// Lays out `iwarp`, which was built for `target` and is linked statically, below `prefix`.
pub(super) fn stage_standalone(prefix: &Path, iwarp: &Path, target: &str) -> Result<()> {
    let installed = directory(prefix, "bin")?.join("iwarp");
    install(iwarp, &installed, 0o755)?;
    strip(&installed)?;
    stage_helpers(prefix, &installed)?;
    let notices = licences::text(&["iwarp-cli"], target)? + &licences::of_musl()?;
    stage_documents(prefix, &notices)
}

/// For those who test programs.
fn stage_test_helpers(prefix: &Path) -> Result<()> {
    let share = directory(prefix, "share/iwarp")?;
    for (name, mode) in [("valgrind.supp", 0o644), ("tsan.supp", 0o644), ("pair.sh", 0o755)] {
        install(&shell::root().join("docs/ci").join(name), &share.join(name), mode)?;
    }
    Ok(())
}

/// The book, whose programs run by `iwarp run`.
fn stage_book(prefix: &Path) -> Result<()> {
    let book = "share/doc/iwarp/learn";
    learn::install(|path, text| {
        let folder = path.parent().unwrap_or(path);
        let name = path.file_name().context("a file")?;
        write(&directory(prefix, &format!("{book}/{}", folder.display()))?.join(name), text)
    })
}

/// Stages the documents that there are to read, and the notices of the crates that are linked.
fn stage_documents(prefix: &Path, notices: &str) -> Result<()> {
    let doc = directory(prefix, "share/doc/iwarp")?;
    for name in ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        install(&shell::root().join(name), &doc.join(name), 0o644)?;
    }
    write(&doc.join("THIRD-PARTY-LICENCES"), notices)?;
    for entry in fs::read_dir(shell::root().join("docs")).context("docs")? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            install(&entry.path(), &doc.join(entry.file_name()), 0o644)?;
        }
    }
    Ok(())
}

/// Manual pages and completions.
fn stage_helpers(prefix: &Path, iwarp: &Path) -> Result<()> {
    let pages = directory(prefix, "share/man/man1")?;
    shell::run(shell::program(iwarp).arg("man-pages").arg(&pages))?;
    for page in fs::read_dir(&pages)? {
        fs::set_permissions(page?.path(), Permissions::from_mode(0o644))?;
    }
    for (shell, place, name) in COMPLETIONS {
        let script = shell::output(shell::program(iwarp).args(["completions", shell]))?;
        write(&directory(prefix, place)?.join(name), &script)?;
    }
    Ok(())
}

fn directory(prefix: &Path, name: &str) -> Result<PathBuf> {
    let mut path = prefix.to_path_buf();
    fs::create_dir_all(&path)?;
    for part in Path::new(name) {
        path.push(part);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(prefix, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The line tables of a release build are larger than its code.
fn strip(file: &Path) -> Result<()> {
    let what = ["--strip-unneeded", "--remove-section=.comment"];
    shell::run(shell::program("strip").args(what).arg(file))
}

fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, Permissions::from_mode(mode))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o644))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{stage_book, stage_test_helpers};

    #[test]
    fn the_book_and_pair_sh_are_installed() {
        let prefix = crate::shell::target_dir().join(format!("layout-{}", std::process::id()));
        stage_test_helpers(&prefix).unwrap();
        stage_book(&prefix).unwrap();
        let mode = |name: &str| {
            let path = prefix.join(name);
            fs::metadata(path).map(|about| about.permissions().mode() & 0o777).ok()
        };
        assert_eq!(mode("share/iwarp/pair.sh"), Some(0o755));
        assert_eq!(mode("share/doc/iwarp/learn/start.md"), Some(0o644));
        assert_eq!(mode("share/doc/iwarp/learn/programs/c/send.c"), Some(0o644));
        assert_eq!(mode("share/doc/iwarp/learn/programs"), Some(0o755));
        fs::remove_dir_all(prefix).unwrap();
    }
}
