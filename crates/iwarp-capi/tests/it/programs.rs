// SPDX-License-Identifier: MIT OR Apache-2.0

//! C programs that are linked to the system's libibverbs and run with ours.

use std::time::Duration;

use crate::{errors, support};

/// A program of `tests/c` with the headers it includes, in one text.
macro_rules! source {
    ($file:literal) => {
        support::with_headers(include_str!(concat!("../c/", $file)))
    };
}

const ROCE: (&str, &str) = ("IWARP_PERSONALITY", "roce");
const TRACE: (&str, &str) = ("IWARP_LOG", "trace");
/// Reliable queue pairs speak RoCE v2.
const OVER_UDP: [(&str, &str); 2] = [ROCE, ("IWARP_WIRE", "roce")];

#[test]
fn symbols_are_found_by_version_and_the_library_loads_again_and_again() {
    let said = support::run("loading", &source!("loading.c"), &[]);
    assert!(said.contains("before 2007"), "{said}");
    let said = support::run("loading_off", &source!("loading.c"), &[("IWARP_LOG", "off")]);
    assert_eq!(said, "");
}

/// Each line names its process, time and level; and it may be an object of JSON.
#[test]
fn lines_say_which_process_and_when() {
    let run = |name, variables: &[(&str, &str)]| {
        let variables = [&[("IWARP_COLOUR", "red")], variables].concat();
        let said = support::run(name, &source!("logged.c"), &variables);
        let (pid, lines) = said.split_once('\n').unwrap();
        (pid.to_owned(), lines.lines().next().unwrap().to_owned())
    };
    let complaint = "IWARP_COLOUR is not a variable of this library and has no effect";
    let (pid, line) = run("logged", &[]);
    assert!(line.starts_with(&format!("iwarp[{pid}] 20")), "{line}");
    assert!(line.ends_with(&format!("Z warn: {complaint}")), "{line}");
    let (pid, line) = run("logged_json", &[("IWARP_LOG_FORMAT", "json")]);
    assert!(line.starts_with("{\"time\":\"20") && line.ends_with("\"}"), "{line}");
    let rest = format!(
        "Z\",\"pid\":{pid},\"level\":\"warn\",\"target\":\"iwarp::variables\",\"message\":\"{complaint}\"}}"
    );
    assert!(line.ends_with(&rest), "{line}");
}

/// Each call with its arguments and result, each request with its end, each access to memory; but
/// no look at an empty queue, of which a program that spins makes millions.
#[test]
fn a_trace_has_all_that_happens() {
    for variables in [&[ROCE, TRACE][..], &[("IWARP_PERSONALITY", "iwarp"), TRACE]] {
        let name = format!("traced_{}", variables[0].1);
        let said = support::run(&name, &source!("traced.c"), variables);
        let places = said.lines().find(|line| line.starts_with("0x")).expect(&said);
        let places: Vec<_> = places.split(' ').collect();
        let [cq, source, sink, qp, peer] = places[..] else { panic!("{said}") };
        let lines: Vec<_> = said.lines().filter_map(|line| line.split_once("Z trace: ")).collect();
        let mut lines = lines.into_iter().map(|(_, text)| text);
        // In this order.
        for expected in [
            "ibv_get_device_list(num_devices=NULL) = 0x",
            "ibv_open_device(device=0x",
            &format!("qp {qp}: posted Write, wr_id 0x7, 100 bytes"),
            &format!("qp {qp}: read 100 bytes at {source}"),
            &format!("qp {peer}: wrote 100 bytes at {sink}"),
            &format!("qp {qp}: Read, wr_id 0x7, 8 bytes: success"),
            &format!("ibv_poll_cq(cq={cq}, num_entries=1, wc=0x"),
            "ibv_modify_qp(qp=0x",
            "ibv_destroy_qp(qp=0x",
        ] {
            assert!(lines.any(|line| line.starts_with(expected)), "{expected}: {said}");
        }
        assert!(said.contains("mask=0x1): Invalid argument (os error 22)"), "{said}");
        assert!(!said.contains("num_entries=1, wc=0x0) = 0") && !said.contains(") = 0\nqp"));
        let empty = |line: &str| line.contains("ibv_poll_cq(") && line.ends_with(") = 0");
        assert!(!said.lines().any(empty), "{said}");
    }
    let said = support::run("traced_off", &source!("traced.c"), &[ROCE, ("IWARP_LOG", "debug")]);
    assert!(!said.contains("Z trace: "), "{said}");
}

