// SPDX-License-Identifier: MIT OR Apache-2.0

//! ThreadSanitizer: it knows which accesses of the program are ordered, and by what.
//!
//! Each queue pair is a fiber of its own, in whose name accesses of the device are told. A post
//! orders what the program did before it, and a polled completion what the device did; a race
//! with the device is any access of the program's that neither orders. Directions of a queue pair
//! share a fiber: a program may know from an answer that its request has gone.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ops::Range;

use super::function;
use crate::check::flights::Queue;

/// Switching does not order anything by itself.
const NO_ORDER: c_uint = 1;

type Fiber = *mut c_void;
type Create = unsafe extern "C" fn(c_uint) -> Fiber;
type Current = unsafe extern "C" fn() -> Fiber;
type Switch = unsafe extern "C" fn(Fiber, c_uint);
type Touch = unsafe extern "C" fn(*mut c_void, usize);
type Order = unsafe extern "C" fn(*mut c_void);

/// The functions of the sanitizer.
#[derive(Clone, Copy, Debug)]
struct Calls {
    create: Create,
    destroy: Order,
    current: Current,
    switch: Switch,
    read: Touch,
    write: Touch,
    acquire: Order,
    release: Order,
}

/// An address by which the sanitizer orders.
#[derive(Debug, Default)]
struct Token(Box<u64>);

impl Token {
    fn address(&self) -> *mut c_void {
        std::ptr::from_ref(&*self.0).cast_mut().cast()
    }
}

#[derive(Debug)]
struct Lane {
    fiber: usize,
    done: Token,
}

#[derive(Debug)]
pub(super) struct Threads {
    calls: Calls,
    posts: HashMap<Queue, Token>,
    /// By number of the queue pair.
    lanes: HashMap<u32, Lane>,
}

macro_rules! find {
    ($name:literal, $type:ty) => {
        // SAFETY: the sanitizer's function of this name has this type.
        unsafe { std::mem::transmute::<*mut c_void, $type>(function($name)?) }
    };
}

impl Lane {
    fn fiber(&self) -> Fiber {
        std::ptr::with_exposed_provenance_mut(self.fiber)
    }

    /// The device's accesses so far are before the next acquisition of the token.
    fn release(&self, calls: &Calls) {
        let (Calls { current, switch, release, .. }, fiber) = (*calls, self.fiber());
        let done = self.done.address();
        // SAFETY: the fiber lives, and no other thread is in it: the checker's books are locked.
        unsafe {
            let own = current();
            switch(fiber, NO_ORDER);
            release(done);
            switch(own, NO_ORDER);
        }
    }
}

impl Threads {
    /// The sanitizer, if the program has it.
    pub(super) fn find() -> Option<Self> {
        let calls = Calls {
            create: find!(c"__tsan_create_fiber", Create),
            destroy: find!(c"__tsan_destroy_fiber", Order),
            current: find!(c"__tsan_get_current_fiber", Current),
            switch: find!(c"__tsan_switch_to_fiber", Switch),
            read: find!(c"__tsan_read_range", Touch),
            write: find!(c"__tsan_write_range", Touch),
            acquire: find!(c"__tsan_acquire", Order),
            release: find!(c"__tsan_release", Order),
        };
        Some(Self { calls, posts: HashMap::new(), lanes: HashMap::new() })
    }

    /// The fiber of a queue pair. Making it orders it behind this thread, so it is made before the
    /// program can go on.
    fn lane(&mut self, pair: u32) -> &Lane {
        let create = self.calls.create;
        self.lanes.entry(pair).or_insert_with(|| {
            // SAFETY: it only makes one.
            let fiber = unsafe { create(0) }.expose_provenance();
            Lane { fiber, done: Token::default() }
        })
    }

    pub(super) fn posted(&mut self, queue: Queue) {
        if let Queue::Sends(pair) | Queue::Receives(pair) = queue {
            self.lane(pair);
        }
        let token = self.posts.entry(queue).or_default();
        // SAFETY: the token stays where it is.
        unsafe { (self.calls.release)(token.address()) };
    }

    pub(super) fn used(&mut self, pair: u32, queue: Queue, memory: &Range<usize>, write: bool) {
        let Calls { current, switch, acquire, .. } = self.calls;
        let touch = if write { self.calls.write } else { self.calls.read };
        let posted = self.posts.entry(queue).or_default().address();
        let lane = self.lane(pair);
        let (fiber, length) = (lane.fiber(), memory.len());
        let start = std::ptr::without_provenance_mut(memory.start);
        // SAFETY: as with releasing; the memory is only told of.
        unsafe {
            let own = current();
            switch(fiber, NO_ORDER);
            acquire(posted);
            touch(start, length);
            switch(own, NO_ORDER);
        }
    }

    pub(super) fn ended(&mut self, pair: u32) {
        if let Some(lane) = self.lanes.get(&pair) {
            lane.release(&self.calls);
        }
    }

    pub(super) fn polled(&self, pair: u32) {
        if let Some(lane) = self.lanes.get(&pair) {
            // SAFETY: the token stays where it is.
            unsafe { (self.calls.acquire)(lane.done.address()) };
        }
    }

    pub(super) fn emptied(&mut self, pair: u32) {
        let Some(lane) = self.lanes.remove(&pair) else { return };
        lane.release(&self.calls);
        // SAFETY: the token is still there, and the fiber is used no more.
        unsafe {
            (self.calls.acquire)(lane.done.address());
            (self.calls.destroy)(lane.fiber());
        }
    }

    pub(super) fn settle(&mut self) {
        for lane in self.lanes.values() {
            lane.release(&self.calls);
            // SAFETY: the token stays where it is.
            unsafe { (self.calls.acquire)(lane.done.address()) };
        }
    }
}
