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
//!   traffic    requests of the program from post to poll, and what they name:
//!     flights    requests that the device has
//!     pairs      queue pairs by their numbers
//!     regions    memory regions by their keys
//!     queues     completion queues that are too small, and wake-ups that are lost
//!     sleepers   threads that sleep, as the system sees them
//!     strict     sinks that overlap, and sources that change
//!     tools      sanitizers and Valgrind, which learn what the device does
//!   layout     structures of the header
//!   place      a place of the program: the addresses of a backtrace
//!   report     the text of a report, its limits, suppressions and the exit status
//! ```

mod books;
mod events;
mod failures;
mod flights;
mod layout;
mod pairs;
mod place;
mod queues;
mod regions;
mod report;
mod signals;
mod sleepers;
mod strict;
mod tools;
mod traffic;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iwarp::observe::{AccessObserver, Call, Observer, SomeObserver, Span, Value};
use iwarp::{RecvRequest, SendRequest, WorkCompletion};
use iwarp_os::environment;
use once_cell::race::OnceBox;

use self::books::Books;
use self::place::Place;
use self::report::Reports;
use crate::refuse;

/// The checker of this process.
static CHECKER: OnceBox<Arc<Checker>> = OnceBox::new();

#[derive(Debug)]
pub(crate) struct Checker {
    process: u32,
    /// Accesses of the device are of interest.
    watches: bool,
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
    let books = Books::new(reports);
    let (process, watches) = (std::process::id(), books.watches());
    let (books, holder) = (Mutex::new(books), AtomicUsize::new(0));
    let checker = Arc::new(Checker { process, watches, books, holder });
    CHECKER.set(Box::new(Arc::clone(&checker))).ok()?;
    refuse::keep();
    // The first backtrace of a process loads what it needs.
    let _ = Place::here();
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
    /// The books; `None` in a forked child, and in a signal handler: it may have interrupted these,
    /// or an allocation of memory.
    fn books(&self) -> Option<Open<'_>> {
        let own = failures::thread();
        if std::process::id() != self.process || self.holder.load(Ordering::Relaxed) == own {
            return None;
        }
        if Place::is_in_handler() {
            return None;
        }
        let books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        self.holder.store(own, Ordering::Relaxed);
        Some(Open { books, holder: &self.holder })
    }

    /// The device has read or written memory.
    fn used(&self, qp: u32, Span { addr, len, .. }: Span, write: bool) {
        if self.watches
            && let Some(mut books) = self.books()
        {
            books.used(qp, &(addr..addr.saturating_add(len)), write);
        }
    }

    /// Looks for wake-ups that are lost. False when there is nothing to look for.
    fn look(&self) -> bool {
        self.books().is_some_and(|mut books| books.look())
    }
}

impl AccessObserver for Checker {
    fn gathered(&self, qp: u32, span: Span) {
        self.used(qp, span, false);
    }

    fn placed(&self, qp: u32, span: Span) {
        self.used(qp, span, true);
    }
}

impl Observer for Checker {
    fn called(&self, call: &Call<'_>) {
        if let Some(mut books) = self.books() {
            books.called(call);
        }
    }

    fn posted_send(&self, qp: u32, request: &SendRequest<'_>) {
        if let Some(mut books) = self.books() {
            books.posted_send(qp, request);
        }
    }

    fn posted_receive(&self, qp: u32, request: &RecvRequest<'_>) {
        if let Some(mut books) = self.books() {
            books.posted_receive(qp, request);
        }
    }

    fn posted_shared_receive(&self, srq: u64, request: &RecvRequest<'_>) {
        if let Some(mut books) = self.books() {
            books.posted_shared_receive(srq, request);
        }
    }

    fn completed(&self, completion: &WorkCompletion) {
        if let Some(mut books) = self.books() {
            books.completed(completion);
        }
    }

    fn completed_silently(&self, qp: u32, wr_id: u64) {
        if let Some(mut books) = self.books() {
            books.completed_silently(qp, wr_id);
        }
    }
}
