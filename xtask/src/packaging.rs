// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packages of the crates, as a registry would hand them out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::shell;

/// Files that each package has, whatever it is.
const FILES: &[&str] = &["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Packs each crate that is published, and checks that all of them compile from what was packed.
///
/// They compile in one workspace of their own, so dependencies are those that are built already;
/// `cargo package` by itself would build them anew for each crate.
pub(crate) fn check() -> Result<String> {
    let target = shell::target_dir().join("packages");
    if target.exists() {
        fs::remove_dir_all(&target).with_context(|| format!("{}", target.display()))?;
    }
    let crates = published()?;
    let mut pack = shell::cargo(["package", "--no-verify", "--allow-dirty", "--quiet"]);
    pack.arg("--target-dir").arg(&target);
    shell::run(pack.args(crates.iter().flat_map(|(name, _)| ["--package", name])))?;

    let unpacked = target.join("unpacked");
    fs::create_dir(&unpacked)?;
    for (name, version) in &crates {
        let folder = format!("{name}-{version}");
        let file = target.join("package").join(format!("{folder}.crate"));
        let mut tar = shell::program("tar");
        // With new times: those in a package never change, and Cargo would take the build of an
        // older one for this one's.
        shell::run(tar.arg("-xzmf").arg(file).arg("-C").arg(&unpacked))?;
        for file in FILES {
            ensure!(unpacked.join(&folder).join(file).exists(), "the package {name} has no {file}");
        }
    }
    write_workspace(&unpacked, &crates)?;
    let mut check = shell::cargo(["check", "--workspace", "--manifest-path"]);
    check.arg(unpacked.join("Cargo.toml"));
    shell::run(check.arg("--target-dir").arg(shell::target_dir()))?;
    Ok(format!("{} packages", crates.len()))
}

/// Name and version of each crate that is published, with all that a registry wants to know of it.
fn published() -> Result<Vec<(String, String)>> {
    let query = ["metadata", "--format-version", "1", "--no-deps"];
    let metadata: Value = serde_json::from_str(&shell::output(&mut shell::cargo(query))?)?;
    let mut crates = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata names no packages")? {
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
        let name = text("name");
        for field in ["description", "license", "readme", "rust_version"] {
            ensure!(!text(field).is_empty(), "the manifest of {name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            let some = package[field].as_array().is_some_and(|list| !list.is_empty());
            ensure!(some, "the manifest of {name} has no {field}");
        }
        crates.push((name, text("version")));
    }
    if crates.is_empty() {
        bail!("no crate is published");
    }
    Ok(crates)
}

/// A workspace of the packages, in which they depend on each other and not on a registry's.
fn write_workspace(unpacked: &Path, crates: &[(String, String)]) -> Result<()> {
    let folders: Vec<String> =
        crates.iter().map(|(name, version)| format!("\"{name}-{version}\"")).collect();
    let mut text = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[profile.dev]\nopt-level = 1\n\n\
         [patch.crates-io]\n",
        folders.join(", ")
    );
    for ((name, _), folder) in crates.iter().zip(&folders) {
        text += &format!("{name} = {{ path = {folder} }}\n");
    }
    fs::write(unpacked.join("Cargo.toml"), text)?;
    fs::copy(shell::root().join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
    Ok(())
}
