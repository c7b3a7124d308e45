// SPDX-License-Identifier: MIT OR Apache-2.0

// Reading the lists of exports, for the build scripts of the two libraries.

use std::fmt::Write as _;
use std::path::Path;

/// A line of an `exports.txt`.
#[allow(dead_code, reason = "not every build script needs all of this")]
pub(crate) struct Export {
    /// The name a program links to.
    pub(crate) name: String,
    /// The version of it.
    pub(crate) version: String,
    /// True for the version that new programs get.
    pub(crate) default: bool,
    /// Path of its function in iwarp-capi; `STUB_...` or `DATA` if it has none.
    pub(crate) target: String,
}

/// Reads a list. A line that makes no sense stops the build.
pub(crate) fn read(path: &Path) -> Vec<Export> {
    println!("cargo:rerun-if-changed={}", path.display());
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| parse(line).unwrap_or_else(|| panic!("{}: {line}", path.display())))
        .collect()
}

fn parse(line: &str) -> Option<Export> {
    let (symbol, target) = line.split_once(' ')?;
    let (name, version) = symbol.split_once('@')?;
    let default = version.starts_with('@');
    let version = version.trim_start_matches('@');
    let [name, version, target] = [name, version, target.trim()].map(str::to_owned);
    Some(Export { name, version, default, target })
}

/// A version script that only names the versions; `.symver` in the object binds symbols to them.
/// (rustc passes a script of its own, and of two that list symbols, one loses.)
pub(crate) fn version_script(versions: impl IntoIterator<Item = String>) -> String {
    let mut seen = Vec::new();
    let mut script = String::new();
    for version in versions {
        if !seen.contains(&version) {
            writeln!(script, "{version} {{ }};").expect("writing to memory");
            seen.push(version);
        }
    }
    script
}

/// The target architecture, in whose assembler the jumps are.
pub(crate) fn architecture() -> String {
    std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo says what it builds for")
}
