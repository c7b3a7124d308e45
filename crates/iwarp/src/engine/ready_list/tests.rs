// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of a ready list, and the times when its bell rings.

use std::cell::Cell;

use super::{Bell, ReadyList};

#[derive(Default)]
struct Rings(Cell<bool>);

impl Bell for Rings {
    fn ring(&self) {
        assert!(!self.0.replace(true), "it rings already");
    }

    fn silence(&self) {
        assert!(self.0.replace(false), "it is silent already");
    }
}

fn list() -> ReadyList<Rings> {
    ReadyList::new(Rings::default())
}

fn rings(list: &ReadyList<Rings>) -> bool {
    list.bell().0.get()
}

#[test]
fn streams_come_out_in_the_order_in_which_they_came_in() {
    let list = list();
    for token in [1, 2, 3] {
        list.add(token).unwrap();
        // It is in the list already.
        list.put(token);
    }
    assert_eq!((list.len(), list.take(), list.take()), (3, Some(1), Some(2)));
    list.put(1);
    assert_eq!((list.take(), list.take(), list.take(), list.len()), (Some(3), Some(1), None, 0));
}

#[test]
fn a_stream_that_was_removed_is_not_in_the_list() {
    let list = list();
    list.add(1).unwrap();
    list.remove(1);
    list.put(1);
    assert_eq!((list.take(), rings(&list)), (None, false));
}

#[test]
fn the_bell_rings_while_something_is_in_the_list() {
    let list = list();
    list.add(1).unwrap();
    list.add(2).unwrap();
    assert!(rings(&list));
    list.take();
    assert!(rings(&list));
    list.take();
    assert!(!rings(&list));
}

#[test]
fn a_bell_that_was_hushed_rings_for_what_came_meanwhile() {
    let list = list();
    list.add(1).unwrap();
    list.hush(|| false);
    assert!(rings(&list), "a thread sleeps");
    list.hush(|| true);
    assert!(!rings(&list));
    list.take();
    list.put(1);
    assert!(!rings(&list));
    list.listen();
    assert!(rings(&list));
}

#[test]
fn a_bell_is_not_hushed_under_a_thread_that_naps() {
    let list = list();
    list.add(1).unwrap();
    list.hush(|| true);
    list.will_sleep();
    list.hush(|| true);
    assert!(rings(&list));
    list.has_slept();
    list.hush(|| true);
    assert!(!rings(&list));
}

#[test]
fn a_thread_that_takes_what_comes_has_nobody_woken() {
    let list = list();
    list.add(1).unwrap();
    list.take();
    let taking = list.quiet();
    list.put(1);
    assert!(!rings(&list));
    assert_eq!(list.take(), Some(1));
    list.put(1);
    drop(taking);
    assert!(rings(&list), "it has left some");
    // A ring that others hear goes on.
    let taking = list.quiet();
    assert!(rings(&list));
    list.take();
    assert!(!rings(&list));
    drop(taking);
    assert!(!rings(&list));
}
