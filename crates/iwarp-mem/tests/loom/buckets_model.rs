// SPDX-License-Identifier: MIT OR Apache-2.0

//! A model of lookups while the table changes: an item that is there all the time is found, even
//! while items are taken out, moved, or moved to a larger table.

use std::ptr::null_mut;

use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::buckets::{Indexed, find, find_at_home, insert, remove};
use crate::sync::own;

struct Item(AtomicU32);

impl Indexed for Item {
    fn index(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

type Places = Vec<AtomicPtr<Item>>;

/// As `StagTable` has it: the places in use, and the lock of those who change them.
struct Table {
    places: AtomicPtr<Places>,
    lock: Mutex<()>,
    /// Owned, and kept to the end.
    small: *mut Places,
    large: *mut Places,
    items: Vec<*mut Item>,
}

unsafe impl Send for Table {}
unsafe impl Sync for Table {}

fn places(len: usize) -> *mut Places {
    Box::into_raw(Box::new((0..len).map(|_| AtomicPtr::new(null_mut())).collect()))
}

impl Table {
    /// With items of these indices in four places.
    fn with(indices: &[u32]) -> Arc<Self> {
        let (small, large) = (places(4), places(8));
        let item = |&index: &u32| Box::into_raw(Box::new(Item(AtomicU32::new(index))));
        let items: Vec<_> = indices.iter().map(item).collect();
        items.iter().for_each(|&item| unsafe { insert(&*small, item) });
        let lock = Mutex::new(());
        Arc::new(Self { places: AtomicPtr::new(small), lock, small, large, items })
    }

    fn places(&self) -> &Places {
        unsafe { &*self.places.load(Ordering::Acquire) }
    }

    /// As `StagTable::lookup`.
    fn lookup(&self, index: u32) -> bool {
        if unsafe { find_at_home(self.places(), index) }.is_some()
            || unsafe { find(self.places(), index) }.is_some()
        {
            return true;
        }
        let _lock = self.lock.lock().unwrap();
        unsafe { find(self.places(), index) }.is_some()
    }

    /// The places, for a thread that has the lock.
    fn own_places(&self) -> &Places {
        unsafe { &*own(&self.places) }
    }

    /// As `StagTable::release` and `allocate`, which gives the slot to another index.
    fn replace(&self, index: u32, by: u32) {
        let lock = self.lock.lock().unwrap();
        let item = unsafe { remove(self.own_places(), index) }.unwrap();
        unsafe { &*item }.0.store(0, Ordering::Relaxed);
        drop(lock);
        let _lock = self.lock.lock().unwrap();
        unsafe { &*item }.0.store(by, Ordering::Relaxed);
        unsafe { insert(self.own_places(), item) };
    }

    /// As `StagTable::grow`.
    fn grow(&self) {
        let _lock = self.lock.lock().unwrap();
        for place in self.own_places() {
            let item = own(place);
            if !item.is_null() {
                unsafe { insert(&*self.large, item) };
            }
        }
        self.places.store(self.large, Ordering::Release);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for &item in &self.items {
            drop(unsafe { Box::from_raw(item) });
        }
        drop(unsafe { Box::from_raw(self.small) });
        drop(unsafe { Box::from_raw(self.large) });
    }
}

fn during(indices: &'static [u32], change: fn(&Table), stays: u32) {
    loom::model(move || {
        let table = Table::with(indices);
        let changing = Arc::clone(&table);
        let changer = thread::spawn(move || change(&changing));
        assert!(table.lookup(stays), "what is there was missed");
        changer.join().unwrap();
        assert!(table.lookup(stays));
    });
}

/// 5 stands behind 1, whose place it takes when 1 goes.
#[test]
fn an_item_moved_to_a_nearer_place_is_found() {
    during(&[1, 5], |table| table.replace(1, 2), 5);
}

/// The item of 1 comes back under an index whose home is where 5 was.
#[test]
fn an_item_behind_one_that_changes_its_index_is_found() {
    during(&[1, 5], |table| table.replace(1, 6), 5);
}

#[test]
fn an_item_that_moves_to_a_larger_table_is_found() {
    during(&[1, 5], |table| table.grow(), 5);
}

#[test]
fn an_item_moved_in_a_larger_table_is_found() {
    let change = |table: &Table| {
        table.grow();
        table.replace(1, 3);
    };
    during(&[1, 9], change, 9);
}

/// The look under the lock is what finds what was moved past a lookup: without it, this would not
/// be found in some order of events.
#[test]
#[should_panic(expected = "missed without the lock")]
fn a_lookup_alone_may_miss_what_moves() {
    loom::model(|| {
        let table = Table::with(&[1, 5]);
        let changing = Arc::clone(&table);
        let changer = thread::spawn(move || changing.replace(1, 2));
        let found = unsafe { find(table.places(), 5) }.is_some();
        changer.join().unwrap();
        assert!(found, "missed without the lock");
    });
}
