// SPDX-License-Identifier: MIT OR Apache-2.0

//! Users and namespaces decide by which way two processes of a host exchange their bytes: the
//! connection works, and where it stays with TCP one of them says why.

use crate::common::DEADLINE;
use crate::common::kin::{become_user, enter, map_own_user};
use crate::common::neighbours::{Acts, First, Neighbours, Plain, apart};
use crate::common::process::{goes_on, passed_apart, this_test};
use crate::hosts::{Host, possible};

const ONE: u32 = 61_234;
const OTHER: u32 = 61_235;

/// The lines of two processes, of which each does something first.
fn way(name: &str, client: impl FnMut(), server: impl FnMut(), moves: bool) -> String {
    between(name, &mut First(client), &mut First(server), moves)
}

fn between(name: &str, client: &mut dyn Acts, server: &mut dyn Acts, moves: bool) -> String {
    println!("{name}");
    let mut two = Neighbours::new(client, server);
    two.connect().unwrap();
    let way = two.agree();
    assert_eq!(way.moved, moves, "{name}: {way:?}");
    goes_on();
    way.lines.join(" | ")
}

#[test]
fn one_user_moves_and_two_do_not() {
    if passed_apart(this_test!(), DEADLINE) {
        return;
    }
    between("as it is", &mut Plain, &mut Plain, true);
    if !possible() {
        return;
    }
    let (one, other) = (|| become_user(ONE), || become_user(OTHER));
    let nothing = || ();
    let still = || {
        // SAFETY: concerns this process.
        let failed = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        assert_eq!(failed, 0);
    };
    way("a user", one, one, true);
    for (name, client, server) in
        [("two users", one as fn(), other as fn()), ("root is first", nothing, one)]
    {
        for (client, server) in [(client, server), (server, client)] {
            let lines = way(name, client, server, false);
            assert!(lines.contains("another user"), "{lines}");
        }
    }
    way("the first is not dumpable", still, nothing, true);
    way("the second is not dumpable", nothing, still, true);
}

/// In a namespace where this user is root, and others have no name.
fn mapped() {
    become_user(ONE);
    enter(libc::CLONE_NEWUSER);
    map_own_user(ONE);
}

#[test]
fn namespaces_of_users_show_who_is_who() {
    if passed_apart(this_test!(), DEADLINE) || !possible() {
        return;
    }
    let one = || become_user(ONE);
    way("the first in a namespace", mapped, one, true);
    way("the second in a namespace", one, mapped, true);
    way("each in its own", mapped, mapped, true);
    way("another user in a namespace", mapped, || become_user(OTHER), false);
    // All users have one number there, which is not for all of them the own one.
    let unmapped = |user| {
        move || {
            become_user(user);
            enter(libc::CLONE_NEWUSER);
        }
    };
    let lines = way("users without names", unmapped(ONE), unmapped(OTHER), false);
    assert!(lines.contains("under the number of this one"), "{lines}");
}

#[test]
fn other_namespaces_do_not_matter() {
    if passed_apart(this_test!(), DEADLINE) || !possible() {
        return;
    }
    let (nothing, inner) = (|| (), || enter(libc::CLONE_NEWPID));
    way("the first has other processes", inner, nothing, true);
    way("the second has other processes", nothing, inner, true);
    way("each has its own", inner, inner, true);
    let rest = || enter(libc::CLONE_NEWIPC | libc::CLONE_NEWNS | libc::CLONE_NEWUTS);
    way("one with other mounts", rest, nothing, true);
    way("two with other mounts", rest, rest, true);
    let no_proc = || {
        enter(libc::CLONE_NEWNS);
        // SAFETY: strings; the mounts are this process's own.
        let failed = unsafe {
            let (none, proc, flags) = (c"none".as_ptr(), c"/proc".as_ptr(), libc::MS_PRIVATE);
            let all = std::ptr::null();
            libc::mount(none, c"/".as_ptr(), all, flags | libc::MS_REC, all.cast()) != 0
                || libc::mount(none, proc, c"tmpfs".as_ptr(), 0, all.cast()) != 0
        };
        assert!(!failed, "{}", std::io::Error::last_os_error());
    };
    way("the first has no /proc", no_proc, nothing, true);
    // It cannot tell what it is passed.
    way("the second has no /proc", nothing, no_proc, false);
}

#[test]
fn other_networks_stay_with_tcp() {
    if passed_apart(this_test!(), DEADLINE) || !possible() {
        return;
    }
    let [here, there] = Host::pair();
    for ip in ["10.9.0.2", "fd09::2"] {
        let server = there.run(|| apart(Some(ip.parse().unwrap())));
        let client = here.run(|| apart(None));
        let mut two = Neighbours::of(client, server);
        two.connect().unwrap();
        (0..50).for_each(|_| two.turn());
        // An address of another host is no reason for a line.
        let way = two.look();
        assert_eq!(way.lines, ["Off:", "Off:"]);
        goes_on();
    }
}
