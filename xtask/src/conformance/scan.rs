// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finding the tests: `Covers: ID, ID` in the doc comment of a test, and tests named
//! `corner_NN_...`.
//!
//! In Rust files the comment stands above a test function. In fuzz targets (`//! Covers:`) and
//! interop scripts (`# Covers:`) it speaks for the whole file. A list may go on in the next
//! comment line when its line ends with a comma.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// A test that names a requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cover {
    /// The name as it is written, known or not.
    pub(super) id: String,
    /// File and function.
    pub(super) test: String,
}

/// The tests and names that were found.
#[derive(Default, Debug)]
pub(super) struct Scan {
    /// Every test that runs, as `file::function`, and files that are a test as a whole.
    pub(super) tests: BTreeSet<String>,
    pub(super) covers: Vec<Cover>,
    pub(super) corners: Vec<(u32, String)>,
    /// Comments that speak for no test that runs.
    pub(super) problems: Vec<String>,
}

/// Looks through the crates, the fuzz targets and the interop scripts.
pub(super) fn tree(root: &Path) -> Result<Scan> {
    let mut scan = Scan::default();
    for dir in ["crates", "fuzz", "interop"] {
        walk(root, &root.join(dir), &mut scan)?;
    }
    Ok(scan)
}

fn walk(root: &Path, dir: &Path, scan: &mut Scan) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let mut paths: Vec<_> = entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default();
            if !["target", "corpus", "artifacts", "seeds"].iter().any(|skip| name == *skip) {
                walk(root, &path, scan)?;
            }
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            rust_file(&relative, &fs::read_to_string(&path)?, scan);
        } else if relative.starts_with("interop") {
            // A file that is no text is no script.
            if let Ok(text) = fs::read_to_string(&path) {
                script(&relative, &text, scan);
            }
        }
    }
    Ok(())
}

/// The lines above an item.
#[derive(Default)]
struct Pending {
    ids: Vec<String>,
    is_test: bool,
    is_ignored: bool,
    /// The list of ids goes on in the next line.
    goes_on: bool,
}

fn rust_file(file: &str, text: &str, scan: &mut Scan) {
    if is_test_as_a_whole(file) {
        scan.tests.insert(file.to_owned());
    }
    let mut pending = Pending::default();
    let mut attribute_depth = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let place = || format!("{file}:{}", index + 1);
        if attribute_depth > 0 {
            // Inside an attribute of several lines.
            attribute_depth += depth(line);
        } else if let Some(comment) = line.strip_prefix("//!") {
            // Of the file: meant for those that are one test as a whole.
            let mut ids = Vec::new();
            covers(comment, &mut pending.goes_on, &mut ids);
            if !ids.is_empty() && !is_test_as_a_whole(file) {
                scan.problems.push(format!("{}: Covers in front of no test", place()));
            }
            add(scan, ids, file);
        } else if let Some(comment) = line.strip_prefix("//") {
            covers(comment.trim_start_matches('/'), &mut pending.goes_on, &mut pending.ids);
        } else if line.starts_with("#[") {
            pending.is_test |= is_test_attribute(line);
            pending.is_ignored |= line.starts_with("#[ignore");
            attribute_depth = depth(line);
        } else if !line.is_empty() {
            let name = function_name(line);
            finish(std::mem::take(&mut pending), name, file, &place(), scan);
        }
    }
    finish(pending, None, file, file, scan);
}

fn finish(pending: Pending, name: Option<&str>, file: &str, place: &str, scan: &mut Scan) {
    let test = match name {
        Some(name) if pending.is_test && !pending.is_ignored => format!("{file}::{name}"),
        _ => {
            if !pending.ids.is_empty() {
                let what = if pending.is_ignored { "an ignored test" } else { "no test" };
                scan.problems.push(format!("{place}: Covers in front of {what}"));
            }
            return;
        }
    };
    if let Some(number) = name.and_then(corner) {
        scan.corners.push((number, test.clone()));
    }
    add(scan, pending.ids, &test);
    scan.tests.insert(test);
}

fn add(scan: &mut Scan, ids: Vec<String>, test: &str) {
    scan.covers.extend(ids.into_iter().map(|id| Cover { id, test: test.to_owned() }));
}

fn is_test_as_a_whole(file: &str) -> bool {
    file.starts_with("fuzz/fuzz_targets/") || file.starts_with("interop/")
}

fn script(file: &str, text: &str, scan: &mut Scan) {
    let mut goes_on = false;
    for line in text.lines() {
        let mut ids = Vec::new();
        if let Some(comment) = line.trim().strip_prefix('#') {
            covers(comment, &mut goes_on, &mut ids);
        }
        add(scan, ids, file);
    }
}

