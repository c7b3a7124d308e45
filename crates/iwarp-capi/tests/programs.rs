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

/// Whatever the lists call a stub fails as they say, old versions and private names included.
#[test]
fn every_function_that_is_not_there_says_so() {
    let lists = [include_str!("../ibverbs/exports.txt"), include_str!("../rdmacm/exports.txt")];
    let mut table = String::new();
    for line in lists.iter().flat_map(|list| list.lines()).filter(|line| !line.starts_with('#')) {
        let Some((symbol, kind)) = line.split_once(" STUB_") else { continue };
        let (name, version) = symbol.split_once('@').unwrap();
        let version = version.trim_start_matches('@');
        table.push_str(&format!("{{ \"{name}\", \"{version}\", {kind} }},\n"));
    }
    assert!(table.contains("ibv_create_ah") && table.contains("IBVERBS_1.0"), "{table}");
    let source = source!("missing.c").replace("TABLE", &table);
    let said = support::run("missing", &source, &[("IWARP_LOG", "info")]);
    assert!(said.contains("iwarp: ibv_create_ah: not supported\n"), "{said}");
    assert_eq!(said.matches("before 2007").count(), 1, "{said}");
    // Programs try what is there.
    let said = support::run("missing_quiet", &source, &[]);
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// A datagram queue pair is a number; the step that would make it more fails.
#[test]
fn a_datagram_queue_pair_has_a_number_at_most() {
    let said = support::run("datagram_roce", &source!("datagram.c"), &[ROCE]);
    assert!(said.contains("no datagram (UD) queue pairs"), "{said}");
    let said = support::run("datagram", &source!("datagram.c"), &[]);
    assert!(said.contains("no datagram (UD) queue pairs"), "{said}");
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
