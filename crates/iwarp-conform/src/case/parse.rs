// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reading the text of cases.

use std::time::Duration;

use super::{Action, Bytes, Case, CaseError, End, Fields, Need, Role, Roles, Step, Value};
use crate::wire::segment::Kind;
use crate::wire::startup;

/// Fields of start-up frames.
const FRAME: &[&str] = &[
    "key",
    "markers",
    "crc",
    "reject",
    "enhanced",
    "reserved",
    "rev",
    "length",
    "pd",
    "ird",
    "ord",
    "p2p",
    "rtr-send",
    "rtr-write",
    "rtr-read",
    "cut",
    "within",
];
/// Fields of every message that is sent.
const SEND: &[&str] = &[
    "data",
    "t",
    "l",
    "rsvd",
    "dv",
    "rv",
    "rsv",
    "opcode",
    "stag",
    "to",
    "inv",
    "qn",
    "msn",
    "mo",
    "bad-crc",
    "pad",
    "length",
    "marker-pointer",
    "marker-reserved",
    "cut",
    "short",
    "times",
];
/// Fields of a Read Request's header.
const READ: &[&str] = &["sink-stag", "sink-to", "size", "src-stag", "src-to"];
/// Fields of an Atomic Request's header.
const ATOMIC: &[&str] =
    &["operation", "id", "at-stag", "at-to", "add", "mask", "compare", "compare-mask"];
/// Fields of an Atomic Response's header.
const ATOMIC_RESPONSE: &[&str] = &["id", "value"];
/// Fields of a message that is wanted.
const EXPECT: &[&str] = &["data", "len", "stag", "to", "inv", "qn", "msn", "segments", "within"];

/// The most connections of `crowd`.
const MOST: u64 = 256;

/// Reads the cases of a file.
///
/// # Errors
///
/// The first line that is wrong.
pub fn parse(file: &str, text: &str) -> Result<Vec<Case>, CaseError> {
    let mut cases: Vec<Case> = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let words = words(line);
        let fail = |what: String| CaseError { file: file.to_owned(), line: place + 1, what };
        let Some((first, rest)) = words.split_first() else { continue };
        if first == "case" {
            let [name] = rest else { return Err(fail("case wants one name".to_owned())) };
            cases.push(Case {
                name: name.clone(),
                title: String::new(),
                covers: Vec::new(),
                role: Roles::Either,
                needs: Vec::new(),
                steps: Vec::new(),
                file: file.to_owned(),
            });
            continue;
        }
        let case =
            cases.last_mut().ok_or_else(|| fail("a case begins with its name".to_owned()))?;
        head_or_step(case, first, rest, line, place + 1).map_err(fail)?;
    }
    for case in &cases {
        let lacks = |what: &str| CaseError {
            file: file.to_owned(),
            line: case.steps.first().map_or(0, |step| step.line),
            what: format!("the case {} has no {what}", case.name),
        };
        if case.title.is_empty() {
            return Err(lacks("title"));
        }
        if case.covers.is_empty() {
            return Err(lacks("requirements"));
        }
        if case.steps.is_empty() {
            return Err(lacks("steps"));
        }
    }
    Ok(cases)
}

fn head_or_step(
    case: &mut Case,
    first: &str,
    rest: &[String],
    line: &str,
    number: usize,
) -> Result<(), String> {
    match first {
        "title" => case.title = line.trim().trim_start_matches("title").trim().to_owned(),
        "covers" => {
            case.covers.extend(rest.iter().map(|id| id.trim_end_matches(',').to_owned()));
        }
        "role" => {
            case.role = match rest.first().map(String::as_str) {
                Some("connect") => Roles::One(Role::Connect),
                Some("listen") => Roles::One(Role::Listen),
                Some("either") => Roles::Either,
                _ => return Err("role is connect, listen or either".to_owned()),
            };
        }
        "needs" => {
            for word in rest {
                case.needs.push(need(word)?);
            }
        }
        _ => {
            let action = action(first, rest)?;
            case.steps.push(Step { line: number, text: line.trim().to_owned(), action });
        }
    }
    Ok(())
}

fn need(word: &str) -> Result<Need, String> {
    Ok(match word.trim_end_matches(',') {
        "memory" => Need::Memory,
        "rights" => Need::Rights,
        "echo" => Need::Echo,
        "orders" => Need::Orders,
        "reads" => Need::Reads,
        "extensions" => Need::Extensions,
        "user-space" => Need::UserSpace,
        "crc" => Need::Crc,
        "no-crc" => Need::NoCrc,
        "markers" => Need::Markers,
        "rdmac" => Need::Rdmac,
        "time" => Need::Time,
        other => return Err(format!("nothing is called {other:?} that a peer may offer")),
    })
}

