/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The functions of an uninstrumented Rust std that synchronise, told to ThreadSanitizer.
 *
 * The names come from the command line: they are mangled. Argument lists follow what rustc makes
 * of the Rust ones: references and scalars, one register each. */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

void __tsan_acquire(void *addr);
void __tsan_release(void *addr);

#define PASTE(a, b) a##b
#define NAME(prefix, name) PASTE(prefix, name)
#define REAL(name) NAME(__real_, name)
#define WRAP(name) NAME(__wrap_, name)

/* Mutex::lock_contended(&self). Unlocking is inlined, so instrumented. */
void REAL(MUTEX_LOCK)(void *mutex);
void WRAP(MUTEX_LOCK)(void *mutex);
void WRAP(MUTEX_LOCK)(void *mutex) {
    REAL(MUTEX_LOCK)(mutex);
    __tsan_acquire(mutex);
}

/* RwLock::read_contended(&self), RwLock::write_contended(&self). */
void REAL(RWLOCK_READ)(void *lock);
void WRAP(RWLOCK_READ)(void *lock);
void WRAP(RWLOCK_READ)(void *lock) {
    REAL(RWLOCK_READ)(lock);
    __tsan_acquire(lock);
}

void REAL(RWLOCK_WRITE)(void *lock);
void WRAP(RWLOCK_WRITE)(void *lock);
void WRAP(RWLOCK_WRITE)(void *lock) {
    REAL(RWLOCK_WRITE)(lock);
    __tsan_acquire(lock);
}

/* Condvar::wait(&self, &Mutex): unlocks and locks out of sight. */
void REAL(CONDVAR_WAIT)(void *condvar, void *mutex);
void WRAP(CONDVAR_WAIT)(void *condvar, void *mutex);
void WRAP(CONDVAR_WAIT)(void *condvar, void *mutex) {
    __tsan_release(mutex);
    REAL(CONDVAR_WAIT)(condvar, mutex);
    __tsan_acquire(mutex);
}

/* Condvar::wait_timeout(&self, &Mutex, Duration) -> bool. */
bool REAL(CONDVAR_TIMEOUT)(void *condvar, void *mutex, uint64_t secs, uint32_t nanos);
bool WRAP(CONDVAR_TIMEOUT)(void *condvar, void *mutex, uint64_t secs, uint32_t nanos);
bool WRAP(CONDVAR_TIMEOUT)(void *condvar, void *mutex, uint64_t secs, uint32_t nanos) {
    __tsan_release(mutex);
    bool in_time = REAL(CONDVAR_TIMEOUT)(condvar, mutex, secs, nanos);
    __tsan_acquire(mutex);
    return in_time;
}

/* Once::call(&self, bool, &mut dyn FnMut(&OnceState)), with the caller's location behind. Its last
 * step, the store that others take for done, is out of sight, so what it publishes is released
 * where the initialiser ends: that is called through a table of its own. canary.rs would show if
 * such tables began to look different. */
enum { CALL_MUT = 4, TABLE_WORDS };

struct initialiser {
    void *once;
    void *data;
    void (*call)(void *data, void *state);
};

static void initialise(void *self, void *state) {
    struct initialiser *init = self;
    init->call(init->data, state);
    __tsan_release(init->once);
}

void REAL(ONCE_CALL)(void *once, bool force, void *data, const void *table, void *location);
void WRAP(ONCE_CALL)(void *once, bool force, void *data, const void *table, void *location);
void WRAP(ONCE_CALL)(void *once, bool force, void *data, const void *table, void *location) {
    uintptr_t words[TABLE_WORDS];
    memcpy(words, table, sizeof words);
    struct initialiser init = {once, data, (void (*)(void *, void *))words[CALL_MUT]};
    words[CALL_MUT] = (uintptr_t)initialise;
    REAL(ONCE_CALL)(once, force, &init, words, location);
    __tsan_acquire(once);
}

/* ScopeData::decrement_num_running_threads(&self, bool). The waiting side is instrumented and
 * loads the counter, whose place among the three words of the struct is rustc's choice. */
void REAL(SCOPE_END)(char *scope, bool panicked);
void WRAP(SCOPE_END)(char *scope, bool panicked);
void WRAP(SCOPE_END)(char *scope, bool panicked) {
    for (int word = 0; word < 3; word++)
        __tsan_release(scope + word * 8);
    REAL(SCOPE_END)(scope, panicked);
}
