// SPDX-License-Identifier: MIT OR Apache-2.0

//! A second process that shows its memory: the test binary runs the test once more, as a child
//! that finds the name of the parent's socket in its environment.

use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use iwarp_os::PassedFd;
use iwarp_os::local::{Life, PeerMemory, ReadError, RemotePart, StatusPage};
use iwarp_os::poll::wait_readable;
use iwarp_os::unix::{SeqListener, SeqSocket};
use iwarp_os::{IoPartMut, clock};

const NAME: &str = "IWARP_TEST_PARENT";
const LIMIT: Duration = Duration::from_secs(20);

/// The name of the test function that it stands in, as the harness knows it.
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::peer::name_around(here)
    }};
}
pub(crate) use this_test;

/// For [`this_test`]: the path of the function that `inner` stands in, without the binary's name.
pub(crate) fn name_around<F>(_inner: F) -> &'static str {
    let path = std::any::type_name::<F>();
    path.strip_suffix("::here").and_then(|path| path.split_once("::")).expect("a test").1
}

/// Waits until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "not so in time: {what}");
        clock::yield_now();
    }
}

/// This process as the other one of a test.
pub(crate) struct Shower {
    socket: SeqSocket,
    page: Option<(StatusPage, PassedFd, Life)>,
}

impl Shower {
    /// In the child: one that has not connected yet.
    pub(crate) fn in_child() -> Option<Vec<u8>> {
        env::var(NAME).ok().map(String::into_bytes)
    }

    pub(crate) fn connect(name: &[u8]) -> Self {
        Self { socket: SeqSocket::connect(name).unwrap(), page: None }
    }

    /// Shows the page and passes the address. This thread is the one that lives.
    pub(crate) fn show(&mut self, memory: *const u8, len: usize) {
        self.show_after(memory, len, || ());
    }

    /// As [`show`](Self::show); `change` is the last thing before the address is passed: nothing is
    /// mapped between them, into a hole that it leaves.
    pub(crate) fn show_after(&mut self, memory: *const u8, len: usize, change: impl FnOnce()) {
        let (page, fd) = StatusPage::create().unwrap();
        let life = page.hold().unwrap();
        change();
        let words = [memory.addr() as u64, len as u64, page.revocations()];
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.socket.send(&message, &[fd.as_fd()]).unwrap();
        self.page = Some((page, fd, life));
    }

    /// No thread says any more that this process lives.
    pub(crate) fn let_go(&mut self) {
        self.page = None;
    }

    /// The parent's next word; 0 once it has ended.
    pub(crate) fn listen(&self) -> u8 {
        let mut word = [0];
        wait_readable([self.socket.as_fd()], None).unwrap();
        self.socket.recv(&mut word).unwrap();
        word[0]
    }

    pub(crate) fn answer(&self, word: u8) {
        self.socket.send(&[word], &[]).unwrap();
    }

    /// Does nothing more until the parent ends this process, or has ended.
    pub(crate) fn wait_for_end(&self) -> ! {
        while self.listen() != 0 {}
        std::process::exit(0)
    }
}

/// The other process, as this one sees it. Killed when dropped.
pub(crate) struct Peer {
    pub(crate) child: Child,
    socket: SeqSocket,
    page: Option<OwnedFd>,
    address: u64,
    len: u64,
    at: u64,
}

impl Peer {
    /// Starts the test in another process, by the command `by` if there is one, which has to
    /// connect, and to show its memory.
    pub(crate) fn start(test: &str, by: &[&str]) -> Self {
        let mut peer = Self::start_without(test, by);
        peer.learn();
        peer
    }

    /// As [`start`](Self::start), of a process that waits for a word before it shows its memory.
    pub(crate) fn start_telling(test: &str, word: u8) -> Self {
        let mut peer = Self::start_without(test, &[]);
        peer.tell(word);
        peer.learn();
        peer
    }

    fn learn(&mut self) {
        let mut words = [0; 24];
        assert_eq!(wait_readable([self.socket.as_fd()], Some(LIMIT)).unwrap(), [true]);
        let (len, mut fds) = self.socket.recv_passed(&mut words).unwrap();
        assert_eq!((len, fds.len()), (24, 1), "the child shows nothing");
        let mut words = words.chunks_exact(8).map(|word| word.try_into().unwrap());
        [self.address, self.len, self.at] =
            std::array::from_fn(|_| u64::from_ne_bytes(words.next().unwrap()));
        self.page = fds.pop();
    }

    /// As [`start`](Self::start), of a process that shows none.
    pub(crate) fn start_without(test: &str, by: &[&str]) -> Self {
        // Each its own: a process that another test is just starting holds a name a little longer.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("iwarp-os-test/{}/{number}", std::process::id());
        let listener = SeqListener::bind(name.as_bytes()).unwrap();
        listener.listen(1).unwrap();
        let exe = env::current_exe().unwrap();
        let mut command = by.iter().map(AsRef::as_ref).chain([exe.as_os_str()]);
        let child = Command::new(command.next().unwrap())
            .args(command)
            .args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
            .env(NAME, &name)
            .spawn()
            .unwrap();
        assert_eq!(wait_readable([listener.as_fd()], Some(LIMIT)).unwrap(), [true]);
        let socket = listener.accept().unwrap();
        Self { child, socket, page: None, address: 0, len: 0, at: 0 }
    }

    pub(crate) fn open(&self) -> std::io::Result<PeerMemory> {
        PeerMemory::open(&self.socket, self.page.as_ref().unwrap().as_fd())
    }

    /// The part of its memory from `begin` on.
    pub(crate) fn part(&self, begin: usize, len: usize) -> RemotePart {
        RemotePart::new(self.address + begin as u64, len as u64).unwrap()
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn tell(&self, word: u8) {
        self.socket.send(&[word], &[]).unwrap();
    }

    pub(crate) fn hear(&self) -> u8 {
        let mut word = [0];
        assert_eq!(wait_readable([self.socket.as_fd()], Some(LIMIT)).unwrap(), [true]);
        assert_eq!(self.socket.recv(&mut word).unwrap(), 1, "the child has ended");
        word[0]
    }

    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: the number of a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }

    /// A few bytes of it.
    pub(crate) fn taste(&self, memory: &PeerMemory) -> Result<[u8; 8], ReadError> {
        let mut bytes = [0; 8];
        let read = memory.read(self.at, &[self.part(0, 8)], &mut [IoPartMut::new(&mut bytes)])?;
        assert_eq!(read, 8);
        Ok(bytes)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Gone already in some cases.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
