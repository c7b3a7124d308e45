// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs that Debian's binary packages have without RDMA, built from its source packages.
//!
//! The package index of the release that has the source is kept apart from the system's, which
//! stays as it is.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::packages::Tool;
use crate::shell;

/// A source package, and the parts of it that are built.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Source {
    /// Its name.
    pub(crate) package: &'static str,
    /// Debian's release that has it.
    pub(crate) release: &'static str,
    /// The commands that build it, for a shell in its folder.
    pub(crate) build: &'static str,
    /// Files and folders that scenarios use.
    pub(crate) kept: &'static [&'static str],
}

/// The tools that unpack and build all of them; a scenario names the further tools of its packages.
pub(crate) const TOOLS: &[Tool] = &[
    Tool { program: "dpkg-source", package: "dpkg-dev", steps: &[] },
    Tool { program: "cc", package: "gcc", steps: &[] },
    Tool { program: "g++", package: "g++", steps: &[] },
    Tool { program: "make", package: "make", steps: &[] },
    Tool { program: "pkg-config", package: "pkg-config", steps: &[] },
    Tool { program: "/usr/include/infiniband/verbs.h", package: "libibverbs-dev", steps: &[] },
    Tool { program: "/usr/include/rdma/rdma_cma.h", package: "librdmacm-dev", steps: &[] },
];

/// Builds it where that has not been done, and puts what is kept of it, with a file `version`, into
/// a folder of its name in `parent`.
///
/// # Errors
///
/// When there is no such source package, or it cannot be built.
pub(crate) fn install(source: &Source, parent: &Path) -> Result<()> {
    let work = shell::target_dir().join("sources").join(source.package);
    let kept = work.join("kept");
    if !kept.join("version").exists() {
        build(source, &work).with_context(|| format!("Debian's source of {}", source.package))?;
    }
    shell::copy_tree(&kept, &parent.join(source.package))
}

fn build(source: &Source, work: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(work);
    let kept = work.join("kept");
    for folder in ["lists/partial", "cache/archives/partial", "kept"] {
        fs::create_dir_all(work.join(folder))?;
    }
    let list = format!("deb-src {} {} main\n", archive()?, source.release);
    fs::write(work.join("sources.list"), list)?;
    let configuration = work.join("apt.conf");
    let at = work.display();
    let settings = [
        ("Dir::Etc::sourcelist", format!("{at}/sources.list")),
        ("Dir::Etc::sourceparts", "-".to_owned()),
        ("Dir::State::lists", format!("{at}/lists")),
        ("Dir::Cache", format!("{at}/cache")),
        // Its user for downloads may not enter a folder of ours.
        ("APT::Sandbox::User", "root".to_owned()),
    ];
    let settings = settings.map(|(name, value)| format!("{name} \"{value}\";\n"));
    fs::write(&configuration, settings.concat())?;
    for words in [&["update"][..], &["source", source.package]] {
        let mut apt = shell::program("apt-get");
        apt.env("APT_CONFIG", &configuration).current_dir(work).arg("-qq").args(words);
        shell::run(&mut apt)?;
    }
    let folders = fs::read_dir(work)?.flatten().map(|entry| entry.path());
    let mut unpacked = folders.filter(|path| path.join("debian/changelog").exists());
    let folder = unpacked.next().context("apt-get brings nothing that is unpacked")?;
    let log = work.join("build.txt");
    println!("building {} of Debian's {} ({})", source.package, source.release, log.display());
    let output = fs::File::create(&log)?;
    let mut make = shell::program("sh");
    make.current_dir(&folder).args(["-e", "-c", source.build]);
    let status = make.stdout(output.try_clone()?).stderr(output).status()?;
    if !status.success() {
        let said = fs::read(&log)?;
        let end = shell::last_lines(&String::from_utf8_lossy(&said), 20);
        bail!("{end}\nit cannot be built: {status}");
    }
    let mut copy = shell::program("cp");
    copy.args(["--recursive", "--parents", "--preserve=mode,links"]).args(source.kept);
    shell::run(copy.arg(&kept).current_dir(&folder))?;
    // Only now it is complete.
    fs::write(
        kept.join("version"),
        version(&fs::read_to_string(folder.join("debian/changelog"))?)?,
    )?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The archive from which this machine has Debian's packages.
fn archive() -> Result<String> {
    let mut targets = shell::program("apt-get");
    targets.args(["indextargets", "--format", "$(REPO_URI)", "Label: Debian"]);
    let uris = shell::output(targets.args(["Created-By: Packages"]))?;
    let uri = uris.lines().next().context(
        "there is no list of Debian's packages on this machine; as root: apt-get update",
    )?;
    Ok(uri.to_owned())
}

/// Name and version, off the first line of a changelog of Debian's: `name (version) ...`.
fn version(changelog: &str) -> Result<String> {
    let line = changelog.lines().next().unwrap_or_default();
    let mut words = line.split_whitespace();
    let (name, version) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let version = version.strip_prefix('(').and_then(|version| version.strip_suffix(')'));
    let version = version.with_context(|| format!("no version in '{line}'"))?;
    Ok(format!("{name} {version}"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_changelog_has_the_version() {
        let line = "store (9.1.2-1) unstable; urgency=medium\n\n  * New upstream release.\n";
        assert_eq!(super::version(line).unwrap(), "store 9.1.2-1");
        assert!(super::version("").is_err());
        assert!(super::version("store 9").is_err());
    }
}
