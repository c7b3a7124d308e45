// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp resource`: the objects of running processes one by one, in the words of `rdma resource`.

use anyhow::Result;
use serde_json::{Value, json};

use super::facts::{Facts, Process, silence};

/// Show the objects of running processes, one a line.
///
/// In the words of `rdma resource show`, which below `iwarp run` shows them as well; here they are
/// shown of all processes that use this library, with what they wait for.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only objects of this kind
    #[arg(value_name = "KIND")]
    kind: Option<Kind>,
    /// Only those of this process
    #[arg(short, long, value_name = "PID")]
    pid: Option<u32>,
    /// As JSON
    #[arg(short, long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp resource                                all objects of all processes
  iwarp resource qp --pid 4711                  the queue pairs of process 4711
  iwarp resource cq --json                      completion queues, for programs";

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Qp,
    Cq,
    Srq,
    #[value(name = "cm_id")]
    CmId,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = Process::wanted(args.pid)?;
    let mut list = Vec::new();
    for process in &all {
        match &process.answer {
            Ok(facts) => {
                list.extend(objects(facts, args.kind).into_iter().map(|(kind, mut of)| {
                    if let Some(members) = of.as_object_mut() {
                        members.insert("pid".to_owned(), process.pid.into());
                        members.insert("comm".to_owned(), json!(process.name));
                    }
                    (kind, of)
                }))
            }
            Err(error) => eprintln!("process {} {}", process.pid, silence(process, error)),
        }
    }
    if args.json {
        let with_kind = |(kind, mut of): (&str, Value)| {
            if let Some(members) = of.as_object_mut() {
                members.insert("kind".to_owned(), kind.into());
            }
            of
        };
        let list: Vec<_> = list.into_iter().map(with_kind).collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(());
    }
    for (kind, of) in &list {
        println!("{kind} {}", words(of));
    }
    Ok(())
}

fn objects(facts: &Facts, wanted: Option<Kind>) -> Vec<(&'static str, Value)> {
    let Facts { qp, cq, srq, cm_id, .. } = facts;
    let is_wanted = |kind| wanted.is_none_or(|wanted| wanted == kind);
    let mut list = Vec::new();
    if is_wanted(Kind::Qp) {
        list.extend(qp.iter().map(|qp| ("qp", json!(qp))));
    }
    if is_wanted(Kind::Cq) {
        list.extend(cq.iter().map(|cq| ("cq", json!(cq))));
    }
    if is_wanted(Kind::Srq) {
        list.extend(srq.iter().map(|srq| ("srq", json!(srq))));
    }
    if is_wanted(Kind::CmId) {
        list.extend(cm_id.iter().map(|id| ("cm_id", json!(id))));
    }
    list
}

/// Names and values of an object, those of inner ones behind a name with a dot.
fn words(of: &Value) -> String {
    fn add(prefix: &str, of: &Value, words: &mut Vec<String>) {
        match of {
            Value::Object(members) => {
                for (name, value) in members {
                    let name =
                        if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    add(&name, value, words);
                }
            }
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => words.push(format!("{prefix} {text}")),
            other => words.push(format!("{prefix} {other}")),
        }
    }
    let mut list = Vec::new();
    add("", of, &mut list);
    list.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_members_have_the_names_of_both() {
        let of = json!({"number": 7, "stream": {"path": "tcp", "peer": null}, "wire": ""});
        assert_eq!(words(&of), "number 7 stream.path tcp");
    }
}
