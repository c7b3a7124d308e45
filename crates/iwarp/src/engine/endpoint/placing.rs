// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mark that bytes are being placed: a stream that another thread ends meanwhile flushes its
//! work requests only afterwards.

use crate::engine::sync::{AtomicU8, Ordering};

const IDLE: u8 = 0;
/// The receiver takes bytes apart, and may be placing some.
const PLACING: u8 = 1;
/// It does, and hands on afterwards the events that were withheld.
const WITHHELD: u8 = 2;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Placing(AtomicU8);

impl Placing {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(IDLE))
    }

    /// The receiver begins. It places bytes only after a look at the core, whose lock shows this to
    /// the thread that ends the stream under it.
    #[inline]
    pub(super) fn begin(&self) {
        self.0.store(PLACING, Ordering::Relaxed);
    }

    /// The receiver has placed what there was. True when events were withheld, for it to hand on.
    #[inline]
    pub(super) fn end(&self) -> bool {
        self.0.swap(IDLE, Ordering::AcqRel) == WITHHELD
    }

    /// A thread has ended the stream, and has the core locked. True when the receiver hands its
    /// events on.
    pub(super) fn withholds(&self) -> bool {
        let was = self.0.compare_exchange(PLACING, WITHHELD, Ordering::AcqRel, Ordering::Acquire);
        was.unwrap_or_else(|other| other) != IDLE
    }
}

#[cfg(all(test, model))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::Placing;
    use crate::engine::sync::Mutex;

    /// The part of it that the endpoint's lock keeps.
    #[derive(Default)]
    struct Core {
        ended: bool,
        placing: bool,
        flushed: u32,
    }

    /// A stream that ends while bytes are placed is flushed once, and not before they are.
    #[test]
    fn a_flush_waits_for_octets_that_are_being_placed() {
        loom::model(|| {
            let world = Arc::new((Placing::new(), Mutex::new(Core::default())));
            let flush = |core: &mut Core| {
                assert!(!core.placing, "flushed while octets are placed");
                core.flushed += 1;
            };
            let receiver = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let (placing, core) = &*world;
                    placing.begin();
                    let places = {
                        let mut core = core.lock();
                        core.placing = !core.ended;
                        core.placing
                    };
                    if places {
                        // Without the lock, for as long as it takes.
                        thread::yield_now();
                        core.lock().placing = false;
                    }
                    if placing.end() {
                        flush(&mut core.lock());
                    }
                })
            };
            {
                let (placing, core) = &*world;
                let mut core = core.lock();
                core.ended = true;
                if !placing.withholds() {
                    flush(&mut core);
                }
            }
            receiver.join().unwrap();
            assert_eq!(world.1.lock().flushed, 1);
        });
    }
}
