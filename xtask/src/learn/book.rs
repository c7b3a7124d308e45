// SPDX-License-Identifier: MIT OR Apache-2.0

//! The book's pages: what they include and what they link to is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{pictures, programs};

/// Questions of a chapter, and answers to them.
const QUESTIONS: usize = 3;
/// Exercises of a chapter, and answers to them.
const EXERCISES: usize = 2;

/// Checks all of it; says how much that was.
pub(super) fn check() -> Result<String> {
    let src = super::folder().join("src");
    let summary = read(&src.join("SUMMARY.md"))?;
    let listed: Vec<PathBuf> = links(&summary).into_iter().map(|link| src.join(link)).collect();
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let mut pages: BTreeSet<PathBuf> = programs::files(&src)?.into_iter().filter(is_page).collect();
    pages.remove(&src.join("SUMMARY.md"));
    let unlisted = &pages - &listed.iter().cloned().collect();
    ensure!(unlisted.is_empty(), "SUMMARY.md does not list {unlisted:?}");

    let answers = read(&src.join("answers.md"))?;
    let (mut included, mut found, mut chapters) = (BTreeSet::new(), 0, 0);
    let mut pictures = BTreeSet::new();
    for page in &listed {
        let text = read(page)?;
        for target in includes(&text).into_iter().map(|target| src.join(target)) {
            ensure!(target.exists(), "{}: no {} to include", page.display(), target.display());
            included.insert(resolved(&target));
        }
        for link in links(&text) {
            check_link(page, &link)?;
            found += 1;
            pictures.insert(resolved(&src.join(link)));
        }
        ensure!(outputs_wrap(&text), "{}: an output in a block that is no `text`", page.display());
        if page.ends_with("answers.md") || !is_chapter(&text) {
            continue;
        }
        chapters += 1;
        let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let (_, answered) = answers
            .split_once(&format!("\n## {title}\n"))
            .with_context(|| format!("answers.md has nothing on {title:?}"))?;
        let answered = answered.split("\n## ").next().unwrap_or_default();
        let (answers, solved) = answered.split_once("\nExercises:\n").unwrap_or((answered, ""));
        for (kind, text, wanted) in [
            ("questions", under(&text, "Questions"), QUESTIONS),
            ("answers", answers, QUESTIONS),
            ("exercises", under(&text, "Exercises"), EXERCISES),
            ("answers to exercises", solved, EXERCISES),
        ] {
            let count = numbered(text);
            ensure!(count == wanted, "{title}: {count} {kind}, not {wanted}");
        }
    }
    let wanted = sources()?;
    let left = &wanted - &included;
    ensure!(left.is_empty(), "no page includes {left:?}");
    let drawn = programs::files(&src)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "svg"));
    let drawn: BTreeSet<_> = drawn.collect();
    let left = &drawn - &pictures;
    ensure!(left.is_empty(), "no page shows {left:?}");
    for picture in &drawn {
        pictures::check(picture, &read(picture)?)?;
    }
    style(&read(&super::folder().join("book.toml"))?)?;
    Ok(format!("{} pages, {chapters} with questions and exercises, {found} links", listed.len()))
}

/// The book's own style makes outputs wrap, and pictures dark with the page.
fn style(book: &str) -> Result<()> {
    ensure!(book.contains("additional-css = [\"learn.css\"]"), "book.toml does not name learn.css");
    let style = read(&super::folder().join("learn.css"))?;
    for rule in ["code.language-text {\n  white-space: pre-wrap;", "color-scheme: dark;"] {
        ensure!(style.contains(rule), "learn.css has no {rule:?}");
    }
    Ok(())
}

/// True if each output is in a block of the kind that wraps.
fn outputs_wrap(page: &str) -> bool {
    let lines: Vec<&str> = page.lines().collect();
    lines.windows(2).all(|pair| !pair[1].contains("programs/output/") || pair[0] == "```text")
}

/// A page with a program, questions or exercises has to have all of the latter.
fn is_chapter(page: &str) -> bool {
    ["programs/output/", "\n## Questions\n", "\n## Exercises\n"]
        .iter()
        .any(|mark| page.contains(mark))
}

