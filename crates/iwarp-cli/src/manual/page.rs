// SPDX-License-Identifier: MIT OR Apache-2.0

//! One manual page: the sections of clap_mangen, and those that it does not have.
//!
//! The text behind the options (`after_long_help`) gives the sections EXAMPLES, EXIT STATUS and so
//! on. Its tables keep their lines there, which clap_mangen would fill into one another.

use std::fmt::Write;
use std::io::Result;

use clap::Command;
use clap_mangen::Man;

use super::reference::{FILES, PROGRAMS, VARIABLES};

const SOURCE: &str = concat!("iwarp ", env!("CARGO_PKG_VERSION"));

/// Columns of a terminal less the margins of a page.
const COLUMNS: usize = 72;

/// The variables that every page has.
const EVERYWHERE: [&str; 4] = ["IWARP_PERSONALITY", "IWARP_DEVICES", "IWARP_CRC", "IWARP_LOG"];

/// Beginnings of paragraphs of the text, and their sections.
const HEADS: [(&str, &str); 6] = [
    ("Start here", "EXAMPLES"),
    ("Examples", "EXAMPLES"),
    ("Environment", "ENVIRONMENT"),
    ("Exit status", "EXIT STATUS"),
    ("Limits", "LIMITS"),
    ("Tests", "TESTS"),
];

/// The page of the command `name`, which is one of `all`.
pub(super) fn render(command: Command, name: &str, all: &[String]) -> Result<Vec<u8>> {
    let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let (has_commands, program) = (command.has_subcommands(), name == "iwarp-run");
    let man = Man::new(command).title(name).manual("User Commands").source(SOURCE);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = String::new();
    for (title, text) in sections(&help).into_iter().filter(|(title, _)| *title != "ENVIRONMENT") {
        section(&mut rest, title);
        for part in parts(&text) {
            part.render(&mut rest, title == "EXAMPLES");
        }
    }
    environment(&mut rest, name);
    section(&mut rest, "FILES");
    for (path, text, for_programs) in FILES {
        if program || !for_programs {
            tagged(&mut rest, path, text);
        }
    }
    section(&mut rest, "SEE ALSO");
    let others = all.iter().filter(|other| *other != name).map(|other| format!("{other}(1)"));
    let known = PROGRAMS.iter().find(|(command, _)| *command == name);
    let known = known.into_iter().flat_map(|(_, pages)| pages.iter().map(ToString::to_string));
    let bold = |page: String| format!("\\fB{}", escaped(&page)).replacen('(', "\\fR(", 1);
    let list: Vec<String> = others.chain(known).map(bold).collect();
    rest += &format!("{}\n", list.join(",\n"));
    page.extend(rest.bytes());
    Ok(page)
}

/// The page of all has all variables; the others the name of that page.
fn environment(page: &mut String, name: &str) {
    section(page, "ENVIRONMENT");
    let is_whole = name == "iwarp";
    for (variable, values, text) in VARIABLES {
        if is_whole || EVERYWHERE.contains(variable) {
            tagged(page, &format!("{variable}={values}"), text);
        }
    }
    let rest = match is_whole {
        true => {
            "A misspelt variable is reported, with the nearest name. configuration.md says more."
        }
        false => "iwarp(1) has all variables. Options of this command override them.",
    };
    filled(page, rest);
}

/// The text in sections: what follows a head belongs to it.
fn sections(help: &str) -> Vec<(&'static str, Vec<String>)> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let head = HEADS.iter().find(|(head, _)| paragraph.starts_with(head));
        let (title, text) = match head {
            Some((head, title)) => (*title, without_head(paragraph, head)),
            None => (all.last().map_or("NOTES", |(title, _)| *title), paragraph.to_owned()),
        };
        match all.iter_mut().find(|(known, _)| *known == title) {
            Some((_, texts)) => texts.push(text),
            None => all.push((title, vec![text])),
        }
    }
    all
}