/// Every stub of the lists fails as they say, old versions and private names included.
#[test]
fn every_function_that_is_not_there_says_so() {
    let lists =
        [include_str!("../../ibverbs/exports.txt"), include_str!("../../rdmacm/exports.txt")];
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
    assert!(said.contains("Z info: ibv_set_ece: not supported\n"), "{said}");
    assert_eq!(said.matches("before 2007").count(), 1, "{said}");
    // Programs try what is there.
    let said = support::run("missing_quiet", &source, &[]);
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// If another process has the port, a datagram queue pair is a number at most, and the step that
/// would make it more fails. The user is told why. When the port is free there are queue pairs.
///
/// Covers: ROCE-176
#[test]
fn without_the_port_a_datagram_queue_pair_has_a_number_at_most() {
    let said = support::run("datagram_roce", &source!("datagram.c"), &[ROCE]);
    if said.contains("not permitted") {
        return;
    }
    assert!(said.contains("UCX_TLS=^ud,ud:aux"), "{said}");
    let other = support::run("datagram", &source!("datagram.c"), &[]);
    for said in [said, other] {
        assert!(said.contains("UDP port [::]:4791 is in use"), "{said}");
    }
}

/// Covers: ROCE-124, ROCE-127
#[test]
fn queue_pairs_over_datagrams_take_their_steps() {
    support::run("datagram_steps", &source!("datagram_steps.c"), &[]);
    support::run("datagram_steps_roce", &source!("datagram_steps.c"), &[ROCE]);
}

/// Covers: ROCE-117, ROCE-118, ROCE-123, ROCE-124
#[test]
fn datagrams_are_sent_in_every_way_of_posting() {
    support::run("datagram_data", &source!("datagram_data.c"), &[]);
    support::run("datagram_data_roce", &source!("datagram_data.c"), &[ROCE]);
}

/// Covers: ROCE-137
#[test]
fn addresses_that_come_and_go_are_known_at_once() {
    support::run("addresses", &source!("addresses.c"), &[]);
    support::run("addresses_roce", &source!("addresses.c"), &[ROCE]);
}

/// An interface beside lo.
fn other_interface() -> String {
    // Interfaces of this network; /sys may be another's.
    let interfaces = std::fs::read_to_string("/proc/net/dev").expect("interfaces");
    let names =
        interfaces.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.filter(|name| *name != "lo").min().expect("an interface beside lo").to_owned()
}

/// Two devices, each with the addresses of one interface, like a RoCE card and like an RNIC.
#[test]
fn the_user_names_devices_and_gives_them_interfaces() {
    let devices = format!("mlx5_0={}:roce:speed=40,rdma-lo=lo:iwarp", other_interface());
    support::run("devices", &source!("devices.c"), &[("IWARP_DEVICES", &devices)]);
    let said = support::run("no_devices", NO_DEVICES, &[("IWARP_DEVICES", "a=no such one")]);
    assert!(said.contains("IWARP_DEVICES=a=no such one: expected names"), "{said}");
}

/// A device with two ports, each with the addresses of one interface.
#[test]
fn the_user_gives_a_device_several_ports() {
    let other = other_interface();
    let devices = format!("mlx4_0={other}+lo");
    let variables = [("IWARP_DEVICES", &*devices), ("OTHER", &other)];
    for (name, wire) in [("ports", "auto"), ("ports_roce", "roce")] {
        let variables = [&variables[..], &[("IWARP_WIRE", wire)]].concat();
        let said = support::run(name, &source!("ports.c"), &variables);
        for line in [
            "ibv_query_port: port_num is 0; the device has ports 1 to 2 (EINVAL)",
            "ibv_modify_qp: port_num is 3; it can be 1 to 2",
        ] {
            assert!(said.contains(line), "{said}");
        }
    }
}

#[test]
fn a_misspelt_variable_is_named_once() {
    let said = support::run("misspelt", OPENED, &[("IWARP_PERSONALTY", "roce")]);
    assert_eq!(said.matches("did you mean IWARP_PERSONALITY?").count(), 1, "{said}");
}

const OPENED: &str = "
#include <rdma/rdma_cma.h>
int main(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct ibv_device **devices = ibv_get_device_list(NULL);
    if (!channel || !devices) return 1;
    struct ibv_context *context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    rdma_destroy_event_channel(channel);
    return !context || ibv_close_device(context);
}
";

const NO_DEVICES: &str = "
#include <errno.h>
#include <infiniband/verbs.h>
int main(void) { return ibv_get_device_list(NULL) || errno != EINVAL; }
";

#[test]
fn a_thread_that_waits_can_be_cancelled() {
    support::run("cancel", &source!("cancel.c"), &[]);
}

/// `close`, `getrandom` and other functions that the library calls are cancellation points.
#[test]
fn a_thread_that_is_to_be_cancelled_can_use_the_device() {
    support::run("cancelled", &source!("cancelled.c"), &[]);
}

/// Says something when there are sanitizers.
#[test]
fn threads_use_a_device_all_at_once() {
    support::run("threads", &source!("threads.c"), &[]);
    support::run("threads_roce", &source!("threads.c"), &[ROCE]);
    support::run("threads_udp", &source!("threads.c"), &OVER_UDP);
}

#[test]
fn every_operation_works_in_every_way_of_posting() {
    support::run("data", &source!("data.c"), &[]);
}

#[test]
fn every_operation_works_on_a_device_that_looks_like_roce() {
    support::run("data_roce", &source!("data.c"), &[ROCE]);
    support::run("data_udp", &source!("data.c"), &OVER_UDP);
}

#[test]
fn structures_of_a_program_that_packs_them_are_taken_where_they_lie() {
    support::run("packed", &source!("packed.c"), &[]);
    support::run("packed_udp", &source!("packed.c"), &OVER_UDP);
}

/// Completions, asynchronous events and states at both ends are those of docs/errors.md.
#[test]
fn errors_end_as_the_table_says() {
    let source = source!("codes.c").replace("TABLE\n", &errors::table());
    support::run("codes", &source, &[]);
    support::run("codes_roce", &source, &[ROCE]);
    support::run("codes_udp", &source, &OVER_UDP);
}

/// The two programs say how long a Send waits for its receive, on either wire.
#[test]
fn a_send_waits_for_its_receive_as_long_as_the_attributes_say() {
    let said = support::run("unready_roce", &source!("unready.c"), &[ROCE]);
    assert_eq!(said.matches("waits for a receive").count(), 1, "{said}");
    assert!(said.contains("min_rnr_timer here and rnr_retry at the peer say"), "{said}");
    let said = support::run("unready_udp", &source!("unready.c"), &OVER_UDP);
    assert_eq!(said.matches("waits for a receive").count(), 1, "{said}");
}

/// A suite that people try devices with asks for all of it.
#[test]
fn errors_of_a_program_are_told_as_kernels_do() {
    support::run("spoilt", &source!("spoilt.c"), &[]);
    support::run("spoilt_roce", &source!("spoilt.c"), &[ROCE]);
}

#[test]
fn senseless_calls_are_refused() {
    support::run("refused", &source!("refused.c"), &[]);
    support::run("refused_roce", &source!("refused.c"), &[ROCE]);
    support::run("refused_udp", &source!("refused.c"), &OVER_UDP);
}

/// By the errno on which test suites skip, and the masks that other programs look at first.
#[test]
fn missing_features_say_so_to_programs_that_try() {
    support::run("probed", &source!("probed.c"), &[]);
    support::run("probed_roce", &source!("probed.c"), &[ROCE]);
}

/// Registered before it is there: each access finds out what is.
#[test]
fn memory_on_demand_comes_and_goes() {
    support::run("demand", &source!("demand.c"), &[]);
    support::run("demand_roce", &source!("demand.c"), &[ROCE]);
}

#[test]
fn memory_of_the_device_and_of_descriptors_is_registered_and_shared() {
    support::run("imported", &source!("imported.c"), &[]);
    support::run("imported_roce", &source!("imported.c"), &[ROCE]);
}

/// A domain with regions is in use, as on a card. On an RNIC that would end `ib_send_bw` with an
/// error.
#[test]
fn domains_and_regions_leave_nothing() {
    support::run("lifetimes", &source!("lifetimes.c"), &[]);
    support::run("lifetimes", &source!("lifetimes.c"), &[ROCE]);
}

/// A program frees what the completions of a queue pair name when it has destroyed it.
#[test]
fn events_do_not_tell_of_a_queue_pair_that_is_gone() {
    support::run("doomed", &source!("doomed.c"), &[]);
    support::run("doomed_roce", &source!("doomed.c"), &[ROCE]);
    support::run("doomed_udp", &source!("doomed.c"), &OVER_UDP);
}

/// Programs close a device before they destroy what they made with it, 10,000 times over.
#[test]
fn a_context_goes_with_its_last_object() {
    support::run("closed_early", &source!("closed_early.c"), &[]);
    support::run("closed_early_roce", &source!("closed_early.c"), &[ROCE]);
}

/// A destroy that waits for the acknowledgement of an event says so: programs that forget it would
/// hang without a word.
#[test]
fn a_destroy_that_waits_for_an_acknowledgement_says_so() {
    let said = support::run("forgotten", &source!("forgotten.c"), &[]);
    let calls: Vec<_> = said.lines().filter_map(|line| line.split(' ').nth(3)).collect();
    assert_eq!(calls, ["rdma_destroy_id", "ibv_destroy_cq"], "{said}");
}

/// Threads that wait for a message when `main` returns are not told that it will never come, which
/// ends gloo's with an exception.
#[test]
fn an_exit_flushes_no_receive() {
    let said = support::run("exiting", &source!("exiting.c"), &[]);
    assert_eq!(said, "seen\n");
    support::run("exiting_roce", &source!("exiting.c"), &[ROCE]);
}

/// The C library exits with the last thread, and the worker is none of the program's: whether main
/// has used the device or another thread, closed it or not, or closes it while it exits.
#[test]
fn a_process_ends_with_the_last_thread_of_the_program() {
    for mode in ["open", "closed", "closes", "other"] {
        let said = support::run("last_thread", &source!("last_thread.c"), &[("MODE", mode)]);
        assert_eq!(said, "exits\n", "{mode}");
    }
    let roce = [ROCE, ("MODE", "open")];
    support::run("last_thread_roce", &source!("last_thread.c"), &roce);
}

/// A program with more rights than its user ignores that user's variables.
#[test]
fn variables_do_not_count_for_programs_with_more_rights() {
    let iwarp = ("IWARP_PERSONALITY", "iwarp");
    let wanted = [iwarp, ("IWARP_LOG", "debug"), ("IWARP_CRC", "off")];
    let program = support::compile("secure", include_str!("../c/secure.c"), &["-ldl"]);
    let Some((plain, set_uid)) = support::install(&program) else {
        println!("not run: needs root, and a folder where set-user-ID counts");
        return;
    };
    let said = support::run_as_nobody(&plain, &wanted);
    assert!(said.contains("secure 0 device iwarp0"), "{said}");
    // One that makes no sense is an error there, and nothing here.
    let wrong = [wanted[0], wanted[1], ("IWARP_CRC", "maybe")];
    let said = support::run_as_nobody(&plain, &wrong);
    assert!(said.contains("secure 0 device none"), "{said}");
    for variables in [wanted, wrong] {
        let said = support::run_as_nobody(&set_uid, &variables);
        assert_eq!(said, "secure 1 device roce0\n");
    }
    let _ = std::fs::remove_dir_all(plain.parent().unwrap());
}

/// valgrind prints five lines about a system call that it does not know, such as `epoll_pwait2`.
#[test]
fn valgrind_knows_all_system_calls() {
    let program = support::compile("known", &source!("sandbox.c"), &["-libverbs"]);
    let (program, limit) = (program.to_str().unwrap(), Duration::from_secs(120));
    let args = ["--tool=none", program];
    let valgrind = std::path::Path::new("/usr/bin/valgrind");
    assert!(valgrind.exists(), "apt-get install valgrind");
    let output = support::run_program(valgrind, &args, &[("REFUSED", "recvmmsg")], limit);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "works\n", "{said}");
    assert!(!said.contains("unhandled"), "{said}");
}

