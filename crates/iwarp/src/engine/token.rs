//! A token that says who works on something, and a note for the holder that more has come.

use crate::engine::sync::{AtomicBool, Mutex, Ordering, fence};

/// Exclusive work that is never waited for: whoever finds the token taken leaves a note, and
/// the holder looks again before it goes.
#[derive(Debug)]
pub(crate) struct Token<T> {
    state: Mutex<T>,
    more: AtomicBool,
}

impl<T> Token<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), more: AtomicBool::new(false) }
    }

    /// Has `work` done at least once by somebody after this call began: here, or by the present
    /// holder.
    pub(crate) fn request(&self, mut work: impl FnMut(&mut T)) {
        // Mostly nobody has it: no note is needed.
        if let Some(mut state) = self.state.try_lock() {
            work(&mut state);
            drop(state);
            fence(Ordering::SeqCst);
            if !self.more.load(Ordering::Acquire) {
                return;
            }
        }
        // A swap, as a note left on top of another's must pass that one on.
        self.more.swap(true, Ordering::AcqRel);
        loop {
            // Note, then token; token released, then note: in a total order, so that either the
            // holder sees the note or the requester finds the token free.
            fence(Ordering::SeqCst);
            let Some(mut state) = self.state.try_lock() else { return };
            // A swap, as taking a note must show what it was left for.
            self.more.swap(false, Ordering::AcqRel);
            work(&mut state);
            drop(state);
            fence(Ordering::SeqCst);
            if !self.more.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Waits until work that is under way is done: for one system call at most.
    pub(crate) fn quiesce(&self) {
        drop(self.state.lock());
    }
}

#[cfg(all(test, model))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::Token;
    use crate::engine::sync::{AtomicBool, Ordering};

    /// Whatever was done before a request is seen by some work that follows it, whoever does it.
    #[test]
    fn no_request_is_lost() {
        loom::model(|| {
            let token = Arc::new(Token::new([false; 2]));
            let posted = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let request = |number: usize| {
                let (token, posted) = (Arc::clone(&token), Arc::clone(&posted));
                move || {
                    posted[number].store(true, Ordering::Relaxed);
                    token.request(|seen| {
                        for (seen, posted) in seen.iter_mut().zip(posted.iter()) {
                            *seen |= posted.load(Ordering::Relaxed);
                        }
                    });
                }
            };
            let other = thread::spawn(request(0));
            request(1)();
            other.join().unwrap();
            let mut at_the_end = [false; 2];
            // Looks without requesting: nobody is left to work.
            if let Some(seen) = token.state.try_lock() {
                at_the_end = *seen;
            }
            assert_eq!(at_the_end, [true; 2]);
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
