//! C programs that are linked to the system's libibverbs and run with ours.

mod support;

/// A program of `tests/c` with the headers it includes, in one text.
macro_rules! source {
    ($file:literal) => {
        include_str!(concat!("c/", $file))
            .replace("#include \"pair.h\"", include_str!("c/pair.h"))
            .replace("#include \"check.h\"", include_str!("c/check.h"))
    };
}

const ROCE: (&str, &str) = ("IWARP_PERSONALITY", "roce");

#[test]
fn symbols_are_found_by_version_and_the_library_loads_again_and_again() {
    let said = support::run("loading", &source!("loading.c"), &[]);
    assert!(said.contains("before 2007"), "{said}");
    let said = support::run("loading_off", &source!("loading.c"), &[("IWARP_LOG", "off")]);
    assert_eq!(said, "");
}

#[test]
fn a_thread_that_waits_can_be_cancelled() {
    support::run("cancel", &source!("cancel.c"), &[]);
}

#[test]
fn every_operation_works_in_every_way_of_posting() {
    support::run("data", &source!("data.c"), &[]);
}

#[test]
fn every_operation_works_on_a_device_that_looks_like_roce() {
    support::run("data_roce", &source!("data.c"), &[ROCE]);
}

#[test]
fn asynchronous_events_are_told_and_acknowledged() {
    support::run("async", &source!("async.c"), &[]);
    support::run("async_roce", &source!("async.c"), &[ROCE]);
}

#[test]
fn files_of_a_program_that_closed_our_descriptors_stay_clean() {
    let said = support::run("closing", &source!("closing.c"), &[]);
    assert!(!said.contains("internal error"), "{said}");
}

#[test]
fn a_forked_child_has_a_device_of_its_own() {
    support::run("forking", &source!("forking.c"), &[]);
}
