// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases that come along.

use std::fs;
use std::path::Path;

use iwarp_conform::case::{Role, parse};
use iwarp_conform::{catalog, requirements};

#[test]
fn every_case_is_read_and_names_requirements_that_exist() {
    let cases = catalog::embedded().expect("they are right");
    assert!(cases.len() >= 300, "{}", cases.len());
    for role in [Role::Connect, Role::Listen] {
        assert!(cases.iter().filter(|case| case.role.has(role)).count() >= 200);
    }
    assert!(requirements::all().count() > 800);
}

#[test]
fn a_folder_of_the_same_files_gives_the_same_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let names = |cases: Vec<iwarp_conform::case::Case>| {
        let mut names: Vec<String> = cases.into_iter().map(|case| case.name).collect();
        names.sort();
        names
    };
    let found = names(catalog::folder(&folder).expect("they are right"));
    assert_eq!(found, names(catalog::embedded().expect("they are right")));
}

/// The example of the page that says how a case is written.
#[test]
fn the_page_on_cases_has_a_case_that_is_one() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/CASES.md");
    let page = fs::read_to_string(page).expect("the page");
    let text = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let cases = parse("CASES.md", text.expect("an example")).expect("it is right");
    assert_eq!(cases.len(), 1);
}

#[test]
fn mistakes_are_told_with_their_line() {
    let head = "case a\ntitle A\ncovers DDP-5041-4.1-09\n";
    for (step, complaint) in [
        ("jump", "x:4: there is no step \"jump\" like this"),
        ("send letter", "x:4: there is no message \"letter\""),
        ("send write size=1", "x:4: there is no field \"size\" here"),
        ("send write stag=$rw+z", "x:4: \"z\" is no number"),
        ("expect terminate 1/2", "x:4: \"1/2\" is not LAYER/TYPE/CODE"),
        ("expect silence", "x:4: a time in milliseconds is missing"),
    ] {
        let error = parse("x", &format!("{head}{step}\n")).expect_err(step);
        assert_eq!(error.to_string(), complaint);
    }
    let error = parse("x", "case a\ntitle A\nstart\n").expect_err("no requirement");
    assert!(error.to_string().contains("has no requirements"), "{error}");
}

/// A tester of a stack must not share its code.
#[test]
fn the_tester_depends_on_nothing_of_this_project() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = fs::read_to_string(manifest).expect("the manifest");
    let (_, dependencies) = manifest.split_once("[dependencies]").expect("there are some");
    assert!(!dependencies.contains("iwarp"), "{dependencies}");
}
