// SPDX-License-Identifier: MIT OR Apache-2.0

//! The manual pages, as packages have them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::run;

const PAGES: [&str; 8] =
    ["", "-conform", "-demo", "-devinfo", "-perf", "-rping", "-run", "-completions"];

fn pages(name: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("manual-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    let output = run(&["man-pages", folder.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{output:?}");
    let read = |page: &&str| {
        let name = format!("iwarp{page}.1");
        let text = fs::read_to_string(folder.join(&name)).expect("a page");
        (name, text)
    };
    let pages = PAGES.iter().map(read).collect();
    fs::remove_dir_all(&folder).expect("it is there");
    pages
}

#[test]
fn each_page_has_the_sections_that_readers_look_for() {
    for (name, page) in pages("sections") {
        for section in ["NAME", "SYNOPSIS", "EXAMPLES", "ENVIRONMENT", "FILES", "SEE ALSO"] {
            assert_eq!(
                page.matches(&format!("\n.SH \"{section}\"\n")).count()
                    + page.matches(&format!("\n.SH {section}\n")).count(),
                1,
                "{name}: {section}"
            );
        }
        assert!(!page.contains(".SH EXTRA"), "{name}");
        for (number, part) in page.split(".SH \"EXAMPLES\"").skip(1).enumerate() {
            assert_eq!(number, 0);
            let examples = part.split("\n.SH").next().unwrap_or_default();
            assert!(examples.contains("\n.nf\n") && examples.contains("\n.fi\n"), "{name}");
        }
    }
}

/// A reader copies the lines of an example: each is one line of the page, at 80 columns if it can
/// be.
#[test]
fn lines_of_examples_are_kept() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("manual-shown.1");
    let mut examples = 0;
    for (name, page) in pages("lines") {
        fs::write(&folder, &page).expect("a file");
        let groff = ["-man", "-Tascii", "-P-cbou", "-ww", "-rLL=80n"];
        let output = Command::new("groff").args(groff).arg(&folder).output();
        let output = output.expect("groff: apt-get install groff-base");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaint.is_empty(), "{name}: {complaint}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut unfilled = false;
        for line in page.lines() {
            match line {
                ".nf" => unfilled = true,
                ".fi" => unfilled = false,
                _ if unfilled => {
                    let plain = line.trim_start().replace("\\-", "-").replace("\\(aq", "'");
                    let plain = plain.replace("\\(ti", "~");
                    let found = shown.lines().find(|shown| shown.trim() == plain);
                    let found = found.unwrap_or_else(|| panic!("{name}: {plain:?} in\n{shown}"));
                    let long = plain.len() > 69;
                    assert!(long || found.len() <= 80, "{name}: {found}");
                    examples += 1;
                }
                _ => {}
            }
        }
    }
    fs::remove_file(&folder).expect("it is there");
    assert!(examples > 30, "{examples}");
}

#[test]
fn all_variables_are_in_the_page() {
    let (_, page) = pages("variables").remove(0);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let Ok(text) = fs::read_to_string(path) else { return };
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `IWARP_")?.split('`').next());
    let mut count = 0;
    for name in rows {
        assert!(page.contains(&format!("\\fBIWARP_{name}=")), "IWARP_{name} is not in iwarp.1");
        count += 1;
    }
    assert!(count > 20 && page.matches("\\fBIWARP_").count() == count, "{count}");
}
