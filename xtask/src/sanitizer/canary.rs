// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shows that ThreadSanitizer, as it is set up here, sees what it should and nothing else.
//!
//! Each `canary race-...` must be reported: exit code 66. `canary sound` synchronises by everything
//! that the set-up has to explain to the sanitizer: exit code 0.

use std::cell::UnsafeCell;
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::Duration;

const ROUNDS: u64 = 200;

/// Data that is not synchronised by itself.
struct Bare(UnsafeCell<u64>);

// SAFETY: it is not; to be wrong about that is the point.
unsafe impl Sync for Bare {}

impl Bare {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }

    fn add(&self) {
        // SAFETY: valid memory; whether it is raced on is up to the caller.
        unsafe { *self.0.get() = hint::black_box(*self.0.get()) + 1 };
    }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("race-plain") => on_two_threads(|data, _| data.add()),
        Some("race-locks") => {
            let locks = [Mutex::new(()), Mutex::new(())];
            let locks = Arc::new(locks);
            on_two_threads(move |data, thread| {
                let _held = locks[thread].lock().unwrap();
                data.add();
            });
        }
        Some("race-relaxed") => hand_over(false),
        Some("sound") => sound(),
        _ => panic!("race-plain, race-locks, race-relaxed or sound"),
    }
}

fn on_two_threads(action: impl Fn(&Bare, usize) + Clone + Send + 'static) {
    let data = Bare::new();
    let threads = [0, 1].map(|number| {
        let (data, action) = (Arc::clone(&data), action.clone());
        thread::spawn(move || (0..ROUNDS).for_each(|_| action(&data, number)))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Hands data over by relaxed accesses of a flag, with fences or without.
fn hand_over(fenced: bool) {
    for _ in 0..ROUNDS {
        let shared = Arc::new((AtomicU64::new(0), Bare::new()));
        let receiver = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                while shared.0.load(Ordering::Relaxed) == 0 {
                    thread::yield_now();
                }
                if fenced {
                    fence(Ordering::Acquire);
                }
                shared.1.add();
            }
        });
        shared.1.add();
        if fenced {
            fence(Ordering::Release);
        }
        shared.0.store(1, Ordering::Relaxed);
        receiver.join().unwrap();
    }
}

fn sound() {
    hand_over(true);
    let mutex = Arc::new(Mutex::new(()));
    on_two_threads(move |data, _| {
        let _held = mutex.lock().unwrap();
        data.add();
    });
    let lock = Arc::new(RwLock::new(0));
    on_two_threads(move |_, thread| match thread {
        0 => *lock.write().unwrap() += 1,
        _ => assert!(*lock.read().unwrap() <= ROUNDS),
    });
    for _ in 0..ROUNDS {
        condvar();
        let once = Arc::new(OnceLock::new());
        on_two_threads_once(move || assert_eq!(once.get_or_init(|| vec![7; 3])[2], 7));
        let mut sums = [0; 3];
        thread::scope(|scope| {
            for sum in &mut sums {
                scope.spawn(move || *sum += 1);
            }
        });
        assert_eq!(sums, [1; 3]);
    }
    let (sender, receiver) = mpsc::channel();
    let sending = thread::spawn(move || (0..ROUNDS).for_each(|n| sender.send(vec![n]).unwrap()));
    assert_eq!(receiver.iter().map(|data| data[0]).sum::<u64>(), ROUNDS * (ROUNDS - 1) / 2);
    sending.join().unwrap();
}

fn on_two_threads_once(action: impl Fn() + Clone + Send + 'static) {
    let threads = [action.clone(), action].map(thread::spawn);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn condvar() {
    let pair = Arc::new((Mutex::new(0), Condvar::new()));
    let other = Arc::clone(&pair);
    let thread = thread::spawn(move || {
        for _ in 0..4 {
            *other.0.lock().unwrap() += 1;
            other.1.notify_one();
        }
    });
    let mut count = pair.0.lock().unwrap();
    while *count < 2 {
        count = pair.1.wait(count).unwrap();
    }
    while *count < 4 {
        count = pair.1.wait_timeout(count, Duration::from_millis(20)).unwrap().0;
    }
    drop(count);
    thread.join().unwrap();
}
