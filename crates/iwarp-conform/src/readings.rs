// SPDX-License-Identifier: MIT OR Apache-2.0

//! The choices that the RFCs leave, and those that this project, Linux siw and the drivers of cards
//! make.

use std::fmt::Write;

/// The list, as text.
const LIST: &str = include_str!("../readings.txt");

/// A choice, and how each implementation takes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// Its name, unique among all.
    pub name: String,
    /// The question that the texts leave open.
    pub asks: String,
    /// The requirements that it is about, by id.
    pub of: Vec<String>,
    /// The cases that look at it.
    pub cases: Vec<String>,
    /// The behaviour of this project.
    pub ours: String,
    /// The behaviour of Linux siw.
    pub siw: String,
    /// The behaviour of cards, as far as their drivers say.
    pub cards: String,
    /// The reason for ours.
    pub why: String,
}

impl Reading {
    /// True if it has that name, or is about that requirement or case.
    pub fn is_about(&self, name: &str) -> bool {
        let among = |list: &[String]| list.iter().any(|other| other == name);
        self.name == name || among(&self.of) || among(&self.cases)
    }

    /// The reading as a few lines of text.
    pub fn text(&self) -> String {
        let Self { name, asks, ours, siw, cards, why, .. } = self;
        format!(
            "Reading {name}: {asks}\n    ours   {ours}\n    siw    {siw}\n    cards  {cards}\n    \
             why    {why}\n"
        )
    }
}

/// All of them.
///
/// # Panics
///
/// When the list is not written as it says at its head, which a test would find.
pub fn all() -> Vec<Reading> {
    let mut lines: Vec<String> = Vec::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match lines.last_mut() {
            Some(last) if line.starts_with(' ') => {
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let mut all: Vec<Reading> = Vec::new();
    for line in &lines {
        let (field, value) = line.split_once(' ').expect("a field and its value");
        let value = value.trim();
        if field == "reading" {
            all.push(Reading { name: value.to_owned(), ..Reading::default() });
            continue;
        }
        let reading = all.last_mut().expect("a reading begins with its name");
        let names = || value.split(", ").map(str::to_owned).collect();
        match field {
            "asks" => reading.asks = value.to_owned(),
            "of" => reading.of = names(),
            "cases" => reading.cases = names(),
            "ours" => reading.ours = value.to_owned(),
            "siw" => reading.siw = value.to_owned(),
            "cards" => reading.cards = value.to_owned(),
            "why" => reading.why = value.to_owned(),
            other => panic!("there is no field {other}"),
        }
    }
    all
}

/// The page about them, in Markdown.
pub fn page() -> String {
    let mut page = String::from(
        "# Readings of the RFCs\n\n\
         Written by `iwarp conform --readings` from `crates/iwarp-conform/readings.txt`; not to be edited.\n\n\
         Where the RFCs leave a choice, two right stacks may differ. This page says which choice this project takes,\n\
         which Linux `siw` takes (its source in Linux 6.1, and [the tester's runs](../interop/siw.md)), and which cards\n\
         take, as far as the drivers of Linux 6.1 say: `cxgb4` (Chelsio T4 to T6) and `irdma` (Intel E810, X722). `qedr`\n\
         (Marvell) leaves all of it to its firmware. No card was tried. A Terminate is written as layer/type/code, in\n\
         hexadecimal.\n",
    );
    for reading in all() {
        let Reading { name, asks, of, cases, ours, siw, cards, why } = reading;
        let mut row = |text: String| page.push_str(&text);
        row(format!("\n## {name}\n\n{asks}\n\n| | |\n|---|---|\n"));
        for (who, what) in [("ours", ours), ("siw", siw), ("cards", cards), ("why", why)] {
            row(format!("| {who} | {what} |\n"));
        }
        let code = |names: Vec<String>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        row(format!("\nRequirements: {}.", code(of)));
        if cases.is_empty() {
            row("\n".to_owned());
        } else {
            row(format!(" Cases: {}.\n", code(cases)));
        }
    }
    page
}

/// The readings about that name, requirement or case, as text; empty where there is none.
pub fn explain(names: &[&str]) -> String {
    let mut text = String::new();
    for reading in all() {
        if names.iter().any(|name| reading.is_about(name)) {
            write!(text, "\n{}", reading.text()).expect("a string");
        }
    }
    text
}
