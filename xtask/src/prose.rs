// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comments and names of tests in plain English: they name their subject first, and words that hide
//! it become fewer.

use std::fs;

use anyhow::{Result, bail};

use crate::shell;

/// Words that no comment and no name of a test opens with: they promise a riddle.
const OPENINGS: [&str; 13] = [
    "How", "Nobody", "Nothing", "Those", "What", "Whatever", "Where", "Whether", "Who", "Whoever",
    "Whom", "Whose", "Why",
];

/// Words that hide who or what is meant, and the number of comment lines that have them. The number
/// is lowered with each that goes.
const WORDS: [(&str, usize); 4] =
    [("nobody", 7), ("the same", 73), ("whatever", 2), ("whoever", 1)];

/// Columns that the line of a comment may have, as those of code. Rows of a table cannot be broken.
const WIDTH: usize = 100;

/// Checks the comments and the names of tests of all sources.
pub(crate) fn check() -> Result<String> {
    // Files that are not added yet count, so that the check says before a commit what it says
    // after.
    let sources = ["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs"];
    let listed = shell::output(shell::program("git").args(sources))?;
    let (mut problems, mut counts, mut comments) = (Vec::new(), [0; WORDS.len()], 0);
    for file in listed.lines() {
        let Ok(source) = fs::read_to_string(shell::root().join(file)) else { continue };
        let found = look_at(&source);
        comments += found.comments;
        let opened = |(line, word): &(usize, &str)| format!("{file}:{line}: opens with {word}");
        problems.extend(found.openings.iter().map(opened));
        let wide = |line: &usize| format!("{file}:{line}: has more than {WIDTH} columns");
        problems.extend(found.wide.iter().map(wide));
        for (count, more) in counts.iter_mut().zip(found.words) {
            *count += more;
        }
    }
    for ((word, most), count) in WORDS.iter().zip(counts) {
        if count > *most {
            problems.push(format!("{count} comment lines have \"{word}\", of {most} before"));
        } else if count < *most {
            problems.push(format!("\"{word}\" stands in {count} lines: lower it in {}", file!()));
        }
    }
    if !problems.is_empty() {
        bail!(
            "name the subject first, and by its name, in lines that fit:\n{}",
            problems.join("\n")
        );
    }
    Ok(format!("{comments} comments name their subject"))
}

/// The comments of one source.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    comments: usize,
    /// Lines, from 1 on, of comments and names of tests that open with one of [`OPENINGS`].
    openings: Vec<(usize, &'static str)>,
    /// Lines, from 1 on, that are wider than [`WIDTH`].
    wide: Vec<usize>,
    /// Lines that have each of [`WORDS`].
    words: [usize; WORDS.len()],
}

fn look_at(source: &str) -> Found {
    let mut found = Found::default();
    let (mut goes_on, mut is_test) = (false, false);
    for (number, line) in source.lines().enumerate() {
        let Some(text) = comment(line) else {
            goes_on = false;
            let name = test_name(line, is_test);
            is_test = line.trim() == "#[test]" || is_test && name.is_none();
            let first = name.and_then(|name| name.split('_').next()).unwrap_or_default();
            let opening = OPENINGS.into_iter().find(|word| word.to_lowercase() == first);
            found.openings.extend(opening.map(|word| (number + 1, word)));
            continue;
        };
        if !goes_on && !text.is_empty() {
            found.comments += 1;
            let first = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            let opening = OPENINGS.into_iter().find(|word| *word == first);
            found.openings.extend(opening.map(|word| (number + 1, word)));
        }
        goes_on = !text.is_empty();
        if line.chars().count() > WIDTH && !text.starts_with('|') {
            found.wide.push(number + 1);
        }
        let lower = text.to_lowercase();
        for ((word, _), count) in WORDS.iter().zip(&mut found.words) {
            *count += usize::from(lower.contains(word));
        }
    }
    found
}

/// The name in a line that begins a function, where one is expected, or that names a scenario, of
/// which a macro makes a test.
fn test_name(line: &str, is_expected: bool) -> Option<&str> {
    let line = line.trim_start();
    match line.strip_prefix("fn ") {
        Some(function) => function.split('(').next().filter(|_| is_expected),
        None => line.strip_suffix("\",").and(line.split_once(" = \"")).map(|(name, _)| name),
    }
}

/// The text of a line that is a comment.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_a_comment_counts() {
        let source =
            "//! What it is.\n//!\n//! Whether.\nfn f() {}\n    // Fine,\n    // whoever reads.\n";
        let found = look_at(source);
        assert_eq!(found.comments, 3);
        assert_eq!(found.openings, [(1, "What"), (3, "Whether")]);
        assert_eq!(found.words, [0, 0, 0, 1]);
        assert_eq!(look_at("let url = \"// What\";\n"), Found::default());
    }

    #[test]
    fn the_first_word_of_the_name_of_a_test_counts() {
        let source = "#[test]\n#[ignore]\n// Why.\nfn what_is_it() {\n    fn who_am_i() {}\n}\n\
                      fn how() {}\n    nobody_listens = \"x\",\n#[test]\nfn somewhat() {}\n";
        assert_eq!(look_at(source).openings, [(3, "Why"), (4, "What"), (8, "Nobody")]);
    }

    #[test]
    fn a_line_that_is_too_wide_counts_unless_it_is_a_row() {
        let wide = "x".repeat(WIDTH);
        let source = format!("// {}\n// {wide}\n/// | {wide} |\n{wide}{wide}\n", &wide[3..]);
        assert_eq!(look_at(&source).wide, [2]);
    }
}
