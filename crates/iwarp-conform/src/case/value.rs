// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values of fields: numbers with variables, and bytes.

use crate::text::unhex;

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Number(Number),
    /// Bytes.
    Bytes(Bytes),
    /// A word.
    Word(String),
}

/// Numbers and variables with `+`, `-` and `^` between them, worked off from the left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Number(Vec<(char, Term)>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Term {
    Literal(u64),
    Variable(String),
}

/// Bytes that a case sends or wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// These.
    Literal(Vec<u8>),
    /// So many of a pattern without zeros, in which neighbours differ.
    Fill(Number),
    /// So many zeros.
    Zeros(Number),
    /// The data of the last message that this end sent.
    Sent,
}

impl Value {
    /// Reads a value.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(quoted) = text.strip_prefix('"') {
            let inner = quoted.strip_suffix('"').ok_or("a quotation mark is missing")?;
            return Ok(Self::Bytes(Bytes::Literal(inner.as_bytes().to_vec())));
        }
        if text == "sent" {
            return Ok(Self::Bytes(Bytes::Sent));
        }
        if let Some((kind, rest)) = text.split_once(':') {
            return Ok(Self::Bytes(match kind {
                "hex" => Bytes::Literal(unhex(rest).ok_or("hex: wants pairs of digits")?),
                "fill" => Bytes::Fill(Number::parse(rest)?),
                "zeros" => Bytes::Zeros(Number::parse(rest)?),
                _ => return Err(format!("there are no bytes of the kind {kind:?}")),
            }));
        }
        if text.starts_with(|first: char| first.is_ascii_digit() || first == '$') {
            return Ok(Self::Number(Number::parse(text)?));
        }
        if text.is_empty() {
            return Err("a value is missing".to_owned());
        }
        Ok(Self::Word(text.to_owned()))
    }
}

impl Number {
    fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        let mut operator = '+';
        let mut rest = text;
        loop {
            let end = rest.find(['+', '-', '^']).unwrap_or(rest.len());
            terms.push((operator, Term::parse(&rest[..end])?));
            let Some(next) = rest[end..].chars().next() else { return Ok(Self(terms)) };
            operator = next;
            rest = &rest[end + 1..];
        }
    }

    /// Its value, which wraps at 2^64; the name of the first variable that `variable` does not
    /// know.
    pub fn value(&self, variable: impl Fn(&str) -> Option<u64>) -> Result<u64, String> {
        let mut sum: u64 = 0;
        for (operator, term) in &self.0 {
            let term = match term {
                Term::Literal(number) => *number,
                Term::Variable(name) => variable(name).ok_or_else(|| name.clone())?,
            };
            sum = match operator {
                '-' => sum.wrapping_sub(term),
                '^' => sum ^ term,
                _ => sum.wrapping_add(term),
            };
        }
        Ok(sum)
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix('$') {
            return Ok(Self::Variable(name.to_owned()));
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map(Self::Literal).map_err(|_| format!("{text:?} is no number"))
    }
}