/// The text below a heading, up to the next one.
fn under<'a>(page: &'a str, heading: &str) -> &'a str {
    let rest = page.split_once(&format!("\n## {heading}\n")).map_or("", |(_, rest)| rest);
    rest.split("\n## ").next().unwrap_or_default()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{}", path.display()))
}

/// All programs, what they share, and their outputs: each is to be on a page.
fn sources() -> Result<BTreeSet<PathBuf>> {
    let folder = super::folder().join("programs");
    let mut all = programs::files(&folder.join("output"))?;
    all.extend(["c/learn.h", "python/learn.py", "rust/src/lib.rs"].map(|name| folder.join(name)));
    for name in programs::names()? {
        all.insert(folder.join("c").join(format!("{name}.c")));
        all.insert(folder.join("python").join(format!("{name}.py")));
        all.insert(folder.join("rust/examples").join(format!("{name}.rs")));
    }
    Ok(all)
}

/// That path without `..`, which need not exist.
fn resolved(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// A link leads to a page or picture of the book, and to a heading there if it names one; what lies
/// outside of it is not in the book that is served.
fn check_link(page: &Path, link: &str) -> Result<()> {
    if link.contains("://") {
        return Ok(());
    }
    let at = page.display();
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_path_buf() } else { page.with_file_name(file) };
    ensure!(!file.contains(".."), "{at}: {link} leads out of the book");
    ensure!(target.exists(), "{at}: {link} leads nowhere");
    if !heading.is_empty() {
        let text = read(&target)?;
        let mut headings = text.lines().filter(|line| line.starts_with('#'));
        ensure!(headings.any(|line| slug(line) == heading), "{at}: no heading for {link}");
    }
    Ok(())
}

/// The name that mdBook gives to a heading.
fn slug(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Targets of `{{#include ...}}`.
fn includes(text: &str) -> Vec<&str> {
    between(text, "{{#include ", "}}")
}

/// Targets of links and pictures that are not in code; pictures may be in HTML.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut links = Vec::new();
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        if !in_code {
            for (open, close) in [("](", ")"), (" src=\"", "\""), (" srcset=\"", "\"")] {
                links.extend(between(line, open, close).into_iter().map(str::to_owned));
            }
        }
    }
    links
}

fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let rest = text.split(open).skip(1);
    rest.filter_map(|part| part.split_once(close)).map(|(target, _)| target).collect()
}

/// Points of a numbered list.
fn numbered(text: &str) -> usize {
    let is_point = |line: &&str| {
        line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
    };
    text.lines().filter(is_point).count()
}

#[cfg(test)]
mod tests {
    use super::{includes, links, numbered, outputs_wrap, slug, under};

    #[test]
    fn the_book_is_whole() {
        super::check().unwrap();
    }

    #[test]
    fn references_of_pages_are_found() {
        let text = "# A\n[one](a.md), ![two](b.svg#c)\n```c\nx[1](2)\n{{#include ../p/d.c}}\n```\n";
        assert_eq!(links(text), ["a.md", "b.svg#c"]);
        assert_eq!(includes(text), ["../p/d.c"]);
        let html = "<source media=\"m\" srcset=\"n.svg\">\n<img src=\"w.svg\" alt=\"a\">\n";
        assert_eq!(links(html), ["n.svg", "w.svg"]);
        let page = "# A\n\n## Questions\n\n1. a\n\n## Exercises\n\n1. b\n2. c\n";
        assert_eq!(
            (numbered(under(page, "Questions")), numbered(under(page, "Exercises"))),
            (1, 2)
        );
        assert_eq!(under(page, "More"), "");
        assert!(outputs_wrap("```text\n{{#include ../programs/output/a.txt}}\n```\n"));
        assert!(!outputs_wrap("```\n{{#include ../programs/output/a.txt}}\n```\n"));
        assert_eq!(numbered("1. a\n2. b\n   3.5 c\nText.\n"), 2);
        assert_eq!(slug("## What `iwarp run` does, and why"), "what-iwarp-run-does-and-why");
    }
}
