// SPDX-License-Identifier: MIT OR Apache-2.0

//! The program's threads that use the library, and the end of the process when there are none at
//! all.
//!
//! A C program may end its first thread by `pthread_exit`; the C library then exits when the last
//! thread ends. The worker must not be that last one for ever: it has all signals blocked, so
//! nothing short of SIGKILL would end the process. While a thread that has used the library is
//! there, nothing needs looking after; otherwise the worker asks the system now and then.
//!
//! When the last of these threads has ended and `/proc/self/stat` says that the program's first
//! thread has ended too, and all others are the library's, the worker starts a thread that calls
//! `exit(0)`. It takes signals as the program's threads did, and exit handlers find the workers at
//! work.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use iwarp_os::thread::{self, Program};
use iwarp_os::{ForkGeneration, PerProcess};
use iwarp_types::Time;

/// The interval at which the worker looks while the program's first thread runs and none that it
/// knows.
const RARELY: Duration = Duration::from_secs(1);
/// The interval when that one has ended.
const OFTEN: Duration = Duration::from_millis(20);

/// A thread of the library that looks after the end of the process ([`Lookout`]).
pub(crate) trait Keeper: Send + Sync {
    /// Has it look, soon.
    fn wake(&self);
}

#[derive(Default)]
struct Users {
    threads: AtomicUsize,
    keepers: Mutex<Vec<Weak<dyn Keeper>>>,
    /// The process ends, as there are none.
    exits: AtomicBool,
}

static USERS: PerProcess<Users> = PerProcess::new();

/// A thread of the program, until it ends.
struct User(ForkGeneration);

thread_local! {
    static THIS: Cell<Option<User>> = const { Cell::new(None) };
}

/// The calling thread uses the library, if it is one of the program's.
pub(crate) fn enter() {
    if thread::is_ours() {
        return;
    }
    // A thread that is about to end, without its locals, is not counted.
    let _ = THIS.try_with(|this| {
        let known = this.take().filter(|User(process)| !process.forked());
        this.set(Some(known.unwrap_or_else(|| {
            USERS.get().threads.fetch_add(1, Ordering::SeqCst);
            thread::on_exit_of_first(leave);
            User(ForkGeneration::new())
        })));
    });
}

/// The calling thread uses it no more.
fn leave() {
    let _ = THIS.try_with(Cell::take);
}

impl Drop for User {
    fn drop(&mut self) {
        // The parent's thread has not ended.
        if self.0.forked() {
            return;
        }
        let users = USERS.get();
        if users.threads.fetch_sub(1, Ordering::SeqCst) == 1 {
            let keepers = users.keepers.lock().unwrap_or_else(PoisonError::into_inner);
            keepers.iter().filter_map(Weak::upgrade).for_each(|keeper| keeper.wake());
        }
    }
}

/// It is told when the last of the threads that have used the library ends.
pub(crate) fn add_keeper(keeper: Weak<dyn Keeper>) {
    let mut keepers = USERS.get().keepers.lock().unwrap_or_else(PoisonError::into_inner);
    keepers.retain(|keeper| keeper.strong_count() > 0);
    keepers.push(keeper);
}

/// When a worker has to look at the program's threads again.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    next: Option<Time>,
}

impl Lookout {
    /// Looks if it is time to, and ends the process if it has no thread of the program. In how long
    /// the next look is due.
    pub(crate) fn look(&mut self, now: impl FnOnce() -> Time) -> Option<Duration> {
        let users = USERS.get();
        if users.threads.load(Ordering::Relaxed) > 0 || users.exits.load(Ordering::Relaxed) {
            self.next = None;
            return None;
        }
        let now = now();
        if let Some(next) = self.next.filter(|next| now < *next) {
            return Some(next.0.saturating_sub(now.0));
        }
        let pause = match thread::program() {
            Program::Runs => RARELY,
            Program::LeftByMain => OFTEN,
            Program::Gone => {
                if !users.exits.swap(true, Ordering::SeqCst) {
                    thread::exit_for_program();
                }
                return None;
            }
        };
        self.next = Some(now.plus(pause));
        Some(pause)
    }
}
