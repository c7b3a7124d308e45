// SPDX-License-Identifier: MIT OR Apache-2.0

//! The vocabulary and the protocols are `no_std` and without unsafe code, and without their default
//! features (which let the CRC ask the CPU what it can do) nothing they depend on uses std either.
//!
//! A target without std would show it best, but a toolchain seldom has one installed. The
//! compiler's notes in the built crate show it as well: the list of crates it refers to, through
//! all its dependencies, may have `core` and `alloc` in it, not `std`.
//!
//! The library names each of its transports in one file only, so that everything else works over
//! any. Every source file names its licence.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{messages, shell};

const CRATES: [&str; 4] = ["iwarp-types", "iwarp-proto", "iwarp-roce", "iwarp-sockets"];
const HEAD: [&str; 2] = ["#![no_std]", "#![forbid(unsafe_code)]"];

/// The file without which there is nothing to check.
pub(crate) fn subject() -> PathBuf {
    head_of(CRATES[0])
}

/// The only files of the library that name the system's sockets of a kind, each with words that are
/// in the names of its types, ours or std's. Comments may speak of either.
const TRANSPORTS: [(&str, &[&str]); 2] =
    [("port/tcp.rs", &["Tcp"]), ("port/udp.rs", &["Udp", "DatagramSocket"])];

/// Checks the heads of the crates, what the built crates refer to, and which file names the
/// transport.
pub(crate) fn check() -> Result<String> {
    check_licences()?;
    check_transport()?;
    Ok(CRATES.map(check_one).into_iter().collect::<Result<Vec<String>>>()?.join("; "))
}

/// The first line of each source file, in the words that tools look for (SPDX).
const LICENCE: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

fn check_licences() -> Result<()> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "fuzz/fuzz_targets"] {
        sources(&shell::root().join(folder), &mut files)?;
    }
    for file in files {
        if fs::read_to_string(&file)?.lines().next() != Some(LICENCE) {
            bail!("{} does not begin with {LICENCE}", file.display());
        }
    }
    Ok(())
}

fn check_transport() -> Result<()> {
    let library = shell::root().join("crates/iwarp/src");
    let mut files = Vec::new();
    sources(&library, &mut files)?;
    let mut above = Vec::new();
    sources(&shell::root().join("crates/iwarp-session/src"), &mut above)?;
    for (transport, words) in TRANSPORTS {
        if !files.iter().any(|path| path.ends_with(transport)) {
            bail!("there is no {transport} below {}", library.display());
        }
        for path in files.iter().chain(&above).filter(|path| !path.ends_with(transport)) {
            if let Some(line) = names_transport(&fs::read_to_string(path)?, words) {
                bail!("{}:{line} names the transport, as only {transport} may", path.display());
            }
        }
    }
    Ok(())
}

/// All Rust files below a folder.
pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The first line with one of the words.
fn names_transport(source: &str, words: &[&str]) -> Option<usize> {
    let names = |line: &str| words.iter().any(|word| line.contains(word));
    source.lines().position(names).map(|place| place + 1)
}

fn head_of(name: &str) -> PathBuf {
    shell::root().join("crates").join(name).join("src/lib.rs")
}

fn check_one(name: &str) -> Result<String> {
    let source = fs::read_to_string(head_of(name)).with_context(|| name.to_owned())?;
    for line in HEAD {
        if !source.lines().any(|l| l.trim() == line) {
            bail!("{name} lacks {line}");
        }
    }
    if names_std(&source) {
        bail!("{name} names std outside of its tests");
    }
    let library = build(name)?;
    let listing = shell::output(
        shell::program("rustc").env("RUSTC_BOOTSTRAP", "1").arg("-Zls=root").arg(&library),
    )?;
    let crates = dependencies(&listing);
    if !crates.iter().any(|name| name == "core") {
        bail!("cannot read the dependencies of {}", library.display());
    }
    if crates.iter().any(|name| name == "std") {
        bail!("{name} or one of its dependencies uses std: {}", crates.join(" "));
    }
    Ok(format!("{name} uses {}", crates.join(" ")))
}

/// Without `extern crate std` a `no_std` crate cannot name it; its tests may.
fn names_std(source: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(n, line)| {
        line.starts_with("extern crate std") && (n == 0 || lines[n - 1] != "#[cfg(test)]")
    })
}

/// Builds the crate and returns its library.
fn build(name: &str) -> Result<PathBuf> {
    let library = format!("lib{}", name.replace('-', "_"));
    let mut cargo = shell::cargo(["build", "--package", name, "--lib", "--no-default-features"]);
    let built = messages::libraries(&mut cargo)?;
    let named = |file: &PathBuf| file.to_string_lossy().contains(&library);
    built.into_iter().rfind(named).context("cargo built no library")
}

/// The names in lines like `3 alloc-6e6df4ffe0af4d15 hash ...`.
fn dependencies(listing: &str) -> Vec<String> {
    let mut lines = listing.lines().skip_while(|line| !line.starts_with("=External Dep"));
    lines.next();
    lines
        .map_while(|line| line.split_whitespace().nth(1))
        .filter_map(|name| name.rsplit_once('-'))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{dependencies, names_std, names_transport};

    #[test]
    fn only_tests_may_name_std() {
        assert!(!names_std("#![no_std]\nextern crate alloc;\n#[cfg(test)]\nextern crate std;"));
        assert!(names_std("#![no_std]\nextern crate std;"));
        assert!(names_std("#[cfg(feature = \"std\")]\nextern crate std;"));
    }

    #[test]
    fn the_transport_is_found_where_it_is_named() {
        let [tcp, udp] = super::TRANSPORTS.map(|(_, words)| words);
        assert_eq!(names_transport("// Over TCP.\nuse crate::port::Port;", tcp), None);
        assert_eq!(names_transport("use std::io;\nuse std::net::TcpStream;", tcp), Some(2));
        assert_eq!(names_transport("use std::net::TcpStream; // Over UDP.", udp), None);
        assert_eq!(names_transport("use iwarp_os::DatagramSocket;", udp), Some(1));
    }

    #[test]
    fn names_are_read_off_the_compilers_listing() {
        let listing = "Crate info:\nname a\n=External Dependencies=\n\
            1 core-120c hash 41 kind x\n2 crc_fast-6e6d hash 2f kind x\n\nmore things\n";
        assert_eq!(dependencies(listing), ["core", "crc_fast"]);
        assert!(dependencies("nothing of the kind").is_empty());
    }
}
