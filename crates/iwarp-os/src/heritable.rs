// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that a forked child makes anew of those that it inherits.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fork::{ForkGeneration, PerProcess};

/// An object of the process that made it, and of each forked child that has made its own of it
/// ([`Self::get_or_make`]). The program sees one object all the time.
///
/// Another thread of the parent may have left an inherited object in any state: it is neither used
/// nor dropped, and only looked at ([`Self::nearest`]).
pub struct Heritable<T> {
    process: ForkGeneration,
    first: ManuallyDrop<T>,
    /// Objects that children have made, the latest first.
    anew: AtomicPtr<Anew<T>>,
    _owns: PhantomData<T>,
}

struct Anew<T> {
    process: ForkGeneration,
    value: ManuallyDrop<T>,
    before: *mut Anew<T>,
}

impl<T> Heritable<T> {
    /// It belongs to this process.
    pub fn new(first: T) -> Self {
        Self {
            process: ForkGeneration::new(),
            first: ManuallyDrop::new(first),
            anew: AtomicPtr::new(null_mut()),
            _owns: PhantomData,
        }
    }

    /// This process's; `None` in a child that has not made its own.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if self.process.forked() { self.anew() } else { Some(&self.first) }
    }

    /// This process's, or else what its nearest ancestor has left.
    pub fn nearest(&self) -> &T {
        // SAFETY: never freed before `self`.
        match unsafe { self.anew.load(Ordering::Acquire).as_ref() } {
            Some(anew) => &anew.value,
            None => &self.first,
        }
    }

    #[cold]
    fn anew(&self) -> Option<&T> {
        // SAFETY: never freed before `self`.
        let anew = unsafe { self.anew.load(Ordering::Acquire).as_ref() };
        anew.filter(|anew| !anew.process.forked()).map(|anew| &*anew.value)
    }
}

impl<T: Send + Sync> Heritable<T> {
    /// This process's, which a child makes now of what it inherits, if it has not yet. One thread
    /// makes one at a time; `make` may make others on its way.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    #[inline]
    pub fn get_or_make<E>(&self, make: impl FnOnce(&T) -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(own) => Ok(own),
            None => self.make(make),
        }
    }

    /// As [`Self::get_or_make`]; where `make` fails, what the nearest ancestor has left.
    #[inline]
    pub fn get_or_make_or_nearest<E>(&self, make: impl FnOnce(&T) -> Result<T, E>) -> &T {
        self.get_or_make(make).unwrap_or_else(|_| self.nearest())
    }

    #[cold]
    fn make<E>(&self, make: impl FnOnce(&T) -> Result<T, E>) -> Result<&T, E> {
        let _turn = Turn::take();
        // Another thread may have been first.
        if let Some(own) = self.get() {
            return Ok(own);
        }
        let value = ManuallyDrop::new(make(self.nearest())?);
        let before = self.anew.load(Ordering::Acquire);
        let anew = Anew { process: ForkGeneration::new(), value, before };
        let anew = Box::into_raw(Box::new(anew));
        self.anew.store(anew, Ordering::Release);
        // SAFETY: just made, and never freed before `self`.
        Ok(unsafe { &(*anew).value })
    }
}

impl<T> Drop for Heritable<T> {
    fn drop(&mut self) {
        let mut next = *self.anew.get_mut();
        while !next.is_null() {
            // SAFETY: made by `Box::into_raw`, and freed once, here.
            let mut anew = unsafe { Box::from_raw(next) };
            if !anew.process.forked() {
                // SAFETY: dropped once, here.
                unsafe { ManuallyDrop::drop(&mut anew.value) };
            }
            next = anew.before;
        }
        if !self.process.forked() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.first) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Heritable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(own) => own.fmt(f),
            None => f.write_str("inherited"),
        }
    }
}

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// The right to make one: of one thread of the process, as often as it likes.
struct Turn(Option<MutexGuard<'static, ()>>);

impl Turn {
    fn take() -> Self {
        static TURN: PerProcess<Mutex<()>> = PerProcess::new();

        if HAS_TURN.replace(true) {
            return Self(None);
        }
        Self(Some(TURN.get().lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.0.is_some() {
            HAS_TURN.set(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use super::*;
    use crate::fork::{in_child_process, in_grandchild};

    fn next(value: &u32) -> Result<u32, Infallible> {
        Ok(value + 1)
    }

    #[test]
    fn each_process_has_its_own() {
        let kept = Heritable::new(1);
        let code = in_child_process(|| {
            let before = (kept.get().copied(), *kept.nearest());
            let own = kept.get_or_make(next).copied();
            let again = kept.get_or_make(next).copied();
            let grandchild = in_grandchild(|| {
                let own = kept.get_or_make(next).copied();
                i32::from((own, *kept.nearest()) == (Ok(3), 3))
            });
            let right = before == (None, 1) && (own, again) == (Ok(2), Ok(2));
            i32::from(right && kept.get() == Some(&2)) + 2 * grandchild
        });
        assert_eq!(code, 3);
        assert_eq!((kept.get(), kept.get_or_make(next)), (Some(&1), Ok(&1)));
    }

    #[test]
    fn one_is_made_on_the_way_to_another() {
        let (lower, upper) = (Heritable::new(1), Heritable::new(10));
        let code = in_child_process(|| {
            let made =
                upper.get_or_make(|value| Ok::<_, Infallible>(value + lower.get_or_make(next)?));
            made.map_or(0, |made| i32::try_from(*made).unwrap_or(0))
        });
        assert_eq!(code, 12);
    }

    #[test]
    fn a_child_that_cannot_may_try_again() {
        let kept = Heritable::new(1);
        let code = in_child_process(|| {
            let failed = kept.get_or_make(|_| Err(7)) == Err(7) && kept.get().is_none();
            i32::from(failed && kept.get_or_make(next) == Ok(&2))
        });
        assert_eq!(code, 1);
    }

    #[test]
    fn an_inherited_value_is_not_dropped() {
        let (first, own) = (Arc::new(()), Arc::new(()));
        let kept = Heritable::new(Arc::clone(&first));
        let code = in_child_process(|| {
            let made = kept.get_or_make(|_| Ok::<_, Infallible>(Arc::clone(&own))).is_ok();
            drop(kept);
            i32::from(made && (Arc::strong_count(&first), Arc::strong_count(&own)) == (2, 1))
        });
        assert_eq!(code, 1);
        assert_eq!(Arc::strong_count(&first), 1);
    }
}
