// SPDX-License-Identifier: MIT OR Apache-2.0

//! The commands that run tests, with arguments that Cargo or the harness finds in the right place.

use std::ffi::OsString;
use std::process::Command;

use crate::shell;

use super::failures::{Failed, Runner};

/// The command, going on behind failed tests: those that it did not run could not be told from
/// those that passed.
pub(crate) fn going_on(command: &Command) -> Command {
    with(command, &["--no-fail-fast".into()], &[])
}

/// The command for one of its tests.
pub(crate) fn by_itself(command: &Command, test: &Failed) -> Command {
    let Failed { binary, name } = test;
    match Runner::of(command) {
        Runner::Nextest => {
            let filter = format!("binary_id(={binary}) & test(={name})");
            with(command, &["--filterset".into(), filter.into()], &[])
        }
        // The name of an example in the docs is its file and more. Of rustdoc's arguments for the
        // harness each word is one, so all examples of the file run.
        Runner::Cargo if name.contains(' ') => {
            with(command, &[], &[name.split(' ').next().unwrap_or_default().into()])
        }
        // With `--exact` what is skipped, too, is a whole name, which this one was not before.
        Runner::Cargo => with(command, &[], &["--exact".into(), name.into()]),
    }
}

/// The command with `cargos` before the arguments of the harnesses, and `harness` behind them.
fn with(command: &Command, cargos: &[OsString], harness: &[OsString]) -> Command {
    let arguments: Vec<OsString> = command.get_args().map(OsString::from).collect();
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (before, behind) = arguments.split_at(end);
    let mut new = Command::new(command.get_program());
    new.args(before).args(cargos).args(behind);
    if behind.is_empty() && !harness.is_empty() {
        new.arg("--");
    }
    new.args(harness);
    shell::in_place_of(&mut new, command);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Command {
        let mut words = text.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).env("A", "1").env_remove("B").current_dir("/");
        command
    }

    fn words(command: &Command) -> String {
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_environment_stays() {
        let new = going_on(&command("cargo test"));
        assert_eq!(new.get_program(), "cargo");
        let variables: Vec<_> = new.get_envs().collect();
        assert_eq!(variables, command("x").get_envs().collect::<Vec<_>>());
        assert_eq!(new.get_current_dir(), command("x").get_current_dir());
    }

    #[test]
    fn both_runners_go_on() {
        let of = |text| words(&going_on(&command(text)));
        assert_eq!(of("cargo test --doc"), "test --doc --no-fail-fast");
        let skips = "test --lib --no-fail-fast -- --skip a --nocapture";
        assert_eq!(of("cargo test --lib -- --skip a --nocapture"), skips);
        assert_eq!(of("cargo nextest run"), "nextest run --no-fail-fast");
    }

    #[test]
    fn one_test_is_named_where_the_harness_looks() {
        let test = Failed { binary: "iwarp::it".into(), name: "cm::x".into() };
        let of = |text| words(&by_itself(&command(text), &test));
        assert_eq!(of("cargo test --test *"), "test --test * -- --exact cm::x");
        assert_eq!(of("cargo test -- --skip cm"), "test -- --skip cm --exact cm::x");
        let name = "crates/iwarp/src/lib.rs - f (line 1)".to_owned();
        let example =
            by_itself(&command("cargo test --doc"), &Failed { binary: "iwarp::doc".into(), name });
        assert_eq!(words(&example), "test --doc -- crates/iwarp/src/lib.rs");
        assert_eq!(
            of("cargo nextest run --workspace"),
            "nextest run --workspace --filterset binary_id(=iwarp::it) & test(=cm::x)"
        );
    }
}
