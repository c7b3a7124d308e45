// SPDX-License-Identifier: MIT OR Apache-2.0

//! A thread to which the system refuses a call.

use std::thread;

/// Runs `f` in a thread in which the system call of that number fails with `error`, as it does in
/// the threads that this one starts.
pub fn without<T: Send>(call: libc::c_long, error: i32, f: impl FnOnce() -> T + Send) -> T {
    let apart = || {
        deny(call, error);
        f()
    };
    thread::scope(|scope| scope.spawn(apart).join().unwrap())
}

fn deny(call: libc::c_long, error: i32) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let is_call = libc::sock_filter {
        jf: 1,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, u32::try_from(call).unwrap())
    };
    let ret = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        // The number of the call is the first word.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is_call,
        statement(ret, libc::SECCOMP_RET_ERRNO | error as u32),
        statement(ret, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the system copies the filter, which is for this thread and those that it starts.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}
