// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events that programs are told by the connection manager, in their order, on both kinds of
//! device. The scenarios are in `c/cm_events.c`, `c/cm_lifetimes.c`, `c/cm_steps.c`,
//! `c/cm_daemon.c` and `c/cm_datagrams.c`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::support;

/// Runs a scenario of a program that is compiled once.
fn run(program: &'static OnceLock<PathBuf>, name: &str, source: &str, scenario: &str) {
    let program: &Path = program.get_or_init(|| {
        let whole = support::with_headers(source);
        support::compile(name, &whole, &["-lrdmacm", "-libverbs"])
    });
    for (personality, wire) in [("iwarp", "iwarp"), ("roce", "auto"), ("roce", "roce")] {
        // These depend on the protocol.
        let of_roce = ["terms", "unready", "unsaid", "told", "retried"].contains(&scenario)
            || name == "daemon";
        if wire == "roce" && !of_roce {
            continue;
        }
        // Over RoCE v2 a listener is the parent's for as long as that lives.
        if wire != "iwarp" && scenario == "listens-and-parent-stays" {
            continue;
        }
        let env = [("IWARP_PERSONALITY", personality), ("IWARP_WIRE", wire)];
        let output = support::run_program(program, &[scenario], &env, Duration::from_secs(60));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scenario} {personality}: {}\n{said}", output.status);
    }
}

macro_rules! scenarios {
    ($module:ident, $file:literal: $($test:ident = $scenario:literal),* $(,)?) => {
        mod $module {
            static PROGRAM: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();

            $(
                #[test]
                fn $test() {
                    super::run(&PROGRAM, stringify!($module), include_str!($file), $scenario);
                }
            )*
        }
    };
}

scenarios! { events, "../c/cm_events.c":
    every_step_is_an_event = "order",
    the_end_is_told_without_a_queue_pair = "qp-destroyed-first",
    the_end_is_told_when_verbs_destroyed_the_queue_pair = "qp-destroyed-directly",
    the_end_is_told_although_the_queue_pair_went_meanwhile = "disconnect-follows-qp",
    a_refusal_says_why_and_flushes = "reject",
    no_listener = "no-listener",
    events_migrate_with_their_id = "migrate",
    programs_have_events_of_their_own = "user-events",
    the_descriptor_is_the_programs = "channel-flags",
    events_have_names = "names",
}

scenarios! { lifetimes, "../c/cm_lifetimes.c":
    destroying_waits_for_acknowledgement = "destroy-waits-for-ack",
    a_request_is_the_listeners_event = "requests-belong-to-the-listener",
    requests_go_with_their_listener = "listener-goes-first",
    a_port_can_be_bound_again_at_once = "bind-again",
    a_waiting_thread_can_be_cancelled = "cancel",
    a_channel_may_go_under_a_waiting_thread = "channel-goes-under-waiter",
    a_channel_may_have_gone_before_a_thread_waits = "channel-went-before-waiter",
    a_channel_may_go_before_its_ids = "channel-goes-first",
    one_queue_for_both_directions_goes_once = "one-queue",
    a_crash_is_seen_within_a_second = "crash",
    a_child_has_connections_of_its_own = "forked",
}

scenarios! { daemon, "../c/cm_daemon.c":
    a_child_listens_where_its_parent_has_bound = "bound",
    a_child_serves_where_its_parent_listened = "listens",
    a_child_serves_while_its_parent_waits = "bound-and-parent-stays",
    a_child_serves_in_the_place_of_a_parent_that_waits = "listens-and-parent-stays",
    a_child_may_end_what_is_its_parents = "only-cleans-up",
    a_port_is_free_again_whatever_children_there_are = "given-back",
}

scenarios! { steps, "../c/cm_steps.c":
    ids_without_a_channel_wait = "synchronous",
    programs_bring_their_own_queue_pair = "external",
    private_data_goes_without_a_queue_pair = "private-data-only",
    options_do_what_they_say = "options",
    the_timeout_is_read_back = "ack-timeout",
    agreed_terms_are_read_back = "terms",
    a_send_waits_for_its_receive_as_long_as_the_peer_has_said = "unready",
    a_send_waits_where_the_peer_has_said_nothing = "unsaid",
    a_request_says_how_long_sends_wait = "told",
    both_ends_send_again_as_often_as_the_connecting_one_says = "retried",
    addresses_are_looked_up = "addresses",
    unsupported_calls_fail_at_once = "unsupported",
    ids_share_one_context = "devices",
    a_client_connects_from_where_it_is_bound = "bound-source",
}

scenarios! { datagrams, "../c/cm_datagrams.c":
    a_question_is_answered_and_a_datagram_follows = "order",
    a_service_is_refused = "refuse",
    a_queue_pair_for_datagrams_has_its_attributes = "attributes",
    calls_that_do_not_fit_a_service_fail = "wrong",
    joining_a_group_is_an_event = "group",
}
