// SPDX-License-Identifier: MIT OR Apache-2.0

//! The readings that come along.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use iwarp_conform::readings::{Reading, all, explain, page};
use iwarp_conform::{catalog, requirements};

#[test]
fn every_reading_is_whole_and_names_what_exists() {
    let cases: BTreeSet<String> =
        catalog::embedded().expect("they are right").into_iter().map(|case| case.name).collect();
    let mut names = BTreeSet::new();
    for reading in all() {
        let Reading { name, asks, of, cases: about, ours, siw, cards, why } = &reading;
        assert!(names.insert(name.clone()), "{name} twice");
        assert!([asks, ours, siw, cards, why].iter().all(|text| text.len() > 3), "{name}");
        assert!(!of.is_empty() && of.iter().all(|id| requirements::find(id).is_some()), "{of:?}");
        assert!(about.iter().all(|case| cases.contains(case)), "{about:?}");
    }
    assert!(names.len() >= 20);
}

/// A case that takes several codes does so because of a reading.
#[test]
fn every_case_with_a_choice_has_its_reading() {
    let readings = all();
    for case in catalog::embedded().expect("they are right") {
        let chooses = |text: &str| text.starts_with("expect terminate") && text.contains('|');
        if case.steps.iter().any(|step| chooses(&step.text)) {
            let known = readings.iter().any(|reading| reading.is_about(&case.name));
            assert!(known || NAMED.contains(&case.name.as_str()), "{} has no reading", case.name);
        }
    }
}

/// Cases whose choice is of another kind: two rules are broken at once, and either may be found
/// first; or the RFC has a code, and one for what has none.
const NAMED: &[&str] = &[
    "rdmap-version-tagged",
    "reads-header-0",
    "reads-header-27",
    "reads-header-29",
    "initiator-response-wraps",
    "initiator-response-too-short",
    "initiator-response-of-nothing",
    "initiator-response-twice",
    "initiator-response-too-early",
    "initiator-responses-swapped",
    "initiator-response-untagged",
    "initiator-atomic-response-msn-skipped",
    "initiator-atomic-response-msn-zero",
    "initiator-atomic-response-twice",
    "initiator-atomic-response-too-early",
    "initiator-atomic-response-of-nothing",
    "initiator-atomic-response-11-bytes",
    "initiator-atomic-response-13-bytes",
    "initiator-atomic-response-queue-1",
    "initiator-atomic-response-queue-0",
    "initiator-atomic-response-mo",
    "initiator-atomic-response-tagged",
    "initiator-atomic-read-response",
    "initiator-read-atomic-response",
];

#[test]
fn a_reading_is_found_by_name_requirement_and_case() {
    let by_name = explain(&["too-many-reads"]);
    assert!(by_name.contains("cxgb4: 1/2/03"), "{by_name}");
    assert_eq!(by_name, explain(&["RDMAP-5040-6.1-05"]));
    assert_eq!(by_name, explain(&["reads-beyond-the-depth"]));
    assert_eq!(explain(&["nothing"]), "");
}

#[test]
fn the_page_is_that_of_the_list() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/readings.md");
    let written = fs::read_to_string(file).expect("the page");
    assert!(written == page(), "iwarp conform --readings > docs/readings.md writes it anew");
}
