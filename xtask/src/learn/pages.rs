// SPDX-License-Identifier: MIT OR Apache-2.0

//! The book for a package: pages with the programs in them, so that it is read without mdBook, and
//! the programs beside them, so that they can be compiled.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::programs;

/// The programs' files: folder, and how their names end.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("programs/c", &["c", "h"]),
    ("programs/python", &["py"]),
    ("programs/rust/src", &["rs"]),
    ("programs/rust/examples", &["rs"]),
];

/// Gives `write` each file of the book, with its path below the folder of the book.
pub(crate) fn install(mut write: impl FnMut(&Path, &str) -> Result<()>) -> Result<()> {
    let book = super::folder();
    let src = book.join("src");
    for path in programs::files(&src)? {
        let name = Path::new(path.file_name().context("a file")?);
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        write(name, &whole(&text, &src)?)?;
    }
    for (folder, endings) in PROGRAMS {
        for path in programs::files(&book.join(folder))? {
            if path.extension().is_some_and(|ending| endings.iter().any(|one| *one == ending)) {
                let text = fs::read_to_string(&path)?;
                write(path.strip_prefix(&book)?, &text)?;
            }
        }
    }
    Ok(())
}

/// The page with the files that it includes.
fn whole(page: &str, src: &Path) -> Result<String> {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("{{#include ") {
        let (target, behind) = after.split_once("}}").context("an include that does not end")?;
        let path = src.join(target);
        let file = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        text.push_str(before);
        text.push_str(file.trim_end());
        rest = behind;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::install;

    #[test]
    fn the_packages_book_has_all_pages_and_programs() {
        let mut files = BTreeMap::new();
        install(|path, text| {
            files.insert(path.display().to_string(), text.to_owned());
            Ok(())
        })
        .unwrap();
        for name in
            ["SUMMARY.md", "path-of-a-write.svg", "programs/c/learn.h", "programs/python/send.py"]
        {
            assert!(files.contains_key(name), "{name}: {:?}", files.keys());
        }
        let page = &files["send.md"];
        assert!(page.contains("int main(") && page.contains("request 7 is complete"), "{page}");
        assert!(files.values().all(|text| !text.contains("{{#include")));
    }
}
