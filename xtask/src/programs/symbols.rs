// SPDX-License-Identifier: MIT OR Apache-2.0

//! The symbols that the libraries export, and the programs that import them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::shell;

/// Packages whose files are looked through.
const PACKAGES: &[&str] = &[
    "fio",
    "ibverbs-utils",
    "libfabric1",
    "libopenmpi3",
    "libucx0",
    "perftest",
    "python3-pyverbs",
    "qperf",
    "rdmacm-utils",
    "librdmacm1",
];

/// The lists that the libraries are built from.
const LISTS: &[&str] =
    &["crates/iwarp-capi/ibverbs/exports.txt", "crates/iwarp-capi/rdmacm/exports.txt"];

/// An exported function.
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Packages that import it.
    pub(crate) users: Vec<&'static str>,
    /// Set if it does what it says.
    pub(crate) served: bool,
}

/// The public ones, in the order of the lists.
pub(crate) fn all() -> Result<Vec<Symbol>> {
    let mut users = users()?;
    let mut symbols = Vec::new();
    for list in LISTS {
        let text = fs::read_to_string(shell::root().join(list)).context(*list)?;
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let Some((name, rest)) = line.split_once("@@") else { continue };
            let Some((version, target)) = rest.split_once(' ') else { continue };
            if version.contains("PRIVATE") {
                continue;
            }
            let of = users.remove(name).unwrap_or_default();
            symbols.push(Symbol {
                name: name.to_owned(),
                version: version.to_owned(),
                users: of.into_iter().collect(),
                served: !target.trim().starts_with("STUB_"),
            });
        }
    }
    Ok(symbols)
}

/// By symbol, the packages with a program or library that imports it.
fn users() -> Result<BTreeMap<String, BTreeSet<&'static str>>> {
    let mut users: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for package in PACKAGES {
        let list = shell::output(shell::program("dpkg").args(["--listfiles", package]))?;
        let files = list.lines().map(Path::new).filter(|path| is_elf(path));
        let files: Vec<&Path> = files.collect();
        if files.is_empty() {
            continue;
        }
        let mut readelf = shell::program("readelf");
        let text = shell::output(readelf.args(["--dyn-syms", "--wide"]).args(files))?;
        for symbol in text.lines().filter_map(imported) {
            users.entry(symbol.to_owned()).or_default().insert(*package);
        }
    }
    Ok(users)
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 4];
    let is_file = path.symlink_metadata().is_ok_and(|about| about.is_file());
    let file = is_file.then(|| fs::File::open(path).ok()).flatten();
    file.is_some_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *b"\x7fELF"
}

/// "  12: 0000000000000000  0 FUNC  GLOBAL DEFAULT  UND ibv_reg_mr@IBVERBS_1.1 (5)"
fn imported(line: &str) -> Option<&str> {
    let (_, symbol) = line.split_once(" UND ")?;
    let (name, version) = symbol.split_whitespace().next()?.split_once('@')?;
    let version = version.trim_start_matches('@');
    (version.starts_with("IBVERBS_") || version.starts_with("RDMACM_")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::imported;

    #[test]
    fn imports_are_told_from_exports() {
        let line = "  9: 00000000 0 FUNC GLOBAL DEFAULT  UND ibv_reg_mr@IBVERBS_1.1 (5)";
        assert_eq!(imported(line), Some("ibv_reg_mr"));
        assert_eq!(imported("  9: 0 0 FUNC GLOBAL DEFAULT UND read@GLIBC_2.2.5 (2)"), None);
        assert_eq!(imported("  9: 0 0 FUNC GLOBAL DEFAULT  14 ibv_x@@IBVERBS_1.1"), None);
    }
}
