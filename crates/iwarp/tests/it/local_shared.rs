// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that may not read each other's memory, and share that of the library
//! (`IWARP_LOCAL=share`): each maps the other's if both say so.

use iwarp::{LocalPath, Options, WcStatus};

use crate::common::DEADLINE;
use crate::common::kin::{Kin, Refused, enter};
use crate::common::process::{goes_on, passed_apart, this_test};
use crate::hosts::possible;
use crate::local_direct::{dial_with, fill, moved, place};
use crate::local_mapped::{serve_with, write, writes_directly};

/// The writer carries out Writes by itself, or none of 5000, where each process does something
/// first.
fn writes(ways: [LocalPath; 2], first: [&dyn Fn(); 2], directly: bool) {
    let mut target = Kin::fork(|talk| {
        first[1]();
        serve_with(talk, ways[1]);
    });
    let addr = target.hear();
    let mut writer = Kin::fork(|talk| {
        first[0]();
        let client = dial_with(talk.hear().parse().unwrap(), Options::new().local(ways[0]));
        let (stag, to) = place(&talk.hear());
        let from = client.region(64);
        moved([&client]);
        if directly {
            writes_directly(&client, &from, stag, to);
        }
        // As long as it takes to pass an arena, many times over.
        for number in 1..=5000_u32 {
            fill(&from, (number % 101) as u8);
            assert_eq!(write(&client, &from, stag, to).status, WcStatus::Success);
        }
        talk.tell(&client.qp.direct_writes().to_string());
        talk.hear();
    });
    writer.tell(&addr);
    writer.tell(&target.hear());
    let direct: u64 = writer.hear().parse().unwrap();
    assert_eq!(direct > 0, directly, "{ways:?}");
    // The last one may be on its way where the target has a part in it.
    while {
        target.tell("what is there?");
        target.hear() != format!("{:?}", [51_u8; 8])
    } {}
    goes_on();
}

const SHARE: [LocalPath; 2] = [LocalPath::Share; 2];

fn may_not_read() {
    Refused::new(libc::SYS_process_vm_readv).refuse(libc::EPERM);
}

#[test]
fn processes_that_share_their_memory_map_it_without_reading_the_rest() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    let nothing = || ();
    for first in [[&may_not_read as &dyn Fn(), &nothing], [&nothing, &may_not_read]] {
        writes(SHARE, first, true);
    }
    writes(SHARE, [&may_not_read, &may_not_read], true);
    for ways in [[LocalPath::Share, LocalPath::Auto], [LocalPath::Auto, LocalPath::Share]] {
        writes(ways, [&may_not_read, &may_not_read], false);
        // Each can read the other.
        writes(ways, [&nothing, &nothing], true);
    }
}

/// As the containers of a pod.
#[test]
fn processes_that_have_no_numbers_for_each_other_share_their_memory() {
    if passed_apart(this_test!(), DEADLINE) || !possible() {
        return;
    }
    let inner = || enter(libc::CLONE_NEWPID);
    writes(SHARE, [&inner, &inner], true);
    writes([LocalPath::Auto; 2], [&inner, &inner], false);
}
