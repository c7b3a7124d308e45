// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packages of the crates, as a registry would hand them out.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{purity, shell};

/// Files that every package has.
const FILES: &[&str] = &["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Packs each crate that is published, and checks that what was packed is complete: a registry's
/// files are there, and no included file is outside. The steps `features` and `e2e` compile the
/// crates.
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
        shell::run(tar.arg("-xzf").arg(file).arg("-C").arg(&unpacked))?;
        for file in FILES {
            ensure!(unpacked.join(&folder).join(file).exists(), "the package {name} has no {file}");
        }
        check_paths(&unpacked.join(&folder))?;
    }
    Ok(format!("{} packages", crates.len()))
}

/// Refuses a source or build script that names a file outside of its package, which compiles in the
/// workspace and nowhere else.
fn check_paths(package: &Path) -> Result<()> {
    let mut files = Vec::new();
    purity::sources(package, &mut files)?;
    for file in files {
        let inside = file.strip_prefix(package)?;
        if inside.starts_with("tests") || inside.starts_with("benches") {
            continue;
        }
        let depth = inside.components().count() - 1;
        if let Some(line) = leaves(&fs::read_to_string(&file)?, depth) {
            bail!("{}:{line} names a file that is not in the package", file.display());
        }
    }
    Ok(())
}

/// The first line that includes a file by a path that climbs further than `depth` folders, outside
/// of a file's last module if that is one of tests.
fn leaves(source: &str, depth: usize) -> Option<usize> {
    let climbs = format!("\"{}", "../".repeat(depth + 1));
    let code = source.find("\n#[cfg(test)]\nmod tests {").map_or(source, |end| &source[..end]);
    let includes = |line: &str| line.contains("include") || line.contains("#[path");
    code.lines().position(|line| includes(line) && line.contains(&climbs)).map(|line| line + 1)
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

#[cfg(test)]
mod tests {
    use super::leaves;

    #[test]
    fn a_path_may_climb_to_the_root_of_its_package() {
        let source = "const TEXT: &str = include_str!(\"../cases/a.case\");\n";
        assert_eq!(leaves(source, 1), None);
        assert_eq!(leaves(source, 0), Some(1));
        let test = ["\n#[cfg(test)]\nmod tests {\n", &source.replace("../", "../../")].concat();
        assert_eq!(leaves(&test, 1), None);
        let early = test.replace(" {\n", ";\n");
        assert_eq!(leaves(&early, 1), Some(4));
        assert_eq!(leaves("symlink(\"../../devices/roce0\")", 0), None);
    }
}
