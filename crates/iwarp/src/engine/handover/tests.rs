// SPDX-License-Identifier: MIT OR Apache-2.0

//! The acts of the worker, look by look.

use super::watcher::{GRACE, WATCH};
use super::{Cause, Duty, Handover};
use crate::engine::policy::table::{FEW, LEASE, LOOP, SHORT_LEASE};

/// A poll that finds nothing.
fn poll(handover: &Handover, now: u64) {
    let mut call = handover.poll();
    handover.lease(now);
    call.found_nothing();
}

#[test]
fn a_group_without_callers_is_served() {
    let handover = Handover::new();
    assert_eq!(handover.worker_turn(1, Cause::Fired), Duty::Serve);
}

#[test]
fn a_poller_keeps_the_worker_away_until_its_lease_ends() {
    let handover = Handover::new();
    poll(&handover, 10);
    assert!(handover.is_leased(10));
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Serve);
}

#[test]
fn a_busy_blocked_caller_is_watched_and_an_idle_one_parked() {
    let handover = Handover::new();
    handover.enter();
    drop(handover.call());
    assert_eq!(handover.worker_turn(5, Cause::Fired), Duty::Watch(5 + GRACE));
    assert_eq!(handover.worker_turn(5 + GRACE, Cause::Time), Duty::Leave);
    assert!(handover.leave(9), "the caller arms a parked group");
}

#[test]
fn only_the_last_caller_arms() {
    let handover = Handover::new();
    handover.enter();
    handover.enter();
    assert_eq!(handover.worker_turn(5, Cause::Fired), Duty::Leave);
    assert!(!handover.leave(6));
    assert!(handover.leave(7));
}

#[test]
fn an_armed_group_is_not_armed_again_by_a_caller() {
    let handover = Handover::new();
    handover.enter();
    assert!(!handover.leave(1));
}

#[test]
fn a_caller_that_goes_to_sleep_takes_the_worker_off_its_timer() {
    let handover = Handover::new();
    poll(&handover, 10);
    assert!(!handover.end_lease(), "it is armed already");
    poll(&handover, 10);
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    assert!(handover.end_lease());
    // The timer that is set finds nothing to do; the armed epoll does.
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Leave);
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Fired), Duty::Serve);
}

#[test]
fn a_caller_that_lingers_is_looked_at_when_its_lease_is_over() {
    let handover = Handover::new();
    assert_eq!(handover.linger(10), None, "it is armed");
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    // It polls on, and lingers once more.
    poll(&handover, 30);
    assert_eq!(handover.linger(40), None);
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Watch(40 + LEASE));
    // It sleeps.
    assert_eq!(handover.worker_turn(40 + LEASE, Cause::Time), Duty::Serve);
}

#[test]
fn the_worker_comes_sooner_for_a_caller_that_begins_to_linger() {
    let handover = Handover::new();
    poll(&handover, 10);
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    poll(&handover, 30);
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Watch(10 + LEASE + WATCH));
    let now = 20 + LEASE;
    assert_eq!(handover.linger(now), Some(now + LEASE), "the next look is far");
    assert_eq!(handover.linger(now + 1), None, "that is known by now");
    let over = now + 1 + LEASE;
    assert_eq!(handover.worker_turn(now + LEASE, Cause::Time), Duty::Watch(over));
    assert_eq!(handover.worker_turn(over, Cause::Time), Duty::Serve);
}

/// A caller has armed the group, lingers, and has a look of long ago before it.
#[test]
fn a_look_that_is_far_does_not_stand_for_a_nearer_one() {
    let handover = Handover::new();
    poll(&handover, 10);
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    poll(&handover, 30);
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Time), Duty::Watch(10 + LEASE + WATCH));
    let now = 20 + LEASE;
    assert!(handover.end_lease());
    assert_eq!(handover.linger(now), Some(now + LEASE));
    assert_eq!(handover.worker_turn(now + 5, Cause::Fired), Duty::Watch(now + LEASE));
    assert_eq!(handover.worker_turn(now + LEASE, Cause::Time), Duty::Serve);
}

/// Two polls in vain behind the arming are no loop for which the worker would wait longer.
#[test]
fn a_caller_that_lingers_and_looked_twice_more_is_served_when_its_lease_is_over() {
    let handover = Handover::new();
    assert_eq!(handover.linger(10), None);
    (11..14).for_each(|now| poll(&handover, now));
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(13 + LEASE));
    assert_eq!(handover.worker_turn(13 + LEASE, Cause::Time), Duty::Serve);
}