/// Takes the ids out of the text of a comment.
fn covers(comment: &str, goes_on: &mut bool, ids: &mut Vec<String>) {
    let comment = comment.trim();
    let list = match comment.strip_prefix("Covers:") {
        Some(list) => list,
        None if *goes_on => comment,
        None => return,
    };
    let words = list.split(',').map(|id| id.trim().trim_end_matches('.'));
    ids.extend(words.filter(|id| !id.is_empty()).map(str::to_owned));
    *goes_on = list.trim_end().ends_with(',');
}

/// `#[test]`, `#[tokio::test]`, `#[test_log::test]`, but not `#[cfg(test)]`.
fn is_test_attribute(line: &str) -> bool {
    let path = line.trim_start_matches("#[");
    let path = path.split([']', '(']).next().unwrap_or_default().trim();
    path.rsplit("::").next() == Some("test")
}

fn depth(line: &str) -> i32 {
    line.chars().fold(0, |depth, c| match c {
        '[' | '(' => depth + 1,
        ']' | ')' => depth - 1,
        _ => depth,
    })
}

fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.find(|word| !matches!(*word, "pub" | "async" | "unsafe")).filter(|word| *word == "fn")?;
    words.next()?.split(['(', '<']).next()
}

/// The number in `corner_NN_...`.
fn corner(name: &str) -> Option<u32> {
    let (number, rest) = name.strip_prefix("corner_")?.split_once('_')?;
    if number.len() == 2 && !rest.is_empty() { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::{Scan, rust_file, script};

    fn scanned(file: &str, text: &str) -> Scan {
        let mut scan = Scan::default();
        rust_file(file, text, &mut scan);
        scan
    }

    fn pairs(scan: &Scan) -> Vec<(&str, &str)> {
        scan.covers.iter().map(|c| (c.id.as_str(), c.test.as_str())).collect()
    }

    #[test]
    fn ids_belong_to_the_test_that_follows() {
        let text = "
            /// Shows something.
            ///
            /// Covers: A-1, A-2,
            /// B-1.
            #[cfg_attr(
                not(miri),
                allow(dead_code),
            )]
            #[test]
            fn corner_07_pads() {
                // nothing
            }
            // Covers: C-1
            #[tokio::test(flavor = \"current_thread\")]
            async fn waits() {}
            fn other() {}
        ";
        let scan = scanned("crates/x/src/a.rs", text);
        let pads = "crates/x/src/a.rs::corner_07_pads";
        let waits = "crates/x/src/a.rs::waits";
        assert_eq!(pairs(&scan), [("A-1", pads), ("A-2", pads), ("B-1", pads), ("C-1", waits)]);
        assert_eq!(scan.corners, [(7, pads.to_owned())]);
        assert!(scan.tests.iter().eq([pads, waits]), "{:?}", scan.tests);
        assert!(scan.problems.is_empty(), "{:?}", scan.problems);
    }

    #[test]
    fn tests_that_do_not_run_cover_nothing() {
        for (text, what) in [
            ("/// Covers: A-1\nfn other() {}", "no test"),
            ("/// Covers: A-1\n#[cfg(test)]\nmod tests {", "no test"),
            ("/// Covers: A-1\n#[test]\n#[ignore = \"slow\"]\nfn f() {}", "an ignored test"),
            ("/// Covers: A-1", "no test"),
            ("//! Covers: A-1\n#[test]\nfn f() {}", "no test"),
        ] {
            let scan = scanned("crates/x/src/a.rs", text);
            assert_eq!(scan.problems.len(), 1, "{text}");
            assert!(scan.problems[0].ends_with(&format!("in front of {what}")), "{text}");
        }
        assert!(scanned("a.rs", "fn corner_01_x() {}").corners.is_empty());
    }

    #[test]
    fn fuzz_targets_and_scripts_count_as_one_test() {
        let fuzz = scanned("fuzz/fuzz_targets/f.rs", "//! Fuzzes.\n//! Covers: A-1\nfn f() {}");
        assert_eq!(pairs(&fuzz), [("A-1", "fuzz/fuzz_targets/f.rs")]);
        assert!(fuzz.problems.is_empty());
        let mut scan = Scan::default();
        script("interop/a.sh", "#!/bin/sh\n# Covers: A-1,\n#   A-2\necho Covers: A-3\n", &mut scan);
        assert_eq!(pairs(&scan), [("A-1", "interop/a.sh"), ("A-2", "interop/a.sh")]);
    }
}
