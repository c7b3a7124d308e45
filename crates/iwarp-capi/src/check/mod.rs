// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checker: misuse of verbs by the program, told on standard error (`IWARP_CHECK`).
//!
//! It keeps books of the calls that it observes. It looks at no object that the program may have
//! destroyed, and keeps silent in forked children, whose books are their parent's.
//!
//! ```text
//!   books      objects that live, those that were destroyed, lists that were taken in part
//!   failures   completions that failed, and posts that disregard them
//!   events     completion events that are not acknowledged
//!   signals    send queues whose requests ask for no completion
//!   layout     structures of the header
//!   place      a place of the program: the addresses of a backtrace
//!   report     the text of a report, its limits, suppressions and the exit status
//! ```

mod books;
mod events;
mod failures;
mod layout;
mod place;
mod report;
mod signals;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iwarp::observe::{AccessObserver, Call, Observer, SomeObserver, Value};
use iwarp_os::environment;
use once_cell::race::OnceBox;

use self::books::Books;
use self::report::Reports;

/// The checker of this process.
static CHECKER: OnceBox<Arc<Checker>> = OnceBox::new();

#[derive(Debug)]
pub(crate) struct Checker {
    process: u32,
    books: Mutex<Books>,
    /// The thread that has the books, or 0.
    holder: AtomicUsize,
}

/// The books, while one thread has them.
struct Open<'a> {
    books: MutexGuard<'a, Books>,
    holder: &'a AtomicUsize,
}

impl Deref for Open<'_> {
    type Target = Books;

    fn deref(&self) -> &Books {
        &self.books
    }
}

impl DerefMut for Open<'_> {
    fn deref_mut(&mut self) -> &mut Books {
        &mut self.books
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

/// The observer that checks, where the user asks for that.
pub(crate) fn wanted() -> Option<SomeObserver> {
    let reports = Reports::parse(&environment::variable("IWARP_CHECK")?)?;
    let books = Mutex::new(Books::new(reports));
    let checker =
        Arc::new(Checker { process: std::process::id(), books, holder: AtomicUsize::new(0) });
    CHECKER.set(Box::new(Arc::clone(&checker))).ok()?;
    // SAFETY: the function stays for as long as the library, whose handlers go when it is unloaded.
    unsafe { libc::atexit(at_exit) };
    Some(checker.into())
}

/// A call is about to begin with these arguments.
pub(crate) fn begins(verb: &'static str, arguments: &[(&str, Value)]) {
    if let Some(mut books) = CHECKER.get().and_then(|checker| checker.books()) {
        books.begins(verb, arguments);
    }
}

extern "C" fn at_exit() {
    if let Some(mut books) = CHECKER.get().and_then(|checker| checker.books()) {
        books.at_exit();
    }
}

impl Checker {
    /// The books; `None` in a forked child, and in a signal handler that has interrupted them.
    fn books(&self) -> Option<Open<'_>> {
        let own = failures::thread();
        if std::process::id() != self.process || self.holder.load(Ordering::Relaxed) == own {
            return None;
        }
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(own, Ordering::Relaxed);
        Some(Open { books, holder: &self.holder })
    }
}

impl AccessObserver for Checker {}

impl Observer for Checker {
    fn called(&self, call: &Call<'_>) {
        if let Some(mut books) = self.books() {
            books.called(call);
        }
    }
}