/// A sandbox that refuses a system call: the library does without, or says at once what it cannot
/// do. It never stands still without a word.
#[test]
fn system_calls_may_be_refused() {
    let needless = [
        "ioctl",
        "getrandom",
        "epoll_pwait2",
        "epoll_pwait",
        "membarrier",
        "madvise",
        "memfd_create",
        "timerfd_create",
        "mincore",
        "sched_yield",
        "sched_getaffinity",
        "getsockopt",
        "rt_sigprocmask",
        "clock_nanosleep",
        "openat",
        "accept4",
        "accept",
        "ioctl,getrandom,epoll_pwait2,membarrier,madvise,memfd_create,timerfd_create,prctl",
    ];
    let program = support::compile("sandbox", &source!("sandbox.c"), &["-libverbs"]);
    let run = |refused: &str| {
        support::run_program(&program, &[], &[("REFUSED", refused)], Duration::from_secs(30))
    };
    for refused in needless {
        let output = run(refused);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "works\n", "{refused}: {output:?}");
    }
    let needed = [
        ("epoll_pwait,epoll_pwait2", "cannot open the device"),
        ("eventfd2", "cannot open the device"),
        ("epoll_create1", "cannot open the device"),
        ("epoll_ctl", "cannot open the device"),
        ("fcntl", "cannot open the device"),
        ("clone3", "cannot open the device"),
        ("socket", "Operation not permitted"),
        ("bind", "Operation not permitted"),
        ("listen", "Operation not permitted"),
        ("getsockname", "Operation not permitted"),
        ("setsockopt", "Operation not permitted"),
        ("recvmsg", "Operation not permitted"),
        ("connect", "could not meet"),
        ("getpeername", "could not meet"),
    ];
    for (refused, complaint) in needed {
        let output = run(refused);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{refused}: {output:?}");
        assert!(said.contains(complaint), "{refused}: {output:?}");
    }
    // An object that stays ready all the time is not tried all the time.
    for (refused, wire, complaint) in [
        ("accept4,accept", &[][..], "lets no connection be accepted"),
        ("recvmmsg", &OVER_UDP[..], "cannot receive from the RoCE port"),
    ] {
        let env = [&[("REFUSED", refused), ("RESTS", "1")][..], wire].concat();
        let output = support::run_program(&program, &[], &env, Duration::from_secs(30));
        let [said, complained] =
            [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert_eq!(said, "rests\n", "{refused}: {output:?}");
        assert!(complained.contains(complaint), "{refused}: {output:?}");
    }
}

