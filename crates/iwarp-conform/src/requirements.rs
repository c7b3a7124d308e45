// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requirements of the RFCs, in our words.

/// The list, as the project has it.
const LIST: &str = include_str!("../requirements.csv");

/// One requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// Its id.
    pub id: String,
    /// The number of the RFC, or the name of the draft.
    pub document: String,
    /// The section.
    pub section: String,
    /// MUST, SHOULD, MAY; `DEF` for a definition without a keyword.
    pub level: String,
    /// In our words.
    pub text: String,
}

/// The requirement with that id.
pub fn find(id: &str) -> Option<Requirement> {
    all().find(|requirement| requirement.id == id)
}

/// All of them.
pub fn all() -> impl Iterator<Item = Requirement> {
    LIST.lines().skip(1).filter_map(|line| {
        let mut cells = cells(line).into_iter();
        let mut next = || cells.next();
        Some(Requirement {
            id: next()?,
            document: next()?,
            section: next()?,
            level: next()?,
            text: next()?,
        })
    })
}

/// The cells of a line of CSV.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let cell = cells.last_mut().expect("there is one");
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            _ => cell.push(letter),
        }
    }
    cells
}