fn action(verb: &str, rest: &[String]) -> Result<Action, String> {
    let first = rest.first().map(String::as_str);
    let behind = rest.get(1..).unwrap_or_default();
    Ok(match (verb, first) {
        ("start", _) => Action::Start(fields(rest, &[FRAME])?),
        ("send", Some("bytes")) => Action::SendBytes(bytes(behind)?),
        ("send", Some("request")) => {
            Action::SendFrame(startup::Kind::Request, fields(behind, &[FRAME])?)
        }
        ("send", Some("reply")) => {
            Action::SendFrame(startup::Kind::Reply, fields(behind, &[FRAME])?)
        }
        ("send", Some(name)) => {
            let kind = Kind::named(name).ok_or_else(|| unknown_message(name))?;
            Action::SendMessage(kind, fields(behind, &[SEND, header(kind)])?)
        }
        ("expect", Some("request")) => {
            Action::ExpectFrame(startup::Kind::Request, fields(behind, &[FRAME])?)
        }
        ("expect", Some("reply")) => {
            Action::ExpectFrame(startup::Kind::Reply, fields(behind, &[FRAME])?)
        }
        ("expect", Some("close")) => {
            Action::ExpectEnd(End::Closed, fields(behind, &[&["within"]])?)
        }
        ("expect", Some("end")) => {
            let fields = fields(behind, &[&["within", "terminate", "reply", "past"]])?;
            Action::ExpectEnd(End::Any, past(fields)?)
        }
        ("expect", Some("silence")) => Action::ExpectSilence(time(behind)?),
        ("expect", Some("terminate")) => {
            let codes = behind.first().ok_or("terminate wants LAYER/TYPE/CODE")?;
            let rest = fields(&behind[1..], &[&["quotes", "silence", "within", "past"]])?;
            let codes = codes.split('|').map(code).collect::<Result<_, _>>()?;
            Action::ExpectTerminate(codes, past(rest)?)
        }
        ("expect", Some(name)) => {
            let kind = Kind::named(name).ok_or_else(|| unknown_message(name))?;
            Action::ExpectMessage(kind, fields(behind, &[EXPECT, header(kind)])?)
        }
        ("ping", None) => Action::Ping,
        ("split", Some(size)) => {
            let size = if size == "off" { Ok(usize::MAX) } else { size.parse() };
            match size {
                Ok(size) if size > 0 => Action::Split(size),
                _ => return Err("split wants a number of bytes, or off".to_owned()),
            }
        }
        ("drip", Some(_)) => Action::Drip(time(rest)?),
        ("crowd", Some(number)) => {
            let number = number.parse().ok().filter(|number| (1..=MOST).contains(number));
            Action::Crowd(number.ok_or_else(|| format!("crowd wants a number from 1 to {MOST}"))?)
        }
        ("hold", None) => Action::Hold,
        ("flush", None) => Action::Flush,
        ("close", None) => Action::Close,
        ("reset", None) => Action::Reset,
        ("wait", Some(_)) => Action::Wait(time(rest)?),
        _ => return Err(format!("there is no step {verb:?} like this")),
    })
}

/// The fields of RDMAP's own header.
const fn header(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::ReadRequest => READ,
        Kind::AtomicRequest => ATOMIC,
        Kind::AtomicResponse => ATOMIC_RESPONSE,
        _ => &[],
    }
}

/// Names messages in `past`.
fn past(fields: Fields) -> Result<Fields, String> {
    for value in fields.all("past").unwrap_or_default() {
        match value {
            Value::Word(name) if Kind::named(name).is_some() => {}
            other => return Err(format!("{other:?} is no message to pass over")),
        }
    }
    Ok(fields)
}

fn unknown_message(name: &str) -> String {
    format!("there is no message {name:?}")
}

fn bytes(words: &[String]) -> Result<Bytes, String> {
    let [word] = words else { return Err("bytes wants one value".to_owned()) };
    match Value::parse(word)? {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err("bytes wants bytes: \"text\", hex:, fill: or zeros:".to_owned()),
    }
}

/// Milliseconds.
fn time(words: &[String]) -> Result<Duration, String> {
    let [word] = words else { return Err("a time in milliseconds is missing".to_owned()) };
    word.parse().map(Duration::from_millis).map_err(|_| format!("{word:?} is no time"))
}

/// `LAYER/TYPE/CODE`, in hexadecimal digits.
fn code(text: &str) -> Result<(u8, u8, u8), String> {
    let wrong = || format!("{text:?} is not LAYER/TYPE/CODE");
    let parts: Vec<&str> = text.split('/').collect();
    let [layer, etype, code] = parts[..] else { return Err(wrong()) };
    let number = |text: &str| u8::from_str_radix(text, 16).map_err(|_| wrong());
    Ok((number(layer)?, number(etype)?, number(code)?))
}

fn fields(words: &[String], known: &[&[&str]]) -> Result<Fields, String> {
    let mut fields = Fields::default();
    for word in words {
        let (name, value) =
            word.split_once('=').ok_or_else(|| format!("{word:?} lacks a value"))?;
        if !known.iter().any(|names| names.contains(&name)) {
            return Err(format!("there is no field {name:?} here"));
        }
        let values: Result<Vec<Value>, String> = if value.starts_with('"') {
            Ok(vec![Value::parse(value)?])
        } else {
            value.split('|').map(Value::parse).collect()
        };
        fields.0.push((name.to_owned(), values?));
    }
    Ok(fields)
}

/// Words between blanks; blanks within quotation marks do not count, `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '#' if !quoted => break,
            ' ' | '\t' if !quoted => words.push(String::new()),
            _ => {
                quoted ^= letter == '"';
                words.last_mut().expect("there is one").push(letter);
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