#[test]
fn asynchronous_events_are_told_and_acknowledged() {
    support::run("async", &source!("async.c"), &[]);
    support::run("async_roce", &source!("async.c"), &[ROCE]);
}

/// A `free` or `munmap` before `ibv_dereg_mr` does as on a card: nothing, or an error of the
/// request.
#[test]
fn memory_that_is_gone_fails_a_request_and_not_the_program() {
    for (name, crc) in [("vanishing", "on"), ("vanishing_plain", "off")] {
        let said = support::run(name, &source!("vanishing.c"), &[("IWARP_CRC", crc)]);
        assert!(said.contains("vanished"), "{said}");
        // One line for each of them, but for the program itself.
        assert!(said.contains("while registered: connection terminated"), "{said}");
    }
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

/// One arena for all threads: what the program takes is not there for the worker either, and the
/// size of the process does not change by itself.
const ONE_ARENA: (&str, &str) = ("MALLOC_ARENA_MAX", "1");

#[test]
fn a_program_without_memory_is_refused_what_it_asks_for() {
    support::run("starved", &source!("starved.c"), &[ONE_ARENA]);
    support::run("starved_roce", &source!("starved.c"), &[ROCE, ONE_ARENA]);
}

/// Only polled completions free the places of a card's send queue. Here a program that asks for
/// none goes on, and its user is told; strict, it is refused as there.
#[test]
fn a_send_queue_without_completions_goes_on_unless_strict() {
    const LINE: &str = "IWARP_STRICT=on refuses here, too";

    let check = |name: &str, env: &[(&str, &str)]| {
        let said = support::run(name, &source!("unsignaled.c"), env);
        let (before, after) = said.split_once("-- none signaled").unwrap();
        assert!(!before.contains(LINE) && after.matches(LINE).count() == 1, "{name}: {said}");
    };
    for (name, wire) in [("unsignaled", &[][..]), ("unsignaled_roce", &OVER_UDP[..])] {
        check(name, wire);
        check(&format!("{name}_strict"), &[wire, &[("IWARP_STRICT", "on")]].concat());
    }
}

/// A readable descriptor has an event, none is missed, and a program that does not look delays no
/// completion of the other's.
#[test]
fn event_loops_of_several_processes_wake_each_other() {
    let program = support::compile(
        "event_loop",
        &source!("event_loop.c"),
        &["-libverbs", "-lrdmacm", "-ldl"],
    );
    let runs =
        [("roce", ["1"]), ("roce", ["2s"]), ("iwarp", ["1"]), ("iwarp", ["2"]), ("iwarp", ["1s"])];
    // Sanitizers that cannot follow memory that processes share set it off.
    let shares_memory = std::env::var_os("IWARP_LOCAL").is_none_or(|local| local != "off");
    for (personality, args) in runs {
        let variables = [("IWARP_PERSONALITY", personality), ("IWARP_LOG", "debug")];
        let output = support::run_program(&program, &args, &variables, Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("-- done"), "{args:?}: {said}");
        let woken =
            said.matches("another process may wake the program that waits for events").count();
        let least = if shares_memory { 6 } else { 0 };
        assert!(woken >= least, "{personality} {args:?}: {woken}: {said}");
    }
}
