// SPDX-License-Identifier: MIT OR Apache-2.0

//! Objects that belong to the process that made them.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::fork::ForkGeneration;

/// An object that only the process that made it may use. A forked child may find it in any state,
/// with its locks held for ever: so it can be reached by [`Self::alive`] alone, and methods made of
/// that, and dropping it in a child leaves it as it is.
pub struct ProcessOwned<T> {
    process: ForkGeneration,
    /// `None` where a child has derived it from something inherited.
    object: Option<T>,
}

impl<T> ProcessOwned<T> {
    /// It belongs to this process.
    pub fn new(object: T) -> Self {
        Self { process: ForkGeneration::new(), object: Some(object) }
    }

    /// The object, in the process that made it; `None` in a child of that. Costs two loads and a
    /// comparison beyond those that reach the object anyway.
    #[inline]
    pub fn alive(&self) -> Option<&T> {
        if self.process.forked() { None } else { self.object.as_ref() }
    }

    /// As [`Self::alive`].
    ///
    /// # Errors
    ///
    /// `ENODEV` in a child.
    #[inline]
    pub fn check(&self) -> io::Result<&T> {
        self.alive().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// As [`Self::alive`], to change it.
    #[inline]
    pub fn alive_mut(&mut self) -> Option<&mut T> {
        if self.process.forked() { None } else { self.object.as_mut() }
    }

    /// Takes the object out, in the process that made it; in a child it is left as it is.
    pub fn into_alive(mut self) -> Option<T> {
        self.take_alive()
    }

    /// As [`Self::into_alive`]: from then on this is as in a child.
    pub fn take_alive(&mut self) -> Option<T> {
        // The place of an object that was taken out is dropped without a look at the process.
        let object = self.object.take()?;
        if self.process.forked() {
            std::mem::forget(object);
            return None;
        }
        Some(object)
    }

    /// Drops the object now, in the process that made it: from then on this is as in a child.
    pub fn release(&mut self) {
        drop(self.take_alive());
    }

    /// The object of an ancestor, to be looked at: it may be in any state, so only what does not
    /// change is read, and locks in it are only tried.
    pub fn of_ancestor(&self) -> Option<&T> {
        if self.process.forked() { self.object.as_ref() } else { None }
    }

    /// True if this is a child of the process that made it.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.alive().is_none()
    }

    /// Makes another object of this one. In a child there is none to make it of, so `f` is not
    /// called, and what comes back is as dead as this.
    pub fn derive<U>(&self, f: impl FnOnce(&T) -> U) -> ProcessOwned<U> {
        ProcessOwned { process: self.process, object: self.alive().map(f) }
    }
}

impl<T> ProcessOwned<Arc<T>> {
    /// True if both refer to one object, in a child too.
    pub fn is(&self, other: &Self) -> bool {
        let address = |owned: &Self| owned.object.as_ref().map(Arc::as_ptr);
        address(self) == address(other)
    }
}

impl<T> Clone for ProcessOwned<Arc<T>> {
    /// Another reference to the object, with the process that made that.
    fn clone(&self) -> Self {
        Self { process: self.process, object: self.object.clone() }
    }
}

impl<T> Drop for ProcessOwned<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alive() {
            Some(object) => object.fmt(f),
            None => f.write_str("inherited"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::in_child_process;

    /// Says that it was dropped.
    struct Told<'a>(&'a std::cell::Cell<bool>);

    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn a_child_neither_reaches_nor_drops_it() {
        let dropped = std::cell::Cell::new(false);
        let mut owned = ProcessOwned::new(Told(&dropped));
        let other = ProcessOwned::new(Told(&dropped));
        assert!(owned.alive().is_some() && owned.check().is_ok() && !owned.is_inherited());
        let code = in_child_process(|| {
            let derived = owned.derive(|_| 1);
            let reached = owned.alive().is_some()
                || owned.alive_mut().is_some()
                || derived.alive().is_some()
                || other.into_alive().is_some();
            let error = owned.check().err().and_then(|error| error.raw_os_error());
            drop(owned);
            i32::from(!reached)
                + 2 * i32::from(error == Some(libc::ENODEV))
                + 4 * i32::from(!dropped.get())
        });
        assert_eq!(code, 7);
    }

    #[test]
    fn a_value_is_dropped_in_the_process_that_made_it() {
        let dropped = std::cell::Cell::new(false);
        let owned = ProcessOwned::new(Told(&dropped));
        assert_eq!(owned.derive(|_| 1).into_alive(), Some(1));
        drop(owned);
        assert!(dropped.replace(false));
        drop(ProcessOwned::new(Told(&dropped)).into_alive());
        assert!(dropped.replace(false));
        let mut owned = ProcessOwned::new(Told(&dropped));
        owned.release();
        assert!(dropped.get() && owned.alive().is_none());
    }

    #[test]
    fn references_to_one_object_are_the_same_in_a_child_too() {
        let (one, other) = (ProcessOwned::new(Arc::new(1)), ProcessOwned::new(Arc::new(1)));
        let same = || one.is(&one.clone()) && !one.is(&other);
        assert!(same());
        assert_eq!(in_child_process(|| i32::from(same())), 1);
    }
}
