// SPDX-License-Identifier: MIT OR Apache-2.0

//! The conformance tester's cases against the protocol core: without a socket, in simulated time,
//! and cut and delayed as a seed has it. The tester has an encoder and a decoder of its own, so
//! this is a second hostile peer beside [`iwarp_sim::hostile`], and one whose cases say which
//! requirement they are about.

// Orders, with their meaning wherever our stack carries them out.
#[path = "../../../../iwarp-cli/src/conform/orders.rs"]
mod orders;
mod target;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use iwarp_conform::case::{Action, Case, Need, Role};
use iwarp_conform::catalog;
use iwarp_conform::peer::Peer;
use iwarp_conform::run::{Settings, over};
use iwarp_conform::verdict::Verdict;

use target::{Defect, Manner};
use wire::{Wire, World};

/// A run of a case: the verdict, and what everything that passed adds up to.
fn run(case: &Case, role: Role, seed: u64, settings: &Settings) -> (Verdict, u64) {
    run_with(case, role, seed, settings, None)
}

fn run_with(
    case: &Case,
    role: Role,
    seed: u64,
    settings: &Settings,
    defect: Option<Defect>,
) -> (Verdict, u64) {
    let manner = Manner {
        crc: seed.is_multiple_of(2),
        markers: (seed / 2).is_multiple_of(2),
        mulpdu: [128, 1442, 9000][seed as usize % 3],
        assume: (seed / 16).is_multiple_of(2),
        defect,
    };
    let world = World::new(seed, role, manner);
    let outcome = over(Box::new(Wire::new(&world)), role, case, settings);
    let mut world = world.borrow_mut();
    world.settle();
    let wrong = &world.target.wrong;
    assert!(wrong.is_empty(), "{} ({role:?}, seed {seed}): {wrong:?}", case.name);
    (outcome.verdict, world.digest)
}

fn settings(seed: u64) -> Settings {
    Settings {
        peer: Peer::Ours,
        slow: true,
        crc: (seed / 4).is_multiple_of(2),
        markers: (seed / 8).is_multiple_of(2),
        // By the simulated clock.
        patience: Duration::from_secs(5),
        ..Settings::default()
    }
}

/// True if a case is for the simulated program. There is but one connection in this world, so no
/// crowd; and the core has no versions of the RDMA Consortium, so that those cases would see
/// nothing.
fn fits(case: &Case) -> bool {
    let crowds = case.steps.iter().any(|step| matches!(step.action, Action::Crowd(_)));
    !crowds && !case.needs.contains(&Need::Rdmac)
}

/// Runs every case for that end, and says in how many seeds each was seen.
fn all(role: Role, seeds: std::ops::Range<u64>) -> BTreeMap<String, usize> {
    let cases = catalog::embedded().expect("they are right");
    let mut seen = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| case.role.has(role) && fits(case)) {
        let count: &mut usize = seen.entry(case.name.clone()).or_default();
        for seed in seeds.clone() {
            match run(case, role, seed, &settings(seed)).0 {
                Verdict::Conforms => *count += 1,
                Verdict::NotSeen { .. } => {}
                deviates @ Verdict::Deviates(_) => {
                    wrong.push(format!("{} (seed {seed}): {deviates:?}", case.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} deviate: {wrong:#?}", wrong.len());
    seen
}

/// Every case is seen by some seed; which ones are not by all is a matter of CRCs and markers.
#[test]
fn the_core_conforms_as_a_server() {
    let seen = all(Role::Connect, 0..32);
    let never: Vec<_> = seen.iter().filter(|(_, count)| **count == 0).collect();
    assert!(never.is_empty() && seen.len() > 200, "never seen: {never:?}");
}

#[test]
fn the_core_conforms_as_a_client() {
    let seen = all(Role::Listen, 0..32);
    let never: Vec<_> = seen.iter().filter(|(_, count)| **count == 0).collect();
    assert!(never.is_empty() && seen.len() > 200, "never seen: {never:?}");
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    let cases = catalog::embedded().expect("they are right");
    let case = cases.iter().find(|case| case.name == "reads-in-order").expect("it is there");
    let once = |seed| run(case, Role::Connect, seed, &settings(seed));
    for seed in 0..8 {
        assert_eq!(once(seed), once(seed));
    }
    assert_ne!(once(1).1, once(3).1);
}

#[test]
fn a_defect_is_found_in_every_seed() {
    let cases = catalog::embedded().expect("they are right");
    for (defect, name) in [
        (Defect::Generous, "ddp-stag-not-writable"),
        (Defect::Hasty, "initiator-response-late"),
        (Defect::Hasty, "initiator-atomic-response-late"),
    ] {
        let case = cases.iter().find(|case| case.name == name).expect("it is there");
        for (seed, role) in (0..8).flat_map(|seed| [(seed, Role::Connect), (seed, Role::Listen)]) {
            let verdict = run_with(case, role, seed, &settings(seed), Some(defect)).0;
            let is_found = matches!(verdict, Verdict::Deviates(_));
            assert!(is_found, "{name}: {role:?}, seed {seed}: {verdict:?}");
        }
    }
}
