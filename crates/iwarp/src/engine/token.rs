//! A token that says who works on something, and a note for the holder that more has come.

use crate::engine::sync::{AtomicBool, Mutex, Ordering};

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
        self.more.store(true, Ordering::SeqCst);
        // A holder that is about to release sees the note after its release; one that came
        // later took the note with it.
        while self.more.load(Ordering::SeqCst) {
            let Some(mut state) = self.state.try_lock() else { return };
            self.more.store(false, Ordering::SeqCst);
            work(&mut state);
        }
    }
}
