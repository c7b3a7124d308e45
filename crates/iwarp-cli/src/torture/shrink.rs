// SPDX-License-Identifier: MIT OR Apache-2.0

//! The smallest set of faults with which a command still fails, by delta debugging (Zeller and
//! Hildebrandt, 2002): halves are left out, then smaller parts, as long as the failure stays.

use std::ffi::OsString;

use anyhow::Result;

use super::attempt::{Attempt, Plan};
use super::profile::Rules;

/// The runs that it may take.
const RUNS: usize = 120;
/// The runs in one of which all faults that have fired have to repeat the failure.
const ATTEMPTS: usize = 3;

/// Shrinks a failure, and says how to repeat it. False where its faults alone do not.
pub(super) fn tell(plan: &Plan<'_>, rules: &Rules, seed: u64, failure: &Attempt) -> Result<bool> {
    println!("\nseed {seed} {}", failure.outcome);
    let mut runs = 0;
    let mut fails = |names: &[String]| -> Result<bool> {
        runs += 1;
        if runs > RUNS {
            return Ok(false);
        }
        let attempt = plan.attempt(Some(&rules.only(names, seed)))?;
        Ok(attempt.outcome == failure.outcome)
    };
    let with_network = failure.fired.iter().cloned().chain(rules.of_network()).collect();
    // Most failures need no slow network.
    let mut sets = vec![failure.fired.clone(), with_network];
    sets.dedup();
    let mut fired = None;
    for set in sets {
        // Some fail only as the threads happen to run.
        for _ in 0..ATTEMPTS {
            if fired.is_none() && fails(&set)? {
                fired = Some(set.clone());
            }
        }
    }
    let command = shell_words(plan.command);
    let Some(fired) = fired else {
        println!("  its faults alone do not repeat it: it depends on time as well");
        println!("  iwarp run --faults '{}' -- {command}", rules.with_seed(seed));
        println!("{}", failure.output);
        return Ok(false);
    };
    let smallest = minimize(fired.clone(), &mut fails)?;
    println!("  {} of {} faults suffice, found in {runs} runs:", smallest.len(), fired.len());
    for name in &smallest {
        println!("    {}", words(rules, name));
    }
    println!("  iwarp run --faults '{}' -- {command}", rules.only(&smallest, seed));
    println!("{}", failure.output);
    Ok(true)
}

/// A subset of `all` for which `fails` holds, and for none that lacks one of its members.
fn minimize(
    mut all: Vec<String>,
    mut fails: impl FnMut(&[String]) -> Result<bool>,
) -> Result<Vec<String>> {
    if fails(&[])? {
        return Ok(Vec::new());
    }
    let mut parts = 2;
    while all.len() > 1 {
        let size = all.len().div_ceil(parts);
        let pieces: Vec<Vec<String>> = all.chunks(size).map(<[String]>::to_vec).collect();
        let mut smaller = None;
        for (at, piece) in pieces.iter().enumerate() {
            if fails(piece)? {
                smaller = Some((piece.clone(), 2));
                break;
            }
            let others = pieces.iter().enumerate().filter(|(other, _)| *other != at);
            let rest: Vec<_> = others.flat_map(|(_, piece)| piece.iter().cloned()).collect();
            // With two pieces the rest is the other piece.
            if pieces.len() > 2 && fails(&rest)? {
                smaller = Some((rest, (parts - 1).max(2)));
                break;
            }
        }
        match smaller {
            Some((found, next)) => (all, parts) = (found, next),
            None if size == 1 => break,
            None => parts = (2 * parts).min(all.len()),
        }
    }
    Ok(all)
}

/// A fault in words.
fn words(rules: &Rules, name: &str) -> String {
    let parts: Vec<_> = name.split(':').collect();
    let &[program, rule, qp, lane, number] = &parts[..] else {
        return format!("the network: {name}");
    };
    let rule = rule.parse::<usize>().ok().and_then(|at| rules.rules.get(at.checked_sub(1)?));
    let action = rule.and_then(|rule| rule.split(',').next()).unwrap_or("?");
    let of = match lane {
        "sent" => format!("completion {number} of the send queue"),
        "received" => format!("completion {number} of the receive queue"),
        "event" => format!("completion event {number}"),
        "async-event" => format!("asynchronous event {number}"),
        "cm-event" => format!("event {number} of the connection manager"),
        "address" => format!("call {number} of rdma_resolve_addr"),
        "route" => format!("call {number} of rdma_resolve_route"),
        "connection" => format!("call {number} of rdma_connect"),
        "placed" => format!("segment {number} that is placed"),
        verb => format!("call {number} of {verb}"),
    };
    let of = of.replace("call ", if lane.starts_with("ibv_post_") { "request " } else { "call " });
    let place = if qp == "0" { String::new() } else { format!(", queue pair {qp} of the process") };
    format!("{program}: {action} at {of}{place}")
}

/// As a shell takes them.
fn shell_words(words: &[OsString]) -> String {
    let quote = |word: &OsString| {
        let word = word.to_string_lossy();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
        if !word.is_empty() && word.chars().all(plain) {
            return word.into_owned();
        }
        format!("'{}'", word.replace('\'', "'\\''"))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(numbers: &[usize]) -> Vec<String> {
        numbers.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_smallest_set_is_found() {
        for needed in [&[][..], &[0], &[63], &[17, 40], &[3, 30, 50]] {
            let all: Vec<_> = (0..64).collect();
            let needed = named(needed);
            let mut runs = 0;
            let found = minimize(named(&all), |names| {
                runs += 1;
                Ok(needed.iter().all(|name| names.contains(name)))
            });
            assert_eq!(found.expect("no error"), needed);
            assert!(runs < RUNS, "{runs} runs");
        }
    }

    #[test]
    fn a_fault_is_told_in_words() {
        let rules = Rules::given("late=3,one-in=6;errno=ENOMEM,verb=ibv_reg_mr").expect("rules");
        let told = words(&rules, "ping:1:2:sent:4");
        assert_eq!(
            told,
            "ping: late=3 at completion 4 of the send queue, queue pair 2 of the process"
        );
        assert_eq!(
            words(&rules, "ping:2:0:ibv_reg_mr:1"),
            "ping: errno=ENOMEM at call 1 of ibv_reg_mr"
        );
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let words = ["sh", "-c", "it's", ""].map(OsString::from);
        assert_eq!(shell_words(&words), "sh -c 'it'\\''s' ''");
    }
}
