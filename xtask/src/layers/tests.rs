// SPDX-License-Identifier: MIT OR Apache-2.0

use super::graph::Graph;
use super::source;

const LAYERS: &[&[&str]] = &[&["low"], &["middle"], &["high"]];

fn graph(files: &[(&str, &str)]) -> Graph {
    let load = |name: &str| {
        files.iter().find(|(file, _)| *file == name).map(|(_, text)| (*text).to_owned())
    };
    Graph::new(source::read("src/lib.rs", &load).unwrap())
}

/// The faults of a crate of three layers whose lowest has the module `user`.
fn judged(user: &str) -> Vec<String> {
    graph(&[
        (
            "src/lib.rs",
            "mod low;\nmod middle;\nmod high;\npub use high::Handle;\npub const TOP: u8 = 0;",
        ),
        ("src/low/mod.rs", "pub(crate) mod user;\npub(crate) struct Below;"),
        ("src/low/user.rs", user),
        (
            "src/middle.rs",
            "pub(crate) use crate::high::handle::Handle as Renamed;\npub(crate) struct Own;",
        ),
        ("src/high/mod.rs", "pub(crate) mod handle;\npub use handle::*;\npub use other_crate::Foreign;\nuse crate::low::user;"),
        (
            "src/high/handle.rs",
            "use crate::low::Below;\npub struct Handle;\npub fn help() {}\n\
             impl Below { pub(crate) fn raise(&self) {} }",
        ),
    ])
    .arrows_up(LAYERS)
    .into_iter()
    // The re-export in the middle is one as well.
    .filter(|problem| problem.starts_with("src/low/"))
    .collect()
}

fn one(user: &str) -> String {
    let found = judged(user);
    assert!(!found.is_empty(), "not seen: {user}");
    found.join("\n")
}

#[test]
fn a_circle_is_told_by_its_files_and_line() {
    let user = "use std::io;\nuse crate::high::handle::Handle;\nfn f(_: Handle) {}";
    assert_eq!(judged(user), ["src/low/user.rs:2 names src/high/handle.rs, which is above it"]);
}

#[test]
fn every_way_to_name_something_is_understood() {
    for user in [
        "use crate::{low::Below, high::{handle::{self, help}}};",
        "use super::super::high::handle;",
        "fn f() { crate::high::help(); }",
        "fn f() { let x: Option<crate::high::Handle> = None; }",
        "fn f() { use crate::high::help as h; h() }",
        "impl crate::high::Trait for u8 {}",
        "fn f() { println!(\"{}\", crate::high::help()); }",
        "macro_rules! m { () => { use $crate::{high::help}; } }",
        "use crate as own;\nfn f() { own::high::help(); }",
        "mod inner { use super::super::super::high::help; }",
        "use crate::high::*;",
    ] {
        assert!(one(user).contains("src/low/user.rs:"), "{user}");
        assert!(one(user).contains("src/high/"), "{user}: {}", one(user));
    }
}

#[test]
fn re_exports_are_followed_to_the_file_that_defines() {
    for user in ["use crate::Handle;", "use crate::middle::Renamed;", "use crate::high::Handle;"] {
        assert!(one(user).contains("src/low/user.rs:1 names src/high/handle.rs"), "{}", one(user));
    }
    assert!(one("use crate::Handle;").contains("src/low/user.rs:1"));
    assert!(one("use crate::high::Foreign;").contains("names src/high/mod.rs"));
    assert!(one("fn f() -> u8 { crate::TOP }").contains("names src/lib.rs"));
}

#[test]
fn methods_from_above_may_not_be_called_either() {
    let found = one("fn f(below: &super::Below) {\n    below.raise();\n}");
    assert_eq!(found, "src/low/user.rs:2 calls `raise` of src/high/handle.rs, which is above it");
    assert_eq!(judged("fn f(o: &Other) { o.raise() }\nimpl Other { fn raise(&self) {} }"), [""; 0]);
}

#[test]
fn tests_and_documentation_may_name_anything() {
    for user in [
        "/// See [`crate::high::Handle`].\nfn f() {}",
        "#[cfg(test)]\nmod tests {\n    use crate::Handle;\n}",
        "#[cfg(all(test, not(model)))]\nuse crate::Handle;",
        "use std::io::{self, Read};\nuse super::Below;\npub(in crate::low) fn high() {}",
    ] {
        assert_eq!(judged(user), [""; 0], "{user}");
    }
    assert!(one("#[cfg(not(test))]\nuse crate::Handle;").contains("src/low/user.rs:2"));
}

#[test]
fn a_module_without_a_layer_is_noticed() {
    let files = [("src/lib.rs", "mod other;"), ("src/other.rs", "")];
    assert_eq!(graph(&files).arrows_up(LAYERS), ["src/other.rs: other has no layer"]);
}

