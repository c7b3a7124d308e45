// SPDX-License-Identifier: MIT OR Apache-2.0

//! Outcomes as a table, as JSON and as JUnit's XML.

use std::fmt::Write;

use serde::Serialize;

use crate::case::{Case, Role};
use crate::verdict::{Outcome, Verdict};

/// The number of outcomes of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Count {
    /// Cases that the peer passed.
    pub conforms: usize,
    /// Cases in which it did something else.
    pub deviates: usize,
    /// Cases that could not be seen.
    pub not_seen: usize,
}

/// Counts outcomes.
pub fn count(outcomes: &[Outcome]) -> Count {
    let mut count = Count::default();
    for outcome in outcomes {
        match outcome.verdict {
            Verdict::Conforms => count.conforms += 1,
            Verdict::Deviates(_) => count.deviates += 1,
            Verdict::NotSeen { .. } => count.not_seen += 1,
        }
    }
    count
}

const fn end(role: Role) -> &'static str {
    match role {
        Role::Connect => "server",
        Role::Listen => "client",
    }
}

/// One line for an outcome, and more where the peer deviates.
pub fn line(case: &Case, outcome: &Outcome) -> String {
    let name = &outcome.case;
    match &outcome.verdict {
        Verdict::Conforms => format!("conforms  {name:<34} {}\n", case.title),
        Verdict::NotSeen { why } => format!("not seen  {name:<34} {why}\n"),
        Verdict::Deviates(found) => {
            let mut text = format!("DEVIATES  {name:<34} {}\n", case.title);
            let covers = case.covers.join(", ");
            let mut row = |what: &str, value: &str| {
                writeln!(text, "          {what:<9} {value}").expect("a string");
            };
            row("of", &covers);
            row("step", &format!("{}, {}:{}", found.step, case.file, found.line));
            row("expected", &found.expected);
            row("came", &found.came);
            if !found.bytes.is_empty() {
                row("bytes", &found.bytes);
            }
            text
        }
    }
}

/// The last line of a table.
pub fn summary(outcomes: &[Outcome]) -> String {
    let Count { conforms, deviates, not_seen } = count(outcomes);
    format!("{conforms} conform, {deviates} deviate, {not_seen} not seen\n")
}

#[derive(Serialize)]
struct Row<'a> {
    case: &'a str,
    title: &'a str,
    requirements: &'a [String],
    peer_is: &'a str,
    milliseconds: u64,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

#[derive(Serialize)]
struct All<'a> {
    tester: &'a str,
    count: Count,
    cases: Vec<Row<'a>>,
}

/// Everything as JSON; `cases` has the case of each outcome.
///
/// # Errors
///
/// None: there are only strings and numbers.
pub fn json(cases: &[&Case], outcomes: &[Outcome]) -> serde_json::Result<String> {
    let rows = cases.iter().zip(outcomes).map(|(case, outcome)| Row {
        case: &case.name,
        title: &case.title,
        requirements: &case.covers,
        peer_is: end(outcome.role),
        milliseconds: outcome.took.as_millis() as u64,
        verdict: &outcome.verdict,
    });
    let tester = concat!("iwarp conform ", env!("CARGO_PKG_VERSION"));
    serde_json::to_string_pretty(&All { tester, count: count(outcomes), cases: rows.collect() })
}

/// Everything as JUnit's XML.
pub fn junit(cases: &[&Case], outcomes: &[Outcome]) -> String {
    let Count { deviates, not_seen, .. } = count(outcomes);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let seconds: f64 = outcomes.iter().map(|outcome| outcome.took.as_secs_f64()).sum();
    let total = outcomes.len();
    let mut put = |line: String| text.push_str(&line);
    put(format!(
        "<testsuite name=\"iwarp conform\" tests=\"{total}\" failures=\"{deviates}\" \
         skipped=\"{not_seen}\" time=\"{seconds:.3}\">\n"
    ));
    for (case, outcome) in cases.iter().zip(outcomes) {
        let name = escape(&case.name);
        let class = end(outcome.role);
        let took = outcome.took.as_secs_f64();
        put(format!("<testcase classname=\"{class}\" name=\"{name}\" time=\"{took:.3}\">"));
        match &outcome.verdict {
            Verdict::Conforms => {}
            Verdict::NotSeen { why } => put(format!("<skipped message=\"{}\"/>", escape(why))),
            Verdict::Deviates(found) => {
                let message = format!("expected {}; came {}", found.expected, found.came);
                let detail = format!(
                    "{}\n{}\nstep: {}\nbytes: {}",
                    case.title,
                    case.covers.join(", "),
                    found.step,
                    found.bytes
                );
                let [message, detail] = [message, detail].map(|text| escape(&text));
                put(format!("<failure message=\"{message}\">{detail}</failure>"));
            }
        }
        put("</testcase>\n".to_owned());
    }
    put("</testsuite>\n".to_owned());
    text
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no other control characters.
            letter if letter.is_control() && letter != '\n' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}
