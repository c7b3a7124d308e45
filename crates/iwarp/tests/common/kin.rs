// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that this one forks before it uses the library, to change what the system lets them
//! do: users, namespaces, system calls that are refused. Each talks to its parent by lines.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use super::DEADLINE;

/// A forked process, killed when dropped.
pub struct Kin {
    pid: libc::pid_t,
    talk: Talk,
}

/// One end of the talk of a process with its parent.
pub struct Talk(BufReader<UnixStream>);

impl Talk {
    /// Tells the other something, in one line.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    /// The other's next line, in time.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the other says nothing");
        assert!(line.ends_with('\n'), "the other has ended");
        line.trim_end().to_owned()
    }
}

impl Kin {
    /// Forks one that does `what`. The caller's process has one thread that does anything.
    pub fn fork(what: impl FnOnce(&mut Talk)) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(3 * DEADLINE)).unwrap();
        // SAFETY: as the caller says.
        match unsafe { libc::fork() } {
            0 => {
                drop(ours);
                // SAFETY: ends this process if it hangs. Its parent's end is an error of its talk.
                unsafe { libc::alarm(4 * DEADLINE.as_secs() as u32) };
                let mut talk = Talk(BufReader::new(theirs));
                let run = std::panic::AssertUnwindSafe(|| what(&mut talk));
                let failed = std::panic::catch_unwind(run).is_err();
                // SAFETY: with its handlers, as a program does.
                unsafe { libc::exit(i32::from(failed)) }
            }
            pid => Self { pid, talk: Talk(BufReader::new(ours)) },
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: our child, which is waited for here alone.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }

    /// Waits until it has ended, and leaves it to be waited for once more.
    pub fn await_end(&self) {
        let end = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: all zeros are a value of it.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: writes to `about`.
        let waited = unsafe { libc::waitid(libc::P_PID, self.pid.unsigned_abs(), &mut about, end) };
        assert_eq!(waited, 0);
    }

    pub fn tell(&mut self, line: &str) {
        self.talk.tell(line);
    }

    pub fn hear(&mut self) -> String {
        self.talk.hear()
    }
}

impl Drop for Kin {
    fn drop(&mut self) {
        // SAFETY: our child, which is waited for here alone.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// This process goes on as another user without rights.
pub fn become_user(user: u32) {
    // SAFETY: concerns this process, which has one thread. Its parent's end goes on to kill it.
    let failed = unsafe {
        libc::setgroups(0, std::ptr::null()) != 0
            || libc::setresgid(user, user, user) != 0
            || libc::setresuid(user, user, user) != 0
            || libc::prctl(libc::PR_SET_DUMPABLE, 1) != 0
    };
    assert!(!failed, "{}", std::io::Error::last_os_error());
}

/// This process goes on in new namespaces, `flags` of `unshare`; where they number processes, its
/// child does.
pub fn enter(flags: i32) {
    // SAFETY: concerns this process, which has one thread.
    let failed = unsafe { libc::unshare(flags) } != 0;
    assert!(!failed, "{}", std::io::Error::last_os_error());
    if flags & libc::CLONE_NEWPID == 0 {
        return;
    }
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        // SAFETY: goes with its parent.
        0 => drop(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }),
        child => {
            let mut status = 0;
            // SAFETY: writes to `status`; then this process says what its child said.
            unsafe {
                libc::waitpid(child, &mut status, 0);
                libc::_exit(libc::WEXITSTATUS(status));
            }
        }
    }
}

/// The user namespace that this process has entered knows its user as root, and no other.
pub fn map_own_user(user: u32) {
    std::fs::write("/proc/self/uid_map", format!("0 {user} 1")).unwrap();
}

/// A system call that is refused: where some arguments have some bits.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub call: libc::c_long,
    /// Number of the argument, the mask, and the bits: of its lower half.
    pub tests: [(u32, u32, u32); 2],
    /// The other tests: the argument is more than that.
    pub above: Option<(u32, u32)>,
}

impl Refused {
    pub const fn new(call: libc::c_long) -> Self {
        Self { call, tests: [(0, 0, 0); 2], above: None }
    }

    /// All threads of the process get the error from now on.
    pub fn refuse(&self, errno: i32) {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
        const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let op = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let argument = |number: u32| {
            // `struct seccomp_data`: the number, the architecture, an address, arguments.
            op(LOAD, 16 + 8 * number + if cfg!(target_endian = "big") { 4 } else { 0 })
        };
        let mut filter = vec![op(LOAD, 0)];
        // Jumps over what is left of the tests, to the permission, are filled in below.
        filter.push(op(EQUAL, self.call as u32));
        for (number, mask, bits) in self.tests.into_iter().filter(|(_, mask, _)| *mask != 0) {
            filter.extend([argument(number), op(AND, mask), op(EQUAL, bits)]);
        }
        if let Some((number, least)) = self.above {
            filter.extend([argument(number), op(GREATER, least)]);
        }
        let refusal = filter.len();
        filter.push(op(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32));
        filter.push(op(RETURN, libc::SECCOMP_RET_ALLOW));
        for (at, op) in filter.iter_mut().enumerate() {
            if op.code == EQUAL || op.code == GREATER {
                op.jf = (refusal - at) as u8;
            }
        }
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program lives until the call returns.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::syscall(
                    libc::SYS_seccomp,
                    libc::SECCOMP_SET_MODE_FILTER,
                    libc::SECCOMP_FILTER_FLAG_TSYNC,
                    &raw const program,
                ) != 0
        };
        assert!(!failed, "{}", std::io::Error::last_os_error());
    }
}