#[test]
fn a_caller_lingers_until_an_event_comes() {
    let handover = Handover::new();
    assert_eq!(handover.linger(10), None);
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    // It polls on, for several looks.
    let mut at = 10 + LEASE;
    for _ in 0..3 {
        poll(&handover, at - 5);
        assert_eq!(handover.worker_turn(at, Cause::Time), Duty::Watch(at - 5 + LEASE));
        at += LEASE - 5;
    }
    handover.end_linger();
    poll(&handover, at - 5);
    assert_eq!(handover.worker_turn(at, Cause::Time), Duty::Watch(at + WATCH));
}

/// Callers of another group look after the streams of one that lingers.
#[test]
fn a_caller_that_lingers_is_not_left_to_others_for_long() {
    let handover = Handover::new();
    assert_eq!(handover.linger(10), None);
    assert_eq!(handover.worker_turn(10 + LEASE, Cause::Fired), Duty::Serve);
    assert_eq!(handover.watch_beside(10 + LEASE), Duty::Watch(10 + 2 * LEASE));
}

/// The worker was about to serve the group; meanwhile its caller has armed it, and polled again.
#[test]
fn a_group_that_was_armed_under_the_worker_is_not_left_to_others() {
    let handover = Handover::new();
    assert!(!handover.may_be_left(), "it is armed");
    assert_eq!(handover.worker_turn(1, Cause::Fired), Duty::Serve);
    assert!(handover.may_be_left());
    assert!(handover.end_lease());
    poll(&handover, 2);
    assert!(!handover.may_be_left());
    assert!(!handover.end_lease(), "the caller would not have the bell ring again");
}

#[test]
fn the_worker_stays_away_from_a_group_that_a_caller_drives() {
    let handover = Handover::new();
    let call = handover.call();
    assert_eq!(handover.worker_turn(7, Cause::Fired), Duty::Watch(7 + LEASE / 4));
    assert!(handover.is_leased(9));
    drop(call);
    assert_eq!(handover.worker_turn(7 + LEASE / 4, Cause::Time), Duty::Serve);
}

#[test]
fn a_caller_without_a_cpu_is_waited_for_but_not_for_ever() {
    let handover = Handover::new();
    let call = handover.call();
    assert_eq!(handover.worker_turn(7, Cause::Fired), Duty::Watch(7 + LEASE / 4));
    let mut now = 7;
    let looks = (1..=2 * FEW).take_while(|_| {
        now += LEASE / 4;
        handover.worker_turn(now, Cause::Time) != Duty::Serve
    });
    assert_eq!(looks.count() as u32, FEW - 1);
    drop(call);
}

#[test]
fn a_caller_that_comes_again_and_again_is_waited_for() {
    let handover = Handover::new();
    let mut now = 0;
    for look in 0..4 * FEW {
        let _call = handover.call();
        let cause = if look == 0 { Cause::Fired } else { Cause::Time };
        let Duty::Watch(at) = handover.worker_turn(now, cause) else { panic!("look {look}") };
        now = at;
    }
    assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Serve);
}

#[test]
fn a_loop_of_polls_that_was_interrupted_is_waited_for_once() {
    let looping = || {
        let handover = Handover::new();
        (0..2).for_each(|now| poll(&handover, now));
        handover
    };
    let late = 1 + 2 * LEASE;
    let handover = looping();
    assert_eq!(handover.worker_turn(late, Cause::Fired), Duty::Watch(late + GRACE));
    assert_eq!(handover.worker_turn(late + GRACE, Cause::Time), Duty::Serve);
    // It has ended by itself.
    let handover = looping();
    handover.found();
    assert_eq!(handover.worker_turn(late, Cause::Fired), Duty::Serve);
    let handover = looping();
    assert!(!handover.end_lease(), "it is armed");
    assert_eq!(handover.worker_turn(late, Cause::Fired), Duty::Serve);
}

#[test]
fn a_short_lease_begins_when_the_work_is_done() {
    let handover = Handover::new();
    (0..10).for_each(|_| handover.was_late());
    poll(&handover, 0);
    handover.renew_short_lease(|| 1_000_000);
    assert!(handover.is_leased(1_000_000 + SHORT_LEASE - 1));
}

