//! Something to do when the process exits.

use std::sync::Mutex;

static HOOKS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Has `hook` called when the process exits by `exit` or by returning from `main`, while all other
/// threads still run. A hook that is already there is not added again.
pub fn at_exit(hook: fn()) {
    let mut hooks = HOOKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if hooks.contains(&hook) {
        return;
    }
    if hooks.is_empty() {
        // SAFETY: `run` is a function of this library and never unwinds. When there is no room for
        // it, which C promises for 32, the hook is simply not called.
        unsafe { libc::atexit(run) };
    }
    hooks.push(hook);
}

extern "C" fn run() {
    let hooks = match HOOKS.lock() {
        Ok(hooks) => hooks.clone(),
        Err(poisoned) => poisoned.into_inner().clone(),
    };
    for hook in hooks {
        // Unwinding into the C library would abort in the middle of the exit.
        let _ = std::panic::catch_unwind(hook);
    }
}
