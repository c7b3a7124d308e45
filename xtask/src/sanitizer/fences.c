/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Fences for ThreadSanitizer, which takes note of none.
 *
 * An acquire fence makes earlier relaxed loads acquire: the last few are remembered. A release
 * fence makes later relaxed stores release. The latter is generous: such a store also publishes
 * what was written after the fence, so a race there is not reported. */

#include <stdbool.h>
#include <stdint.h>

void __tsan_acquire(void *addr);

/* Memory orders as the instrumentation passes them. */
enum { RELAXED, CONSUME, ACQUIRE, RELEASE, ACQ_REL, SEQ_CST };

#define REMEMBERED 16

static __thread const volatile void *loaded[REMEMBERED];
static __thread unsigned loads;
static __thread bool fenced;

static bool acquires(int order) { return order != RELAXED && order != RELEASE; }

static void remember(const volatile void *addr) { loaded[loads++ % REMEMBERED] = addr; }

static int after_fence(int order) {
    if (!fenced)
        return order;
    if (order == RELAXED)
        return RELEASE;
    return order == CONSUME || order == ACQUIRE ? ACQ_REL : order;
}

void __wrap___tsan_atomic_thread_fence(int order);
void __wrap___tsan_atomic_thread_fence(int order) {
    __sync_synchronize();
    for (unsigned i = 0; acquires(order) && i < REMEMBERED; i++) {
        if (loaded[i])
            __tsan_acquire((void *)loaded[i]);
        loaded[i] = 0;
    }
    fenced |= order >= RELEASE;
}

#define READ_MODIFY_WRITE(bits, type, op)                                                \
    type __real___tsan_atomic##bits##_##op(volatile type *, type, int);                  \
    type __wrap___tsan_atomic##bits##_##op(volatile type *, type, int);                  \
    type __wrap___tsan_atomic##bits##_##op(volatile type *addr, type value, int order) { \
        if (!acquires(order))                                                            \
            remember(addr);                                                              \
        return __real___tsan_atomic##bits##_##op(addr, value, after_fence(order));       \
    }

#define ATOMICS(bits, type)                                                              \
    type __real___tsan_atomic##bits##_load(const volatile type *, int);                  \
    type __wrap___tsan_atomic##bits##_load(const volatile type *, int);                  \
    type __wrap___tsan_atomic##bits##_load(const volatile type *addr, int order) {       \
        if (!acquires(order))                                                            \
            remember(addr);                                                              \
        return __real___tsan_atomic##bits##_load(addr, order);                           \
    }                                                                                    \
    void __real___tsan_atomic##bits##_store(volatile type *, type, int);                 \
    void __wrap___tsan_atomic##bits##_store(volatile type *, type, int);                 \
    void __wrap___tsan_atomic##bits##_store(volatile type *addr, type value, int order) { \
        __real___tsan_atomic##bits##_store(addr, value, after_fence(order));             \
    }                                                                                    \
    type __real___tsan_atomic##bits##_compare_exchange_val(volatile type *, type, type,  \
                                                           int, int);                    \
    type __wrap___tsan_atomic##bits##_compare_exchange_val(volatile type *, type, type,  \
                                                           int, int);                    \
    type __wrap___tsan_atomic##bits##_compare_exchange_val(volatile type *addr, type old, \
                                                           type value, int order,        \
                                                           int failure) {                \
        if (!acquires(order) || !acquires(failure))                                      \
            remember(addr);                                                              \
        return __real___tsan_atomic##bits##_compare_exchange_val(                        \
            addr, old, value, after_fence(order), failure);                              \
    }                                                                                    \
    READ_MODIFY_WRITE(bits, type, exchange)                                              \
    READ_MODIFY_WRITE(bits, type, fetch_add)                                             \
    READ_MODIFY_WRITE(bits, type, fetch_sub)                                             \
    READ_MODIFY_WRITE(bits, type, fetch_and)                                             \
    READ_MODIFY_WRITE(bits, type, fetch_or)                                              \
    READ_MODIFY_WRITE(bits, type, fetch_xor)                                             \
    READ_MODIFY_WRITE(bits, type, fetch_nand)

ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