/// A head that says no more than its section's title goes.
fn without_head(paragraph: &str, head: &str) -> String {
    let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
    if first.trim_end_matches(':') == head {
        return rest.to_owned();
    }
    let Some(text) = paragraph.strip_prefix(head).and_then(|text| text.strip_prefix(": ")) else {
        return paragraph.to_owned();
    };
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Text to be filled, or the rows of a table: a term, and what is said of it.
enum Part {
    Text(String),
    Table(Vec<(String, String)>),
}

/// Rows are indented by two; the text of one may go on in lines that are indented further.
fn parts(texts: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    for line in texts.iter().flat_map(|text| text.lines().chain([""])) {
        match (line.strip_prefix("  "), parts.last_mut()) {
            _ if line.is_empty() => parts.push(Part::Text(String::new())),
            (Some(row), Some(Part::Table(rows))) => match (row.strip_prefix("  "), rows.last_mut())
            {
                (Some(more), Some((_, text))) => add(text, more.trim()),
                _ => rows.push(cells(row)),
            },
            (Some(row), _) => parts.push(Part::Table(vec![cells(row)])),
            (None, Some(Part::Text(text))) => add(text, line),
            (None, _) => parts.push(Part::Text(line.to_owned())),
        }
    }
    parts
}

fn cells(row: &str) -> (String, String) {
    let (term, text) = row.split_once("  ").unwrap_or((row, ""));
    (term.to_owned(), text.trim().to_owned())
}

fn add(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

impl Part {
    /// Commands keep their lines, so that they can be copied.
    fn render(&self, page: &mut String, commands: bool) {
        match self {
            Self::Text(text) if text.is_empty() => {}
            Self::Text(text) => filled(page, text),
            Self::Table(rows) if commands => {
                page.push_str(".PP\n.RS 4\n.nf\n");
                let width = rows.iter().map(|(term, _)| term.len() + 2).max().unwrap_or(0);
                let fits = rows.iter().all(|(_, text)| width + text.len() < COLUMNS - 4);
                for (term, text) in rows {
                    let line = match fits {
                        true => format!("{term:width$}{text}"),
                        false if text.is_empty() => term.clone(),
                        false => format!("{term}\n    {text}"),
                    };
                    for line in line.lines() {
                        let _ = writeln!(page, "{}", escaped(line.trim_end()));
                    }
                }
                page.push_str(".fi\n.RE\n");
            }
            Self::Table(rows) => rows.iter().for_each(|(term, text)| tagged(page, term, text)),
        }
    }
}

fn section(page: &mut String, title: &str) {
    let _ = writeln!(page, ".SH {title:?}");
}

fn filled(page: &mut String, text: &str) {
    let _ = writeln!(page, ".PP\n{}", escaped(text));
}

fn tagged(page: &mut String, term: &str, text: &str) {
    let _ = writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(text));
}

/// Text that roff takes as it stands, and that can be copied into a shell.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '~' => escaped.push_str("\\(ti"),
            '^' => escaped.push_str("\\(ha"),
            other => escaped.push(other),
        }
    }
    // A control line begins so.
    if escaped.starts_with('.') { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::{Part, escaped, parts, sections};

    #[test]
    fn the_text_is_cut_into_sections() {
        let help = "Examples, in turn:\n  a b   one\n  c\n        two\n\nThen:\n  d  three\n\n\
            Exit status: the program's.\n\nExamples:\n  e  four";
        let found = sections(help);
        let titles: Vec<&str> = found.iter().map(|(title, _)| *title).collect();
        assert_eq!(titles, ["EXAMPLES", "EXIT STATUS"]);
        assert_eq!(found[1].1, ["The program's."]);
        let mut page = String::new();
        parts(&found[0].1).iter().for_each(|part| part.render(&mut page, true));
        let rows = ".PP\n.RS 4\n.nf\na b  one\nc    two\n.fi\n.RE\n";
        assert!(
            page.starts_with(&format!(".PP\nExamples, in turn:\n{rows}.PP\nThen:\n")),
            "{page}"
        );
        assert!(page.ends_with(".nf\ne  four\n.fi\n.RE\n"), "{page}");
        assert!(matches!(&parts(&["text".to_owned()])[0], Part::Text(text) if text == "text"));
    }

    #[test]
    fn roff_takes_the_text_as_it_stands() {
        assert_eq!(escaped(".a '-b' \\"), "\\&.a \\(aq\\-b\\(aq \\e");
    }
}
