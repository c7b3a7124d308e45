// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes whose memory the system lets no other read, or not this one; sandboxes.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::thread;

use iwarp_os::IoPartMut;
use iwarp_os::local::{PeerMemory, ReadError, RemotePart, StatusPage};
use iwarp_os::unix::SeqSocket;

use crate::hosts::{as_nobody, possible};
use crate::peer::{Peer, Shower, this_test};

const BYTES: [u8; 8] = *b"a secret";
const NOBODY: u32 = 65_534;

/// In the child: becomes a user, as one that others may read or not.
fn become_user(user: u32, dumpable: bool) {
    // SAFETY: ids and a flag of this process, in which one other thread waits.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null())
            | libc::setresgid(user, user, user)
            | libc::setresuid(user, user, user)
            | libc::prctl(libc::PR_SET_DUMPABLE, i32::from(dumpable), 0, 0, 0)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_process_of_this_user_is_read_and_one_of_another_not_opened() {
    if !possible() {
        return;
    }
    if let Some(name) = Shower::in_child() {
        become_user(NOBODY, true);
        let mut shower = Shower::connect(&name);
        shower.show(BYTES.as_ptr(), BYTES.len());
        shower.wait_for_end();
    }
    let peer = Peer::start(this_test!(), &[]);
    as_nobody(|| {
        // SAFETY: a flag, which the change of users has taken away.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        let memory = peer.open().unwrap();
        assert_eq!(memory.probe().map(drop), Ok(()));
        assert_eq!(peer.taste(&memory), Ok(BYTES));
    });
    // Root might read it by a privilege, which the other has not.
    assert_eq!(peer.open().unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_process_that_lets_nobody_read_it_refuses() {
    if !possible() {
        return;
    }
    if let Some(name) = Shower::in_child() {
        become_user(NOBODY, false);
        let mut shower = Shower::connect(&name);
        shower.show(BYTES.as_ptr(), BYTES.len());
        // And back.
        assert_eq!(shower.listen(), b'd');
        // SAFETY: a flag.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        shower.answer(b'd');
        shower.wait_for_end();
    }
    let peer = Peer::start(this_test!(), &[]);
    as_nobody(|| {
        let memory = peer.open().unwrap();
        assert!(memory.lives());
        let refused = (Err(ReadError::Refused), Err(ReadError::Refused));
        assert_eq!((memory.probe().map(drop), peer.taste(&memory)), refused);
        peer.tell(b'd');
        assert_eq!(peer.hear(), b'd');
        assert_eq!((memory.probe().map(drop), peer.taste(&memory)), (Ok(()), Ok(BYTES)));
    });
}

#[test]
fn a_process_that_becomes_another_users_refuses() {
    if !possible() {
        return;
    }
    if let Some(name) = Shower::in_child() {
        // SAFETY: an id of this thread, which connects; it comes back at once.
        let connect = |user: u32| unsafe { libc::setresuid(u32::MAX, user, u32::MAX) };
        assert_eq!(connect(NOBODY), 0);
        let mut shower = Shower::connect(&name);
        assert_eq!(connect(0), 0);
        become_user(NOBODY - 1, true);
        shower.show(BYTES.as_ptr(), BYTES.len());
        shower.wait_for_end();
    }
    let peer = Peer::start(this_test!(), &[]);
    as_nobody(|| {
        let memory = peer.open().unwrap();
        assert!(memory.lives());
        let refused = (Err(ReadError::Refused), Err(ReadError::Refused));
        assert_eq!((memory.probe().map(drop), peer.taste(&memory)), refused);
    });
}

/// The other process is in an outer PID namespace, and has no number here.
#[test]
fn a_process_without_a_number_here_is_not_opened() {
    if !possible() {
        return;
    }
    if let Some(name) = Shower::in_child() {
        let socket = SeqSocket::connect(&name).unwrap();
        assert_eq!(socket.peer_process(), None);
        let (page, fd) = StatusPage::create().unwrap();
        let _life = page.hold().unwrap();
        let refused = PeerMemory::open(&socket, fd.as_fd()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        return;
    }
    let mut peer = Peer::start_without(this_test!(), &["unshare", "--pid", "--fork"]);
    assert!(peer.child.wait().unwrap().success());
}

/// Calls `what` on a thread for which the system call fails so.
fn in_sandbox<R: Send>(call: libc::c_long, error: i32, what: impl FnOnce() -> R + Send) -> R {
    let step = |code: u32, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let confined = move || {
        let filter = program.as_ptr().cast_mut();
        let program = libc::sock_fprog { len: program.len() as u16, filter };
        let (mode, none) = (libc::SECCOMP_MODE_FILTER as libc::c_ulong, 0_usize);
        // SAFETY: a program that lives until the call returns; both concern this thread alone.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, none, none)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        what()
    };
    thread::scope(|scope| scope.spawn(confined).join()).unwrap()
}

#[test]
fn a_sandbox_without_the_call_refuses() {
    let (page, fd) = StatusPage::create().unwrap();
    let _life = page.hold().unwrap();
    let (socket, _end) = SeqSocket::pair().unwrap();
    let memory = PeerMemory::open(&socket, fd.as_fd()).unwrap();
    let from = RemotePart::new(BYTES.as_ptr().addr() as u64, 8).unwrap();
    let read = || {
        let mut room = [0; 8];
        memory.read(page.revocations(), &[from], &mut [IoPartMut::new(&mut room)])
    };
    assert_eq!(read(), Ok(8));
    for (error, expected) in [
        (libc::ENOSYS, ReadError::Refused),
        (libc::EPERM, ReadError::Refused),
        (libc::EACCES, ReadError::Refused),
        (libc::EINVAL, ReadError::Refused),
        (libc::ENOMEM, ReadError::Shortage),
        (libc::ESRCH, ReadError::Dead),
        (libc::EFAULT, ReadError::Gone),
    ] {
        let call = libc::SYS_process_vm_readv;
        let seen = in_sandbox(call, error, || (read(), memory.probe().map(drop)));
        assert_eq!(seen, (Err(expected), Err(expected)));
    }
    assert_eq!((read(), memory.probe().map(drop)), (Ok(8), Ok(())));
}

#[test]
fn a_sandbox_that_does_not_tell_of_robust_mutexes_is_not_relied_on() {
    let (page, fd) = StatusPage::create().unwrap();
    let refused = in_sandbox(libc::SYS_get_robust_list, libc::ENOSYS, || {
        page.hold().map(drop).unwrap_err().kind()
    });
    assert_eq!(refused, ErrorKind::Unsupported);
    // It was not kept.
    let _life = page.hold().unwrap();
    let (socket, _end) = SeqSocket::pair().unwrap();
    assert!(PeerMemory::open(&socket, fd.as_fd()).unwrap().lives());
}
