// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is refused: the lines of both ends name the access, and say what to do.

use std::time::Duration;

use crate::support;

/// A device, as its environment makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    RoceOverUdp,
    RoceOverIwarp,
    Rnic,
}

impl Way {
    const ALL: [Self; 3] = [Self::RoceOverUdp, Self::RoceOverIwarp, Self::Rnic];

    const fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::RoceOverUdp => &[("IWARP_PERSONALITY", "roce"), ("IWARP_WIRE", "roce")],
            Self::RoceOverIwarp => &[("IWARP_PERSONALITY", "roce")],
            Self::Rnic => &[("IWARP_PERSONALITY", "iwarp")],
        }
    }
}

/// The right that an operation needs, whether it is the peer's memory, and how many causes there
/// are.
const OPERATIONS: [(&str, &str, bool, usize); 7] = [
    ("write", "REMOTE_WRITE", true, 8),
    ("read", "REMOTE_READ", true, 8),
    ("add", "REMOTE_ATOMIC", true, 9),
    ("swap", "REMOTE_ATOMIC", true, 9),
    ("receive", "LOCAL_WRITE", false, 7),
    ("gather", "", false, 6),
    ("sink", "LOCAL_WRITE", false, 7),
];

/// The cause and the hint at the end that refuses.
fn here(cause: &str, right: &str, is_remote: bool) -> [String; 2] {
    let (cause, hint) = match cause {
        "unknown" if is_remote => {
            ("no region or window here has this key", "give the peer the rkey")
        }
        "unknown" => ("no region or window here has this key", "put the lkey of a registered"),
        "deregistered" if is_remote => {
            ("the key was deregistered", "when the peer does not use it")
        }
        "deregistered" => ("the key was deregistered", "when the requests that use it have"),
        "domain" => ("another protection domain", "in the protection domain of this queue pair"),
        "bounds" => ("reaches beyond the region", "address and length must lie in the range"),
        "right" => {
            let hint = format!("register the memory with IBV_ACCESS_{right}");
            return [format!("the region does not grant {right}"), hint];
        }
        "queue pair's right" => {
            let hint =
                format!("put IBV_ACCESS_{right} into the qp_access_flags of this queue pair");
            return [format!("the queue pair does not grant {right}"), hint];
        }
        "invalidated" => ("the key was invalidated", "register the memory anew"),
        "window" if is_remote => ("the window is not bound", "wait for the completion of the bind"),
        "window" => ("the key is a window's", "put the lkey of the region"),
        "unaligned" => ("not aligned to 8 bytes", "a multiple of 8"),
        other => panic!("{other}"),
    };
    [cause.to_owned(), hint.to_owned()]
}

/// The hint at the other end, which has no more than a code.
fn there(way: Way, cause: &str, right: &str, is_remote: bool) -> Vec<String> {
    if !is_remote {
        return vec!["the peer could not use memory of its own".to_owned()];
    }
    let flag = format!("IBV_ACCESS_{right}");
    let hint = match (way, cause) {
        (_, "unaligned") => "a multiple of 8",
        (Way::RoceOverUdp | Way::RoceOverIwarp, "queue pair's right") => {
            return vec!["into the qp_access_flags of its queue pair".to_owned(), flag];
        }
        (Way::RoceOverUdp, _) => "the peer refused key, address, length or right",
        (_, "bounds") => "address and length must lie in the peer's region",
        (_, "domain") => "another protection domain or queue pair of the peer's",
        (_, "right" | "queue pair's right") if right == "REMOTE_WRITE" => {
            return vec!["has no such key".to_owned(), "lacks IBV_ACCESS_REMOTE_WRITE".to_owned()];
        }
        (_, "right" | "queue pair's right") => {
            return vec!["the peer must grant it".to_owned(), flag, "qp_access_flags".to_owned()];
        }
        _ => "has no such key",
    };
    vec![hint.to_owned()]
}

/// The one line of that end names all of these.
fn is_told(part: &str, end: &str, facts: &str, words: &[String]) {
    let mut lines = part.lines().filter(|line| line.contains(end));
    let line = lines.next().unwrap_or_else(|| panic!("{end}: nothing in {part}"));
    assert_eq!(lines.next(), None, "one line of each queue pair: {part}");
    assert!(line.contains(" warn: "), "{line}");
    // Each field stands whole, and the last of all is the hint.
    for fact in facts.split(';') {
        assert!(line.contains(&format!(" {fact} ")), "{fact} is not in {line}\nof {part}");
    }
    for word in words {
        assert!(line.contains(word.as_str()), "{word:?} is not in {line}\nof {part}");
    }
}

/// Each cause, for each operation, on each wire, at each end.
#[test]
fn both_ends_name_the_access_that_was_refused() {
    let source = support::with_headers(include_str!("../c/faults.c"));
    let program = support::compile("faults", &source, &["-libverbs", "-lrdmacm", "-ldl"]);
    for (way, (operation, right, is_remote, causes)) in
        Way::ALL.into_iter().flat_map(|way| OPERATIONS.map(|operation| (way, operation)))
    {
        let limit = Duration::from_secs(60);
        let output = support::run_program(&program, &[operation], way.environment(), limit);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{way:?} {operation}: {said}");
        let parts: Vec<&str> = said.split("-- ").skip(1).collect();
        assert_eq!(parts.len(), causes, "{way:?} {operation}: {said}");
        for part in parts {
            let named = |name| part.lines().find_map(|line| line.strip_prefix(name));
            let head = part.lines().next().unwrap_or_default();
            let cause = head.split(": ").nth(1).expect("a cause");
            let of_here = named("here:").expect("what the end that refuses tells");
            let words = here(cause, right, is_remote);
            is_told(part, "this end terminated the connection", of_here, &words);
            match named("there:") {
                Some(facts) => {
                    let words = there(way, cause, right, is_remote);
                    is_told(part, "the peer terminated the connection", facts, &words);
                }
                None => assert!(!part.contains("the peer terminated"), "{part}"),
            }
        }
    }
}