#[test]
fn circles_within_a_layer_are_known_or_told() {
    let files = [
        ("src/lib.rs", "mod low;"),
        ("src/low/mod.rs", "mod a;\nmod b;\nmod c;\npub use c::C;\npub struct Shared;"),
        ("src/low/a.rs", "use super::b::B;\npub struct A;\nmod part;"),
        ("src/low/a/part.rs", "use super::A;"),
        ("src/low/b.rs", "use super::C;\npub struct B;"),
        ("src/low/c.rs", "use super::{a::part::Part, Shared};\npub struct C;"),
    ];
    let circle = "these name each other in a circle: low::a low::b low::c";
    assert_eq!(graph(&files).circles_in("low"), [circle]);
    assert_eq!(graph(&files).circles_in("high"), [""; 0]);
    assert_eq!(graph(&files).circles_in(""), [circle]);
    let open = files.map(|(file, text)| (file, text.replace("a::part::Part, ", "")));
    let open = open.each_ref().map(|(file, text)| (*file, text.as_str()));
    assert_eq!(graph(&open).circles_in("low"), [""; 0]);
    assert_eq!(graph(&open).circles_in(""), [""; 0]);
}

#[test]
fn a_variable_with_the_name_of_a_module_is_no_arrow() {
    let files = [
        ("src/lib.rs", "mod low;"),
        ("src/low/mod.rs", "mod part;\npub struct Own;\nfn f(part: u8) -> u8 { part.min(part) }"),
        ("src/low/part.rs", "use super::Own;"),
    ];
    assert_eq!(graph(&files).circles_in("low"), [""; 0]);
    let named = files.map(|(file, text)| (file, text.replace("part.min(part)", "part::g()")));
    let named = named.each_ref().map(|(file, text)| (*file, text.as_str()));
    let circle = "these name each other in a circle: low low::part";
    assert_eq!(graph(&named).circles_in("low"), [circle]);
}

#[test]
fn wings_do_not_name_each_other() {
    let files = [
        ("src/lib.rs", "mod wings;\nuse wings::{left::A, right::B};"),
        ("src/wings/mod.rs", "pub mod left;\npub mod right;"),
        ("src/wings/left.rs", "pub struct A;"),
        ("src/wings/right.rs", "pub struct B;\nuse crate::wings::left::A;"),
    ];
    let wings = ["wings::left", "wings::right"];
    let found = "src/wings/right.rs:2 names src/wings/left.rs, of another wing";
    assert_eq!(graph(&files).arrows_between(&wings), [found]);
    assert_eq!(graph(&files).arrows_between(&wings[..1]), [""; 0]);
}

#[test]
fn modules_above_a_front_name_what_is_behind_it_only_by_the_front() {
    let files = [
        ("src/lib.rs", "mod wire;\nmod verbs;\nmod engine;\npub use wire::wing::Link;"),
        ("src/wire/mod.rs", "pub mod choice;\npub mod wing;"),
        ("src/wire/choice.rs", "pub use super::wing::Offer;\npub struct Wires;"),
        ("src/wire/wing.rs", "pub struct Link;\npub struct Offer;"),
        ("src/verbs.rs", "use crate::wire::choice::{Offer, Wires};\nuse crate::wire::wing::Link;"),
        ("src/engine.rs", "use crate::wire::wing::Link;"),
    ];
    let past = |files: &[(&str, &str)]| {
        graph(files).arrows_past("wire::choice", &["verbs"], &["wire::wing"])
    };
    let found = "src/verbs.rs:2 names src/wire/wing.rs, which is behind wire::choice";
    assert_eq!(past(&files), [found]);
    let by_root =
        files.map(|(file, text)| (file, text.replace("crate::wire::wing::L", "crate::L")));
    assert_eq!(past(&by_root.each_ref().map(|(file, text)| (*file, text.as_str()))), [found]);
    assert_eq!(graph(&files).arrows_past("wire::choice", &["verbs"], &[]), [""; 0]);
}

#[test]
fn neutral_modules_name_no_protocol() {
    let files = [
        ("src/lib.rs", "mod wire;\nmod engine;"),
        ("src/wire.rs", "use proto::Core;"),
        ("src/engine.rs", "mod part;\nuse other::Thing;"),
        ("src/engine/part.rs", "fn f() {\n    proto::call();\n}"),
    ];
    let found = "src/engine/part.rs:2 names proto, which is not for it";
    assert_eq!(graph(&files).arrows_out(&["engine"], &["proto"]), [found]);
    assert_eq!(graph(&files).arrows_out(&["engine"], &["iron"]), [""; 0]);
    let all = ["src/engine.rs:2 names other::Thing, which is not for it"];
    assert_eq!(graph(&files).arrows_out(&[""], &["other::Thing", "proto::Other"]), all);
}
