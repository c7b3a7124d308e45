// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects of this process that describe themselves to other processes of its user
//! ([`control`](super::control)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use iwarp_os::PerProcess;

use crate::engine::tasks::next_id;
use crate::report::Object;

static ALL: PerProcess<Mutex<BTreeMap<Place, Weak<dyn Described>>>> = PerProcess::new();

/// The kind of an object, and a number that no other of the kind has: [`of`].
pub(crate) type Place = (Kind, u64);

/// The place of an object: numbers of queue pairs are those of a device only.
pub(crate) fn of<T>(kind: Kind, object: &T) -> Place {
    (kind, std::ptr::from_ref(object).addr() as u64)
}

/// The kinds of objects, in the order in which they are described.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    QueuePair,
    CompletionQueue,
    SharedReceives,
    Id,
    Call,
    Device,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::QueuePair,
        Self::CompletionQueue,
        Self::SharedReceives,
        Self::Id,
        Self::Call,
        Self::Device,
    ];

    /// The member of a description that has them.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::QueuePair => "qp",
            Self::CompletionQueue => "cq",
            Self::SharedReceives => "srq",
            Self::Id => "cm_id",
            Self::Call => "call",
            Self::Device => "device",
        }
    }
}

/// An object that describes itself.
pub(crate) trait Described: Send + Sync {
    /// Adds what there is to know. It may lock the object for a moment.
    fn describe(&self, to: &mut Object);
    /// Its completions may have faults on purpose from now on.
    fn have_faults(self: Arc<Self>) {}
    /// Somebody watches the times of its requests, until then by the system's clock.
    fn watch(&self, _until: Duration) {}
    /// The ports of the process have gone down, or are up again.
    fn cable(&self, _is_pulled: bool) {}
    /// A capture has begun.
    fn have_capture(self: Arc<Self>) {}
}

/// The object is described from now on, until [`leave`]. The caller has made sure of memory for a
/// small object.
pub(crate) fn enter(place: Place, object: Weak<dyn Described>) {
    all().insert(place, object);
}

/// The object is gone.
pub(crate) fn leave(place: Place) {
    let gone = all().remove(&place);
    // Without the lock.
    drop(gone);
}

/// The objects of a kind, `most` at most.
fn of_kind(kind: Kind, most: usize) -> Vec<Weak<dyn Described>> {
    let all = all();
    let range = all.range((kind, 0)..=(kind, u64::MAX));
    range.take(most).map(|(_, object)| Weak::clone(object)).collect()
}

/// The completions of all queue pairs may have faults on purpose from now on.
pub(crate) fn have_faults() {
    each(Kind::QueuePair, Described::have_faults);
}

/// Somebody watches the times of the requests of all queue pairs, until then by the system's
/// clock.
pub(crate) fn watch(until: Duration) {
    each(Kind::QueuePair, |one| one.watch(until));
}

/// The ports of the process have gone down, or are up again.
pub(crate) fn cable(is_pulled: bool) {
    // The events come behind all that follows from it.
    for kind in [Kind::QueuePair, Kind::Device] {
        each(kind, |one| one.cable(is_pulled));
    }
}

/// A capture has begun, and the streams of all queue pairs tell it where they stand. To be called
/// by a worker, which moves none at this moment.
pub(crate) fn have_capture() {
    each(Kind::QueuePair, Described::have_capture);
}

/// Tells each object of a kind that lives.
fn each(kind: Kind, tell: impl FnMut(Arc<dyn Described>)) {
    of_kind(kind, usize::MAX).iter().filter_map(Weak::upgrade).for_each(tell);
}

/// Descriptions of all objects of a kind, `most` at most.
pub(crate) fn describe(kind: Kind, most: usize) -> Vec<Object> {
    let living = of_kind(kind, most).into_iter().filter_map(|object| {
        let object = object.upgrade()?;
        let mut description = Object::new();
        object.describe(&mut description);
        Some(description)
    });
    living.collect()
}

/// The number of objects of a kind.
pub(crate) fn count(kind: Kind) -> usize {
    all().range((kind, 0)..=(kind, u64::MAX)).count()
}

/// A call of the program that waits for something that the program itself has to do. It is
/// described as long as this lives.
#[derive(Debug)]
pub struct WaitingCall {
    call: Arc<CallText>,
}

#[derive(Debug)]
struct CallText {
    number: u64,
    text: String,
}

impl Described for CallText {
    fn describe(&self, to: &mut Object) {
        to.number("number", self.number);
        to.text("waits", &self.text);
    }
}

impl WaitingCall {
    /// A call that waits for what the text says: "rdma_destroy_id waits for ...".
    pub fn new(text: String) -> Self {
        let call = Arc::new(CallText { number: next_id(), text });
        let described: Weak<dyn Described> = Arc::<CallText>::downgrade(&call);
        enter(of(Kind::Call, &*call), described);
        Self { call }
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        leave(of(Kind::Call, &*self.call));
    }
}

fn all() -> MutexGuard<'static, BTreeMap<Place, Weak<dyn Described>>> {
    ALL.get().lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Toy;

    impl Described for Toy {
        fn describe(&self, to: &mut Object) {
            to.text("is", "a toy");
        }
    }

    #[test]
    fn objects_are_described_until_they_leave() {
        let toy = Arc::new(Toy);
        let place = (Kind::Id, 1 << 60);
        let described: Weak<dyn Described> = Arc::<Toy>::downgrade(&toy);
        enter(place, described);
        let texts = || describe(Kind::Id, usize::MAX).into_iter().map(Object::end);
        let own = r#"{"is":"a toy"}"#;
        assert!(texts().any(|text| text == own));
        leave(place);
        assert!(!texts().any(|text| text == own));
    }
}
