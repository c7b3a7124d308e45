// SPDX-License-Identifier: MIT OR Apache-2.0

//! The notices of the crates that are linked into what is shipped.
//!
//! (Considered: `cargo-about` 0.9. It prints `Copyright (c) <year> <owner>` where it does not
//! recognise a text or finds none (`curve25519-dalek`, `plotters`), has no COPYRIGHT and NOTICE
//! files, and lists compilers' plugins that are not linked. A run takes 54 s of CPU time, and
//! building it 160 s and a C compiler.)

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell;

/// Name and version.
type Crate = (String, String);

/// The notices in a crate's own files.
struct Notice {
    name: Crate,
    expression: String,
    /// The authors whom its manifest names.
    authors: Vec<String>,
    texts: Vec<String>,
}

/// The target that builds have which name none.
pub(super) fn this_platform() -> Result<String> {
    let version = shell::output(shell::program("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what it is for")
}

/// One text for people: each crate that `packages` are linked with on `platform` with its licence,
/// then each licence text once.
pub(super) fn text(packages: &[&str], platform: &str) -> Result<String> {
    let linked = linked(packages, platform)?;
    // Crates of other systems need not be there.
    let mut metadata = shell::cargo(["metadata", "--format-version", "1", "--locked"]);
    let metadata = shell::output(metadata.args(["--filter-platform", platform]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut notices = Vec::new();
    for package in packages {
        let word = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let name = (word("name"), word("version"));
        if linked.contains(&name) && !package["source"].is_null() {
            let directory = Path::new(package["manifest_path"].as_str().unwrap_or_default())
                .parent()
                .context("a manifest is in a directory")?
                .to_path_buf();
            let authors = package["authors"].as_array().into_iter().flatten();
            let authors = authors.filter_map(Value::as_str).map(str::to_owned).collect();
            let (expression, texts) = (word("license"), texts(&directory)?);
            notices.push(Notice { name, expression, authors, texts });
        }
    }
    ensure!(!notices.is_empty(), "no crate is linked into the command?");
    write(&notices)
}

/// The crates that are linked: without those that only build, and without the compiler's plugins.
fn linked(packages: &[&str], platform: &str) -> Result<BTreeSet<Crate>> {
    let mut tree = shell::cargo(["tree", "--locked", "--prefix", "none", "--format", "{p}"]);
    tree.args(["--edges", "normal,no-proc-macro"]);
    tree.args(["--target", platform]);
    tree.args(packages.iter().flat_map(|name| ["--package", name]));
    let lines = shell::output(&mut tree)?;
    let crates = lines.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split_whitespace().next()?.to_owned()))
    });
    Ok(crates.collect())
}

/// The words of the MIT licence behind the line that names the owner.
fn mit() -> Result<String> {
    let mit = fs::read_to_string(shell::root().join("LICENSE-MIT")).context("LICENSE-MIT")?;
    let start = mit.find("Permission is hereby granted").context("LICENSE-MIT has other words")?;
    Ok(mit[start..].trim_end().to_owned())
}

/// The notice of the C library in files that are linked statically. Its licence has the words of
/// this project's.
pub(super) fn of_musl() -> Result<String> {
    let mit = mit()?;
    let rule = "-".repeat(78);
    Ok(format!(
        "\n{rule}\nmusl, the C library (MIT), and LLVM's libunwind (Apache-2.0 WITH LLVM-exception), which \
         Rust\nbrings for it:\n\nCopyright (c) 2005-2020 Rich Felker, et al.\n\n{mit}\n"
    ))
}

/// The texts of the files that packages keep for that.
fn texts(directory: &Path) -> Result<Vec<String>> {
    const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
    let mut files: Vec<_> = fs::read_dir(directory)
        .with_context(|| directory.display().to_string())?
        .collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let is_notice = |name: &OsStr| {
        let name = name.to_string_lossy().to_uppercase();
        NAMES.iter().any(|start| name.starts_with(start))
    };
    let files = files.iter().filter(|file| is_notice(&file.file_name()) && file.path().is_file());
    files.map(|file| Ok(fs::read_to_string(file.path())?)).collect()
}

fn write(notices: &[Notice]) -> Result<String> {
    let mut page =
        "These crates are linked into the files of this package, beside Rust's standard \
                    library\n(MIT OR Apache-2.0, The Rust Project Developers). Their licence texts \
                    follow.\n\n"
            .to_owned();
    // Most texts are those of others, but for the white space.
    let mut sections: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for Notice { name: (name, version), expression, authors, texts } in notices {
        let name = format!("{name} {version}");
        writeln!(page, "{name:<36} {expression}")?;
        let mut texts = texts.clone();
        if texts.is_empty() {
            let is_mit = expression == "MIT" && !authors.is_empty();
            ensure!(
                is_mit || expression.contains("Apache-2.0"),
                "{name} ({expression}) comes without the text of its licence"
            );
            texts.push(match is_mit {
                true => format!("Copyright (c) {}\n\n{}", authors.join(", "), mit()?),
                false => fs::read_to_string(shell::root().join("LICENSE-APACHE"))?,
            });
        }
        for text in texts {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            sections.entry(words).or_insert_with(|| (text, Vec::new())).1.push(name.clone());
        }
    }
    for (text, names) in sections.values() {
        let rule = "-".repeat(78);
        write!(page, "\n{rule}\n{}:\n\n{}\n", names.join(", "), text.trim_end())?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::{Notice, write};

    fn notice(name: &str, expression: &str, texts: &[&str]) -> Notice {
        Notice {
            name: (name.to_owned(), "1.0.0".to_owned()),
            expression: expression.to_owned(),
            authors: Vec::new(),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn a_text_that_crates_share_is_there_once_with_their_names() {
        let page = write(&[
            notice("one", "MIT", &["Permission is\ngranted"]),
            notice("two", "MIT", &["Permission  is granted\n"]),
        ]);
        let page = page.expect("both have texts");
        assert_eq!(page.matches("granted").count(), 1, "{page}");
        assert!(page.contains("one 1.0.0, two 1.0.0:"), "{page}");
    }

    #[test]
    fn static_programs_have_the_notice_of_their_c_library() {
        let notice = super::of_musl().expect("the project's licence");
        assert!(notice.contains("Rich Felker") && notice.contains("Permission is hereby"));
        assert!(!notice.contains("iwarp"), "{notice}");
    }

    #[test]
    fn a_crate_without_a_text_has_apaches_or_is_named() {
        let page = write(&[notice("one", "MIT OR Apache-2.0", &[])]).expect("it has a text");
        assert!(page.contains("Apache License"), "{page}");
        let named = Notice { authors: vec!["Ann".to_owned()], ..notice("three", "MIT", &[]) };
        let page = write(&[named]).expect("its authors are named");
        assert!(page.contains("Copyright (c) Ann\n\nPermission is hereby granted"), "{page}");
        let error = write(&[notice("two", "MIT", &[])]).expect_err("its authors are not named");
        assert!(error.to_string().contains("two 1.0.0"), "{error}");
    }
}
