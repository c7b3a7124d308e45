// SPDX-License-Identifier: MIT OR Apache-2.0

//! The place of the drop-in libraries.

use std::env;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::links::{self, Content};

/// The names that programs are linked with, the names that NCCL and others give to dlopen(3), and
/// the file of a build that both stand for.
const NAMES: [(&str, &str); 4] = [
    ("libibverbs.so.1", "libibverbs.so"),
    ("libibverbs.so", "libibverbs.so"),
    ("librdmacm.so.1", "librdmacm.so"),
    ("librdmacm.so", "librdmacm.so"),
];

/// The library that shows the devices in /sys and /dev.
const PRELOAD: (&str, &[u8]) = ("libiwarp-preload.so", iwarp_preload::PRELOAD);

/// The library that has the dynamic linker replace bundled libraries.
const AUDIT: (&str, &[u8]) = ("libiwarp-audit.so", iwarp_preload::AUDIT);

/// The library that has large blocks of memory be shared.
const HEAP: (&str, &[u8]) = ("libiwarp-heap.so", iwarp_preload::HEAP);

/// Libraries that programs are not linked with.
const HELPERS: [(&str, &[u8]); 3] = [PRELOAD, AUDIT, HEAP];

/// The libraries, in a directory that the loader can be pointed to.
pub(super) struct Libraries {
    directory: PathBuf,
}

impl Libraries {
    /// Looks beside this executable: in a build's folders, or where an installation has them.
    pub(super) fn find() -> Result<Self> {
        let exe = env::current_exe().context("cannot tell where this command is")?;
        let beside = exe.parent().context("this command is in no directory")?;
        for built in [beside.join("deps"), beside.to_path_buf()] {
            if NAMES.iter().all(|(_, file)| built.join(file).exists()) {
                return Self::linked(&NAMES, &built);
            }
        }
        let installed = beside.join("../lib/iwarp");
        if NAMES.iter().all(|(name, _)| installed.join(name).exists()) {
            let directory = installed.canonicalize()?;
            readable(&directory)?;
            let complete = HELPERS.iter().all(|(name, _)| directory.join(name).exists());
            if complete && suits_loader(&directory) {
                return Ok(Self { directory });
            }
            let same = NAMES.map(|(name, _)| (name, name));
            return Self::linked(&same, &directory);
        }
        // Put there by hand, as `cargo install` takes the command alone.
        if NAMES.iter().all(|(_, file)| installed.join(file).exists()) {
            return Self::linked(&NAMES, &installed.canonicalize()?);
        }
        let beyond = beside.parent().unwrap_or(beside).join("lib/iwarp");
        bail!(
            "libibverbs.so.1 and librdmacm.so.1 are neither in {} nor in {to}; `cargo install` brings \
             this command alone: in the source, cargo build --release && mkdir -p {to} && \
             cp target/release/deps/lib{{ibverbs,rdmacm}}.so {to}",
            beside.display(),
            to = beyond.display(),
        );
    }

    /// A directory of symbolic links with the right names, and of the small libraries.
    fn linked(names: &[(&str, &str)], at: &Path) -> Result<Self> {
        readable(at)?;
        let links = names.iter().map(|(name, file)| (*name, Content::Link(at.join(file))));
        let helpers = HELPERS.map(|(name, octets)| (name, Content::Library(octets)));
        let all: Vec<_> =
            links.chain(helpers).map(|(name, what)| (name.to_owned(), what)).collect();
        Ok(Self { directory: links::directory("lib", &all)? })
    }

    /// The directory of `libibverbs.so.1` and the others; suits a list that colons separate.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The library that shows the devices in /sys and /dev.
    pub(super) fn preload(&self) -> PathBuf {
        self.directory.join(PRELOAD.0)
    }

    /// The library that has large blocks of memory be shared.
    pub(super) fn heap(&self) -> PathBuf {
        self.directory.join(HEAP.0)
    }

    /// The library that has the dynamic linker replace bundled libraries.
    pub(super) fn audit(&self) -> PathBuf {
        self.directory.join(AUDIT.0)
    }
}

/// Checks that this user can read the libraries: a build below another user's home directory may be
/// out of reach, which the loader would pass over in silence.
fn readable(directory: &Path) -> Result<()> {
    for name in ["libibverbs.so", "librdmacm.so"] {
        let path = directory.join(name);
        File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(())
}

/// True if the loader takes the path for one item of a list, and as it is (ld.so(8)).
pub(super) fn suits_loader(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|c| b":; $\t\n".contains(c))
}