#[test]
fn a_lease_that_is_always_over_grows_where_the_program_polls() {
    let pause = 10 * SHORT_LEASE;
    let is_over = |polls: bool| {
        let handover = Handover::new();
        (0..10).for_each(|_| handover.was_late());
        (1..=6 * u64::from(LOOP)).all(|turn| {
            let now = turn * pause;
            if polls {
                poll(&handover, now - pause);
                handover.found();
            }
            handover.worker_turn(now, Cause::Fired) == Duty::Serve
        })
    };
    assert!(!is_over(true));
    assert!(is_over(false), "it is the same poll");
}

#[test]
fn the_lease_fits_the_program() {
    let handover = Handover::new();
    for _ in 0..10 {
        handover.was_late();
    }
    poll(&handover, 0);
    assert_eq!(handover.worker_turn(1, Cause::Fired), Duty::Watch(SHORT_LEASE));
    // And now it polls all the time.
    let mut now = SHORT_LEASE;
    for look in 0..10 {
        poll(&handover, now - 1);
        let Duty::Watch(at) = handover.worker_turn(now, Cause::Time) else { panic!("{look}") };
        now = at;
    }
    for _ in 0..3 {
        poll(&handover, now);
        let next = now + WATCH;
        assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Watch(next));
        now = next;
    }
}

#[test]
fn there_is_one_timer() {
    let handover = Handover::new();
    poll(&handover, 10);
    assert_eq!(handover.worker_turn(20, Cause::Fired), Duty::Watch(10 + LEASE));
    assert!(handover.end_lease());
    poll(&handover, 30);
    assert_eq!(handover.worker_turn(40, Cause::Fired), Duty::Leave);
    let now = 10 + LEASE;
    assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Watch(now + WATCH));
}

/// It goes to sleep next, and only the worker can wake it.
#[test]
fn the_last_look_before_sleeping_begins_no_lease() {
    let handover = Handover::new();
    poll(&handover, 0);
    handover.was_late();
    let arms = handover.end_lease();
    assert!(!arms, "it was armed");
    handover.renew_short_lease(|| 1_000);
    assert_eq!(handover.worker_turn(1_000, Cause::Fired), Duty::Serve);
}

/// The task of a runtime has moved something and goes to sleep.
fn task_sleeps(handover: &Handover, now: u64) {
    drop(handover.call());
    handover.lease(now);
    handover.wait_for_runtime();
}

#[test]
fn a_task_is_given_time_for_what_has_come() {
    let handover = Handover::new();
    task_sleeps(&handover, 1);
    let came = 10 * LEASE;
    assert_eq!(handover.worker_turn(came, Cause::Fired), Duty::Watch(came + GRACE));
    task_sleeps(&handover, came + 1);
    // No stream has moved for a while: the next input wakes the worker as well.
    assert_eq!(handover.worker_turn(came + GRACE, Cause::Time), Duty::Arm);
}

#[test]
fn a_task_that_does_not_come_is_served_and_then_not_waited_for() {
    let handover = Handover::new();
    task_sleeps(&handover, 1);
    let came = 10 * LEASE;
    assert_eq!(handover.worker_turn(came, Cause::Fired), Duty::Watch(came + GRACE));
    assert_eq!(handover.worker_turn(came + GRACE, Cause::Time), Duty::Serve);
    handover.was_late();
    handover.served();
    assert_eq!(handover.worker_turn(came + 2 * GRACE, Cause::Fired), Duty::Serve);
}

#[test]
fn a_task_that_is_in_time_is_looked_at_less_and_less() {
    let handover = Handover::new();
    let mut now = 10 * LEASE;
    task_sleeps(&handover, now);
    assert_eq!(handover.worker_turn(now, Cause::Fired), Duty::Watch(now + LEASE));
    let looks = [1, 2, 4, 8, 8].map(|times| times * WATCH);
    now += LEASE;
    for until in looks {
        task_sleeps(&handover, now - 1);
        assert_eq!(handover.worker_turn(now, Cause::Time), Duty::Watch(now + until));
        now += until;
    }
    // It was busy elsewhere, and the worker moved what had come.
    handover.was_late();
    task_sleeps(&handover, now - 1);
    let Duty::Watch(until) = handover.worker_turn(now, Cause::Time) else { panic!() };
    assert!(until < now + LEASE, "its lease is short");
}
