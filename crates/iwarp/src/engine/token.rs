// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lock that no thread waits for: one that finds it taken leaves a request for the holder.

use crate::engine::sync::{AtomicBool, Mutex, Ordering};

/// Exclusive work. A thread that finds the token taken leaves a note, and the holder looks for
/// notes before it goes.
#[derive(Debug)]
pub(crate) struct Token<T> {
    state: Mutex<T>,
    more: AtomicBool,
}

impl<T> Token<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), more: AtomicBool::new(false) }
    }

    /// Has `work` done at least once after this call began: by this thread, or by the present
    /// holder.
    pub(crate) fn request(&self, mut work: impl FnMut(&mut T)) {
        let mut noted = false;
        loop {
            if let Some(mut state) = self.state.try_lock() {
                work(&mut state);
                drop(state);
                // The holder frees the token, then swaps the note; a requester swaps the note, then
                // tries the token. The later of two swaps sees what came before the earlier one, so
                // no fence is needed, which would cost more than all the rest.
                if !self.more.swap(false, Ordering::AcqRel) {
                    return;
                }
                noted = false;
            } else if noted {
                return;
            } else {
                self.more.swap(true, Ordering::AcqRel);
                noted = true;
            }
        }
    }

    /// Does `work` if the token is free; `None` where another thread has it. Requests that come
    /// meanwhile are for `requested`.
    pub(crate) fn attempt<R>(
        &self,
        work: impl FnOnce(&mut T) -> R,
        requested: impl FnMut(&mut T),
    ) -> Option<R> {
        let mut state = self.state.try_lock()?;
        let result = work(&mut state);
        drop(state);
        if self.more.swap(false, Ordering::AcqRel) {
            self.request(requested);
        }
        Some(result)
    }

    /// Waits until work that is under way is done, but not for long: it may be this very thread's.
    pub(crate) fn settle(&self) {
        const LOOKS: u32 = 1000;
        for _ in 0..LOOKS {
            if self.state.try_lock().is_some() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits until work that is under way is done: for one system call at most.
    pub(crate) fn quiesce(&self) {
        self.look(|_| ());
    }

    /// As [`Self::quiesce`], and looks at what the work left.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.state.lock())
    }
}

#[cfg(all(test, model))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::Token;
    use crate::engine::sync::{AtomicBool, Ordering};

    /// Work that was done before a request is seen by some work that follows it, in either thread.
    #[test]
    fn no_request_is_lost() {
        loom::model(|| {
            let token = Arc::new(Token::new([false; 2]));
            let posted = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let request = |number: usize| {
                let (token, posted) = (Arc::clone(&token), Arc::clone(&posted));
                move || {
                    posted[number].store(true, Ordering::Relaxed);
                    token.request(|seen| look(seen, &posted));
                }
            };
            let other = thread::spawn(request(0));
            request(1)();
            other.join().unwrap();
            let mut at_the_end = [false; 2];
            // Looks without requesting: no thread is left to work.
            if let Some(seen) = token.state.try_lock() {
                at_the_end = *seen;
            }
            assert_eq!(at_the_end, [true; 2]);
        });
    }

    fn look(seen: &mut [bool; 2], posted: &[AtomicBool; 2]) {
        for (seen, posted) in seen.iter_mut().zip(posted.iter()) {
            *seen |= posted.load(Ordering::Relaxed);
        }
    }

    /// Nor to a thread that does its own work and was not asked for any.
    #[test]
    fn no_request_is_lost_to_an_attempt() {
        loom::model(|| {
            let token = Arc::new(Token::new([false; 2]));
            let posted = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let other = {
                let (token, posted) = (Arc::clone(&token), Arc::clone(&posted));
                thread::spawn(move || {
                    for _ in 0..2 {
                        token.attempt(|_| (), |seen| look(seen, &posted));
                    }
                })
            };
            posted[0].store(true, Ordering::Relaxed);
            token.request(|seen| look(seen, &posted));
            other.join().unwrap();
            assert!(token.state.try_lock().expect("the other thread has ended")[0]);
        });
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::Token;

    #[test]
    fn many_threads_lose_nothing() {
        let token = Arc::new(Token::new(0u64));
        let posted = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (token, posted) = (Arc::clone(&token), Arc::clone(&posted));
                thread::spawn(move || {
                    for _ in 0..10_000 {
                        posted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        token.request(|seen| {
                            *seen = posted.load(std::sync::atomic::Ordering::Relaxed);
                        });
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*token.state.lock(), 40_000);
    }
}
